"""Failures for lack of descriptors or memory: what is said of them, and to whom.

Owns their count and how often they are logged. Must not know which call failed; `storage.files` decides what a shortage
is. Any thread.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from protocol.errors import ErrorCode, KafkaError
from storage.files import ShortageError

_LINE_INTERVAL_S: Final = 10.0

_logger = logging.getLogger(__name__)


class TryLaterError(KafkaError):
    """KAFKA_STORAGE_ERROR although the disk is fine: nothing has changed, and the same request may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class OutOfResourcesError(TryLaterError):
    """Because of a shortage, which was reported."""

    def __init__(self, error: ShortageError) -> None:
        super().__init__(str(error))


class LineLimit:
    """Lets one line pass in each interval, and counts those that it holds back. Pure; times are in seconds."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next_s = float("-inf")
        self._held_back = 0

    def admit(self, now_s: float) -> int | None:
        """How many lines were held back since the last one; None when this one is held back too."""
        if now_s < self._next_s:
            self._held_back += 1
            return None
        held_back, self._held_back = self._held_back, 0
        self._next_s = now_s + self._interval_s
        return held_back


class Shortages:
    """Those of one broker. `count` only rises."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._limit = LineLimit(_LINE_INTERVAL_S)
        self._lock = threading.Lock()
        self.count = 0

    def report(self, error: ShortageError) -> None:
        """Count a failure, and log it unless another was logged a moment ago."""
        with self._lock:
            self.count += 1
            held_back = self._limit.admit(self._now_s())
        if held_back is not None:
            _logger.error(
                "%s; the log directory stays online and the request can be retried (%d such failures not logged)",
                error,
                held_back,
            )
