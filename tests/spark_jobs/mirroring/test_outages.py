"""Partitions without a leader are named, with the time since when they have none."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from spark_jobs.mirroring.outages import LeaderlessPartitions

NOW = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)


def metadata(leaders: dict[str, list[int]]) -> Any:
    topics = {
        topic: SimpleNamespace(
            partitions={number: SimpleNamespace(leader=leader) for number, leader in enumerate(each)}
        )
        for topic, each in leaders.items()
    }
    return SimpleNamespace(topics=topics)


def test_the_partition_that_has_no_leader_for_the_longest_time_is_named() -> None:
    found = LeaderlessPartitions()
    wanted = {("t", 0), ("t", 1), ("u", 0), ("absent", 0), ("t", 9)}
    assert found.report(metadata({"t": [1, 2], "u": [1]}), wanted, NOW) is None
    later, last = NOW + timedelta(seconds=10), NOW + timedelta(seconds=20)
    assert found.report(metadata({"t": [1, -1], "u": [1]}), wanted, later) == (
        "where t-1 has no leader since 2024-05-01 12:00:10 UTC"
    )
    assert found.report(metadata({"t": [-1, -1], "u": [1]}), wanted, last) == (
        "where t-1 has no leader since 2024-05-01 12:00:10 UTC (and 1 more without one)"
    )
    assert found.report(metadata({"t": [-1, 2], "u": [1]}), wanted, last) == (
        "where t-0 has no leader since 2024-05-01 12:00:20 UTC"
    )


def test_partitions_that_the_batch_is_not_written_to_may_have_no_leader() -> None:
    assert LeaderlessPartitions().report(metadata({"t": [1, -1]}), {("t", 0)}, NOW) is None
