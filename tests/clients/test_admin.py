"""Administration of a broker with the admin clients of librdkafka and kafka-python."""

import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import kafka
import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType
from kafka.errors import (
    InvalidReplicationAssignmentError,
    NoReassignmentInProgressError,
    SecurityDisabledError,
)

from tests.support.broker import BrokerProcess
from tests.support.metadata_probe import is_serving

DEADLINE_S = 30
SET, DELETE, APPEND, SUBTRACT = (
    AlterConfigOpType.SET,
    AlterConfigOpType.DELETE,
    AlterConfigOpType.APPEND,
    AlterConfigOpType.SUBTRACT,
)
DYNAMIC_TOPIC, DYNAMIC_BROKER, DEFAULT = 1, 2, 5

T = TypeVar("T")


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def python_admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def created(admin: AdminClient, topic: str) -> str:
    """A topic with one partition."""
    _only(admin.create_topics([NewTopic(topic, 1, 1)]))
    return topic


def _only(responses: Mapping[object, "Future[T]"]) -> T:
    (response,) = responses.values()
    return response.result(DEADLINE_S)


def _refusal(ask: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as refused:
        ask()
    error: KafkaError = refused.value.args[0]
    return error


def _change(admin: AdminClient, resource: ConfigResource, *changes: tuple[str, AlterConfigOpType, str | None]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, operation, value in changes]
    asked = ConfigResource(resource.restype, resource.name, incremental_configs=entries)
    _only(admin.incremental_alter_configs([asked], request_timeout=DEADLINE_S))


def _described(admin: AdminClient, resource: ConfigResource, key: str) -> tuple[str, int]:
    """(value, source)."""
    entry = _only(admin.describe_configs([resource]))[key]
    return entry.value, entry.source


# -- settings ------------------------------------------------------------------------------------------------------


def test_topic_settings_are_changed_incrementally(admin: AdminClient, created: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, created)
    _change(admin, resource, ("retention.ms", SET, "7200000"), ("cleanup.policy", APPEND, "compact"))
    assert _described(admin, resource, "retention.ms") == ("7200000", DYNAMIC_TOPIC)
    assert _described(admin, resource, "cleanup.policy") == ("delete,compact", DYNAMIC_TOPIC)
    _change(admin, resource, ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "compact"))
    assert _described(admin, resource, "retention.ms") == ("604800000", DEFAULT)
    assert _described(admin, resource, "cleanup.policy") == ("delete", DYNAMIC_TOPIC)


def test_topic_settings_are_replaced(admin: AdminClient, created: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, created)
    _change(admin, resource, ("segment.ms", SET, "60000"))
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        _only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, created, set_config={"retention.ms": "5000"})]))
    assert _described(admin, resource, "retention.ms") == ("5000", DYNAMIC_TOPIC)
    assert _described(admin, resource, "segment.ms") == ("604800000", DEFAULT)


