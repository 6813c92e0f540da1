"""Choose the brokers that hold the replicas of new partitions.

Owns Kafka's two placements: round robin with shifted followers, and the same over brokers interleaved by rack. Must not
draw random numbers: the first leader and the shift are arguments.

Invariants: no partition has two replicas on one broker; the numbers of partitions that two brokers lead differ by at
most one; with racks, no two replicas of a partition share a rack while another rack has none.
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
    """Place `partition_count` new partitions, numbered from `first_partition`, on the brokers in `racks`.

    `racks` maps broker ids to racks; racks are used only if every broker has one. `start` is the index of the first
    partition's leader, `shift` the distance of its first follower. The shift grows by one with each full round of
    leaders, so that the followers of one broker's partitions spread over all other brokers.

    Returns the replicas by partition, the preferred leader first.
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
    """Order brokers so that neighbours are in different racks: one broker of each rack in turn, racks by name."""
    brokers_by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        brokers_by_rack.setdefault(racks[broker], []).append(broker)
    turns = [brokers_by_rack[rack] for rack in sorted(brokers_by_rack)]
    longest = max(map(len, turns), default=0)
    return [brokers[turn] for turn in range(longest) for brokers in turns if turn < len(brokers)]


def _follower_indexes(leader: int, shift: int, broker_count: int) -> Iterator[int]:
    """Yield the other brokers' indexes, beginning `shift` (modulo their number) after the leader's neighbour."""
    for distance in range(broker_count - 1):
        yield (leader + 1 + (shift + distance) % (broker_count - 1)) % broker_count


def _first(_leader: int, candidates: Iterator[int], count: int, _racks: Mapping[int, str]) -> list[int]:
    return [broker for broker, _ in zip(candidates, range(count), strict=False)]


def _spread_over_racks(leader: int, candidates: Iterator[int], count: int, racks: Mapping[int, str]) -> Sequence[int]:
    """Choose `count` candidates in order, but those in racks without a replica first, round after round."""
    chosen: list[int] = []
    waiting = list(candidates)
    taken = {racks[leader]}
    while len(chosen) < count:
        fresh = next((broker for broker in waiting if racks[broker] not in taken), None)
        if fresh is None:
            # Every rack with a broker left already holds a replica: start another round over the racks.
            fresh = waiting[0]
            taken.clear()
        taken.add(racks[fresh])
        waiting.remove(fresh)
        chosen.append(fresh)
    return chosen
