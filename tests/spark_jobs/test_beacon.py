"""A host's new address raises one alarm after the time of learning."""

import json

import pytest

from spark_jobs.beacon import JOB
from spark_jobs.samples import START_MS
from spark_jobs.skeleton.event_time import iso
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, records

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000


def contact(host: str, address: str, hour: float) -> Sent:
    value = json.dumps({"host": host, "address": address}).encode()
    return Sent(value, timestamp_ms=START_MS + round(hour * HOUR_MS))


def test_a_new_address_alarms_once_and_a_forgotten_one_again(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("contacts", 1), topics.create("alarms", 1)
    flags = ["--input", source, "--output", target, "--learn", "24 hours", "--forget", "3 days"]
    days = [
        [contact("web", "dns", 0), contact("web", "db", 5), contact("db", "dns", 20)],
        [contact("web", "dns", 25), contact("web", "evil", 26), contact("web", "evil", 27), contact("db", "evil", 40)],
        [contact("web", "evil", 60), contact("web", "db", 90)],
    ]
    for day in days:
        topics.send(source, day)
        job_runner.run(JOB, *flags)
    expected = [("web", "evil", 26), ("web", "db", 90)]
    assert records(topics.read(target)) == [
        (f"{host}|{address}", json.dumps({"host": host, "address": address, "time": iso(START_MS + hour * HOUR_MS)}))
        for host, address, hour in expected
    ]


def test_a_host_without_events_leaves_the_state(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("contacts", 1), topics.create("alarms", 1)
    topics.send(source, [contact("gone", "dns", 0), contact("other", "dns", 50)])
    flags = ["--input", source, "--output", target, "--forget", "1 hour", "--max-offsets-per-trigger", "1"]
    rows = [batch.state_rows for batch in job_runner.run(JOB, *flags)]
    assert rows[-1] < max(rows), rows


def test_a_forgotten_address_of_an_active_host_leaves_the_state(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("contacts", 1), topics.create("alarms", 1)
    topics.send(source, [contact("web", address, hour) for address, hour in (("old", 0), ("new", 50), ("new", 51))])
    flags = ["--input", source, "--output", target, "--forget", "2 hours", "--max-offsets-per-trigger", "1"]
    rows = [batch.state_rows for batch in job_runner.run(JOB, *flags)]
    assert rows[2] < rows[1], rows
