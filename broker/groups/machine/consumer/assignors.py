"""Which member is to have which partitions: the assignors `uniform` and `range` (KIP-848). Pure.

Owns: both algorithms, and the interface that assignors of your own implement. Must not know: epochs, or how members get
from one assignment to the next (`broker.groups.machine.consumer.reconciliation`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from base.pause import Pause, through
from broker.groups.machine.consumer.partitions import Partitions, each, partitions

BALANCING_ROUNDS_MAX: Final = 20


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topic_ids: frozenset[UUID]
    instance_id: str | None
    rack_id: str | None
    target: Partitions
    """What it was to have until now; what need not move should not."""


Subscribers = Mapping[str, Subscriber]
"""The members by member id."""
Counts = Mapping[UUID, int]
"""The partitions of each subscribed topic."""
Targets = Mapping[str, Partitions]


class Assignor(Protocol):
    """An assignor. `name` is what clients choose it by."""

    name: str

    async def assign(self, subscribers: Subscribers, counts: Counts, pause: Pause) -> Targets:
        """Return what each member is to have: each partition of each topic once, by a member that subscribes to it.

        A member without an entry is to have nothing. The coroutine awaits nothing but `pause()`.
        """


Place = tuple[UUID, int]


class UniformAssignor:
    """Gives all members as many partitions as far as possible, and moves few."""

    name = "uniform"

    async def assign(self, subscribers: Subscribers, counts: Counts, pause: Pause) -> Targets:
        if len({each.topic_ids for each in subscribers.values()}) > 1:
            return await _Balancing(subscribers, counts, pause).targets()
        return await _even(subscribers, counts, pause)


async def _even(subscribers: Subscribers, counts: Counts, pause: Pause) -> Targets:
    """Assign topics to which all members subscribe: each gets its share, and keeps as much of what it had."""
    topic_ids = next((each.topic_ids for each in subscribers.values()), frozenset[UUID]())
    places = [(topic_id, number) for topic_id in sorted(topic_ids) for number in range(counts.get(topic_id, 0))]
    share, more = divmod(len(places), max(len(subscribers), 1))
    taken: set[Place] = set()
    held: dict[str, list[Place]] = {}
    async for member_id in through(sorted(subscribers), pause):
        mine = _still_there(subscribers[member_id], counts, taken)
        has_one_more = len(mine) > share and more > 0
        more -= has_one_more
        held[member_id] = mine[: share + has_one_more]
        taken.update(held[member_id])
    free = iter([place async for place in through(places, pause) if place not in taken])
    async for mine in through(held.values(), pause):
        missing = share - len(mine)
        if missing >= 0 and more > 0:
            missing += 1
            more -= 1
        mine += [place for _, place in zip(range(missing), free, strict=False)]
    return await _targets(held, pause)


class _Balancing:
    """Assigns topics to which not all members subscribe: the most loaded give to the least loaded, topic by topic."""

    def __init__(self, subscribers: Subscribers, counts: Counts, pause: Pause) -> None:
        self._subscribers = subscribers
        self._counts = counts
        self._pause = pause
        self._held: dict[str, dict[UUID, list[int]]] = {}
        self._loads: dict[str, int] = {}
        self._members = _by_topic(subscribers, counts)

    async def targets(self) -> Targets:
        taken = await self._keep()
        # Topics that few members may have come first: the others can still even out what they cause.
        order = sorted(self._members, key=lambda topic_id: (len(self._members[topic_id]), topic_id))
        for topic_id in order:
            await self._hand_out(topic_id, taken)
        for _ in range(BALANCING_ROUNDS_MAX):
            if not sum([self._even_out(topic_id) async for topic_id in through(order, self._pause)]):
                break
        return await _targets(
            {member_id: _places(of_topics) for member_id, of_topics in self._held.items()}, self._pause
        )

    async def _keep(self) -> set[Place]:
        """Let members keep what they had; return it."""
        taken: set[Place] = set()
        async for member_id in through(sorted(self._subscribers), self._pause):
            mine = _still_there(self._subscribers[member_id], self._counts, taken)
            taken.update(mine)
            self._held[member_id] = _grouped(mine)
            self._loads[member_id] = len(mine)
        return taken

    async def _hand_out(self, topic_id: UUID, taken: Collection[Place]) -> None:
        """Give the partitions of a topic that nobody has to the least loaded of its members."""
        loads = self._loads
        heap = [(loads[member_id], member_id) for member_id in self._members[topic_id]]
        heapify(heap)
        async for number in through(range(self._counts[topic_id]), self._pause):
            if (topic_id, number) not in taken:
                load, member_id = heap[0]
                self._held[member_id].setdefault(topic_id, []).append(number)
                loads[member_id] = load + 1
                heapreplace(heap, (load + 1, member_id))

    def _even_out(self, topic_id: UUID) -> int:
        """Move partitions of a topic from the most to the least loaded of its members; return how many moved."""
        held, loads = self._held, self._loads
        ascending = sorted(self._members[topic_id], key=lambda member_id: (loads[member_id], member_id))
        moved, first, last = 0, 0, len(ascending) - 1
        while first < last:
            least, most = ascending[first], ascending[last]
            numbers = held[most].get(topic_id)
            if not numbers:
                last -= 1
            elif loads[most] - loads[least] < 2:
                first += 1
            else:
                held[least].setdefault(topic_id, []).append(numbers.pop())
                loads[most] -= 1
                loads[least] += 1
                moved += 1
        return moved


class RangeAssignor:
    """Gives each member a range of each topic, so that topics with as many partitions are split alike."""

    name = "range"

    async def assign(self, subscribers: Subscribers, counts: Counts, pause: Pause) -> Targets:
        held: dict[str, list[Place]] = {member_id: [] for member_id in subscribers}

        def place(member_id: str) -> tuple[str, str]:
            """Return a member's place in the order; a static member keeps it under a new member id."""
            return subscribers[member_id].instance_id or member_id, member_id

        async for topic_id, members in through(_by_topic(subscribers, counts).items(), pause):
            share, more = divmod(counts[topic_id], len(members))
            start = 0
            async for position, member_id in through(enumerate(sorted(members, key=place)), pause):
                end = start + share + (position < more)
                held[member_id] += [(topic_id, number) for number in range(start, end)]
                start = end
        return await _targets(held, pause)


