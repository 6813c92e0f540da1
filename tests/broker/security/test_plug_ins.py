"""Python classes that check credentials and name principals, as a client and the audit log see them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from broker.network.principals import NoPrincipalError, ProvenClient, built
from broker.server import StartupError
from broker.settings.plug_ins import InvalidPlugInError
from broker.settings.security_sources import InvalidSecurityError
from config.broker_properties import DEFAULT_PRINCIPAL_BUILDER
from tests.support.in_process import running_broker

HERE = "tests.broker.security.test_plug_ins"
CHECKER = "sasl.server.callback.handler.class"


class Directory:
    """Passwords are the user names backwards."""

    def configure(self, settings: dict[str, str]) -> None:
        self.suffix = settings.get("directory.suffix", "")

    def check(self, user: str, password: str) -> bool:
        if user == "broken":
            raise RuntimeError("the directory is away")
        return password == user[::-1] + self.suffix


class Teams:
    """The principal of a user is its team."""

    def build(self, client: ProvenClient) -> str:
        if client.user == "nobody":
            raise LookupError("no team")
        return f"Team:{client.user}@{client.listener}"


class Wrong:
    def build(self, client: ProvenClient) -> object:
        return client.user


def settings(further: Mapping[str, str] | None = None) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        CHECKER: f"{HERE}:Directory",
        "principal.builder.class": f"{HERE}:Teams",
        "directory.suffix": "!",
        **(further or {}),
    }


async def asked_by(address: str, user: str, password: str) -> None:
    """List topics as a user. Raises KafkaException if the broker refuses it."""
    client = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": "0",
    }
    await asyncio.to_thread(lambda: AdminClient(client).list_topics("t", timeout=3))


async def test_a_class_checks_passwords_and_another_names_principals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path, settings()) as broker:
        host, port = broker.services.metadata_cache.brokers[0].endpoints["SASL_PLAINTEXT"]
        caplog.set_level(logging.INFO, "kafka.authorizer.logger")
        await asked_by(f"{host}:{port}", "alice", "ecila!")
        assert "Principal = Team:alice@SASL_PLAINTEXT is Denied Operation = Describe" in caplog.text
        for user, password in (("alice", "wrong"), ("broken", "any"), ("nobody", "ydobon!")):
            with pytest.raises(KafkaException):
                await asked_by(f"{host}:{port}", user, password)
    assert "the directory is away" in caplog.text
    assert "principal.builder.class refuses the client: LookupError('no team')" in caplog.text


async def test_a_listener_has_a_class_of_its_own_that_names_principals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    further = {
        "principal.builder.class": DEFAULT_PRINCIPAL_BUILDER,
        "listener.name.sasl_plaintext.principal.builder.class": f"{HERE}:Teams",
    }
    async with running_broker(tmp_path, settings(further)) as broker:
        host, port = broker.services.metadata_cache.brokers[0].endpoints["SASL_PLAINTEXT"]
        caplog.set_level(logging.INFO, "kafka.authorizer.logger")
        await asked_by(f"{host}:{port}", "alice", "ecila!")
        assert "Principal = Team:alice@SASL_PLAINTEXT is Denied Operation = Describe" in caplog.text


@pytest.mark.parametrize(
    ("further", "words"),
    [
        ({"principal.builder.class": f"{HERE}:Directory"}, "no method build"),
        ({"listener.name.plaintext.principal.builder.class": f"{HERE}:Directory"}, "no method build"),
        ({"principal.builder.class": "no.such:Class"}, "No module named"),
        ({CHECKER: f"{HERE}:Teams"}, "no method check"),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                f"listener.name.sasl_plaintext.scram-sha-256.{CHECKER}": f"{HERE}:Directory",
            },
            "SCRAM-SHA-256 has none",
        ),
    ],
)
async def test_a_class_that_cannot_be_used_stops_the_start(tmp_path: Path, further: dict[str, str], words: str) -> None:
    with pytest.raises((StartupError, InvalidPlugInError, InvalidSecurityError), match=words):
        async with running_broker(tmp_path, settings(further)):
            pass


def test_malformed_principal_rejects_the_client() -> None:
    client = ProvenClient("SSL", "SSL", "127.0.0.1", b"der", "", "CN=a")
    assert built(None, client) == "User:CN=a"
    with pytest.raises(NoPrincipalError, match="returned 'CN=a', expected Type:name"):
        built(Wrong(), client)
