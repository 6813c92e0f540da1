"""One partition's log: appends, reads, offsets, rolling, truncation, retention, flushing.

Owns the order of steps that keeps segments, producer state, leader epochs and offsets in agreement. Must not know
replicas, requests or other partitions: the replica layer tells it how far the high watermark is, the log manager which
directory it lives in. Knows no threads of its own.

While its directory is slow (`storage.directory_writer`), an append is planned at once and stored later, in the
directory's thread. The log's end, and with it all that may be read, synced or acknowledged, is where it is stored;
`next_offset` is where it is planned. One write of a log is stored at a time, and nothing else changes its files
meanwhile, so what that thread does is what this module does anywhere else.

Threads: everything that changes the log belongs to one thread, but for the storing of a planned append. `read`, the
look-ups by time, `flush` and `start_writeback` may run in others meanwhile.

Invariants:
- log start <= last stable offset <= high watermark <= log end.
- A batch is checked, written, and only then counted: whatever raises leaves offsets and producer state as they were.
- An I/O error is answered KAFKA_STORAGE_ERROR and told to the log manager, which takes the directory out of service;
  from then on the log refuses everything. A shortage of descriptors or memory is answered the same, but leaves the log
  as it was and in service; only where it interrupts a step that cannot be repeated, the log alone goes offline.
- Renaming the directory is one step for the thread that owns the log; others that looked for a file under the old name
  meanwhile look again.
- The producers' state is that of the planned end. A snapshot that a roll writes is taken when the append is planned.
- Nothing is synced before an append returns. What a crash of the machine may take lies at or above `recovery_point`.
"""

import contextlib
import errno
import os.path
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, overload
from uuid import UUID

from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from protocol.records.compression import Buffer
from protocol.records.control import TransactionMarker
from storage import checkpoints, names
from storage.checkpoints import TopicPartition
from storage.compaction import CleanedSegment
from storage.damaged_batches import DamagedBatches, MetBy
from storage.directory_writer import SLOW_WRITE_S, Action, DirectoryWriter
from storage.files import Files, FileSlice, ShortageError
from storage.leader_epochs import LeaderEpochs
from storage.log_loader import PRODUCERS_UNKNOWN, LoadedLog, LoadProgress, LogLoader, epochs_writer, state_at
from storage.log_reader import FetchedRecords, FoundOffset, LogReader
from storage.mapped_index import CorruptIndexError
from storage.names import DirectoryState
from storage.producer_snapshots import ProducerSnapshots, encode
from storage.producer_state import BatchMetadata, ProducerState, marker_in
from storage.replicated import check_replicated
from storage.retention import NO_LIMIT, RetentionPolicy, SegmentFacts, count_to_delete
from storage.segment import RELATIVE_OFFSET_MAX, CorruptSegmentError, NotInMemoryError, Segment, SegmentGoneError
from storage.segments import Segments
from storage.shortages import OutOfResourcesError, TryLaterError
from storage.stored_batch import StoredBatch
from storage.transaction_index import AbortedTransaction
from storage.validation import (
    AppendOrigin,
    AppendRules,
    PreparedAppend,
    Refusal,
    prepare,
    validate_and_assign_offsets,
)

__all__ = [
    "AppendOrigin",
    "AppendResult",
    "FetchedRecords",
    "FlushHeldError",
    "Log",
    "LogOptions",
    "PreparedAppend",
    "Refusal",
    "TimestampedOffset",
]

_REPORTS_MAX: Final = 100
# Of batches that are written together. An index has one entry for them, behind which an offset is searched.
_JOINED_SIZE_MAX: Final = 64 * 1024


_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class


class FlushHeldError(TryLaterError):
    """The log may not be flushed while it is replaced by its copy in another directory, see `Log.hold_flushes`."""


