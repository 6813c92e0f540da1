"""A second reader of what a replica has on its disk, which shares no code with the brokers.

Owns the formats as docs/formats describes them, and the plain way to derive everything else from the batches: start at
the first one, and keep all. The brokers keep the same state from batch to batch, over rolls, truncations and restarts.
So whatever differs is wrong in one of them. Must not know brokers, nor what a difference means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_ABORTED: Final = struct.Struct(">hqqqq")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_SNAPSHOT_START: Final = 10
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_SEQUENCES: Final = 1 << 31
KEPT: Final = 5
"""How many batches of a producer a leader recognises if they are sent again."""


class PlainBatch(NamedTuple):
    """The header of a batch, with the type and the coordinator epoch of a marker (-1 without)."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    marker: int
    coordinator_epoch: int
    max_timestamp_ms: int


def batches_of(content: bytes) -> Iterator[PlainBatch]:
    """Yield the batches of a segment up to the first one that is not whole."""
    position = 0
    while position + _HEADER.size <= len(content):
        base, length, epoch, magic, crc, attributes, delta, _, latest_ms, producer, producer_epoch, sequence, _ = (
            _HEADER.unpack_from(content, position)
        )
        end = position + 12 + length
        if magic != 2 or length < _HEADER.size - 12 or end > len(content):
            return
        is_control = bool(attributes & _CONTROL)
        marker, coordinator_epoch = _marker(content, position + _HEADER.size) if is_control else (-1, -1)
        yield PlainBatch(
            base,
            base + delta,
            epoch,
            crc,
            producer,
            producer_epoch,
            sequence,
            (sequence + delta) % _SEQUENCES,
            bool(attributes & _TRANSACTIONAL),
            is_control,
            marker,
            coordinator_epoch,
            latest_ms,
        )
        position = end


def _marker(content: bytes, position: int) -> tuple[int, int]:
    """Return the type (0: abort, 1: commit) and the coordinator epoch of the control record at `position`."""
    _, position = _varint(content, position)
    _, position = _varint(content, position + 1)
    _, position = _varint(content, position)
    size, position = _varint(content, position)
    (kind,) = struct.unpack_from(">h", content, position + 2)
    _, position = _varint(content, position + size)
    (coordinator_epoch,) = struct.unpack_from(">i", content, position + 2)
    return kind, coordinator_epoch


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


@dataclass(slots=True)
class PlainProducer:
    """What the batches say about one producer."""

    epoch: int
    batches: list[PlainBatch] = field(default_factory=list)
    """All data batches of the epoch, in order."""
    coordinator_epoch: int = -1
    open_since: int = -1
    """The first offset of its open transaction, or -1."""


class PlainAborted(NamedTuple):
    """An entry of the index of aborted transactions."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class PlainState:
    """What follows from batches, applied one after the other."""

    def __init__(self) -> None:
        self.epochs: list[tuple[int, int]] = []
        """Each leader epoch with its first offset."""
        self.producers: dict[int, PlainProducer] = {}
        self.ended: list[tuple[int, int]] = []
        """The first offset and the marker of each ended transaction."""
        self.aborted: list[PlainAborted] = []
        self.end = 0

    def apply(self, batch: PlainBatch) -> None:
        self.end = batch.last_offset + 1
        if not self.epochs or self.epochs[-1][0] != batch.leader_epoch:
            self.epochs.append((batch.leader_epoch, batch.base_offset))
        if batch.producer_id < 0:
            return
        producer = self.producers.setdefault(batch.producer_id, PlainProducer(batch.producer_epoch))
        if producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches = []
        if not batch.is_control:
            producer.batches.append(batch)
            if batch.is_transactional and producer.open_since < 0:
                producer.open_since = batch.base_offset
        elif batch.marker in (0, 1):
            producer.coordinator_epoch = batch.coordinator_epoch
            if producer.open_since >= 0:
                first, producer.open_since = producer.open_since, -1
                self.ended.append((first, batch.base_offset))
                if batch.marker == 0:
                    stable = min(self._open(), default=batch.base_offset + 1)
                    self.aborted.append(PlainAborted(batch.producer_id, first, batch.base_offset, stable))

    def _open(self) -> Iterator[int]:
        return (producer.open_since for producer in self.producers.values() if producer.open_since >= 0)

    def last_stable_offset(self, high_watermark: int, *, committed: int = 0) -> int:
        """Return the first offset of a transaction without a marker below the high watermark, at most the latter.

        Markers below `committed` count as if they were below the high watermark.
        """
        uncommitted = (first for first, marker in self.ended if marker >= max(high_watermark, committed))
        return min([high_watermark, *self._open(), *uncommitted])


def state_of(batches: Iterable[PlainBatch]) -> PlainState:
    state = PlainState()
    for batch in batches:
        state.apply(batch)
    return state


def aborted_in(index: bytes) -> list[PlainAborted]:
    """Return the entries of a file of aborted transactions."""
    return [PlainAborted(*entry) for _, *entry in _ABORTED.iter_unpack(index)]


class SnapshotEntry(NamedTuple):
    """One producer in a snapshot."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    open_since: int


@lru_cache(maxsize=1024)
def snapshot_entries(content: bytes) -> tuple[SnapshotEntry, ...]:
    """Return the producers of a snapshot; none of one that a crash has damaged, which no broker uses."""
    if len(content) < _SNAPSHOT_START or (len(content) - _SNAPSHOT_START) % _SNAPSHOT_ENTRY.size:
        return ()
    (crc,) = struct.unpack_from(">I", content, 2)
    if crc != _crc32c(content[6:]):
        return ()
    return tuple(SnapshotEntry(*entry) for entry in _SNAPSHOT_ENTRY.iter_unpack(content[_SNAPSHOT_START:]))


def _crc32c(content: bytes) -> int:
    """Return the checksum of Castagnoli, bit by bit."""
    remainder = 0xFFFFFFFF
    for byte in content:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF
