"""Articles pass three stages; each can run and restart alone."""

import json
from typing import Any

import pytest

from spark_jobs.stages import JOB
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, objects, records

pytestmark = pytest.mark.spark

ARTICLES = [
    {"title": "<h1>Logs</h1>", "text": "Apache <b>Kafka</b>\n stores   records"},
    {"title": "Cooking", "text": "Nothing about kafkaesque streams"},
    {"title": "Engines", "text": "Spark reads <i>Kafka</i>"},
]
CLEANED = [
    {"title": "Logs", "text": "Apache Kafka stores records"},
    {"title": "Cooking", "text": "Nothing about kafkaesque streams"},
    {"title": "Engines", "text": "Spark reads Kafka"},
]
PUBLISHED = [{"title": "Logs", "keywords": ["kafka"]}, {"title": "Engines", "keywords": ["kafka", "spark"]}]


def values(topics: Topics, topic: str) -> list[Any]:
    return [json.loads(str(value)) for _, value in records(topics.read(topic))]


def test_each_stage_continues_where_it_stopped(topics: Topics, job_runner: JobRunner) -> None:
    raw, cleaned, matched, published = (topics.create(stem, 1) for stem in ("raw", "cleaned", "matched", "published"))
    flags = ["--input", raw, "--cleaned", cleaned, "--matched", matched, "--output", published]
    topics.send(raw, objects(ARTICLES[0]))
    for stage in ("clean", "match", "publish"):
        job_runner.run(JOB, *flags, "--stage", stage)
    topics.send(raw, objects(*ARTICLES[1:]))
    for stage in ("clean", "match", "publish"):
        job_runner.run(JOB, *flags, "--stage", stage)
        job_runner.run(JOB, *flags, "--stage", stage)
    assert values(topics, cleaned) == CLEANED
    assert [article["keywords"] for article in values(topics, matched)] == [["kafka"], [], ["kafka", "spark"]]
    assert values(topics, published) == PUBLISHED
    assert topics.read(published)[1].headers() == [("record-id", f"{raw}/0/2".encode())]


def test_one_process_starts_a_query_for_each_stage(topics: Topics, job_runner: JobRunner) -> None:
    names = [topics.create(stem, 1) for stem in ("raw", "cleaned", "matched", "published")]
    flags = [
        part for pair in zip(("--input", "--cleaned", "--matched", "--output"), names, strict=True) for part in pair
    ]
    topics.send(names[0], objects(*ARTICLES))
    batches = job_runner.run(JOB, *flags)
    assert {batch.query for batch in batches} == {"stages-clean", "stages-match", "stages-publish"}


def test_an_unreadable_record_between_two_stages_becomes_a_dead_letter(topics: Topics, job_runner: JobRunner) -> None:
    cleaned, matched, dead = (topics.create(stem, 1) for stem in ("cleaned", "matched", "dead"))
    topics.send(cleaned, [Sent(b"{", b"k"), *objects(CLEANED[0])])
    flags = ["--cleaned", cleaned, "--matched", matched, "--stage", "match", "--dead-letter", dead]
    job_runner.run(JOB, *flags)
    assert [article["keywords"] for article in values(topics, matched)] == [["kafka"]]
    assert records(topics.read(dead)) == [("k", "{")]
