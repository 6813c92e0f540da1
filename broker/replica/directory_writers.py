"""The threads that write to slow log directories, and how the event loop waits for them.

Owns the threads: a few for each directory, created when the directory becomes slow. Must not know what is written or
when a directory is slow (`storage.disk.directory_writer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from storage.disk.directory_writer import THREADS, Action, Start
from storage.log.log import Log
from storage.manager.log_manager import LogManager

T = TypeVar("T")


class DirectoryWriters:
    """The writer threads of one broker."""

    def __init__(self, log_manager: LogManager, new_threads: Callable[[int, str], Executor]) -> None:
        """`new_threads(size, name)` returns an executor of that many threads."""
        self._log_manager = log_manager
        self._new_threads = new_threads
        self._loop = asyncio.get_running_loop()
        self._threads: list[Executor] = []
        log_manager.write_in_threads(self._start_of)

    async def stop(self) -> None:
        """Wait until all pending appends are written; later ones are written directly. Call before logs are closed."""
        written = self._loop.create_future()

        def stop_using() -> None:
            self._log_manager.write_directly()
            written.set_result(None)

        self._log_manager.when_written(stop_using)
        await written
        for threads in self._threads:
            threads.shutdown(wait=False)

    def _start_of(self, path: str) -> Start:
        threads = self._new_threads(THREADS, "slow-log-directory")
        self._threads.append(threads)

        def start(work: Action, done: Action) -> None:
            threads.submit(work).add_done_callback(lambda _: self._loop.call_soon_threadsafe(done))

        return start


async def between_writes(log: Log, change: Callable[[], T]) -> T:
    """Call `change` while no append to `log` is being written; return its result, or raise its exception."""
    if not log.planned.is_being_stored:
        return change()
    changed: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def call() -> None:
        if changed.cancelled():
            return
        try:
            changed.set_result(change())
        except Exception as error:
            changed.set_exception(error)

    log.planned.between_writes(call)
    return await changed
