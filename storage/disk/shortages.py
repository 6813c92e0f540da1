"""Failures for lack of descriptors or memory: their errors, their count and their log messages.

Owns the count and how often they are logged. Must not know which call failed; `storage.disk.files` decides what a
shortage is. Any thread.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from base.line_limit import LineLimit
from protocol.errors import ErrorCode, KafkaError
from storage.disk.files import ShortageError

_LINE_INTERVAL_S: Final = 10.0

_logger = logging.getLogger(__name__)


class TryLaterError(KafkaError):
    """KAFKA_STORAGE_ERROR although the disk works: nothing has changed, and the same request may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class OutOfResourcesError(TryLaterError):
    """A shortage of descriptors or memory, which was reported already."""

    def __init__(self, error: ShortageError) -> None:
        super().__init__(str(error))


class Shortages:
    """The shortages of one broker. `count` never falls."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._limit = LineLimit(_LINE_INTERVAL_S)
        self._lock = threading.Lock()
        self.count = 0

    def report(self, error: ShortageError) -> None:
        """Count a failure, and log it unless another was logged in the last 10 seconds."""
        with self._lock:
            self.count += 1
            suppressed = self._limit.admit(self._now_s())
        if suppressed is not None:
            _logger.error(
                "%s; the log directory stays online and the request can be retried (%d such failures not logged)",
                error,
                suppressed,
            )
