"""What the parts of one log share: its files, its offsets, its producers and epochs, and how failures are reported.

Owns these values and the rules that hold between them. Must not know how batches are appended, read or removed: the
parts do that (`log_appends`, `log_reader`, `log_truncation`, `log_durability`, `log_disposal`, `log_lookups`).

An I/O error fails the request with KAFKA_STORAGE_ERROR and is reported to the log manager, which takes the directory
offline; the log then rejects everything. A shortage of descriptors or memory fails the request with the same code, but
the log stays unchanged and in service. Only a shortage in a step that cannot be repeated takes the log offline.

Invariants, which `check` tests for a log in service that no thread is truncating:
- log start <= last stable offset <= high watermark <= log end.
- The first segment begins at or below the log start.
- The active segment begins at or below the log end.
- The end up to which readers look is the log end.
"""

from collections.abc import Callable
from dataclasses import field
from random import Random
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar
from uuid import UUID

from base.dataclass import dataclass
from base.topic_partition import TopicPartition
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from storage.batches.damaged_batches import DamagedBatches, MetBy
from storage.batches.validation import AppendRules
from storage.disk.directory_writer import DirectoryWriter
from storage.disk.files import Files, ShortageError
from storage.disk.partition_directory import PartitionDirectory
from storage.disk.shortages import OutOfResourcesError
from storage.log.segment_reader import SegmentReader
from storage.producers.producer_state import ProducerState
from storage.recovery.log_loader import LoadedLog
from storage.segments.leader_epochs import LeaderEpochs
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.segment import CorruptSegmentError
from storage.segments.segments import Segments

_REPORTS_MAX: Final = 100

L = TypeVar("L")


def _ignore(*_: object) -> None:
    """Do nothing: the default of callbacks."""


@dataclass(frozen=True, slots=True)
class LogOptions(Generic[L]):
    """What all logs of a directory share. L is the type of the log that callbacks receive."""

    files: Files
    random: Random
    on_io_error: Callable[[OSError], None] = _ignore
    on_shortage: Callable[[ShortageError], None] = _ignore
    on_damage: Callable[[str], None] = _ignore
    damaged_batches: DamagedBatches = field(default_factory=DamagedBatches)
    on_flush_wanted: Callable[[L], None] = _ignore  # after a roll, so that another thread syncs the sealed segment
    on_truncated: Callable[[L], None] = _ignore
    on_flushed: Callable[[float], None] = _ignore  # with its duration in seconds, in the thread of the flush
    on_log_start_raised: Callable[[L], None] = _ignore
    on_offline: Callable[[L], None] = _ignore  # in any thread
    on_write_finished: Callable[[L], None] = _ignore  # a planned append is stored or has failed
    writer: DirectoryWriter = field(default_factory=lambda: DirectoryWriter(""))


class EndGap(NamedTuple):
    """Offsets without records between the last batch and the end of the log, as a truncation left them."""

    start_offset: int
    end_offset: int


class LogState:
    """What the parts of one log share. Other rooms may read everything; only the parts and the owner change it."""

    __slots__ = (
        "_reported",
        "config",
        "end_gap",
        "files",
        "folder",
        "high_watermark",
        "is_offline",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "options",
        "partition",
        "producer_state",
        "rules",
        "segment_reader",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
        "truncation_count",
        "writer",
    )

    options: LogOptions[Self]

    def __init__(
        self,
        options: LogOptions[Any],
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
    ) -> None:
        self.topic, self.partition = name
        self.options = options
        self.files = options.files
        self.writer = options.writer
        self.folder = PartitionDirectory(options.files, directory)
        self.config = config
        self.rules = AppendRules.of(config)
        self.segments: Segments = loaded.segments
        self.snapshots = loaded.snapshots
        self.producer_state: ProducerState = loaded.producer_state
        self.leader_epochs: LeaderEpochs = loaded.leader_epochs
        self.topic_id: UUID | None = loaded.topic_id
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.end_gap: EndGap | None = None
        self.truncation_count = 0
        """Odd during a truncation."""
        self.is_offline = False
        active = loaded.segments.active
        self.segment_reader = SegmentReader(loaded.segments, (loaded.log_end_offset, active, active.size))
        self._reported: set[str] = set()

    @property
    def name(self) -> TopicPartition:
        return (self.topic, self.partition)

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        """Every transaction below it is committed or aborted, by a marker below the high watermark."""
        unstable_offset = self.producer_state.first_unstable_offset
        high_watermark = self.high_watermark
        if unstable_offset is None or unstable_offset >= high_watermark:
            return high_watermark
        return max(unstable_offset, self.log_start_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, but not past the log's end; return whether it rose. It never falls."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producer_state.first_unstable_offset is not None:
            self.producer_state.on_high_watermark(offset)
        return True

    def raise_log_start(self: Self, offset: int) -> None:
        self.leader_epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.producer_state.on_log_start(offset)
        self.options.on_log_start_raised(self)

    def end_of_batches(self, end_offset: int) -> int:
        """Return where the last stored batch ends; `end_offset` is the end of the log."""
        gap = self.end_gap
        return end_offset if gap is None or gap.end_offset != end_offset else gap.start_offset

    def was_truncated_since(self, truncation_count: int) -> bool:
        """Return whether what was read since `truncation_count` may mix batches from before and after a truncation."""
        return truncation_count != self.truncation_count or truncation_count % 2 == 1

    # Failures

    def refuse_offline(self) -> None:
        if self.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self.folder.path} is offline")

    def storage_error(self, error: OSError) -> KafkaError:
        if isinstance(error, ShortageError):
            self.options.on_shortage(error)
            return OutOfResourcesError(error)
        # If the log was offline before, for example because it is being deleted, the error does not prove a bad disk.
        if not self.is_offline:
            self.is_offline = True
            self.options.on_io_error(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def unfinished_error(self, error: OSError) -> KafkaError:
        """`storage_error` for a step that cannot be repeated: a shortage takes this log offline, and no other."""
        failed = self.storage_error(error)
        if isinstance(failed, OutOfResourcesError):
            self.take_offline()
            self.options.on_damage(f"{self.folder.path} is out of service until the next start: {error}")
        return failed

    def take_offline(self: Self) -> None:
        """Reject everything from now on: the directory has failed, or the files are about to be removed."""
        self.is_offline = True
        self.release()
        self.options.on_offline(self)

    def release(self) -> None:
        """Close all files and maps; they are opened again when needed."""
        for segment in self.segments.all():
            segment.release()
        self.segment_reader.forget_positions()

    def count_damage(self, damage: CorruptSegmentError | CorruptIndexError) -> None:
        if isinstance(damage, CorruptSegmentError):
            self.options.damaged_batches.add(MetBy.READ, damage, self.folder.path)

    def report_once(self, text: str) -> None:
        """Report `text` once: a consumer that repeats its fetch on damage must not fill the broker's log."""
        if text not in self._reported and len(self._reported) < _REPORTS_MAX:
            self._reported.add(text)
            self.options.on_damage(text)

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        if self.is_offline or self.was_truncated_since(self.truncation_count):
            return
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= self.log_end_offset, (
            "log start <= last stable offset <= high watermark <= log end"
        )
        assert self.segments.first.base_offset <= self.log_start_offset, (
            "The first segment begins at or below the log start"
        )
        assert self.segments.active.base_offset <= self.log_end_offset, (
            "The active segment begins at or below the log end"
        )
        assert self.segment_reader.end[0] == self.log_end_offset, "The end up to which readers look is the log end"
        self.leader_epochs.check()
