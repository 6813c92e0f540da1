"""ShareGroupDescribe: state and members of share groups (KIP-932)."""

from __future__ import annotations

from typing import Protocol

from base.pause import each
from broker.cluster.metadata_cache import MetadataCache
from broker.groups.coordinator import GroupCoordinator
from broker.groups.machine.consumer.member import Member as GroupMember
from broker.groups.machine.share.group import ShareGroup
from broker.handlers.declaration import Declaration, Each, Elements, Names, Permissions, itself
from broker.handlers.member_topics import HIDDEN, NOTE, hides_some
from broker.handlers.request_context import RequestContext
from broker.loop.slices import SlicedWork
from broker.security.acls import Operation, ResourceType
from broker.security.authorizer import Authorizer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

API = Declaration(
    ApiKey.SHARE_GROUP_DESCRIBE,
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
    services: Needs, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Each group once, however often the request names it."""
    groups = await each(
        dict.fromkeys(request.group_ids),
        lambda group_id: _described(services, request, context, group_id),
        services.sliced_work.pause,
    )
    return ShareGroupDescribeResponse(groups=groups)


def failed(request: ShareGroupDescribeRequest, context: RequestContext, code: ErrorCode) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
    )


def _described(
    services: Needs, request: ShareGroupDescribeRequest, context: RequestContext, group_id: str
) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = services.groups.inspection.group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if not isinstance(group, ShareGroup) or group.is_dead:
        missing = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=missing)
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor_name(),
        members=[_member(services.metadata_cache, member) for member in group.members.values()],
    )
    names = {topic.topic_name for member in described.members for topic in member.assignment.topic_partitions}
    if hides_some(services.authorizer, context, names):
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=HIDDEN)
    if request.include_authorized_operations:
        described.authorized_operations = services.authorizer.operations(context, ResourceType.GROUP, group_id)
    return described


def _member(topics: MetadataCache, member: GroupMember) -> Member:
    """Return a member, without topics that were deleted."""
    subscription, current = member.subscription, member.current
    return Member(
        member_id=member.member_id,
        rack_id=subscription.rack_id,
        member_epoch=current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.subscribed_topic_names),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
                for topic_id, numbers in current.assigned.items()
                if (name := topics.name_of(topic_id)) is not None
            ]
        ),
    )
