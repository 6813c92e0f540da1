"""How kafka-dump-log prints keys and values: as text of a decoder, or as the parsed record of an internal topic.

Pure. A parser turns one record into the two texts; None omits a part. Records of a coordinator's topic are printed
as by Kafka's own tool; for an unreadable record the reason is printed.

Owns the choice and the texts. Must not know files or batches.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.groups.machine import records as group_records
from broker.groups.machine.consumer.records import Key, read_value
from broker.groups.machine.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetAndMetadata,
    OffsetCommitKey,
)
from broker.share.machine import records as share_records
from broker.transactions.machine import records as transaction_records
from protocol.consumer_protocol import PROTOCOL_TYPE, TopicPartitions, read_assignment, read_subscription
from protocol.errors import Malformed
from protocol.records.batch import Record
from tools.base.java_names import hash_set_order, json_text, topic_partition_hash
from tools.records.deserializers import DeserializationError, Deserializer, deserializer
from tools.records.framed_records import fields_json

DEFAULT_DECODER: Final = "org.apache.kafka.tools.api.StringDecoder"

_DELETED: Final = "<DELETE>"
_DECODERS: Mapping[str, str] = {
    "StringDecoder": "StringDeserializer",
    "IntegerDecoder": "IntegerDeserializer",
    "LongDecoder": "LongDeserializer",
    "DefaultDecoder": "ByteArrayDeserializer",
}


class ParsedRecord(NamedTuple):
    """The printed form of a record's key and value."""

    key: str | None
    payload: str | None


class UnreadableRecord(Exception):  # noqa: N818 - named as what was met
    """A record that the parser cannot read. The text gives the reason."""


Parser = Callable[[Record], ParsedRecord]
"""Raises UnreadableRecord."""


def decoding_parser(key_decoder: str, value_decoder: str) -> Parser:
    """Return a parser that uses decoders, named by Java class or as `module:Class`. Raises UsageError."""
    decode_key, decode_value = _decoder(key_decoder), _decoder(value_decoder)

    def parse(record: Record) -> ParsedRecord:
        try:
            return ParsedRecord(_text(record.key, decode_key), _text(record.value, decode_value))
        except DeserializationError as error:
            raise UnreadableRecord(f"offset {record.offset}: {error}") from None

    return parse


def _decoder(name: str) -> Deserializer:
    return deserializer(_DECODERS.get(name.rpartition(".")[2], name))


def _text(data: bytes | None, decode: Deserializer) -> str | None:
    return None if data is None else decode(data).decode(errors="replace")


def parse_group_record(record: Record) -> ParsedRecord:
    """Parse a record of `__consumer_offsets`."""
    if record.key is None:
        raise UnreadableRecord(
            f"Failed to decode message at offset {record.offset} using offset topic decoder (message had a missing key)"
        )
    try:
        key = group_records.read_key(record.key)
        version = _version(record.key)
        if key is None:
            return ParsedRecord(f"Unknown record type {version} at offset {record.offset}, skipping.", None)
        if isinstance(key, OffsetCommitKey):
            data: Json = {"group": key.group, "topic": key.topic, "partition": key.partition}
            payload = _DELETED if record.value is None else _offset(record.value)
        elif isinstance(key, GroupMetadataKey):
            data = {"group": key.group}
            payload = _DELETED if record.value is None else _group(record.value)
        else:
            return _consumer_protocol_record(version, key, record.value)
    except Malformed as error:
        return ParsedRecord(f"Error at offset {record.offset}, skipping. {error}", None)
    return ParsedRecord(json_text({"type": str(version), "data": data}), payload)


def _consumer_protocol_record(record_type: int, key: Key, value: bytes | None) -> ParsedRecord:
    payload = _DELETED if value is None else _versioned("version", _version(value), read_value(key, value))
    return ParsedRecord(_versioned("type", record_type, key), payload)


def _versioned(name: str, version: int, fields: Any) -> str:
    return f'{{"{name}":"{version}","data":{fields_json(fields, version)}}}'


def parse_transaction_record(record: Record) -> ParsedRecord:
    """Parse a record of `__transaction_state`."""
    if record.key is None:
        raise UnreadableRecord(f"offset {record.offset}: the record has no key, so it is of no transaction")
    try:
        transactional_id = transaction_records.read_key(record.key)
        if transactional_id is None:
            return ParsedRecord(f"unknown::version={_version(record.key)}", None)
        payload = _DELETED if record.value is None else _transaction(record.value)
    except Malformed as error:
        raise UnreadableRecord(f"offset {record.offset}: {error}") from None
    return ParsedRecord(f"transaction_metadata::transactionalId={transactional_id}", payload)


