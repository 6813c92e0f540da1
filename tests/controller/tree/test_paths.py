"""Nodes as Apache Kafka 3.9.1 wrote them, byte for byte in both directions; older versions; malformed data."""

import json
import random
from collections.abc import Callable
from uuid import UUID

import pytest

from controller.machine.model import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    LeaderRecoveryState,
    Leadership,
    ReplicaAssignment,
    Topic,
)
from controller.tree import paths
from controller.tree.paths import ConfigEntity, ProducerIdBlock, Undecodable
from protocol.ids import parse_id

PARTITION = ("events", 0)

BROKER = Broker(
    1,
    (
        Endpoint("PLAINTEXT", "127.0.0.1", 13192, "PLAINTEXT"),
        Endpoint("INTERNAL", "127.0.0.1", 13392, "PLAINTEXT"),
        Endpoint("SASL_PLAINTEXT", "127.0.0.1", 13592, "SASL_PLAINTEXT"),
    ),
    "r1",
    25,
)
BROKER_NODE = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","INTERNAL":"PLAINTEXT",'
    b'"SASL_PLAINTEXT":"SASL_PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:13192","INTERNAL://127.0.0.1:13392",'
    b'"SASL_PLAINTEXT://127.0.0.1:13592"],"rack":"r1","jmx_port":13999,"port":13192,"host":"127.0.0.1","version":5,'
    b'"timestamp":"1795228739810"}'
)

TOPIC = Topic(parse_id("mxeDiPb0QsCUKycbljLM5g"), {0: ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,))})
TOPIC_NODE = (
    b'{"partitions":{"0":[2,3,1]},"topic_id":"mxeDiPb0QsCUKycbljLM5g","adding_replicas":{"0":[3]},'
    b'"removing_replicas":{"0":[1]},"version":3}'
)

PARTITION_LIST_NODE = b'{"version":1,"partitions":[{"topic":"two2","partition":0},{"topic":"two","partition":0}]}'
REASSIGNMENTS_NODE = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[5,6]}]}'

GOLDEN: list[tuple[bytes, bytes]] = [
    (paths.encode_cluster_id("7ym0r3ycTc-XAnwnQmXzjg"), b'{"version":"1","id":"7ym0r3ycTc-XAnwnQmXzjg"}'),
    (paths.encode_broker(BROKER, jmx_port=13999, timestamp_ms=1795228739810, version=5), BROKER_NODE),
    (
        paths.encode_controller(1, 1795228739867),
        b'{"version":2,"brokerid":1,"timestamp":"1795228739867","kraftControllerEpoch":-1}',
    ),
    (paths.encode_controller_epoch(1), b"1"),
    (paths.encode_topic(TOPIC), TOPIC_NODE),
    (
        paths.encode_partition_state(LeaderAndIsr(2, 0, (2, 3, 1)), 1),
        b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,3,1]}',
    ),
    (
        paths.encode_config({"cleanup.policy": "compact,delete", "retention.ms": "3600000"}),
        b'{"version":1,"config":{"cleanup.policy":"compact,delete","retention.ms":"3600000"}}',
    ),
    (paths.encode_config({}), b'{"version":1,"config":{}}'),
    (
        paths.encode_config_change(ConfigEntity((("users", "alice"), ("clients", "app1")))),
        b'{"version":2,"entity_path":"users/alice/clients/app1"}',
    ),
    (
        paths.encode_producer_id_block(ProducerIdBlock(1, 1000, 1999)),
        b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}',
    ),
    (paths.encode_features(paths.FinalizedFeatures(2, True, {})), b'{"features":{},"version":2,"status":1}'),
    (paths.encode_features(paths.FinalizedFeatures(1, False, {})), b'{"features":{},"version":1,"status":0}'),
]


@pytest.mark.parametrize(("encoded", "node"), GOLDEN)
def test_encoding_equals_kafkas(encoded: bytes, node: bytes) -> None:
    assert encoded == node


