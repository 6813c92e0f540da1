"""ControlledShutdown: a broker that is about to stop asks the controller to move leadership off it.

The response lists the partitions that it still leads; it repeats the request until there are none. As in Kafka, the
error of a broker that is not the controller is STALE_CONTROLLER_EPOCH. Versions 0 and 1 know no broker epoch.
"""

from __future__ import annotations

from typing import Protocol

from base.pause import Pause, each
from base.topic_partition import TopicPartition
from broker.handlers.cluster_action import require_broker
from broker.handlers.declaration import CONTROLLER, Declaration, Permissions
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation
from broker.security.authorizer import Authorizer
from config.broker import BrokerConfig
from controller.controller import Controller
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

API = Declaration(
    ApiKey.CONTROLLED_SHUTDOWN,
    permissions=Permissions(cluster=Operation.CLUSTER_ACTION),
    waits_for=CONTROLLER,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    config: BrokerConfig
    controller: Controller
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    pause = services.sliced_work.pause
    require_broker(services.config, services.authorizer, context)
    return await _response(
        await services.controller.controlled_shutdown(request.broker_id, request.broker_epoch), pause
    )


def failed(request: ControlledShutdownRequest, context: RequestContext, code: ErrorCode) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(
        error_code=ErrorCode.STALE_CONTROLLER_EPOCH if code is ErrorCode.NOT_CONTROLLER else code
    )


async def _response(led: list[TopicPartition], pause: Pause) -> ControlledShutdownResponse:
    remaining = await each(led, lambda one: RemainingPartition(topic_name=one[0], partition_index=one[1]), pause)
    return ControlledShutdownResponse(remaining_partitions=remaining)
