"""Outages of the target: they are reported while they last, and the steps of a batch that they broke are repeated.

In an outage the target does not respond, or a partition that the batch is written to has no leader. Producers retry for
ever by themselves. Other steps, such as comparing topics, end with an error after their timeouts. If an outage was the
reason, the step is repeated when it is over. Any other error fails the batch.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.waiting import BATCH_WAITS

_LOG = logging.getLogger(__name__)
_PROBE_INTERVAL_S = 10.0
_PROBE_TIMEOUT_S = 5.0
_REPEAT_INTERVAL_S = 0.5

_NO_LEADER = -1

T = TypeVar("T")
Place = tuple[str, int]  # a topic and a partition


class TargetOutages:
    """Probes the target while a batch is in progress: a thread per batch, which a short batch ends before it acts."""

    def __init__(self, target: Mapping[str, str], is_stopped: Callable[[], bool]) -> None:
        """`target` is settings of librdkafka's clients; `is_stopped` returns whether the query was stopped."""
        self._target = target
        self._is_stopped = is_stopped
        self._had_outage = Event()
        self._written: Collection[Place] = ()
        self._leaderless = LeaderlessPartitions()

    @contextmanager
    def watched(self, batch: int) -> Iterator[None]:
        """Report the outages until the block ends."""
        ended = Event()
        self._had_outage.clear()
        self._written = ()
        self._leaderless = LeaderlessPartitions()
        Thread(target=self._watch, args=(batch, ended), name="watch of the target", daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            BATCH_WAITS.clear()

    def expect_leaders(self, partitions: Collection[Place]) -> None:
        """State the partitions of the target that the watched batch is written to."""
        self._written = partitions

    def repeat(self, step: Callable[[], T]) -> T:
        """Return the result of a step; repeat it after an outage. Raises what the step raises without one."""
        while True:
            try:
                return step()
            except (JobError, KafkaException, OSError, PySparkException, Py4JError):
                if self._failure() is None and not self._had_outage.is_set():
                    raise
            self._wait()  # outside of the handler, whose error keeps the clients of the step

    def _wait(self) -> None:
        """Return when the outage is over. Raises JobError if the query is stopped."""
        while not self._is_stopped():
            if self._failure() is None:
                self._had_outage.clear()
                return
            time.sleep(_REPEAT_INTERVAL_S)
        raise JobError("the query was stopped while it waited for the target")

    def _watch(self, batch: int, ended: Event) -> None:
        while not ended.wait(_PROBE_INTERVAL_S):
            failure = self._failure()
            if ended.is_set():
                return
            if failure is not None:
                _LOG.warning("batch %d waits for the target, %s", batch, failure)
                self._had_outage.set()
                BATCH_WAITS.set()
                if ended.is_set():  # since the check above
                    BATCH_WAITS.clear()
            elif BATCH_WAITS.is_set():
                _LOG.info("the target is available again; batch %d continues", batch)
                BATCH_WAITS.clear()

    def _failure(self) -> str | None:
        """Return what the outage is, as the end of a sentence about the target; None if there is none."""
        try:
            metadata = AdminClient(dict(self._target)).list_topics(timeout=_PROBE_TIMEOUT_S)
        except KafkaException as error:
            return f"which does not respond: {error.args[0].str()}"
        return self._leaderless.report(metadata, self._written, datetime.now(UTC))


class LeaderlessPartitions:
    """The partitions without a leader, and when each was found to have none."""

    def __init__(self) -> None:
        self._since: dict[Place, datetime] = {}

    def report(self, metadata: ClusterMetadata, wanted: Collection[Place], now: datetime) -> str | None:
        """Return which of the wanted partitions have no leader, and since when; None if all have one.

        Partitions that the cluster does not know are left out.
        """
        found = [place for place in sorted(wanted) if _has_no_leader(metadata, *place)]
        self._since = {place: self._since.get(place, now) for place in found}
        if not found:
            return None
        (topic, partition), since = min(self._since.items(), key=lambda each: each[1])
        more = f" (and {len(found) - 1} more without one)" if len(found) > 1 else ""
        return f"where {topic}-{partition} has no leader since {since:%Y-%m-%d %H:%M:%S} UTC{more}"


def _has_no_leader(metadata: ClusterMetadata, topic: str, partition: int) -> bool:
    found = metadata.topics[topic].partitions.get(partition) if topic in metadata.topics else None
    return found is not None and found.leader == _NO_LEADER
