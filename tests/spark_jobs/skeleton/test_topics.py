"""Missing topics are created with the given settings or awaited; existing topics stay unchanged."""

import logging
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from spark_jobs import flights_produce
from spark_jobs.skeleton.topics import TopicSpec, auto_create_topics, create_topics, wait_for_topics
from tests.spark_jobs.conftest import Topics
from tests.support.processes import closed_port


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def partitions(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(timeout=30).topics[topic].partitions)


def test_a_missing_topic_is_created_as_specified(admin: AdminClient, topics: Topics) -> None:
    spec = TopicSpec(topics.new_name("made"), 3, 1, {"cleanup.policy": "compact"})
    create_topics(topics.client, [spec])
    resource = ConfigResource(ResourceType.TOPIC, spec.name)
    assert partitions(admin, spec.name) == 3
    assert admin.describe_configs([resource])[resource].result()["cleanup.policy"].value == "compact"


def test_an_existing_topic_stays_unchanged(admin: AdminClient, topics: Topics) -> None:
    present, missing = topics.create("present", 1), topics.new_name("missing")
    create_topics(topics.client, [TopicSpec(present, 5, 1), TopicSpec(missing, 2, 1)])
    assert (partitions(admin, present), partitions(admin, missing)) == (1, 2)


def test_a_topic_that_another_job_has_just_made_stays_unchanged(
    admin: AdminClient, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    present, missing = topics.create("present", 1), topics.new_name("missing")
    monkeypatch.setattr("spark_jobs.skeleton.topics._missing", lambda *_: {present, missing})
    create_topics(topics.client, [TopicSpec(present, 5, 1), TopicSpec(missing, 2, 1)])
    assert (partitions(admin, present), partitions(admin, missing)) == (1, 2)


def test_missing_topic_is_awaited_and_reported(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spec = TopicSpec(topics.new_name("awaited"), 1, 1)
    # Does not patch time.sleep for the whole process: py4j's threads call it too, and would create the topic early.
    clock = SimpleNamespace(sleep=lambda _seconds: create_topics(topics.client, [spec]))
    monkeypatch.setattr("spark_jobs.skeleton.topics.time", clock)
    with caplog.at_level(logging.WARNING):
        wait_for_topics(topics.client, [spec])
    assert f"waiting for missing topics: {spec.name}" in caplog.text


def test_the_broker_makes_a_missing_topic_as_it_makes_all(admin: AdminClient, topics: Topics) -> None:
    present, missing = topics.create("present", 2), topics.new_name("missing")
    auto_create_topics(topics.client, [TopicSpec(present, 5, 1), TopicSpec(missing, 7, 1)])
    assert (partitions(admin, present), partitions(admin, missing)) == (2, 1)


def test_without_a_broker_a_program_exits_with_2_and_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark_jobs.skeleton.topics._REQUEST_TIMEOUT_S", 0.5)
    with closed_port() as port:
        assert flights_produce.main(["--bootstrap-servers", f"127.0.0.1:{port}"]) == 2
    assert "no broker responded" in capsys.readouterr().err
