"""The mirror between Milena and Apache Kafka 3.9.1, both directions."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from tests.spark_jobs.conftest import JobRunner, Sent, Topics
from tests.spark_jobs.test_mirror import KEEPS_OLD_RECORDS, committed, contents, mirror, sample
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.parts import skip_when_unavailable

pytestmark = pytest.mark.spark

SETTINGS = {
    **KEEPS_OLD_RECORDS,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
}
ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


class Clusters(NamedTuple):
    milena: Topics
    kafka: Topics


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder: Path = tmp_path_factory.mktemp("clusters")
    with (
        skip_when_unavailable(),
        apache_kafka(folder / "kafka", overrides=SETTINGS) as brokers,
        BrokerProcess(folder / "milena", SETTINGS) as broker,
    ):
        yield Clusters(Topics(broker.bootstrap), Topics(brokers[0].bootstrap))


@pytest.fixture(params=["from Milena to Kafka", "from Kafka to Milena"])
def direction(request: pytest.FixtureRequest, clusters: Clusters) -> tuple[Topics, Topics]:
    """Source and target."""
    return (clusters.milena, clusters.kafka) if "from Milena" in request.param else (clusters.kafka, clusters.milena)


def test_topics_settings_acls_and_groups_follow_and_nothing_comes_back(
    direction: tuple[Topics, Topics], job_runner: JobRunner
) -> None:
    source, target = direction
    topic = source.create(f"from-{source.bootstrap[-5:]}", 2, {"max.message.bytes": "500000"})
    source.send(topic, [*sample(40), *[Sent(b"%d" % number, partition=0) for number in range(20)]])
    group = Consumer({**source.client, "group.id": f"{topic}-readers", "enable.auto.commit": False})
    group.commit(offsets=[TopicPartition(topic, 0, 30)], asynchronous=False)
    group.close()
    acl = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:reader", "*", AclOperation.ALL,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    owner = AdminClient(source.client)
    owner.create_acls([acl])[acl].result()
    flags = ["--sync-configs", "--sync-acls", "--groups", f"{topic}.*"]
    mirror(job_runner, source, target, topic, *flags)
    source.grow(topic, 3)
    source.send(topic, sample(9, partitions=3))
    mirror(job_runner, source, target, topic, *flags)
    mirror(job_runner, target, source, topic, name="ba")
    assert contents(target, topic) == contents(source, topic)
    assert len(contents(source, topic)) == 69
    assert committed(target, f"{topic}-readers", topic) == 30
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(target.client)
    assert admin.describe_configs([resource])[resource].result()["max.message.bytes"].value == "500000"
    acls = [each for each in admin.describe_acls(ANY_ACL).result() if each.name == topic]
    assert [(each.principal, each.operation) for each in acls] == [("User:reader", AclOperation.READ)]
    beats = [message for message in target.read("heartbeats") if message.key() == b"\x00\x01a\x00\x01b"]
    assert beats


def test_exact_offsets_hold_and_positions_need_no_translation(
    direction: tuple[Topics, Topics], job_runner: JobRunner
) -> None:
    source, target = direction
    topic = source.create(f"exact-{source.bootstrap[-5:]}", 2)
    for count in (30, 10):
        source.send(topic, sample(count))
        mirror(job_runner, source, target, topic, "--exact-offsets", "--no-origin")
    assert contents(target, topic) == contents(source, topic)
    assert [each.offset() for each in target.read(topic)] == [each.offset() for each in source.read(topic)]
    reader = f"{topic}-readers"
    request = [ConsumerGroupTopicPartitions(reader, [TopicPartition(topic, 0, 7)])]
    admin = AdminClient(target.client)
    admin.alter_consumer_group_offsets(request)[reader].result()
    consumer = Consumer({**target.client, "group.id": reader})
    consumer.assign([TopicPartition(topic, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message.value() == source.read(topic)[7].value()
