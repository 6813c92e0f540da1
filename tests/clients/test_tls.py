"""TLS with the clients that people use, against one broker with a listener per kind of client authentication."""

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from broker.settings.sasl_settings import LOGIN_MODULES
from tests.clients.conftest import assert_not_served
from tests.support.broker import BrokerProcess
from tests.support.certificates import STORE_PASSWORD, Stores
from tests.support.parts import need_command, skip_when_unavailable
from tests.support.processes import listening_ports

DEADLINE_S = 30
LARGE_SIZE = 900_000
LISTENERS = ("OPEN", "TLS", "MUTUAL", "ASKED", "LOGIN")
USER, PASSWORD = "alice", "a secret"


class Encrypted:
    """A running broker: TLS asks for no certificate, ASKED for one, MUTUAL requires it, LOGIN is SASL_SSL."""

    def __init__(self, broker: BrokerProcess, stores: Stores) -> None:
        self.broker = broker
        self.stores = stores
        self.client_pem = stores.issue("client", "the client")
        self.ports = dict(zip(LISTENERS, listening_ports(broker.pid), strict=True))
        self.open_admin = AdminClient({"bootstrap.servers": self.address("OPEN")})
        upsertion = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        self.open_admin.alter_user_scram_credentials([upsertion])[USER].result(DEADLINE_S)

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def librdkafka(self, listener: str = "TLS", *, certificate: Path | None = None) -> dict[str, str]:
        settings = {
            "bootstrap.servers": self.address(listener),
            "security.protocol": "SASL_SSL" if listener == "LOGIN" else "SSL",
            "ssl.ca.location": str(self.stores.ca),
        }
        if listener == "LOGIN":
            settings |= {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        if certificate is not None:
            settings |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}
        return settings

    def context(self, *, version: ssl.TLSVersion | None = None, certificate: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.stores.ca))
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def served_name(self, listener: str = "TLS") -> str:
        """Return the common name of the certificate that new connections get."""
        with (
            socket.create_connection(("127.0.0.1", self.ports[listener]), DEADLINE_S) as plain,
            self.context().wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            certificate = encrypted.getpeercert()
            assert certificate is not None
            return str(dict(pair for (pair,) in certificate["subject"])["commonName"])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, stores: Stores) -> Iterator[Encrypted]:
    server = stores.issue("server", "first server")
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": "OPEN:PLAINTEXT,TLS:SSL,MUTUAL:SSL,ASKED:SSL,LOGIN:SASL_SSL",
        "inter.broker.listener.name": "OPEN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.keystore.type": "PKCS12",
        "listener.name.mutual.ssl.keystore.location": str(stores.pkcs12(server)),
        "listener.name.mutual.ssl.keystore.password": STORE_PASSWORD,
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/U",
        "listener.name.asked.ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{LOGIN_MODULES["PLAIN"]} required user_{USER}="{PASSWORD}";',
        "password.encoder.secret": "encoder secret",
    }
    with BrokerProcess(tmp_path_factory.mktemp("encrypted"), settings) as running:
        yield Encrypted(running, stores)


def produce_and_consume(settings: dict[str, str], topic: str) -> None:
    producer = Producer({**settings, "message.max.bytes": 2_000_000})
    values = [b"small", b"x" * LARGE_SIZE, *(b"%d" % number for number in range(2000))]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        read: list[bytes | None] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while len(read) < len(values):
            assert time.monotonic() < deadline_s
            read += [message.value() for message in consumer.consume(500, 0.1)]
        assert read == values
    finally:
        consumer.close()


@pytest.mark.parametrize("listener", ["TLS", "ASKED", "LOGIN"])
def test_librdkafka_produces_and_consumes(encrypted: Encrypted, topic: str, listener: str) -> None:
    produce_and_consume(encrypted.librdkafka(listener), topic)


@pytest.mark.parametrize("listener", ["MUTUAL", "ASKED"])
def test_librdkafka_with_a_certificate_produces_and_consumes(encrypted: Encrypted, topic: str, listener: str) -> None:
    produce_and_consume(encrypted.librdkafka(listener, certificate=encrypted.client_pem), topic)


