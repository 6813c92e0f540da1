"""Views get the terms of searches of the same user within the span, its bounds included."""

import json

import pytest

from spark_jobs.click_search import JOB
from spark_jobs.samples import START_MS
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, record_ids

pytestmark = pytest.mark.spark


def view(user: str, page: str, ms: int) -> Sent:
    return Sent(json.dumps({"user": user, "page": page}).encode(), user.encode(), -1, START_MS + ms)


def search(user: str, terms: str, ms: int) -> Sent:
    return Sent(json.dumps({"user": user, "terms": terms}).encode(), user.encode(), -1, START_MS + ms)


def test_views_join_searches_inside_and_at_the_edge_and_others_stay_alone(
    topics: Topics, job_runner: JobRunner
) -> None:
    views, searches, target = topics.create("views", 2), topics.create("searches", 2), topics.create("joined", 1)
    flags = ["--input", views, "--searches", searches, "--output", target]
    sent = [
        view("u1", "inside", 10_000),
        view("u1", "edge", 10_500),
        view("u1", "outside", 12_000),
        view("u2", "other user", 10_000),
    ]
    topics.send(views, sent)
    topics.send(searches, [search("u1", "shoes", 9_500), search("u1", "boots", 10_200)])
    job_runner.run(JOB, *flags)

    def pairs() -> set[tuple[str, str | None]]:
        values = [json.loads(message.value()) for message in topics.read(target)]
        assert all(value["user"] in {"u1", "u2"} for value in values)
        return {(value["page"], value["terms"]) for value in values}

    matched = {("inside", "shoes"), ("inside", "boots"), ("edge", "shoes"), ("edge", "boots")}
    assert pairs() == matched
    topics.send(views, [view("u1", "much later", 60_000)])
    topics.send(searches, [search("u2", "much later", 60_000)])
    job_runner.run(JOB, *flags)
    assert pairs() == {*matched, ("outside", None), ("other user", None)}
    ids = record_ids(topics.read(target))
    assert len(set(ids)) == len(ids)
    partition_of = {message.key(): message.partition() for message in topics.read(views)}
    assert all(partition_of[message.key()] == message.partition() for message in topics.read(searches))
