"""Let the controller yield to other work on its event loop in the middle of an event.

Owns the pace of the event that is being processed. Must not know how slices are measured or shared. Events are still
processed one after the other: between two slices only the event itself changes the controller's state.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that may be interrupted at each `yield`; T is its return value."""


class Pace(Protocol):
    """The time slices of one event."""

    async def keep(self) -> None:
        """Return immediately during this slice, else when the next one begins."""


class Turns:
    def __init__(self, new_pace: Callable[[], Pace]) -> None:
        """`new_pace()` begins the first slice of an event."""
        self._new_pace = new_pace
        self._pace = new_pace()

    def begin(self) -> None:
        """Begin an event."""
        self._pace = self._new_pace()

    async def through(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items; other work may run after each."""
        pace = self._pace
        for item in items:
            yield item
            await pace.keep()

    async def finished(self, steps: Steps[T]) -> T:
        """Run all steps and return their result; other work may run after each."""
        pace = self._pace
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                result: T = finished.value
                return result
            await pace.keep()
