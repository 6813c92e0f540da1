"""Build and parse each path of the metadata tree, and encode and decode the data of its node.

Owns the layout and the JSON that Kafka's brokers and tools share (docs/formats/metadata-store.md). Must not know the
store.

Written JSON has no spaces and Kafka's member order, so that trees compare byte for byte. Readers accept any order and
ignore unknown members. Decoders raise `Undecodable` for malformed data, and nothing else.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote, unquote

from base.topic_partition import TopicPartition
from controller.machine.model import (
    SECURITY_PROTOCOL_IDS,
    Broker,
    Endpoint,
    LeaderAndIsr,
    LeaderRecoveryState,
    Leadership,
    ReplicaAssignment,
    Topic,
)
from protocol.ids import id_text, parse_id

CONSUMERS = "/consumers"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATIONS = "/isr_change_notification"
ISR_CHANGE_PREFIX = f"{ISR_CHANGE_NOTIFICATIONS}/isr_change_"
LOG_DIR_EVENT_NOTIFICATIONS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENT_NOTIFICATIONS}/log_dir_event_"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
FEATURE_LEVELS = "/feature_levels"
"""The levels of the features of Kafka 4. Not in FEATURE: Kafka 3.9 stops when it finds there what it does not know."""
MIGRATION = "/migration"
MILENA = "/milena"
LOG_DIRS_IN_USE = f"{MILENA}/log_dirs"

DELEGATION_TOKENS = "/delegation_token/tokens"

CONFIG_ENTITY_TYPES = ("topics", "clients", "users", "brokers", "ips")
CLIENT_METRICS_TYPE, GROUPS_TYPE = "client-metrics", "groups"
OWN_ENTITY_TYPES = frozenset((CLIENT_METRICS_TYPE, GROUPS_TYPE))
"""Entities that only a store of one broker has, as Kafka has them only without ZooKeeper. The first of a type creates
the node of the type."""
DEFAULT_ENTITY = "<default>"

# Every broker creates these at start if they are missing, parents first and without data.
PERSISTENT_PATHS = (
    CONSUMERS,
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE_ID,
    "/admin",
    DELETE_TOPICS,
    "/config",
    CONFIG_CHANGES,
    *(f"/config/{entity_type}" for entity_type in CONFIG_ENTITY_TYPES),
    ISR_CHANGE_NOTIFICATIONS,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATIONS,
)

PRODUCER_ID_BLOCK_SIZE = 1000
_ANY_VERSION = range(1 << 31)

# Requests carry these numbers as int32. A number outside would make every request that names it impossible to encode.
_IDS = range(1 << 31)
_LEADERS = range(-2, 1 << 31)
_PORTS = range(-1, 1 << 16)
# The next epoch must fit as well.
_EPOCHS = range(-1, (1 << 31) - 1)


class Undecodable(ValueError):  # noqa: N818 - it says what the data is
    """The node does not hold the expected data: it was written by hand or by a later version."""


@contextmanager
def _decoding(what: str) -> Iterator[None]:
    try:
        yield
    except Undecodable as error:
        raise Undecodable(f"{what}: {error}") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise Undecodable(f"{what}: {error!r}") from error


def _encode(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class _Json:
    """A JSON object whose members are read with their expected types."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise Undecodable(f"expected an object, found {value!r}")
        self._members: dict[str, object] = value

    def integer(self, name: str, default: int | None = None, within: range | None = None) -> int:
        value = self._members.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Undecodable(f"{name}: expected an integer, found {value!r}")
        return int(value) if within is None else _within(within, int(value), name)

    def text(self, name: str) -> str:
        value = self._members[name]
        if not isinstance(value, str):
            raise Undecodable(f"{name}: expected a string, found {value!r}")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._members.get(name) is None else self.text(name)

    def members(self, name: str) -> dict[str, object]:
        value = self._members.get(name, {})
        if not isinstance(value, dict):
            raise Undecodable(f"{name}: expected an object, found {value!r}")
        return value

    def texts(self, name: str) -> dict[str, str]:
        return {key: str(text) for key, text in self.members(name).items()}

    def integers(self, name: str) -> tuple[int, ...]:
        return _integers(self._members[name])

    def distinct_ids(self, name: str) -> tuple[int, ...]:
        return _distinct_ids(self._members[name], name)

    def replicas(self, name: str) -> dict[int, tuple[int, ...]]:
        value = self._members.get(name) or {}
        if not isinstance(value, dict):
            raise Undecodable(f"{name}: expected an object, found {value!r}")
        return {
            _within(_IDS, int(partition), f"a partition in {name}"): _distinct_ids(replicas, name)
            for partition, replicas in value.items()
        }

    def array(self, name: str) -> list[object]:
        value = self._members.get(name, [])
        if not isinstance(value, list):
            raise Undecodable(f"{name}: expected an array, found {value!r}")
        return value


