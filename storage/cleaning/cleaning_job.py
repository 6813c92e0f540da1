"""What a pass of the cleaner is given, and what it returns.

Apart from the pass, which runs in a process of its own: the broker does not load `storage.cleaning.cleaner`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from base.dataclass import dataclass
from storage.cleaning.compaction import ActiveProducer, SourceSegment
from storage.disk import names
from storage.disk.files import Files
from storage.segments.segment import CleanedSegment
from storage.segments.transaction_index import AbortedTransaction

MAP_MEMORY_MAX: Final = 2**31 - 1
"""How many bytes the map from keys to records may have."""


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """Everything a pass needs to know. `segments` are the sealed ones from the log's start to the uncleanable part.

    `later_segments` are the base offsets of those behind them that may hold markers of transactions in `segments`.
    """

    directory: str
    segments: Sequence[SourceSegment]
    later_segments: Sequence[int]
    first_dirty_offset: int
    aborted: Sequence[AbortedTransaction]
    producers: Mapping[int, ActiveProducer]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_memory: int
    map_load_factor: float = 0.9
    bytes_per_second_max: float = float("inf")
    buffer_size: int = 256 * 1024  # bytes read at a time, and as many written at a time


@dataclass(slots=True)
class CleaningResult:
    """`end_offset` is the first offset that is still dirty."""

    end_offset: int = 0
    segments: list[CleanedSegment] = field(default_factory=list)
    bytes_read: int = 0
    bytes_kept: int = 0
    io_size: int = 0
    """Bytes read and written, which the limit of the rate counts."""
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    map_utilization: float = 0.0
    map_probes: int = 0
    map_seconds: float = 0.0
    copy_seconds: float = 0.0


def unstage(files: Files, directory: str) -> None:
    """Remove the `.cleaned` files of a pass that failed or whose result is not used. Raises OSError.

    `.swap` files stay: `LogDisposal.swap_in` made them, and the segments that they replace may already be deleted.
    """
    try:
        entries = files.list_directory(directory)
    except FileNotFoundError:
        return  # the log was deleted
    for entry in entries:
        if entry.name.endswith(names.CLEANED):
            files.unlink_if_exists(f"{directory}/{entry.name}")
