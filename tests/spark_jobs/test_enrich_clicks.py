"""Clicks get the profile that their user has at the time of the click."""

import json
from dataclasses import replace

import pytest

from spark_jobs.enrich_clicks import JOB
from spark_jobs.samples import START_MS
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, record_ids

pytestmark = pytest.mark.spark


def click(user: str, page: str, second: int) -> Sent:
    return Sent(json.dumps({"page": page}).encode(), user.encode(), 0, START_MS + second * 1000)


def profile(user: str, city: str | None, second: int) -> Sent:
    value = None if city is None else json.dumps({"city": city}).encode()
    return Sent(value, user.encode(), 0, START_MS + second * 1000)


def test_updates_change_later_clicks_and_tombstones_remove_the_profile(topics: Topics, job_runner: JobRunner) -> None:
    """In three runs, and in a single one that leaves out clicks without a profile."""
    clicks, profiles, target = topics.create("clicks", 1), topics.create("profiles", 1), topics.create("enriched", 1)
    flags = ["--input", clicks, "--profiles", profiles]
    of_all = [*flags, "--output", target]
    topics.send(profiles, [profile("ann", "Paris", 0), profile("ann", "Rome", 20), profile("bob", "Oslo", 5)])
    topics.send(clicks, [click("ann", "/a", 10), click("bob", "/b", 1), click("eve", "/c", 2), click("ann", "/d", 20)])
    job_runner.run(JOB, *of_all)
    topics.send(clicks, [replace(click("ann", "/e", 30), headers=[("record-id", b"first/0/7")])])
    job_runner.run(JOB, *of_all)
    topics.send(profiles, [profile("ann", None, 40)])
    far_future_s = 500 * 366 * 86_400  # a time that pandas does not have
    topics.send(clicks, [click("ann", "/f", 50), click("bob", "/g", far_future_s)])
    inner = topics.create("inner", 1)
    own = ["--join", "inner", "--app-id", "inner", "--checkpoint", str(job_runner.folder / "inner")]
    queries = [*job_runner.start(JOB, *of_all), *job_runner.start(JOB, *flags, "--output", inner, *own)]
    job_runner.finish(queries)
    expected = {
        "/a": "Paris", "/b": None, "/c": None, "/d": "Rome", "/e": "Rome", "/f": None, "/g": "Oslo",
    }  # fmt: skip
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
    topics.send(clicks, [*unfit, replace(click("ann", "/a", 1), headers=[("record-id", b"\xff")])])
    topics.send(profiles, unfit)
    flags = ["--input", clicks, "--profiles", profiles, "--output", target, "--on-error", "skip"]
    assert sum(batch.malformed for batch in job_runner.run(JOB, *flags)) == 2 * len(unfit)
    found = topics.read(target)
    assert [json.loads(message.value())["page"] for message in found] == ["/a"]
    assert record_ids(found) == [f"{clicks}/0/{len(unfit)}"]
