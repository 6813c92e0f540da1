"""Settings of the connectors, and those of the clients that follow."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.connect.base.definitions import REQUIRED, Definition
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.mirror.checkpoint import MirrorCheckpointConnector
from spark_jobs.connect.mirror.connector_settings import SOURCE_DEFINITION, ConnectorSettings
from spark_jobs.connect.mirror.heartbeat import MirrorHeartbeatConnector
from spark_jobs.connect.mirror.source import MirrorSourceConnector
from tests.spark_jobs.connect.mirror.recorded import RECORDED

CONNECTORS = (MirrorSourceConnector, MirrorCheckpointConnector, MirrorHeartbeatConnector)
WITHOUT_MEANING = {"add.source.alias.to.metrics", "auto.include.jmx.reporter", "metric.reporters", "security.protocol"}
"""Metrics of Java, and a setting that is one of each cluster."""
BASE = {"source.cluster.alias": "A", "target.cluster.alias": "B", "source.cluster.bootstrap.servers": "a:1"}


def settings(**given: str) -> ConnectorSettings:
    return ConnectorSettings(SOURCE_DEFINITION, {**BASE, **{key.replace("_", "."): v for key, v in given.items()}})


@pytest.mark.parametrize("connector", CONNECTORS, ids=lambda connector: connector.__name__)
def test_names_types_and_defaults_are_those_of_kafka(connector: Any) -> None:
    definition: Definition = connector.definition
    own = {
        each.name: (each.kind.name, "REQUIRED" if each.default is REQUIRED else each.default, each.importance.name)
        for each in definition
    }
    recorded = {
        each["name"]: (each["type"], each["default"], each["importance"])
        for each in RECORDED["definitions"][connector.__name__]
        if each["name"] not in WITHOUT_MEANING
    }
    assert {name: own.get(name) for name in recorded} == recorded


def test_the_setting_of_a_client_of_one_cluster_wins() -> None:
    found = settings(
        source_cluster_security_protocol="PLAINTEXT",
        consumer_fetch_min_bytes="1",
        source_consumer_fetch_min_bytes="7",
        source_consumer_client_id="mine",
        target_consumer_fetch_min_bytes="9",
        source_cluster_group_id="not-a-client-setting",
    ).consumer("source", "reader")
    assert found["bootstrap.servers"] == "a:1"
    assert found["fetch.min.bytes"] == "7"
    assert found["client.id"] == "mine|A->B|mirror|reader"
    assert found["group.id"] == "A->B|mirror|reader"


def test_consumers_have_the_defaults_of_javas_clients_and_never_commit() -> None:
    found = settings(consumer_enable_auto_commit="true").consumer("source", "reader")
    assert (found["isolation.level"], found["auto.offset.reset"]) == ("read_uncommitted", "earliest")
    assert found["enable.auto.commit"] == "false"


def test_the_poll_timeout_is_no_setting_of_the_consumer(capsys: pytest.CaptureFixture[str]) -> None:
    settings(consumer_poll_timeout_ms="5").consumer("source", "reader")
    assert capsys.readouterr().err == ""


def test_a_cluster_without_an_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"has no target\.cluster\.bootstrap\.servers"):
        settings().producer("target", "writer")


@pytest.mark.parametrize("old", ["topics.blacklist", "config.properties.blacklist"])
def test_a_deprecated_name_counts_without_the_new_one(old: str, caplog: pytest.LogCaptureFixture) -> None:
    new = old.replace("blacklist", "exclude")
    assert ConnectorSettings(SOURCE_DEFINITION, {**BASE, old: "x, y"})[new] == ["x", "y"]
    assert f"{old} is deprecated; use {new}" in caplog.text
    assert ConnectorSettings(SOURCE_DEFINITION, {**BASE, old: "x", new: "z"})[new] == ["z"]


def test_the_topic_of_pairs_names_the_other_cluster() -> None:
    assert settings().offset_syncs_topic == "mm2-offset-syncs.B.internal"
    at_target = ConnectorSettings(SOURCE_DEFINITION, {**BASE, "offset-syncs.topic.location": "target"})
    assert at_target.offset_syncs_topic == "mm2-offset-syncs.A.internal"


def test_exactly_once_needs_a_consumer_that_reads_committed_records() -> None:
    connector = MirrorSourceConnector()
    required = {**BASE, "exactly.once.support": "required"}
    assert list(connector.validate(required)) == ["exactly.once.support"]
    committed = {**required, "source.consumer.isolation.level": "read_committed"}
    assert connector.exactly_once_support(committed)
    assert connector.validate(committed) == {}


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        ({"topic": "t", "partition": 0}, {"offset": 0}, "missing the 'cluster' key"),
        ({"cluster": "A", "topic": 1, "partition": 0}, {"offset": 0}, "invalid value 1 for the 'topic' key"),
        ({"cluster": "A", "topic": "t", "partition": -1}, {"offset": 0}, "invalid value -1 for the 'partition' key"),
        ({"cluster": "A", "topic": "t", "partition": 0}, {"offset": -1}, "invalid value -1 for the 'offset' key"),
    ],
)
def test_offsets_of_the_source_that_no_task_stores_are_refused(
    partition: dict[str, object], offset: dict[str, object], text: str
) -> None:
    connector = MirrorSourceConnector()
    with pytest.raises(ConnectError, match=text):
        connector.alter_offsets({}, [(partition, offset)])
    assert connector.alter_offsets({}, [(partition, None)])


def test_settings_of_pairs_that_are_not_written_are_refused() -> None:
    config = {**BASE, "emit.offset-syncs.enabled": "false", "offset-syncs.topic.location": "target"}
    (error,) = MirrorSourceConnector().validate(config)["emit.offset-syncs.enabled"]
    assert "offset-syncs.topic.location has no effect" in error
