"""Fetches every Java library that tests need, so that no test has to wait for the network.

    python -m tests.support.fetch_ahead

runs beside the first checks of bin/test. It prints nothing and always succeeds: the test that needs a missing library
fetches it again and reports the error.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.support.apache_kafka import CLIENT_VERSIONS, VERSION, client_jars, streams_jars
from tests.support.java import UnavailableError
from tests.support.jdbc_driver import sqlite_jar

# Ivy fetches one file after the other, and small files only cost latency.
FETCHES_AT_ONCE = 3


def fetch_jars(jars: Callable[..., Path], *version: str) -> None:
    with suppress(UnavailableError):
        jars(*version)


def main() -> None:
    # The set of the broker is by far the largest.
    versions = sorted(CLIENT_VERSIONS, key=lambda version: version != VERSION)
    with ThreadPoolExecutor(FETCHES_AT_ONCE) as threads:
        # Kafka Streams of other versions is for the soak tests, and large.
        threads.submit(fetch_jars, streams_jars, VERSION)
        for version in versions:
            threads.submit(fetch_jars, client_jars, version)
        threads.submit(fetch_jars, sqlite_jar)


if __name__ == "__main__":
    main()
