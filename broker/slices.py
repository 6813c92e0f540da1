"""Long work on the event loop, cut into slices so that other requests get their turn in between.

Such work is a generator that yields whenever it has computed for a few milliseconds, and returns its result. What it
looks at may have changed after each yield.

Owns how long a slice is and the turn in between. Must not know the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Slices = Generator[None, None, T]


def run(work: Slices[T]) -> T | asyncio.Task[T]:
    """The result if the first slice is all of it, else a task that does the rest, one slice a turn of the loop."""
    try:
        next(work)
    except StopIteration as finished:
        result: T = finished.value
        return result
    return asyncio.get_running_loop().create_task(_finish(work))


async def _finish(work: Slices[T]) -> T:
    while True:
        await asyncio.sleep(0)
        try:
            next(work)
        except StopIteration as finished:
            result: T = finished.value
            return result
