"""Choose the brokers that hold the replicas of new partitions.

Owns Kafka's two placements: round robin with shifted followers, and the same over brokers interleaved by rack. Must not
draw random numbers: the first leader and the shift are arguments.

Invariants: no partition has two replicas on one broker; the numbers of partitions that two brokers lead differ by at
most one; with racks, no two replicas of a partition share a rack while another rack has none.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice


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

    `racks` maps broker ids to racks; either all brokers have one, or none. `start` is the index of the first
    partition's leader, `shift` the distance of its first follower. The shift grows by one with each full round of
    leaders, so that the followers of one broker's partitions spread over all other brokers.

    Returns the replicas by partition, the preferred leader first.
    """
    assert 1 <= replication_factor <= len(racks)
    known_racks = {broker: rack for broker, rack in racks.items() if rack is not None}
    assert len(known_racks) in (0, len(racks))
    rack_aware = bool(known_racks)
    brokers = interleaved_by_rack(known_racks) if rack_aware else sorted(racks)
    assigned: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        leader = (partition + start) % len(brokers)
        if rack_aware:
            followers = _spread_over_racks(brokers, leader, shift, replication_factor - 1, known_racks)
        else:
            followers = [
                brokers[it] for it in islice(_follower_indexes(leader, shift, len(brokers)), replication_factor - 1)
            ]
        assigned[partition] = (brokers[leader], *followers)
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
    """Yield the other brokers' indexes round after round, from `shift` places after the leader's neighbour on."""
    for distance in count(shift):
        yield (leader + 1 + distance % (broker_count - 1)) % broker_count


def _spread_over_racks(
    brokers: Sequence[int], leader: int, shift: int, wanted: int, racks: Mapping[int, str]
) -> list[int]:
    """Choose `wanted` followers in different racks while a rack has no replica, then any other brokers.

    Each choice continues where the last one ended. So the followers after the first of each rack are not always the
    brokers that were skipped first.
    """
    chosen: list[int] = []
    taken = {racks[brokers[leader]]}
    rack_count = len(set(racks.values()))
    candidates = (brokers[it] for it in _follower_indexes(leader, shift * rack_count, len(brokers)))
    while len(chosen) < wanted:
        follower = next(candidates)
        if follower not in chosen and (racks[follower] not in taken or len(taken) == rack_count):
            chosen.append(follower)
            taken.add(racks[follower])
    return chosen
