"""ConsumerGroupDescribe: state and members of groups of the consumer protocol (KIP-848).

Served if `group.coordinator.rebalance.protocols` has `consumer`; as in Kafka 3.9 with ZooKeeper, each group gets
UNSUPPORTED_VERSION otherwise.

Version notes: v1 the protocol of each member (KIP-1099).
"""

from __future__ import annotations

from typing import Protocol

from base.pause import each
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.consumer.group import ConsumerGroup
from broker.groups.machine.consumer.member import Member as GroupMember
from broker.groups.machine.consumer.partitions import Partitions
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions, itself
from broker.handlers.member_topics import HIDDEN, NOTE, hides_some
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

API = Declaration(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    permissions=Permissions(group=Operation.DESCRIBE, note=NOTE),
    names=Names(each=Each(ResourceType.GROUP, "group_ids", "groups", itself)),
    elements=Elements.BULK,
)


class Needs(Protocol):
    """The parts of the broker that this handler uses."""

    authorizer: Authorizer
    groups: GroupCoordinator
    metadata_cache: MetadataCache
    sliced_work: SlicedWork


async def handle(
    services: Needs, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Each group once, however often the request names it."""
    if not services.groups.settings.serves_consumer_protocol:
        return failed(request, context, ErrorCode.UNSUPPORTED_VERSION)
    groups = await each(
        dict.fromkeys(request.group_ids),
        lambda group_id: _described(services, request, context, group_id),
        services.sliced_work.pause,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def failed(
    request: ConsumerGroupDescribeRequest, context: RequestContext, code: ErrorCode
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_nothing(group_id, code) for group_id in request.group_ids])


def _described(
    services: Needs, request: ConsumerGroupDescribeRequest, context: RequestContext, group_id: str
) -> DescribedGroup:
    if not group_id:
        return _nothing(group_id, ErrorCode.INVALID_GROUP_ID)
    try:
        group = services.groups.inspection.group(group_id)
    except KafkaError as error:
        return _nothing(group_id, error.code)
    if not isinstance(group, ConsumerGroup) or group.is_dead:
        missing = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return _nothing(group_id, ErrorCode.GROUP_ID_NOT_FOUND, missing)
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor_name(),
        members=[_member(services.metadata_cache, member) for member in group.members.values()],
    )
    assignments = [one for member in described.members for one in (member.assignment, member.target_assignment)]
    names = {topic.topic_name for one in assignments for topic in one.topic_partitions}
    if hides_some(services.authorizer, context, names):
        return _nothing(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
    if request.include_authorized_operations:
        described.authorized_operations = services.authorizer.operations(context, ResourceType.GROUP, group_id)
    return described


def _member(topics: MetadataCache, member: GroupMember) -> Member:
    subscription, current = member.subscription, member.current
    return Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.subscribed_topic_names),
        subscribed_topic_regex=subscription.subscribed_topic_regex or "",
        assignment=_assignment(topics, current.assigned),
        target_assignment=_assignment(topics, member.target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(topics: MetadataCache, partitions: Partitions) -> Assignment:
    """Return an assignment without topics that were deleted."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )


def _nothing(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
