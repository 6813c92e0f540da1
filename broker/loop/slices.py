"""Long work on the event loop, cut into slices so that other requests are served in between.

A work is a coroutine that pauses wherever it may be interrupted, for example after each partition of a request. State
that it has read may have changed after a pause.

Owns the length of a slice and which work gets the next one. Must not know the work.

Invariant: in a turn of the event loop, the queued works share one slice and the new works share another with its grace.
So a thousand works delay the other connections little more than one does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from base.pause import AT_ONCE, Awaited
from broker.loop import driver
from broker.loop.driver import Running, Turn

T = TypeVar("T")

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
        self._steps_left = 0
        """Pauses of the new work that runs now that are still over at once, and the one that ends them; else 0."""
        self._queue: deque[Turn] = deque()
        """The works that wait for a slice."""
        self._end_ms: int | None = None
        """Until this time works may compute in the present turn of the event loop: first queued ones, then new ones.
        None: there is no new work in this turn, and the queue is empty."""
        self._runs_queue = False
        """Whether the queued works run now."""

    def start(self, work: Coroutine[Any, Any, T]) -> T | Running[T]:
        """Do the same as `broker.loop.driver.start` for new work: it may do `STEPS_MIN` steps in this turn."""
        if self._end_ms is not None and self._monotonic_ms() >= self._end_ms + GRACE_MS:
            work = self._in_a_turn(work)
        outer_steps, self._steps_left = self._steps_left, self._steps_min
        try:
            return driver.start(work)
        finally:
            self._steps_left = outer_steps  # those of the new work must not be left to others

    async def anew(self, work: Coroutine[Any, Any, T]) -> T:
        """Continue a coroutine that has waited for others with `work`, which may do as many steps as new work."""
        outcome = self.start(work)
        return await outcome if isinstance(outcome, Running) else outcome

    def pause(self) -> Awaited:
        """Wait in the queue of works if the slice is over: a `base.pause.Pause`. Call this once per step."""
        if self._steps_left > 1:
            self._steps_left -= 1
            return AT_ONCE
        return AT_ONCE if self.has_time() else self.turn()

    def pause_after_long_step(self) -> Awaited:
        """Wait as `pause` does, but without `STEPS_MIN`: for steps that may take more than a millisecond."""
        return AT_ONCE if self.has_time() else self.turn()

    def has_time(self) -> bool:
        """Return whether work may compute now, before it has to wait in the queue."""
        end_ms = self._end_ms
        if end_ms is None:
            end_ms = self._begin()
        return self._monotonic_ms() < end_ms

    async def turn(self) -> None:
        """Wait in the queue; afterwards the caller may compute for one slice."""
        if self._end_ms is None:
            self._begin()
        turn = Turn()
        self._queue.append(turn)
        await turn
        if not self._runs_queue:  # a task, which continues after the others
            self._begin()

    async def _in_a_turn(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            await self.turn()
        except BaseException:
            work.close()
            raise
        return await work

    def _begin(self) -> int:
        """Begin a slice and return its end. The first one in a turn of the event loop calls for the next turn."""
        if self._end_ms is None:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._end_ms = self._monotonic_ms() + SLICE_MS
        return self._end_ms

    def _next_turn(self) -> None:
        """Begin a turn of the event loop: run the queued works for one slice, then begin the slice of new works."""
        self._end_ms = None
        if not self._queue:
            return
        self._end_ms = end_ms = self._monotonic_ms() + SLICE_MS
        self._steps_left = 0
        self._runs_queue = True
        try:
            for _ in range(len(self._queue)):
                turn = self._queue.popleft()
                if turn.cancelled():
                    continue
                turn.set_result(None)
                if turn.is_awaited_by_task or self._monotonic_ms() >= end_ms:
                    return
        finally:
            self._runs_queue = False
            self._end_ms = None
            self._begin()


class Step:
    """The elements of a request that are processed between two pauses, of which long names count as several."""

    __slots__ = ("_left", "_size")

    def __init__(self, size: int) -> None:
        """`size` is the number of elements with short names."""
        self._left = self._size = size

    def is_over(self, name: str) -> bool:
        """Count an element; return whether the work should pause after it."""
        self._left -= 1 + len(name) // NAME_LENGTH
        if self._left > 0:
            return False
        self._left = self._size
        return True
