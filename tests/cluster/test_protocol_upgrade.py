"""The protocol between brokers is changed broker by broker, while all kinds of clients work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import IS_KAFKA, PARTITIONS, create_topic
from tests.cluster.copier import BATCH, Copier
from tests.cluster.load import GapLimit, NumberedLoad, assert_exactly_once, numbers_of, read_topic
from tests.cluster.test_failures import MARGIN_S
from tests.cluster.test_groups import GroupReader, committed_offsets
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster

PROTOCOL = "inter.broker.protocol.version"
OLD, NEW = "2.6", "3.9"


@pytest.fixture
def cluster(cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, whose brokers have the newest protocol again in the end."""
    yield cluster
    for broker in cluster.brokers.values():
        assert isinstance(broker, BrokerProcess)
        if broker.overrides.pop(PROTOCOL, NEW) != NEW and broker.is_running:
            broker.stop()  # the next test starts it


def roll(cluster: Cluster, protocol: str, *topics: str) -> Iterator[int]:
    """Restart one broker after the other with another protocol; yield after each, when all replicas are in sync."""
    for broker_id, broker in cluster.brokers.items():
        assert isinstance(broker, BrokerProcess)
        broker.overrides[PROTOCOL] = protocol
        cluster.restart(broker_id)
        cluster.wait_until_in_sync(*topics)
        yield broker_id


@pytest.mark.soak  # tests/broker/cluster/test_older_protocols.py raises it in brokers of one process
@pytest.mark.skipif(IS_KAFKA, reason="it shows brokers of this project")
@pytest.mark.parametrize("old", [OLD, "1.1", "2.8"])
def test_nothing_is_lost_or_repeated_while_the_protocol_changes(
    cluster: Cluster, topic: str, group: str, old: str
) -> None:
    """Two rounds, in which each broker restarts once: into the old protocol, and from there into the new one."""
    target, readers = create_topic(cluster), f"{group}-readers"
    with (
        GroupReader(cluster.bootstrap, readers, topic) as reader,
        Copier(cluster.bootstrap, topic, target, group, PARTITIONS) as copier,
    ):
        with (
            GapLimit(cluster, MARGIN_S) as limit,
            NumberedLoad(cluster.bootstrap, topic, PARTITIONS, rate=100) as load,
        ):
            load.wait_for(2 * BATCH)
            for protocol in (old, NEW):
                for _ in roll(cluster, protocol, topic, target):
                    load.wait_for(BATCH)
                    copier.run(copier.copied + BATCH)
        total = len(load.acknowledged)
        copier.run(total)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, PARTITIONS))
    limit.check(load)
    copied = read_topic(cluster.bootstrap, target, PARTITIONS, isolation="read_committed")
    assert numbers_of(copied) == list(range(total))
    assert reader.went_back == []
    assert sum(committed_offsets(cluster, readers, topic).values()) > 0
