"""Fetches every Java library that tests need, so that no test has to wait for the network.

    python -m tests.support.fetch_ahead

is what bin/test starts beside its first checks. It says nothing and always succeeds: what could not be had is fetched
again, and complained of, by the test that needs it.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.support.apache_kafka import CLIENT_VERSIONS, VERSION, client_jars
from tests.support.java import UnavailableError

# Ivy asks for one file after the other, and a file of a few kB is all waiting.
FETCHES_AT_ONCE = 3


def fetch_client_jars(version: str) -> None:
    with suppress(UnavailableError):
        client_jars(version)


def main() -> None:
    # The set of the broker is by far the largest.
    versions = sorted(CLIENT_VERSIONS, key=lambda version: version != VERSION)
    with ThreadPoolExecutor(FETCHES_AT_ONCE) as threads:
        threads.map(fetch_client_jars, versions)


if __name__ == "__main__":
    main()
