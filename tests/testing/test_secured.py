"""Brokers with TLS and users, and the settings with which clients of several libraries connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from milena_broker.testing import Broker, Cluster, ProcessCluster
from milena_broker.testing.client_settings import Mechanism
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
AUTHORIZED = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
USERS = {"ann": 'se"cret\\', "bob": "other"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(AUTHORIZED | {"super.users": "User:bob"}, tls=True, users=USERS) as started:
        yield started


def produced(settings: dict[str, Any], topic: str) -> str | None:
    """Produce one record, and return the error."""
    errors: list[str | None] = []
    producer = Producer({**settings, "log_level": 0, "message.timeout.ms": int(PATIENCE_S * 1000)})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error and error.name()))
    assert producer.flush(PATIENCE_S) == 0
    return errors[0]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_users_log_in_over_tls(broker: Broker, mechanism: Mechanism) -> None:
    broker.create_topic(mechanism)
    assert produced(broker.client_settings("bob", mechanism=mechanism), mechanism) is None
    assert len(broker.consume(mechanism)) == 1


def test_the_first_user_is_the_default_and_has_no_rights_without_acls(broker: Broker) -> None:
    broker.create_topic("denied")
    settings = broker.client_settings()
    assert settings["sasl.username"] == "ann"
    assert produced(settings, "denied") == "TOPIC_AUTHORIZATION_FAILED"


def test_a_wrong_password_is_refused(broker: Broker) -> None:
    errors: list[str] = []
    settings = broker.client_settings() | {"sasl.password": "wrong", "log_level": 0}
    admin = AdminClient({**settings, "error_cb": lambda error: errors.append(error.name())})

    def is_refused() -> bool:
        admin.poll(0.02)
        return "_AUTHENTICATION" in errors

    wait_until(is_refused)


def test_kafka_python_connects(broker: Broker) -> None:
    producer = KafkaProducer(**broker.client_settings("bob", library="kafka-python"))
    producer.send("kafka-python", b"x").get(PATIENCE_S)
    producer.close()
    assert len(broker.consume("kafka-python", 1)) == 1


async def test_aiokafka_connects(broker: Broker) -> None:
    async with AIOKafkaProducer(**broker.client_settings("bob", library="aiokafka")) as producer:
        await producer.send_and_wait("aiokafka", b"x")


def test_java_clients_get_the_properties_of_kafka(broker: Broker) -> None:
    assert broker.client_settings(library="java", mechanism="PLAIN") == {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.certificate_authority),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="ann" password="se\\"cret\\\\";',
    }


def test_a_broker_keeps_its_certificates_and_users_when_it_restarts() -> None:
    with Broker(tls=True, users={"ann": "secret"}) as broker:
        settings = broker.client_settings()
        broker.create_topic("orders")
        broker.kill()
        broker.restart()
        assert produced(settings, "orders") is None


def test_a_broker_without_security_has_plain_settings() -> None:
    with Broker() as broker:
        assert broker.client_settings() == {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "PLAINTEXT",
        }
        assert broker.certificate_authority is None


@pytest.mark.parametrize("new", [Cluster, ProcessCluster])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "PLAINTEXT"])
def test_brokers_of_a_cluster_have_an_identity_of_their_own(
    new: Callable[..., Cluster], protocol: Literal["SASL_SSL", "PLAINTEXT"]
) -> None:
    security: dict[str, Any] = {"tls": True, "users": {"ann": "secret"}} if protocol == "SASL_SSL" else {}
    with new(2, AUTHORIZED, **security) as cluster:
        cluster.create_topic("orders")
        cluster.wait_for_isr("orders")
        assert cluster.produce("orders", ["x"]) == 1
        settings = cluster.client_settings()
        assert settings["security.protocol"] == protocol
        assert produced(settings, "orders") == "TOPIC_AUTHORIZATION_FAILED"
        leader = cluster.wait_for_leader("orders")
        cluster.stop_broker(leader)
        cluster.start_broker(leader)
        cluster.wait_for_isr("orders", timeout_s=PATIENCE_S)
