"""AllocateProducerIds: a broker asks the controller for a block of producer ids (KIP-730)."""

from __future__ import annotations

from typing import Protocol

from broker.handlers.cluster_action import require_broker
from broker.handlers.declaration import CONTROLLER, Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from broker.security.authorizer import Authorizer
from config.broker import BrokerConfig
from controller.controller import Controller
from protocol.api_key import ApiKey
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

API = Declaration(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    waits_for=CONTROLLER,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    config: BrokerConfig
    controller: Controller


async def handle(
    services: Needs, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    require_broker(services.config, services.authorizer, context)
    block = await services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
