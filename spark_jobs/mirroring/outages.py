"""Outages of the target: they are reported while they last, and the steps of a batch that they broke are repeated.

Producers retry for ever by themselves. Other steps, such as comparing topics, end with an error after their timeouts.
If the target did not respond during a step, that is the reason, and the step is repeated when the target responds. Any
other error fails the batch.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.waiting import BATCH_WAITS

_LOG = logging.getLogger(__name__)
_PROBE_INTERVAL_S = 10.0
_PROBE_TIMEOUT_S = 5.0
_REPEAT_INTERVAL_S = 0.5

T = TypeVar("T")


class TargetOutages:
    """Probes the target while a batch is in progress: a thread per batch, which a short batch ends before it acts."""

    def __init__(self, target: Mapping[str, str], is_stopped: Callable[[], bool]) -> None:
        """`target` is settings of librdkafka's clients; `is_stopped` returns whether the query was stopped."""
        self._target = target
        self._is_stopped = is_stopped
        self._had_outage = Event()

    @contextmanager
    def watched(self, batch: int) -> Iterator[None]:
        """Report the outages until the block ends."""
        ended = Event()
        self._had_outage.clear()
        Thread(target=self._watch, args=(batch, ended), name="watch of the target", daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            BATCH_WAITS.clear()

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
        """Return when the target responds. Raises JobError if the query is stopped."""
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
                _LOG.warning("batch %d waits for the target, which does not respond: %s", batch, failure)
                self._had_outage.set()
                BATCH_WAITS.set()
                if ended.is_set():  # since the check above
                    BATCH_WAITS.clear()
            elif BATCH_WAITS.is_set():
                _LOG.info("the target responds again; batch %d continues", batch)
                BATCH_WAITS.clear()

    def _failure(self) -> str | None:
        """Return why the target does not respond; None if it does."""
        try:
            AdminClient(dict(self._target)).list_topics(timeout=_PROBE_TIMEOUT_S)
        except KafkaException as error:
            return str(error.args[0].str())
        return None
