"""Runs cleaning passes in processes of their own, so that compaction never holds the event loop.

Owns: the worker processes and the tasks that keep them busy. Must not know: which log is due or what a pass does
(`storage.cleaning.log_cleaning`, `storage.cleaning.cleaner`).

Each task has its own worker, so that a worker that dies, or is ended because its log was removed, affects no other
pass. Workers are spawned, because forking and uvloop do not mix. They start only when there is something to clean, and
then end, so that an idle broker has no second interpreter. A worker whose broker was killed ends itself: it must not
write in a directory that the next broker has opened.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from base.clock import Clock
from broker.loop.slices import SlicedWork
from broker.replica.directory_writers import between_writes
from protocol.errors import KafkaError
from storage.cleaning.cleaning_job import CleaningJob, CleaningResult
from storage.cleaning.cleaning_metrics import CleanerMetrics, Uncleanable
from storage.cleaning.log_cleaning import CleanerSettings, Cleaning, LogCleaning
from storage.directories.log_directory import LogDirectory
from storage.disk.files import ShortageError
from storage.log.log import Log

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

logger = logging.getLogger("kafka.log.LogCleaner")

WANTED_CHECK_S: Final = 0.2  # how often a running pass is checked for being still wanted
END_TIMEOUT_S: Final = 5.0
_THREADS_PER_WORKER: Final = 2


class WorkerEndedError(Exception):
    """The process could not be spawned, or it ended before its pass was done."""


class Worker(Protocol):
    """Runs passes, one after the other. Both calls block; `end` is called in another thread than `clean`."""

    def clean(self, job: CleaningJob) -> CleaningResult:
        """Run one pass. Raises what `storage.cleaning.cleaner.clean` raises, and WorkerEndedError."""

    def end(self) -> None:
        """End the worker. After this returns it writes nothing; the next `clean` starts a new one."""


class WorkerProcess:
    """A `Worker` that is spawned on demand."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def clean(self, job: CleaningJob) -> CleaningResult:
        try:
            connection = self._connection or self._spawn()
            connection.send(job)
            outcome: CleaningResult | Exception = connection.recv()
        except (EOFError, OSError) as error:
            self.end()
            raise WorkerEndedError(f"{type(error).__name__}: {error}") from error
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def end(self) -> None:
        with self._lock:
            process, self._process, self._connection = self._process, None, None
        if process is None:
            return
        process.terminate()
        process.join(END_TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()

    def _spawn(self) -> Connection:
        import multiprocessing  # on demand, like the process: it costs the start of a broker time and memory

        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), name="log cleaner", daemon=True)
        with self._lock:
            process.start()
            theirs.close()  # so that the connection ends when the worker ends
            self._process, self._connection = process, ours
        return ours


