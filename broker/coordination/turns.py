"""Works on the same thing, one after the other.

Owns: the order. Must not know: the works.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")


class Turns(Generic[K]):
    """One turn at a time for each thing, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[K, asyncio.Lock] = WeakKeyDictionary()

    @asynccontextmanager
    async def of(self, thing: K) -> AsyncIterator[None]:
        """Wait for a turn, which ends with the block."""
        async with self._locks.setdefault(thing, asyncio.Lock()):
            yield
