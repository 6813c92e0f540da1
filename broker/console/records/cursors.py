"""Cursors: offsets by partition as one text, `0:120,1:99`.

Owns the format. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.console.problem import bad_request

PARTITIONS_MAX: Final = 10_000
PART_SIZE_MAX: Final = 40
INT64_MAX: Final = (1 << 63) - 1


def cursor_of(offsets: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in offsets.items())


def offsets_of_cursor(cursor: str) -> dict[int, int]:
    """Return the offsets by partition; none for an empty text. Raises ProblemError."""
    offsets: dict[int, int] = {}
    for part in cursor.split(",") if cursor else ():
        partition, _, offset = part.partition(":")
        is_number = partition.isascii() and partition.isdecimal() and offset.isascii() and offset.isdecimal()
        if not is_number or len(part) > PART_SIZE_MAX or len(offsets) >= PARTITIONS_MAX:
            raise bad_request(f"cursor part {part[:PART_SIZE_MAX]!r}: expected PARTITION:OFFSET, joined by commas")
        offsets[int(partition)] = min(int(offset), INT64_MAX)
    return offsets
