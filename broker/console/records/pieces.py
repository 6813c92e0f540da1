"""What reading records returns: records with their batches, ranges of offsets, and pieces of a partition.

Owns these values. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from base.dataclass import dataclass
from protocol.records.batch import BatchHeader, Record


class Found(NamedTuple):
    """One record, with the header of its batch."""

    partition: int
    record: Record
    header: BatchHeader


@dataclass(frozen=True, slots=True)
class Range:
    """The readable offsets of a partition; `end` is excluded."""

    start: int
    end: int


class Piece(NamedTuple):
    """What one read of a partition returned."""

    records: list[Found]
    next_offset: int
    """Where the next read begins."""
    size: int
    error_code: int
    problem: str
    """Why a batch could not be opened; empty if all could."""
    counted: int
    """Records in the batches, without control and aborted ones."""
    is_stuck: bool = False
    """Whether no whole batch was returned: the first one exceeds the limit, or there is none in the range."""
    opened_size: int = 0
    """About how many bytes of memory its records take."""
