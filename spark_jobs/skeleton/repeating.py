"""Calls a function at an interval, in a thread: signs that a job runs, and what it does without new records.

Owns the thread and its end. Must not know what the function does.
"""

from collections.abc import Callable
from threading import Event, Thread


class Repeater:
    """Calls a function immediately and then at an interval, until it is closed."""

    def __init__(self, name: str, interval_s: float, call: Callable[[], None]) -> None:
        """`name` is that of the thread. `call` handles its failures itself: an exception ends the thread."""
        self._interval_s = interval_s
        self._call = call
        self._ended = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Return when no call is in progress, and none follows."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._call()
            self._ended.wait(self._interval_s)
