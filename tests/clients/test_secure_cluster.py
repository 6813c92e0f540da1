"""A cluster whose brokers log in to each other over TLS, with a real ZooKeeper."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
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
from tests.support.certificates import Stores
from tests.support.cluster import Cluster
from tests.support.java import pyspark_jars
from tests.support.parts import skip_when_unavailable
from tests.support.waiting import wait_until

DEADLINE_S = 60
BROKERS = 2
LOGIN_MS = 2_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with skip_when_unavailable():
        pyspark_jars()
    folder = tmp_path_factory.mktemp("secure-cluster")
    stores = Stores(folder / "stores")
    users = 'username="broker" password="between brokers" user_broker="between brokers"'
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": f"{LOGIN_MODULES['PLAIN']} required {users};",
        "connections.max.reauth.ms": str(LOGIN_MS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.issue("broker", "broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.ca),
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": "User:broker;User:ANONYMOUS",
        "default.replication.factor": str(BROKERS),
        "offsets.topic.replication.factor": str(BROKERS),
        "transaction.state.log.replication.factor": str(BROKERS),
    }
    with Cluster(folder, BROKERS, settings) as running:
        yield running


def bootstrap_of(cluster: Cluster) -> str:
    return ",".join(broker.bootstrap for broker in cluster.brokers.values())


def produce_to_all(cluster: Cluster) -> None:
    """Have every replica get 100 records a partition; that of an ISR must."""
    failures = []
    producer = Producer({"bootstrap.servers": bootstrap_of(cluster), "acks": "all"})
    for number in range(200):
        producer.produce(
            "replicated",
            b"%d" % number,
            partition=number % 2,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []


def test_followers_replicate_over_their_logins(cluster: Cluster) -> None:
    bootstrap = bootstrap_of(cluster)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("replicated", 2, BROKERS)])["replicated"].result(DEADLINE_S)
    produce_to_all(cluster)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["replicated"])
    try:
        values = {message.value() for message in consumer.consume(200, DEADLINE_S)}
    finally:
        consumer.close()
    assert values == {b"%d" % number for number in range(200)}
    topic = admin.list_topics("replicated", timeout=DEADLINE_S).topics["replicated"]
    assert [len(partition.isrs) for partition in topic.partitions.values()] == [BROKERS] * 2


def test_brokers_log_in_again_before_their_logins_end(cluster: Cluster) -> None:
    """Logins last two seconds: after another one, what is produced reaches the followers over new ones."""
    time.sleep(LOGIN_MS / 1000)
    produce_to_all(cluster)
    texts = [broker.log.read_text() for broker in cluster.brokers.values()]
    assert all(texts)
    text = "".join(texts)
    assert "its login has expired" not in text
    assert "Failed authentication" not in text
    assert "between brokers" not in text


def test_acls_reach_the_other_broker(cluster: Cluster) -> None:
    first, second = (AdminClient({"bootstrap.servers": broker.bootstrap}) for broker in cluster.brokers.values())
    from confluent_kafka.admin import AclBinding

    binding = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    first.create_acls([binding])[binding].result(DEADLINE_S)
    wanted = AclBindingFilter(
        ResourceType.TOPIC, "t", ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    wait_until(lambda: bool(second.describe_acls(wanted).result(DEADLINE_S)))
