"""Sliding windows over generated trades equal a plain computation, late trades included."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from spark_jobs.samples import START_MS, trades
from spark_jobs.skeleton.event_time import iso
from spark_jobs.stock_stats import JOB
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values
from tests.spark_jobs.plain_results import Figures, plain_statistics

pytestmark = pytest.mark.spark

TOLERANCE = 1e-9


def sent(rows: Iterable[Mapping[str, Any]]) -> list[Sent]:
    return [Sent(json.dumps(row).encode(), timestamp_ms=row["time"]) for row in rows]


def figures(values: Mapping[str | None, str | None]) -> dict[str, Figures]:
    found = {str(key): json.loads(str(value)) for key, value in values.items()}
    return {key: (row["min_price"], row["trades"], row["average_price"]) for key, row in found.items()}


def assert_equals_plain_statistics(values: Mapping[str | None, str | None], rows: Sequence[Mapping[str, Any]]) -> None:
    """The last values of the job's keys equal the figures of the trades; each ask counts in five windows."""
    found, expected = figures(values), plain_statistics(rows)
    assert found.keys() == expected.keys()
    assert sum(count for _, count, _ in found.values()) == 5 * sum(row["type"] == "ASK" for row in rows)
    for key, (low, count, average) in expected.items():
        assert (low, count) == found[key][:2]
        assert abs(found[key][2] - average) <= TOLERANCE


def test_each_ask_counts_in_five_windows_also_across_a_restart(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("trades", 1), topics.create("stats", 1)
    rows = list(trades(600, seed=3))
    flags = ["--input", source, "--output", target, "--time-field", "time"]
    for part in (rows[:300], rows[300:]):
        topics.send(source, sent(part))
        job_runner.run(JOB, *flags)
    assert_equals_plain_statistics(last_values(topics.read(target)), rows)


def test_a_trade_within_the_watermark_updates_its_window_and_a_later_one_is_counted_as_late(
    topics: Topics, job_runner: JobRunner
) -> None:
    source, target = topics.create("trades", 1), topics.create("stats", 1)
    trade = {"type": "ASK", "ticker": "IBM", "price": 5.0, "size": 1}
    flags = ["--input", source, "--output", target, "--window", "1 second", "--max-offsets-per-trigger", "1"]
    times = (0, 60_000, 60_000, 55_000, 1_000)
    topics.send(source, sent({**trade, "time": START_MS + offset_ms} for offset_ms in times))
    batches = job_runner.run(JOB, *flags)
    assert sum(batch.late for batch in batches) == 1
    counts = {key: count for key, (_, count, _) in figures(last_values(topics.read(target))).items()}
    assert counts == {f"IBM|{iso(START_MS + ms)}": count for ms, count in ((0, 1), (60_000, 2), (55_000, 1))}
