"""A consumer group for the console: its members, offsets and lags.

Owns what the page of a group contains. Must not know HTTP.

Lags are the differences of committed offsets and the ends of the
partitions, which their leaders know. The history of lags is kept by the coordinator of a group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import chain
from typing import Literal, TypedDict

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.console.cluster_client import EARLIEST
from broker.console.committed_offsets import committed
from broker.console.console import Console
from broker.console.group_lags import TopicGroup, end_offsets, groups_by_topic, lags_in_time_ms, partitions_of
from broker.console.group_status import Status, partition_status, worst
from broker.console.problem import ProblemError, not_found, of_code
from broker.console.topics import require_topic
from broker.coordination.partitioner import partition_for
from protocol.consumer_protocol import PROTOCOL_TYPE, read_assignment
from protocol.described_consumer_groups import like_classic
from protocol.errors import ErrorCode, Malformed
from protocol.internal_topics import GROUP_METADATA_TOPIC
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest

LARGEST_LAGS = 20
STEP_SIZE = 500

PartitionSort = Literal["name", "lag"]


class Assigned(TypedDict):
    """Partitions of one topic that a member reads."""

    topic: str
    partitions: list[int]


class MemberRow(TypedDict):
    """One member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[Assigned]


class GroupPartitionRow(TypedDict):
    """One partition that a group reads. `lag_ms` is the age of the first unread record."""

    topic: str
    partition: int
    committed: str
    end: str | None
    lag: int | None
    lag_ms: int | None
    member: str
    status: Status
    lags: list[int | None]
    rates: list[float | None]


class GroupDetail(TypedDict):
    """One group with a page of its partitions. `topics`, `lag` and `status`, the worst one, are of all partitions.

    `lags` and `rates` of partitions (offsets committed per second) are of the last hour, one a minute. Only the
    coordinator keeps them. `oldest_unread_ms` is of the page and of the partitions with the largest lags.
    """

    group: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: list[MemberRow]
    topics: list[str]
    partition_count: int
    partitions: list[GroupPartitionRow]
    lag: int
    oldest_unread_ms: int
    status: Status
    has_history: bool
    history_end_ms: int


class TopicGroups(TypedDict):
    """The groups that read a topic, those with the largest lag first."""

    groups: list[TopicGroup]


async def group(console: Console, *, group: str, sort: PartitionSort, offset: int, limit: int) -> GroupDetail:
    """Return one group with a page of its partitions, by name or the largest lag first. Raises ProblemError."""
    pause = console.pause
    broker = coordinator_of(console, group)
    described = await described_group(console, broker, group)
    offsets = (await committed(console.client, broker, [group])).get(group, {})
    if described.group_state == "Dead" and not offsets:
        raise not_found(f"group {group!r} does not exist")
    ends = await end_offsets(console.client, offsets)
    members, readers = await members_of(described, pause)
    lags = await lags_of(offsets, ends, pause)
    ordered = await _by_topic(pause, offsets, readers)
    topics = list(dict.fromkeys(topic for topic, _ in ordered))
    by_lag = await _by_lag(ordered, lags, pause)
    largest = [each for each in by_lag[:LARGEST_LAGS] if each in lags]
    page = (by_lag if sort == "lag" else ordered)[offset : offset + limit]
    times = await _times(console, {each: offsets[each] for each in [*page, *largest] if each in offsets}, ends)
    rows = []
    for each in page:
        topic, partition = each
        position, end, lag = offsets.get(each), ends.get(each), lags.get(each)
        history = console.group_history.of(group, topic, partition)
        rows.append(
            GroupPartitionRow(
                topic=topic,
                partition=partition,
                committed="" if position is None else str(position),
                end=None if end is None else str(end),
                lag=lag,
                lag_ms=times.get(each),
                member=readers.get(each, ""),
                status=partition_status(lag, history, has_member=each in readers, is_committed=position is not None),
                lags=history.lags,
                rates=history.rates,
            )
        )
    return GroupDetail(
        group=group,
        state=described.group_state,
        protocol_type=described.protocol_type,
        assignor=described.protocol_data,
        coordinator=broker,
        members=members,
        topics=topics,
        partition_count=len(ordered),
        partitions=rows,
        lag=sum(lags.values()),
        oldest_unread_ms=max(times.values(), default=0),
        status=worst([status async for status in statuses_of(console, group, ordered, offsets, lags, readers)]),
        has_history=broker == console.services.broker_id,
        history_end_ms=console.group_history.recorded_ms,
    )


async def statuses_of(
    console: Console,
    group: str,
    partitions: Iterable[TopicPartition],
    offsets: Mapping[TopicPartition, int],
    lags: Mapping[TopicPartition, int],
    readers: Mapping[TopicPartition, str],
) -> AsyncIterator[Status]:
    """Yield the status of a group in each partition."""
    for number, each in enumerate(partitions):
        if number % STEP_SIZE == 0:
            await console.pause()
        history = console.group_history.of(group, *each)
        yield partition_status(lags.get(each), history, has_member=each in readers, is_committed=each in offsets)


def coordinator_of(console: Console, group: str) -> int:
    """Return the broker that coordinates a group. Raises ProblemError."""
    metadata = console.services.metadata_cache
    count = metadata.partition_count(GROUP_METADATA_TOPIC)
    if count is None:
        raise not_found(f"group {group!r} does not exist: there are no groups yet")
    leader = metadata.leader_of(GROUP_METADATA_TOPIC, partition_for(group, count))
    if leader < 0:
        raise of_code(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of group {group!r} has no leader")
    return leader


async def described_group(console: Console, broker: int, group: str) -> DescribedGroup:
    """Return a group as its coordinator describes it. Raises ProblemError."""
    (described,) = await described_groups(console, broker, [group], with_errors=True)
    if described.error_code:
        raise of_code(described.error_code, f"group {group!r}")
    return described


async def described_groups(
    console: Console, broker: int, groups: Sequence[str], *, with_errors: bool = False
) -> list[DescribedGroup]:
    """Return groups of both protocols as their coordinator describes them."""
    response = await console.client.ask(broker, DescribeGroupsRequest(groups=list(groups)))
    found: dict[str, DescribedGroup] = {each.group_id: each for each in response.groups}
    if others := [each.group_id for each in response.groups if each.group_state == "Dead"]:
        request = ConsumerGroupDescribeRequest(group_ids=others, include_authorized_operations=False)
        newer = (await console.client.ask(broker, request)).groups
        found.update({each.group_id: like_classic(each) for each in newer if not each.error_code})
    return [each for each in found.values() if with_errors or not each.error_code]


async def topic_groups(console: Console, *, name: str) -> TopicGroups:
    """Return the groups with offsets of a topic. Raises ProblemError."""
    require_topic(console, name)
    index = await console.group_offsets.get()
    ends = await end_offsets(console.client, await partitions_of(index, console.pause, topic=name))
    found = await groups_by_topic(index, {name}, ends, console.pause)
    return TopicGroups(groups=found.get(name, []))


async def lags_of(
    offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], pause: Pause
) -> dict[TopicPartition, int]:
    lags: dict[TopicPartition, int] = {}
    for number, (each, position) in enumerate(offsets.items()):
        if number % STEP_SIZE == 0:
            await pause()
        if each in ends:
            lags[each] = max(0, ends[each] - position)
    return lags


async def _times(
    console: Console, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the lags in time of some partitions. Records that are deleted already do not count."""
    starts = await console.client.offsets(offsets, EARLIEST)
    positions = {
        each: max(position, starts[each].offset) if each in starts else position for each, position in offsets.items()
    }
    try:
        return await lags_in_time_ms(console, positions, ends)
    except ProblemError:
        return {}


async def members_of(described: DescribedGroup, pause: Pause) -> tuple[list[MemberRow], dict[TopicPartition, str]]:
    """Return the members, and which of them reads each partition."""
    rows = []
    readers: dict[TopicPartition, str] = {}
    steps = 0
    for member in described.members:
        assigned: list[Assigned] = []
        if described.protocol_type == PROTOCOL_TYPE and member.member_assignment:
            try:
                _, assignment = read_assignment(bytes(member.member_assignment))
            except Malformed:
                assignment = None
            for each in () if assignment is None else assignment.assigned_partitions:
                assigned.append(Assigned(topic=each.topic, partitions=sorted(each.partitions)))
                readers.update({(each.topic, partition): member.member_id for partition in each.partitions})
                steps += len(each.partitions)
                if steps >= STEP_SIZE:
                    steps = 0
                    await pause()
        rows.append(
            MemberRow(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=assigned,
            )
        )
    return rows, readers


async def _by_topic(pause: Pause, *partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the union of partitions, ordered. Sorting them at once would hold the event loop."""
    numbers: dict[str, set[int]] = {}
    for number, (topic, partition) in enumerate(chain(*partitions)):
        if number % STEP_SIZE == 0:
            await pause()
        numbers.setdefault(topic, set()).add(partition)
    ordered: list[TopicPartition] = []
    for number, topic in enumerate(sorted(numbers)):
        if number % STEP_SIZE == 0:
            await pause()
        ordered += [(topic, partition) for partition in sorted(numbers[topic])]
    return ordered


async def _by_lag(
    ordered: list[TopicPartition], lags: Mapping[TopicPartition, int], pause: Pause
) -> list[TopicPartition]:
    """Return the partitions with the largest lag first, those without a known one last."""
    by_lag: dict[int, list[TopicPartition]] = {}
    for number, each in enumerate(ordered):
        if number % STEP_SIZE == 0:
            await pause()
        by_lag.setdefault(lags.get(each, -1), []).append(each)
    return [each for lag in sorted(by_lag, reverse=True) for each in by_lag[lag]]
