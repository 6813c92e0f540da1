"""InitProducerId: return a producer id and epoch for an idempotent or transactional producer.

Any broker serves idempotent producers. A transactional id is served by its coordinator, which fences every older
instance of the producer before it responds.

Version notes: v3 a producer that continues after an error sends its id and epoch (KIP-360); v4 PRODUCER_FENCED, which
is INVALID_PRODUCER_EPOCH in older versions.
"""

from __future__ import annotations

from typing import Any, Protocol

from broker.coordination.producer_ids import ProducerIds
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Permissions
from broker.handlers.guard import Guard
from broker.handlers.partial_service import Needs as PartNeeds
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation, ResourceType
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.machine.transaction import NO_EPOCH, NO_PRODUCER_ID
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from storage.producers.producer_state import Producer

FIRST_VERSION_WITH_PRODUCER_FENCED = 4


API = Declaration(
    ApiKey.INIT_PRODUCER_ID,
    permissions=Permissions(
        transactional_id=Operation.WRITE,
        note="without transactional id: IdempotentWrite on the cluster, or Write on any topic",
    ),
    waits_for=COORDINATOR_LOG,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    producer_ids: ProducerIds
    transactions: TransactionCoordinator


async def handle(services: Needs, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return failed(request, context, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await services.producer_ids.next_id(), producer_epoch=0)
    named = request.producer_id != NO_PRODUCER_ID
    producer = await services.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        Producer(request.producer_id, request.producer_epoch) if named else None,
    )
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def failed(request: InitProducerIdRequest, context: RequestContext, code: ErrorCode) -> InitProducerIdResponse:
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_VERSION_WITH_PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def authorize(guard: Guard, services: PartNeeds, request: Any, context: RequestContext) -> Any:
    if request.transactional_id is not None:
        guard.require(context, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    elif not guard.authorizer.allows_on_any(context, Operation.WRITE, ResourceType.TOPIC):
        guard.require_cluster(context, Operation.IDEMPOTENT_WRITE)
    return guard.handle(services, request, context)