def _serve(connection: Connection) -> None:
    """Run passes in a worker process until the broker closes the connection."""
    from storage.cleaning.cleaner import clean  # the broker's own process does not need it

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker handles it, and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            result = clean(job)
        except Exception as error:
            connection.send(error)
        else:
            connection.send(result)


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Slot:
    """One task's worker, with a thread for each of the calls that block."""

    def __init__(self, number: int, worker: Worker, threads: Executor) -> None:
        self.number = number
        self._worker = worker
        self._threads = threads

    def clean(self, job: CleaningJob) -> asyncio.Future[CleaningResult]:
        return asyncio.get_running_loop().run_in_executor(self._threads, self._worker.clean, job)

    def end(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(self._threads, self._worker.end)


class LogCleaner:
    """Cleans the logs that are due. An unexpected error ends one round of a task; the task tries again."""

    def __init__(
        self,
        cleaning: LogCleaning,
        new_worker: Callable[[], Worker],
        new_threads: Callable[[int, str], Executor],
        background: Executor,
        clock: Clock,
        sliced_work: SlicedWork,
        *,
        count: int,
        backoff_ms: int,
    ) -> None:
        """`count` passes run at a time. While nothing is due, a task waits `backoff_ms` before it checks again."""
        self._cleaning = cleaning
        self._new_worker = new_worker
        self._new_threads = new_threads
        self._background = background
        self._clock = clock
        self._sliced_work = sliced_work
        self._count = count
        self._backoff_ms = backoff_ms
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._expiring = asyncio.Lock()
        self._failing: set[int] = set()
        self._is_checkpoint_wanted = False
        self._checkpoints: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of the cleaner while it runs."""
        cleaning.when_checkpoint_wanted(self._checkpoint_wanted)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in range(self._count):
            task = self._tasks.get(number)
            if task is None or task.done():
                self._tasks[number] = asyncio.create_task(self._work(number), name="log cleaner")

    def reconfigure(self, settings: CleanerSettings, *, backoff_ms: int) -> None:
        """Apply changed settings from the next pass on; passes under way are finished."""
        self._cleaning.reconfigure(settings)
        self._backoff_ms = backoff_ms
        self._count = settings.threads
        self.start()

    async def clean_now(self, logs: Iterable[Log]) -> int:
        """Clean each of the logs that has something to clean, up to its end; return how many were cleaned.

        Closes the active segments first. Waits for the end of another pass over a log.
        """
        with self._new_threads(_THREADS_PER_WORKER, "log-cleaner") as threads:
            slot = _Slot(0, self._new_worker(), threads)
            count = 0
            try:
                for log in logs:
                    while self._cleaning.is_in_progress(log):  # noqa: ASYNC110 - a pass does not report its end
                        await asyncio.sleep(WANTED_CHECK_S)
                    log.planned.between_writes(partial(log.appends.roll, self._clock.now_ms()))
                    due = self._cleaning.take(log, self._clock.now_ms())
                    if due is not None:
                        await self._clean(slot, due)
                        count += 1
                await self._off_loop(self._cleaning.write_checkpoints)
            finally:
                await slot.end()
        return count

    async def expire_now(self) -> int:
        """Delete the expired segments of compacted logs; return how many."""
        async with self._expiring:
            return await self._cleaning.delete_expired(self._clock.now_ms(), self._sliced_work.pause, self._off_loop)

    @property
    def dead_thread_count(self) -> int:
        """The number of tasks whose last round an unexpected error has ended."""
        return len(self._failing)

    def metrics(self) -> CleanerMetrics:
        return self._cleaning.metrics(self._clock.now_ms())

    def uncleanable_in(self, directory: LogDirectory) -> Uncleanable:
        """Return the partitions of a log directory that are not cleaned until the next start."""
        return self._cleaning.uncleanable_in(directory, self._clock.now_ms())

    def _checkpoint_wanted(self) -> None:
        """Write the checkpoints soon. In any thread: a truncation, which lowers a checkpoint, may run in one."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._want_checkpoint)

    def _want_checkpoint(self) -> None:
        """Write the checkpoints soon; requests until then share one write."""
        self._is_checkpoint_wanted = True
        if self._checkpoints is None or self._checkpoints.done():
            self._checkpoints = asyncio.create_task(self._write_checkpoints(), name="log cleaner checkpoints")

    async def _write_checkpoints(self) -> None:
        while self._is_checkpoint_wanted:
            self._is_checkpoint_wanted = False
            await self._off_loop(self._cleaning.write_checkpoints)

    async def stop(self) -> None:
        """End all passes. The files of unfinished ones are removed."""
        self._loop = None
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        if self._checkpoints is not None:
            await self._checkpoints

    async def _work(self, number: int) -> None:
        with self._new_threads(_THREADS_PER_WORKER, "log-cleaner") as threads:
            slot = _Slot(number, self._new_worker(), threads)
            try:
                while number < self._count:
                    try:
                        await self._clean_once(slot)
                    except Exception:
                        self._failing.add(number)
                        logger.exception("log cleaner %d failed; it tries again in %d ms", number, self._backoff_ms)
                        await asyncio.sleep(self._backoff_ms / 1000)
                    else:
                        self._failing.discard(number)
            finally:
                self._failing.discard(number)
                await slot.end()

    async def _clean_once(self, slot: _Slot) -> None:
        await self._off_loop(self._cleaning.read_ages)
        if slot.number >= self._count:
            return  # the number of cleaners was lowered
        due = self._cleaning.pick(self._clock.now_ms(), slot.number)
        if due is not None:
            await self._clean(slot, due)
        await self._off_loop(self._cleaning.write_checkpoints)
        if slot.number == 0:
            await self.expire_now()
        if due is None:
            await slot.end()
            await asyncio.sleep(self._backoff_ms / 1000)

    async def _clean(self, slot: _Slot, due: Cleaning) -> None:
        try:
            result = await self._pass(slot, due)
            await self._off_loop(lambda: self._cleaning.make_durable(due))
            await self._cleaning.finish(
                due,
                result,
                now_ms=self._clock.now_ms(),
                between_writes=between_writes,
                pause=self._sliced_work.pause,
            )
        except KafkaError as error:
            logger.error("cannot put cleaned segments into service: %s", error)
            await self._give_back(due)
            await asyncio.sleep(self._backoff_ms / 1000)
        except asyncio.CancelledError:
            await self._give_back(due)
            raise
        except Exception as error:
            if not self._cleaning.is_wanted(due):
                await self._give_back(due)
            elif isinstance(error, WorkerEndedError):
                logger.warning(
                    "the worker for %s-%d did not start or died (%s); trying again",
                    due.log.topic,
                    due.log.partition,
                    error,
                )
                self._cleaning.worker_ended(due, self._clock.now_ms())
                await self._give_back(due)
                await asyncio.sleep(self._backoff_ms / 1000)
            else:
                self._cleaning.fail(due, error)
                if isinstance(error, ShortageError):
                    await self._give_back(due)
                    await asyncio.sleep(self._backoff_ms / 1000)

    async def _pass(self, slot: _Slot, due: Cleaning) -> CleaningResult:
        """Run one pass. Raises WorkerEndedError also if it is no longer wanted. Leaves no worker that is busy."""
        running = slot.clean(due.job)
        try:
            while not (await asyncio.wait({running}, timeout=WANTED_CHECK_S))[0]:
                if not self._cleaning.is_wanted(due):
                    await slot.end()
        except asyncio.CancelledError:
            while not running.done():
                await slot.end()  # repeated: the process may not have been spawned yet
                await asyncio.wait({running}, timeout=WANTED_CHECK_S)
            running.exception()
            raise
        try:
            return running.result()
        finally:
            del running  # its exception would hold this frame, and this frame it

    async def _give_back(self, due: Cleaning) -> None:
        """Remove what a pass has left, to the end also if the cleaner stops meanwhile."""
        given_back = self._off_loop(lambda: self._cleaning.give_back(due))
        try:
            await asyncio.shield(given_back)
        except asyncio.CancelledError:
            await asyncio.wait({given_back})
            raise

    def _off_loop(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._background, work)
