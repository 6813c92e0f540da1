"""Makes reassignment plans for what operators do by hand: empty brokers, spread replicas, add replicas.

Owns the choice of brokers. Pure. Must not know requests, options or how a plan is printed.

Every plan moves as little as its aim allows: a replica stays where it is unless the aim demands that it moves. A new
replica goes where, in this order:

    1. no other replica of the partition is in the same rack, as long as a rack without one is left
    2. the fewest replicas are
    3. the fewest bytes are
    4. the fewest replicas of the topic are

The first replica of a partition, which should lead it, is one that has the records already.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from base.topic_partition import TopicPartition, partition_name
from tools.admin.reassignment_plans import InvalidPlanError, Replicas

BYTES_SPREAD_MAX: Final = 1.1
"""Brokers are balanced if none has more than this many times the average of bytes."""
_WORTH_A_SWAP: Final = 0.02
"""A swap of replicas has to level at least this part of a broker's average of bytes."""


class Cluster(NamedTuple):
    """What a plan starts from."""

    racks: Mapping[int, str | None]
    """The live brokers; either all have a rack, or racks do not count."""
    replicas: Replicas
    sizes: Mapping[TopicPartition, int]
    """The bytes of one replica; 0 for a partition that is missing here."""


class Load(NamedTuple):
    """What a broker has."""

    replicas: int
    leaders: int
    size: int


def decommission(cluster: Cluster, leaving: Collection[int]) -> Replicas:
    """Return the partitions with replicas on the brokers that leave, with others in their place.

    Raises InvalidPlanError.
    """
    staying = [broker for broker in cluster.racks if broker not in leaving]
    layout = _Layout(cluster, staying)
    for partition in _largest_first(cluster, cluster.replicas):
        replicas = cluster.replicas[partition]
        if not any(broker in leaving for broker in replicas):
            continue
        if len(replicas) > len(staying):
            raise InvalidPlanError(
                f"{partition_name(partition)} has {len(replicas)} replicas, and only {len(staying)} brokers would stay"
            )
        kept = [broker for broker in replicas if broker not in leaving]
        layout.place(partition, layout.led_anew(partition, kept) if replicas[0] in leaving else kept)
        for _ in range(len(replicas) - len(kept)):
            layout.add(partition)
    return layout.changed()


def raise_replication_factor(cluster: Cluster, factor: int) -> Replicas:
    """Return the partitions that have fewer replicas than `factor`, with more. Raises InvalidPlanError."""
    if factor > len(cluster.racks):
        raise InvalidPlanError(f"Replication factor: {factor} larger than available brokers: {len(cluster.racks)}.")
    layout = _Layout(cluster, list(cluster.racks))
    for partition in _largest_first(cluster, cluster.replicas):
        for _ in range(factor - len(cluster.replicas[partition])):
            layout.add(partition)
    return layout.changed()


def balance(cluster: Cluster) -> Replicas:
    """Return the partitions to move so that racks, replicas, bytes and leaders are spread over all brokers.

    In this order, and none undoes one before: no partition has two replicas in a rack while another rack has none;
    brokers have equally many replicas, but for one; none has more than `BYTES_SPREAD_MAX` times the average of bytes;
    and each is the first replica of equally many partitions, but for one. A step that would take a move which an
    earlier aim forbids is left out.
    """
    layout = _Layout(cluster, list(cluster.racks))
    _spread_over_racks(layout)
    _level_replicas(layout)
    _level_bytes(layout)
    _level_leaders(layout)
    return layout.changed()


def loads(cluster: Cluster, changed: Replicas) -> dict[int, Load]:
    """Return what each broker has once the changed partitions are moved."""
    counts, leaders, sizes = Counter[int](), Counter[int](), Counter[int]()
    for partition, before in cluster.replicas.items():
        replicas = changed.get(partition, before)
        counts.update(replicas)
        leaders.update(replicas[:1])
        for broker in replicas:
            sizes[broker] += cluster.sizes.get(partition, 0)
    return {
        broker: Load(counts[broker], leaders[broker], sizes[broker]) for broker in sorted({*cluster.racks, *counts})
    }


def copied_size(cluster: Cluster, changed: Replicas) -> int:
    """Return how many bytes are copied to brokers that do not have them."""
    return sum(
        cluster.sizes.get(partition, 0) * len(set(replicas) - set(cluster.replicas[partition]))
        for partition, replicas in changed.items()
    )


def batches(changed: Replicas, size: int) -> Iterator[Replicas]:
    """Yield the changed partitions, at most `size` at a time, so that each broker takes part in each batch."""
    by_broker: dict[int, deque[TopicPartition]] = defaultdict(deque)
    for partition in sorted(changed):
        by_broker[changed[partition][-1]].append(partition)
    turns = [queue.popleft() for _ in range(len(changed)) for queue in by_broker.values() if queue]
    for start in range(0, len(turns), size):
        yield {partition: changed[partition] for partition in turns[start : start + size]}


