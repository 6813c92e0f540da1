"""Runs a job as a process: topics, session, query, signals, exit code.

A job runs until it is stopped. After SIGTERM or SIGINT it finishes its current batch, stops the query and exits with 0.
If the query fails, it exits with 1 and logs the cause. A query that ends by itself (`--trigger availableNow`) exits
with 0 after it has read everything.

Owns the process. Must not know what a job computes.
"""

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import TypeVar

from confluent_kafka import KafkaException
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_jobs.parameters import JobParameters
from spark_jobs.session import spark_session
from spark_jobs.topics import TopicSpec, create_topics, wait_for_topics

_LOG = logging.getLogger(__name__)

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POLL_INTERVAL_S = 0.5
_STOP_POLLS_MAX = 240  # two minutes for the current batch; to interrupt it is safe, only slower to resume

P = TypeVar("P", bound=JobParameters)


class JobError(Exception):
    """The job cannot start; the text is for its user."""


def run_job(parameters: P, build: Callable[[SparkSession, P], StreamingQuery], topics: Sequence[TopicSpec]) -> int:
    """Run one job to its end and return the exit code of the process."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    prepare = create_topics if parameters.create_topics else wait_for_topics
    try:
        prepare(parameters.bootstrap_servers, list(topics))
        spark = spark_session(parameters.app_id, parameters.spark_conf)
        try:
            return supervise(build(spark, parameters))
        finally:
            spark.stop()
    except (JobError, ConnectionError, KafkaException) as error:
        _LOG.error("%s", error)
        return 1


def supervise(query: StreamingQuery) -> int:
    """Wait for the query's end or a signal; logs every batch with input."""
    report = _ProgressReport()
    with _stop_requested_by_signal() as stop_requested:
        try:
            while not query.awaitTermination(_POLL_INTERVAL_S):
                report.update(query)
                if stop_requested.is_set():
                    _finish_current_batch(query)
                    query.stop()
                    break
        except StreamingQueryException as error:
            _LOG.error("query failed: %s", error)
            return 1
        finally:
            report.update(query)
    return 0


def _finish_current_batch(query: StreamingQuery) -> None:
    """Return when the current batch is committed, or none is running."""
    done_before = _batches_done(query)
    for _ in range(_STOP_POLLS_MAX):
        if not query.status["isTriggerActive"] or _batches_done(query) > done_before:
            return
        query.awaitTermination(_POLL_INTERVAL_S)


def _batches_done(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


@contextmanager
def _stop_requested_by_signal() -> Iterator[Event]:
    """Yield an event that SIGTERM or SIGINT sets; Spark's own SIGINT handler would cancel the current batch."""
    requested = Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        requested.set()

    previous = {number: signal.signal(number, on_signal) for number in _STOP_SIGNALS}
    try:
        yield requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _ProgressReport:
    """Logs each batch once: the records read and dropped, and its duration."""

    def __init__(self) -> None:
        self._reported = -1

    def update(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            if progress["batchId"] <= self._reported:
                continue
            self._reported = progress["batchId"]
            self._log(progress)

    def _log(self, progress: StreamingQueryProgress) -> None:
        batch = progress["batchId"]
        if progress["numInputRows"]:
            duration_ms = progress["durationMs"]["triggerExecution"]
            _LOG.info("batch %d: %d records in %d ms", batch, progress["numInputRows"], duration_ms)
        if late := sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"]):
            _LOG.warning("batch %d: %d rows arrived later than the watermark allows and are not counted", batch, late)
        if malformed := _observed(progress, "malformed"):
            _LOG.warning("batch %d: %d malformed records were dropped", batch, malformed)


def _observed(progress: StreamingQueryProgress, metric: str) -> int:
    """Return the sum of the query's observations named `metric`."""
    return sum(row[metric] for row in progress["observedMetrics"].values() if metric in row)
