"""Runs a job as a process: topics, session, queries, reports, signals, exit code.

A job runs until it is stopped. After SIGTERM or SIGINT it finishes its current batches, stops the queries and exits
with 0; so it does while it waits for topics. Queries that end by themselves (`--trigger availableNow`) exit with 0
after they have read everything. If something is wrong before the first query has started, the process exits with 2; if
a query fails, it stops the others and exits with 1. Both report the cause in one line.

Owns the process. Must not know what a job computes.
"""

import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Event
from types import FrameType
from typing import Protocol, TypeVar

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.commits import GroupOffsets
from spark_jobs.skeleton.errors import JobError, cause_of
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.java_runtime.pinned_jars import PinnedJarError
from spark_jobs.skeleton.metrics import JobMetrics
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.presence import RunningSign
from spark_jobs.skeleton.progress import Batch, NewBatches, ProgressLines
from spark_jobs.skeleton.records import DEAD_LETTERS
from spark_jobs.skeleton.session import spark_session
from spark_jobs.skeleton.topics import TopicSpec, topic_preparation
from spark_jobs.skeleton.unreadable import explained
from spark_jobs.skeleton.waiting import BATCH_WAITS

_LOG = logging.getLogger(__name__)

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POLL_INTERVAL_S = 0.5
_STOP_POLLS_MAX = 240  # two minutes for the current batch; to interrupt it is safe, only slower to resume

P = TypeVar("P", bound=JobParameters)


class BatchObserver(Protocol):
    """Gets each batch of the job once."""

    def on_batch(self, batch: Batch) -> None: ...

    def close(self) -> None: ...


def run_job(
    parameters: P, build: Callable[[SparkSession, P], list[StreamingQuery]], topics: Sequence[TopicSpec]
) -> int:
    """Run one job to its end and return the exit code of the process."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    prepare = topic_preparation(parameters.create_topics, parameters.auto_create_topics)
    with ExitStack() as resources:
        # Until queries run, both signals raise KeyboardInterrupt.
        resources.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        try:
            prepare(parameters.client, list(topics))
            spark = spark_session(parameters.app_id, parameters.session_settings())
            resources.callback(spark.stop)
            parameters = with_start(spark, parameters)
            watchers = observers(parameters)
            for watcher in watchers:
                resources.callback(watcher.close)
            queries = build(spark, parameters)
        except (JobError, PinnedJarError, OSError, KafkaException, PySparkException, Py4JError) as error:
            _LOG.error("%s", cause_of(error))
            return 2
        except KeyboardInterrupt:
            _LOG.info("%s: stopped before its first batch", parameters.app_id)
            return 0
        sign = RunningSign(Folder(spark, parameters.checkpoint))
        resources.callback(sign.close)
        read = parameters
        return supervise(queries, watchers, lambda error: explained(error, read.client, read.read_topics))


def observers(parameters: JobParameters) -> list[BatchObserver]:
    """Return what reports the batches of this job: log lines, metrics, commits. Raises JobError for a taken port."""
    found: list[BatchObserver] = [ProgressLines(parameters.app_id, parameters.checkpoint)]
    if parameters.metrics is not None:
        try:
            found.append(JobMetrics(parameters.app_id, parameters.metrics))
        except OSError as error:
            raise JobError(f"--metrics: cannot listen on {':'.join(map(str, parameters.metrics))}: {error}") from error
    if parameters.commit_group is not None:
        found.append(GroupCommits(parameters))
    return found


class GroupCommits:
    """Commits the end offsets of the job's batches to `--commit-group`.

    A failure is logged, because the next batch commits again.
    """

    def __init__(self, parameters: JobParameters) -> None:
        assert parameters.commit_group is not None
        self._offsets = GroupOffsets(parameters.client, parameters.commit_group)
        self._dead_letters = f"{parameters.app_id}-{DEAD_LETTERS}"

    def on_batch(self, batch: Batch) -> None:
        if batch.query.startswith(self._dead_letters):
            return
        try:
            self._offsets.commit(batch.end_offsets)
        except JobError as error:
            _LOG.warning("%s", error)

    def close(self) -> None:
        self._offsets.close()


def with_start(spark: SparkSession, parameters: P) -> P:
    """Return the parameters with the starting offsets of --from-group, which Spark ignores after the first batch.

    Raises JobError if the checkpoint is new although the group has offsets: the job has run before, and its checkpoint
    is lost. It must then be said where to begin.
    """
    if parameters.commit_group is None:
        return parameters
    # A job that ended before its first batch has a checkpoint, but no offsets.
    is_new = Folder(spark, parameters.checkpoint).is_new_checkpoint()
    if not is_new and not parameters.from_group:
        return parameters
    topics = parameters.read_topics()
    group = GroupOffsets(parameters.client, parameters.commit_group)
    try:
        committed = group.committed(topics)
        if parameters.from_group and committed:
            return replace(parameters, starting_offsets=json.dumps(group.or_earliest(topics)))
    finally:
        group.close()
    if parameters.from_group and is_new:
        raise JobError(f"--from-group: group {group.group} has no offsets in {', '.join(topics) or 'any topic'}")
    if is_new and committed and parameters.starting_offsets is None:
        names = ", ".join(committed)
        raise JobError(
            f"checkpoint {parameters.checkpoint} is new, but group {group.group} has offsets in {names}: "
            "the job has run before. Name its checkpoint, or begin with --from-group or --starting-offsets"
        )
    return parameters


def supervise(
    queries: Sequence[StreamingQuery],
    watchers: Sequence[BatchObserver],
    explain: Callable[[BaseException], str] = cause_of,
) -> int:
    """Wait for the end of the queries or for a signal; watchers get each batch once. Return the exit code.

    `explain(error)` returns the line that states why a query failed.
    """
    new_batches = NewBatches()

    def report() -> None:
        for query in queries:
            for batch in new_batches.of(query):
                for watcher in watchers:
                    watcher.on_batch(batch)

    with _stop_requested_by_signal() as stop_requested:
        try:
            is_running = True
            while is_running:
                is_running = not all(_have_ended(queries))
                report()
                if is_running and stop_requested.is_set():
                    for query in queries:
                        _finish_current_batch(query)
                        if (failure := query.exception()) is not None:
                            raise failure
                        query.stop()
                    break
        except StreamingQueryException as error:
            _LOG.error("query failed: %s", explain(error))
            return 1
        finally:
            report()
            for query in queries:
                query.stop()
    return 0


def _have_ended(queries: Sequence[StreamingQuery]) -> list[bool]:
    """Ask every query, so that each failure is raised soon."""
    return [query.awaitTermination(_POLL_INTERVAL_S) for query in queries]


def _finish_current_batch(query: StreamingQuery) -> None:
    """Return when the current batch is committed, or none is running, or it waits for a cluster."""
    done_before = _batches_done(query)
    for _ in range(_STOP_POLLS_MAX):
        if not query.status["isTriggerActive"] or _batches_done(query) > done_before or BATCH_WAITS.is_set():
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
