"""A pace for controllers that never yields to other work."""

from __future__ import annotations

from typing import TypeVar

from controller.turns import Steps

T = TypeVar("T")


class Unpaced:
    """The pace of events that never gives way."""

    async def keep(self) -> None:
        return


def result_of(steps: Steps[T]) -> T:
    """What the steps return."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: T = finished.value
            return result