def _parse(data: bytes | None, versions: range = _ANY_VERSION) -> _Json:
    """Return the node's object if its version is in `versions`. Early tools wrote some nodes without a version."""
    members = _Json(json.loads(data or b""))
    version = members.integer("version", versions[0])
    if version not in versions:
        raise Undecodable(f"version {version}, expected {versions[0]} to {versions[-1]}")
    return members


def _at_least_one(value: tuple[int, ...]) -> tuple[int, ...]:
    """Return the replicas of one partition; raise Undecodable if there are none."""
    if not value:
        raise Undecodable("a partition without replicas")
    return value


def _within(allowed: range, value: int, name: str) -> int:
    if value not in allowed:
        raise Undecodable(f"{name}: {value}, expected {allowed[0]} to {allowed[-1]}")
    return value


def _distinct_ids(value: object, name: str) -> tuple[int, ...]:
    """Return the ids of different brokers; raise Undecodable if one is repeated."""
    ids = tuple(_within(_IDS, replica, name) for replica in _integers(value))
    if len(set(ids)) < len(ids):
        raise Undecodable(f"{name}: the broker ids {list(ids)}, expected no id twice")
    return ids


def _integers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise Undecodable(f"expected an array of integers, found {value!r}")
    return tuple(int(item) for item in value)


# -- identifiers ---------------------------------------------------------------------------------------------------


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    with _decoding(CLUSTER_ID):
        return _parse(data).text("id")


# -- /brokers/ids --------------------------------------------------------------------------------------------------


