"""What happens to a record that a transform, a converter or a target refuses (KIP-298).

Owns repetition, tolerance, the log and the headers of dead letters. Must not know how dead letters are sent.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from spark_jobs.connect.base.connector_settings import (
    LOG_ERRORS,
    LOG_MESSAGES,
    RETRY_DELAY_MAX,
    RETRY_TIMEOUT,
    TOLERANCE,
)
from spark_jobs.connect.base.errors import ConnectError, RetriableError
from spark_jobs.connect.worker.task import StoppedError
from tools.client import client_library as library

logger = logging.getLogger("org.apache.kafka.connect.runtime.errors.LogReporter")

T = TypeVar("T")
FIRST_DELAY_MS: Final = 300
_PREFIX: Final = "__connect.errors."


class Origin(NamedTuple):
    """Where a record that failed was read; None for a record of a source."""

    topic: str
    partition: int
    offset: int


class Failure(NamedTuple):
    """A record that failed: at which stage, in which class, and why. `message` is the record of a topic."""

    stage: str
    executing_class: str
    error: BaseException
    origin: Origin | None = None
    message: library.Message | None = None


class Failures:
    """Handles the failures of one task."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        connector: str,
        task: int,
        stopping: threading.Event,
        report: Callable[[Failure], None] | None = None,
    ) -> None:
        """`config` are parsed settings; `report` sends a tolerated failure as a dead letter."""
        self._tolerates = config[TOLERANCE].lower() == "all"
        self._retry_timeout_ms: int = config[RETRY_TIMEOUT]
        self._retry_delay_max_ms: int = config[RETRY_DELAY_MAX]
        self._logs = config[LOG_ERRORS]
        self._logs_origin = config[LOG_MESSAGES]
        self._connector = connector
        self._task = task
        self._stopping = stopping
        self._report = report
        self.repeats = self._retry_timeout_ms != 0
        """Whether `retried` has an effect."""
        self.count = 0
        """Of failures that were tolerated."""

    def handle(self, failure: Failure) -> None:
        """Report a failure that is tolerated. Raises ConnectError for one that is not."""
        if self._logs:
            where = f" at {failure.origin}" if self._logs_origin and failure.origin is not None else ""
            logger.error(
                "task %s-%d failed at stage %s in %s%s: %s",
                self._connector, self._task, failure.stage, failure.executing_class, where, failure.error,
            )  # fmt: skip
        if not self._tolerates:
            raise ConnectError(
                f"Tolerance exceeded in error handler: {failure.stage} in {failure.executing_class}: {failure.error}"
            ) from failure.error
        self.count += 1
        if self._report is not None:
            self._report(failure)

    def retried(self, step: Callable[[], T]) -> T:
        """Return the result of a step, which is repeated while it raises RetriableError and there is time.

        Raises StoppedError if the task is to end before.
        """
        started_s = time.monotonic()
        delay_ms = FIRST_DELAY_MS
        while True:
            try:
                return step()
            except RetriableError as error:
                waited_ms = (time.monotonic() - started_s) * 1000
                left_ms = float("inf") if self._retry_timeout_ms < 0 else self._retry_timeout_ms - waited_ms
                if left_ms <= 0:
                    raise
                if self._stopping.wait(min(delay_ms, self._retry_delay_max_ms, left_ms) / 1000):
                    raise StoppedError from error
                delay_ms *= 2


def dead_letter_headers(failure: Failure, connector: str, task: int) -> list[tuple[str, bytes]]:
    """Return the headers that describe a failure in a dead letter."""
    origin = failure.origin
    error = failure.error
    values = {
        "topic": "" if origin is None else origin.topic,
        "partition": "" if origin is None else origin.partition,
        "offset": "" if origin is None else origin.offset,
        "connector.name": connector,
        "task.id": task,
        "stage": failure.stage,
        "class.name": failure.executing_class,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error),
        "exception.stacktrace": "".join(traceback.format_exception(error)),
    }
    return [(f"{_PREFIX}{name}", str(value).encode()) for name, value in values.items()]
