"""ShareGroupHeartbeat: a member of a share group joins, subscribes, stays, or leaves (KIP-932).

Served if `group.coordinator.rebalance.protocols` has `share`, by a broker without ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Protocol

from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult
from broker.groups.machine.consumer.member import JOINING, LEAVING
from broker.groups.machine.consumer.partitions import NOTHING
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.subscribed_topics import visible_names
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

API = Declaration(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    permissions=Permissions(group=Operation.READ, note="and Describe on the topics of the subscription"),
    names=Names(group="group_id"),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)

NO_REBALANCE_MS = 0


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    groups: GroupCoordinator
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    try:
        return _response(await _served(services, request, context))
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def _served(services: Needs, request: ShareGroupHeartbeatRequest, context: RequestContext) -> HeartbeatResult:
    for problem in _problems(request):
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    may_see = partial(services.authorizer.allows, context, Operation.DESCRIBE, ResourceType.TOPIC)
    topic_names = await visible_names(request.subscribed_topic_names, may_see, services.sliced_work.pause)
    return await services.groups.shares.heartbeat(
        request.group_id,
        Heartbeat(
            member_id=request.member_id,
            epoch=request.member_epoch,
            instance_id=None,
            rack_id=request.rack_id,
            rebalance_timeout_ms=NO_REBALANCE_MS,
            topic_names=topic_names,
            topic_regex=None,
            server_assignor=None,
            reported=NOTHING,
            client_id=context.client_id or "",
            client_host=f"/{context.channel.client_host}",
            may_see=may_see,
        ),
    )


def _problems(request: ShareGroupHeartbeatRequest) -> Iterator[str]:
    """Yield what Kafka finds wrong with a request."""
    if not request.group_id.strip():
        yield "GroupId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        yield "RackId can't be empty."
    if not request.member_id.strip():
        yield "MemberId can't be empty."
    if request.member_epoch < LEAVING:
        yield "MemberEpoch is invalid."
    if request.member_epoch == JOINING and not request.subscribed_topic_names:
        yield "SubscribedTopicNames must be set in first request."


def _response(result: HeartbeatResult) -> ShareGroupHeartbeatResponse:
    assigned = result.assigned
    return ShareGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None
        if assigned is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in assigned.items()
            ]
        ),
    )
