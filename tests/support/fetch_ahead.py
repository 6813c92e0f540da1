"""Fetches every Java library that tests need, so that no test has to wait for the network.

    python -m tests.support.fetch_ahead

runs beside the first checks of bin/test. It prints nothing and always succeeds: the test that needs a missing library
fetches it again and reports the error.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.java_runtime.pinned_jars import PinnedJarError
from tests.spark_jobs.quick_drivers import first_jars
from tests.support.apache_kafka import sets_of_every_run
from tests.support.ivy import fetch_sets
from tests.support.java import SHORT_LIVED, UnavailableError
from tests.support.jdbc_driver import SQLITE


def fetch_jars(names: Sequence[str]) -> None:
    with suppress(UnavailableError):
        fetch_sets(names)


def fetch_connectors() -> None:
    with suppress(UnavailableError, JobError, PinnedJarError):
        first_jars()


def main() -> None:
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(SHORT_LIVED)  # for the JVM that fetches Spark's connectors
    # The set of the broker is as large as all others, and Ivy fetches one file after the other. Each start of it costs
    # two seconds of processor time.
    broker, *others = sets_of_every_run()
    with ThreadPoolExecutor() as threads:
        threads.submit(fetch_jars, [broker])
        threads.submit(fetch_jars, [*others, SQLITE])
        threads.submit(fetch_connectors)


if __name__ == "__main__":
    main()
