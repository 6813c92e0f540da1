"""Long work on the event loop, cut into slices so that other requests are served in between.

A work is a generator that yields wherever it may be interrupted, for example after each partition of a request, and
returns its result. State that it has read may have changed after a yield.

Owns the length of a slice and which work gets the next one. Must not know the work.

Invariant: in a turn of the event loop, the queued works share one slice and the new works share another with its grace.
So a thousand works delay the other connections little more than one does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from types import GeneratorType
from typing import Any, TypeVar, cast

from broker.loop.promise import Promise

S = TypeVar("S")
T = TypeVar("T")
Slices = Generator[None, None, T]

SLICE_MS = 5
"""Milliseconds of computation before other connections are served; the last step of a slice may exceed them."""


STEPS_MIN = 16
"""Work of fewer steps runs in one slice even if the slice of the new works is over; a step takes less than a
millisecond."""

NAME_LENGTH = 64
"""Characters of a name that cost as much as an element: the first use of a name computes its hash."""

GRACE_MS = 2 * SLICE_MS
"""Milliseconds after the end of their slice in which new works still begin with `STEPS_MIN` steps."""


class SlicedWork:
    """All work of one broker that is done in slices."""

    def __init__(self, monotonic_ms: Callable[[], int], steps_min: int = STEPS_MIN) -> None:
        """`monotonic_ms` measures slices; `steps_min` as `STEPS_MIN`."""
        self._monotonic_ms = monotonic_ms
        self._steps_min = steps_min
        self._queue: deque[tuple[Slices[Any] | None, asyncio.Future[Any]]] = deque()
        """Works and their futures. Without a work, the waiter of the future computes for one slice."""
        self._newcomers_end_ms: int | None = None
        """New works may compute until this time in the present turn of the event loop. None: there is no new work in
        this turn, and the queue is empty."""

    def run(self, work: Slices[T]) -> T | asyncio.Future[T]:
        """Return the result if the first slice ends the work, else a future of it, whose cancellation ends the work."""
        end_ms = self._newcomers_end_ms
        try:
            if end_ms is None or self._monotonic_ms() < end_ms + GRACE_MS:
                for _ in range(self._steps_min):
                    next(work)
                if self.has_time():
                    self._compute(work, self.newcomers_end_ms())
        except StopIteration as finished:
            result: T = finished.value
            return result
        return self._wait_in_line(work)

    def newcomers_end_ms(self) -> int:
        """Return the time until which new work may compute before it has to wait in the queue."""
        if self._newcomers_end_ms is None:
            self._newcomers_end_ms = self._monotonic_ms() + SLICE_MS
            asyncio.get_running_loop().call_soon(self._next_turn)
        return self._newcomers_end_ms

    def has_time(self) -> bool:
        """Return whether new work may compute now, before it has to wait in the queue."""
        end_ms = self.newcomers_end_ms()
        return self._monotonic_ms() < end_ms

    async def turn(self) -> None:
        """Wait in the queue; afterwards the caller may compute for one slice."""
        await self._wait_in_line(None)

    def _wait_in_line(self, work: Slices[Any] | None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.newcomers_end_ms()
        self._queue.append((work, future))
        return future

    async def finished(self, work: Slices[T]) -> T:
        """Run the work in slices and return its result."""
        done = self.run(work)
        return await _outcome_of(done) if isinstance(done, asyncio.Future) else done

    async def settled(self, outcome: object) -> object:
        """Resolve an outcome: run works in slices and await awaitables until the result is neither; return it."""
        while True:
            if is_sliced(outcome):
                outcome = self.run(cast(Slices[object], outcome))
            elif isinstance(outcome, asyncio.Future):
                outcome = await _outcome_of(outcome)
            elif isinstance(outcome, Awaitable):
                outcome = await outcome
            else:
                return outcome

    def pace(self) -> Pace:
        """Return a `Pace` for a coroutine's loop that may run many rounds without awaiting anything."""
        return Pace(self, self._monotonic_ms)

    def _compute(self, work: Slices[Any], end_ms: int) -> None:
        """Run steps until `end_ms`, at least one. Raises StopIteration when the work is done, or its exception."""
        while True:
            next(work)
            if self._monotonic_ms() >= end_ms:
                return

    def _next_turn(self) -> None:
        """Begin a turn of the event loop: run the queued works for one slice, then begin the slice of new works."""
        self._newcomers_end_ms = None
        if not self._queue:
            return
        end_ms = self._monotonic_ms() + SLICE_MS
        try:
            while self._queue:
                work, future = self._queue.popleft()
                if work is not None:
                    self._run_until(end_ms, work, future)
                elif not future.cancelled():
                    future.set_result(None)
                    return
                if self._monotonic_ms() >= end_ms:
                    return
        finally:
            self.newcomers_end_ms()

    def _run_until(self, end_ms: int, work: Slices[Any], future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            work.close()
            return
        try:
            self._compute(work, end_ms)
        except StopIteration as finished:
            if future.cancelled():
                _cancel(finished.value)
            else:
                future.set_result(finished.value)
        except Exception as error:
            if not future.cancelled():
                future.set_exception(error)
        else:
            self._queue.append((work, future))


class Pace:
    """Lets other connections be served during the long loop of a coroutine."""

    def __init__(self, sliced_work: SlicedWork, monotonic_ms: Callable[[], int]) -> None:
        self._sliced_work = sliced_work
        self._monotonic_ms = monotonic_ms
        self._end_ms = sliced_work.newcomers_end_ms()

    async def keep(self) -> None:
        """Wait in the queue of works if the slice is over. Call this once per round."""
        if self._monotonic_ms() >= self._end_ms:
            await self._sliced_work.turn()
            self._end_ms = self._monotonic_ms() + SLICE_MS


async def _outcome_of(future: asyncio.Future[T]) -> T:
    """Return the result of a future. If the caller is cancelled, also cancel the result, which may be parked."""
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled() and future.exception() is None:
            _cancel(future.result())
        raise


def _cancel(outcome: object) -> None:
    if isinstance(outcome, asyncio.Future | Promise):
        outcome.cancel()


class Step:
    """The elements of a request that are processed between two yields, of which long names count as several."""

    __slots__ = ("_left", "_size")

    def __init__(self, size: int) -> None:
        """`size` is the number of elements with short names."""
        self._left = self._size = size

    def is_over(self, name: str) -> bool:
        """Count an element; return whether the work should yield after it."""
        self._left -= 1 + len(name) // NAME_LENGTH
        if self._left > 0:
            return False
        self._left = self._size
        return True


def each(items: Iterable[S], work: Callable[[S], T]) -> Slices[list[T]]:
    """Return the results of `work` for each item, in order. Yields after each item."""
    results = []
    for item in items:
        results.append(work(item))
        yield
    return results


def whole(work: Slices[T]) -> T:
    """Run the work in one step, for few steps or in a thread; return its result."""
    while True:
        try:
            next(work)
        except StopIteration as finished:
            result: T = finished.value
            return result


def is_sliced(outcome: object) -> bool:
    """Return whether a handler returned a work to run in slices, not a response."""
    return type(outcome) is GeneratorType
