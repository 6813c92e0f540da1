"""SASL with the clients that people use, against one broker with a listener for it and one to set it up."""

import asyncio
import subprocess
import time
from collections.abc import Iterator

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.clients.conftest import assert_not_served
from tests.support.broker import BrokerProcess
from tests.support.parts import need_command, skip_when_unavailable
from tests.support.processes import listening_ports
from tests.support.wire_client import WireClient

DEADLINE_S = 30
USER, PASSWORD = "alice", "correct horse, battery=staple"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Secured:
    """A running broker with users."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        ports = listening_ports(broker.pid)
        self.sasl_port = next(port for port in ports if port != broker.port)
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upsertion = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            self.admin.alter_user_scram_credentials([upsertion])[USER].result(DEADLINE_S)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    def librdkafka(self, mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def python(self, mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, str]:
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
        "connection.failed.authentication.delay.ms": "50",
    }
    with BrokerProcess(tmp_path_factory.mktemp("secured"), settings) as running:
        yield Secured(running)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes(secured: Secured, topic: str, group: str, mechanism: str) -> None:
    settings = secured.librdkafka(mechanism)
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE_S)
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"value")
    producer.commit_transaction(DEADLINE_S)
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == b"value"
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_and_consumes(secured: Secured, topic: str, mechanism: str) -> None:
    settings = secured.python(mechanism)
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"value").get(DEADLINE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=DEADLINE_S * 1000
    )
    try:
        assert next(iter(consumer)).value == b"value"
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_produces_and_consumes(secured: Secured, topic: str, mechanism: str) -> None:
    settings = secured.python(mechanism)
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"value")
    async with aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(DEADLINE_S):
            assert (await consumer.getone()).value == b"value"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_produces_and_consumes(secured: Secured, topic: str, mechanism: str) -> None:
    with skip_when_unavailable():
        need_command("kcat", "kcat")
    settings = secured.librdkafka(mechanism)
    flags = [
        flag for key, value in settings.items() for flag in ("-X", f"{key.replace('mechanism', 'mechanisms')}={value}")
    ]
    secured.admin.create_topics([NewTopic(topic)])[topic].result(DEADLINE_S)  # kcat would wait a second for it
    subprocess.run(["kcat", *flags, "-P", "-t", topic], input="value\n", text=True, timeout=60, check=True)
    read = ["kcat", *flags, "-X", "fetch.wait.max.ms=10", "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
    assert subprocess.run(read, capture_output=True, text=True, timeout=60, check=True).stdout == "value\n"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
def test_librdkafka_reports_wrong_credentials(secured: Secured, mechanism: str, user: str, password: str) -> None:
    failures: list[KafkaError] = []
    producer = Producer({**secured.librdkafka(mechanism, password, user), "error_cb": failures.append})
    deadline_s = time.monotonic() + DEADLINE_S
    while KafkaError._AUTHENTICATION not in [failure.code() for failure in failures]:
        assert time.monotonic() < deadline_s, failures
        producer.poll(0.1)


def test_kafka_python_reports_wrong_credentials(secured: Secured) -> None:
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**secured.python("SCRAM-SHA-256", "wrong"), api_version_auto_timeout_ms=3000)


def test_changed_password_is_in_force_for_the_next_login(secured: Secured) -> None:
    for password in (b"first", b"second"):
        upsertion = UserScramCredentialUpsertion(
            "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password
        )
        secured.admin.alter_user_scram_credentials([upsertion])["carol"].result(DEADLINE_S)
        client = AdminClient(secured.librdkafka("SCRAM-SHA-256", password.decode(), "carol"))
        assert client.list_topics(timeout=DEADLINE_S).brokers
    deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256)
    secured.admin.alter_user_scram_credentials([deletion])["carol"].result(DEADLINE_S)
    assert_not_served(secured.librdkafka("SCRAM-SHA-256", "second", "carol"))


# What no client library sends


def token(user: str = USER, password: str = PASSWORD) -> bytes:
    return f"\0{user}\0{password}".encode()


def test_tokens_follow_as_frames_after_the_first_handshake_version(secured: Secured) -> None:
    with WireClient(secured.sasl_port) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).mechanisms == list(MECHANISMS)
        assert client.exchange_frame(token()) == b""
        assert client.ask(MetadataRequest(topics=[]), 1).brokers


def test_failed_token_after_the_first_handshake_version_closes_the_connection(secured: Secured) -> None:
    with WireClient(secured.sasl_port) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        with pytest.raises(ConnectionError):
            client.exchange_frame(token(password="wrong"))


@pytest.mark.parametrize("version", range(3))
def test_tokens_in_requests(secured: Secured, version: int) -> None:
    with WireClient(secured.sasl_port) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.NONE
        response = client.ask(SaslAuthenticateRequest(auth_bytes=token()), version)
        assert (response.error_code, response.auth_bytes) == (ErrorCode.NONE, b"")
        again = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(MetadataRequest(topics=[]), 1).brokers, "the connection stays"


def test_failure_names_the_error_and_closes_the_connection(secured: Secured) -> None:
    with WireClient(secured.sasl_port) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = client.ask(SaslAuthenticateRequest(auth_bytes=token(password="wrong")), 2)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == "Authentication failed: Invalid username or password"
        with pytest.raises(ConnectionError):
            client.ask(MetadataRequest(topics=[]), 1)


def test_unknown_mechanism_names_those_offered_and_closes_the_connection(secured: Secured) -> None:
    with WireClient(secured.sasl_port) as client:
        response = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == list(MECHANISMS)
        with pytest.raises(ConnectionError):
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)


def test_second_handshake_before_the_login_is_refused(secured: Secured) -> None:
    with WireClient(secured.sasl_port) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(ConnectionError):
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)


def test_requests_before_the_login_close_the_connection(secured: Secured) -> None:
    with WireClient(secured.sasl_port) as client, pytest.raises(ConnectionError):
        client.ask(MetadataRequest(topics=[]), 1)


def test_pipelined_requests_behind_a_failure_are_not_served(secured: Secured) -> None:
    with WireClient(secured.sasl_port) as client:
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        api = client.send(SaslAuthenticateRequest(auth_bytes=token(password="wrong")), 2)
        later = client.send(MetadataRequest(topics=[]), 1)
        assert client.receive(api, 2, behind=1).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            client.receive(later, 1)


def test_long_frames_before_the_login_close_the_connection(secured: Secured) -> None:
    with WireClient(secured.sasl_port) as client, pytest.raises(ConnectionError):
        client.ask(SaslAuthenticateRequest(auth_bytes=bytes(600_000)), 2)


def test_log_names_failures_and_no_secrets(secured: Secured) -> None:
    log = secured.broker.log.read_text()
    assert "Failed authentication with 127.0.0.1" in log
    assert PASSWORD not in log
