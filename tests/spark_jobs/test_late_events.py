"""An event that is late in time corrects its window; one that is too late is only reported."""

import json
import random
from collections import Counter

import pytest

from spark_jobs.late_events import JOB
from spark_jobs.samples import START_MS
from spark_jobs.skeleton.event_time import iso
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
NOON_MS = START_MS // HOUR_MS * HOUR_MS


def event(hours: float, key: bytes = b"k") -> Sent:
    return Sent(b"", key, timestamp_ms=NOON_MS + round(hours * HOUR_MS))


def test_two_hours_late_rewrites_its_window_and_four_hours_late_is_reported(
    topics: Topics, job_runner: JobRunner
) -> None:
    source, target, late = topics.create("events", 1), topics.create("counts", 1), topics.create("late", 1)
    flags = ["--input", source, "--output", target, "--late-topic", late]
    topics.send(source, [event(0), event(4)])
    job_runner.run(JOB, *flags)
    topics.send(source, [event(2), event(-0.5), event(1), event(0, b"other")])
    batches = job_runner.run(JOB, *flags)
    assert sum(batch.late for batch in batches) == 1
    counts = {str(key): json.loads(str(value))["events"] for key, value in last_values(topics.read(target)).items()}
    expected = {("k", 0): 1, ("k", 1): 1, ("k", 2): 1, ("k", 4): 1, ("other", 0): 1}
    assert counts == {f"{key}|{iso(NOON_MS + hour * HOUR_MS)}": events for (key, hour), events in expected.items()}
    assert last_values(topics.read(late)) == {
        f"{source}/0/3": json.dumps(
            {"key": "k", "time": iso(NOON_MS - HOUR_MS // 2), "newest": iso(NOON_MS + 4 * HOUR_MS)}
        )
    }


def test_a_key_that_is_no_text_is_unreadable(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("events", 1), topics.create("counts", 1)
    topics.send(source, [event(0, b"\xff\xfe"), event(0)])
    flags = ["--input", source, "--output", target, "--late-topic", topics.create("late", 1), "--on-error", "skip"]
    assert sum(batch.malformed for batch in job_runner.run(JOB, *flags)) == 1
    assert list(last_values(topics.read(target))) == [f"k|{iso(NOON_MS)}"]


def test_the_result_does_not_depend_on_the_batches(topics: Topics, job_runner: JobRunner) -> None:
    source = topics.create("events", 1)
    choose = random.Random(5)
    sent = [event(number / 20 - choose.choice((0, 0, 1, 2.5, 5)), choose.choice((b"a", b"b"))) for number in range(300)]
    topics.send(source, sent)
    expected, newest, late_events = Counter[str](), dict[bytes, int](), 0
    for each in sent:
        key = each.key or b""
        if each.timestamp_ms < newest.get(key, 0) - 3 * HOUR_MS:
            late_events += 1
            continue
        newest[key] = max(newest.get(key, 0), each.timestamp_ms)
        expected[f"{key.decode()}|{iso(each.timestamp_ms // HOUR_MS * HOUR_MS)}"] += 1
    assert late_events > 20
    target, late = topics.create("counts", 1), topics.create("late", 1)
    flags = ["--input", source, "--output", target, "--late-topic", late, "--max-offsets-per-trigger", "130"]
    batches = job_runner.run(JOB, *flags)
    assert len([batch for batch in batches if batch.records]) == 3
    found = {str(key): json.loads(str(value))["events"] for key, value in last_values(topics.read(target)).items()}
    assert found == expected
    assert len(last_values(topics.read(late))) == sum(batch.late for batch in batches) == late_events
