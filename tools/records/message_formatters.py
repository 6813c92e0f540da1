"""How the console consumer prints a record.

A formatter converts one record to bytes. The user selects it by the name of a Java class, old or new, and configures it
by `--property`.

Owns the formatters and their properties. Must not know the consumer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zlib import crc32

from tools.base.plug_ins import load_plug_in
from tools.records.deserializers import Deserializer, deserializer, raw

if TYPE_CHECKING:
    from protocol.records.batch import Record
    from tools.records.record_parsers import ParsedRecord


class TimestampType(Enum):
    """The source of a record's timestamp; the values are the printed prefixes."""

    NONE = "NO_TIMESTAMP"
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class ConsumedRecord(NamedTuple):
    """A consumed record."""

    topic: str
    partition: int
    offset: int
    timestamp_type: TimestampType
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    delivery_count: int | None = None
    """How often a share group has delivered the record, this time included; None for other consumers."""
    leader_epoch: int | None = None


class MessageFormatter(Protocol):
    """One way to print records."""

    def format(self, record: ConsumedRecord) -> bytes:
        """Return the printed form of a record. Raises DeserializationError."""


class DefaultMessageFormatter:
    """Prints the selected parts of a record, with separators."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises UsageError for a deserializer that does not exist."""
        self._print_timestamp = _is_true(properties, "print.timestamp")
        self._print_partition = _is_true(properties, "print.partition")
        self._print_offset = _is_true(properties, "print.offset")
        self._print_delivery = _is_true(properties, "print.delivery")
        self._print_epoch = _is_true(properties, "print.epoch")
        self._print_headers = _is_true(properties, "print.headers")
        self._print_key = _is_true(properties, "print.key")
        self._print_value = _is_true(properties, "print.value", default="true")
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._line_separator = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._key_deserializer = _deserializer(properties, "key.deserializer")
        self._value_deserializer = _deserializer(properties, "value.deserializer")
        self._headers_deserializer = _deserializer(properties, "headers.deserializer")

    def format(self, record: ConsumedRecord) -> bytes:
        parts: list[bytes] = []
        if self._print_timestamp:
            parts.append(_timestamp(record))
        if self._print_partition:
            parts.append(b"Partition:%d" % record.partition)
        if self._print_offset:
            parts.append(b"Offset:%d" % record.offset)
        if self._print_delivery:
            parts.append(_optional(b"Delivery", record.delivery_count))
        if self._print_epoch:
            parts.append(_optional(b"Epoch", record.leader_epoch))
        if self._print_headers:
            parts.append(self._headers(record.headers))
        if self._print_key:
            parts.append(self._part(record.key, self._key_deserializer))
        if self._print_value:
            parts.append(self._part(record.value, self._value_deserializer))
        return self._key_separator.join(parts) + self._line_separator

    def _headers(self, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
        if not headers:
            return b"NO_HEADERS"
        printed = (key.encode() + b":" + self._part(value, self._headers_deserializer) for key, value in headers)
        return self._headers_separator.join(printed)

    def _part(self, data: bytes | None, deserialize: Deserializer) -> bytes:
        return self._null if data is None else deserialize(data)


class LoggingMessageFormatter:
    """Prints as the default one, and one more line with timestamp, key and value in the format of the log."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._default = DefaultMessageFormatter(properties)

    def format(self, record: ConsumedRecord) -> bytes:
        key = b"null" if record.key is None else record.key
        value = b"null" if record.value is None else record.value
        is_timed = record.timestamp_type is not TimestampType.NONE
        time = b"%s, " % _timestamp(record) if is_timed else b""
        return self._default.format(record) + b"%skey:%s, value:%s\n" % (time, key, value)


class NoOpMessageFormatter:
    """Prints nothing, for measurements."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        pass

    def format(self, record: ConsumedRecord) -> bytes:
        return b""


class ChecksumMessageFormatter:
    """Prints the checksum of each record, as tools of 0.8 and 0.9 did.

    It is the CRC-32 of the record in the message format that had one per record: magic 1, or magic 0 without a
    timestamp. The property `topic` comes before it, if it is set.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        topic = properties.get("topic")
        self._prefix = b"" if topic is None else topic.encode() + b":"

    def format(self, record: ConsumedRecord) -> bytes:
        if record.timestamp_type is TimestampType.NONE:
            data = bytearray((0, 0))  # magic, attributes
        else:
            is_append_time = record.timestamp_type is TimestampType.LOG_APPEND_TIME
            data = bytearray((1, _APPEND_TIME_BIT if is_append_time else 0))
            data += record.timestamp_ms.to_bytes(8, signed=True)
        for part in (record.key, record.value):
            data += (-1 if part is None else len(part)).to_bytes(4, signed=True) + (part or b"")
        return b"%schecksum:%d\n" % (self._prefix, crc32(data))


class JsonMessageFormatter:
    """Prints a record as one JSON object a line: its place, time, headers, key and value.

    Keys and values are text if they are UTF-8, and JSON if `parse.json` is true and they can be parsed. Other bytes
    are an object with the one name `base64`.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parses = _is_true(properties, "parse.json")

    def format(self, record: ConsumedRecord) -> bytes:
        fields = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": None if record.timestamp_type is TimestampType.NONE else record.timestamp_ms,
            "timestampType": record.timestamp_type.value,
            "headers": [[name, self._shown(value)] for name, value in record.headers],
            "key": self._shown(record.key),
            "value": self._shown(record.value),
        }
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"

    def _shown(self, data: bytes | None) -> object:
        if data is None:
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
        if self._parses:
            with suppress(ValueError, RecursionError):
                return json.loads(text)
        return text


