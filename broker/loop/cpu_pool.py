"""Work of requests that keeps a processor busy: recompression, conversion between formats.

Owns the threads for it, and how many requests may wait for them (`queued.max.requests`). Must not know what is
computed, or sockets: it says when there is no room, and whoever reads requests stops until there is.

The codecs let go of the interpreter while they work, and what does not is interrupted for the event loop every
millisecond, so that the other connections go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# More threads would only take the interpreter from each other.
THREADS = 2


class CpuPool:
    """Runs what takes long beside the event loop."""

    def __init__(self, queued_max: int) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "computing")
        self._queued_max = queued_max
        self._queued_count = 0
        self._on_full: Callable[[], None] = lambda: None
        self._on_room: Callable[[], None] = lambda: None

    def when_full(self, on_full: Callable[[], None], on_room: Callable[[], None]) -> None:
        """Have `on_full` called when as many requests wait as may, and `on_room` when one of them is done then."""
        self._on_full, self._on_room = on_full, on_room

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, in a thread. A call beyond the bound is served as well, after the others."""
        self._queued_count += 1
        if self._queued_count == self._queued_max:
            self._on_full()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            if self._queued_count == self._queued_max:
                self._on_room()
            self._queued_count -= 1

    def stop(self) -> None:
        """Return when nothing runs any more."""
        self._threads.shutdown()