class AppendResult(NamedTuple):
    """`log_append_time_ms` is -1 with CreateTime. All offsets are -1 when there was nothing to append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False
    records_converted: int = 0


class TimestampedOffset(NamedTuple):
    """A record found by time, with the epoch of the leader that wrote it (-1 when unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def _ignore(*_: object) -> None:
    """For callbacks nobody has set."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What a log needs from its surroundings. One object serves all logs of a directory."""

    files: Files
    random: Random
    on_io_error: Callable[[OSError], None] = _ignore
    on_shortage: Callable[[ShortageError], None] = _ignore
    on_damage: Callable[[str], None] = _ignore
    damaged_batches: DamagedBatches = field(default_factory=DamagedBatches)
    on_flush_wanted: Callable[["Log"], None] = _ignore  # after a roll: the sealed segment is to be synced, off the loop
    on_truncated: Callable[["Log"], None] = _ignore
    on_flushed: Callable[[float], None] = _ignore  # with the seconds it took; in the thread of the flush
    on_log_start_raised: Callable[["Log"], None] = _ignore
    on_offline: Callable[["Log"], None] = _ignore  # in any thread
    on_write_finished: Callable[["Log"], None] = _ignore  # of a planned append, which is stored now or has failed
    writer: DirectoryWriter = field(default_factory=lambda: DirectoryWriter(""))


class _PlannedAppend:
    """Batches that have their offsets and are part of their producers' state, on the way into the files of `log`.

    Before it has begun, the batches of following appends may `join` it: one write then does for all of them.
    """

    __slots__ = (
        "aborted",
        "config",
        "has_begun",
        "largest_ms",
        "largest_offset",
        "last_offset",
        "leader_epoch",
        "log",
        "now_ms",
        "offset",
        "records",
        "segment",
        "snapshot",
    )

    def __init__(
        self,
        log: "Log",
        offset: int,
        leader_epoch: int,
        now_ms: int,
        snapshot: bytes | None,
    ) -> None:
        self.log = log
        self.records = bytearray()
        self.offset = offset
        self.last_offset = offset
        self.largest_ms = NO_TIMESTAMP
        self.largest_offset = offset
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms
        self.aborted: list[AbortedTransaction] = []
        self.snapshot = snapshot
        """Of the producers before this append, if that may begin a segment."""
        self.config = log.config
        self.has_begun = False
        self.segment: Segment | None = None
        """Where it was stored."""

    @property
    def size(self) -> int:
        return len(self.records)

    def join(
        self, records: Buffer, last_offset: int, max_timestamp_ms: int, aborted: AbortedTransaction | None
    ) -> None:
        self.records += records
        self.last_offset = last_offset
        if max_timestamp_ms > self.largest_ms or self.largest_ms == NO_TIMESTAMP:
            self.largest_ms, self.largest_offset = max_timestamp_ms, last_offset
        if aborted is not None:
            self.aborted.append(aborted)

    def begin(self) -> None:
        self.has_begun = True

    def store(self) -> None:
        self.log._store_planned(self)

    def finish(self, error: Exception | None) -> None:
        self.log._finish_planned(self, error)


class Log:
    """See the module. `log_start_offset`, `log_end_offset`, `high_watermark` and `recovery_point` are for reading."""

    __slots__ = (
        "_deleted",
        "_directory",
        "_dropped",
        "_files",
        "_flushed_ms",
        "_flushing",
        "_is_drained",
        "_is_flush_held",
        "_is_metadata_synced",
        "_last_planned",
        "_lowering",
        "_naming",
        "_now_s",
        "_options",
        "_planned_count",
        "_planned_end_offset",
        "_planned_size",
        "_previous_directory",
        "_producers",
        "_reader",
        "_reported",
        "_rules",
        "_segments",
        "_snapshots",
        "_was_scanned",
        "_when_flush_released",
        "_when_stored",
        "_writer",
        "config",
        "high_watermark",
        "is_offline",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "recovery_point",
        "topic",
        "topic_id",
        "truncation_count",
    )

    def __init__(
        self,
        options: LogOptions,
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        now_ms: int,
    ) -> None:
        """Made by `Log.create` and `Log.load`."""
        self.topic, self.partition = name
        self._options = options
        self._files = options.files
        self._writer = options.writer
        self._now_s = options.writer.now_s
        self._last_planned: _PlannedAppend | None = None
        self._planned_count = 0  # of appends that are not stored yet; the next two count only while there are some
        self._planned_end_offset = 0
        self._planned_size = 0  # of the segment that will be the active one
        self._when_stored: list[Action] = []
        self._is_drained = False
        self._is_flush_held = False
        self._when_flush_released: list[Action] = []
        self._directory = directory
        self._previous_directory: str | None = None
        self._naming = threading.Lock()  # held while the directory gets another name
        self._flushing = threading.Lock()  # held while files are synced
        self._lowering = threading.Lock()  # held where a truncation begins and where the recovery point rises
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self._producers = loaded.producer_state
        self._deleted: deque[tuple[int, str]] = deque()  # (due, file name), rising
        self._dropped: deque[tuple[Segment, str | None]] = deque()  # out of the log, under their old names; snapshots
        self._flushed_ms = now_ms
        self._reported: set[str] = set()
        self.truncation_count = 0
        self._is_metadata_synced = False
        self.leader_epochs: LeaderEpochs = loaded.leader_epochs
        self.topic_id: UUID | None = loaded.topic_id
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self._was_scanned = loaded.was_scanned  # and not flushed since
        self.high_watermark = loaded.log_start_offset
        self.is_offline = False
        active = loaded.segments.active
        self._reader = LogReader(loaded.segments, (loaded.log_end_offset, active, active.size))
        self.reconfigure(config)

    @classmethod
    def create(
        cls,
        options: LogOptions,
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        *,
        topic_id: UUID | None,
        now_ms: int,
    ) -> "Log":
        """A new, empty log in a directory that does not exist yet. Raises OSError."""
        files = options.files
        files.make_directory(directory)
        try:
            return cls._create_in(options, directory, name, config, topic_id, now_ms)
        except OSError:
            _remove_unfinished(files, directory)
            raise

    @classmethod
    def _create_in(
        cls,
        options: LogOptions,
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        topic_id: UUID | None,
        now_ms: int,
    ) -> "Log":
        files = options.files
        segment = Segment(
            files,
            directory,
            0,
            now_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            index_size_max=config.segment_index_bytes,
            roll_jitter_ms=_jitter_ms(config, options.random),
        )
        segment.create(preallocate_size=config.segment_bytes if config.preallocate else 0)
        segment.release()
        loaded = LoadedLog(
            segments=Segments([segment]),
            producer_state=ProducerState(f"{name.topic}-{name.partition}"),
            snapshots=ProducerSnapshots(files, directory, ()),
            leader_epochs=LeaderEpochs((), epochs_writer(files, directory)),
            topic_id=None,
            log_start_offset=0,
            log_end_offset=0,
            recovery_point=0,
        )
        log = cls(options, directory, name, config, loaded, now_ms)
        if topic_id is not None:
            log._write_topic_id(topic_id)
        return log

    @classmethod
    def load(
        cls,
        options: LogOptions,
        directory: str,
        name: TopicPartition,
        config: LogConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        high_watermark: int,
        is_clean: bool,
        now_ms: int,
        progress: LoadProgress,
        gaps_below: int = 0,
    ) -> "Log":
        """Opens what is there, repairing it. The offsets are those of the checkpoints, 0 where there is none.

        Below `gaps_below`, and below the recovery point, offsets may be missing between two segments.

        Raises OSError. Any thread.
        """
        loader = LogLoader(
            options.files,
            directory,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            is_clean=is_clean,
            gaps_below=gaps_below,
            now_ms=now_ms,
            progress=progress,
        )
        log = cls(options, directory, name, config, loader.load(), now_ms)
        for segment in log._segments.all():
            segment.roll_jitter_ms = _jitter_ms(config, options.random)
            segment.release()
        log.advance_high_watermark(high_watermark)
        return log

    # What it is

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def directory(self) -> Path:
        return Path(self._directory)

    @property
    def is_future(self) -> bool:
        """Whether this is a copy on its way to another log directory, not in service yet."""
        return self._directory.endswith(f"-{DirectoryState.FUTURE.value}")

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return self._segments.size

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def segments(self) -> Segments:
        """For the cleaner and for tools; segments are changed by the log alone."""
        return self._segments

    @property
    def first_file_offset(self) -> int:
        """Where the log would start by the names of its files alone. Any thread."""
        first_offset = self._segments.first.base_offset  # before the look at what was dropped, see `drop_expired`
        with contextlib.suppress(IndexError):
            return self._dropped[0][0].base_offset
        return first_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, and the decision is below the high watermark."""
        unstable_offset = self._producers.first_unstable_offset
        high_watermark = self.high_watermark
        if unstable_offset is None or unstable_offset >= high_watermark:
            return high_watermark
        return max(unstable_offset, self.log_start_offset)

    def producers(self) -> ProducerState:
        """For reading."""
        return self._producers

    def reconfigure(self, config: LogConfig) -> None:
        """Applies from the next append on."""
        self.config = config
        self._rules = AppendRules.of(config)
        self._activate(self._segments.active)

    def _activate(self, segment: Segment) -> None:
        """The present configuration holds for the segment that is appended to."""
        config = self.config
        age_ms_max = config.segment_ms
        if "compact" in config.cleanup_policy:
            age_ms_max = min(age_ms_max, config.max_compaction_lag_ms)
        segment.index_interval_bytes = config.index_interval_bytes
        segment.set_limits(size_max=config.segment_bytes, age_ms_max=age_ms_max)

    def assign_topic_id(self, topic_id: UUID) -> None:
        """For a log that has none yet. Whether an id is the right one is for the replica layer to say."""
        assert self.topic_id is None
        try:
            self._write_topic_id(topic_id)
        except OSError as error:
            raise self._storage_error(error) from error

    def _write_topic_id(self, topic_id: UUID) -> None:
        checkpoints.write_partition_metadata(self._files, f"{self._directory}/{names.PARTITION_METADATA}", topic_id)
        self.topic_id = topic_id

    # Appending

    def prepare(self, records: memoryview, *, now_ms: int, origin: AppendOrigin) -> PreparedAppend | Refusal:
        """Decides on `records`, and converts them, by the present configuration. Any thread.

        `records` belongs to this call until what it returns was appended.
        """
        return prepare(records, self._rules, now_ms=now_ms, origin=origin)

    def assign_epoch(self, leader_epoch: int) -> None:
        """Records that a leader's epoch begins at the end of the log, before the leader accepts records.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._refuse_offline()
        # Where it begins is told now: its first appends may be planned before it can be recorded.
        self.between_writes(partial(self._begin_epoch, leader_epoch, self.next_offset))

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.begin(leader_epoch, start_offset)

    def append_as_leader(
        self,
        records: memoryview | PreparedAppend,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_take_long: bool = True,
    ) -> AppendResult:
        """Gives the records of one request, as they came or as `prepare` made them, their offsets and writes them.

        `records` is writable and is changed in place, also when it is refused. Raises KafkaError: what validation
        refuses (see there), what the producer's state forbids, KAFKA_STORAGE_ERROR. Unless it `may_take_long`, raises
        TooCostlyError for records that should go through `prepare` in a thread first, and leaves them as they were.
        Whatever is raised, nothing was written and no state has changed. A batch that is among the last five of its
        producer is not written again; the result is that of the first time.
        """
        if self.is_offline:
            self._refuse_offline()
        offset = self._planned_end_offset if self._planned_count else self.log_end_offset
        if type(records) is memoryview:
            validated = validate_and_assign_offsets(
                records,
                self._rules,
                next_offset=offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                origin=origin,
                may_take_long=may_take_long,
            )
        else:
            assert isinstance(records, PreparedAppend)
            validated = records.at(offset, leader_epoch)
        if validated is None:
            return AppendResult(-1, -1, NO_TIMESTAMP, self.log_start_offset)
        accepted, header, log_append_time_ms, records_converted = validated
        marker = None
        has_producer = header.producer_id != NO_PRODUCER_ID
        if has_producer:
            duplicate, marker = self._check_producer(accepted, header, offset, origin)
            if duplicate is not None:
                return self._answer_of_duplicate(duplicate)
        last_offset = offset + header.last_offset_delta
        if self._writer.is_slow:
            self._plan(accepted, header, offset, marker, leader_epoch, now_ms)
        else:
            self._write(accepted, offset, last_offset, header.max_timestamp, last_offset, leader_epoch, now_ms)
            if has_producer:
                self._take_in(header, offset, marker)
        return _new_tuple(
            AppendResult, (offset, last_offset, log_append_time_ms, self.log_start_offset, False, records_converted)
        )

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Writes what a leader has sent, with its offsets and epochs. What `check_replicated` leaves out may follow.

        Raises KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE (see `check_replicated`), KAFKA_STORAGE_ERROR.
        """
        self._refuse_offline()
        self._refuse_planned()
        checked = check_replicated(records, next_offset=self.log_end_offset)
        if not checked.batches:
            return AppendResult(-1, -1, NO_TIMESTAMP, self.log_start_offset)
        first_offset, last_offset = checked.first_offset, checked.last_offset
        try:
            for batch in checked.batches:
                if batch.leader_epoch > self.leader_epochs.latest:
                    self.leader_epochs.assign(batch.leader_epoch, batch.extent.base_offset)
        except OSError as error:
            raise self._storage_error(error) from error
        largest_ms, largest_offset = checked.largest
        self._write(
            checked.records,
            first_offset,
            last_offset,
            largest_ms,
            largest_offset,
            self.leader_epochs.latest,
            now_ms,
        )
        for batch in checked.batches:
            self._take_in_replicated(batch)
        return AppendResult(first_offset, last_offset, NO_TIMESTAMP, self.log_start_offset)

    def _write(
        self,
        records: Buffer,
        first_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        max_timestamp_offset: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Raises KafkaError: KAFKA_STORAGE_ERROR."""
        segment = self._segments.active
        now_s = self._now_s
        started_s = now_s()
        try:
            # The first append is `_store` of nearly all batches, without another call.
            try:
                is_stored = leader_epoch <= self.leader_epochs.latest_written and segment.append(
                    records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms
                )
            except (CorruptSegmentError, CorruptIndexError):
                is_stored = False  # `_store` meets the same damage
            if not is_stored:
                segment = self._store(
                    records,
                    first_offset,
                    last_offset,
                    max_timestamp_ms,
                    max_timestamp_offset,
                    leader_epoch,
                    now_ms,
                    end_offset=self.log_end_offset,
                )
        except OSError as error:
            raise self._storage_error(error) from error
        elapsed_s = now_s() - started_s
        self.log_end_offset = end_offset = last_offset + 1
        self._reader.end = (end_offset, segment, segment.size)
        if elapsed_s > SLOW_WRITE_S:
            self._writer.note_slow_write(elapsed_s)

    def _store(
        self,
        records: Buffer,
        first_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        max_timestamp_offset: int,
        leader_epoch: int,
        now_ms: int,
        *,
        end_offset: int,
        snapshot: bytes | None = None,
    ) -> Segment:
        """Puts batches into the active segment, or a new one; returns which. Raises OSError: nothing was put there.

        `end_offset` is the end of what is stored, which in the directory's thread may be ahead of `log_end_offset`.
        Where damage in the active segment hides its first or greatest timestamp, by which it is rolled and indexed, a
        new segment begins: producers can go on, and what is good in the damaged one can be read.
        """
        if leader_epoch > self.leader_epochs.latest_written:
            self.leader_epochs.assign(leader_epoch, first_offset)
        segment = self._segments.active
        try:
            taken = segment.append(records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms)
        except (CorruptSegmentError, CorruptIndexError) as damage:
            self._count_damage(damage)
            self._report_once(f"{damage}; a new segment begins at offset {end_offset}")
            taken = False
        if not taken:
            # At the log's end also where the leader's log has a gap behind that, so that a start after a crash can
            # tell such a gap from records that were lost. Only a gap of 2^31 offsets is too wide for a segment.
            base_offset = first_offset if last_offset - end_offset > RELATIVE_OFFSET_MAX else end_offset
            segment = self._roll(base_offset, now_ms, snapshot)
            taken = segment.append(records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms)
            assert taken, f"a segment from {base_offset} on cannot hold offset {last_offset}"
        return segment

    # Appends that wait for a slow directory

    @property
    def next_offset(self) -> int:
        """The offset of the next record. Those from the log's end on are planned and not stored yet."""
        return self._planned_end_offset if self._planned_count else self.log_end_offset

    @property
    def is_slow(self) -> bool:
        """Whether appends are planned first and stored later."""
        return self._writer.is_slow

    @property
    def has_planned(self) -> bool:
        """Whether appends wait to be stored."""
        return self._planned_count > 0

    @property
    def has_room(self) -> bool:
        """Whether producers may append now; `when_room` tells when to ask again."""
        return self._writer.has_room and not self._is_drained

    def when_room(self, action: Action) -> None:
        self._writer.when_room(action)

    def drain(self, action: Action) -> None:
        """Has no room until `end_drain`, and calls `action` once all that is planned is stored or has failed."""
        self._is_drained = True
        if self._planned_count:
            self._when_stored.append(action)
        else:
            action()

    def end_drain(self) -> None:
        if self._is_drained:
            self._is_drained = False
            self._writer.announce_room()

    def between_writes(self, action: Action) -> None:
        """Calls `action`, which may change the log, while no planned append of it is being stored: now, or soon."""
        self._writer.run_between(self, action)

    @property
    def is_being_written(self) -> bool:
        """Whether a planned append is being stored; then the log must not be changed, see `between_writes`."""
        return self._planned_count > 0 and self._writer.is_writing(self)

    def _plan(
        self,
        records: Buffer,
        header: BatchHeader,
        offset: int,
        marker: TransactionMarker | None,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """`header` says what the batch was before it had its offset. `records` are copied."""
        size = len(records)
        position = self._planned_size if self._planned_count else self._segments.active.size
        snapshot = None
        if position and position + size > self.config.segment_bytes:
            snapshot = encode(self._producers.producers.values())
            position = 0
        aborted = None
        if header.producer_id != NO_PRODUCER_ID:
            aborted = self._producers.append(header, offset, marker)
        last_offset = offset + header.last_offset_delta
        self._planned_size = position + size
        self._planned_end_offset = last_offset + 1
        planned = self._last_planned
        if (
            planned is not None
            and not planned.has_begun
            and planned.leader_epoch == leader_epoch
            and snapshot is None
            and planned.size + size <= _JOINED_SIZE_MAX
        ):
            planned.join(records, last_offset, header.max_timestamp, aborted)
            self._writer.grew(size)
            return
        planned = self._last_planned = _PlannedAppend(self, offset, leader_epoch, now_ms, snapshot)
        planned.join(records, last_offset, header.max_timestamp, aborted)
        self._planned_count += 1
        self._writer.submit(planned)

    def _store_planned(self, planned: _PlannedAppend) -> None:
        """In the directory's thread. Raises OSError, CorruptIndexError."""
        segment = self._store(
            planned.records,
            planned.offset,
            planned.last_offset,
            planned.largest_ms,
            planned.largest_offset,
            planned.leader_epoch,
            planned.now_ms,
            end_offset=planned.offset,
            snapshot=planned.snapshot,
        )
        for aborted in planned.aborted:
            self._index_aborted(segment, aborted)
        planned.segment = segment

    def _finish_planned(self, planned: _PlannedAppend, error: Exception | None) -> None:
        self._planned_count -= 1
        if not self._planned_count:
            self._last_planned = None
        if error is not None and not self.is_offline:
            self._give_up(error)
        segment = planned.segment
        if segment is not None and not self.is_offline:
            self.log_end_offset = end_offset = planned.last_offset + 1
            self._reader.end = (end_offset, segment, segment.size)
            if planned.config is not self.config:
                self._activate(self._segments.active)  # it may have been made by the configuration before
        self._options.on_write_finished(self)
        if not self._planned_count:
            due, self._when_stored = self._when_stored, []
            for action in due:
                action()

    def _give_up(self, error: Exception) -> None:
        """An append that was planned cannot be stored, and what was planned after it neither."""
        if isinstance(error, OSError):
            self._unfinished_error(error)
        else:
            self.take_offline()
            self._options.on_damage(f"{self._directory} is out of service until the next start: {error!r}")

    def _refuse_change(self) -> None:
        """Raises TryLaterError while a planned append is being stored."""
        if self.is_being_written:
            raise TryLaterError(f"{self._directory} is being written")

    def _refuse_planned(self) -> None:
        """Raises TryLaterError while appends are planned, whose offsets a change would make wrong."""
        if self._planned_count:
            raise TryLaterError(f"{self._planned_count} appends to {self._directory} are not written yet")

    def _check_producer(
        self, records: Buffer, header: BatchHeader, offset: int, origin: AppendOrigin
    ) -> tuple[BatchMetadata | None, TransactionMarker | None]:
        """The kept batch that this one repeats, and the marker that it is."""
        producers = self._producers
        if header.is_control:
            marker = marker_in(records, 0, header)
            if marker is not None:
                producers.check_marker(header, marker, offset)
            return None, marker
        if origin is AppendOrigin.COORDINATOR:
            producers.check_coordinator_data(header, offset)
            return None, None
        duplicate = producers.duplicate_of(header)
        if duplicate is None:
            producers.check_data(header, offset)
        return duplicate, None

    def _answer_of_duplicate(self, duplicate: BatchMetadata) -> AppendResult:
        log_append_time_ms = duplicate.timestamp_ms if self._rules.is_log_append_time else NO_TIMESTAMP
        return AppendResult(
            duplicate.first_offset, duplicate.last_offset, log_append_time_ms, self.log_start_offset, is_duplicate=True
        )

    def _take_in(self, header: BatchHeader, offset: int, marker: TransactionMarker | None) -> None:
        """Raises KafkaError: KAFKA_STORAGE_ERROR."""
        aborted = self._producers.append(header, offset, marker)
        if aborted is not None:
            try:
                self._index_aborted(self._segments.active, aborted)
            except OSError as error:
                raise self._storage_error(error) from error

    def _index_aborted(self, segment: Segment, aborted: AbortedTransaction) -> None:
        """Of a marker that is in `segment` already. Raises OSError, CorruptIndexError."""
        try:
            segment.transaction_index.append(aborted)
        except ShortageError as error:
            self._options.on_shortage(error)  # the index keeps the entry and writes it later

    def _take_in_replicated(self, batch: StoredBatch) -> None:
        header = batch.header
        if header is not None and header.producer_id != NO_PRODUCER_ID:
            marker = marker_in(batch.view, 0, header) if header.is_control else None
            self._take_in(header, header.base_offset, marker)

    # Reading

    @overload
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_batch: bool,
        nowait: bool = False,
        with_aborted: bool = False,
    ) -> FetchedRecords[memoryview] | None: ...

    @overload
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_batch: bool,
        nowait: bool,
        may_slice: bool,
        with_aborted: bool = False,
    ) -> FetchedRecords[memoryview | FileSlice] | None: ...

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_batch: bool,
        nowait: bool = False,
        may_slice: bool = False,
        with_aborted: bool = False,
    ) -> FetchedRecords[Any] | None:
        """The bytes from the batch that holds `offset` on, or from the next one where a cleaning left a gap.

        At most `max_bytes`, except that with `min_one_batch` the first batch comes whole; the end may be a partial
        batch. Nothing at or above `upper_bound_offset`. Empty at the end. With `nowait` the answer is None when the
        bytes are not in memory: ask again without it, in a thread. With `may_slice`, much that is in memory may stay in
        its file; what is read from the disk never does. With `with_aborted` come the aborted transactions that overlap
        what is returned, from the same segments; then nothing above the last stable offset may be asked for. Raises
        KafkaError: OFFSET_OUT_OF_RANGE below the log's start or above its end, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        Any thread.
        """
        while True:
            self._refuse_offline()
            if not self.log_start_offset <= offset <= self.log_end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Received request for offset {offset} for partition {self.topic}-{self.partition}, but we only "
                    f"have log segments from offset {self.log_start_offset} up to {self.log_end_offset}.",
                )
            truncation_count = self.truncation_count
            try:
                fetched = self._reader.read(
                    offset,
                    max_bytes,
                    upper_bound_offset,
                    min_one_batch=min_one_batch,
                    wait=not nowait,
                    may_slice=may_slice and nowait,
                    with_aborted=with_aborted,
                )
            except NotInMemoryError:
                return None
            except (SegmentGoneError, OSError) as error:
                self._expect_removal(error, offset, truncation_count)
                continue
            except (CorruptIndexError, CorruptSegmentError) as damage:
                if nowait:
                    return None
                if self._was_truncated_since(truncation_count):
                    raise self._gone_error(offset) from damage
                try:
                    return self._read_without_index(
                        damage,
                        offset,
                        max_bytes,
                        upper_bound_offset,
                        min_one_batch=min_one_batch,
                        with_aborted=with_aborted,
                    )
                except (SegmentGoneError, OSError) as error:
                    self._expect_removal(error, offset, truncation_count)
                    continue
            if self._was_truncated_since(truncation_count):
                raise self._gone_error(offset)
            return fetched

    def _expect_removal(self, error: SegmentGoneError | OSError, offset: int, truncation_count: int) -> None:
        """Returns if a segment's files were removed or renamed before the reader opened them: the read is repeated.

        The segments that the log has now hold the offset, or the log starts above it. The repetition ends, because a
        segment leaves the log before its files go. After a truncation the read fails instead: the caller's upper bound
        may lie above what is committed now. Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        if isinstance(error, SegmentGoneError):
            if self._was_truncated_since(truncation_count):
                raise self._gone_error(offset) from error
        elif not self._has_moved(error):
            raise self._storage_error(error) from error

    def _was_truncated_since(self, truncation_count: int) -> bool:
        """Whether what another thread has read meanwhile may be from before and from after a truncation."""
        return truncation_count != self.truncation_count or truncation_count % 2 == 1

    def _read_without_index(
        self,
        damage: Exception,
        offset: int,
        max_bytes: int,
        upper_bound_offset: int,
        *,
        min_one_batch: bool,
        with_aborted: bool,
    ) -> FetchedRecords[memoryview | FileSlice]:
        """A second try that does not ask the index: what looked like damage of the log may be an index that lies.

        If so, the index of a sealed segment goes, and is rebuilt at the next start. That of the active one stays as it
        is, because this may not be the thread that appends to it. Where the log itself is damaged the index stays: it
        is the way to what lies behind. Raises KafkaError CORRUPT_MESSAGE, SegmentGoneError, OSError.
        """
        try:
            fetched = self._reader.read_without_index(
                offset, max_bytes, upper_bound_offset, min_one_batch=min_one_batch, with_aborted=with_aborted
            )
        except (CorruptSegmentError, CorruptIndexError) as error:
            self._count_damage(error)
            self._report_once(f"{error}; answered CORRUPT_MESSAGE")
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        self._report_once(f"{damage}; read without the index")
        segment = self._segments.floor(offset)
        if segment is not None and segment is not self._segments.active:
            segment.offset_index.reset()
        return fetched

    def _count_damage(self, damage: CorruptSegmentError | CorruptIndexError, met_by: MetBy = MetBy.READ) -> None:
        if isinstance(damage, CorruptSegmentError):
            self._options.damaged_batches.add(met_by, damage, self._directory)

    def _report_once(self, text: str) -> None:
        """A consumer that comes back to the same damage again and again must not fill the broker's log."""
        if text not in self._reported and len(self._reported) < _REPORTS_MAX:
            self._reported.add(text)
            self._options.on_damage(text)

    def size_between(self, start_offset: int, end_offset: int) -> int | None:
        """Bytes from the batch that holds one offset up to the batch that holds the other; 0 when there are none.

        None when it cannot be told from what is in memory, or something is wrong: whoever reads it will learn what.
        """
        try:
            return self._reader.size_between(start_offset, end_offset)
        except (NotInMemoryError, SegmentGoneError, OSError, CorruptIndexError, CorruptSegmentError):
            return None

    def offset_for_timestamp(self, timestamp_ms: int, *, upper_bound_offset: int) -> TimestampedOffset | None:
        """The first record whose timestamp is not below the given one; None if that is at the bound. Any thread."""
        return self._found(
            lambda: self._reader.first_at_or_after(timestamp_ms, self.log_start_offset), upper_bound_offset
        )

    def max_timestamp(self, *, upper_bound_offset: int) -> TimestampedOffset | None:
        """The first record with the greatest timestamp; None when it is not below the bound. Any thread."""
        return self._found(self._reader.with_max_timestamp, upper_bound_offset)

    def _found(self, look_up: Callable[[], FoundOffset | None], upper_bound_offset: int) -> TimestampedOffset | None:
        self._refuse_offline()
        truncation_count = self.truncation_count
        try:
            found = look_up()
        except SegmentGoneError:
            # Retention or a cleaning has removed it during the look-up: the present segments are searched instead.
            return None if self._was_truncated_since(truncation_count) else self._found(look_up, upper_bound_offset)
        except (CorruptIndexError, CorruptSegmentError) as damage:
            if self._was_truncated_since(truncation_count):
                return None
            self._count_damage(damage)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except OSError as error:
            if self._has_moved(error):
                return self._found(look_up, upper_bound_offset)
            raise self._storage_error(error) from error
        if found is None or found.offset >= upper_bound_offset:
            return None
        return TimestampedOffset(found.timestamp_ms, found.offset, self.leader_epochs.epoch_at(found.offset))

    def legacy_offsets_before(self, timestamp_ms: int, max_count: int, *, now_ms: int) -> list[int]:
        """The answer to ListOffsets 0: base offsets of segments not younger than the timestamp, newest first.

        -1 asks from the log's end, -2 for its start. Segments count as old as their files; the log's end as of now.
        """
        offsets = [(max(segment.base_offset, self.log_start_offset), segment) for segment in self._segments.all()]
        aged = [(offset, segment.modified_ms) for offset, segment in offsets]
        if self._segments.active.size:
            aged.append((self.log_end_offset, now_ms))
        if timestamp_ms == -2:
            aged = aged[:1]
        elif timestamp_ms != -1:
            while aged and aged[-1][1] > timestamp_ms:
                aged.pop()
        return [offset for offset, _ in reversed(aged)][:max_count]

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that have records from `start_offset` on and below `end_offset`. Any thread.

        For who reads no records along with it; see `read` for who does. Raises KafkaError: CORRUPT_MESSAGE when that
        cannot be told, KAFKA_STORAGE_ERROR.
        """
        try:
            return self._reader.aborted_transactions(self._segments.all(), start_offset, end_offset)
        except CorruptIndexError as damage:
            self._report_once(f"{damage}; answered CORRUPT_MESSAGE")
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except OSError as error:
            raise self._storage_error(error) from error

    # Offsets

    def advance_high_watermark(self, offset: int) -> bool:
        """Moves it forward, never back and never past the log's end. True when it has moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._producers.first_unstable_offset is not None:
            self._producers.on_high_watermark(offset)
        return True

    def delete_records_before(self, offset: int) -> None:
        """Raises the log's start. Segments that lie below it go with the next `expire`.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark; nothing happens below the present start.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.topic}-{self.partition} since "
                f"it is larger than the high watermark {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self._refuse_change()
            self._raise_log_start(offset)

    def _raise_log_start(self, offset: int) -> None:
        self.leader_epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.recovery_point = max(self.recovery_point, offset)
        self._producers.on_log_start(offset)
        self._options.on_log_start_raised(self)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that were silent for longer; returns how many."""
        return self._producers.remove_expired(now_ms, expiration_ms)

    # Rolling, truncating, retention

    def roll(self, now_ms: int) -> None:
        """Starts a new segment at the log's end, unless the active one is new itself."""
        self._refuse_change()
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self._storage_error(error) from error

    def _roll(self, base_offset: int, now_ms: int, snapshot: bytes | None = None) -> Segment:
        """`snapshot` is of the producers up to `base_offset`; without one they are taken as they are, unless appends
        are planned: then there is no snapshot, which costs a start after a crash some time."""
        active = self._segments.active
        if active.size == 0 and active.base_offset == base_offset:
            return active
        active.seal()
        if self.config.preallocate:
            active.cut_preallocation()
        if snapshot is not None or not self._planned_count:
            self._write_snapshot(self._producers, snapshot)
        segment = self._new_segment(base_offset, now_ms)
        self._segments.add(segment)
        self._reader.end = (self.log_end_offset, segment, 0)
        self._options.on_flush_wanted(self)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        config = self.config
        segment = Segment(
            self._files,
            self._directory,
            base_offset,
            now_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            index_size_max=config.segment_index_bytes,
            roll_jitter_ms=_jitter_ms(config, self._options.random),
        )
        segment.create(preallocate_size=config.segment_bytes if config.preallocate else 0)
        self._activate(segment)
        return segment

    def _write_snapshot(self, producers: ProducerState, content: bytes | None = None) -> None:
        offset = self.log_end_offset
        if offset > (self._snapshots.latest or self.log_start_offset):
            self._snapshots.write_encoded(offset, encode(producers.producers.values()) if content is None else content)

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Removes the batch that holds `offset` and everything after it. False when there is nothing at or above it.

        The high watermark, log start, recovery point, epochs and producer state follow, and so do the checkpoints of
        both offsets before this returns. It waits for the disk.
        """
        if offset >= self.next_offset:
            self._refuse_change()
            # An epoch that began here and wrote nothing may contradict what the new leader has at this offset.
            try:
                self.leader_epochs.truncate_from_end(self.next_offset)
            except OSError as error:
                raise self._storage_error(error) from error
            return False
        self._refuse_planned()
        self.mark_dropped(now_ms)  # the names of segments become free for others
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        try:
            self._truncate(offset)
        except OSError as error:
            raise self._unfinished_error(error) from error
        except (CorruptSegmentError, CorruptIndexError) as error:
            self.take_offline()  # half done: it can be neither appended to nor read
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._directory} cannot be truncated: {error}"
            ) from error
        return True

    def _truncate(self, offset: int) -> None:
        # Offsets fall first: whoever reads meanwhile must not look for what is about to go.
        self._begin_truncation()
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self._drop([segment for segment in self._segments.all() if segment.base_offset > offset])
        active = self._segments.active
        self._activate(active)
        end_offset = active.truncate_to(offset)
        if end_offset is not None:
            offset = self.log_end_offset = end_offset
            self.high_watermark = min(self.high_watermark, offset)
        self._reader.end = (offset, active, active.size)
        self._reader.forget_positions()
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._snapshots.delete_outside(self.log_start_offset, offset)
        self._producers = state_at(
            offset,
            f"{self.topic}-{self.partition}",
            self._segments,
            self._snapshots,
            self.log_start_offset,
            self._on_unread_producers,
        )
        self._producers.on_high_watermark(self.high_watermark)
        self.truncation_count += 1
        self._options.on_truncated(self)

    def _on_unread_producers(self, damage: CorruptSegmentError) -> None:
        self._count_damage(damage)
        self._options.on_damage(f"{damage}; {PRODUCERS_UNKNOWN}")

    def _begin_truncation(self) -> None:
        with self._lowering:
            self.truncation_count += 1  # odd while it lasts

    def _drop(self, segments: Sequence[Segment]) -> None:
        if segments:
            self._segments.replace(segments)
            _remove(segments)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Removes everything; the next batch gets `offset`. It waits for the disk."""
        self._refuse_planned()
        self.mark_dropped(now_ms)
        self._begin_truncation()
        try:
            old = self._segments.all()
            _remove(old)
            replacement = self._new_segment(offset, now_ms)
            self._segments.replace(old, [replacement])
            self.log_end_offset = self.log_start_offset = self.high_watermark = self.recovery_point = offset
            self._reader.end = (offset, replacement, 0)
            self._reader.forget_positions()
            self.leader_epochs.clear()
            self._snapshots.delete_outside(offset, offset)
            self._producers.clear(offset)
            self.truncation_count += 1
            self._options.on_truncated(self)
        except OSError as error:
            raise self._unfinished_error(error) from error

    def read_ages(self, now_ms: int) -> None:
        """Reads what `expire` will ask of the sealed segments, so that it waits for no disk. Any thread.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        try:
            self._count_expired(self._segments.all()[:-1], now_ms)
        except OSError as error:
            if not self._has_moved(error):
                raise self._storage_error(error) from error

    def expire(self, now_ms: int) -> int:
        """Raises the log's start by retention time and size; returns how many segments lie wholly below it now.

        `drop_expired` and `mark_dropped` then remove them, which must wait until the new start is on the disk: a crash
        may keep any of their files, and a log start above a gap between them is what makes the gap harmless. The last
        segment goes only after a new one has been started, which waits until the directory is written directly: the
        other thread alone may begin a segment before that. Raises KafkaError.
        """
        self._refuse_change()
        try:
            segments = self._segments.all()
            count = self._count_expired(segments, now_ms)
            if count == len(segments) and self.is_slow:
                count -= 1
            if count and count == len(segments):
                self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self._storage_error(error) from error
        except (CorruptIndexError, CorruptSegmentError) as damage:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        if count:
            start_offset = self._segments.all()[count].base_offset
            if start_offset > self.log_start_offset:
                self._raise_log_start(start_offset)
        return count

    def _count_expired(self, segments: Sequence[Segment], now_ms: int) -> int:
        return count_to_delete(
            self._segment_facts(segments),
            self._retention_policy(),
            total_size=self.size,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )

    def _segment_facts(self, segments: Sequence[Segment]) -> Iterator[SegmentFacts]:
        ends = [*(segment.base_offset for segment in self._segments.all()[1:]), self.log_end_offset]
        for segment, end in zip(segments, ends, strict=False):
            if segment is self._segments.active and not segment.size:
                return  # removing it would make another one like it
            yield SegmentFacts(end, segment.size, segment.age_timestamp_ms(self._on_hidden_age))

    def _on_hidden_age(self, damage: CorruptSegmentError | CorruptIndexError) -> None:
        self._count_damage(damage)
        self._report_once(f"{damage}; retention goes by the time at which the file was modified")

    def _retention_policy(self) -> RetentionPolicy:
        if "delete" not in self.config.cleanup_policy:
            return RetentionPolicy(NO_LIMIT, NO_LIMIT)
        return RetentionPolicy(self.config.retention_ms, self.config.retention_bytes)

    def drop_expired(self, start_offset: int) -> int:
        """Takes the segments that lie wholly below an offset out of the log; returns how many. Their files stay.

        `start_offset` is a log start that is on the disk.
        """
        assert start_offset <= self.log_start_offset
        segments = self._segments.all()
        dropped = [segment for segment, following in pairwise(segments) if following.base_offset <= start_offset]
        if dropped:
            # First, so that a checkpoint of log starts that is written meanwhile finds them in one of the two.
            self._dropped.extend((segment, self._snapshots.forget(segment.base_offset)) for segment in dropped)
            self._segments.replace(dropped)
            self._reader.forget_positions()
        return len(dropped)

    def mark_dropped(self, now_ms: int) -> None:
        """Gives the files of dropped segments the name under which they wait for `remove_deleted`, oldest first.

        That finds them once file.delete.delay.ms is over. Any thread. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        try:
            with self._naming:
                while self._dropped:
                    segment, snapshot = self._dropped[0]  # and there it stays for another try after a shortage
                    segment.relocate(self._directory)
                    self._mark_deleted(segment, now_ms)
                    if snapshot is not None:
                        self._files.unlink_if_there(snapshot)
                    self._dropped.popleft()
        except OSError as error:
            raise self._storage_error(error) from error

    def _mark_deleted(self, segment: Segment, now_ms: int) -> None:
        due_ms = now_ms + self.config.file_delete_delay_ms
        self._deleted.extend((due_ms, os.path.basename(path)) for path in segment.mark_deleted())

    def swap_in(self, cleaned: CleanedSegment, *, now_ms: int) -> bool:
        """Puts a cleaned segment, in `.cleaned` files, in the place of those that it was made from.

        False when those are no longer what they were; then nothing has changed. Offsets stay as they are. Raises
        KafkaError KAFKA_STORAGE_ERROR.

        From the first rename to the last the log is not truncated, trimmed or cleaned, because this is one step of
        the thread that owns it. A start after a crash in between goes by the names (`storage.leftovers`); the file
        system keeps renames within one directory in their order.
        """
        self._refuse_change()
        replaced = [segment for segment in self._segments.all() if segment.base_offset in cleaned.replaced]
        if len(replaced) != len(cleaned.replaced) or self._segments.active in replaced:
            return False
        try:
            segment = Segment(
                self._files,
                self._directory,
                cleaned.base_offset,
                now_ms=now_ms,
                index_interval_bytes=self.config.index_interval_bytes,
                index_size_max=self.config.segment_index_bytes,
                size=cleaned.size,
                offset_index_size=cleaned.offset_index_size,
                time_index_size=cleaned.time_index_size,
                stage=names.CLEANED,
            )
            segment.preload()
        except OSError as error:
            raise self._storage_error(error) from error
        try:
            segment.restage(names.SWAP)
            self._segments.replace(replaced, [segment])
            self._reader.forget_positions()
            for old in replaced:
                self._mark_deleted(old, now_ms)
                if old.base_offset != cleaned.base_offset:
                    self._snapshots.delete(old.base_offset)
            segment.restage("")
        except OSError as error:
            failure = self._unfinished_error(error)
            self.take_offline()  # half done: the next start ends it or takes it back
            raise failure from error
        return True

    def remove_deleted(self, now_ms: int) -> int:
        """Unlinks the files whose delay is over; returns how many. Any thread.

        Two cleaning passes may have deleted segments of one base offset: the later file has taken the earlier one's
        name, and its own delay counts.
        """
        count = 0
        times_named = Counter(name for _, name in list(self._deleted))
        try:
            while self._deleted and self._deleted[0][0] <= now_ms:
                name = self._deleted[0][1]
                if times_named[name] <= 1:
                    self._files.unlink_if_there(f"{self._directory}/{name}")
                    count += 1
                times_named[name] -= 1
                self._deleted.popleft()
        except OSError as error:
            raise self._storage_error(error) from error
        return count

    # Durability

    @property
    def unflushed_count(self) -> int:
        """Offsets that a crash of the machine could take."""
        return self.log_end_offset - self.recovery_point

    @property
    def needs_flush(self) -> bool:
        """Whether flush.messages says that the last append has to be synced before it is acknowledged."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether flush.ms has passed since the last flush, or the load has written indexes that nothing has synced."""
        return self.unflushed_count > 0 and (self._was_scanned or now_ms - self._flushed_ms >= self.config.flush_ms)

    def flush(self, now_ms: int) -> None:
        """Makes everything appended so far durable and moves the recovery point. Any thread; one after the other.

        Raises KafkaError KAFKA_STORAGE_ERROR, and never tries again, nor does who waits meanwhile: after a failed sync
        the kernel may have dropped what it could not write, and says so only once. Raises FlushHeldError.
        """
        truncation_count, end_offset = self.truncation_count, self.log_end_offset
        had_unflushed = self.recovery_point < end_offset
        with self._flushing:
            was_done_meanwhile = (
                had_unflushed and self.recovery_point >= end_offset and not self._was_truncated_since(truncation_count)
            )
            if self.is_offline or not was_done_meanwhile:
                self._flush(with_active=True)
        self._flushed_ms = now_ms
        self._was_scanned = False

    def flush_sealed(self) -> None:
        """`flush` after a roll, of all segments but the one that is appended to: that one is left to the kernel."""
        with self._flushing:
            try:
                self._flush(with_active=False)
            except TryLaterError:
                self._options.on_flush_wanted(self)  # nothing else would sync these segments before the next roll
                raise

    def hold_flushes(self) -> None:
        """Makes `flush` and `flush_sealed` raise FlushHeldError until `release_flushes`.

        So the recovery point does not pass what the log's copy has synced while the copy takes the log's place. A flush
        that is under way ends as usual, and covers nothing that is appended from now on.
        """
        self._is_flush_held = True

    def release_flushes(self) -> None:
        """Allows flushes again. Nothing if they are allowed."""
        self._is_flush_held = False
        due, self._when_flush_released = self._when_flush_released, []
        for action in due:
            action()

    def when_flush_released(self, action: Action) -> None:
        """Calls `action` once, when flushes are allowed: now, or at `release_flushes`."""
        if self._is_flush_held:
            self._when_flush_released.append(action)
        else:
            action()

    def _flush(self, *, with_active: bool) -> None:
        self._refuse_offline()
        truncation_count = self.truncation_count  # first, so that no truncation comes between it and the end
        end_offset = self.log_end_offset if with_active else self._segments.active.base_offset
        if self._is_flush_held:  # after the look at the end, see `hold_flushes`
            raise FlushHeldError(f"{self._directory} is being moved")
        started_s = time.perf_counter()
        try:
            self._sync_files(end_offset)
        except OSError as error:
            if self._has_moved(error):
                self._flush(with_active=with_active)
                return
            raise self._storage_error(error) from error
        self._refuse_offline()  # who failed meanwhile, at an append perhaps, may have been told what this sync was not
        with self._lowering:
            # After a truncation meanwhile, offsets up to the old end may belong to batches that were not there then.
            if not self._was_truncated_since(truncation_count):
                self.recovery_point = max(self.recovery_point, end_offset)
        self._options.on_flushed(time.perf_counter() - started_s)

    def _sync_files(self, end_offset: int) -> None:
        for segment in self._segments.covering(self.recovery_point, max(end_offset, 1)):
            with contextlib.suppress(SegmentGoneError):
                if segment.size and segment is self._segments.active:
                    segment.create_indexes()
                segment.sync()
        self._snapshots.sync()
        self._files.sync_path(f"{self._directory}/{names.LEADER_EPOCH_CHECKPOINT}")
        if not self._is_metadata_synced:
            self._files.sync_path(f"{self._directory}/{names.PARTITION_METADATA}")
        self._files.sync_directory(self._directory)
        if not self._is_metadata_synced:
            self._files.sync_directory(os.path.dirname(self._directory))
            self._is_metadata_synced = True

    def start_writeback(self) -> None:
        """Lets the kernel begin to write what was appended to the active segment since the last call. Any thread."""
        try:
            self._segments.active.start_writeback()
        except OSError as error:
            raise self._storage_error(error) from error

    # Moving

    def take_over_state(self, source: "Log") -> None:
        """Makes this log, which holds the same batches as `source`, know everything else that `source` knows.

        Producers and epochs may be known of which retention or compaction has left no batch to copy. `source` is of no
        use afterwards. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        assert self.log_end_offset == source.next_offset
        try:
            self.leader_epochs.take_over(source.leader_epochs.entries)
            self._write_snapshot(source.producers())
            self._producers = source.producers()
        except OSError as error:
            raise self._storage_error(error) from error

    def rename(self, path: str) -> None:
        """Gives the directory another name. Whoever reads or syncs meanwhile in another thread goes on.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        self._refuse_change()
        with self._naming:
            try:
                self._files.rename(self._directory, path)
            except OSError as error:
                raise self._unfinished_error(error) from error
            self._previous_directory, self._directory = self._directory, path
            for segment in self._segments.all():
                segment.relocate(path)
            self._snapshots.relocate(path)
            self.leader_epochs.persist_with(epochs_writer(self._files, path))
            self._is_metadata_synced = False

    def _has_moved(self, error: OSError) -> bool:
        """Whether a file was not there because the directory has got another name; then looking again helps."""
        with self._naming:
            previous = self._previous_directory
        return (
            isinstance(error, FileNotFoundError)
            and previous is not None
            and f"{error.filename}/".startswith(f"{previous}/")
        )

    def close(self, now_ms: int) -> None:
        """A clean end: indexes at their length, a snapshot at the log's end, everything synced, nothing held.

        A log that has nothing to sync is not synced: most are idle, and a stop must not take a second for each hundred.
        What was only cut meanwhile is cut again at the next start. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        self._refuse_planned()
        try:
            active = self._segments.active
            active.seal()
            if self.config.preallocate:
                active.cut_preallocation()
            self._write_snapshot(self._producers)
            self.leader_epochs.write_pending()
        except OSError as error:
            raise self._storage_error(error) from error
        if self.unflushed_count:
            self.flush(now_ms)
        self.release()

    def release(self) -> None:
        """Gives all descriptors and maps back; they are opened again when needed."""
        for segment in self._segments.all():
            segment.release()
        self._reader.forget_positions()

    def release_idle(self) -> Sequence[Segment]:
        """`release` for segments that were not used since the last call; returns those that have to wait.

        They have records that no sync has covered. `finish_writeback` and then `release_written` are for them: a failed
        write-back that no open descriptor notices would be reported to nobody, and the next sync would succeed.
        """
        segments, recovery_point = self._segments.all(), self.recovery_point
        waiting = []
        for segment, following in zip_longest(segments, segments[1:]):
            if not segment.was_idle():
                continue
            end_offset = self.log_end_offset if following is None else following.base_offset
            if segment.size and end_offset > recovery_point:
                waiting.append(segment)
            else:
                segment.release()
        return waiting

    def finish_writeback(self, segments: Sequence[Segment]) -> None:
        """Waits until the kernel has written these out. Any thread. Raises KafkaError KAFKA_STORAGE_ERROR."""
        try:
            for segment in segments:
                segment.finish_writeback()
        except OSError as error:
            raise self._storage_error(error) from error

    def release_written(self, segments: Sequence[Segment]) -> None:
        """`release` for those that were not used since `release_idle`."""
        for segment in segments:
            if segment.was_idle():
                segment.release()

    def take_offline(self) -> None:
        """Everything is refused from now on: the directory has failed, or the files are about to go."""
        self.is_offline = True
        self.release()
        self._options.on_offline(self)

    def retire(self) -> None:
        """The log is to be deleted: everything is refused from now on.

        Its files come to their final form first: until the folder is gone, whoever starts on it looks for the indexes.
        Raises OSError.
        """
        try:
            self._segments.active.seal()
        except OSError as error:
            # Deletions are what helps a full disk; the indexes are then missing, which a start can live with.
            if error.errno != errno.ENOSPC and not isinstance(error, ShortageError):
                raise
        finally:
            self.take_offline()

    def _storage_error(self, error: OSError) -> KafkaError:
        if isinstance(error, ShortageError):
            self._options.on_shortage(error)
            return OutOfResourcesError(error)
        # A log that was taken out of service before, deleted perhaps, says nothing about its directory any more.
        if not self.is_offline:
            self.is_offline = True
            self._options.on_io_error(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _unfinished_error(self, error: OSError) -> KafkaError:
        """`_storage_error` in a step that cannot be repeated: after a shortage the log alone is out of service."""
        failed = self._storage_error(error)
        if isinstance(failed, OutOfResourcesError):
            self.take_offline()
            self._options.on_damage(f"{self._directory} is out of service until the next start: {error}")
        return failed

    def _gone_error(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of partition {self.topic}-{self.partition} was removed while it was read",
        )

    def _refuse_offline(self) -> None:
        if self.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self._directory} is offline")


def _remove_unfinished(files: Files, directory: str) -> None:
    """Leaves no directory in the way of another try, where the disk allows. Needs no descriptor."""
    with contextlib.suppress(OSError):
        for name in (names.segment_file(0, names.LOG), names.PARTITION_METADATA):
            files.unlink_if_there(f"{directory}/{name}")
            files.unlink_if_there(f"{directory}/{name}{names.TEMPORARY}")
        files.remove_directory(directory)


def _remove(segments: Sequence[Segment]) -> None:
    """The last one first: a crash in between leaves a shorter log, and no gap."""
    for segment in reversed(segments):
        segment.remove()


def _jitter_ms(config: LogConfig, random: Random) -> int:
    """Spreads the rolls of logs that were made together."""
    return random.randrange(min(config.segment_jitter_ms, config.segment_ms)) if config.segment_jitter_ms > 0 else 0