DECODED: list[tuple[object, object]] = [
    (paths.decode_cluster_id(b'{"version":"1","id":"7ym0r3ycTc-XAnwnQmXzjg"}'), "7ym0r3ycTc-XAnwnQmXzjg"),
    (paths.decode_broker(1, BROKER_NODE, 25), BROKER),
    (paths.decode_topic("bigt", TOPIC_NODE), TOPIC),
    (paths.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"5"}'), 3),
    (paths.decode_controller_epoch(b"17"), 17),
    (
        paths.decode_partition_state(
            PARTITION, b'{"isr":[2],"leader_epoch":4,"leader_recovery_state":1,"leader":2,"controller_epoch":9}', 6
        ),
        Leadership(LeaderAndIsr(2, 4, (2,), LeaderRecoveryState.RECOVERING), 9, 6),
    ),
    (
        paths.decode_reassignments(
            b'{"version": 1, "partitions": [{"topic": "assigned", "partition": 0, "replicas": [3, 2]}]}'
        ),
        {("assigned", 0): (3, 2)},
    ),
    (
        paths.decode_partition_list(b'{"partitions": [{"topic": "assigned", "partition": 0}]}'),
        [("assigned", 0)],
    ),
    (paths.decode_log_dir_event(b'{"version":1,"broker":9,"event":1}'), 9),
    (paths.decode_config("x", b'{"version":1,"config":{"a":"b"}}'), {"a": "b"}),
    (paths.decode_config("x", None), {}),
    (paths.decode_config("x", b""), {}),
    (
        paths.decode_producer_id_block(b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'),
        ProducerIdBlock(1, 1000, 1999),
    ),
    (paths.decode_producer_id_block(None), None),
    (paths.decode_migrated_controller_id(b'{"version":0,"kraft_controller_id":3000,"kraft_metadata_offset":1}'), 3000),
]


@pytest.mark.parametrize(("decoded", "value"), DECODED)
def test_nodes_written_by_kafka_are_decoded(decoded: object, value: object) -> None:
    assert decoded == value


def _endpoint(listener: str, host: str, port: int, protocol: str = "PLAINTEXT") -> Endpoint:
    return Endpoint(listener, host, port, protocol)


@pytest.mark.parametrize(
    ("node", "endpoints", "rack"),
    [
        ({"version": 1, "host": "h", "port": 9092, "jmx_port": -1}, (_endpoint("PLAINTEXT", "h", 9092),), None),
        (
            {"version": 2, "host": "h", "port": 9092, "endpoints": ["PLAINTEXT://h:9092", "SSL://h:9093"]},
            (_endpoint("PLAINTEXT", "h", 9092), _endpoint("SSL", "h", 9093, "SSL")),
            None,
        ),
        ({"version": 3, "endpoints": ["PLAINTEXT://h:9092"], "rack": "a"}, (_endpoint("PLAINTEXT", "h", 9092),), "a"),
        (
            {"version": 4, "endpoints": ["CLIENT://[::1]:1"], "listener_security_protocol_map": {"CLIENT": "SSL"}},
            (_endpoint("CLIENT", "::1", 1, "SSL"),),
            None,
        ),
        ({"version": 5, "endpoints": ["PLAINTEXT://:9092"], "features": {}}, (_endpoint("PLAINTEXT", "", 9092),), None),
    ],
)
def test_registrations_of_every_version_are_decoded(
    node: dict[str, object], endpoints: tuple[Endpoint, ...], rack: str | None
) -> None:
    assert paths.decode_broker(7, json.dumps(node).encode(), 3) == Broker(7, endpoints, rack, 3)


def test_registration_without_a_plaintext_listener_is_decoded() -> None:
    broker = Broker(1, (Endpoint("SECURE", "::1", 9093, "SSL"),))
    members = json.loads(paths.encode_broker(broker, jmx_port=-1, timestamp_ms=0, version=5))
    assert (members["host"], members["port"], members["endpoints"]) == (None, -1, ["SECURE://[::1]:9093"])
    assert "rack" not in members


def test_registration_of_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(Undecodable, match=r"^/brokers/ids/7: version 6, expected 1 to 5$"):
        paths.decode_broker(7, b'{"version":6,"endpoints":["PLAINTEXT://a:1"]}', 3)


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (
            {"version": 4, "endpoints": ["C://h:1"], "listener_security_protocol_map": {"C": "QUIC"}},
            "listener C: security protocol 'QUIC', expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"version": 5, "endpoints": ["PLAINTEXT://h:1", "C://h:2"]}, "listener C: security protocol 'C', expected "),
    ],
)
def test_registration_with_an_unknown_security_protocol_is_refused_by_name(
    node: dict[str, object], problem: str
) -> None:
    with pytest.raises(Undecodable, match=f"^/brokers/ids/7: {problem}"):
        paths.decode_broker(7, json.dumps(node).encode(), 3)


