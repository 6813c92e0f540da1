"""A record that was sent and not received is found in its bucket, once its deadline has passed."""

import json
import random
import time
from collections import Counter
from typing import Any

import pytest

from spark_jobs.audit import JOB
from spark_jobs.skeleton.progress import Batch
from tests.spark_jobs.conftest import JobRunner, Topics, last_values, objects

pytestmark = pytest.mark.spark

START_MS = 1_700_000_040_000 // 60_000 * 60_000


def test_the_verdict_names_the_bucket_with_the_missing_record(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("reports", 1), topics.create("verdicts", 1)
    choose = random.Random(7)
    reports = []
    sent = Counter[int]()
    for _ in range(200):
        second, count = choose.randrange(300), choose.randrange(1, 5)
        sent[second // 60] += count
        report = {"topic": "orders", "time": START_MS + second * 1000, "count": count}
        reports += [{"side": side, **report} for side in ("producer", "consumer")]
    lost = next(number for number, report in enumerate(reports) if report["side"] == "consumer")
    lost_bucket = (int(str(reports[lost]["time"])) - START_MS) // 60_000
    missing = int(str(reports.pop(lost)["count"]))
    choose.shuffle(reports)
    topics.send(source, objects(*reports))
    flags = ["--input", source, "--output", target, "--deadline", "5 minutes"]
    job_runner.run(JOB, *flags)
    assert topics.read(target) == []
    much_later = {"side": "producer", "topic": "other", "time": START_MS + 3_600_000, "count": 1}
    topics.send(source, objects(much_later))
    batches = job_runner.run(JOB, *flags)
    verdicts = [json.loads(str(value)) for value in last_values(topics.read(target)).values()]
    assert_completeness_and_delay(verdicts, batches)
    found = {verdict["bucket"]: (verdict["produced"], verdict["consumed"], verdict["missing"]) for verdict in verdicts}
    assert [found[bucket] for bucket in sorted(found)] == [
        (sent[minute], sent[minute] - lack, lack)
        for minute in range(5)
        for lack in [missing if minute == lost_bucket else 0]
    ]


def test_a_bucket_without_reports_of_one_side_has_no_share_or_no_delay(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("reports", 1), topics.create("verdicts", 1)
    sides = [{"side": side, "topic": f"only-{side}", "time": START_MS, "count": 3} for side in ("producer", "consumer")]
    nanoseconds = {**sides[0], "time": START_MS * 1_000_000}
    topics.send(source, objects(*sides, nanoseconds))
    flags = ["--input", source, "--output", target, "--deadline", "5 minutes", "--on-error", "skip"]
    job_runner.run(JOB, *flags)
    topics.send(source, objects({"side": "producer", "topic": "other", "time": START_MS + 3_600_000, "count": 1}))
    job_runner.run(JOB, *flags)
    verdicts = [json.loads(str(value)) for value in last_values(topics.read(target)).values()]
    found = {verdict["topic"]: verdict for verdict in verdicts}
    assert found["only-producer"]["completeness_percent"] == 0
    assert "delay_seconds" not in found["only-producer"]
    assert "completeness_percent" not in found["only-consumer"]
    assert found["only-consumer"]["delay_seconds"] > 0


def assert_completeness_and_delay(verdicts: list[dict[str, Any]], batches: list[Batch]) -> None:
    """The reports were written long after their buckets: the delay is the time from 2023 to now."""
    for verdict in verdicts:
        share = round(100 * verdict["consumed"] / verdict["produced"], 2)
        assert verdict["completeness_percent"] == share
        assert verdict["delay_seconds"] == pytest.approx(time.time() - (START_MS / 1000 + 300), abs=900)
    gauges = {name: value for batch in batches for name, value in batch.gauges.items()}
    assert gauges["audit_completeness_percent"] == min(verdict["completeness_percent"] for verdict in verdicts) < 100
    assert gauges["audit_delay_seconds"] == max(verdict["delay_seconds"] for verdict in verdicts)
    assert sum(batch.counters["audit_buckets"] for batch in batches) == 5
    assert sum(batch.counters["audit_incomplete_buckets"] for batch in batches) == 1
