"""Virtual time, and one asyncio event loop per simulated process.

Owns: what runs next. Must not know: brokers, clients or faults.

The world holds one heap of (virtual time, order). An entry is a turn of some loop, or the work of one of its threads.
A turn runs the callbacks that are ready, as asyncio does; time passes only between entries. The order of entries at
the same time, how long a turn waits for the processor, and how long a thread works, are drawn from one seeded source.
So the same seed gives the same history.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

TURN_DELAY_US_MAX: Final = 50
THREAD_DELAY_US_MAX: Final = 500
TASKS_KEPT: Final = 64
"""How many tasks that are done a loop keeps at most."""
STEP_US_MAX: Final = 10_000_000
"""How long one step may take on a slow disk. Its end is known when it begins, so healing cannot make it shorter."""


class Crashed(BaseException):
    """The process is dead. Not an Exception: no code may catch it and continue."""


class World:
    """The scheduler. All times are virtual microseconds since its start."""

    def __init__(self, seed: int, *, traces_messages: bool = True) -> None:
        self.random = Random(seed)
        self.now_us = 0
        self._due: list[tuple[int, float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = count()
        self._loops: list[ProcessLoop] = []
        self.traces_messages = traces_messages
        """Whether the trace holds every message between processes: most of its lines."""
        self.trace: list[tuple[int, str, tuple[object, ...]]] = []
        """What happened: time, kind, details. Details are formatted only when the trace is printed or compared."""

    def note(self, kind: str, *details: object) -> None:
        """Add a line to the trace."""
        self.trace.append((self.now_us, kind, details))

    def after(self, delay_us: int, step: Callable[..., object], *arguments: object) -> None:
        """Run `step(*arguments)` in `delay_us`. Steps of the same time run in a random order."""
        due_us = self.now_us + delay_us if delay_us > 0 else self.now_us
        heappush(self._due, (due_us, self.random.random(), next(self._numbers), step, arguments))

    def below(self, limit: int) -> int:
        """Return a random number from 0 to `limit` - 1: `randrange` in a fifth of its time."""
        return int(self.random.random() * limit)

    def run_until(self, is_over: Callable[[], bool], *, limit_us: int) -> bool:
        """Run steps until `is_over`; return False if `limit_us` passes, or nothing is left to run, before."""
        while not is_over():
            if not self._due or self._due[0][0] > limit_us:
                return False
            self.now_us, _, _, step, arguments = heappop(self._due)
            step(*arguments)
        return True

    def run_for(self, duration_us: int) -> None:
        """Run all steps that are due within `duration_us`."""
        end_us = self.now_us + duration_us
        due = self._due
        while due and due[0][0] <= end_us:
            self.now_us, _, _, step, arguments = heappop(due)
            step(*arguments)
        self.now_us = end_us

    def new_loop(self, name: str) -> ProcessLoop:
        """Return the event loop of a new process."""
        loop = ProcessLoop(self, name)
        self._loops.append(loop)
        return loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Collect all processes. `finally` clauses of unfinished coroutines run now, when nothing counts."""
        for loop in self._loops:
            loop.kill()
            loop.discard_tasks()


class _Callback:
    """A callback of a loop: what asyncio uses of a `TimerHandle`."""

    __slots__ = ("arguments", "call", "context", "due_s", "is_cancelled")

    def __init__(
        self, call: Callable[..., Any], arguments: tuple[Any, ...], context: Context | None, due_s: float = 0.0
    ) -> None:
        self.call = call
        self.arguments = arguments
        self.context = context or copy_context()
        self.due_s = due_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.due_s


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one simulated process, which can be paused and killed.

    A killed process runs no further line of its code: neither callbacks nor `finally` clauses, nor threads.
    """

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._failures: list[dict[str, Any]] = []
        self._world = world
        self._ready: deque[_Callback] = deque()
        self._has_turn = False
        self._is_paused = False
        self._is_killed = False
        self._is_in_thread = False
        self._stalled_us = 0
        self._busy_until_us = 0
        self._held: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = TASKS_KEPT

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
        with warnings.catch_warnings():
            # A task that a killed process had no turn to begin may own a coroutine, which is not begun either.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()  # type: ignore[union-attr]
            self._tasks.clear()

    @property
    def failures(self) -> list[dict[str, Any]]:
        """What reached the exception handler: a defect of the process."""
        self._forget_done_tasks()
        return self._failures

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

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Callback:
        handle = _Callback(callback, args, context)
        if not self._is_killed:
            self._ready.append(handle)
            if not self._has_turn:
                self._take_turn_soon()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Callback:
        world = self._world
        timer = _Callback(callback, args, context, world.now_us / 1_000_000 + delay)
        world.after(round(delay * 1_000_000), self._admit, timer)
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Callback:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def deliver(self, delay_us: int, callback: Callable[..., Any], *args: Any) -> None:
        """Run `callback` in this process in `delay_us`: something arrives from outside. For the world."""
        self._world.after(delay_us, self._admit, _Callback(callback, args, None))

    def _admit(self, due: _Callback) -> None:
        """Run a callback that is due in a turn that begins at once, unless the process has one planned or is busy."""
        if due.is_cancelled or self._is_killed:
            return
        self._ready.append(due)
        if self._has_turn:
            return
        if self._is_paused or self._busy_until_us > self._world.now_us:
            self._take_turn_soon()
        else:
            self._turn()

    def _take_turn_soon(self) -> None:
        self._has_turn = True
        world = self._world
        start_us = self._busy_until_us if self._busy_until_us > world.now_us else world.now_us
        chance = world.random.random()
        due_us = start_us + int(chance * TURN_DELAY_US_MAX)
        heappush(world._due, (due_us, chance, next(world._numbers), self._begin_turn, ()))

    def _begin_turn(self) -> None:
        if self._is_paused:
            self._held.append(self._begin_turn)
            return
        self._has_turn = False
        self._turn()

    def _turn(self) -> None:
        """Run the callbacks that are ready, but none that they add."""
        _set_running_loop(self)
        ready = self._ready
        try:
            for _ in range(len(ready)):
                if self._is_killed:
                    return
                handle = ready.popleft()
                if not handle.is_cancelled:
                    try:
                        handle.context.run(handle.call, *handle.arguments)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.call_exception_handler({"message": f"Exception in {handle.call}", "exception": error})
        finally:
            _set_running_loop(None)
            self._busy_until_us, self._stalled_us = self._world.now_us + self._stalled_us, 0
        if ready and not self._has_turn:
            self._take_turn_soon()

    def _after(self, delay_us: int, step: Callable[[], None]) -> None:
        """Run a step of this process in `delay_us`, unless it is killed by then; after a pause if it is paused."""
        self._world.after(delay_us, self._perform, step)

    def _perform(self, step: Callable[[], None]) -> None:
        if self._is_killed:
            return
        if self._is_paused:
            self._held.append(partial(self._perform, step))
        else:
            step()

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
            self._after(self._world.below(THREAD_DELAY_US_MAX), partial(self._run_thread, work, result))
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
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._forget_done_tasks()
            self._tasks_max = len(self._tasks) + TASKS_KEPT
        return task

    def _forget_done_tasks(self) -> None:
        """Release tasks that are done. One whose exception nobody has retrieved reports it now."""
        self._tasks = [task for task in self._tasks if not task.done()]

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._is_killed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_killed:
            self._failures.append(context)


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