def test_a_changed_setting_takes_effect_at_once(broker: BrokerProcess, admin: AdminClient, created: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    delivered: list[KafkaError | None] = []

    def send() -> KafkaError | None:
        producer.produce(created, b"v" * 5000, on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(DEADLINE_S) == 0
        return delivered[-1]

    resource = ConfigResource(ResourceType.TOPIC, created)
    assert send() is None
    _change(admin, resource, ("max.message.bytes", SET, "1000"))
    refused = send()
    assert refused is not None
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    _change(admin, resource, ("max.message.bytes", DELETE, None))
    assert send() is None


def test_broker_settings_are_changed_and_described(admin: AdminClient, created: str) -> None:
    here, everywhere = ConfigResource(ResourceType.BROKER, "0"), ConfigResource(ResourceType.TOPIC, created)
    _change(admin, here, ("log.index.interval.bytes", SET, "8192"))
    assert _described(admin, here, "log.index.interval.bytes") == ("8192", DYNAMIC_BROKER)
    assert _described(admin, everywhere, "index.interval.bytes") == ("8192", DYNAMIC_BROKER)
    _change(admin, here, ("log.index.interval.bytes", DELETE, None))
    assert _described(admin, everywhere, "index.interval.bytes") == ("4096", DEFAULT)


def test_the_limit_of_connections_changes_while_the_broker_runs(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        resource = ConfigResource(ResourceType.BROKER, "0")
        _change(admin, resource, ("max.connections.per.ip", SET, "1"))
        with socket.create_connection(("127.0.0.1", broker.port), DEADLINE_S) as refused:
            assert refused.recv(1) == b""
        _change(admin, resource, ("max.connections.per.ip", DELETE, None))
        assert is_serving(broker.port)


@pytest.mark.parametrize(
    ("resource_type", "name", "change", "code", "text"),
    [
        (
            ResourceType.TOPIC,
            None,
            ("retention.ms", SET, "abc"),
            KafkaError.INVALID_CONFIG,
            "Not a number of type LONG",
        ),
        (
            ResourceType.TOPIC,
            None,
            ("nosuch", SET, "1"),
            KafkaError.INVALID_CONFIG,
            "Unknown topic config name: nosuch",
        ),
        (ResourceType.TOPIC, "absent", ("retention.ms", SET, "1"), KafkaError.UNKNOWN_TOPIC_OR_PART, "does not exist"),
        (ResourceType.BROKER, "0", ("broker.rack", SET, "x"), KafkaError.INVALID_REQUEST, "Set(broker.rack)"),
        (
            ResourceType.BROKER,
            "0",
            ("num.io.threads", SET, "99"),
            KafkaError.INVALID_REQUEST,
            "double the current value",
        ),
    ],
)
def test_invalid_settings_are_rejected(
    admin: AdminClient,
    created: str,
    resource_type: ResourceType,
    name: str | None,
    change: tuple[str, AlterConfigOpType, str],
    code: int,
    text: str,
) -> None:
    resource = ConfigResource(resource_type, name or created)
    error = _refusal(lambda: _change(admin, resource, change))
    assert error.code() == code
    assert text in error.str()


def test_settings_are_changed_by_kafka_python(python_admin: KafkaAdminClient, created: str) -> None:
    resource = PythonConfigResource(ConfigResourceType.TOPIC, created, {"retention.ms": "5000"})
    python_admin.alter_configs([resource])
    described = python_admin.describe_configs([PythonConfigResource(ConfigResourceType.TOPIC, created)])
    assert described["topic"][created]["retention.ms"]["value"] == "5000"


# -- records and files ---------------------------------------------------------------------------------------------


def test_records_are_deleted(broker: BrokerProcess, admin: AdminClient, created: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(10):
        producer.produce(created, b"v")
    assert producer.flush(DEADLINE_S) == 0
    deleted = _only(admin.delete_records([TopicPartition(created, 0, 4)]))
    assert deleted.low_watermark == 4
    partition = TopicPartition(created, 0)
    assert _only(admin.list_offsets({partition: OffsetSpec.earliest()})).offset == 4
    assert _only(admin.delete_records([TopicPartition(created, 0, -1)])).low_watermark == 10
    too_far = _refusal(lambda: _only(admin.delete_records([TopicPartition(created, 0, 11)])))
    assert too_far.code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_log_directories_are_described(broker: BrokerProcess, python_admin: KafkaAdminClient, created: str) -> None:
    (described,) = python_admin.describe_log_dirs()
    assert described["broker"] == 0
    (directory,) = described["log_dirs"]
    assert directory["log_dir"] == str(broker.log_dir)
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    sizes = {topic["name"]: [it["partition_size"] for it in topic["partitions"]] for topic in directory["topics"]}
    assert sizes[created] == [0]


# -- leaders and replicas ------------------------------------------------------------------------------------------


def test_unneeded_elections_return_kafkas_code(admin: AdminClient, created: str) -> None:
    partitions = [TopicPartition(created, 0), TopicPartition("absent", 0)]
    responses = admin.elect_leaders(ElectionType.PREFERRED, partitions).result(DEADLINE_S)
    assert {(partition.topic, error.code()) for partition, error in responses.items()} == {
        (created, KafkaError.ELECTION_NOT_NEEDED),
        ("absent", KafkaError.UNKNOWN_TOPIC_OR_PART),
    }
    assert admin.elect_leaders(ElectionType.UNCLEAN).result(DEADLINE_S) == {}


def test_reassignments_on_a_single_broker_return_kafkas_codes(python_admin: KafkaAdminClient, created: str) -> None:
    partition = kafka.TopicPartition(created, 0)
    assert python_admin.alter_partition_reassignments({partition: [0]}) == {partition: None}
    assert python_admin.alter_partition_reassignments({partition: None}) == {partition: NoReassignmentInProgressError}
    elsewhere = python_admin.alter_partition_reassignments({partition: [7]})
    assert elsewhere == {partition: InvalidReplicationAssignmentError}
    assert python_admin.list_partition_reassignments() == {}


# -- users ---------------------------------------------------------------------------------------------------------


def test_scram_credentials_are_changed_and_described(admin: AdminClient, topic: str) -> None:
    user, sha_256 = f"user-of-{topic}", ScramMechanism.SCRAM_SHA_256
    upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(sha_256, 8192), b"secret")
    _only(admin.alter_user_scram_credentials([upsertion]))
    described = _only(admin.describe_user_scram_credentials([user]))
    assert [(it.mechanism, it.iterations) for it in described.scram_credential_infos] == [(sha_256, 8192)]
    assert user in admin.describe_user_scram_credentials().result(DEADLINE_S)
    deletion = UserScramCredentialDeletion(user, sha_256)
    _only(admin.alter_user_scram_credentials([deletion]))
    again = _refusal(lambda: _only(admin.alter_user_scram_credentials([deletion])))
    assert again.code() == KafkaError.RESOURCE_NOT_FOUND


def test_acl_requests_fail_without_an_authorizer(
    admin: AdminClient, python_admin: KafkaAdminClient, created: str
) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        created,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    error = _refusal(lambda: _only(admin.create_acls([binding])))
    assert error.code() == KafkaError.SECURITY_DISABLED
    everything = kafka.admin.ACLFilter(
        principal=None,
        host=None,
        operation=kafka.admin.ACLOperation.ANY,
        permission_type=kafka.admin.ACLPermissionType.ANY,
        resource_pattern=kafka.admin.ResourcePatternFilter(
            kafka.admin.ResourceType.ANY, None, kafka.admin.ACLResourcePatternType.ANY
        ),
    )
    with pytest.raises(SecurityDisabledError):
        python_admin.describe_acls(everything)
