"""InitProducerId: a producer id for an idempotent producer.

Transactional ids need the transaction coordinator, which is not served yet: they are answered
COORDINATOR_NOT_AVAILABLE."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.request_context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(
    services: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return _new_producer_id(services)


async def _new_producer_id(services: Services) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await services.producer_ids.next_id(), producer_epoch=0)
