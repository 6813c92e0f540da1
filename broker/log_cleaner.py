"""Runs cleaning passes in processes of their own, so that compaction never holds the event loop.

Owns: the worker processes and the tasks that keep them busy. Must not know: which log is due or what a pass does
(`storage.log_cleaning`, `storage.cleaner`).

Workers are spawned, because forking and uvloop do not mix, only when there is something to clean, and end when there is
nothing more: an idle broker carries no second interpreter.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol

from broker.clock import Clock
from protocol.errors import KafkaError
from storage.cleaner import CleaningJob, CleaningResult, clean
from storage.log import Log
from storage.log_cleaning import CleanerSettings, Cleaning, LogCleaning
from storage.log_directory import LogDirectory

logger = logging.getLogger("kafka.log.LogCleaner")


class Workers(Protocol):
    """Where passes run."""

    def run(self, job: CleaningJob) -> asyncio.Future[CleaningResult]:
        """One pass. Raises what `storage.cleaner.clean` raises, and BrokenProcessPool when the worker died."""

    def end(self) -> None:
        """Nothing more to do, or no time for it: let go of the processes. The next `run` begins anew."""

    def resize(self, count: int) -> None:
        """Run so many passes at a time, from the next beginning on."""


class WorkerProcesses:
    """`Workers` that are spawned on demand."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None
        self._strangers: set[int | None] = set()

    def run(self, job: CleaningJob) -> asyncio.Future[CleaningResult]:
        if self._pool is None:
            self._strangers = {process.pid for process in multiprocessing.active_children()}
            self._pool = ProcessPoolExecutor(self._count, multiprocessing.get_context("spawn"))
        return asyncio.get_running_loop().run_in_executor(self._pool, clean, job)

    def resize(self, count: int) -> None:
        self._count = count

    def end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        pool.shutdown(wait=False, cancel_futures=True)
        # A pass that is cut off leaves files that the next start removes; waiting for it could take minutes.
        for process in multiprocessing.active_children():
            if process.pid not in self._strangers:
                process.terminate()


class LogCleaner:
    """Keeps cleaning what is due."""

    def __init__(
        self, cleaning: LogCleaning, workers: Workers, blocking: Executor, clock: Clock, *, count: int, backoff_ms: int
    ) -> None:
        """`count` passes at a time; with nothing due, look again after `backoff_ms`."""
        self._cleaning = cleaning
        self._workers = workers
        self._blocking = blocking
        self._clock = clock
        self._count = count
        self._backoff_ms = backoff_ms
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._busy_count = 0

    def start(self) -> None:
        for number in range(self._count):
            task = self._tasks.get(number)
            if task is None or task.done():
                self._tasks[number] = asyncio.create_task(self._work(number), name="log cleaner")

    def reconfigure(self, settings: CleanerSettings, *, backoff_ms: int) -> None:
        """Apply changed settings from the next pass on; passes under way are finished."""
        self._cleaning.settings = settings
        self._backoff_ms = backoff_ms
        self._count = settings.threads
        self._workers.resize(settings.threads)
        self.start()

    def log_moved(self, log: Log, old_directory: LogDirectory) -> None:
        """How far a log is cleaned is kept where it lies."""
        self._cleaning.log_moved([old_directory.path, str(log.directory.parent)])
        self._off_loop(self._cleaning.write_checkpoints)

    async def stop(self) -> None:
        """End all passes, finished or not."""
        for task in self._tasks.values():
            task.cancel()
        self._workers.end()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _work(self, number: int) -> None:
        while number < self._count:
            due = self._cleaning.pick(self._clock.now_ms())
            if due is None:
                if not self._busy_count:
                    self._workers.end()
                await asyncio.sleep(self._backoff_ms / 1000)
                continue
            self._busy_count += 1
            try:
                await self._clean(due)
            finally:
                self._busy_count -= 1

    async def _clean(self, due: Cleaning) -> None:
        try:
            result = await self._workers.run(due.job)
            self._cleaning.finish(due, result, now_ms=self._clock.now_ms())
        except BrokenProcessPool:
            logger.warning("a worker died while it cleaned %s-%d; trying again", due.log.topic, due.log.partition)
            self._cleaning.give_back(due)
            self._workers.end()
            await asyncio.sleep(self._backoff_ms / 1000)
        except KafkaError as error:
            logger.error("cannot put cleaned segments into service: %s", error)
        except Exception as error:
            self._cleaning.fail(due, error)
        await self._off_loop(self._cleaning.write_checkpoints)

    def _off_loop(self, work: Callable[[], None]) -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(self._blocking, work)