FIRST_REGISTRATION_WITH_LISTENERS = 4
FIRST_REGISTRATION_WITH_FEATURES = 5


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def encode_broker(broker: Broker, *, jmx_port: int, timestamp_ms: int, version: int) -> bytes:
    """Encode as version 5, as 4 without features, or as 2 without listeners' names and rack.

    `host` and `port` are those of the first PLAINTEXT endpoint, for the oldest readers.
    """
    plaintext = next((endpoint for endpoint in broker.endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
    members: dict[str, object] = {"features": {}} if version >= FIRST_REGISTRATION_WITH_FEATURES else {}
    if version >= FIRST_REGISTRATION_WITH_LISTENERS:
        members["listener_security_protocol_map"] = {
            endpoint.listener: endpoint.security_protocol for endpoint in broker.endpoints
        }
    members["endpoints"] = [_endpoint_url(endpoint) for endpoint in broker.endpoints]
    if broker.rack is not None and version >= FIRST_REGISTRATION_WITH_LISTENERS:
        members["rack"] = broker.rack
    members |= {
        "jmx_port": jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": version,
        "timestamp": str(timestamp_ms),
    }
    return _encode(members)


def decode_broker(broker_id: int, data: bytes | None, epoch: int) -> Broker:
    """Decode versions 1 to 5; version 1 is a single PLAINTEXT endpoint. `epoch` is the node's czxid."""
    with _decoding(broker_path(broker_id)):
        _within(_IDS, broker_id, "broker id")
        registration = _parse(data, range(1, 6))
        if registration.integer("version") == 1:
            host, port = registration.text("host"), registration.integer("port", within=_PORTS)
            return Broker(broker_id, (Endpoint("PLAINTEXT", host, port, "PLAINTEXT"),), None, epoch)
        protocols = registration.texts("listener_security_protocol_map")
        endpoints = tuple(_parse_endpoint(str(url), protocols) for url in registration.array("endpoints"))
        return Broker(broker_id, endpoints, registration.optional_text("rack"), epoch)


_ENDPOINT_URL = r"(?P<listener>[^:]+)://(?:\[(?P<ipv6>[^\]]*)\]|(?P<host>[^:\]]*)):(?P<port>-?[0-9]+)"


def _endpoint_url(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _parse_endpoint(url: str, protocols: Mapping[str, str]) -> Endpoint:
    match = re.fullmatch(_ENDPOINT_URL, url)
    if match is None:
        raise Undecodable(f"endpoint {url!r}, expected NAME://host:port")
    listener = match["listener"]
    port = _within(_PORTS, int(match["port"]), "port")
    protocol = protocols.get(listener, listener)
    if protocol not in SECURITY_PROTOCOL_IDS:
        expected = ", ".join(SECURITY_PROTOCOL_IDS)
        raise Undecodable(f"listener {listener}: security protocol {protocol!r}, expected one of {expected}")
    return Endpoint(listener, match["ipv6"] or match["host"] or "", port, protocol)


# -- /milena -------------------------------------------------------------------------------------------------------


def log_dir_in_use_path(path: str) -> str:
    """Return the path of the node of the log directory at an absolute path. The node has no data."""
    return f"{LOG_DIRS_IN_USE}/{quote(path, safe='', errors='surrogateescape')}"


def log_dir_of_name(name: str) -> str:
    """Return the absolute path of the log directory whose node has this name."""
    return unquote(name, errors="surrogateescape")


# -- /brokers/topics -----------------------------------------------------------------------------------------------


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def encode_topic(topic: Topic) -> bytes:
    """Encode as version 3, with all three kinds of replica lists."""
    partitions = sorted(topic.partitions.items())
    members: dict[str, object] = {"partitions": {str(partition): list(it.replicas) for partition, it in partitions}}
    if topic.topic_id is not None:
        members["topic_id"] = id_text(topic.topic_id)
    members |= {
        "adding_replicas": {str(partition): list(it.adding) for partition, it in partitions if it.adding},
        "removing_replicas": {str(partition): list(it.removing) for partition, it in partitions if it.removing},
        "version": 3,
    }
    return _encode(members)


def decode_topic(name: str, data: bytes | None) -> Topic:
    """Decode versions 1 (partitions only), 2 (with reassignments) and 3 (with the topic id)."""
    with _decoding(topic_path(name)):
        topic = _parse(data, range(1, 4))
        adding, removing = topic.replicas("adding_replicas"), topic.replicas("removing_replicas")
        topic_id = topic.optional_text("topic_id")
        return Topic(
            None if topic_id is None else parse_id(topic_id),
            {
                partition: ReplicaAssignment(_at_least_one(it), adding.get(partition, ()), removing.get(partition, ()))
                for partition, it in sorted(topic.replicas("partitions").items())
            },
        )


def partitions_path(topic: str) -> str:
    return f"{topic_path(topic)}/partitions"


def partition_path(partition: TopicPartition) -> str:
    topic, index = partition
    return f"{partitions_path(topic)}/{index}"


def partition_state_path(partition: TopicPartition) -> str:
    return f"{partition_path(partition)}/state"


def encode_partition_state(state: LeaderAndIsr, controller_epoch: int) -> bytes:
    members: dict[str, object] = {
        "controller_epoch": controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.recovery_state is not LeaderRecoveryState.RECOVERED:
        members["leader_recovery_state"] = int(state.recovery_state)
    return _encode(members)


def decode_partition_state(
    partition: TopicPartition, data: bytes | None, version: int, written_zxid: int = 0
) -> Leadership:
    """Decode a partition state. `version` is the version of the node, which is the partition epoch."""
    with _decoding(partition_state_path(partition)):
        members = _parse(data)
        state = LeaderAndIsr(
            leader=members.integer("leader", within=_LEADERS),
            leader_epoch=members.integer("leader_epoch", within=_EPOCHS),
            isr=members.distinct_ids("isr"),
            recovery_state=LeaderRecoveryState(members.integer("leader_recovery_state", 0)),
        )
        return Leadership(state, members.integer("controller_epoch", within=_EPOCHS), version, written_zxid)


# -- /controller, /controller_epoch --------------------------------------------------------------------------------


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return _encode({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes | None) -> int:
    """Return the controller's broker id. A controller of KRaft, which leads during a migration, is undecodable."""
    with _decoding(CONTROLLER):
        controller = _parse(data)
        broker_id = controller.integer("brokerid", within=_LEADERS)
        if controller.integer("kraftControllerEpoch", -1) >= 0:
            raise Undecodable(f"{broker_id} is a controller of KRaft, which this broker cannot follow")
        return broker_id


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes | None) -> int:
    with _decoding(CONTROLLER_EPOCH):
        return _within(_EPOCHS, int(data or b""), "controller epoch")


# -- /admin --------------------------------------------------------------------------------------------------------


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def decode_reassignments(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the target replicas by partition that an old tool requests."""
    with _decoding(REASSIGN_PARTITIONS):
        return {_partition(entry): entry.integers("replicas") for entry in map(_Json, _parse(data).array("partitions"))}


def decode_partition_list(data: bytes | None) -> list[TopicPartition]:
    """Decode /admin/preferred_replica_election and ISR change notifications."""
    with _decoding("list of partitions"):
        return [_partition(entry) for entry in map(_Json, _parse(data).array("partitions"))]


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the notification of partitions whose leaders have changed their ISRs."""
    return _encode({"version": 1, "partitions": [{"topic": topic, "partition": it} for topic, it in partitions]})


def _partition(entry: _Json) -> TopicPartition:
    return (entry.text("topic"), entry.integer("partition"))


# -- /consumers ----------------------------------------------------------------------------------------------------


def consumer_offset_path(group_id: str, topic: str, partition: int) -> str:
    """Return the path of the node in which consumers of 0.8 store an offset."""
    return f"/consumers/{group_id}/offsets/{topic}/{partition}"


def encode_consumer_offset(offset: int) -> bytes:
    return str(offset).encode()


def decode_consumer_offset(data: bytes | None) -> int:
    with _decoding("consumer offset"):
        return int(data or b"")


# -- notifications -------------------------------------------------------------------------------------------------

_SEQUENCE = r".*_([0-9]{10,})"


def is_sequential(name: str) -> bool:
    """Return whether the name is one of a sequential node."""
    return re.fullmatch(_SEQUENCE, name) is not None


def sequence_of(name: str) -> int:
    """Return the number that the store appended to the name of a sequential node."""
    match = re.fullmatch(_SEQUENCE, name)
    if match is None:
        raise Undecodable(f"{name!r}, expected a name that ends in a sequence number")
    return int(match[1])


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encode the event of a log directory that went offline, the only event that Kafka defines."""
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes | None) -> int:
    """Return the id of the broker whose log directory went offline."""
    with _decoding(LOG_DIR_EVENT_NOTIFICATIONS):
        return _parse(data).integer("broker")


# -- /config -------------------------------------------------------------------------------------------------------


class ConfigEntity(NamedTuple):
    """The entity that a configuration belongs to. `parts` are (type, name) pairs; name None is the type's default.

    Only users have a second pair: their clients.
    """

    parts: tuple[tuple[str, str | None], ...]


# As in Kafka: the characters that java.net.URLEncoder keeps are not quoted, and a space becomes %20.
_UNQUOTED = "-_."
_ENCODED_TYPES = frozenset({"users", "clients"}) | OWN_ENTITY_TYPES


def topic_entity(topic: str) -> ConfigEntity:
    return ConfigEntity((("topics", topic),))


def broker_entity(broker_id: int | None) -> ConfigEntity:
    """Return the entity of one broker, or with None that of the whole cluster."""
    return ConfigEntity((("brokers", None if broker_id is None else str(broker_id)),))


def own_entity(entity_type: str, name: str) -> ConfigEntity:
    """Return an entity of one of `OWN_ENTITY_TYPES`."""
    return ConfigEntity(((entity_type, name),))


def config_entity_path(entity: ConfigEntity) -> str:
    """Return the entity's path below /config, as in change notifications: `users/alice/clients/app`."""
    return "/".join(f"{entity_type}/{_encode_name(entity_type, name)}" for entity_type, name in entity.parts)


def parse_config_entity_path(path: str) -> ConfigEntity:
    with _decoding(path):
        words = path.split("/")
        types, names = words[::2], words[1::2]
        is_known = types[0] in CONFIG_ENTITY_TYPES or types[0] in OWN_ENTITY_TYPES
        if len(types) != len(names) or not is_known or types[1:] not in ([], ["clients"]):
            raise Undecodable(f"{path!r}, expected type/name below /config")
        return ConfigEntity(tuple((type_, _decode_name(type_, name)) for type_, name in zip(types, names, strict=True)))


def config_path(entity: ConfigEntity) -> str:
    return f"/config/{config_entity_path(entity)}"


def config_parent_paths(entity: ConfigEntity) -> list[str]:
    """Return the nodes above the entity's own that may be missing, such as the user's and its `clients`."""
    words = config_path(entity).split("/")
    first = 3 if entity.parts[0][0] in OWN_ENTITY_TYPES else 4
    return ["/".join(words[:end]) for end in range(first, len(words))]


def encode_config(values: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(values)})


def decode_config(path: str, data: bytes | None) -> dict[str, str]:
    """Return the overrides. A node without data exists only for its children and holds none."""
    if data is None or data == b"":
        return {}
    with _decoding(path):
        return _parse(data, range(1, 2)).texts("config")


def encode_config_change(entity: ConfigEntity) -> bytes:
    return _encode({"version": 2, "entity_path": config_entity_path(entity)})


def decode_config_change(data: bytes | None) -> ConfigEntity:
    """Decode a change notification: version 2 holds a path, version 1 a type and a name."""
    with _decoding(CONFIG_CHANGES):
        change = _parse(data, range(1, 3))
        if change.integer("version", 2) == 1:
            return parse_config_entity_path(f"{change.text('entity_type')}/{change.text('entity_name')}")
        return parse_config_entity_path(change.text("entity_path"))


def _encode_name(entity_type: str, name: str | None) -> str:
    if name is None:
        return DEFAULT_ENTITY
    return quote(name, safe=_UNQUOTED).replace("~", "%7E") if entity_type in _ENCODED_TYPES else name


def _decode_name(entity_type: str, name: str) -> str | None:
    if name == DEFAULT_ENTITY:
        return None
    return unquote(name) if entity_type in _ENCODED_TYPES else name


# -- producer ids, features, migration -------------------------------------------------------------------------------


class ProducerIdBlock(NamedTuple):
    """The last allocated block of ids, and the broker that got it. `last` is part of the block."""

    broker_id: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _encode(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock | None:
    """Return the last block, or None if no block was allocated yet."""
    if not data:
        return None
    with _decoding(PRODUCER_ID_BLOCK):
        block = _parse(data)
        return ProducerIdBlock(block.integer("broker"), block.integer("block_start"), block.integer("block_end"))


FIRST_FEATURE_NODE_WITHOUT_RANGES = 2


class FinalizedFeatures(NamedTuple):
    """The features that a cluster has finalized, by name with their level (KIP-584)."""

    version: int
    """Of the node. In version 1 a level is the end of a range that begins with 1."""
    is_enabled: bool
    """Whether `inter.broker.protocol.version` allows any."""
    levels: Mapping[str, int]


def encode_features(features: FinalizedFeatures) -> bytes:
    lowest = {} if features.version >= FIRST_FEATURE_NODE_WITHOUT_RANGES else {"min_version_level": 1}
    levels = {name: lowest | {"max_version_level": level} for name, level in features.levels.items()}
    return _encode({"features": levels, "version": features.version, "status": int(features.is_enabled)})


def decode_features(data: bytes | None) -> FinalizedFeatures:
    """Decode versions 1 and 2."""
    with _decoding(FEATURE):
        node = _parse(data, range(1, 3))
        return FinalizedFeatures(
            node.integer("version"),
            node.integer("status", within=range(2)) == 1,
            {name: _Json(level).integer("max_version_level") for name, level in node.members("features").items()},
        )


def decode_migrated_controller_id(data: bytes | None) -> int:
    """Return the id of the KRaft controller that leads the cluster, or -1."""
    with _decoding(MIGRATION):
        return _parse(data).integer("kraft_controller_id", -1)
