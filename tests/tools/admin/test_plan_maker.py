"""Plans for emptying, balancing and adding: their aims hold, nothing moves without need, and racks are respected."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from base.topic_partition import TopicPartition
from controller.machine.assignment import assign_replicas
from tools.admin.plan_maker import (
    Cluster,
    balance,
    batches,
    copied_size,
    decommission,
    loads,
    raise_replication_factor,
)
from tools.admin.reassignment_plans import InvalidPlanError, Replicas

GB = 1 << 30


def random_cluster(rng: Random) -> Cluster:
    count = rng.randrange(3, 9)
    rack_count = rng.choice((0, 0, 2, 3, count))
    racks = {broker: f"r{broker % rack_count}" if rack_count else None for broker in range(1, count + 1)}
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in "abc"[: rng.randrange(1, 4)]:
        factor = rng.randrange(1, min(count, 4))
        if rng.random() < 0.5:
            placed = assign_replicas(racks, rng.randrange(1, 40), factor, start=rng.randrange(count), shift=0)
        else:  # as hands and dead brokers leave it
            some = sorted(rng.sample(sorted(racks), rng.randrange(factor, count + 1)))
            placed = {number: tuple(rng.sample(some, factor)) for number in range(rng.randrange(1, 40))}
        replicas |= {(topic, number): brokers for number, brokers in placed.items()}
    sizes = {partition: rng.choice((0, 1, 5, 50)) * GB for partition in replicas}
    return Cluster(racks, replicas, sizes)


def rack_count_of(cluster: Cluster, brokers: tuple[int, ...] | list[int]) -> int:
    return len({cluster.racks.get(broker) for broker in brokers})


def check(cluster: Cluster, changed: Replicas) -> None:
    """What holds for every plan."""
    for partition, replicas in changed.items():
        before = cluster.replicas[partition]
        assert replicas != list(before)
        assert len(set(replicas)) == len(replicas) >= len(before)
        assert set(replicas) <= cluster.racks.keys()
        if set(replicas) & set(before):
            assert replicas[0] in before, "the leader has the records"


@pytest.mark.parametrize("seed", range(60))
def test_brokers_are_emptied_with_the_least_movement(seed: int) -> None:
    rng = Random(seed)
    cluster = random_cluster(rng)
    leaving = {rng.choice(sorted(cluster.racks))}
    staying = cluster.racks.keys() - leaving
    if any(len(replicas) > len(staying) for replicas in cluster.replicas.values()):
        with pytest.raises(InvalidPlanError, match="brokers would stay"):
            decommission(cluster, leaving)
        return
    changed = decommission(cluster, leaving)
    check(cluster, changed)
    assert changed.keys() == {partition for partition, replicas in cluster.replicas.items() if leaving & set(replicas)}
    racks_left = len({cluster.racks[broker] for broker in staying})
    for partition, replicas in changed.items():
        before = cluster.replicas[partition]
        assert not leaving & set(replicas)
        assert set(before) - leaving <= set(replicas), "replicas that may stay do"
        kept = rack_count_of(cluster, [broker for broker in before if broker not in leaving])
        added = len(set(replicas) - set(before))
        assert rack_count_of(cluster, list(replicas)) >= min(racks_left, kept + added) or None in cluster.racks.values()
    assert all(loads(cluster, changed)[broker].replicas == 0 for broker in leaving)


@pytest.mark.parametrize("seed", range(60))
def test_balanced_clusters_are_level_and_stay_as_they_are(seed: int) -> None:
    cluster = random_cluster(Random(seed))
    changed = balance(cluster)
    check(cluster, changed)
    after = loads(cluster, changed)
    if None in cluster.racks.values():
        counts = [load.replicas for load in after.values()]
        assert max(counts) - min(counts) <= 1
    else:
        racks = len(set(cluster.racks.values()))
        for partition, before in cluster.replicas.items():
            replicas = changed.get(partition, before)
            assert rack_count_of(cluster, list(replicas)) == min(racks, len(replicas))
    before, moved = loads(cluster, {}), cluster._replace(replicas={**cluster.replicas, **changed})
    spread = max(load.replicas for load in after.values()) - min(load.replicas for load in after.values())
    assert spread <= max(load.replicas for load in before.values()) - min(load.replicas for load in before.values())
    assert len(balance(moved)) <= len(changed), "a second plan has less to do"
    assert copied_size(moved, balance(moved)) == 0 or copied_size(moved, balance(moved)) < copied_size(cluster, changed)


@pytest.mark.parametrize("seed", range(60))
def test_balanced_cluster_may_have_dead_brokers(seed: int) -> None:
    """Their replicas may stay, but they become no leaders, and no live replica leaves the records to them alone."""
    rng = Random(seed)
    whole = random_cluster(rng)
    dead = rng.sample(sorted(whole.racks), rng.randrange(1, len(whole.racks)))
    cluster = whole._replace(racks={broker: rack for broker, rack in whole.racks.items() if broker not in dead})
    for partition, replicas in balance(cluster).items():
        before = cluster.replicas[partition]
        assert len(set(replicas)) == len(replicas) == len(before)
        assert set(replicas) - set(before) <= cluster.racks.keys()
        if before[0] not in dead:
            assert replicas[0] not in dead


def test_bytes_and_leaders_are_balanced() -> None:
    sizes = {("a", number): (100 if number % 2 else 1) * GB for number in range(20)}
    cluster = Cluster(
        dict.fromkeys((1, 2, 3)),
        {("a", number): (1, 3) if number % 2 else (2, 3) for number in range(20)},
        sizes,
    )
    changed = balance(cluster)
    after = loads(cluster, changed)
    assert sorted(load.replicas for load in after.values()) == [13, 13, 14]
    average = sum(load.size for load in after.values()) / 3
    assert max(load.size for load in after.values()) <= 1.1 * average
    assert sorted(load.leaders for load in after.values()) == [6, 7, 7]
    assert copied_size(cluster, changed) < sum(sizes.values())


def test_a_balanced_cluster_needs_no_plan() -> None:
    placed = assign_replicas(dict.fromkeys(range(6)), 12, 3, start=0, shift=0)
    cluster = Cluster(dict.fromkeys(range(6)), {("a", number): it for number, it in placed.items()}, {})
    assert balance(cluster) == {}
    assert raise_replication_factor(cluster, 3) == {}
    assert decommission(cluster, ()) == {}


@pytest.mark.parametrize("seed", range(30))
def test_replicas_are_added_in_other_racks_and_evenly(seed: int) -> None:
    cluster = random_cluster(Random(seed))
    factor = min(3, len(cluster.racks))
    changed = raise_replication_factor(cluster, factor)
    check(cluster, changed)
    racks = len(set(cluster.racks.values()))
    for partition, before in cluster.replicas.items():
        replicas = changed.get(partition, before)
        assert list(replicas[: len(before)]) == list(before)
        assert len(replicas) == max(factor, len(before))
        if partition in changed:
            assert rack_count_of(cluster, list(replicas)) >= min(
                racks, rack_count_of(cluster, list(before)) + len(replicas) - len(before)
            )


def test_more_replicas_than_brokers_are_refused() -> None:
    cluster = Cluster({1: None, 2: None}, {("a", 0): (1,)}, {})
    with pytest.raises(InvalidPlanError, match="Replication factor: 3 larger than available brokers: 2"):
        raise_replication_factor(cluster, 3)


def test_batches_hold_every_partition_once_and_use_all_brokers() -> None:
    changed = {("a", number): [9, 1 + number % 4] for number in range(22)}
    parts = list(batches(changed, 8))
    assert [len(part) for part in parts] == [8, 8, 6]
    assert {partition: list(part[partition]) for part in parts for partition in part} == changed
    assert set(Counter(replicas[-1] for replicas in parts[0].values()).values()) == {2}
