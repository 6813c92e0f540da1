"""Work for a broker's process, written once: a test runs it blocking, or awaits it.

Work is a generator. It yields a function that blocks until the process has responded and gets its result, or a number
of seconds and gets None after this pause. Its value is the result of the work.

Owns how work runs. Must not know what it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

__tracebackhide__ = True

P = ParamSpec("P")
T = TypeVar("T")

Steps = Generator[Callable[[], Any] | float, Any, T]


def blocking(work: Callable[P, Steps[T]]) -> Callable[P, T]:
    """Return a function that runs a kind of work and returns its result. `awaited` awaits the same work."""

    @wraps(work)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        steps = work(*arguments, **options)
        step = _next(steps)
        while not isinstance(step, _Result):
            try:
                result = _do(step)
            except BaseException as error:
                step = _next_after(steps, error)
            else:
                step = _next(steps, result)
        return cast(T, step.value)

    vars(run)["work"] = work
    return run


def awaited(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the asynchronous form of a method, for a class that holds the blocking object as `blocking`."""
    work = vars(method).get("work")

    @wraps(method)
    async def run(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        if work is None:
            return await asyncio.to_thread(method, self.blocking, *arguments, **options)
        return cast(T, await _await(work(self.blocking, *arguments, **options)))

    return run


async def _await(steps: Steps[T]) -> T:
    step = _next(steps)
    while not isinstance(step, _Result):
        try:
            result = await (asyncio.sleep(step) if isinstance(step, float) else asyncio.to_thread(step))
        except BaseException as error:
            step = _next_after(steps, error)
        else:
            step = _next(steps, result)
    return cast(T, step.value)


def _do(step: Callable[[], Any] | float) -> Any:
    if not isinstance(step, float):
        return step()
    time.sleep(step)
    return None


class _Result:
    """The result of work that has ended."""

    def __init__(self, value: object) -> None:
        self.value = value


def _next(steps: Steps[Any], result: object = None) -> Callable[[], Any] | float | _Result:
    try:
        return steps.send(result)
    except StopIteration as ended:
        return _Result(ended.value)


def _next_after(steps: Steps[Any], error: BaseException) -> Callable[[], Any] | float | _Result:
    try:
        return steps.throw(error)
    except StopIteration as ended:
        return _Result(ended.value)


class Change:
    """What a call has changed. As a context manager it changes it back at the end of the block."""

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._undo()


C = TypeVar("C", bound=Change)


class AwaitedChange(Generic[C]):
    """A call that changes something: `await` makes the change, `async with` also changes it back at the end."""

    def __init__(self, begin: Callable[[], C]) -> None:
        self._begin = begin
        self._change: C | None = None

    def __await__(self) -> Generator[Any, None, C]:
        return asyncio.to_thread(self._begin).__await__()

    async def __aenter__(self) -> C:
        self._change = await self
        return self._change

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._change is not None
        await asyncio.to_thread(self._change.__exit__, kind, error, traceback)


def awaited_change(method: Callable[Concatenate[Any, P], C]) -> Callable[Concatenate[Any, P], AwaitedChange[C]]:
    """Return the asynchronous form of a method that returns a `Change`."""

    @wraps(method)
    def run(self: Any, /, *arguments: P.args, **options: P.kwargs) -> AwaitedChange[C]:
        return AwaitedChange(lambda: method(self.blocking, *arguments, **options))

    return run
