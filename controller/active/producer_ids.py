"""Allocate blocks of producer ids to live brokers."""

from controller.active.term import Term
from controller.machine.events import AllocateProducerIds
from controller.tree.producer_id_blocks import reserve_block
from protocol.errors import ErrorCode, KafkaError


class ProducerIdBlocks:
    def __init__(self, term: Term) -> None:
        self._term = term

    async def allocate(self, event: AllocateProducerIds) -> range:
        """Return the next block. Raises KafkaError if the broker is not registered with the epoch of the request."""
        broker = self._term.context.live_brokers.get(event.broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if event.broker_epoch != broker.epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        store = self._term.store
        return await reserve_block(store.store, store.multi, event.broker_id)
