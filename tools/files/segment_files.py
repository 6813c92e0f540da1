"""Reads files of a partition for kafka-dump-log: any path, perhaps damaged, perhaps being written.

Owns reading them without any change. Must not know what is printed.
"""

import os
import struct
from collections.abc import Iterator
from typing import Final

from protocol.records.batch import LOG_OVERHEAD, MAGIC_POSITION
from storage.batches.stored_batch import StoredBatch, batch_of, extent_at
from storage.disk.names import LOG
from storage.segments.offset_index import OffsetIndex, OffsetPosition
from storage.segments.time_index import TimeIndex, TimestampOffset

_PREFIX_SIZE: Final = 32  # all that `extent_at` reads, and a little more


class DumpError(Exception):
    """A file, or the rest of it, cannot be read. The text names the file and the reason."""


def base_offset_of(path: str) -> int:
    """Return the base offset in the name of a segment's file. Raises DumpError."""
    name = os.path.basename(path)
    digits = name.partition(".")[0]
    if not digits.isdecimal():
        raise DumpError(f"{path}: expected a name that begins with an offset, as 00000000000000000000.log does")
    return int(digits)


def beside(path: str, suffix: str) -> str:
    """Return the file of the same segment with another suffix."""
    return os.path.join(os.path.dirname(path), os.path.basename(path).partition(".")[0] + suffix)


def absolute(path: str) -> str:
    """Return the absolute path as java.io.File does: without resolving it."""
    return os.path.join(os.getcwd(), path)


def read_file(path: str) -> bytes:
    """Raises DumpError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise DumpError(f"{path}: {error.strerror}") from None


class LogFile:
    """The batches of one segment's log, read one after the other. `size_max` limits the bytes that are read."""

    def __init__(self, path: str, size_max: int | None = None) -> None:
        """Raises DumpError when it cannot be read."""
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise DumpError(f"{path}: {error.strerror}") from None
        self.path = path
        self.size = size if size_max is None else min(size, size_max)

    @classmethod
    def of_segment(cls, path: str) -> "LogFile":
        """Open the log that an index belongs to. Raises DumpError."""
        return cls(beside(path, LOG))

    def batches(self, position: int = 0) -> Iterator[StoredBatch]:
        """Yield the whole batches from `position` on, up to a partial last one.

        Raises DumpError for bytes that are not a batch.
        """
        try:
            with open(self.path, "rb") as file:
                while self.size - position > MAGIC_POSITION:
                    file.seek(position)
                    prefix = file.read(min(_PREFIX_SIZE, self.size - position))
                    size = LOG_OVERHEAD + int.from_bytes(prefix[8:LOG_OVERHEAD], "big", signed=True)
                    if size > self.size - position:
                        return
                    extent = extent_at(prefix, 0, position)
                    file.seek(position)
                    yield batch_of(extent, memoryview(file.read(size)))
                    position += size
        except OSError as error:
            raise DumpError(f"{self.path}: {error.strerror}") from None
        except (ValueError, struct.error) as error:
            raise DumpError(f"{self.path}: no batch at position {position}: {error}") from None


def offset_index_entries(path: str) -> list[OffsetPosition]:
    """Raises DumpError."""
    base_offset = base_offset_of(path)
    entries = _entries(path, OffsetIndex.ENTRY, offset_field=0)
    return [OffsetPosition(base_offset + relative_offset, position) for relative_offset, position in entries]


def time_index_entries(path: str) -> list[TimestampOffset]:
    """Raises DumpError."""
    base_offset = base_offset_of(path)
    entries = _entries(path, TimeIndex.ENTRY, offset_field=1)
    return [TimestampOffset(timestamp_ms, base_offset + relative_offset) for timestamp_ms, relative_offset in entries]


def _entries(path: str, layout: struct.Struct, *, offset_field: int) -> list[tuple[int, ...]]:
    """Return the entries of an index file up to the zeros at its end (active segment, or after a crash).

    Only the first entry can contain the base offset itself.
    """
    content = read_file(path)
    entries: list[tuple[int, ...]] = []
    for entry in layout.iter_unpack(content[: len(content) - len(content) % layout.size]):
        if entries and entry[offset_field] == 0:
            break
        entries.append(entry)
    return entries
