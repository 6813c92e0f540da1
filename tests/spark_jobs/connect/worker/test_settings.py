"""The settings of workers, and which of them reach which client."""

from __future__ import annotations

import logging

import pytest

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.states import TaskId
from spark_jobs.connect.worker.clients import Clients, transactional_id
from spark_jobs.connect.worker.settings import WorkerSettings, for_library

STANDALONE = {
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "offset.storage.file.filename": "/tmp/offsets",
}
DISTRIBUTED = {
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    "group.id": "g",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "states",
}


def standalone(**settings: str) -> WorkerSettings:
    """Underscores stand for dots."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return WorkerSettings({**STANDALONE, **given}, is_distributed=False)


@pytest.mark.parametrize("name", STANDALONE)
def test_a_standalone_worker_needs(name: str) -> None:
    with pytest.raises(ConfigError, match=f'Missing required configuration "{name}"'):
        WorkerSettings({key: value for key, value in STANDALONE.items() if key != name}, is_distributed=False)


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_a_distributed_worker_needs(name: str) -> None:
    with pytest.raises(ConfigError, match=f'Missing required configuration "{name}"'):
        WorkerSettings({key: value for key, value in DISTRIBUTED.items() if key != name}, is_distributed=True)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("offset.flush.interval.ms", "0", "at least 1"),
        ("task.shutdown.graceful.timeout.ms", "soon", "Not a number of type LONG"),
        ("rest.port", "65536", "no more than 65535"),
        ("connector.client.config.override.policy", "Some", "All, None, Principal"),
        ("bootstrap.servers", "", "non-empty"),
    ],
)
def test_an_invalid_value_is_refused_by_name(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){name}.*{reason}"):
        WorkerSettings({**STANDALONE, name: value}, is_distributed=False)


def test_settings_without_effect_are_reported_without_their_values(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        standalone(no_such_password="hidden", producer_linger_ms="1")
    assert [record.getMessage() for record in caplog.records] == ["the setting no.such.password has no effect"]


def test_clients_have_what_secures_the_worker_and_their_own_prefix() -> None:
    settings = standalone(
        bootstrap_servers="a:1", security_protocol="SSL", producer_linger_ms="7", producer_security_protocol="PLAINTEXT"
    )
    assert settings.client("consumer") == {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    assert settings.client("producer") == {
        "bootstrap.servers": "a:1", "security.protocol": "PLAINTEXT", "linger.ms": "7"
    }  # fmt: skip


def test_a_producer_waits_without_end() -> None:
    assert for_library({"delivery.timeout.ms": str(2**31 - 1)}, is_consumer=False)["delivery.timeout.ms"] == "0"


@pytest.mark.parametrize(
    ("policy", "forbidden"),
    [("All", None), ("none", "linger.ms"), ("Principal", "linger.ms")],
)
def test_the_policy_says_what_a_connector_may_override(policy: str, forbidden: str | None) -> None:
    clients = Clients(standalone(connector_client_config_override_policy=policy))
    config = {"producer.override.linger.ms": "5", "producer.override.sasl.mechanism": "PLAIN"}
    if forbidden is None:
        assert clients.overrides(config, "producer.override.") == {"linger.ms": "5", "sasl.mechanism": "PLAIN"}
        return
    with pytest.raises(ConfigError, match=f"(?i)policy {policy} .*producer.override.{forbidden}"):
        clients.overrides(config, "producer.override.")


def test_the_policy_principal_allows_credentials() -> None:
    clients = Clients(standalone(connector_client_config_override_policy="Principal"))
    config = {"consumer.override.sasl.jaas.config": "x", "consumer.override.security.protocol": "SASL_SSL"}
    assert len(clients.overrides(config, "consumer.override.")) == 2


def test_transactional_ids_are_those_of_kafka() -> None:
    assert transactional_id("g", TaskId("c", 3)) == "g-c-3"


def test_exactly_once_needs_a_group() -> None:
    assert not standalone(exactly_once_source_support="enabled").exactly_once
    enabled = {**DISTRIBUTED, "exactly.once.source.support": "Enabled"}
    assert WorkerSettings(enabled, is_distributed=True).exactly_once
