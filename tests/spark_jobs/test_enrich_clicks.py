"""Clicks get the profile that their user has at the time of the click."""

import json
from dataclasses import replace

import pytest

from spark_jobs.enrich_clicks import JOB
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, record_ids, rows
from tests.spark_jobs.plain_results import CITIES, CLICKS, PROFILES, click

pytestmark = pytest.mark.spark


def test_updates_change_later_clicks_and_tombstones_remove_the_profile(topics: Topics, job_runner: JobRunner) -> None:
    """In three runs, and in a single one that leaves out clicks without a profile."""
    clicks, profiles, target = topics.create("clicks", 1), topics.create("profiles", 1), topics.create("enriched", 1)
    flags = ["--input", clicks, "--profiles", profiles]
    of_all = [*flags, "--output", target]
    topics.send(profiles, rows(*PROFILES[:3]))
    topics.send(clicks, rows(*CLICKS[:4], click("ann", "at the same time", 20)))
    job_runner.run(JOB, *of_all)
    topics.send(clicks, [replace(*rows(click("ann", "/e", 30)), headers=[("record-id", b"first/0/7")])])
    job_runner.run(JOB, *of_all)
    topics.send(profiles, rows(*PROFILES[3:]))
    far_future_s = 500 * 366 * 86_400  # a time that pandas does not have
    topics.send(clicks, rows(*CLICKS[4:], click("bob", "far future", far_future_s)))
    inner = topics.create("inner", 1)
    own = ["--join", "inner", "--app-id", "inner", "--checkpoint", str(job_runner.folder / "inner")]
    queries = [*job_runner.start(JOB, *of_all), *job_runner.start(JOB, *flags, "--output", inner, *own)]
    job_runner.finish(queries)
    expected = {**CITIES, "at the same time": "Rome", "/e": "Rome", "far future": "Oslo"}
    assert_enriched(topics, target, expected)
    assert_enriched(topics, inner, {page: city for page, city in expected.items() if city})


def assert_enriched(topics: Topics, target: str, expected: dict[str, str | None]) -> None:
    found = topics.read(target)
    values = [json.loads(message.value()) for message in found]
    assert {value["page"]: (value["profile"] or {}).get("city") for value in values} == expected
    assert len(set(record_ids(found))) == len(found) == len(expected)
    assert dict(zip((value["page"] for value in values), record_ids(found), strict=True))["/e"] == "first/0/7"


def test_values_that_only_spark_takes_for_objects_and_users_that_are_no_text_are_unreadable(
    topics: Topics, job_runner: JobRunner
) -> None:
    clicks, profiles, target = topics.create("clicks", 1), topics.create("profiles", 1), topics.create("enriched", 1)
    values = [
        b"{'a': 1}", b'{"a": "x\ty"}', b'{"a": 1} x', b'{"a": NaN}', b'{"a": 1e999}', b"[]", b'{"a": "\xff"}',
        b"{" + b'"a":{' * 5_000,
    ]  # fmt: skip
    unfit = [*(Sent(value, b"ann") for value in values), Sent(b"{}", b"\xff\xfe")]
    topics.send(clicks, [*unfit, replace(*rows(click("ann", "/a", 1)), headers=[("record-id", b"\xff")])])
    topics.send(profiles, unfit)
    flags = ["--input", clicks, "--profiles", profiles, "--output", target, "--on-error", "skip"]
    assert sum(batch.malformed for batch in job_runner.run(JOB, *flags)) == 2 * len(unfit)
    found = topics.read(target)
    assert [json.loads(message.value())["page"] for message in found] == ["/a"]
    assert record_ids(found) == [f"{clicks}/0/{len(unfit)}"]