def test_controller_of_kraft_is_refused_by_name() -> None:
    with pytest.raises(Undecodable, match=r"^/controller: 3000 is a controller of KRaft"):
        paths.decode_controller(b'{"version":2,"brokerid":3000,"timestamp":"5","kraftControllerEpoch":0}')


@pytest.mark.parametrize(
    "node",
    [b'{"version":1,"partitions":{"0":[1,2]}}', b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{}}'],
)
def test_topics_of_older_versions_have_no_id(node: bytes) -> None:
    assert paths.decode_topic("t", node) == Topic(None, {0: ReplicaAssignment((1, 2))})


def test_partitions_are_written_and_read_in_numerical_order() -> None:
    topic = Topic(UUID(int=1), {10: ReplicaAssignment((1,)), 9: ReplicaAssignment((2,))})
    assert list(json.loads(paths.encode_topic(topic))["partitions"]) == ["9", "10"]
    assert list(paths.decode_topic("t", paths.encode_topic(topic)).partitions) == [9, 10]


ENTITIES: list[tuple[ConfigEntity, str, list[str]]] = [
    (paths.topic_entity("events"), "topics/events", []),
    (paths.broker_entity(1), "brokers/1", []),
    (paths.broker_entity(None), "brokers/<default>", []),
    (ConfigEntity((("users", "CN=w x,O=y/z"),)), "users/CN%3Dw%20x%2CO%3Dy%2Fz", []),
    (ConfigEntity((("users", "a*b~"),)), "users/a%2Ab%7E", []),
    (
        ConfigEntity((("users", None), ("clients", None))),
        "users/<default>/clients/<default>",
        ["/config/users/<default>", "/config/users/<default>/clients"],
    ),
    (ConfigEntity((("clients", "my app"),)), "clients/my%20app", []),
    (ConfigEntity((("ips", "10.0.0.5"),)), "ips/10.0.0.5", []),
]


@pytest.mark.parametrize(("entity", "path", "parents"), ENTITIES)
def test_config_entities_are_decoded(entity: ConfigEntity, path: str, parents: list[str]) -> None:
    assert paths.config_entity_path(entity) == path
    assert paths.parse_config_entity_path(path) == entity
    assert paths.config_path(entity) == f"/config/{path}"
    assert paths.config_parent_paths(entity) == parents
    assert paths.decode_config_change(paths.encode_config_change(entity)) == entity


def test_config_changes_of_version_1_are_decoded() -> None:
    node = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert paths.decode_config_change(node) == paths.topic_entity("t")


@pytest.mark.parametrize("path", ["", "topics", "nosuch/x", "topics/a/b", "users/a/topics/b", "users/a/clients"])
def test_paths_that_name_no_entity_are_undecodable(path: str) -> None:
    with pytest.raises(Undecodable):
        paths.parse_config_entity_path(path)


@pytest.mark.parametrize(("name", "sequence"), [("config_change_0000000017", 17), ("isr_change_0000000000", 0)])
def test_sequence_numbers_are_decoded(name: str, sequence: int) -> None:
    assert paths.sequence_of(name) == sequence


def test_name_without_a_sequence_number_is_undecodable() -> None:
    with pytest.raises(Undecodable):
        paths.sequence_of("config_change")


Decode = Callable[[bytes | None], object]

DECODERS: list[tuple[Decode, bytes]] = [
    (paths.decode_cluster_id, GOLDEN[0][1]),
    (lambda data: paths.decode_broker(1, data, 0), BROKER_NODE),
    (paths.decode_controller, GOLDEN[2][1]),
    (paths.decode_controller_epoch, b"1"),
    (lambda data: paths.decode_topic("t", data), TOPIC_NODE),
    (lambda data: paths.decode_partition_state(PARTITION, data, 0), GOLDEN[5][1]),
    (lambda data: paths.decode_config("x", data), GOLDEN[6][1]),
    (paths.decode_config_change, GOLDEN[8][1]),
    (paths.decode_producer_id_block, GOLDEN[9][1]),
    (paths.decode_partition_list, PARTITION_LIST_NODE),
    (paths.decode_reassignments, REASSIGNMENTS_NODE),
    (paths.decode_log_dir_event, b'{"version":1,"broker":9,"event":1}'),
    (paths.decode_migrated_controller_id, b'{"version":0,"kraft_controller_id":-1}'),
]