class _InternalTopicFormatter:
    """Prints the records of a coordinator's topic as kafka-dump-log does; records of other kinds are left out."""

    def __init__(self, parse: Callable[[Record], ParsedRecord], selected: Callable[[bytes], bool]) -> None:
        self._parse = parse
        self._selected = selected

    def format(self, record: ConsumedRecord) -> bytes:
        if record.key is None or not self._selected(record.key):
            return b""
        from protocol.records.batch import Record

        parsed = self._parse(Record(record.offset, record.timestamp_ms, record.key, record.value, []))
        return f"{parsed.key}::{parsed.payload}\n".encode()


_APPEND_TIME_BIT = 8
"""Set in the attributes of magic 1 if the broker set the timestamp."""

_OFFSET_KEYS, _GROUP_KEYS = (b"\0\0", b"\0\1"), (b"\0\2",)
"""The beginnings of keys in __consumer_offsets: an int16 type."""


class OlderOffsetsMessageFormatter:
    """Prints committed offsets as Kafka 0.9 did: `[group,topic,partition]::[OffsetMetadata[...],CommitTime ...]`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        pass

    def format(self, record: ConsumedRecord) -> bytes:
        from broker.groups.machine.records import (  # they import the broker's codec
            OffsetCommitKey,
            read_key,
            read_offset,
        )
        from protocol.errors import Malformed

        if record.key is None or not record.key.startswith(_OFFSET_KEYS):
            return b""
        try:
            key = read_key(record.key)
            assert isinstance(key, OffsetCommitKey)  # by its version
            name = f"[{key.group},{key.topic},{key.partition}]"
            if record.value is None:
                return f"{name}::NULL\n".encode()
            offset = read_offset(record.value)
        except Malformed as error:
            return f"Error at offset {record.offset}, skipping. {error}\n".encode()
        text = f"OffsetMetadata[{offset.offset},{offset.metadata or 'NO_METADATA'}]"
        times = f"CommitTime {offset.commit_timestamp_ms},ExpirationTime {offset.expire_timestamp_ms}"
        return f"{name}::[{text},{times}]\n".encode()


def _offsets_formatter(properties: Mapping[str, str]) -> MessageFormatter:
    from tools.records.record_parsers import parse_group_record  # it imports the coordinators of the broker

    return _InternalTopicFormatter(parse_group_record, lambda key: key.startswith(_OFFSET_KEYS))


def _group_metadata_formatter(properties: Mapping[str, str]) -> MessageFormatter:
    from tools.records.record_parsers import parse_group_record

    return _InternalTopicFormatter(parse_group_record, lambda key: key.startswith(_GROUP_KEYS))


def _transaction_log_formatter(properties: Mapping[str, str]) -> MessageFormatter:
    from tools.records.record_parsers import parse_transaction_record

    return _InternalTopicFormatter(parse_transaction_record, lambda key: True)


_FORMATTERS: Mapping[str, Callable[[Mapping[str, str]], MessageFormatter]] = {
    "DefaultMessageFormatter": DefaultMessageFormatter,
    "LoggingMessageFormatter": LoggingMessageFormatter,
    "NoOpMessageFormatter": NoOpMessageFormatter,
    "ChecksumMessageFormatter": ChecksumMessageFormatter,
    "JsonMessageFormatter": JsonMessageFormatter,
    "OffsetsMessageFormatter": _offsets_formatter,
    "GroupMetadataMessageFormatter": _group_metadata_formatter,
    "TransactionLogMessageFormatter": _transaction_log_formatter,
}

_OLDER_OFFSETS_FORMATTERS = (
    "kafka.coordinator.GroupMetadataManager$OffsetsMessageFormatter",
    "kafka.server.OffsetManager$OffsetsMessageFormatter",
)
"""The full names before 0.11: their output has another form."""

FORMATTERS_HELP = f"Prints records: one of {', '.join(_FORMATTERS)}, or a class of your own as module:Class."
PROPERTIES_HELP = (
    "A setting of the formatter. Of the default one: print.timestamp, print.partition, print.offset, print.delivery, "
    "print.epoch, print.headers, print.key, print.value, "
    "key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer, "
    "headers.deserializer. Of JsonMessageFormatter: parse.json."
)


def message_formatter(name: str, properties: Mapping[str, str]) -> MessageFormatter:
    """Return the formatter of a Java class name, or an object of the class `module:Class`. Raises UsageError."""
    if name in _OLDER_OFFSETS_FORMATTERS:
        return OlderOffsetsMessageFormatter(properties)
    return load_plug_in(name, _FORMATTERS, "formatter")(properties)


def _timestamp(record: ConsumedRecord) -> bytes:
    name = record.timestamp_type.value.encode()
    return name if record.timestamp_type is TimestampType.NONE else b"%s:%d" % (name, record.timestamp_ms)


def _optional(name: bytes, value: int | None) -> bytes:
    return name + (b":NOT_PRESENT" if value is None else b":%d" % value)


def _is_true(properties: Mapping[str, str], key: str, default: str = "false") -> bool:
    return properties.get(key, default).strip().lower() == "true"


def _deserializer(properties: Mapping[str, str], key: str) -> Deserializer:
    name = properties.get(key)
    return raw if name is None else deserializer(name)
