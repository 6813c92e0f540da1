"""How far groups are behind: in offsets, and in time.

Owns the arithmetic of lag. Must not know HTTP, or how a lag is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, TypedDict

from broker.console.cluster_client import LATEST, ClusterClient, TopicPartition
from broker.console.committed_offsets import committed
from broker.console.rates import GROUP_PARTITIONS_MAX, GroupPartition, Progress
from broker.console.record_reader import Range
from broker.loop.slices import Slices
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.console.console import Console

END_OFFSETS_PER_REQUEST = 1_000
FIRST_UNREAD_MAX = 200
"""Partitions of which the first unread record is read for one page."""


class TopicGroup(TypedDict):
    """A group that reads a topic, and its lag there; null while an end offset is missing."""

    group: str
    lag: int | None


def groups_by_topic(
    index: Mapping[str, Mapping[TopicPartition, int]], names: Collection[str], ends: Mapping[TopicPartition, int]
) -> Slices[dict[str, list[TopicGroup]]]:
    """Return the groups with offsets of each topic, those with the largest lag first."""
    found: dict[str, list[TopicGroup]] = {}
    for group, offsets in index.items():
        lags: dict[str, int | None] = {}
        for each, position in offsets.items():
            if each[0] in names:
                before = lags.get(each[0], 0)
                end = ends.get(each)
                lags[each[0]] = None if before is None or end is None else before + max(0, end - position)
        for topic, lag in lags.items():
            found.setdefault(topic, []).append(TopicGroup(group=group, lag=lag))
        yield
    for groups in found.values():
        groups.sort(key=lambda each: (-(each["lag"] or 0), each["group"]))
    return found


async def end_offsets(client: ClusterClient, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of partitions as readers of uncommitted records see them."""
    ends: dict[TopicPartition, int] = {}
    for first in range(0, len(partitions), END_OFFSETS_PER_REQUEST):
        found = await client.offsets(partitions[first : first + END_OFFSETS_PER_REQUEST], LATEST)
        ends.update({each: one.offset for each, one in found.items()})
    return ends


async def local_progress(console: Console) -> dict[GroupPartition, Progress]:
    """Return lag and committed offset of each partition of the groups that this broker coordinates."""
    services = console.services
    try:
        _, groups = services.groups.inspection.groups()
    except KafkaError:
        return {}
    names = sorted(group.group_id for group in groups)
    offsets = await committed(console.client, services.broker_id, names)
    wanted = sorted({each for of_group in offsets.values() for each in of_group})[:GROUP_PARTITIONS_MAX]
    ends = await end_offsets(console.client, wanted)
    return {
        (group, *each): Progress(max(0, ends[each] - offset), offset)
        for group, of_group in offsets.items()
        for each, offset in of_group.items()
        if each in ends
    }


async def lags_in_time_ms(
    console: Console, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how long ago the first unread record of each partition was produced; 0 if all are read."""
    now_ms = console.services.clock.now_ms()
    lags = {each: 0 for each, offset in offsets.items() if each in ends and offset >= ends[each]}
    behind = [each for each, offset in offsets.items() if each in ends and offset < ends[each]][:FIRST_UNREAD_MAX]
    by_topic: dict[str, dict[int, Range]] = {}
    for topic, partition in behind:
        start = offsets[topic, partition]
        by_topic.setdefault(topic, {})[partition] = Range(start, ends[topic, partition])
    for topic, ranges in by_topic.items():
        pieces = await console.reader.read(topic, ranges, is_committed=False, piece_size=16 << 10)
        for partition, piece in pieces.items():
            if piece.records:
                lags[topic, partition] = max(0, now_ms - piece.records[0].record.timestamp)
    return lags
