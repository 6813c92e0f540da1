"""Users of SASL listeners in the environment of a container."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from config.definition import ConfigError
from tests.tools.conftest import ROOT
from tools.launch.container_environment import read_environment
from tools.launch.container_users import ContainerUsers, has_sasl, read_users, settings_of_users

USERS = {"KAFKA_CLIENT_USERS": "alice,bob", "KAFKA_CLIENT_PASSWORDS": 'secret"1,secret2'}
LISTENERS = {
    "listeners": "CLIENT://:9092,PLAINTEXT://:9093",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
}
MODULES = "org.apache.kafka.common.security"


def test_users_get_an_entry_for_each_mechanism_of_each_sasl_listener() -> None:
    users = read_users({**USERS, "KAFKA_INTER_BROKER_USER": "b", "KAFKA_INTER_BROKER_PASSWORD": "p"})
    given = {**LISTENERS, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    scram = "listener.name.client.scram-sha-512.sasl.jaas.config"
    assert settings_of_users(users, given) == {
        "listener.name.client.plain.sasl.jaas.config": (
            f'{MODULES}.plain.PlainLoginModule required username="b" password="p" user_alice="secret\\"1" '
            'user_bob="secret2" user_b="p";'
        ),
        scram: f'{MODULES}.scram.ScramLoginModule required username="b" password="p";',
    }
    assert scram not in settings_of_users(users, {**given, scram: "own"})


def test_mechanisms_are_those_of_bitnami_unless_they_are_set() -> None:
    settings = settings_of_users(read_users(USERS), LISTENERS)
    assert settings["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    assert len(settings) == 4
    assert not settings_of_users(read_users(USERS), {"listeners": "PLAINTEXT://:9092"})
    assert has_sasl(LISTENERS)
    assert not has_sasl({"listeners": "PLAINTEXT://:9092"})


def test_used_variables_are_not_named_in_the_warning() -> None:
    assert read_environment(USERS).warnings == []


def test_passwords_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text("one,two\n")
    assert read_users({"KAFKA_CLIENT_USERS": "a;b", "KAFKA_CLIENT_PASSWORDS_FILE": str(path)}).clients == {
        "a": "one",
        "b": "two",
    }


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KAFKA_CLIENT_USERS": "a,b", "KAFKA_CLIENT_PASSWORDS": "hidden"}, "has 1"),
        ({"KAFKA_CLIENT_USERS": "a=b", "KAFKA_CLIENT_PASSWORDS": "hidden"}, "Expected letters"),
        ({"KAFKA_INTER_BROKER_USER": "a"}, "Expected KAFKA_INTER_BROKER_PASSWORD beside it"),
        ({"KAFKA_CLIENT_USERS": "a", "KAFKA_CLIENT_PASSWORDS_FILE": "/no/file"}, "cannot be read"),
    ],
)
def test_errors_never_contain_a_password(variables: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as raised:
        read_users(variables)
    assert "hidden" not in str(raised.value)


def test_users_are_shown_without_passwords() -> None:
    assert "secret" not in repr(ContainerUsers({"a": "secret"}, ("b", "secret")))


def port_in(log: Path, broker: subprocess.Popen[bytes]) -> str:
    """Return the port of the SASL listener, which the broker logs when it has started."""
    while (found := re.search(r"listening on SASL_PLAINTEXT://127\.0\.0\.1:(\d+)", log.read_text())) is None:
        assert broker.poll() is None, log.read_text()
        time.sleep(0.02)
    return found[1]


def test_users_log_in_by_plain_and_scram(tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if "KAFKA" not in name},
        "KAFKA_LISTENERS": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "LOG_DIR": str(tmp_path / "logs"),
        **USERS,
    }
    log = tmp_path / "output"
    with log.open("wb") as output:
        broker = subprocess.Popen(
            [sys.executable, "-P", "-m", "tools.launch.server_start", "--environment"],
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
        )
    try:
        port = port_in(log, broker)
        for user, password, mechanism in (
            ("alice", 'secret"1', "PLAIN"),
            ("bob", "secret2", "SCRAM-SHA-256"),
            ("alice", 'secret"1', "SCRAM-SHA-512"),
        ):
            settings = {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": password,
            }
            assert AdminClient(settings).list_topics(timeout=30).brokers
        with pytest.raises(KafkaException):
            AdminClient({**settings, "sasl.password": "wrong"}).list_topics(timeout=2)
    finally:
        broker.terminate()
        broker.wait(30)
    text = log.read_text()
    assert "set the password of user alice for SCRAM-SHA-256, SCRAM-SHA-512" in text
    assert "secret" not in text
