"""Long work on the event loop, cut into slices so that other requests get their turn in between.

Such work is a generator that yields wherever it may be interrupted, say after each partition of a request, and returns
its result. Whatever it looked at may have changed after a yield.

Owns how long a slice lasts and whose slice is next. Must not know the work.

Invariant: in a turn of the event loop, the works in the queue share one slice, and those that come in that turn share
another, so that a hundred of them delay the other connections little more than one does.
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
"""How long work computes before the other connections are served; the last step of a slice may exceed it."""


STEPS_MIN = 16
"""Work of fewer steps is done in one slice, however busy the machine is; a step takes less than a millisecond."""


class SlicedWork:
    """All work of one broker that is done in slices."""

    def __init__(self, monotonic_ms: Callable[[], int], steps_min: int = STEPS_MIN) -> None:
        """`monotonic_ms` is the clock that slices are measured with; `steps_min` as `STEPS_MIN`."""
        self._monotonic_ms = monotonic_ms
        self._steps_min = steps_min
        self._queue: deque[tuple[Slices[Any], asyncio.Future[Any]]] = deque()
        self._newcomers_end_ms: int | None = None
        """Until then new works may compute in this turn of the event loop. None: none has come in it yet, and the queue
        is empty."""

    def run(self, work: Slices[T]) -> T | asyncio.Future[T]:
        """The result if the first slice is all of it, else a future of it. To cancel the future ends the work."""
        try:
            for _ in range(self._steps_min):
                next(work)
            if self.has_time():
                self._compute(work, self.newcomers_end_ms())
        except StopIteration as finished:
            result: T = finished.value
            return result
        return self._wait_in_line(work)

    def newcomers_end_ms(self) -> int:
        """Until when work that comes now may compute before it has to wait in the queue."""
        if self._newcomers_end_ms is None:
            self._newcomers_end_ms = self._monotonic_ms() + SLICE_MS
            asyncio.get_running_loop().call_soon(self._next_turn)
        return self._newcomers_end_ms

    def has_time(self) -> bool:
        """Whether work that comes now may compute before it has to wait in the queue."""
        end_ms = self.newcomers_end_ms()
        return self._monotonic_ms() < end_ms

    async def turn(self) -> None:
        """Wait in the queue; the caller may compute for a slice then."""
        await self._wait_in_line(_nothing())

    def _wait_in_line(self, work: Slices[T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.newcomers_end_ms()
        self._queue.append((work, future))
        return future

    async def finished(self, work: Slices[T]) -> T:
        """The result of the work, in a coroutine."""
        done = self.run(work)
        return await _outcome_of(done) if isinstance(done, asyncio.Future) else done

    async def settled(self, outcome: object) -> object:
        """What an outcome comes to: work is done in slices, and what is awaitable is awaited, as often as it takes."""
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
        """For a loop of a coroutine that may go round often without ever waiting."""
        return Pace(self, self._monotonic_ms)

    def _compute(self, work: Slices[Any], end_ms: int) -> None:
        """Work until `end_ms`, at least a step. Raises StopIteration when the work is done, and whatever it raises."""
        while True:
            next(work)
            if self._monotonic_ms() >= end_ms:
                return

    def _next_turn(self) -> None:
        """A turn of the event loop: one slice of the work whose turn it is, and a new one for those that come."""
        self._newcomers_end_ms = None
        if self._queue:
            work, future = self._queue.popleft()
            try:
                self._go_on(work, future)
            finally:
                self.newcomers_end_ms()

    def _go_on(self, work: Slices[Any], future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            work.close()
            return
        try:
            self._compute(work, self._monotonic_ms() + SLICE_MS)
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
    """Gives the other connections their turn in a coroutine's long loop."""

    def __init__(self, sliced_work: SlicedWork, monotonic_ms: Callable[[], int]) -> None:
        self._sliced_work = sliced_work
        self._monotonic_ms = monotonic_ms
        self._end_ms = sliced_work.newcomers_end_ms()

    async def keep(self) -> None:
        """Wait in the queue of all sliced works once the slice is over; to be called once a round."""
        if self._monotonic_ms() >= self._end_ms:
            await self._sliced_work.turn()
            self._end_ms = self._monotonic_ms() + SLICE_MS


async def _outcome_of(future: asyncio.Future[T]) -> T:
    """The result of a future. If nobody waits any more, what it came to is cancelled as well: it may be parked."""
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled() and future.exception() is None:
            _cancel(future.result())
        raise


def _cancel(outcome: object) -> None:
    if isinstance(outcome, asyncio.Future | Promise):
        outcome.cancel()


def _nothing() -> Slices[None]:
    return
    yield


def each(items: Iterable[S], work: Callable[[S], T]) -> Slices[list[T]]:
    """What `work` returns for each item, in order; may be interrupted after each."""
    results = []
    for item in items:
        results.append(work(item))
        yield
    return results


def whole(work: Slices[T]) -> T:
    """What the work comes to when it is done in one step, in a thread."""
    while True:
        try:
            next(work)
        except StopIteration as finished:
            result: T = finished.value
            return result


def is_sliced(outcome: object) -> bool:
    """Whether a handler returned work that is to be done in slices, not a response."""
    return type(outcome) is GeneratorType
