"""Flips a bit of a record batch on its way between two processes, where its receiver can notice it.

Owns the choice of the bit. Must not know which messages carry batches.

The checksum of a batch covers everything from its attributes on. Of what precedes it, a receiver can notice a leader
epoch that is far from those that it knows, but not a changed offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from protocol.crc import crc32c
from protocol.records.batch import CRC_COVERED_POSITION, HEADER, HEADER_SIZE, LOG_OVERHEAD

_EPOCH_POSITION: Final = 12
_MAGIC_POSITION: Final = 16
_MAGIC: Final = b"\x02"
_HIGH_BITS: Final = 16
"""The bits of a leader epoch that no run reaches."""


def with_flipped_bit(message: bytes, random: Random, *, epochs: bool) -> bytes | None:
    """Return the message with one bit of one of its batches flipped, or None if it has no batch.

    `epochs` says whether a high bit of a leader epoch may be chosen, which is so in half of the cases then.
    """
    found = list(_batches_in(message))
    if not found:
        return None
    start, end = random.choice(found)
    if epochs and random.random() < 0.5:
        bit = 8 * (start + _EPOCH_POSITION) + random.randrange(_HIGH_BITS)
    else:
        bit = random.randrange(8 * (start + CRC_COVERED_POSITION), 8 * end)
    flipped = bytearray(message)
    flipped[bit // 8] ^= 0x80 >> bit % 8
    return bytes(flipped)


def _batches_in(message: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each batch: of what looks like one and has the right checksum."""
    position = message.find(_MAGIC, _MAGIC_POSITION)
    while position >= 0:
        start = position - _MAGIC_POSITION
        following = position + 1
        if start + HEADER_SIZE <= len(message):
            _, length, _, _, crc, *_ = HEADER.unpack_from(message, start)
            end = start + LOG_OVERHEAD + length
            is_whole = HEADER_SIZE <= end - start <= len(message) - start
            if is_whole and crc32c(message[start + CRC_COVERED_POSITION : end]) == crc:
                yield start, end
                following = end + _MAGIC_POSITION
        position = message.find(_MAGIC, following)