ODD_VALUES = [b"null", b"true", b"-1", b'"x"', b"[]", b"{}", b"[null]", b'{"0":null}', b"1e999", b"\xff"]


@pytest.mark.parametrize("index", range(len(DECODERS)))
def test_decoders_raise_only_undecodable(index: int) -> None:
    """Truncated, mutated, or with members of other types: a value or `Undecodable`."""
    decode, node = DECODERS[index]
    random_source = random.Random(index)
    inputs: list[bytes | None] = [None, b"", *ODD_VALUES, *(node[:size] for size in range(len(node)))]
    for _ in range(300):
        mutated = bytearray(node)
        mutated[random_source.randrange(len(mutated))] = random_source.randrange(256)
        inputs.append(bytes(mutated))
    for value in ODD_VALUES:
        inputs += [node.replace(part, value) for part in (b"[2,3,1]", b'"1"', b"1", b"{}", b'"127.0.0.1"')]
    for data in inputs:
        try:
            decode(data)
        except Undecodable:
            continue


TOPIC = '{"version":3,"partitions":%s,"adding_replicas":%s,"removing_replicas":{},"topic_id":"mxeDiPb0QsCUKycbljLM5g"}'
STATE = '{"version":1,"controller_epoch":%d,"leader":%d,"leader_epoch":%d,"isr":%s}'
BROKER = (
    '{"version":5,"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    '"endpoints":["PLAINTEXT://a:%d"],"host":"a","port":1}'
)
_decode_topic: Decode = lambda data: paths.decode_topic("t", data)  # noqa: E731
_decode_state: Decode = lambda data: paths.decode_partition_state(PARTITION, data, 0)  # noqa: E731
INT32_MAX = 2**31 - 1

USABLE: list[tuple[Decode, str]] = [
    (_decode_topic, TOPIC % (f'{{"{INT32_MAX}":[0,{INT32_MAX}]}}', "{}")),
    (_decode_state, STATE % (INT32_MAX - 1, INT32_MAX, INT32_MAX - 1, "[0]")),
    (_decode_state, STATE % (0, -1, 0, "[]")),
    (paths.decode_controller_epoch, str(INT32_MAX - 1)),
    (lambda data: paths.decode_broker(INT32_MAX, data, 0), BROKER % 65535),
]

UNUSABLE: list[tuple[Decode, str]] = [
    (_decode_topic, TOPIC % ('{"0":[1,1]}', "{}")),
    (_decode_topic, TOPIC % ('{"0":[1,2]}', '{"0":[2,2]}')),
    (_decode_topic, TOPIC % (f'{{"0":[1,{INT32_MAX + 1}]}}', "{}")),
    (_decode_topic, TOPIC % ('{"0":[-1]}', "{}")),
    (_decode_topic, TOPIC % (f'{{"{INT32_MAX + 1}":[1]}}', "{}")),
    (_decode_topic, TOPIC % ('{"-1":[1]}', "{}")),
    (_decode_state, STATE % (1, INT32_MAX + 1, 0, "[1]")),
    (_decode_state, STATE % (1, -3, 0, "[1]")),
    (_decode_state, STATE % (1, 1, INT32_MAX, "[1]")),
    (_decode_state, STATE % (INT32_MAX, 1, 0, "[1]")),
    (_decode_state, STATE % (1, 1, 0, f"[{INT32_MAX + 1}]")),
    (_decode_state, STATE % (1, 1, 0, "[1,1]")),
    (paths.decode_controller_epoch, str(INT32_MAX)),
    (lambda data: paths.decode_broker(INT32_MAX + 1, data, 0), BROKER % 1),
    (lambda data: paths.decode_broker(1, data, 0), BROKER % 65536),
    (lambda data: paths.decode_broker(1, data, 0), '{"version":1,"host":"a","port":99999999999}'),
]


@pytest.mark.parametrize(("decode", "node"), USABLE)
def test_numbers_that_requests_can_carry_are_decoded(decode: Decode, node: str) -> None:
    decode(node.encode())


@pytest.mark.parametrize(("decode", "node"), UNUSABLE)
def test_repeated_replicas_and_numbers_that_no_request_can_carry_are_undecodable(decode: Decode, node: str) -> None:
    with pytest.raises(Undecodable):
        decode(node.encode())
