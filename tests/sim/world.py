"""Virtual time, and one asyncio event loop per simulated process.

Owns: what runs next. Must not know: brokers, clients or faults.

The world holds one heap of (virtual time, order). An entry is a turn of some loop, or the work of one of its threads.
A turn runs the callbacks that are ready, as asyncio does; time passes only between entries. The order of entries at
the same time, how long a turn waits for the processor, and how long a thread works, are drawn from one seeded source.
So the same seed gives the same history.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import Context
from functools import partial
from random import Random
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

TURN_DELAY_US_MAX: Final = 50
THREAD_DELAY_US_MAX: Final = 500
STEP_US_MAX: Final = 10_000_000
"""How long one step may take on a slow disk. Its end is known when it begins, so healing cannot make it shorter."""


class Crashed(BaseException):
    """The process is dead. Not an Exception: no code may catch it and continue."""


class World:
    """The scheduler. All times are virtual microseconds since its start."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_us = 0
        self._due: list[tuple[int, float, int, Callable[[], None]]] = []
        self._count = 0
        self._loops: list[ProcessLoop] = []
        self.trace: list[tuple[int, str, tuple[object, ...]]] = []
        """What happened: time, kind, details. Details are formatted only when the trace is printed or compared."""

    def note(self, kind: str, *details: object) -> None:
        """Add a line to the trace."""
        self.trace.append((self.now_us, kind, details))

    def after(self, delay_us: int, step: Callable[[], None]) -> None:
        """Run `step` in `delay_us`. Steps of the same time run in a random order."""
        self._count += 1
        heapq.heappush(self._due, (self.now_us + max(delay_us, 0), self.random.random(), self._count, step))

    def run_until(self, is_over: Callable[[], bool], *, limit_us: int) -> bool:
        """Run steps until `is_over`; return False if `limit_us` passes, or nothing is left to run, before."""
        while not is_over():
            if not self._due or self._due[0][0] > limit_us:
                return False
            due_us, _, _, step = heapq.heappop(self._due)
            self.now_us = due_us
            step()
        return True

    def run_for(self, duration_us: int) -> None:
        """Run all steps that are due within `duration_us`."""
        end_us = self.now_us + duration_us
        self.run_until(lambda: False, limit_us=end_us)
        self.now_us = end_us

    def new_loop(self, name: str) -> ProcessLoop:
        """Return the event loop of a new process."""
        loop = ProcessLoop(self, name)
        self._loops.append(loop)
        return loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Collect all processes. `finally` clauses of unfinished coroutines run now, when nothing counts any more."""
        for loop in self._loops:
            loop.kill()
            loop.discard_tasks()


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process, which can be paused and killed.

    A killed process runs no further line of its code: neither callbacks nor `finally` clauses, nor threads.
    """

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.failures: list[dict[str, Any]] = []
        """What reached the exception handler: a defect of the process."""
        self._world = world
        self._ready: deque[asyncio.Handle] = deque()
        self._has_turn = False
        self._is_paused = False
        self._is_killed = False
        self._is_in_thread = False
        self._stalled_us = 0
        self._busy_until_us = 0
        self._held: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    # What the world does to it

    def pause(self) -> None:
        """Stand still until `resume`. Steps that become due before it follow then, in their order."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        held, self._held = self._held, []
        for step in held:
            self._world.after(0, step)

    def kill(self) -> None:
        """End the process. The loop keeps its tasks: coroutines that are collected would run `finally` clauses."""
        self._is_killed = True
        self._ready.clear()
        self._held.clear()

    def discard_tasks(self) -> None:
        """Close the coroutines of all tasks, at the end of the world."""
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        self._tasks.clear()

    @property
    def is_killed(self) -> bool:
        return self._is_killed

    @property
    def is_live(self) -> bool:
        """Whether the process runs: neither killed nor paused."""
        return not self._is_killed and not self._is_paused

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin to run `main` in this process; return its task. For the world, not for code that runs in a loop."""
        return self.create_task(main)

    def stall(self, duration_us: int) -> None:
        """Make the step that runs now take `duration_us`: the loop, or the thread, does nothing else before."""
        self._stalled_us = min(self._stalled_us + duration_us, STEP_US_MAX)

    def now_us(self) -> int:
        """The virtual time within the step that runs now."""
        return self._world.now_us + self._stalled_us

    # Scheduling

    def time(self) -> float:
        return self._world.now_us / 1_000_000

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._is_killed:
            self._ready.append(handle)
            self._take_turn_soon()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._after(round(delay * 1_000_000), partial(self._expire, timer))
        return timer

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: `_expire` skips it."""

    def _expire(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._ready.append(timer)
            self._take_turn_soon()

    def _take_turn_soon(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            wait_us = max(self._busy_until_us - self._world.now_us, 0)
            self._after(wait_us + self._world.random.randrange(TURN_DELAY_US_MAX), self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        asyncio.events._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                if self._is_killed:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio.events._set_running_loop(None)
            self._busy_until_us, self._stalled_us = self.now_us(), 0
        if self._ready:
            self._take_turn_soon()

    def _after(self, delay_us: int, step: Callable[[], None]) -> None:
        """Run a step of this process in `delay_us`, unless it is killed by then; after a pause if it is paused."""

        def when_due() -> None:
            if self._is_killed:
                return
            if self._is_paused:
                self._held.append(when_due)
            else:
                step()

        self._world.after(delay_us, when_due)

    # Threads

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run `func` as one step of its own, some time later, and complete the future in a turn after that."""
        done: asyncio.Future[T] = self.create_future()
        self.in_thread(partial(func, *args)).add_done_callback(
            lambda result: self.call_soon_threadsafe(_copy_result, result, done)
        )
        return done

    def in_thread(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` as one step of its own: later, or immediately if a thread calls, which may wait for it."""
        result: Future[T] = Future()
        if self._is_in_thread:
            _do(work, result)
        else:
            self._after(self._world.random.randrange(THREAD_DELAY_US_MAX), partial(self._run_thread, work, result))
        return result

    def _run_thread(self, work: Callable[[], T], result: Future[T]) -> None:
        done = Future[T]()
        self._is_in_thread = True
        try:
            _do(work, done)
        except Crashed:
            return
        finally:
            self._is_in_thread = False
            took_us, self._stalled_us = self._stalled_us, 0
        if took_us:
            self._after(took_us, partial(_copy_result, done, result))
        else:
            _copy_result(done, result)

    # What tasks need

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._is_killed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_killed:
            self.failures.append(context)


class SimulatedThreads(Executor):
    """The threads of one process."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._loop.in_thread(partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: work that was submitted is done in its time."""


def _do(work: Callable[[], T], result: Future[T]) -> None:
    try:
        value = work()
    except Exception as error:
        result.set_exception(error)
    else:
        result.set_result(value)


def _copy_result(result: Future[T], done: asyncio.Future[T] | Future[T]) -> None:
    if done.cancelled():
        return
    error = result.exception()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result.result())
