"""AddOffsetsToTxn: add the partition of `__consumer_offsets` that stores a group's offsets to a transaction.

Version notes: v2 PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH in older versions.
"""

from __future__ import annotations

from typing import Protocol

from broker.coordination.partitioner import partition_for
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from broker.transactions.coordinator import TransactionCoordinator
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.internal_topics import GROUP_METADATA_TOPIC
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from storage.producers.producer_state import Producer

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


API = Declaration(
    ApiKey.ADD_OFFSETS_TO_TXN,
    permissions=Permissions(transactional_id=Operation.WRITE, group=Operation.READ),
    names=Names(group="group_id", transactional_id="transactional_id"),
    waits_for=COORDINATOR_LOG,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator


async def handle(services: Needs, request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    # The topic may not exist yet: no client may have sent FindCoordinator for a group, which would create it.
    partition = partition_for(request.group_id, await services.groups.partitions.ensure_topic())
    producer = Producer(request.producer_id, request.producer_epoch)
    included = [(GROUP_METADATA_TOPIC, partition)]
    await services.transactions.add_partitions(request.transactional_id, producer, included)
    return AddOffsetsToTxnResponse()


def failed(request: AddOffsetsToTxnRequest, context: RequestContext, code: ErrorCode) -> AddOffsetsToTxnResponse:
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)
