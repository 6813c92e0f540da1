"""Producer ids from blocks that the controller allocates.

Owns: this broker's current block, and the next one, which is requested before the current one is used up. A crash loses
the rest of both; no id is ever given twice. Must not know: what the ids are used for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.network.outgoing import PeerUnavailable
from protocol.errors import ErrorCode, KafkaError, without_frames

logger = logging.getLogger("kafka.coordinator.transaction.ProducerIdManager")

PREFETCH_FRACTION: Final = 10
"""The next block is requested when a tenth of the current one is left."""


class ProducerIds:
    """Gives producer ids one by one."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        """`allocate` durably reserves a block of ids and returns it, or raises KafkaError or PeerUnavailable."""
        self._allocate = allocate
        self._block = range(0)
        self._used = 0
        self._next_block: asyncio.Task[range | KafkaError] | None = None

    async def next_id(self) -> int:
        """Return a producer id that was never given before.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if no block is available now: clients retry.
        """
        while self._used == len(self._block):
            asked = self._request_block()
            block = await asyncio.shield(asked)
            if isinstance(block, KafkaError):
                if self._next_block is asked:
                    self._next_block = None
                    logger.error("No block of producer ids was allocated: %s", block)
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, block.message)
            if self._next_block is asked:
                self._block, self._used, self._next_block = block, 0, None
        producer_id = self._block[self._used]
        self._used += 1
        if (len(self._block) - self._used) * PREFETCH_FRACTION <= len(self._block):
            self._request_block()
        return producer_id

    def _request_block(self) -> asyncio.Task[range | KafkaError]:
        """Request the next block unless that is under way. A failed request is repeated: its cause may be gone."""
        if self._next_block is None or _has_failed(self._next_block):
            self._next_block = asyncio.ensure_future(self._reserve())
        return self._next_block

    async def _reserve(self) -> range | KafkaError:
        """Return the block, or the error, without its frames, as it may be kept for long."""
        try:
            return await self._allocate()
        except KafkaError as error:
            return without_frames(error)
        except PeerUnavailable as error:
            return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))


def _has_failed(asked: asyncio.Task[range | KafkaError]) -> bool:
    return asked.done() and (
        asked.cancelled() or asked.exception() is not None or isinstance(asked.result(), KafkaError)
    )
