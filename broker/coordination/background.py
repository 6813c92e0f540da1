"""Tasks of a coordinator that no request awaits, and work that is repeated.

Owns: the log entry for a failure, cancellation, and the time of the next run. Must not know: what the tasks do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from base.clock import Clock
from broker.loop.driver import Running
from broker.loop.timer import Timer, TimerHandle

T = TypeVar("T")
Unfinished = list[asyncio.Future[Any]]


async def ended(cancelled: Unfinished) -> None:
    """Wait until cancelled work has ended."""
    await asyncio.gather(*cancelled, return_exceptions=True)


async def next_turn() -> None:
    """Let the other work of the event loop have its turn."""
    await asyncio.sleep(0)


async def sleep(timer: Timer, clock: Clock, milliseconds: int) -> None:
    """Wait until the broker's timer has advanced by `milliseconds`."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    deadline_ms = clock.monotonic_ms() + milliseconds
    handle = timer.schedule(deadline_ms, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        handle.cancel()


async def rest_of(running: Running[T]) -> T:
    """Wait for what sliced work returns."""
    return await running


class BackgroundTasks:
    """Futures whose failure is logged, as no request awaits them."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._unfinished: dict[asyncio.Future[Any], None] = {}
        """In the order of their start, in which they are cancelled."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self.watch(task)
        return task

    def go_on(self, work: T | Running[T]) -> None:
        """Let sliced work that was started go on, if it is not over."""
        if isinstance(work, Running):
            self.start(rest_of(work))

    async def run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that is finished even if the caller is cancelled."""
        return await asyncio.shield(self.start(work))

    def watch(self, future: asyncio.Future[Any]) -> None:
        """Keep a reference to `future` until it is done, and log its failure."""
        self._unfinished[future] = None
        future.add_done_callback(self._finished)

    def cancel(self) -> Unfinished:
        """Cancel everything that is unfinished, and return it: a cancelled task still has to end."""
        unfinished = list(self._unfinished)
        for future in unfinished:
            future.cancel()
        return unfinished

    def _finished(self, future: asyncio.Future[Any]) -> None:
        self._unfinished.pop(future, None)
        if not future.cancelled() and (error := future.exception()) is not None:
            self._logger.error("A background task of the coordinator failed", exc_info=error)


class PeriodicTask:
    """Runs a coroutine function at intervals. A run that is due before the previous one has ended is left out."""

    def __init__(
        self,
        timer: Timer,
        clock: Clock,
        tasks: BackgroundTasks,
        interval_ms: int,
        work: Callable[[], Coroutine[object, object, None]],
    ) -> None:
        self._timer = timer
        self._clock = clock
        self._tasks = tasks
        self._interval_ms = interval_ms
        self._work = work
        self._handle: TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Schedule the first run one interval from now."""
        self._handle = self._timer.schedule(self._clock.monotonic_ms() + self._interval_ms, self._run)

    def stop(self) -> None:
        """Schedule no further runs. The one that is under way is cancelled with the `tasks` given."""
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        if self._running is None or self._running.done():
            self._running = self._tasks.start(self._work())
        self.start()
