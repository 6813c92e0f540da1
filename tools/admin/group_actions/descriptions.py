"""Descriptions of kafka-consumer-groups: committed offsets and lag, members, or the state of groups.

Queries the cluster and computes the content of each cell; `group_tables` formats the table.

Must not know options or columns.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct, error
from typing import NamedTuple

from base.topic_partition import TopicPartition
from protocol.described_consumer_groups import like_classic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tools.base.group_tables import MISSING, OFFSETS, STATES, member_columns, table
from tools.client.admin_client import LATEST, AdminClient

DEAD = "Dead"
EMPTY = "Empty"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
NO_OFFSET = -1

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class GroupMember(NamedTuple):
    """A member of a consumer group and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class ConsumerGroup(NamedTuple):
    """A group as its coordinator describes it."""

    name: str
    state: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]


def describe_group(admin: AdminClient, name: str) -> ConsumerGroup:
    """Return one group; an unknown one is Dead. Raises KafkaError."""
    request = DescribeGroupsRequest(groups=[name])
    group = DescribedGroup(group_id=name, group_state=DEAD)
    try:
        group = admin.query_coordinator(name, request, DescribeGroupsResponse, lambda response: response.groups)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    if group.group_state == DEAD:
        group = _consumer_group(admin, name) or group
    coordinator_id = admin.coordinator(name)
    coordinator = f"{admin.endpoint(coordinator_id)}  ({coordinator_id})"
    return ConsumerGroup(name, group.group_state, group.protocol_data, coordinator, tuple(_members(group)))


def _consumer_group(admin: AdminClient, name: str) -> DescribedGroup | None:
    """Return a group of the consumer protocol; None if there is none, or the broker does not serve the protocol."""
    request = ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    try:
        return like_classic(
            admin.query_coordinator(name, request, ConsumerGroupDescribeResponse, lambda response: response.groups)
        )
    except KafkaError as error:
        if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            raise
        return None


def committed_offsets(admin: AdminClient, group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group. Raises KafkaError."""
    request = committed_offsets_request([group])
    return read_offsets(admin.query_coordinator(group, request, OffsetFetchResponse, lambda response: response.groups))


def committed_offsets_request(groups: Sequence[str]) -> OffsetFetchRequest:
    """Return the request for all committed offsets of groups that have the same coordinator."""
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups])


def read_offsets(found: OffsetFetchResponseGroup) -> dict[TopicPartition, int]:
    """Return the committed offsets in the response for one group."""
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in found.topics
        for partition in topic.partitions
        if partition.committed_offset != NO_OFFSET
    }


def print_offsets(admin: AdminClient, groups: Sequence[str]) -> bool:
    """Print offsets and lag of each group; return whether all groups exist."""
    lines: list[str] = []
    all_exist = True
    for name in sorted(groups):
        group = describe_group(admin, name)
        rows = list(_offset_rows(admin, group))
        all_exist &= _print_state(group)
        if group.state != DEAD and rows:
            lines += table(OFFSETS, rows)
    if lines:
        print("\n" + "\n".join(lines))
    return all_exist


def print_members(admin: AdminClient, groups: Sequence[str], *, is_verbose: bool) -> bool:
    """Print the members of each group; return whether all groups exist."""
    all_exist = True
    for name in sorted(groups):
        group = describe_group(admin, name)
        all_exist &= _print_state(group)
        with_instance_id = any(member.instance_id for member in group.members)
        columns = member_columns(with_instance_id=with_instance_id, with_assignment=is_verbose)
        rows = [
            (
                name,
                member.member_id,
                *([member.instance_id or ""] if with_instance_id else []),
                member.host,
                member.client_id,
                str(len(member.assignment)),
                _assignment_text(member.assignment) if is_verbose else "",
            )
            for member in group.members
        ]
        print("\n" + "\n".join(table(columns, rows)))
    return all_exist


def print_states(admin: AdminClient, groups: Sequence[str]) -> bool:
    """Print coordinator and state of each group; return whether all groups exist."""
    all_exist = True
    for name in sorted(groups):
        group = describe_group(admin, name)
        all_exist &= _print_state(group)
        if group.state != DEAD:
            row = (name, group.coordinator, group.assignor, group.state, str(len(group.members)))
            print("\n" + "\n".join(table(STATES, [row])))
    return all_exist


def _print_state(group: ConsumerGroup) -> bool:
    """Print a warning about the state of a group; return False if the group does not exist."""
    if group.state == DEAD:
        print(f"\nError: Consumer group '{group.name}' does not exist.")
        return False
    if group.state == EMPTY:
        print(f"\nConsumer group '{group.name}' has no active members.", file=sys.stderr)
    elif group.state in REBALANCING:
        print(f"\nWarning: Consumer group '{group.name}' is rebalancing.", file=sys.stderr)
    return True


def _members(group: DescribedGroup) -> Iterator[GroupMember]:
    for member in group.members:
        yield GroupMember(
            member.member_id, member.group_instance_id, member.client_id, member.client_host, _assignment(member)
        )


def _assignment(member: DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """Return the partitions of a member; none if its bytes are not those of a consumer."""
    try:
        return tuple(sorted(_read_assignment(bytes(member.member_assignment))))
    except (error, UnicodeDecodeError):
        return ()


def _read_assignment(data: bytes) -> Iterator[TopicPartition]:
    """Parse version and topics with their partitions; the user data after them is ignored."""
    if not data:
        return
    position = _INT16.size
    (topic_count,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    for _ in range(topic_count):
        (size,) = _INT16.unpack_from(data, position)
        position += _INT16.size
        topic = data[position : position + size].decode()
        position += size
        (partition_count,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        for _ in range(partition_count):
            (partition,) = _INT32.unpack_from(data, position)
            position += _INT32.size
            yield topic, partition


def _offset_rows(admin: AdminClient, group: ConsumerGroup) -> Iterator[tuple[str, ...]]:
    """Return one row per partition: members with most partitions first, unassigned partitions last."""
    if group.state == DEAD:
        return
    committed = committed_offsets(admin, group.name)
    assigned = {partition for member in group.members for partition in member.assignment}
    ends = admin.list_offsets(dict.fromkeys([*committed, *assigned], LATEST))
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        for partition in member.assignment:
            yield _offset_row(group, partition, committed, ends, (member.member_id, member.host, member.client_id))
    for partition in sorted(committed.keys() - assigned):
        yield _offset_row(group, partition, committed, ends, (MISSING, MISSING, MISSING))


def _offset_row(
    group: ConsumerGroup,
    partition: TopicPartition,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int | KafkaError],
    reader: tuple[str, str, str],
) -> tuple[str, ...]:
    current, end = committed.get(partition), ends.get(partition)
    end = end if isinstance(end, int) and end != NO_OFFSET else None
    lag = None if current is None or end is None else end - current
    topic, index = partition
    numbers = (MISSING if number is None else str(number) for number in (current, end, lag))
    return group.name, topic, str(index), *numbers, *reader


def _assignment_text(assignment: Sequence[TopicPartition]) -> str:
    """Return the partition numbers by topic, as in `(0,1), (2)`."""
    if not assignment:
        return MISSING
    topics: dict[str, list[str]] = {}
    for topic, partition in assignment:
        topics.setdefault(topic, []).append(str(partition))
    return ", ".join(sorted(f"({','.join(sorted(partitions))})" for partitions in topics.values()))
