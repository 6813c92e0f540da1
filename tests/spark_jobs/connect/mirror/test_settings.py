"""The file of a dedicated MirrorMaker: what follows from it, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from base import properties
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.mirror.settings import Flow, MirrorMakerSettings
from tests.spark_jobs.connect.mirror.recorded import RECORDED

MINIMAL = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A->B.enabled": "true",
    "emit.heartbeats.enabled": "false",
}
ALSO_FOR_ALL_FLOWS = "use.defaults.from"
"""Kafka ignores it without a flow before it."""


@pytest.mark.parametrize("row", RECORDED["files"], ids=("three clusters", "two clusters"))
def test_workers_and_connectors_get_the_settings_that_kafka_gives_them(row: Any) -> None:
    settings = MirrorMakerSettings(properties.parse(row["properties"]))
    assert sorted(settings.flows) == sorted(Flow(each["source"], each["target"]) for each in row["flows"])
    for each in row["flows"]:
        flow = Flow(each["source"], each["target"])
        assert settings.worker(flow) == each["worker"]
        connectors = settings.connectors(flow)
        for config in connectors.values():
            config.pop(ALSO_FOR_ALL_FLOWS, None)
        assert connectors == each["connectors"]


def test_a_file_is_read_as_properties(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text("# two clusters\n" + "".join(f"{key} = {value}\n" for key, value in MINIMAL.items()))
    settings = MirrorMakerSettings.from_file(path)
    assert list(map(str, settings.flows)) == ["A->B"]
    assert settings.clusters == ["A", "B"]
    assert not settings.enables_internal_rest
    with pytest.raises(ConfigError, match="none cannot be read: No such file or directory"):
        MirrorMakerSettings.from_file(tmp_path / "none")


def test_defaults_of_all_flows_reach_the_connectors() -> None:
    settings = MirrorMakerSettings({**MINIMAL, "use.defaults.from": "source", "topics.blacklist": "x"})
    config = settings.connectors(Flow("A", "B"))["MirrorSourceConnector"]
    assert (config["use.defaults.from"], config["topics.blacklist"]) == ("source", "x")


def test_the_internal_rest_interface_has_its_own_settings() -> None:
    given = {"dedicated.mode.enable.internal.rest": "true", "listeners": "http://127.0.0.1:0"}
    settings = MirrorMakerSettings({**MINIMAL, **given})
    assert settings.enables_internal_rest
    assert settings.rest() == {"listeners": "http://127.0.0.1:0"}


def test_flows_are_chosen_by_their_targets() -> None:
    settings = MirrorMakerSettings({**MINIMAL, "B->A.emit.heartbeats.enabled": "true"})
    assert settings.flows_to([]) == [Flow("A", "B"), Flow("B", "A")]
    assert settings.flows_to(["B"]) == [Flow("A", "B")]
    with pytest.raises(ConfigError, match="C is not one of clusters: A, B"):
        settings.flows_to(["C"])
    with pytest.raises(ConfigError, match=r"there is no flow to A: set SOURCE->TARGET\.enabled"):
        MirrorMakerSettings(MINIMAL).flows_to(["A"])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"clusters": None}, 'Missing required configuration "clusters"'),
        ({"clusters": ""}, "configuration clusters: String must be non-empty"),
        ({"A.bootstrap.servers": None}, r"Missing required configuration A\.bootstrap\.servers"),
        ({"C->B.enabled": "true"}, r"C->B\.enabled is not of a flow between two of clusters"),
        ({"A->C.enabled": "true"}, r"A->C\.enabled is not of a flow"),
        ({"A->A.enabled": "true"}, r"A->A\.enabled is not of a flow"),
        ({"dedicated.mode.enable.internal.rest": "perhaps"}, "dedicated.mode.enable.internal.rest"),
        ({"tasks.max": "3", "A->B.offset.lag.max": "many"}, "A->B, MirrorSourceConnector: .*many.*offset.lag.max"),
        ({"topics": "orders, (bills"}, r"\(bills for configuration topics: Not a regular expression"),
        ({"A->B.groups": "*"}, r"A->B, MirrorCheckpointConnector: .*configuration groups"),
        ({"emit.heartbeats.interval.seconds": "-1"}, "emit.heartbeats.interval.seconds: Value must be at least 0"),
        ({"offset-syncs.topic.location": "middle"}, "offset-syncs.topic.location: String must be one of"),
        ({"A->B.enabled": "yes"}, r"yes for configuration A->B\.enabled: Expected value to be either true or false"),
        ({"replication.policy.class": "Mine"}, "Unknown replication.policy.class Mine"),
        ({"use.incremental.alter.configs": "never"}, "use.incremental.alter.configs: String must be one of"),
        ({"topic.filter.class": "com.example.Mine"}, "com.example.Mine for configuration topic.filter.class"),
    ],
)
def test_invalid_files_are_refused_by_the_setting(changes: dict[str, str | None], text: str) -> None:
    given = {key: value for key, value in {**MINIMAL, **changes}.items() if value is not None}
    with pytest.raises(ConfigError, match=text):
        MirrorMakerSettings(given)


def test_values_of_config_providers_are_not_checked_yet() -> None:
    settings = MirrorMakerSettings({**MINIMAL, "A->B.offset.lag.max": "${file:/x:lag}"})
    assert settings.connectors(Flow("A", "B"))["MirrorSourceConnector"]["offset.lag.max"] == "${file:/x:lag}"


def test_settings_that_nothing_reads_are_reported_without_their_values(caplog: pytest.LogCaptureFixture) -> None:
    MirrorMakerSettings({**MINIMAL, "producer.password": "hidden-value", "A.producer.acks": "all", "tasks.max": "2"})
    assert [record.message.partition(" ")[0] for record in caplog.records] == ["producer.password"]
    assert "hidden-value" not in caplog.text