def parse_share_state_record(record: Record) -> ParsedRecord:
    """Parse a record of `__share_group_state`."""
    if record.key is None:
        raise UnreadableRecord(f"offset {record.offset}: the record has no key, so it is of no share group")
    try:
        key = share_records.read_key(record.key)
        version = _version(record.key)
        if key is None:
            return ParsedRecord(f"Unknown record type {version} at offset {record.offset}, skipping.", None)
        value = None if record.value is None else share_records.read_value(key, record.value)
    except Malformed as error:
        return ParsedRecord(f"Error at offset {record.offset}, skipping. {error}", None)
    payload = _DELETED if value is None else _versioned("version", share_records.VALUE_VERSION, value)
    return ParsedRecord(_versioned("type", version, key), payload)


def _transaction(data: bytes) -> str:
    metadata = transaction_records.read_value(data)
    by_topic: dict[str, list[tuple[str, int]]] = {}
    for topic, partition in metadata.partitions:
        by_topic.setdefault(topic, []).append((topic, partition))
    partitions = hash_set_order(list(by_topic.values()), hash_code=topic_partition_hash)
    fields = (
        f"producerId:{metadata.producer_id}",
        f"producerEpoch:{metadata.producer_epoch}",
        f"state={metadata.state.title}",
        f"partitions=[{','.join(f'{topic}-{partition}' for topic, partition in partitions)}]",
        f"txnLastUpdateTimestamp={metadata.updated_ms}",
        f"txnTimeoutMs={metadata.timeout_ms}",
    )
    return ",".join(fields)


Json = dict[str, object]


class _JsonField(NamedTuple):
    """A field under its name in Kafka's schema, and the versions that have it."""

    name: str
    attribute: str
    versions: range = range(1 << 15)


_OFFSET_FIELDS: Final = (
    _JsonField("offset", "offset"),
    _JsonField("leaderEpoch", "leader_epoch", range(3, 1 << 15)),
    _JsonField("metadata", "metadata"),
    _JsonField("commitTimestamp", "commit_timestamp_ms"),
    _JsonField("expireTimestamp", "expire_timestamp_ms", range(1, 2)),
)
_GROUP_FIELDS: Final = (
    _JsonField("protocolType", "protocol_type"),
    _JsonField("generation", "generation_id"),
    _JsonField("protocol", "protocol_name"),
    _JsonField("leader", "leader_id"),
    _JsonField("currentStateTimestamp", "state_timestamp_ms", range(2, 1 << 15)),
)
_MEMBER_FIELDS: Final = (
    _JsonField("memberId", "member_id"),
    _JsonField("groupInstanceId", "group_instance_id", range(3, 1 << 15)),
    _JsonField("clientId", "client_id"),
    _JsonField("clientHost", "client_host"),
    _JsonField("rebalanceTimeout", "rebalance_timeout_ms", range(1, 1 << 15)),
    _JsonField("sessionTimeout", "session_timeout_ms"),
)


def _offset(data: bytes) -> str:
    version, value = _version(data), group_records.read_offset(data)
    return json_text({"version": str(version), "data": _json(value, _OFFSET_FIELDS, version)})


def _group(data: bytes) -> str:
    version, value = _version(data), group_records.read_group(data)
    has_consumers = value.protocol_type == PROTOCOL_TYPE
    members = [
        _json(member, _MEMBER_FIELDS, version)
        | {
            "subscription": _opened(member.subscription, _subscription, has_consumers),
            "assignment": _opened(member.assignment, _assignment, has_consumers),
        }
        for member in value.members
    ]
    return json_text({"version": str(version), "data": _json(value, _GROUP_FIELDS, version) | {"members": members}})


def _json(
    value: OffsetAndMetadata | GroupMetadataValue | MemberMetadata, fields: Sequence[_JsonField], version: int
) -> Json:
    return {field.name: getattr(value, field.attribute) for field in fields if version in field.versions}


def _opened(data: bytes, read: Callable[[bytes], Json], is_consumers: bool) -> Json | str:
    """Return the content of a member's bytes, or the bytes if their format is unknown: clients define it."""
    if is_consumers:
        try:
            return read(data)
        except Malformed:
            pass
    return b64encode(data).decode()


def _subscription(data: bytes) -> Json:
    version, subscription = read_subscription(data)
    result: Json = {"topics": subscription.topics, "userData": _base64(subscription.user_data)}
    if version >= 1:
        result["ownedPartitions"] = _topic_partitions(subscription.owned_partitions)
    if version >= 2:
        result["generationId"] = subscription.generation_id
    if version >= 3:
        result["rackId"] = subscription.rack_id
    return result


def _assignment(data: bytes) -> Json:
    _, assignment = read_assignment(data)
    return {
        "assignedPartitions": _topic_partitions(assignment.assigned_partitions),
        "userData": _base64(assignment.user_data),
    }


def _topic_partitions(topics: Sequence[TopicPartitions]) -> list[Json]:
    return [{"topic": topic.topic, "partitions": topic.partitions} for topic in topics]


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _version(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)
