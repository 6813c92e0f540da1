"""Repeats the work of a connector in one thread of its own.

A failure is logged, and the work is tried again sooner than its interval. Owns when work is done. Must not know what.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_jobs.connect.base.errors import ConnectError

logger = logging.getLogger("org.apache.kafka.connect.mirror.Scheduler")

RETRY_S: Final = 10.0
_JOIN_S: Final = 5.0


@dataclass(slots=True)
class _Work:
    action: Callable[[], None]
    interval_s: float
    description: str
    due_s: float


class Schedule:
    """The repeated work of one connector. `add` comes before `start`."""

    def __init__(self, name: str) -> None:
        self._works: list[_Work] = []
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)

    def add(self, action: Callable[[], None], interval_s: float | None, description: str) -> None:
        """Do the work now, in this thread, and at the interval later; only now if that is None."""
        has_succeeded = self._try(action, description)
        if interval_s is None and has_succeeded:
            return
        # Without an interval the work is over when it has succeeded once.
        work = _Work(action, float("inf") if interval_s is None else interval_s, description, 0.0)
        self._set_due(work, has_succeeded)
        self._works.append(work)

    def start(self) -> None:
        if self._works:
            self._thread.start()

    def stop(self) -> None:
        """End the thread. Work that waits for a cluster ends by its own timeout."""
        self._is_stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def _repeat(self) -> None:
        while True:
            work = min(self._works, key=lambda each: each.due_s)
            wait_s = work.due_s - time.monotonic()
            if self._is_stopped.wait(min(max(wait_s, 0.0), threading.TIMEOUT_MAX)):
                return
            self._set_due(work, self._try(work.action, work.description))

    @staticmethod
    def _set_due(work: _Work, has_succeeded: bool) -> None:
        work.due_s = time.monotonic() + (work.interval_s if has_succeeded else min(work.interval_s, RETRY_S))

    def _try(self, action: Callable[[], None], description: str) -> bool:
        try:
            action()
        except ConnectError as error:
            logger.error("%s: %s failed, and is tried again: %s", self._thread.name, description, error)
            return False
        except Exception:
            logger.exception("%s: %s failed, and is tried again", self._thread.name, description)
            return False
        return True
