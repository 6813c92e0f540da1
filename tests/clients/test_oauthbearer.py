"""OAUTHBEARER with real clients, whose tokens a test's identity provider has signed."""

import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Producer

from tests.clients.conftest import assert_not_served
from tests.support.broker import BrokerProcess
from tests.support.identity_provider import IdentityProvider
from tests.support.processes import listening_ports

DEADLINE_S = 30
PROVIDER = IdentityProvider()


def token(**changes: Any) -> tuple[str, float]:
    end_s = time.time() + 300
    return PROVIDER.token({"sub": "alice", "exp": int(end_s), "aud": "kafka", **changes}), end_s


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("oauth")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": PROVIDER.publish(folder / "keys.json"),
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with BrokerProcess(folder / "broker", settings) as running:
        yield f"127.0.0.1:{next(port for port in listening_ports(running.pid) if port != running.port)}"


def librdkafka(bootstrap: str, **changes: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: token(**changes),
    }


def test_librdkafka_logs_in(bootstrap: str) -> None:
    producer = Producer(librdkafka(bootstrap))
    producer.produce("oauth", b"value")
    assert producer.flush(DEADLINE_S) == 0


def test_token_for_others_is_rejected(bootstrap: str) -> None:
    assert_not_served(librdkafka(bootstrap, aud="other"))


class Tokens(AbstractTokenProvider):
    """Gives aiokafka its tokens."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    async def token(self) -> str:
        return token(**self._changes)[0]


def aiokafka_settings(bootstrap: str, **changes: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(**changes),
    }


async def test_aiokafka_logs_in(bootstrap: str) -> None:
    async with aiokafka.AIOKafkaProducer(**aiokafka_settings(bootstrap)) as producer:
        await producer.send_and_wait("oauth", b"value")


async def test_aiokafka_is_told_that_its_token_is_invalid(bootstrap: str) -> None:
    producer = aiokafka.AIOKafkaProducer(**aiokafka_settings(bootstrap, aud="other"))
    with pytest.raises(aiokafka.errors.KafkaError):
        await producer.start()
    await producer.stop()