class _Layout:
    """Where all replicas are while a plan is made, and what each broker has."""

    def __init__(self, cluster: Cluster, targets: Sequence[int]) -> None:
        self.cluster = cluster
        self.targets = sorted(targets)
        self.replicas: dict[TopicPartition, list[int]] = {}
        self.by_broker: dict[int, set[TopicPartition]] = {broker: set() for broker in self.targets}
        self.leaders: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self._of_topic: Counter[tuple[str, int]] = Counter()
        racks = set(cluster.racks.values())
        self.racks = cluster.racks if None not in racks else {}
        for partition, replicas in cluster.replicas.items():
            self.place(partition, replicas)

    def size(self, partition: TopicPartition) -> int:
        return self.cluster.sizes.get(partition, 0)

    def place(self, partition: TopicPartition, replicas: Iterable[int]) -> None:
        """Give the partition these replicas."""
        size = self.size(partition)
        for sign, brokers in ((-1, self.replicas.get(partition, [])), (1, list(replicas))):
            for broker in brokers:
                self.bytes[broker] += sign * size
                self._of_topic[partition[0], broker] += sign
                held = self.by_broker.setdefault(broker, set())
                held.add(partition) if sign > 0 else held.discard(partition)
            for broker in brokers[:1]:
                self.leaders[broker] += sign
            self.replicas[partition] = brokers

    def add(self, partition: TopicPartition) -> None:
        """Add the best replica."""
        replicas = self.replicas[partition]
        used = {self.racks.get(broker) for broker in replicas}
        self.place(
            partition,
            [
                *replicas,
                min(
                    (broker for broker in self.targets if broker not in replicas),
                    key=lambda broker: (
                        bool(self.racks) and self.racks[broker] in used,
                        len(self.by_broker[broker]),
                        self.bytes[broker],
                        self._of_topic[partition[0], broker],
                        broker,
                    ),
                ),
            ],
        )

    def may_move(self, partition: TopicPartition, source: int, target: int) -> bool:
        """Return whether a replica may move without two replicas of the partition in a rack that were in two.

        If it is not the only one, another that has the records must be on a live broker.
        """
        replicas = self.replicas[partition]
        if source not in replicas or target in replicas:
            return False
        rest = [broker for broker in replicas if broker != source]
        if rest and not any(broker in self.cluster.racks for broker in self.with_records(partition, rest)):
            return False
        others = {self.racks.get(broker) for broker in rest}
        return not self.racks or self.racks[target] not in others or self.racks.get(source) in others

    def move(self, partition: TopicPartition, source: int, target: int) -> None:
        """Move a replica. If it was the first one, another that has the records becomes the first."""
        replicas = self.replicas[partition]
        kept = [broker for broker in replicas if broker != source]
        if replicas[0] == source and kept:
            self.place(partition, [*self.led_anew(partition, kept), target])
        else:
            self.place(partition, [target if broker == source else broker for broker in replicas])

    def with_records(self, partition: TopicPartition, brokers: Sequence[int]) -> list[int]:
        """Return those of the brokers that have the records before the plan is executed; all if none has."""
        before = self.cluster.replicas[partition]
        return [broker for broker in brokers if broker in before] or list(brokers)

    def led_anew(self, partition: TopicPartition, kept: Sequence[int]) -> list[int]:
        """Return the replicas with the one first that has the records, is live and leads the fewest partitions."""
        candidates = self.with_records(partition, kept)
        firsts = sorted(
            candidates, key=lambda broker: (broker not in self.cluster.racks, self.leaders[broker], kept.index(broker))
        )[:1]
        return [*firsts, *(broker for broker in kept if broker not in firsts)]

    def changed(self) -> Replicas:
        before = self.cluster.replicas
        return {
            partition: replicas for partition, replicas in self.replicas.items() if replicas != list(before[partition])
        }


