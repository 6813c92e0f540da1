"""The snapshots of a partition's producer state, `<20 digits>.snapshot`, so that a start need not replay the whole log.

Owns their format and the set of snapshots in one directory. A snapshot is the state at the offset in its name. It is
derived data: an unreadable one is deleted, and replaying the log from an older one gives the same state. Must not know
what the state allows a producer.

Format: int16 version 1, uint32 CRC-32C of what follows, int32 count, then entries of 46 bytes: int64 producer id, int16
epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp, int32 coordinator epoch, int64 first
offset of the open transaction or -1.
"""

import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from protocol.crc import crc32c
from storage.disk import names
from storage.disk.files import Files
from storage.producers.producer_state import NONE, BatchMetadata, ProducerEntry

_VERSION_AND_CRC: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_ENTRIES_POSITION: Final = _VERSION_AND_CRC.size + _COUNT.size
_VERSION: Final = 1


class CorruptSnapshotError(Exception):
    """A producer snapshot is damaged. Delete it and use an older one."""


class LoadedSnapshot(NamedTuple):
    offset: int
    entries: list[ProducerEntry]


class ProducerSnapshots:
    """The snapshots in one directory. `offsets` is sorted; each offset has a file."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: Files, directory: str, offsets: Iterable[int]) -> None:
        self._files = files
        self._directory = directory
        self.offsets: list[int] = sorted(offsets)

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def write(self, offset: int, entries: Iterable[ProducerEntry]) -> None:
        """Write a snapshot without waiting for the disk, see `sync`. The CRC detects a file that a crash cut short."""
        self.write_encoded(offset, encode(entries))

    def write_encoded(self, offset: int, content: bytes) -> None:
        """Write a snapshot whose content `encode` returned."""
        self._files.replace(self._path(offset), content, durable=False)
        place, is_known = self._place_of(offset)
        if not is_known:
            self.offsets.insert(place, offset)

    def load_latest(self, at_most: int) -> LoadedSnapshot | None:
        """Return the newest readable snapshot up to the offset `at_most`, or None. Deletes newer unreadable ones."""
        for offset in reversed(list(self.offsets)):
            if offset > at_most:
                continue
            path = self._path(offset)
            try:
                return LoadedSnapshot(offset, decode(self._files.read_whole(path), path))
            except (CorruptSnapshotError, FileNotFoundError):
                self.delete(offset)
        return None

    def delete(self, offset: int) -> None:
        """Delete a snapshot if it exists."""
        path = self.forget(offset)
        if path is not None:
            self._files.unlink_if_exists(path)

    def forget(self, offset: int) -> str | None:
        """Remove a snapshot from the set; return the path of its file, which another thread may unlink, or None."""
        place, is_known = self._place_of(offset)
        if not is_known:
            return None
        del self.offsets[place]
        return self._path(offset)

    def _place_of(self, offset: int) -> tuple[int, bool]:
        """Return where an offset is or would be in the sorted set, and whether it is there."""
        place = bisect_left(self.offsets, offset)
        return place, self.offsets[place : place + 1] == [offset]

    def delete_outside(self, start_offset: int, end_offset: int) -> None:
        """Delete the snapshots up to `start_offset`, where the state is empty, and those above `end_offset`."""
        for offset in list(self.offsets):
            if not start_offset < offset <= end_offset:
                self.delete(offset)

    def delete_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Delete the snapshots that belong to no segment.

        The newest stays if it is above the base offset of the last segment: a clean stop has written it.
        """
        newest_needed = max(segment_base_offsets, default=-1)
        for offset in list(self.offsets):
            is_last_state = offset == self.latest and offset > newest_needed
            if offset not in segment_base_offsets and not is_last_state:
                self.delete(offset)

    def relocate(self, directory: str) -> None:
        """Use `directory`, the new name of the log's directory, from now on."""
        self._directory = directory

    def sync(self) -> None:
        """Make the newest snapshot durable."""
        if self.offsets:
            self._files.sync_path(self._path(self.offsets[-1]))

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{names.segment_file(offset, names.PRODUCER_SNAPSHOT)}"


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot, with the entries in the order of their producer ids."""
    ordered = sorted(entries, key=lambda entry: entry.producer_id)
    body = _COUNT.pack(len(ordered)) + b"".join(_encode_entry(entry) for entry in ordered)
    return _VERSION_AND_CRC.pack(_VERSION, crc32c(body)) + body


def decode(content: bytes, path: str) -> list[ProducerEntry]:
    """Return the entries in `content`. Raises CorruptSnapshotError, whose message contains `path`."""
    if len(content) < _ENTRIES_POSITION:
        raise CorruptSnapshotError(f"{path} has {len(content)} bytes, expected at least {_ENTRIES_POSITION}")
    version, crc = _VERSION_AND_CRC.unpack_from(content)
    if version != _VERSION:
        raise CorruptSnapshotError(f"{path} has version {version}, expected {_VERSION}")
    actual_crc = crc32c(memoryview(content)[_VERSION_AND_CRC.size :])
    if crc != actual_crc:
        raise CorruptSnapshotError(f"{path} has CRC {actual_crc}, expected {crc}")
    (count,) = _COUNT.unpack_from(content, _VERSION_AND_CRC.size)
    if len(content) != _ENTRIES_POSITION + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{path} has {len(content)} bytes, expected {count} entries")
    return [_decode_entry(fields) for fields in _ENTRY.iter_unpack(memoryview(content)[_ENTRIES_POSITION:])]


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else BatchMetadata(NONE, NONE, 0, NONE)
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        entry.current_transaction_first_offset,
    )


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, coordinator_epoch, first_offset = fields
    entry = ProducerEntry(producer_id, epoch)
    entry.last_timestamp_ms = timestamp_ms
    entry.coordinator_epoch = coordinator_epoch
    entry.current_transaction_first_offset = first_offset
    if last_offset >= 0:
        entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp_ms))
        entry.lacks_batches = True
    return entry
