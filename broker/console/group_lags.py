"""How far groups are behind: in offsets, and in time.

Owns the arithmetic of lag. Must not know HTTP, or how a lag is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.console.cluster_client import LATEST, ClusterClient
from broker.console.committed_offsets import committed
from broker.console.rates import GROUP_PARTITIONS_MAX, GroupPartition, Progress
from broker.console.records.pieces import Range
from protocol.errors import KafkaError
from protocol.records.age import age_ms

if TYPE_CHECKING:
    from broker.console.console import Console

STEP_SIZE = 500
FIRST_UNREAD_MAX = 200
"""Partitions of which the first unread record is read for one page."""


class TopicGroup(TypedDict):
    """A group that reads a topic, and its lag there; null while an end offset is missing."""

    group: str
    lag: int | None


async def groups_by_topic(
    index: Mapping[str, Mapping[TopicPartition, int]],
    names: Collection[str],
    ends: Mapping[TopicPartition, int],
    pause: Pause,
) -> dict[str, list[TopicGroup]]:
    """Return the groups with offsets of each topic, those with the largest lag first."""
    found: dict[str, list[TopicGroup]] = {}
    for group, offsets in index.items():
        lags: dict[str, int | None] = {}
        for number, (each, position) in enumerate(offsets.items(), 1):
            if number % STEP_SIZE == 0:
                await pause()
            if each[0] in names:
                before = lags.get(each[0], 0)
                end = ends.get(each)
                lags[each[0]] = None if before is None or end is None else before + max(0, end - position)
        for topic, lag in lags.items():
            found.setdefault(topic, []).append(TopicGroup(group=group, lag=lag))
        await pause()
    for groups in found.values():
        groups.sort(key=lambda each: (-(each["lag"] or 0), each["group"]))
    return found


async def end_offsets(client: ClusterClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of partitions as readers of uncommitted records see them."""
    return {each: one.offset for each, one in (await client.offsets(partitions, LATEST)).items()}


async def local_progress(console: Console) -> dict[GroupPartition, Progress]:
    """Return lag and committed offset of each partition of the groups that this broker coordinates."""
    pause = console.pause
    services = console.services
    try:
        _, groups = services.groups.inspection.groups()
    except KafkaError:
        return {}
    names = sorted(group.group_id for group in groups)
    offsets = await committed(console.client, services.broker_id, names)
    wanted = await partitions_of(offsets, pause, count_max=GROUP_PARTITIONS_MAX)
    ends = await end_offsets(console.client, wanted)
    return await _progress(offsets, ends, pause)


async def partitions_of(
    offsets: Mapping[str, Mapping[TopicPartition, int]],
    pause: Pause,
    *,
    topic: str | None = None,
    count_max: int = sys.maxsize,
) -> list[TopicPartition]:
    """Return the partitions that groups read, `count_max` at most; with `topic`, those of this topic."""
    found: dict[TopicPartition, None] = {}
    for of_group in offsets.values():
        for number, each in enumerate(of_group):
            if number % STEP_SIZE == 0:
                await pause()
            if len(found) >= count_max:
                return list(found)
            if topic is None or each[0] == topic:
                found[each] = None
    return list(found)


async def _progress(
    offsets: Mapping[str, Mapping[TopicPartition, int]], ends: Mapping[TopicPartition, int], pause: Pause
) -> dict[GroupPartition, Progress]:
    progress: dict[GroupPartition, Progress] = {}
    for group, of_group in offsets.items():
        for number, (each, offset) in enumerate(of_group.items()):
            if number % STEP_SIZE == 0:
                await pause()
            if each in ends:
                progress[group, *each] = Progress(max(0, ends[each] - offset), offset)
    return progress


async def lags_in_time_ms(
    console: Console, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how long ago the first unread record of each partition was produced; 0 if all are read.

    Partitions whose record was not read, or whose timestamp says nothing, are missing.
    """
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
            if piece.records and (age := age_ms(piece.records[0].record.timestamp, now_ms)) is not None:
                lags[topic, partition] = age
    return lags
