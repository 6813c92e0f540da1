"""Allocate blocks of producer ids, each only once (KIP-730).

Owns the node that records the last allocated block. Must not know what a broker does with its block.
"""

import logging

from controller import paths
from controller.active.term import Term
from controller.events import AllocateProducerIds
from controller.state_store import BadVersion, SetData
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.coordinator.transaction.ZkProducerIdManager")

PRODUCER_ID_MAX = (1 << 63) - 1


class ProducerIdBlocks:
    def __init__(self, term: Term) -> None:
        self._term = term

    async def allocate(self, event: AllocateProducerIds) -> range:
        """Return the next block, recorded before it is returned: a crash loses a block but never repeats it."""
        broker = self._term.context.live_brokers.get(event.broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if event.broker_epoch != broker.epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        while (block := await self._try_to_reserve(event.broker_id)) is None:
            pass
        return block

    async def _try_to_reserve(self, broker_id: int) -> range | None:
        """Return the next block, or None if another writer took it first (older brokers write the node too)."""
        node = await self._term.store.store.get(paths.PRODUCER_ID_BLOCK)
        try:
            last_block = paths.decode_producer_id_block(node.data)
        except paths.Undecodable as error:
            logger.error("no producer id can be allocated: %s", error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        first = 0 if last_block is None else last_block.last + 1
        if first > PRODUCER_ID_MAX - paths.PRODUCER_ID_BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been handed out.")
        block = range(first, first + paths.PRODUCER_ID_BLOCK_SIZE)
        data = paths.encode_producer_id_block(paths.ProducerIdBlock(broker_id, block[0], block[-1]))
        try:
            await self._term.store.multi([SetData(paths.PRODUCER_ID_BLOCK, data, node.stat.version)])
        except BadVersion:
            return None
        return block
