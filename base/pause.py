"""Pauses of long loops, in which other work may run: how a loop asks for one, and what needs none.

Must not know: who else computes, or for how long this loop may. `broker.loop.slices` decides that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Awaited(Protocol):
    """What a pause returns, to be awaited at once."""

    def __await__(self) -> Generator[Any, None, None]: ...


Pause = Callable[[], Awaited]
"""Awaited where other work may run: `await pause()`. It is over at once as long as the slice of the work lasts.

State that was read before may have changed afterwards.
"""


class InThread(Protocol):
    """Awaited for work that may wait for a disk, which runs in a thread: `result = await in_thread(work)`."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


_EXHAUSTED: Any = iter(())


class _AtOnce:
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return _EXHAUSTED  # type: ignore[no-any-return]


AT_ONCE = _AtOnce()
"""A pause that is over."""


def never() -> Awaited:
    """Do not pause. For work that runs in a thread, or that is short."""
    return AT_ONCE


def whole(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, because its pause is `never`; return its result."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    work.close()
    raise AssertionError(f"{work!r} waits")


async def each(items: Iterable[S], work: Callable[[S], T], pause: Pause) -> list[T]:
    """Return the results of `work` for each item, in order. Pauses after each item."""
    results = []
    for item in items:
        results.append(work(item))
        await pause()
    return results


async def through(items: Iterable[T], pause: Pause) -> AsyncIterator[T]:
    """Yield the items; pauses after each."""
    for item in items:
        yield item
        await pause()
