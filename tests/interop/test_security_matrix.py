"""Every protocol and every SASL mechanism with the clients that people use: administration, a transaction, a group.

`bin/test` runs each mechanism with each client once; the whole matrix has the marker `soak`. Spark over SASL_SSL is
tested with the Spark jobs. The wheel of confluent-kafka has no GSSAPI: there librdkafka is that of kcat.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import kafka
import kafka.admin
import kafka.net.sasl.oauth
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.conftest import RunJava
from tests.support.kerberos import has_kerberos, need_kerberos
from tests.support.parts import need_command, skip_when_unavailable
from tests.support.secured import DEADLINE_S, MECHANISMS, SecuredBroker

SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
JAVA_VERSIONS = ("2.8.2", "3.9.1", "4.1.0")
VALUE = b"value"

Round = Callable[[SecuredBroker, str, str, str], None]
"""A round of one client over a protocol and a mechanism, with a topic of its own."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """The broker of every cell. Without Kerberos on this machine it has the other mechanisms."""
    with SecuredBroker(tmp_path_factory.mktemp("matrix"), kerberos=has_kerberos()) as running:
        yield running


def confluent_round(secured: SecuredBroker, protocol: str, mechanism: str, topic: str) -> None:
    settings = secured.librdkafka(protocol, mechanism)
    admin = AdminClient(settings)
    if mechanism == "OAUTHBEARER":
        admin.poll(0)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE_S)
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, VALUE)
    producer.commit_transaction(DEADLINE_S)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == VALUE
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def kcat_round(secured: SecuredBroker, protocol: str, mechanism: str, topic: str) -> None:
    with skip_when_unavailable():
        need_command("kcat", "kcat")
    settings = secured.librdkafka(protocol, mechanism)
    flags = [flag for key, value in settings.items() for flag in ("-X", f"{key}={value}")]

    def kcat(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            ["kcat", *flags, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", "-t", topic, "-X", f"transactional.id={topic}", text=f"{VALUE.decode()}\n")
    assert topic in kcat("-L", "-t", topic)
    read = kcat("-q", "-c", "1", "-X", "auto.offset.reset=earliest", "-G", topic, topic)
    assert read == f"{VALUE.decode()}\n"


def librdkafka_round(secured: SecuredBroker, protocol: str, mechanism: str, topic: str) -> None:
    (kcat_round if mechanism == "GSSAPI" else confluent_round)(secured, protocol, mechanism, topic)


def kafka_python_round(secured: SecuredBroker, protocol: str, mechanism: str, topic: str) -> None:
    class Tokens(kafka.net.sasl.oauth.AbstractTokenProvider):
        def token(self) -> str:
            return secured.token()

    settings = secured.python(protocol, mechanism)
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    admin = kafka.KafkaAdminClient(**settings)
    admin.create_topics([kafka.admin.NewTopic(topic, 1, 1)])
    assert topic in admin.list_topics()
    admin.close()
    producer = kafka.KafkaProducer(**settings, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, VALUE)
    producer.commit_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=DEADLINE_S * 1000
    )
    try:
        assert next(iter(consumer)).value == VALUE
        consumer.commit()
    finally:
        consumer.close()


def aiokafka_round(secured: SecuredBroker, protocol: str, mechanism: str, topic: str) -> None:
    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return secured.token()

    settings: dict[str, Any] = secured.python(protocol, mechanism)
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()

    async def run() -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(**settings)
        await admin.start()
        await admin.create_topics([aiokafka.admin.NewTopic(topic, 1, 1)])
        await admin.close()
        producer = aiokafka.AIOKafkaProducer(**settings, transactional_id=topic)
        async with producer, producer.transaction():
            await producer.send(topic, VALUE)
        consumer = aiokafka.AIOKafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(DEADLINE_S):
            assert (await consumer.getone()).value == VALUE
            await consumer.commit()

    asyncio.run(run())


ROUNDS: dict[str, Round] = {
    "librdkafka": librdkafka_round,
    "kafka-python": kafka_python_round,
    "aiokafka": aiokafka_round,
}
NUMBERS = count()


def java_settings(secured: SecuredBroker, protocol: str, mechanism: str) -> dict[str, str]:
    settings = secured.java(protocol, mechanism)
    if mechanism == "GSSAPI":
        assert secured.center is not None
        settings["kerberos.configuration"] = str(secured.center.configuration)
    elif mechanism == "OAUTHBEARER":
        settings["token.file"] = str(secured.token_file)
    return settings


def write_properties(path: Path, settings: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def java_round(
    secured: SecuredBroker, run_java: RunJava, folder: Path, version: str, protocol: str, mechanism: str
) -> None:
    settings = java_settings(secured, protocol, mechanism)
    topic = f"java-{next(NUMBERS)}"
    path = write_properties(folder / "client.properties", settings)
    lines = run_java("SecureRound", path, topic, 1, 0, version=version)
    assert lines == ["created true", "committed 1", "read 1"]


def cells() -> list[Any]:
    """Return protocols and mechanisms; all but one cell of each mechanism have the marker `soak`."""
    once = [(SASL_PROTOCOLS[place % 2], mechanism) for place, mechanism in enumerate(MECHANISMS)]
    every = [("PLAINTEXT", ""), ("SSL", ""), *((one, two) for one in SASL_PROTOCOLS for two in MECHANISMS)]
    return [pytest.param(*cell, marks=[] if cell in once else [pytest.mark.soak]) for cell in every]


def need(secured: SecuredBroker, mechanism: str) -> None:
    if mechanism == "GSSAPI":
        with skip_when_unavailable():
            need_kerberos()


@pytest.mark.parametrize("client", ROUNDS)
@pytest.mark.parametrize(("protocol", "mechanism"), cells())
def test_client_administers_commits_and_reads(
    secured: SecuredBroker, client: str, protocol: str, mechanism: str
) -> None:
    need(secured, mechanism)
    ROUNDS[client](secured, protocol, mechanism, f"{client}-{next(NUMBERS)}")


@pytest.mark.parametrize("version", JAVA_VERSIONS)
@pytest.mark.parametrize(("protocol", "mechanism"), cells())
def test_java_client_administers_commits_and_reads(
    secured: SecuredBroker, run_java: RunJava, tmp_path: Path, version: str, protocol: str, mechanism: str
) -> None:
    need(secured, mechanism)
    java_round(secured, run_java, tmp_path, version, protocol, mechanism)
