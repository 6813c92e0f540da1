"""Which member of a share group is to have which partitions: the assignor `simple` (KIP-932). Pure.

Owns: the algorithm. A partition may have several members, and every member has a partition of each of its topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from uuid import UUID

from base.pause import Pause, through
from broker.groups.machine.consumer.assignors import Counts, Subscribers, Targets
from broker.groups.machine.consumer.partitions import NOTHING, partitions


class SimpleAssignor:
    """Spreads partitions over members, and members over partitions if there are more of them; moves few."""

    name = "simple"

    async def assign(self, subscribers: Subscribers, counts: Counts, pause: Pause) -> Targets:
        found: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in subscribers}
        for topic_id in sorted(counts):
            members = [member_id for member_id in sorted(subscribers) if topic_id in subscribers[member_id].topic_ids]
            if members and counts[topic_id]:
                held = {each: subscribers[each].target.get(topic_id, frozenset()) for each in members}
                for member_id, numbers in (await _of_topic(members, held, counts[topic_id], pause)).items():
                    found[member_id][topic_id] = frozenset(numbers)
        return {member_id: partitions(of_topics.items()) or NOTHING for member_id, of_topics in found.items()}


async def _of_topic(
    members: Sequence[str], held: dict[str, frozenset[int]], count: int, pause: Pause
) -> dict[str, list[int]]:
    """Assign the partitions of one topic: each pair that there was is kept while it fits."""
    pairs = max(count, len(members))
    of_member_max, of_partition_max = -(-pairs // len(members)), -(-pairs // count)
    mine: dict[str, list[int]] = {member_id: [] for member_id in members}
    sharing = [0] * count
    async for member_id in through(members, pause):
        for number in sorted(held[member_id]):
            if number < count and len(mine[member_id]) < of_member_max and sharing[number] < of_partition_max:
                mine[member_id].append(number)
                sharing[number] += 1
    least_loaded = [(len(mine[member_id]), member_id) for member_id in members]
    heapify(least_loaded)
    async for number in through([number for number in range(count) if not sharing[number]], pause):
        load, member_id = least_loaded[0]
        mine[member_id].append(number)
        sharing[number] += 1
        heapreplace(least_loaded, (load + 1, member_id))
    least_shared = [(shared, number) for number, shared in enumerate(sharing)]
    heapify(least_shared)
    async for member_id in through([member_id for member_id in members if not mine[member_id]], pause):
        shared, number = least_shared[0]
        mine[member_id].append(number)
        heapreplace(least_shared, (shared + 1, number))
    return mine
