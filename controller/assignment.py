"""Which brokers hold the replicas of new partitions.

Owns Kafka's two placements: round robin with shifted followers, and the same over brokers interleaved by rack. Must not
know randomness: where to start and how far to shift are arguments. Invariants: no partition has two replicas on a
broker; leaders differ by at most one partition between brokers; with racks, no two replicas of a partition share a rack
while there is a rack without one.
"""

from collections.abc import Iterator, Mapping, Sequence


def assign_replicas(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Place partitions `first_partition` and up on the brokers in `racks`.

    Racks count only when every broker has one. `start` is the index of the first partition's leader, `shift` the
    distance of its first follower; the shift grows by one with every full round of leaders, so that the followers of
    one broker's partitions are spread over all others.
    """
    assert 1 <= replication_factor <= len(racks)
    known_racks = {broker: rack for broker, rack in racks.items() if rack is not None}
    rack_aware = len(known_racks) == len(racks)
    brokers = interleaved_by_rack(known_racks) if rack_aware else sorted(racks)
    assigned: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        leader = (partition + start) % len(brokers)
        candidates = (brokers[index] for index in _follower_indexes(leader, shift, len(brokers)))
        followers = _spread_over_racks if rack_aware else _first
        replicas = (brokers[leader], *followers(brokers[leader], candidates, replication_factor - 1, known_racks))
        assigned[partition] = replicas
    return assigned


def interleaved_by_rack(racks: Mapping[int, str]) -> list[int]:
    """Brokers ordered so that neighbours are in different racks: one of each rack in turn, racks by name."""
    brokers_by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        brokers_by_rack.setdefault(racks[broker], []).append(broker)
    turns = [brokers_by_rack[rack] for rack in sorted(brokers_by_rack)]
    longest = max(map(len, turns), default=0)
    return [brokers[turn] for turn in range(longest) for brokers in turns if turn < len(brokers)]


def _follower_indexes(leader: int, shift: int, broker_count: int) -> Iterator[int]:
    """The other brokers' indexes, beginning `shift` (modulo their number) behind the leader's neighbour."""
    for distance in range(broker_count - 1):
        yield (leader + 1 + (shift + distance) % (broker_count - 1)) % broker_count


def _first(_leader: int, candidates: Iterator[int], count: int, _racks: Mapping[int, str]) -> list[int]:
    return [broker for broker, _ in zip(candidates, range(count), strict=False)]


def _spread_over_racks(leader: int, candidates: Iterator[int], count: int, racks: Mapping[int, str]) -> Sequence[int]:
    """The candidates in order, those of a rack that holds no replica yet first, round after round."""
    chosen: list[int] = []
    waiting = list(candidates)
    taken = {racks[leader]}
    while len(chosen) < count:
        fresh = next((broker for broker in waiting if racks[broker] not in taken), None)
        if fresh is None:
            # Every rack that still has a broker holds a replica: begin another round over the racks.
            fresh = waiting[0]
            taken.clear()
        taken.add(racks[fresh])
        waiting.remove(fresh)
        chosen.append(fresh)
    return chosen