def test_kafka_python_produces_and_consumes(encrypted: Encrypted, topic: str) -> None:
    settings = {
        "bootstrap_servers": encrypted.address("MUTUAL"),
        "security_protocol": "SSL",
        "ssl_cafile": str(encrypted.stores.ca),
        "ssl_certfile": str(encrypted.client_pem),
        "ssl_keyfile": str(encrypted.client_pem),
    }
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"value").get(DEADLINE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    try:
        assert next(iter(consumer)).value == b"value"
    finally:
        consumer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_aiokafka_logs_in_over_each_version(encrypted: Encrypted, topic: str, version: ssl.TLSVersion) -> None:
    settings = {
        "bootstrap_servers": encrypted.address("LOGIN"),
        "security_protocol": "SASL_SSL",
        "ssl_context": encrypted.context(version=version),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"value")
    async with aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(DEADLINE_S):
            assert (await consumer.getone()).value == b"value"


def test_kcat_produces_and_consumes(encrypted: Encrypted, topic: str) -> None:
    with skip_when_unavailable():
        need_command("kcat", "kcat")
    settings = encrypted.librdkafka("MUTUAL", certificate=encrypted.client_pem)
    flags = [flag for key, value in settings.items() for flag in ("-X", f"{key}={value}")]
    encrypted.open_admin.create_topics([NewTopic(topic)])[topic].result(DEADLINE_S)  # kcat would wait a second for it
    subprocess.run(["kcat", *flags, "-P", "-t", topic], input="value\n", text=True, timeout=60, check=True)
    read = ["kcat", *flags, "-X", "fetch.wait.max.ms=10", "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
    assert subprocess.run(read, capture_output=True, text=True, timeout=60, check=True).stdout == "value\n"


def test_client_without_the_required_certificate_is_not_served(encrypted: Encrypted) -> None:
    assert_not_served(encrypted.librdkafka("MUTUAL"))


def test_client_with_a_foreign_certificate_is_not_served(encrypted: Encrypted, tmp_path: Path) -> None:
    foreign = Stores(tmp_path).issue("foreign", "foreign")
    for listener in ("MUTUAL", "ASKED"):
        assert_not_served(encrypted.librdkafka(listener, certificate=foreign))
    assert "SSL handshake failed" in encrypted.broker.log.read_text()


def test_client_with_an_expired_certificate_is_not_served(encrypted: Encrypted) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    expired = encrypted.stores.issue("expired", "the client", not_after=yesterday)
    for listener in ("MUTUAL", "ASKED"):
        assert_not_served(encrypted.librdkafka(listener, certificate=expired))
    valid = encrypted.librdkafka("MUTUAL", certificate=encrypted.client_pem)
    assert AdminClient(valid).list_topics(timeout=DEADLINE_S).brokers


def test_client_that_trusts_another_authority_does_not_connect(encrypted: Encrypted, tmp_path: Path) -> None:
    settings = {**encrypted.librdkafka(), "ssl.ca.location": str(Stores(tmp_path).ca)}
    assert_not_served(settings)


@pytest.mark.parametrize("listener", ["TLS", "MUTUAL", "LOGIN"])
def test_plaintext_on_a_tls_port_closes_the_connection(encrypted: Encrypted, listener: str) -> None:
    with socket.create_connection(("127.0.0.1", encrypted.ports[listener]), DEADLINE_S) as client:
        client.sendall(b"\0\0\0\x10\0\x12\0\0" + bytes(12))
        while client.recv(4096):  # an alert may come first
            pass


def test_tls_on_a_plaintext_port_closes_the_connection(encrypted: Encrypted) -> None:
    with (
        socket.create_connection(("127.0.0.1", encrypted.ports["OPEN"]), DEADLINE_S) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        encrypted.context().wrap_socket(plain, server_hostname="localhost")


def test_unread_handshakes_hold_nobody_up(encrypted: Encrypted) -> None:
    silent = [socket.create_connection(("127.0.0.1", encrypted.ports["TLS"]), DEADLINE_S) for _ in range(50)]
    try:
        assert AdminClient(encrypted.librdkafka()).list_topics(timeout=DEADLINE_S).brokers
    finally:
        for one in silent:
            one.close()


def test_changed_file_is_served_without_a_restart(encrypted: Encrypted) -> None:
    """The periodic check finds it within ten seconds; an alteration of the listener finds it immediately."""
    stores = encrypted.stores
    before = encrypted.served_name()
    open_connection = AdminClient(encrypted.librdkafka())
    assert open_connection.list_topics(timeout=DEADLINE_S).brokers
    (stores.folder / "server.pem").write_bytes(stores.issue("renewed", before).read_bytes())
    location = str(stores.folder / "server.pem")
    alter(encrypted, {"listener.name.tls.ssl.keystore.location": location})
    assert encrypted.served_name() == before
    assert open_connection.list_topics(timeout=DEADLINE_S).brokers
    log = encrypted.broker.log.read_text()
    assert "listener TLS://127.0.0.1:0 has read its key store and trust store again" in log


def test_stores_change_while_clients_produce(encrypted: Encrypted, topic: str) -> None:
    """Connections that are open keep their keys; new ones get the new key. No record is lost or sent twice."""
    stores, name = encrypted.stores, encrypted.served_name()
    failures = []
    producer = Producer({**encrypted.librdkafka(), "enable.idempotence": True, "linger.ms": 1})
    count = 0
    for round_number in range(5):
        for _ in range(200):
            producer.produce(
                topic, b"%d" % count, on_delivery=lambda error, _: failures.append(error) if error else None
            )
            count += 1
        (stores.folder / "server.pem").write_bytes(stores.issue(f"round-{round_number}", name).read_bytes())
        alter(encrypted, {"listener.name.tls.ssl.keystore.location": str(stores.folder / "server.pem")})
        assert encrypted.served_name() == name
        assert AdminClient(encrypted.librdkafka()).list_topics(timeout=DEADLINE_S).brokers
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []
    consumer = Consumer({**encrypted.librdkafka(), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(count, DEADLINE_S)]
    consumer.close()
    assert values == [b"%d" % number for number in range(count)]


def test_key_store_of_another_owner_is_rejected(encrypted: Encrypted) -> None:
    other = encrypted.stores.issue("another", "another owner")
    before = encrypted.served_name()
    with pytest.raises(KafkaException, match="DistinguishedName does not match"):
        alter(encrypted, {"listener.name.tls.ssl.keystore.location": str(other)})
    assert encrypted.served_name() == before


def test_unusable_key_store_is_rejected(encrypted: Encrypted) -> None:
    with pytest.raises(KafkaException, match="no private key"):
        alter(encrypted, {"listener.name.tls.ssl.keystore.location": str(encrypted.stores.ca)})


def alter(encrypted: Encrypted, settings: dict[str, str]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)
    encrypted.open_admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
