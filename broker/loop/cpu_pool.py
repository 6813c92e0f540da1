"""Threads for CPU-bound work of requests: recompression, conversion between formats.

Owns the threads, and how many requests may wait for them (`queued.max.requests`). Must not know what is computed, or
sockets: its callbacks report when the queue is full, and the listeners then read no requests until it has room.

Work that may take seconds has one thread of its own, so that it delays other such work only.

The codecs release the GIL while they work. Other work is interrupted for the event loop every millisecond, so that the
other connections are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")

# More threads would only compete for the GIL.
THREADS = 2


class CpuPool:
    """Runs CPU-bound work in threads."""

    def __init__(
        self,
        queued_max: int,
        new_threads: Callable[[int, str], Executor],
        *,
        on_full: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        """`new_threads(size, name)` returns an executor of that many threads.

        `on_full` is called when the queue is full, and `on_room` when it has room again, each time. They may run more.
        """
        self._threads = new_threads(THREADS, "computing")
        self._thread_of_long_work = new_threads(1, "computing-long")
        self._queued_max = queued_max
        self._queued_count = 0
        self._is_full = False
        self._on_full = on_full
        self._on_room = on_room

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread; return its result or exception. Calls above the bound wait for the others."""
        return await self._run_in(self._threads, work)

    async def run_alone(self, work: Callable[[], T]) -> T:
        """Run `work` that may take seconds after all earlier such work; return its result or exception."""
        return await self._run_in(self._thread_of_long_work, work)

    async def _run_in(self, threads: Executor, work: Callable[[], T]) -> T:
        self._queued_count += 1
        if self._queued_count >= self._queued_max and not self._is_full:
            self._is_full = True
            self._on_full()
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        finally:
            self._queued_count -= 1
            if self._is_full and self._queued_count < self._queued_max:
                self._is_full = False
                self._on_room()

    def stop(self) -> None:
        """Wait until all work is done and end the threads."""
        self._threads.shutdown()
        self._thread_of_long_work.shutdown()
