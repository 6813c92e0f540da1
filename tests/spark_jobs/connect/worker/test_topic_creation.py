"""Which topics a source's settings create, and how (KIP-158)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.herders.validation import validate
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from spark_jobs.connect.worker.topic_creation import TopicCreation, creation_settings
from tests.support.broker import BrokerProcess

DEFAULT = {"topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "-1"}
GROUPS = {
    **DEFAULT,
    "topic.creation.default.retention.ms": "7000",
    "topic.creation.groups": "tables, logs",
    "topic.creation.tables.include": "db\\..*, keyed-.*",
    "topic.creation.tables.exclude": ".*\\.temporary",
    "topic.creation.tables.cleanup.policy": "compact",
    "topic.creation.logs.include": ".*log.*",
    "topic.creation.logs.partitions": "3",
    "topic.creation.logs.replication.factor": "1",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("creation"), {"auto.create.topics.enable": "false"}) as process:
        yield process


def setting(broker: BrokerProcess, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return str(admin.describe_configs([resource])[resource].result()[name].value)


@pytest.mark.parametrize(
    ("topic", "partitions", "policy", "retention_ms"),
    [
        ("db.orders", 2, "compact", "604800000"),
        ("keyed-log", 2, "compact", "604800000"),  # the first group that matches
        ("db.log.temporary", 3, "delete", "604800000"),
        ("db.temporary", 2, "delete", "7000"),
        ("mydb.orders", 2, "delete", "7000"),  # the whole name has to match
    ],
)
def test_a_topic_is_created_by_the_first_group_that_matches_it(
    broker: BrokerProcess, topic: str, partitions: int, policy: str, retention_ms: str
) -> None:
    client = {"bootstrap.servers": broker.bootstrap}
    creation = TopicCreation(client, GROUPS)
    creation.prepare(topic)
    creation.prepare(topic)  # it exists already
    assert len(AdminClient(client).list_topics(topic).topics[topic].partitions) == partitions
    assert setting(broker, topic, "cleanup.policy") == policy
    assert setting(broker, topic, "retention.ms") == retention_ms


def test_without_settings_nothing_is_created(broker: BrokerProcess) -> None:
    client = {"bootstrap.servers": broker.bootstrap}
    TopicCreation(client, {"connector.class": "x"}).prepare("nothing")
    assert "nothing" not in AdminClient(client).list_topics(timeout=10).topics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topic.creation.default.partitions": None}, '"topic.creation.default.partitions" which has no default'),
        ({"topic.creation.default.replication.factor": "0"}, "expected a number above 0, or -1"),
        ({"topic.creation.tables.include": None}, '"topic.creation.tables.include" which has no default'),
        ({"topic.creation.logs.exclude": "a(,b"}, "Invalid regex"),
        ({"topic.creation.logs.partitions": "many"}, "Not a number of type INT"),
        ({"topic.creation.groups": "tables,logs,tables"}, "Duplicate alias provided."),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes: dict[str, str | None], message: str, tmp_path: Path) -> None:
    config = {"connector.class": "FileStreamSource", "name": "a", "topic": "t", **GROUPS, **changes}
    worker = WorkerSettings(
        {
            "bootstrap.servers": "localhost:9092",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(tmp_path / "offsets"),
        },
        is_distributed=False,
    )
    result = validate(config, worker, Plugins())
    texts = [text for each in result["configs"] for text in each["value"]["errors"]]
    assert len(texts) == 1, texts
    assert message in texts[0]
    given = {name: value for name, value in config.items() if value is not None}
    if "Duplicate" not in message:
        with pytest.raises(ConfigError):
            creation_settings(given).parse(given)
