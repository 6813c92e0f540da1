"""Milena and Apache Kafka in one cluster: each side in every role, with the other side in the roles beside it.

`docs/cluster.md` has the table of the pairings, whose cells are the tests of this file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.cluster.load import NumberedLoad, assert_exactly_once, read_topic
from tests.interop.mixed import KAFKA, MILENA, MixedCluster
from tests.support.apache_kafka import jars
from tests.support.coordination import coordination_in_memory
from tests.support.parts import skip_when_unavailable

SIDES = (MILENA, KAFKA)
OTHER = {MILENA: KAFKA, KAFKA: MILENA}
LEADING = {MILENA: 1, KAFKA: 3}
"""The broker of each side that leads, coordinates or is moved to. Milena's second one is the controller meanwhile."""
CONTROLLING = {MILENA: 2, KAFKA: 3}

_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with skip_when_unavailable():
        jars()
        with (
            coordination_in_memory() as coordination,
            MixedCluster(tmp_path_factory.mktemp("mixed"), coordination) as running,
        ):
            yield running


@pytest.fixture
def cluster(shared_cluster: MixedCluster) -> MixedCluster:
    shared_cluster.heal()
    return shared_cluster


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist."""
    return f"numbers-{next(_numbers)}"


@pytest.mark.parametrize("controller", SIDES)
@pytest.mark.parametrize("leader", SIDES)
def test_leader_changes_its_isr(cluster: MixedCluster, topic: str, leader: str, controller: str) -> None:
    """The follower is of the other side, or where that one is the controller too, a second one."""
    leading = LEADING[leader]
    cluster.make_controller(CONTROLLING[controller])
    following = next(it for it in (3, 1, 2) if it not in (leading, CONTROLLING[controller]))
    cluster.create(topic, [leading, following], min_insync_replicas="1")
    before = cluster.state(topic, 0)
    with NumberedLoad(cluster.bootstrap, topic, 1) as load:
        with cluster.halted(following):
            cluster.wait_until(lambda: cluster.partitions(topic)[0][2] == [leading], "the ISR has shrunk")
            shrunk = cluster.state(topic, 0)
            load.wait_for(20)
        cluster.wait_until_in_sync(topic)
    assert shrunk == {**before, "isr": [leading]}
    assert cluster.state(topic, 0) == before
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, 1))
    cluster.wait_until_replicas_are_equal(topic)
