"""Java's names of client settings."""

import random
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException

from broker.settings.client_login import Surroundings
from broker.settings.security_sources import InvalidSecurityError
from broker.settings.zookeeper_settings import zookeeper_security
from config.broker import BrokerConfig
from tests.support.certificates import Stores
from tools.base.command_line import UsageError
from tools.client.client_security import client_security
from tools.client.client_settings import _RENAMED, _SAME, library_settings, load_settings, parse_assignments


@pytest.mark.parametrize(
    ("java", "library", "is_consumer"),
    [
        ({"acks": "all"}, {"acks": "all"}, False),
        ({"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}, True),
        ({"auto.offset.reset": "latest"}, {"auto.offset.reset": "latest"}, True),
        ({"fetch.max.wait.ms": "5"}, {"fetch.wait.max.ms": "5"}, True),
        ({"request.timeout.ms": "5"}, {"request.timeout.ms": "5"}, False),
        ({"request.timeout.ms": "5"}, {"socket.timeout.ms": "5"}, True),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}, False),
        ({"buffer.memory": "1"}, {"queue.buffering.max.kbytes": "1"}, False),
        ({"max.block.ms": "5", "key.serializer": "x"}, {}, False),
        (
            {
                "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor, "
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            },
            {"partition.assignment.strategy": "range,cooperative-sticky"},
            True,
        ),
        (
            {
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                "username=\"alice\" password='se;cret';"
            },
            {"sasl.username": "alice", "sasl.password": "se;cret"},
            True,
        ),
    ],
)
def test_java_settings_are_translated(java: dict[str, str], library: dict[str, str], is_consumer: bool) -> None:
    assert library_settings(java, is_consumer=is_consumer) == library


def test_unknown_names_log_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert library_settings({"no.such.key": "1"}, is_consumer=True) == {}
    assert "'no.such.key' was supplied but isn't a known config" in capsys.readouterr().err


def test_invalid_number_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"Invalid value lots for configuration buffer\.memory"):
        library_settings({"buffer.memory": "lots"}, is_consumer=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"metadata.broker.list": "a:1"}, {"bootstrap.servers": "a:1"}),
        ({"request.required.acks": "1"}, {"acks": "1"}),
        ({"compression.codec": "gzip"}, {"compression.type": "gzip"}),
        ({"compression.codec": "gzip", "compression.type": "lz4"}, {"compression.type": "lz4"}),
        ({"auto.offset.reset": "smallest"}, {"auto.offset.reset": "earliest"}),
        ({"auto.offset.reset": "largest"}, {"auto.offset.reset": "latest"}),
        ({"producer.type": "sync"}, {}),
    ],
)
def test_names_of_0_8_log_a_warning(
    old: dict[str, str], new: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_settings(None, [f"{key}={value}" for key, value in old.items()]) == new
    assert capsys.readouterr().err.count("WARNING:") == 1


def test_options_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("acks = 1\nlinger.ms = 5 \n")
    assert load_settings(str(path), ["acks=all"]) == {"acks": "all", "linger.ms": "5"}


def test_unreadable_file_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="Cannot read /nowhere"):
        load_settings("/nowhere", ())


def test_assignments_are_parsed() -> None:
    assert parse_assignments(["a=1=2", "b="]) == {"a": "1=2", "b": ""}
    for wrong in ("a", "=1"):
        with pytest.raises(UsageError):
            parse_assignments([wrong])


# The values do not matter; the test checks that the library has settings with these names.
@pytest.mark.parametrize("name", sorted({*_SAME, *_RENAMED.values()}))
def test_client_library_accepts_the_translated_names(name: str) -> None:
    try:
        Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, name: "1"}).close()
    except KafkaException as error:
        reason = error.args[0].str()
    else:
        reason = ""
    assert "No such configuration property" not in reason


def test_weak_certificate_of_a_client_is_named(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    weak, _ = stores.issue_with_sha1("weak", "old.example")
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(weak)}
    expected = r"the PEM store .*/weak\.pem: OpenSSL rejects a certificate \(ca md too weak\), expected .* SHA-256"
    with pytest.raises(UsageError, match=expected):
        client_security({"security.protocol": "SSL", **store})
    settings = {f"zookeeper.{key}": value for key, value in store.items()} | {"zookeeper.ssl.client.enable": "true"}
    with pytest.raises(InvalidSecurityError, match=f"TLS to ZooKeeper: {expected}"):
        zookeeper_security(BrokerConfig.from_properties(settings), Surroundings(random.Random(1), lambda: 0))
