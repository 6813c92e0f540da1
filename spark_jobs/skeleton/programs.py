"""Programs that are not streaming jobs: how they log, and how their errors end the process.

An error during the preparation, when nothing has been sent or changed yet, exits with 2, a later one with 1. Both are
reported in one line on standard error.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_jobs.skeleton.clients import client_settings
from spark_jobs.skeleton.errors import JobError, cause_of
from spark_jobs.skeleton.java_runtime.pinned_jars import PinnedJarError
from spark_jobs.skeleton.topics import TopicSpec, topic_preparation

T = TypeVar("T")


def run_program(name: str, prepare: Callable[[], T], work: Callable[[T], None]) -> int:
    """Call `work` with what `prepare` returns; return the exit code of the process."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    exit_code = 2
    try:
        prepared = prepare()
        exit_code = 1
        work(prepared)
    except (JobError, PinnedJarError, OSError, KafkaException, PySparkException, Py4JError) as error:
        print(f"spark-job {name}: {cause_of(error)}", file=sys.stderr)
        return exit_code
    return 0


def prepare_topics(flags: argparse.Namespace, topics: list[TopicSpec]) -> dict[str, str]:
    """Create or await topics by the flags of `client_parser`; return the settings of a client. Raises JobError."""
    client = client_settings(flags.bootstrap_servers, flags.kafka_option)
    topic_preparation(flags.create_topics, flags.auto_create_topics)(client, topics)
    return client


def stop_request() -> Event:
    """Return an event that SIGTERM or SIGINT sets from now on."""
    requested = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: requested.set())
    return requested
