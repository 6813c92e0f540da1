"""An event that is late in time corrects its window; one that is too late is only reported."""

import json
import random

import pytest

from spark_jobs.late_events import JOB
from spark_jobs.skeleton.event_time import iso
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values, rows
from tests.spark_jobs.plain_results import HOUR_MS, NOON_MS, PAGE_VIEWS, TOO_LATE, page_view, plain_hours

pytestmark = pytest.mark.spark


def test_two_hours_late_rewrites_its_window_and_four_hours_late_is_reported(
    topics: Topics, job_runner: JobRunner
) -> None:
    source, target, late = topics.create("events", 1), topics.create("counts", 1), topics.create("late", 1)
    flags = ["--input", source, "--output", target, "--late-topic", late]
    topics.send(source, rows(*PAGE_VIEWS[:2]))
    job_runner.run(JOB, *flags)
    topics.send(source, rows(*PAGE_VIEWS[2:]))
    batches = job_runner.run(JOB, *flags)
    assert sum(batch.late for batch in batches) == 1
    counts = {str(key): json.loads(str(value))["events"] for key, value in last_values(topics.read(target)).items()}
    assert (counts, 1) == plain_hours(PAGE_VIEWS)
    assert last_values(topics.read(late)) == {
        f"{source}/0/{TOO_LATE}": json.dumps(
            {"key": "DE", "time": iso(PAGE_VIEWS[TOO_LATE].time_ms), "newest": iso(NOON_MS + 4 * HOUR_MS)}
        )
    }


def test_a_key_that_is_no_text_is_unreadable(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("events", 1), topics.create("counts", 1)
    topics.send(source, [Sent(b"", b"\xff\xfe", timestamp_ms=NOON_MS), *rows(page_view("DE", 0))])
    flags = ["--input", source, "--output", target, "--late-topic", topics.create("late", 1), "--on-error", "skip"]
    assert sum(batch.malformed for batch in job_runner.run(JOB, *flags)) == 1
    assert list(last_values(topics.read(target))) == [f"DE|{iso(NOON_MS)}"]


def test_the_result_does_not_depend_on_the_batches(topics: Topics, job_runner: JobRunner) -> None:
    source = topics.create("events", 1)
    choose = random.Random(5)
    sent = [page_view(choose.choice("ab"), number / 20 - choose.choice((0, 0, 1, 2.5, 5))) for number in range(300)]
    topics.send(source, rows(*sent))
    expected, late_events = plain_hours(sent)
    assert late_events > 20
    target, late = topics.create("counts", 1), topics.create("late", 1)
    flags = ["--input", source, "--output", target, "--late-topic", late, "--max-offsets-per-trigger", "130"]
    batches = job_runner.run(JOB, *flags)
    assert len([batch for batch in batches if batch.records]) == 3
    found = {str(key): json.loads(str(value))["events"] for key, value in last_values(topics.read(target)).items()}
    assert found == expected
    assert len(last_values(topics.read(late))) == sum(batch.late for batch in batches) == late_events
