"""How plans are printed: every broker before and after, the way back, batches, and a warning about large ones."""

from __future__ import annotations

import json

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
