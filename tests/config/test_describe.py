"""What DescribeConfigs says: values, sources, synonyms; secrets and unknown keys without their value."""

import csv
from pathlib import Path

import pytest

from config.broker import BrokerConfig
from config.definition import ConfigType, Source
from config.describe import ConfigRow, describe_broker, describe_cluster_default, describe_topic

FIXTURES = Path(__file__).parents[1] / "fixtures" / "config"
with (FIXTURES / "broker-configs.csv").open(newline="") as file:
    REFERENCE = {row["name"]: row for row in csv.DictReader(file)}


def broker_row(config: BrokerConfig, name: str) -> ConfigRow:
    (row,) = describe_broker(config, [name])
    return row


def topic_row(config: BrokerConfig, overrides: dict[str, str], name: str) -> ConfigRow:
    (row,) = describe_topic(config, overrides, [name])
    return row


def synonyms(row: ConfigRow) -> list[str]:
    return [f"{synonym.source.name}:{synonym.name}={synonym.value}" for synonym in row.synonyms]


def test_every_setting_of_kafka_is_described() -> None:
    rows = {row.name: row for row in describe_broker(BrokerConfig.from_properties({"super.users": "User:a"}))}
    assert rows.keys() == REFERENCE.keys() - {"allow.everyone.if.no.acl.found"}
    for name, row in rows.items():
        assert row.needs_restart is (REFERENCE[name]["read_only"] == "true")
        assert row.is_sensitive is (REFERENCE[name]["sensitive"] == "true")
        assert row.type.name == REFERENCE[name]["type"]
    assert list(rows) == sorted(rows)


def test_default_value_is_described() -> None:
    row = broker_row(BrokerConfig.from_properties({}), "log.segment.bytes")
    assert (row.value, row.source) == ("1073741824", Source.DEFAULT_CONFIG)
    assert synonyms(row) == ["DEFAULT_CONFIG:log.segment.bytes=1073741824"]
    assert row.documentation


def test_setting_without_a_value_is_described_as_null() -> None:
    row = broker_row(BrokerConfig.from_properties({}), "broker.rack")
    assert (row.value, row.source, row.synonyms) == (None, Source.DEFAULT_CONFIG, ())


def test_synonyms_are_in_the_order_of_precedence() -> None:
    config = BrokerConfig.from_properties({"log.cleaner.threads": "2"})
    config.apply_dynamic(default={"log.cleaner.threads": "3"}, broker={"log.cleaner.threads": "4"})
    row = broker_row(config, "log.cleaner.threads")
    assert (row.value, row.source) == ("4", Source.DYNAMIC_BROKER_CONFIG)
    assert synonyms(row) == [
        "DYNAMIC_BROKER_CONFIG:log.cleaner.threads=4",
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=3",
        "STATIC_BROKER_CONFIG:log.cleaner.threads=2",
        "DEFAULT_CONFIG:log.cleaner.threads=1",
    ]


def test_secrets_are_described_without_a_value() -> None:
    row = broker_row(BrokerConfig.from_properties({"ssl.key.password": "hunter2"}), "ssl.key.password")
    assert (row.value, row.is_sensitive, row.type) == (None, True, ConfigType.PASSWORD)
    assert synonyms(row) == ["STATIC_BROKER_CONFIG:ssl.key.password=None"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("super.users", "User:a"), ("allow.everyone.if.no.acl.found", "true"), ("my.plug.in.key", "true")],
)
def test_undefined_keys_are_described_as_sensitive(name: str, value: str) -> None:
    row = broker_row(BrokerConfig.from_properties({name: value}), name)
    assert row == ConfigRow(name, None, True, Source.STATIC_BROKER_CONFIG, True, row.synonyms, ConfigType.UNKNOWN, "")
    assert synonyms(row) == [f"STATIC_BROKER_CONFIG:{name}=None"]


def test_internal_and_unset_keys_are_left_out() -> None:
    config = BrokerConfig.from_properties({"log.initial.task.delay.ms": "1"})
    assert describe_broker(config, ["log.initial.task.delay.ms", "super.users", "nosuch"]) == []


def test_listener_keys_list_the_plain_key_as_synonym() -> None:
    config = BrokerConfig.from_properties({"listener.name.a.max.connections": " 5", "max.connections": "6"})
    row = broker_row(config, "listener.name.a.max.connections")
    assert (row.value, row.type) == ("5", ConfigType.INT)
    assert synonyms(row) == [
        "STATIC_BROKER_CONFIG:listener.name.a.max.connections= 5",
        "STATIC_BROKER_CONFIG:max.connections=6",
        "DEFAULT_CONFIG:max.connections=2147483647",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log.retention.ms", []),
        (
            "log.retention.hours",
            ["STATIC_BROKER_CONFIG:log.retention.hours=5", "DEFAULT_CONFIG:log.retention.hours=168"],
        ),
        ("log.roll.ms", ["STATIC_BROKER_CONFIG:log.roll.ms=7", "DEFAULT_CONFIG:log.roll.hours=168"]),
    ],
)
def test_synonyms_start_at_the_setting_itself(name: str, expected: list[str]) -> None:
    config = BrokerConfig.from_properties({"log.retention.hours": "5", "log.roll.ms": "7"})
    assert synonyms(broker_row(config, name)) == expected


def test_cluster_default_shows_its_layer_only() -> None:
    config = BrokerConfig.from_properties({"message.max.bytes": "1"})
    config.apply_dynamic(
        default={"message.max.bytes": "1500000", "log.cleaner.threads": "2"}, broker={"log.cleaner.threads": "4"}
    )
    rows = describe_cluster_default(config)
    assert [(row.name, row.value, row.source.name) for row in rows] == [
        ("log.cleaner.threads", "2", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("message.max.bytes", "1500000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
    ]
    assert synonyms(rows[1]) == ["DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=1500000"]


def test_topic_override_precedes_the_broker_settings() -> None:
    config = BrokerConfig.from_properties({})
    config.apply_dynamic(default={"message.max.bytes": "1500000"}, broker={})
    overrides = {"max.message.bytes": "2000000", "retention.ms": "7200000"}
    row = topic_row(config, overrides, "max.message.bytes")
    assert (row.value, row.source, row.needs_restart) == ("2000000", Source.DYNAMIC_TOPIC_CONFIG, False)
    assert synonyms(row) == [
        "DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000000",
        "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=1500000",
        "DEFAULT_CONFIG:message.max.bytes=1048588",
    ]
    assert synonyms(topic_row(config, overrides, "retention.ms")) == ["DYNAMIC_TOPIC_CONFIG:retention.ms=7200000"]


def test_topic_shows_a_dynamic_default_without_override() -> None:
    config = BrokerConfig.from_properties({})
    config.apply_dynamic(default={"message.max.bytes": "1500000"}, broker={})
    row = topic_row(config, {}, "max.message.bytes")
    assert (row.value, row.source) == ("1500000", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_topic_response_is_complete() -> None:
    with (FIXTURES / "topic-configs.csv").open(newline="") as file:
        reference = {row["name"]: row["default"] for row in csv.DictReader(file)}
    rows = describe_topic(BrokerConfig.from_properties({}), {})
    assert {row.name: row.value for row in rows} == reference