def _largest_first(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return sorted(partitions, key=lambda partition: (-cluster.sizes.get(partition, 0), partition))


def _spread_over_racks(layout: _Layout) -> None:
    racks = set(layout.racks.values())
    for partition in sorted(layout.replicas):
        while True:
            replicas = layout.replicas[partition]
            by_rack = Counter(layout.racks[broker] for broker in replicas if broker in layout.racks)  # others are dead
            crowded = [broker for broker in replicas if broker in layout.racks and by_rack[layout.racks[broker]] > 1]
            if not crowded or racks <= by_rack.keys():
                break
            source = max(crowded, key=lambda broker: (broker != replicas[0], len(layout.by_broker[broker]), broker))
            layout.place(partition, layout.led_anew(partition, [broker for broker in replicas if broker != source]))
            layout.add(partition)


def _level_replicas(layout: _Layout) -> None:
    while True:
        by_count = sorted(layout.targets, key=lambda broker: (len(layout.by_broker[broker]), broker))
        move = next(
            (
                (best, source, target)
                for source in reversed(by_count)
                for target in by_count
                if len(layout.by_broker[source]) - len(layout.by_broker[target]) > 1
                and (best := _best_to_move(layout, source, target)) is not None
            ),
            None,
        )
        if move is None:
            return
        layout.move(*move)


def _best_to_move(layout: _Layout, source: int, target: int) -> TopicPartition | None:
    """Return the partition whose move levels the bytes of two brokers best, or the smallest."""
    surplus = (layout.bytes[source] - layout.bytes[target]) / 2
    movable = [partition for partition in layout.by_broker[source] if layout.may_move(partition, source, target)]
    return min(movable, key=lambda partition: (abs(layout.size(partition) - surplus), partition), default=None)


def _level_bytes(layout: _Layout) -> None:
    """Swap replicas between the brokers with the most and the fewest bytes; the counts of replicas stay."""
    average = sum(layout.bytes[broker] for broker in layout.targets) / max(len(layout.targets), 1)
    for _ in range(len(layout.replicas)):
        by_bytes = sorted(layout.targets, key=lambda broker: (layout.bytes[broker], broker))
        if not by_bytes or layout.bytes[by_bytes[-1]] <= average * BYTES_SPREAD_MAX:
            return
        for target in by_bytes:
            swap = _best_swap(layout, by_bytes[-1], target, average * _WORTH_A_SWAP)
            if swap is not None:
                break
        else:
            return
        larger, smaller = swap
        layout.move(larger, by_bytes[-1], target)
        layout.move(smaller, target, by_bytes[-1])


def _best_swap(
    layout: _Layout, source: int, target: int, gain_min: float
) -> tuple[TopicPartition, TopicPartition] | None:
    """Return a partition of each broker whose exchange levels their bytes best, if that is worth it."""
    surplus = layout.bytes[source] - layout.bytes[target]
    given = [partition for partition in layout.by_broker[source] if layout.may_move(partition, source, target)]
    taken = sorted(
        (layout.size(partition), partition)
        for partition in layout.by_broker[target]
        if layout.may_move(partition, target, source)
    )
    best: tuple[float, TopicPartition, TopicPartition] | None = None
    for partition in given:
        wanted = layout.size(partition) - surplus / 2
        at = bisect_left(taken, (wanted, ("", -1)))
        for size, other in taken[max(at - 1, 0) : at + 1]:
            difference = layout.size(partition) - size
            gain = surplus - abs(surplus - 2 * difference)
            if gain >= max(gain_min, 1) and (best is None or (gain, other) > (best[0], best[2])):
                best = gain, partition, other
    return None if best is None else (best[1], best[2])


def _level_leaders(layout: _Layout) -> None:
    """Exchange first replicas along chains of brokers, until no chain leads from many to few."""
    for partition, replicas in list(layout.replicas.items()):
        if replicas[0] not in layout.with_records(partition, replicas):  # another one has come back since
            layout.place(partition, layout.led_anew(partition, replicas))
    while True:
        by_count = sorted(layout.targets, key=lambda broker: (-layout.leaders[broker], broker))
        chain = next(filter(None, (_chain_of_leaders(layout, broker) for broker in by_count)), None)
        if chain is None:
            return
        for partition, new_leader in chain:
            replicas = layout.replicas[partition]
            layout.place(partition, [new_leader, *(broker for broker in replicas if broker != new_leader)])


def _chain_of_leaders(layout: _Layout, start: int) -> list[tuple[TopicPartition, int]]:
    """Return partitions with new first replicas, so that `start` leads one less, and a broker with fewer one more."""
    reached: dict[int, tuple[TopicPartition, int] | None] = {start: None}
    queue = deque([start])
    while queue:
        broker = queue.popleft()
        if layout.leaders[start] - layout.leaders[broker] > 1:
            chain = []
            while (step := reached[broker]) is not None:
                chain.append((step[0], broker))
                broker = step[1]
            return chain
        for partition in sorted(layout.by_broker[broker]):
            replicas = layout.replicas[partition]
            if replicas[0] == broker:
                for follower in set(replicas[1:]) & set(layout.with_records(partition, replicas)):
                    if follower not in reached and follower in layout.targets:
                        reached[follower] = (partition, broker)
                        queue.append(follower)
    return []
