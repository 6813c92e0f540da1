"""Listeners that are added, advertised and removed while the broker runs, with librdkafka as the client."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.clients.conftest import assert_not_served
from tests.support.broker import BrokerProcess
from tests.support.certificates import Stores

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "password.encoder.secret": "encoder secret",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NEW:PLAINTEXT,TLS:SSL,LOGIN:SASL_SSL",
    }
    process = BrokerProcess(tmp_path, settings)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def new_port(unused_tcp_port: int) -> int:
    return unused_tcp_port


def change(broker: BrokerProcess, settings: dict[str, str | None], *, validate_only: bool = False) -> None:
    entries = [
        ConfigEntry(
            key,
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)
    admin = client(broker.port)
    (done,) = admin.incremental_alter_configs([resource], validate_only=validate_only, request_timeout=10).values()
    done.result(10)


def client_settings(port: int, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }


def client(port: int, **settings: Any) -> AdminClient:
    return AdminClient(client_settings(port, **settings))


def addresses(port: int, **settings: Any) -> list[str]:
    metadata = client(port, **settings).list_topics(timeout=10)
    return [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]


def wait_for_addresses(port: int, expected: list[str]) -> None:
    """Wait until the controller has sent the new registration to the broker."""
    give_up_s = time.monotonic() + 10
    while (found := addresses(port)) != expected:
        assert time.monotonic() < give_up_s, found
        time.sleep(0.05)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def bound(broker: BrokerProcess, *others: str) -> str:
    return ",".join([f"PLAINTEXT://127.0.0.1:{broker.port}", *others])


def test_a_listener_comes_stays_over_a_restart_and_goes(broker: BrokerProcess, new_port: int) -> None:
    new = f"NEW://127.0.0.1:{new_port}"
    change(broker, {"listeners": bound(broker, new)}, validate_only=True)
    assert not is_open(new_port)
    change(broker, {"listeners": bound(broker, new)})
    wait_for_addresses(new_port, [f"127.0.0.1:{new_port}"])
    assert addresses(broker.port) == [f"127.0.0.1:{broker.port}"]
    broker.stop()
    broker.start()
    assert addresses(new_port) == [f"127.0.0.1:{new_port}"]
    change(broker, {"listeners": None})
    assert not is_open(new_port)
    assert addresses(broker.port) == [f"127.0.0.1:{broker.port}"]


def test_an_advertised_address_is_registered_anew(broker: BrokerProcess) -> None:
    change(broker, {"advertised.listeners": f"PLAINTEXT://localhost:{broker.port}"})
    wait_for_addresses(broker.port, [f"localhost:{broker.port}"])


def test_listeners_with_tls_and_logins(broker: BrokerProcess, new_port: int, tmp_path: Path) -> None:
    stores = Stores(tmp_path / "stores")
    keys = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(stores.issue("server", "server"))}
    change(
        broker,
        {
            "listeners": bound(broker, f"LOGIN://127.0.0.1:{new_port}"),
            **{f"listener.name.login.{key}": value for key, value in keys.items()},
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} required user_alice="alice secret";',
        },
    )
    login = {
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": str(stores.ca),
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
    }
    assert addresses(new_port, **login, sasl_password="alice secret") == [f"127.0.0.1:{new_port}"]
    for settings in ({**login, "sasl_password": "guessed"}, {}):
        assert_not_served(client_settings(new_port, **settings))
    with pytest.raises(KafkaException, match="existing listeners"):
        change(broker, {"listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
    broker.stop()
    broker.start()
    assert addresses(new_port, **login, sasl_password="alice secret") == [f"127.0.0.1:{new_port}"]


def test_changes_that_are_refused(broker: BrokerProcess, new_port: int) -> None:
    other = f"127.0.0.1:{new_port}"
    for settings, text in (
        ({"listeners": f"NEW://{other}"}, "advertised listener of that name"),
        ({"listeners": bound(broker, f"NEW://127.0.0.1:{broker.port}")}, "different port"),
        ({"listeners": bound(broker, f"TLS://{other}")}, "needs a key store"),
        ({"listeners": bound(broker, f"UNKNOWN://{other}")}, "No security protocol defined"),
        ({"listeners": ""}, "listener"),
        ({"advertised.listeners": f"NEW://{other}"}, "Only names of listeners"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL"}, "Security protocol cannot be updated"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "need a restart"),
        (
            {
                "listeners": bound(broker, f"NEW://{other}"),
                "listener.name.new.sasl.oauthbearer.jwks.endpoint.url": "http://x",
            },
            "need a restart",
        ),
    ):
        with pytest.raises(KafkaException, match=text) as failure:
            change(broker, settings)  # type: ignore[arg-type]
        assert failure.value.args[0].name() == "INVALID_REQUEST"
    assert not is_open(new_port)
    assert addresses(broker.port) == [f"127.0.0.1:{broker.port}"]
