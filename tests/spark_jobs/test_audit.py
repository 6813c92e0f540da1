"""A record that was sent and not received is found in its bucket, once its deadline has passed."""

import json
import random
from collections import Counter

import pytest

from spark_jobs.audit import JOB
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
    job_runner.run(JOB, *flags)
    verdicts = [json.loads(str(value)) for value in last_values(topics.read(target)).values()]
    found = {verdict["bucket"]: (verdict["produced"], verdict["consumed"], verdict["missing"]) for verdict in verdicts}
    assert [found[bucket] for bucket in sorted(found)] == [
        (sent[minute], sent[minute] - lack, lack)
        for minute in range(5)
        for lack in [missing if minute == lost_bucket else 0]
    ]
