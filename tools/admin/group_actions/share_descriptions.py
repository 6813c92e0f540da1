"""Descriptions of kafka-share-groups: start offsets, members, or the state of share groups.

Queries the cluster and computes the content of each cell; `group_tables` formats the table.

Must not know options or columns.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestedGroup,
)
from protocol.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from tools.base.group_tables import MISSING, share_member_columns, share_offset_columns, share_state_columns, table
from tools.client.admin_client import AdminClient, raise_for

DEAD: Final = "Dead"
EMPTY: Final = "Empty"


class StartOffset(NamedTuple):
    """The start offset of a partition for a share group: records before it are not delivered any more."""

    offset: int
    leader_epoch: int


def describe_group(admin: AdminClient, name: str) -> DescribedGroup:
    """Return one group. Raises KafkaError, GROUP_ID_NOT_FOUND for an unknown group."""
    response = admin.call_coordinator(
        name,
        ShareGroupDescribeRequest(group_ids=[name], include_authorized_operations=False),
        ShareGroupDescribeResponse,
        lambda response: [group.error_code for group in response.groups],
    )
    (group,) = response.groups
    raise_for(group.error_code, group.error_message)
    return group


def start_offsets(admin: AdminClient, name: str) -> dict[TopicPartition, StartOffset | None]:
    """Return the start offsets of a group by partition, None where no member has fetched yet. Raises KafkaError."""
    response = admin.call_coordinator(
        name,
        DescribeShareGroupOffsetsRequest(groups=[RequestedGroup(group_id=name, topics=None)]),
        DescribeShareGroupOffsetsResponse,
        lambda response: [group.error_code for group in response.groups],
    )
    (group,) = response.groups
    raise_for(group.error_code, group.error_message)
    return {
        (topic.topic_name, partition.partition_index): (
            StartOffset(partition.start_offset, partition.leader_epoch) if partition.start_offset >= 0 else None
        )
        for topic in group.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    }


def print_offsets(admin: AdminClient, names: Iterable[str], *, is_verbose: bool) -> None:
    """Print the start offsets of each group. Raises KafkaError before anything is printed."""
    found = {group.group_id: start_offsets(admin, group.group_id) for group in _described(admin, names)}
    for name, offsets in found.items():
        rows = [
            (
                name,
                topic,
                str(partition),
                *([MISSING if start is None else str(start.leader_epoch)] if is_verbose else []),
                MISSING if start is None else str(start.offset),
            )
            for (topic, partition), start in sorted(offsets.items())
        ]
        print("\n" + "\n".join(table(share_offset_columns(is_verbose=is_verbose), rows)))


def print_members(admin: AdminClient, names: Iterable[str], *, is_verbose: bool) -> None:
    """Print the members of each group that has some. Raises KafkaError before anything is printed."""
    for group in _described(admin, names):
        _print_state(group)
        rows = [
            (
                group.group_id,
                member.member_id,
                member.client_host,
                member.client_id,
                str(sum(len(topic.partitions) for topic in member.assignment.topic_partitions)),
                *([str(member.member_epoch)] if is_verbose else []),
                _assignment_text(member),
            )
            for member in sorted(group.members, key=lambda member: member.member_id)
        ]
        if rows and group.group_state != DEAD:
            print("\n" + "\n".join(table(share_member_columns(is_verbose=is_verbose), rows)))


def print_states(admin: AdminClient, names: Iterable[str], *, is_verbose: bool) -> None:
    """Print coordinator and state of each group. Raises KafkaError before anything is printed."""
    for group in _described(admin, names):
        _print_state(group)
        coordinator_id = admin.coordinator(group.group_id)
        row = (
            group.group_id,
            f"{admin.endpoint(coordinator_id)}  ({coordinator_id})",
            group.group_state,
            *([str(group.group_epoch), str(group.assignment_epoch)] if is_verbose else []),
            str(len(group.members)),
        )
        print("\n" + "\n".join(table(share_state_columns(is_verbose=is_verbose), [row])))


def _described(admin: AdminClient, names: Iterable[str]) -> Sequence[DescribedGroup]:
    return [describe_group(admin, name) for name in sorted(set(names))]


def _print_state(group: DescribedGroup) -> None:
    """Print a warning about a group without members."""
    if group.group_state == DEAD:
        print(f"\nError: Share group '{group.group_id}' does not exist.")
    elif group.group_state == EMPTY:
        print(f"\nShare group '{group.group_id}' has no active members.", file=sys.stderr)


def _assignment_text(member: Member) -> str:
    """Return the partitions of a member by topic, as in `orders:0,1;returns:0`."""
    topics = (
        f"{topic.topic_name}:{','.join(map(str, sorted(topic.partitions)))}"
        for topic in member.assignment.topic_partitions
    )
    return ";".join(sorted(topics))
