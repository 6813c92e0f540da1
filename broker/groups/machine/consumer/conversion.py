"""The conversion of a group while its members are replaced by members of the other protocol (KIP-848). Pure.

Upwards: a member of the consumer protocol joins a group of the classic one. The others go on with what they have, as
members of the classic protocol in a group of the consumer protocol. Downwards: the last member of the consumer protocol
has left. The others join again.

Owns: what a group becomes. Must not know: when it is converted, or how that is stored.
"""

from __future__ import annotations

from broker.groups.machine.consumer.group import ConsumerGroup, subscription_value
from broker.groups.machine.consumer.member import Current
from broker.groups.machine.consumer.membership import ConsumerGroupSettings
from broker.groups.machine.consumer.partitions import NOTHING, Partitions, each, partitions, to_stored
from broker.groups.machine.consumer.records import TargetValue
from broker.groups.machine.consumer.topics import Topics
from broker.groups.machine.events import Moment
from broker.groups.machine.group import Group
from broker.groups.machine.member import Member as ClassicGroupMember
from broker.groups.machine.rebalance import GroupSettings
from broker.groups.machine.records import GroupMetadataValue, MemberMetadata
from protocol.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_subscription
from protocol.errors import ErrorCode, KafkaError, Malformed


def upgraded(group: Group, topics: Topics, settings: ConsumerGroupSettings) -> ConsumerGroup:
    """Return a group of the consumer protocol with the members of a classic one, whose effects store it.

    Raises KafkaError: GROUP_ID_NOT_FOUND if the members are no consumers, or more than a group may have.
    """
    if group.is_in_use and group.protocol_type != PROTOCOL_TYPE:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
    if len(group.members) > settings.max_size:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} has too many members to be upgraded.")
    made = ConsumerGroup(group.group_id, settings)
    try:
        made.begin(group.generation_id, group.record_keys())
        for member in group.members.values():
            _add(made, member, group.protocol_name, topics)
    except Malformed as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade the classic group {group.group_id} to consumer group because the embedded consumer "
            f"protocol is malformed: {error}.",
        ) from error
    return made


def _add(made: ConsumerGroup, member: ClassicGroupMember, protocol_name: str | None, topics: Topics) -> None:
    for protocol in member.protocols:  # all are stored, and read again when the group is downgraded
        read_subscription(protocol.metadata)
    _, subscription = read_subscription(member.metadata(protocol_name) or member.protocols[0].metadata)
    assigned = NOTHING
    if member.assignment:
        _, assignment = read_assignment(member.assignment)
        found = [(topics.find(owned.topic), owned.partitions) for owned in assignment.assigned_partitions]
        assigned = _still_free(
            made, partitions((topic.topic_id, numbers) for topic, numbers in found if topic is not None)
        )
    made.adopt(
        member.member_id,
        subscription_value(member, subscription),
        TargetValue(topic_partitions=to_stored(assigned)),
        Current(made.epoch, made.epoch, assigned=assigned),
    )


def _still_free(made: ConsumerGroup, assigned: Partitions) -> Partitions:
    """Return what no other member has: the assignor of a client may have given a partition to two."""
    return partitions((topic_id, [number]) for topic_id, number in each(assigned) if made.is_free(topic_id, number))


def downgraded(group: ConsumerGroup, settings: GroupSettings, moment: Moment) -> tuple[Group, GroupMetadataValue]:
    """Return a classic group with the members of a group that are all of the classic protocol, and its record.

    Its members are asked to join again.
    """
    members = list(group.members.values())
    name = next(
        protocol.name
        for protocol in members[0].classic.supported_protocols
        if all(any(protocol.name == other.name for other in it.classic.supported_protocols) for it in members)
    )
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation_id=group.epoch,
        protocol_name=name,
        leader_id=members[0].member_id,
        state_timestamp_ms=moment.now_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.subscription.client_id,
                client_host=member.subscription.client_host,
                rebalance_timeout_ms=member.subscription.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                subscription=next(it.metadata for it in member.classic.supported_protocols if it.name == name),
                assignment=group.assignment_of(member),
            )
            for member in members
        ],
    )
    made = Group.restored(group.group_id, value, settings, moment)
    made.resume(moment)
    made.begin_rebalance(moment)
    return made, value
