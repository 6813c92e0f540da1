"""How plans are printed: every broker before and after, the way back, batches, and a warning about large ones."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.messages.list_partition_reassignments import OngoingPartitionReassignment
from tools.admin import planned_moves, reassign_partitions
from tools.admin.plan_maker import Cluster, decommission
from tools.admin.planned_moves import in_units, plan_lines, warning_about
from tools.admin.reassignment_plans import parse_plan

GB = 10**9
CLUSTER = Cluster(
    {1: "a", 2: "b", 3: "a"},
    {("t", 0): [1, 2], ("t", 1): [2, 3], ("u", 0): [3, 2]},
    {("t", 0): 3 * GB, ("t", 1): 2 * GB, ("u", 0): 1_500},
)


def test_a_plan_shows_the_brokers_the_way_back_and_its_batches() -> None:
    changed = decommission(CLUSTER, [3])
    text = "\n".join(plan_lines(CLUSTER, changed, 1))
    assert text.splitlines()[:4] == [
        "broker  rack  replicas  leaders  size",
        "1       a     1 -> 3    1 -> 1   3.0 GB -> 5.0 GB",
        "2       b     3 -> 3    1 -> 2   5.0 GB -> 5.0 GB",
        "3       a     2 -> 0    1 -> 0   2.0 GB -> 0 B",
    ]
    plans = [line for line in text.splitlines() if line.startswith("{")]
    assert parse_plan(plans[0]).replicas == {("t", 1): [2, 3], ("u", 0): [3, 2]}
    assert [list(parse_plan(plan).replicas.values()) for plan in plans[1:]] == [[[2, 1]], [[2, 1]]]
    assert "batch 1 of 2: 1 partitions, 2.0 GB to copy" in text
    assert "batch 2 of 2: 1 partitions, 1.5 KB to copy" in text
    assert all(json.loads(plan)["version"] == 1 for plan in plans)


def test_nothing_to_do_is_said() -> None:
    assert list(plan_lines(CLUSTER, {}, 50)) == ["Nothing has to be moved."]


def test_large_plans_are_warned_about() -> None:
    many = {("t", number): [1] for number in range(51)}
    moved = {partition: [2] for partition in many}
    cluster = CLUSTER._replace(replicas=many)
    warning = warning_about(cluster, moved)
    assert warning is not None
    assert warning.startswith("Warning: this plan moves 51 partitions with 5.0 GB at once.")
    assert warning_about(cluster, dict(list(moved.items())[:50])) is None
    assert warning_about(cluster, many) is None
    large = cluster._replace(sizes={("t", 0): 51 * GB})
    assert "1 partitions with 51.0 GB" in (warning_about(large, {("t", 0): [2]}) or "")


def test_sizes_are_readable() -> None:
    sizes = (0, 999, 1_000, 99_949, 123_456, 10**9, 5 * 10**15)
    assert [in_units(size) for size in sizes] == ["0 B", "999 B", "1.0 KB", "99.9 KB", "123 KB", "1.0 GB", "5000 TB"]


def test_a_plan_made_during_a_move_starts_from_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata names the old replicas beside the new ones until then: a plan from these would keep all."""
    partition = SimpleNamespace(partition_index=0, replica_nodes=[2, 3, 1])
    metadata = SimpleNamespace(
        brokers=[SimpleNamespace(node_id=node_id, rack=None) for node_id in (1, 2, 3, 4)],
        topics=[SimpleNamespace(name="t", partitions=[partition])],
    )
    admin: Any = SimpleNamespace(metadata=lambda: metadata)
    moving = OngoingPartitionReassignment(
        partition_index=0, replicas=[2, 3, 1], adding_replicas=[3], removing_replicas=[1]
    )
    monkeypatch.setattr(reassign_partitions, "_ongoing", lambda _: {("t", 0): moving})
    monkeypatch.setattr(planned_moves, "sizes_of", lambda *_: {})
    made: list[Any] = []

    def make(cluster: Cluster) -> Any:
        made.append(decommission(cluster, [3]))
        return {}

    options = argparse.Namespace(batch_size=1, disable_rack_aware=False)
    reassign_partitions._print_plan(admin, options, make)
    ((_, replicas),) = made[0].items()
    assert len(replicas) == 2
    assert 2 in replicas
    assert 3 not in replicas


def test_throttles_stay_until_the_last_plan_is_carried_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are those of brokers, and a plan that was started with --additional needs them as well."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3]}]}))
    moving = OngoingPartitionReassignment(partition_index=0, replicas=[1, 4], adding_replicas=[4], removing_replicas=[])
    ongoing = {("other", 0): moving}
    cleared: list[object] = []
    monkeypatch.setattr(reassign_partitions, "_ongoing", lambda _: ongoing)
    monkeypatch.setattr(reassign_partitions, "_known_replicas", lambda *_: {("t", 0): [2, 3]})
    monkeypatch.setattr(reassign_partitions, "_clear_throttles", lambda _, replicas: cleared.append(replicas))
    options = argparse.Namespace(reassignment_json_file=str(plan), zookeeper=None, preserve_throttles=False)
    admin: Any = None
    reassign_partitions._verify(admin, options)
    assert cleared == []
    ongoing.clear()
    reassign_partitions._verify(admin, options)
    assert len(cleared) == 1
    assert capsys.readouterr().out.count("Reassignment of partition t-0 is completed.") == 2
