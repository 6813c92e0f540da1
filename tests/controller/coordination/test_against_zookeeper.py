"""The same random histories of several sessions on this server and on Apache ZooKeeper: all responses and all watch
events are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.controller.coordination.histories import History, Observer
from tests.support.coordination import RunningCoordination, coordination_in_memory
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import ZooKeeperProcess

SEEDS = 6
SOAK_SEEDS = 500
STEPS = 150


@pytest.fixture(scope="module")
def apache_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server of its own: sessions of other tests that expire would take zxids."""
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.port


@pytest.fixture(scope="module")
def ours() -> Iterator[RunningCoordination]:
    with coordination_in_memory() as running:
        yield running


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed < SEEDS else [pytest.mark.soak]) for seed in range(SOAK_SEEDS)]
)
def test_histories_look_the_same(seed: int, apache_port: int, ours: RunningCoordination) -> None:
    history = History(seed, STEPS)
    with closing(Observer(apache_port)) as theirs, closing(Observer(ours.port)) as own:
        for number, step in enumerate(history.steps()):
            expected = theirs.perform(step)
            assert own.perform(step) == expected, (seed, number, step)