def _still_there(subscriber: Subscriber, counts: Counts, taken: Collection[Place]) -> list[Place]:
    """Return what a member had that still exists, that it still subscribes to, and that no member before it has."""
    return sorted(
        place
        for place in each(subscriber.target)
        if place[0] in subscriber.topic_ids and place[1] < counts.get(place[0], 0) and place not in taken
    )


def _by_topic(subscribers: Subscribers, counts: Counts) -> dict[UUID, list[str]]:
    """Return the members of each topic that has partitions, in order."""
    found: dict[UUID, list[str]] = {}
    for member_id in sorted(subscribers):
        for topic_id in subscribers[member_id].topic_ids:
            if counts.get(topic_id, 0):
                found.setdefault(topic_id, []).append(member_id)
    return dict(sorted(found.items()))


async def _targets(held: Mapping[str, Sequence[Place]], pause: Pause) -> Targets:
    return {member_id: partitions(_grouped(mine).items()) async for member_id, mine in through(held.items(), pause)}


def _grouped(places: Sequence[Place]) -> dict[UUID, list[int]]:
    of_topics: dict[UUID, list[int]] = {}
    for topic_id, number in places:
        of_topics.setdefault(topic_id, []).append(number)
    return of_topics


def _places(of_topics: Mapping[UUID, Sequence[int]]) -> list[Place]:
    return [(topic_id, number) for topic_id, numbers in of_topics.items() for number in numbers]
