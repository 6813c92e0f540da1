"""Rules between settings: each one broken, each one at its edge."""

import pytest

from config.broker import BrokerConfig
from config.checks import RULES
from config.definition import ConfigErrors

BROKEN = [
    ("broker.id", {"broker.id": "-2"}),
    ("broker.id", {"broker.id": "1001"}),
    ("broker.id", {"broker.id": "-1", "broker.id.generation.enable": "false"}),
    ("zookeeper.connect", {"zookeeper.connect": "a:2181;b:2181"}),
    ("zookeeper.connect", {"zookeeper.connect": "a:port"}),
    ("zookeeper.connect", {"zookeeper.connect": "a:2181/x,b:2181/y"}),
    ("controller.quorum.voters", {"controller.quorum.voters": "1@a:9093,2@b:9093"}),
    ("controller.quorum.bootstrap.servers", {"controller.quorum.bootstrap.servers": "a:9093,b:9093"}),
    ("process.roles", {"process.roles": "broker"}),
    ("log.dirs", {"log.dirs": " , "}),
    ("log.dirs", {"log.dirs": "/a,/b,/a"}),
    ("log.roll.ms", {"log.roll.ms": "0"}),
    ("log.roll.jitter.ms", {"log.roll.jitter.ms": "-1"}),
    ("log.retention.ms", {"log.retention.ms": "0"}),
    ("log.retention.minutes", {"log.retention.minutes": "-2"}),
    ("log.retention.hours", {"log.retention.hours": "0"}),
    ("log.cleaner.dedupe.buffer.size", {"log.cleaner.dedupe.buffer.size": "1048576"}),
    ("log.cleaner.dedupe.buffer.size", {"log.cleaner.dedupe.buffer.size": "2097152", "log.cleaner.threads": "2"}),
    ("replica.fetch.wait.max.ms", {"replica.fetch.wait.max.ms": "30001", "replica.lag.time.max.ms": "40000"}),
    ("replica.fetch.wait.max.ms", {"replica.lag.time.max.ms": "499"}),
    ("queued.max.request.bytes", {"queued.max.request.bytes": "104857599"}),
    ("max.connections.per.ip", {"max.connections.per.ip": "0"}),
    ("max.connections.per.ip.overrides", {"max.connections.per.ip.overrides": "localhost"}),
    ("connection.failed.authentication.delay.ms", {"connections.max.idle.ms": "100"}),
    ("offsets.commit.required.acks", {"offsets.commit.required.acks": "4"}),
    ("offsets.topic.compression.codec", {"offsets.topic.compression.codec": "5"}),
    ("group.min.session.timeout.ms", {"group.max.session.timeout.ms": "5999"}),
    ("group.consumer.min.session.timeout.ms", {"group.consumer.session.timeout.ms": "44999"}),
    ("group.consumer.session.timeout.ms", {"group.consumer.session.timeout.ms": "60001"}),
    ("group.consumer.min.heartbeat.interval.ms", {"group.consumer.heartbeat.interval.ms": "4999"}),
    ("group.consumer.heartbeat.interval.ms", {"group.consumer.heartbeat.interval.ms": "15001"}),
    ("zookeeper.metadata.migration.enable", {"zookeeper.metadata.migration.enable": "true"}),
    ("metrics.http.users", {"metrics.http.users": "prometheus"}),
    ("remote.log.storage.system.enable", {"remote.log.storage.system.enable": "true"}),
]


@pytest.mark.parametrize(("key", "settings"), BROKEN)
def test_broken_rule_is_reported_for_its_key(key: str, settings: dict[str, str]) -> None:
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig.from_properties(settings)
    (error,) = failure.value.errors
    assert error.key == key
    assert str(error).startswith(f"Invalid value {error.value} for configuration {key}: ")


@pytest.mark.parametrize(
    "settings",
    [
        {"broker.id": "-1"},
        {"zookeeper.connect": "a:2181, b:2181,[::1]:2181/kafka/one"},
        {"zookeeper.connect": "localhost"},
        {"process.roles": "broker,controller", "controller.quorum.voters": "1@a:9093"},
        {"process.roles": "broker", "controller.quorum.voters": "1@a:9093,2@b:9093", "zookeeper.connect": "a"},
        {"broker.id": "1000"},
        {"broker.id": "5000", "broker.id.generation.enable": "false"},
        {"broker.id": "5000", "reserved.broker.max.id": "5000"},
        {"log.retention.ms": "-1"},
        {"log.retention.ms": "1", "log.roll.ms": "1", "log.roll.jitter.ms": "0"},
        {"log.cleaner.dedupe.buffer.size": "1048577"},
        {"log.cleaner.threads": "0"},
        {"replica.fetch.wait.max.ms": "30000"},
        {"queued.max.request.bytes": "104857600"},
        {"queued.max.request.bytes": "0"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "localhost:5,::1:7"},
        {"connections.max.idle.ms": "101"},
        {"connections.max.idle.ms": "-1"},
        {"zookeeper.metadata.migration.enable": "false"},
    ],
)
def test_limits_are_included(settings: dict[str, str]) -> None:
    BrokerConfig.from_properties(settings)


def test_every_rule_has_a_case_that_breaks_it() -> None:
    assert {rule.row.name for rule in RULES} == {key for key, _ in BROKEN}


def test_rule_is_skipped_when_a_value_does_not_parse() -> None:
    with pytest.raises(ConfigErrors) as failure:
        BrokerConfig.from_properties({"socket.request.max.bytes": "many", "queued.max.request.bytes": "1"})
    assert [error.key for error in failure.value.errors] == ["socket.request.max.bytes"]
