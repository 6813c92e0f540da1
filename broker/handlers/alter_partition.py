"""AlterPartition: a leader asks the controller to change the in-sync replicas of its partitions.

Version notes: v1 recovery after unclean elections; v2 topic ids instead of names; v3 the epoch of each replica.
"""

from __future__ import annotations

from typing import Protocol

from broker.handlers.cluster_action import require_broker
from broker.handlers.declaration import CONTROLLER, Declaration, Elements, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from broker.security.authorizer import Authorizer
from config.broker import BrokerConfig
from controller.controller import Controller
from protocol.api_key import ApiKey
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

API = Declaration(
    ApiKey.ALTER_PARTITION,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    waits_for=CONTROLLER,
    elements=Elements.CONTROL,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    config: BrokerConfig
    controller: Controller


async def handle(services: Needs, request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    require_broker(services.config, services.authorizer, context)
    return await services.controller.alter_partition(request, context.api_version)
