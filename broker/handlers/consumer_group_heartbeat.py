"""ConsumerGroupHeartbeat: a member of the consumer protocol joins, stays, reports what it has, or leaves (KIP-848).

Served if `group.coordinator.rebalance.protocols` has `consumer`; as in Kafka 3.9 with ZooKeeper, the response is
UNSUPPORTED_VERSION otherwise.

Version notes: v1 regular expressions; members choose their ids (KIP-1082).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Protocol
from uuid import UUID

from broker.groups.consumer_settings import matcher
from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult
from broker.groups.machine.consumer.member import JOINING, LEFT_FOR_A_WHILE
from broker.groups.machine.consumer.partitions import Partitions, partitions
from broker.handlers.declaration import COORDINATOR_LOG, Declaration, Elements, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.handlers.subscribed_topics import visible_names
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import id_text
from protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

FIRST_VERSION_WITH_IDS_OF_MEMBERS = 1

API = Declaration(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    permissions=Permissions(group=Operation.READ, note="and Describe on the topics of the subscription"),
    names=Names(group="group_id"),
    waits_for=COORDINATOR_LOG,
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    groups: GroupCoordinator
    random: Random
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    if not services.groups.settings.serves_consumer_protocol:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    try:
        return _response(await _served(services, request, context))
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def _served(services: Needs, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> HeartbeatResult:
    groups = services.groups
    for problem in _problems(request, context.api_version):
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    if (
        request.server_assignor is not None
        and request.server_assignor not in groups.settings.consumer().rules.assignors
    ):
        known = ", ".join(groups.settings.consumer().rules.assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {known}.",
        )
    may_see = partial(services.authorizer.allows, context, Operation.DESCRIBE, ResourceType.TOPIC)
    topic_names = await visible_names(request.subscribed_topic_names, may_see, services.sliced_work.pause)
    if request.subscribed_topic_regex:
        matcher(request.subscribed_topic_regex)
    member_id = request.member_id or id_text(UUID(int=services.random.getrandbits(128), version=4))
    return await groups.consumers.heartbeat(
        request.group_id,
        Heartbeat(
            member_id=member_id,
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topic_names=topic_names,
            topic_regex=request.subscribed_topic_regex,
            server_assignor=request.server_assignor,
            reported=_reported(request),
            client_id=context.client_id or "",
            client_host=f"/{context.channel.client_host}",
            may_see=may_see,
        ),
    )


def _problems(request: ConsumerGroupHeartbeatRequest, version: int) -> Iterator[str]:
    """Yield what Kafka finds wrong with a request."""
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            yield f"{name} can't be empty."
    epoch = request.member_epoch
    if not request.member_id.strip() and (epoch != JOINING or version >= FIRST_VERSION_WITH_IDS_OF_MEMBERS):
        yield "MemberId can't be empty."
    if epoch < LEFT_FOR_A_WHILE:
        yield "MemberEpoch is invalid."
    if epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        yield "InstanceId can't be null."
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            yield "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            yield "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            yield "Either SubscribedTopicNames or SubscribedTopicRegex must be set in first request."


def _reported(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return partitions((each.topic_id, each.partitions) for each in request.topic_partitions)


def _response(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assigned = result.assigned
    return ConsumerGroupHeartbeatResponse(
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
