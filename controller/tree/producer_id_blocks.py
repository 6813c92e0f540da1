"""Blocks of producer ids, each reserved only once (KIP-730).

Owns the node that records the last reserved block. The controller reserves blocks for brokers; by an
`inter.broker.protocol.version` below 3.0 each broker does it itself. Must not know what a broker does with its block.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from controller.store.state_store import (
    BadVersion,
    Operation,
    Result,
    SetData,
    StateStore,
    StoreError,
    StoreUnavailable,
)
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.coordinator.transaction.ZkProducerIdManager")

PRODUCER_ID_MAX = (1 << 63) - 1

Multi = Callable[[Sequence[Operation]], Awaitable[list[Result]]]


async def reserve_block(store: StateStore, multi: Multi, broker_id: int) -> range:
    """Return the next block, recorded by `multi` before it is returned: a crash loses a block but never repeats it.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR if the node cannot be decoded, or all ids are used.
        StoreError, StoreUnavailable: no block was reserved, or one that nobody gets.
    """
    while (block := await _try_to_reserve(store, multi, broker_id)) is None:
        pass
    return block


async def reserve_own_block(store: StateStore, broker_id: int) -> range:
    """Reserve a block without the controller.

    Raises:
        KafkaError: as `reserve_block`; COORDINATOR_LOAD_IN_PROGRESS while the store does not serve this broker.
    """
    try:
        return await reserve_block(store, store.multi, broker_id)
    except (StoreError, StoreUnavailable) as error:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error


async def _try_to_reserve(store: StateStore, multi: Multi, broker_id: int) -> range | None:
    """Return the next block, or None if another writer took it first."""
    node = await store.get(paths.PRODUCER_ID_BLOCK)
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
        await multi([SetData(paths.PRODUCER_ID_BLOCK, data, node.stat.version)])
    except BadVersion:
        return None
    return block
