"""The records of MirrorMaker 2's own topics, byte for byte as Kafka writes them.

A string is its length in two bytes and its UTF-8, a number is big-endian:

    offset sync   key: topic, partition (4)          value: upstream offset (8), downstream offset (8)
    checkpoint    key: group, topic, partition (4)   value: version (2), upstream (8), downstream offset (8), metadata
    heartbeat     key: source alias, target alias    value: version (2), time in milliseconds (8)

Owns these formats. Must not know topics, or when a record is sent.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple, Self

from spark_jobs.connect.base.errors import DataError

VERSION: Final = 0

_SHORT: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")
_VERSIONED_OFFSETS: Final = struct.Struct(">hqq")
_VERSIONED_TIME: Final = struct.Struct(">hq")
_STRING_SIZE_MAX: Final = 2**15 - 1


class OffsetSync(NamedTuple):
    """A record of a source partition has the offset `downstream_offset` at the target."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int

    def key(self) -> bytes:
        return _string(self.topic) + _PARTITION.pack(self.partition)

    def value(self) -> bytes:
        return _OFFSETS.pack(self.upstream_offset, self.downstream_offset)

    @classmethod
    def from_record(cls, key: bytes | None, value: bytes | None) -> Self:
        """Raises DataError."""
        keys, values = _Reader("the key of an offset sync", key), _Reader("the value of an offset sync", value)
        return cls(keys.string(), *keys.numbers(_PARTITION), *values.numbers(_OFFSETS))


class Checkpoint(NamedTuple):
    """A group's position, at the source and translated. `topic` is the topic's name at the target."""

    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    def key(self) -> bytes:
        return _string(self.group) + _string(self.topic) + _PARTITION.pack(self.partition)

    def value(self) -> bytes:
        offsets = _VERSIONED_OFFSETS.pack(VERSION, self.upstream_offset, self.downstream_offset)
        return offsets + _string(self.metadata)

    def source_partition(self) -> dict[str, Any]:
        """Return the name of this part of the source, as workers store it: with the keys in Kafka's order."""
        return {"partition": self.partition, "topic": self.topic, "group": self.group}

    @classmethod
    def from_record(cls, key: bytes | None, value: bytes | None) -> Self:
        """Raises DataError."""
        keys, values = _Reader("the key of a checkpoint", key), _Reader("the value of a checkpoint", value)
        version, upstream_offset, downstream_offset = values.numbers(_VERSIONED_OFFSETS)
        _require_version("a checkpoint", version)
        group, topic, (partition,) = keys.string(), keys.string(), keys.numbers(_PARTITION)
        return cls(group, topic, partition, upstream_offset, downstream_offset, values.string())


class Heartbeat(NamedTuple):
    """The flow between two clusters worked at a time."""

    source_alias: str
    target_alias: str
    timestamp_ms: int

    def key(self) -> bytes:
        return _string(self.source_alias) + _string(self.target_alias)

    def value(self) -> bytes:
        return _VERSIONED_TIME.pack(VERSION, self.timestamp_ms)

    def source_partition(self) -> dict[str, Any]:
        """Return the name of this part of the source, as workers store it."""
        return {"sourceClusterAlias": self.source_alias, "targetClusterAlias": self.target_alias}

    @classmethod
    def from_record(cls, key: bytes | None, value: bytes | None) -> Self:
        """Raises DataError."""
        keys, values = _Reader("the key of a heartbeat", key), _Reader("the value of a heartbeat", value)
        version, timestamp_ms = values.numbers(_VERSIONED_TIME)
        _require_version("a heartbeat", version)
        return cls(keys.string(), keys.string(), timestamp_ms)


class _Reader:
    """Reads the fields of one key or value in their order."""

    def __init__(self, what: str, data: bytes | None) -> None:
        if data is None:
            raise DataError(f"{what} is null")
        self._what = what
        self._data = data
        self._position = 0

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self._take(form.size))

    def string(self) -> str:
        (size,) = self.numbers(_SHORT)
        if size < 0:
            raise DataError(f"{self._what} has a string of {size} bytes: expected 0 or more")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{self._what} has a string that is not UTF-8: {error}") from error

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise DataError(f"{self._what} has {len(self._data)} bytes: expected at least {end}")
        taken = self._data[self._position : end]
        self._position = end
        return taken


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _STRING_SIZE_MAX:
        raise DataError(f"{text[:40]}... has {len(encoded)} bytes: expected at most {_STRING_SIZE_MAX}")
    return _SHORT.pack(len(encoded)) + encoded


def _require_version(what: str, version: int) -> None:
    if version != VERSION:
        raise DataError(f"{what} has version {version}: expected {VERSION}")
