"""All brokers die at the same moment: producers, members of groups and transactions go on with what they had."""

from __future__ import annotations

from tests.cluster.conftest import PARTITIONS, create_topic
from tests.cluster.copier import BATCH, Copier
from tests.cluster.load import GapLimit, NumberedLoad, assert_exactly_once, numbers_of, read_topic
from tests.cluster.test_groups import OFFSETS_TOPIC, GroupReader, committed_offsets
from tests.support.cluster import SESSION_TIMEOUT_S, Cluster

STARTS_S = 13.0
"""For the start of three brokers and the election of their leaders."""


def test_nothing_is_lost_when_all_brokers_are_killed(cluster: Cluster, topic: str, group: str) -> None:
    target = create_topic(cluster)
    with Copier(cluster.bootstrap, topic, target, f"{group}-copier", PARTITIONS) as copier:
        with (
            GapLimit(cluster, SESSION_TIMEOUT_S + STARTS_S) as limit,
            NumberedLoad(cluster.bootstrap, topic, PARTITIONS) as load,
        ):
            with GroupReader(cluster.bootstrap, group, topic) as reader:
                reader.wait_for(300)
            copier.run(2 * BATCH)
            with load.burst():
                cluster.kill(*cluster.brokers)
            cluster.start(*cluster.brokers)
            load.wait_for(100)
            cluster.heal(topic, target, OFFSETS_TOPIC)
        limit.check(load)
        records = read_topic(cluster.bootstrap, topic, PARTITIONS)
        assert_exactly_once(load, records)
        everything = numbers_of(records)

        found = committed_offsets(cluster, group, topic)
        assert all(found[partition] >= offset for partition, offset in reader.committed.items())
        with GroupReader(cluster.bootstrap, group, topic) as successor:
            successor.wait_for(len(everything) - sum(found.values()))
        assert sorted({*reader.numbers, *successor.numbers}) == everything

        copier.run(len(everything))
    copied = read_topic(cluster.bootstrap, target, PARTITIONS, isolation="read_committed")
    assert numbers_of(copied) == everything
