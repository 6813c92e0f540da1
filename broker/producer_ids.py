"""Producer ids from blocks that the controller hands out.

Owns: this broker's current block. A crash loses the rest of a block; no id is ever given twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """Hands out producer ids one by one."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        """`allocate` durably reserves a block of ids and returns it."""
        self._allocate = allocate
        self._block = iter(range(0))
        self._allocating = asyncio.Lock()

    async def next_id(self) -> int:
        """A producer id that was never given before. Raises KafkaError when no block can be had."""
        producer_id = next(self._block, None)
        while producer_id is None:
            async with self._allocating:
                producer_id = next(self._block, None)
                if producer_id is None:
                    self._block = iter(await self._allocate())
                    producer_id = next(self._block, None)
        return producer_id
