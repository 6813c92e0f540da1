"""Views get the terms of searches of the same user within the span, its bounds included."""

import json
from dataclasses import replace

import pytest

from spark_jobs.click_search import JOB
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, record_ids, rows
from tests.spark_jobs.plain_results import ALONE, LATER_SEARCHES, LATER_VIEWS, MATCHES, SEARCHES, VIEWS, Row

pytestmark = pytest.mark.spark


def keyed(*records: Row) -> list[Sent]:
    """Return records whose keys decide the partitions."""
    return [replace(record, partition=-1) for record in rows(*records)]


def test_views_join_searches_inside_and_at_the_edge_and_others_stay_alone(
    topics: Topics, job_runner: JobRunner
) -> None:
    views, searches, target = topics.create("views", 2), topics.create("searches", 2), topics.create("joined", 1)
    flags = ["--input", views, "--searches", searches, "--output", target]
    topics.send(views, keyed(*VIEWS))
    topics.send(searches, keyed(*SEARCHES))
    job_runner.run(JOB, *flags)

    def pairs() -> set[tuple[str, str | None]]:
        values = [json.loads(message.value()) for message in topics.read(target)]
        assert all(value["user"] in {"u1", "u2"} for value in values)
        return {(value["page"], value["terms"]) for value in values}

    assert pairs() == MATCHES
    topics.send(views, keyed(LATER_VIEWS[0]))
    topics.send(searches, keyed(LATER_SEARCHES[1]))
    job_runner.run(JOB, *flags)
    assert pairs() == MATCHES | ALONE
    ids = record_ids(topics.read(target))
    assert len(set(ids)) == len(ids)
    partition_of = {message.key(): message.partition() for message in topics.read(views)}
    assert all(partition_of[message.key()] == message.partition() for message in topics.read(searches))
