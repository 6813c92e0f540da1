"""ACLs with real clients: what a user without permissions sees, and what a permission changes immediately."""

from collections.abc import Iterator

import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from broker.settings.sasl_settings import LOGIN_MODULES
from config.broker_properties import AUTHORIZERS
from tests.support.broker import BrokerProcess
from tests.support.processes import listening_ports

DEADLINE_S = 30
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret"}
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


class Authorized:
    """A running broker with an authorizer; `admin` is its super user."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.port = next(port for port in listening_ports(broker.pid) if port != broker.port)
        self.admin = AdminClient(self.settings("admin"))

    def settings(self, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def create(
        self, name: str, operation: AclOperation, permission: AclPermissionType = ALLOW, **other: object
    ) -> None:
        binding = AclBinding(
            other.get("resource_type", TOPIC),
            name,
            other.get("pattern_type", LITERAL),
            "User:alice",
            "*",
            operation,
            permission,
        )
        self.admin.create_acls([binding])[binding].result(DEADLINE_S)


@pytest.fixture(scope="module")
def authorized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authorized]:
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SECURE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{LOGIN_MODULES['PLAIN']} required {users};",
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": "User:admin",
    }
    with BrokerProcess(tmp_path_factory.mktemp("authorized"), settings) as running:
        yield Authorized(running)


def produce(settings: dict[str, str], topic: str) -> KafkaError | None:
    failures: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10_000})
    producer.produce(topic, b"value", partition=0, on_delivery=lambda error, _: failures.append(error))
    producer.flush(DEADLINE_S)
    return failures[0]


def test_producer_needs_write(authorized: Authorized, topic: str) -> None:
    authorized.admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE_S)
    failure = produce(authorized.settings("alice"), topic)
    assert failure is not None
    assert failure.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    authorized.create(topic, AclOperation.WRITE)
    assert produce(authorized.settings("alice"), topic) is None
    authorized.create(topic[:-1], AclOperation.WRITE, DENY, pattern_type=PREFIXED)
    failure = produce(authorized.settings("alice"), topic)
    assert failure is not None
    authorized.admin.delete_acls([EVERYTHING])[EVERYTHING].result(DEADLINE_S)


def test_consumer_needs_topic_and_group(authorized: Authorized, topic: str, group: str) -> None:
    authorized.admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE_S)
    produce(authorized.settings("admin"), topic)
    settings = {**authorized.settings("alice"), "group.id": group, "auto.offset.reset": "earliest"}
    authorized.create(topic, AclOperation.READ)
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        refused = consumer.poll(DEADLINE_S)
        assert refused is not None
        error = refused.error()
        assert error is not None
        assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        authorized.create(group, AclOperation.READ, resource_type=ResourceType.GROUP)
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == b"value"
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    authorized.admin.delete_acls([EVERYTHING])[EVERYTHING].result(DEADLINE_S)


def test_topics_without_permission_are_not_listed(authorized: Authorized, topic: str) -> None:
    authorized.admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE_S)
    alice = AdminClient(authorized.settings("alice"))
    assert topic not in alice.list_topics(timeout=DEADLINE_S).topics
    assert topic in authorized.admin.list_topics(timeout=DEADLINE_S).topics
    with pytest.raises(KafkaException) as caught:
        alice.create_topics([NewTopic("hers", 1)])["hers"].result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_acls_are_described_and_deleted(authorized: Authorized, topic: str) -> None:
    authorized.create(topic, AclOperation.ALL, pattern_type=PREFIXED)
    authorized.create("kafka-cluster", AclOperation.CREATE, resource_type=ResourceType.BROKER)
    described = authorized.admin.describe_acls(EVERYTHING).result(DEADLINE_S)
    assert {(acl.restype, acl.name, acl.resource_pattern_type, acl.operation) for acl in described} == {
        (TOPIC, topic, PREFIXED, AclOperation.ALL),
        (ResourceType.BROKER, "kafka-cluster", LITERAL, AclOperation.CREATE),
    }
    deleted = authorized.admin.delete_acls([EVERYTHING])[EVERYTHING].result(DEADLINE_S)
    assert len(deleted) == 2
    assert authorized.admin.describe_acls(EVERYTHING).result(DEADLINE_S) == []


def test_only_those_who_may_alter_the_cluster_change_acls(authorized: Authorized) -> None:
    binding = AclBinding(TOPIC, "*", LITERAL, "User:alice", "*", AclOperation.ALL, ALLOW)
    alice = AdminClient(authorized.settings("alice"))
    with pytest.raises(KafkaException) as caught:
        alice.create_acls([binding])[binding].result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert alice.describe_acls(EVERYTHING).result(DEADLINE_S) == [], "librdkafka drops the error of the response"
    assert "Principal = User:alice is Denied Operation = Alter" in authorized.broker.log.read_text()


def test_kafka_python_describes_acls(authorized: Authorized, topic: str) -> None:
    authorized.create(topic, AclOperation.READ)
    admin = kafka.admin.KafkaAdminClient(
        bootstrap_servers=f"127.0.0.1:{authorized.port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORDS["admin"],
    )
    try:
        wanted = kafka.admin.ACLFilter(
            principal=None,
            host=None,
            operation=kafka.admin.ACLOperation.ANY,
            permission_type=kafka.admin.ACLPermissionType.ANY,
            resource_pattern=kafka.admin.ResourcePatternFilter(
                kafka.admin.ResourceType.TOPIC, topic, kafka.admin.ACLResourcePatternType.LITERAL
            ),
        )
        acls, _ = admin.describe_acls(wanted)
        assert [(acl.principal, acl.operation.name) for acl in acls] == [("User:alice", "READ")]
    finally:
        admin.close()
    authorized.admin.delete_acls([EVERYTHING])[EVERYTHING].result(DEADLINE_S)
