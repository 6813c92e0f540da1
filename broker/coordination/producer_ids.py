"""Producer ids from blocks that the controller hands out.

Owns: this broker's current block, and the next one, which is asked for before the current one is used up. A crash loses
what is left of both; no id is ever given twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from protocol.errors import ErrorCode, KafkaError, without_frames

logger = logging.getLogger("kafka.coordinator.transaction.ProducerIdManager")

ASK_AHEAD_AT: Final = 10
"""The next block is asked for when one id in so many is left."""


class ProducerIds:
    """Hands out producer ids one by one."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        """`allocate` durably reserves a block of ids and returns it, or raises KafkaError."""
        self._allocate = allocate
        self._block = range(0)
        self._used = 0
        self._next_block: asyncio.Task[range | KafkaError] | None = None

    async def next_id(self) -> int:
        """A producer id that was never given before.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) when no block can be had now: clients ask again.
        """
        while self._used == len(self._block):
            asked = self._ask()
            block = await asyncio.shield(asked)
            if isinstance(block, KafkaError):
                if self._next_block is asked:
                    self._next_block = None
                    logger.error("no block of producer ids: %s", block)
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, block.message)
            if self._next_block is asked:
                self._block, self._used, self._next_block = block, 0, None
        producer_id = self._block[self._used]
        self._used += 1
        if (len(self._block) - self._used) * ASK_AHEAD_AT <= len(self._block):
            self._ask()
        return producer_id

    def _ask(self) -> asyncio.Task[range | KafkaError]:
        """What is being asked for. One that has failed meanwhile is asked for again: why it did may be over by now."""
        if self._next_block is None or _has_failed(self._next_block):
            self._next_block = asyncio.ensure_future(self._reserve())
        return self._next_block

    async def _reserve(self) -> range | KafkaError:
        """The block, or why there is none, which may be kept for long."""
        try:
            return await self._allocate()
        except KafkaError as error:
            return without_frames(error)


def _has_failed(asked: asyncio.Task[range | KafkaError]) -> bool:
    return asked.done() and (
        asked.cancelled() or asked.exception() is not None or isinstance(asked.result(), KafkaError)
    )
