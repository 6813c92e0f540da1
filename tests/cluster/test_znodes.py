"""The nodes of ZooKeeper after each step of a cluster's life are Apache Kafka's, but for ids, times and ports."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

from tests.cluster.conftest import IS_KAFKA
from tests.cluster.znodes import STEPS, recorded, steps
from tests.support.cluster import kafka_broker, milena_broker
from tests.support.parts import skip_when_unavailable


def test_nodes_are_kafkas_after_each_step(tmp_path: Path) -> None:
    expected = recorded()
    assert list(expected) == list(STEPS)
    differences: list[str] = []
    with skip_when_unavailable():
        for name, lines in steps(tmp_path, kafka_broker if IS_KAFKA else milena_broker):
            found = unified_diff(expected[name], lines, f"Kafka: {name}", "these brokers", n=0, lineterm="")
            differences += found
    assert not differences, "\n".join(differences)
