"""Entries of a log in mixed formats: batches of magic 2 and messages of magic 0 and 1, in any order.

Owns the choice of the reader by the magic, which is at the same position in all formats. Must not know the formats.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from protocol.records.batch import MAGIC, MAGIC_POSITION, BatchHeader, Parts, Record, read_header, records
from protocol.records.compression import PLAIN_SIZE_MAX, RESIDENT_SIZE_MAX, Buffer
from protocol.records.legacy import (
    LEGACY_MAGICS,
    MessageHeader,
    entry_size,
    message_records,
    read_message_header,
)

_WRAPPED_SIZE_MAX: Final = 100 << 20


class Entry(NamedTuple):
    """A batch or message in a log of mixed formats, with its header but not opened."""

    position: int
    header: BatchHeader | MessageHeader

    @property
    def end(self) -> int:
        return self.position + self.header.size


def entries(buffer: Buffer) -> Iterator[Entry]:
    """Yield each whole entry of a buffer with mixed formats; a partial last one ends the iteration.

    Raises:
        Malformed: a whole entry is neither a batch nor a message.
    """
    position = 0
    while (size := entry_size(buffer, position)) is not None:
        is_batch = buffer[position + MAGIC_POSITION] == MAGIC
        yield Entry(position, read_header(buffer, position) if is_batch else read_message_header(buffer, position))
        position += size


def entry_records(
    buffer: Buffer, position: int = 0, *, size_max: int = PLAIN_SIZE_MAX, parts: Parts = Parts.ALL
) -> Iterator[Record]:
    """Yield the records of the stored entry at `position`, whatever its format.

    A batch is held one piece and one record at a time, with a zstd window of up to 128 MiB. The messages of a wrapper
    are held together, so they are limited to 100 MiB.

    Raises:
        Malformed: the entry is damaged.
    """
    if len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] in LEGACY_MAGICS:
        yield from message_records(buffer, position, size_max=min(size_max, _WRAPPED_SIZE_MAX))
    else:
        yield from records(buffer, position, size_max=size_max, parts=parts, window_size_max=RESIDENT_SIZE_MAX)
