"""How the controller gives way to other work on its event loop in the middle of an event.

Owns the pace of the event that is being processed. Must not know how slices are measured or shared. Events are still
processed one after the other: nothing but the event itself changes what the controller knows between two slices.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that may be interrupted wherever it yields, and what it returns."""


class Pace(Protocol):
    """The slices of one event."""

    async def keep(self) -> None:
        """Return at once while this slice lasts, else when the next one begins."""


class Turns:
    def __init__(self, new_pace: Callable[[], Pace]) -> None:
        """`new_pace()` begins the first slice of an event."""
        self._new_pace = new_pace
        self._pace = new_pace()

    def begin(self) -> None:
        """An event begins."""
        self._pace = self._new_pace()

    async def through(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items; may give way after each."""
        pace = self._pace
        for item in items:
            yield item
            await pace.keep()

    async def finished(self, steps: Steps[T]) -> T:
        """Do all steps; may give way after each."""
        pace = self._pace
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                result: T = finished.value
                return result
            await pace.keep()
