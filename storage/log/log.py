"""One partition's log: appends, reads, offsets, rolling, truncation.

Owns the order of steps that keeps segments, producer state, leader epochs and offsets consistent. Must not know
replicas, requests or other partitions: the replica layer sets the high watermark, the log manager chooses the
directory. Has no threads of its own.

Four parts have their own modules: `durability` (flushes, recovery point), `disposal` (retention, deletion, cleaned
segments), `lookups` (offsets by time) and `planned` (appends that wait for a slow directory).

While its directory is slow (`storage.disk.directory_writer`), an append gets its offsets now and is stored later, in
the directory's threads. `log_end_offset` counts stored batches only, and so does everything that may be read, synced or
acknowledged; `next_offset` counts planned ones too. One write of a log is stored at a time, and nothing else changes
its files during that write.

Threads: one thread owns the log and makes all changes, except that the directory's threads store planned appends, and
that a log which is reserved (`PlannedAppends.reserve`) belongs to the thread that it is reserved for. `read` and the
lookups by time may run in other threads at the same time.

Invariants:
- log start <= last stable offset <= high watermark <= log end.
- A batch is checked, then written, then counted: if any step raises, offsets and producer state have not changed.
- An I/O error fails the request with KAFKA_STORAGE_ERROR and is reported to the log manager, which takes the directory
  offline; the log then rejects everything. A shortage of descriptors or memory fails the request with the same code,
  but the log stays unchanged and in service. Only a shortage in a step that cannot be repeated takes the log offline.
- The thread that owns the log renames its directory in one step. A thread that missed a file under the old name tries
  again under the new one.
- The producer state is that of the planned end. The snapshot that a roll writes is taken when the append is planned.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, overload
from uuid import UUID

from config.log_config import LogConfig
from protocol.dataclass import dataclass
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import CONTROL_BIT, NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from protocol.records.compression import Buffer
from protocol.records.control import TransactionMarker
from storage.batches.damaged_batches import DamagedBatches, MetBy
from storage.batches.stored_batch import StoredBatch
from storage.batches.validation import (
    NO_CONVERSION,
    AppendOrigin,
    AppendRules,
    ConversionCost,
    PreparedAppend,
    Refusal,
    prepare,
    validate_and_assign_offsets,
)
from storage.disk import checkpoints, names
from storage.disk.checkpoints import TopicPartition
from storage.disk.directory_writer import SLOW_WRITE_S, DirectoryWriter
from storage.disk.files import Files, FileSlice, ShortageError
from storage.disk.names import DirectoryState
from storage.disk.partition_directory import PartitionDirectory
from storage.disk.shortages import OutOfResourcesError
from storage.log.log_disposal import LogDisposal
from storage.log.log_durability import LogDurability
from storage.log.log_lookups import LogLookups
from storage.log.log_reader import FetchedRecords, LogReader
from storage.log.planned_appends import PlannedAppend, PlannedAppends
from storage.log.replicated import check_replicated
from storage.log.truncation import truncation_point
from storage.producers.producer_snapshots import encode
from storage.producers.producer_state import BatchMetadata, ProducerState, marker_in
from storage.recovery.log_loader import PRODUCERS_UNKNOWN, LoadedLog, epochs_writer, state_at
from storage.recovery.recovery import batches_before
from storage.segments.leader_epochs import EpochEnd, LeaderEpochs
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.segment import (
    RELATIVE_OFFSET_MAX,
    CorruptSegmentError,
    NotInMemoryError,
    Segment,
    SegmentGoneError,
)
from storage.segments.segments import Segments
from storage.segments.transaction_index import AbortedTransaction

__all__ = [
    "AppendOrigin",
    "AppendResult",
    "FetchedRecords",
    "Log",
    "LogOptions",
    "PreparedAppend",
    "Refusal",
]

_REPORTS_MAX: Final = 100


_new_tuple = tuple.__new__  # builds a named tuple in half the time that calling its class takes


class AppendResult(NamedTuple):
    """`log_append_time_ms` is -1 with CreateTime. The first two offsets are -1 if nothing was appended."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False
    conversion: ConversionCost = NO_CONVERSION


class _EndGap(NamedTuple):
    """Offsets without records between the last batch and the end of the log, as a truncation left them."""

    start_offset: int
    end_offset: int


def _ignore(*_: object) -> None:
    """Do nothing: the default of callbacks."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What all logs of a directory share."""

    files: Files
    random: Random
    on_io_error: Callable[[OSError], None] = _ignore
    on_shortage: Callable[[ShortageError], None] = _ignore
    on_damage: Callable[[str], None] = _ignore
    damaged_batches: DamagedBatches = field(default_factory=DamagedBatches)
    on_flush_wanted: Callable[["Log"], None] = _ignore  # after a roll, so that another thread syncs the sealed segment
    on_truncated: Callable[["Log"], None] = _ignore
    on_flushed: Callable[[float], None] = _ignore  # with its duration in seconds, in the thread of the flush
    on_log_start_raised: Callable[["Log"], None] = _ignore
    on_offline: Callable[["Log"], None] = _ignore  # in any thread
    on_write_finished: Callable[["Log"], None] = _ignore  # a planned append is stored or has failed
    writer: DirectoryWriter = field(default_factory=lambda: DirectoryWriter(""))


class Log:
    """See the module. `log_start_offset`, `log_end_offset` and `high_watermark` are for reading."""

    __slots__ = (
        "_directory",
        "_end_gap",
        "_files",
        "_options",
        "_producers",
        "_reader",
        "_reported",
        "_rules",
        "_segments",
        "_snapshots",
        "_writer",
        "config",
        "disposal",
        "durability",
        "high_watermark",
        "is_offline",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "lookups",
        "partition",
        "planned",
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
        """Made by `log_opening.create` and `log_opening.load`."""
        self.topic, self.partition = name
        self._options = options
        self._files = options.files
        self._writer = options.writer
        self._directory = PartitionDirectory(options.files, directory)
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self._producers = loaded.producer_state
        self._reported: set[str] = set()
        self._end_gap: _EndGap | None = None
        self.truncation_count = 0
        self.leader_epochs: LeaderEpochs = loaded.leader_epochs
        self.topic_id: UUID | None = loaded.topic_id
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.is_offline = False
        active = loaded.segments.active
        self._reader = LogReader(loaded.segments, (loaded.log_end_offset, active, active.size))
        self.durability = LogDurability(
            self,
            options.files,
            self._directory,
            self._segments,
            self._snapshots,
            recovery_point=loaded.recovery_point,
            was_scanned=loaded.was_scanned,
            now_ms=now_ms,
            on_flush_wanted=lambda: options.on_flush_wanted(self),
            on_flushed=options.on_flushed,
        )
        self.disposal = LogDisposal(self, options.files, self._directory, self._segments, self._snapshots, self._reader)
        self.lookups = LogLookups(self, self._directory, self._segments, self._reader)
        self.reconfigure(config)
        self.planned = PlannedAppends(self, options.writer, self._directory)

    # Name and state

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def directory(self) -> Path:
        return Path(self._directory.path)

    @property
    def is_future(self) -> bool:
        """Whether this is the copy of a log that is being moved to another log directory, and not in service yet."""
        return self._directory.path.endswith(f"-{DirectoryState.FUTURE.value}")

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return self._segments.size

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def segments(self) -> Segments:
        """For the cleaner and for tools, to read. Only the log changes its segments."""
        return self._segments

    @property
    def last_stable_offset(self) -> int:
        """Every transaction below it is committed or aborted, by a marker below the high watermark."""
        unstable_offset = self._producers.first_unstable_offset
        high_watermark = self.high_watermark
        if unstable_offset is None or unstable_offset >= high_watermark:
            return high_watermark
        return max(unstable_offset, self.log_start_offset)

    def producers(self) -> ProducerState:
        """Return the state of the producers, to read."""
        return self._producers

    def reconfigure(self, config: LogConfig) -> None:
        """Apply `config` from the next append on."""
        self.config = config
        self._rules = AppendRules.of(config)
        self._activate(self._segments.active)

    def _activate(self, segment: Segment) -> None:
        """Apply the present configuration to the active segment."""
        config = self.config
        age_ms_max = config.segment_ms
        if "compact" in config.cleanup_policy:
            age_ms_max = min(age_ms_max, config.max_compaction_lag_ms)
        segment.index_interval_bytes = config.index_interval_bytes
        segment.set_limits(size_max=config.segment_bytes, age_ms_max=age_ms_max)

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Record the topic id of a log that has none. The replica layer checks that it is the right one.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        assert self.topic_id is None
        try:
            self._write_topic_id(topic_id)
        except OSError as error:
            raise self.storage_error(error) from error

    def _write_topic_id(self, topic_id: UUID) -> None:
        checkpoints.write_partition_metadata(
            self._files, f"{self._directory.path}/{names.PARTITION_METADATA}", topic_id
        )
        self.topic_id = topic_id

    # Appending

    def prepare(
        self, records: memoryview, *, now_ms: int, origin: AppendOrigin, is_alone: bool = True
    ) -> PreparedAppend | Refusal:
        """Validate `records` and convert them as the present configuration requires. Any thread.

        The caller must not change `records` until the result was appended.

        Raises TooCostlyError: they need a thread that others do not wait for, and `is_alone` is False.
        """
        return prepare(
            records, self._rules, now_ms=now_ms, origin=origin, is_alone=is_alone, monotonic_s=self._files.monotonic_s
        )

    def assign_epoch(self, leader_epoch: int) -> None:
        """Record that a leader's epoch begins at the end of the log, before the leader accepts records.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.refuse_offline()
        # The start offset is read now: the first appends of the epoch may be planned before the entry can be written.
        self.planned.between_writes(partial(self._begin_epoch, leader_epoch, self.next_offset))

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.begin(leader_epoch, start_offset)

    def append_as_leader(
        self,
        records: memoryview | PreparedAppend,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_take_long: bool = True,
    ) -> AppendResult:
        """Assign offsets to the records of one request and append them.

        A batch that repeats one of the last five of its producer is not written again; the result is that of the first
        append. If anything is raised, nothing was written and no state has changed.

        Args:
            records: as received, or as `prepare` returned them. The buffer is writable and is changed in place, also
                if the records are rejected.
            may_take_long: whether costly validation may run now, in this thread.

        Raises:
            KafkaError: the records are invalid (see `storage.batches.validation`), the producer's state forbids them,
                or KAFKA_STORAGE_ERROR.
            TooCostlyError: the records should go through `prepare` in another thread first, and are unchanged. Only
                without `may_take_long`.
        """
        if self.is_offline:
            self.refuse_offline()
        planned = self.planned
        offset = planned.end_offset if planned.count else self.log_end_offset
        if type(records) is memoryview:
            validated = validate_and_assign_offsets(
                records,
                self._rules,
                offset,
                leader_epoch,
                now_ms,
                origin,
                may_take_long,
                monotonic_s=self._files.monotonic_s,
            )
        else:
            assert isinstance(records, PreparedAppend)
            validated = records.at(offset, leader_epoch)
        if validated is None:
            return AppendResult(-1, -1, NO_TIMESTAMP, self.log_start_offset)
        accepted, header, log_append_time_ms, conversion = validated
        marker = None
        has_producer = header.producer_id != NO_PRODUCER_ID
        if has_producer:
            duplicate, marker = self._check_producer(accepted, header, offset, origin)
            if duplicate is not None:
                return self._result_of_duplicate(duplicate)
        last_offset = offset + header.last_offset_delta
        if self._writer.is_slow:
            self._plan(accepted, header, offset, marker, leader_epoch, now_ms)
        else:
            self._write(accepted, offset, last_offset, header.max_timestamp, last_offset, leader_epoch, now_ms)
            if has_producer:
                if header.attributes & CONTROL_BIT:
                    self._apply_to_producers(header, offset, marker)
                else:
                    self._producers.append_data(header, offset)
        return _new_tuple(
            AppendResult, (offset, last_offset, log_append_time_ms, self.log_start_offset, False, conversion)
        )

    def append_as_follower(
        self, records: memoryview, *, now_ms: int, leader_epoch: int | None = None, may_plan: bool = False
    ) -> AppendResult:
        """Append what a leader has sent, with its offsets and epochs, as far as `check_replicated` accepts it.

        `leader_epoch` is the leader's present epoch: no batch may have a newer one, nor one that is older than the
        last batch of this log. None: the batches come from a log whose epochs need no check. With `may_plan` the
        append is planned if the directory is slow: `log_end_offset` rises when it is stored (`planned.when_stored`).

        Raises:
            KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE (see `check_replicated`), KAFKA_STORAGE_ERROR.
            TryLaterError: An earlier append is planned, or another thread is changing the log.
        """
        self.refuse_offline()
        self.planned.refuse_any()
        epochs = None if leader_epoch is None else (self.leader_epochs.latest, leader_epoch)
        checked = check_replicated(records, next_offset=self.log_end_offset, epochs=epochs)
        if not checked.batches:
            return AppendResult(-1, -1, NO_TIMESTAMP, self.log_start_offset)
        first_offset, last_offset = checked.first_offset, checked.last_offset
        if may_plan and self._writer.is_slow and all(batch.header is not None for batch in checked.batches):
            self._plan_replicated(checked.batches, now_ms)
            return AppendResult(first_offset, last_offset, NO_TIMESTAMP, self.log_start_offset)
        try:
            for batch in checked.batches:
                if batch.leader_epoch > self.leader_epochs.latest:
                    self.leader_epochs.assign(batch.leader_epoch, batch.extent.base_offset)
        except OSError as error:
            raise self.storage_error(error) from error
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
            self._apply_replicated(batch)
        return AppendResult(first_offset, last_offset, NO_TIMESTAMP, self.log_start_offset)

    def _plan_replicated(self, batches: Sequence[StoredBatch], now_ms: int) -> None:
        """Plan the append of `batches`, which are copied. Requires that nothing else changes the log."""
        self.planned.refuse_change()
        epochs = self.leader_epochs
        for batch in batches:  # before the first write can begin, which uses the epochs in the directory's threads
            if batch.leader_epoch > epochs.latest:
                epochs.begin(batch.leader_epoch, batch.extent.base_offset)
        for batch in batches:
            header = batch.header
            assert header is not None
            marker = marker_in(batch.view, 0, header) if header.is_control else None
            self._plan(batch.view, header, header.base_offset, marker, batch.leader_epoch, now_ms)

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
        now_s = self._writer.clock_s
        started_s = now_s()
        try:
            # This append stores nearly all batches; `_store` handles the rest. It spares a call on the hot path.
            try:
                is_stored = leader_epoch <= self.leader_epochs.latest_written and segment.append(
                    records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms
                )
            except (CorruptSegmentError, CorruptIndexError):
                is_stored = False  # `_store` meets the same damage and reports it
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
            raise self.storage_error(error) from error
        self.log_end_offset = end_offset = last_offset + 1
        self._reader.end = (end_offset, segment, segment.size)
        if (elapsed_s := now_s() - started_s) > SLOW_WRITE_S:
            self._writer.note_slow_write(elapsed_s, now_s)

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
        """Append batches to the active segment, or to a new one; return that segment.

        `end_offset` is the end of the stored batches. In the directory's threads it may be ahead of `log_end_offset`.

        Rolling and indexing need the first and the greatest timestamp of the active segment. If damage hides one of
        them, a new segment begins: producers continue, and the intact batches of the damaged segment stay readable.

        Raises OSError; then nothing was appended.
        """
        if leader_epoch > self.leader_epochs.latest_written:
            self.leader_epochs.store_first_record(leader_epoch, first_offset)
        segment = self._segments.active
        try:
            is_stored = segment.append(records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms)
        except (CorruptSegmentError, CorruptIndexError) as damage:
            self.count_damage(damage)
            self.report_once(f"{damage}; a new segment begins at offset {end_offset}")
            is_stored = False
        if not is_stored:
            # The new segment begins where the last batch ends, also if a gap follows in the leader's log. So a start
            # after a crash can distinguish such a gap from lost records. Only a gap of 2^31 offsets is too wide.
            base_offset = self._end_of_batches(end_offset)
            if last_offset - base_offset > RELATIVE_OFFSET_MAX:
                base_offset = first_offset
            segment = self._roll(base_offset, now_ms, snapshot)
            is_stored = segment.append(records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms)
            assert is_stored, f"a segment from {base_offset} on cannot hold offset {last_offset}"
        return segment

    def _end_of_batches(self, end_offset: int) -> int:
        """Return where the last stored batch ends; `end_offset` is the end of the log."""
        gap = self._end_gap
        return end_offset if gap is None or gap.end_offset != end_offset else gap.start_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next record. Offsets from the log's end on are planned and not stored yet."""
        return self.planned.end_offset if self.planned.count else self.log_end_offset

    @property
    def is_slow(self) -> bool:
        """Whether appends are planned first and stored later."""
        return self._writer.is_slow

    def _plan(
        self,
        records: Buffer,
        header: BatchHeader,
        offset: int,
        marker: TransactionMarker | None,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Plan the append of `records`, which are copied. `header` describes them before they got their offset."""
        planned, active_size = self.planned, self._segments.active.size
        snapshot = None
        if planned.begins_segment(len(records), active_size):
            snapshot = encode(self._producers.producers.values())
        aborted = None
        if header.producer_id != NO_PRODUCER_ID:
            aborted = self._producers.append(header, offset, marker)
        planned.add(
            records,
            offset,
            offset + header.last_offset_delta,
            header.max_timestamp,
            aborted,
            leader_epoch,
            now_ms,
            log_end_offset=self.log_end_offset,
            active_size=active_size,
            snapshot=snapshot,
        )

    def store_planned(self, append: PlannedAppend) -> Segment:
        """Write a planned append; return the segment that holds it. In the directory's threads, for `planned`.

        Raises OSError, CorruptIndexError.
        """
        segment = self._store(
            append.records,
            append.offset,
            append.last_offset,
            append.largest_ms,
            append.largest_offset,
            append.leader_epoch,
            append.now_ms,
            end_offset=append.end_offset,
            snapshot=append.snapshot,
        )
        for aborted in append.aborted:
            self._index_aborted(segment, aborted)
        return segment

    def finish_planned(self, append: PlannedAppend, error: Exception | None) -> None:
        """Make a stored append readable; if it failed with `error`, take the log offline. For `planned`."""
        if error is not None and not self.is_offline:
            self._fail_planned(error)
        segment = append.segment
        if segment is not None and not self.is_offline:
            self.log_end_offset = end_offset = append.last_offset + 1
            self._reader.end = (end_offset, segment, segment.size)
            if append.config is not self.config:
                self._activate(self._segments.active)  # the segment may have been rolled by the earlier configuration
        self._options.on_write_finished(self)

    def _fail_planned(self, error: Exception) -> None:
        """Take the log offline: a planned append cannot be stored, so no later one can either."""
        if isinstance(error, OSError):
            self.unfinished_error(error)
        else:
            self.take_offline()
            self._options.on_damage(f"{self._directory.path} is out of service until the next start: {error!r}")

    def _check_producer(
        self, records: Buffer, header: BatchHeader, offset: int, origin: AppendOrigin
    ) -> tuple[BatchMetadata | None, TransactionMarker | None]:
        """Return the earlier batch that this one repeats, and the marker that it contains. Raises KafkaError."""
        producers = self._producers
        if header.attributes & CONTROL_BIT:
            marker = marker_in(records, 0, header)
            if marker is not None:
                producers.check_marker(header, marker, offset)
            return None, marker
        if origin is AppendOrigin.COORDINATOR:
            producers.check_coordinator_data(header, offset)
            return None, None
        try:
            return producers.check_data(header, offset), None
        except KafkaError as error:
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or not self._recall_batches(header):
                raise
        return producers.check_data(header, offset), None

    def _recall_batches(self, header: BatchHeader) -> bool:
        """Read the batches of a producer that its snapshot does not name; return whether there are any.

        Kafka does not, and refuses batches that are sent again to a leader that has restarted, or truncated its log.
        """
        entry = self._producers.entry_to_recall(header)
        if entry is None:
            return False
        segments = self._segments.covering(self.log_start_offset, entry.batches[0].first_offset)
        try:
            earlier = batches_before(segments, entry)
        except (OSError, SegmentGoneError, CorruptIndexError, CorruptSegmentError):
            return False
        entry.recall(earlier)
        return bool(earlier)

    def _result_of_duplicate(self, duplicate: BatchMetadata) -> AppendResult:
        log_append_time_ms = duplicate.timestamp_ms if self._rules.is_log_append_time else NO_TIMESTAMP
        return AppendResult(
            duplicate.first_offset, duplicate.last_offset, log_append_time_ms, self.log_start_offset, is_duplicate=True
        )

    def _apply_to_producers(self, header: BatchHeader, offset: int, marker: TransactionMarker | None) -> None:
        """Raises KafkaError: KAFKA_STORAGE_ERROR."""
        aborted = self._producers.append(header, offset, marker)
        if aborted is not None:
            try:
                self._index_aborted(self._segments.active, aborted)
            except OSError as error:
                raise self.storage_error(error) from error

    def _index_aborted(self, segment: Segment, aborted: AbortedTransaction) -> None:
        """Index an aborted transaction whose marker is in `segment`. Raises OSError, CorruptIndexError."""
        try:
            segment.transaction_index.append(aborted)
        except ShortageError as error:
            self._options.on_shortage(error)  # the index holds the entry in memory and writes it later

    def _apply_replicated(self, batch: StoredBatch) -> None:
        header = batch.header
        if header is not None and header.producer_id != NO_PRODUCER_ID:
            marker = marker_in(batch.view, 0, header) if header.is_control else None
            self._apply_to_producers(header, header.base_offset, marker)

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
        """Return the bytes from the batch that holds `offset` on. Any thread.

        If cleaning has removed that batch, they begin with the next one. They may end with a partial batch, and are
        empty at the end of the log.

        Args:
            max_bytes: the most to return; with `min_one_batch` the first batch is whole even if it is larger.
            upper_bound_offset: nothing at or above it is returned.
            nowait: return None if the bytes are not in memory. The caller repeats the read without it in a thread.
            may_slice: a large range that is in memory may be returned as a slice of its file. What has to be read from
                the disk never is.
            with_aborted: also return the aborted transactions that overlap the bytes, from the same segments. Then
                `upper_bound_offset` must not be above the last stable offset.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE below the log's start or above its end, CORRUPT_MESSAGE,
                KAFKA_STORAGE_ERROR.
        """
        while True:
            self.refuse_offline()
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
                if self.was_truncated_since(truncation_count):
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
            if self.was_truncated_since(truncation_count):
                raise self._gone_error(offset)
            return fetched

    def _expect_removal(self, error: SegmentGoneError | OSError, offset: int, truncation_count: int) -> None:
        """Return if a segment's files were removed or renamed before the reader opened them; the read is repeated.

        The log's present segments hold the offset, or the log starts above it. The repetition ends, because a segment
        leaves the log before its files are removed. After a truncation the read fails instead: the caller's upper
        bound may now lie above what is committed.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        if isinstance(error, SegmentGoneError):
            if self.was_truncated_since(truncation_count):
                raise self._gone_error(offset) from error
        elif not self._directory.has_moved(error):
            raise self.storage_error(error) from error

    def was_truncated_since(self, truncation_count: int) -> bool:
        """Return whether what was read since `truncation_count` may mix batches from before and after a truncation."""
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
        """Repeat a read by scanning the segment: what looked like a damaged log may be a wrong index.

        If the scan succeeds, the index of a sealed segment is emptied, and the next start rebuilds it. The index of
        the active segment stays, because another thread may be appending to it. If the scan meets damage too, the
        index also stays: it leads to the batches behind the damage.

        Raises KafkaError: CORRUPT_MESSAGE; SegmentGoneError; OSError.
        """
        try:
            fetched = self._reader.read_without_index(
                offset, max_bytes, upper_bound_offset, min_one_batch=min_one_batch, with_aborted=with_aborted
            )
        except (CorruptSegmentError, CorruptIndexError) as error:
            self.count_damage(error)
            self.report_once(f"{error}; the read fails with CORRUPT_MESSAGE")
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        self.report_once(f"{damage}; read without the index")
        segment = self._segments.floor(offset)
        if segment is not None and segment is not self._segments.active:
            segment.offset_index.reset()
        return fetched

    def count_damage(self, damage: CorruptSegmentError | CorruptIndexError, met_by: MetBy = MetBy.READ) -> None:
        if isinstance(damage, CorruptSegmentError):
            self._options.damaged_batches.add(met_by, damage, self._directory.path)

    def report_once(self, text: str) -> None:
        """Report `text` once: a consumer that repeats its fetch on damage must not fill the broker's log."""
        if text not in self._reported and len(self._reported) < _REPORTS_MAX:
            self._reported.add(text)
            self._options.on_damage(text)

    def size_between(self, start_offset: int, end_offset: int) -> int | None:
        """Return the bytes from the batch that holds `start_offset` up to the one that holds `end_offset`.

        Returns None if finding out needs the disk or meets an error, which the read of that range will report.
        """
        try:
            return self._reader.size_between(start_offset, end_offset)
        except (NotInMemoryError, SegmentGoneError, OSError, CorruptIndexError, CorruptSegmentError):
            return None

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `start_offset` on and below `end_offset`. Any thread.

        To get them together with the records, use `read`.

        Raises KafkaError: CORRUPT_MESSAGE if an index is damaged, KAFKA_STORAGE_ERROR.
        """
        try:
            return self._reader.aborted_transactions(self._segments.all(), start_offset, end_offset)
        except CorruptIndexError as damage:
            self.report_once(f"{damage}; the read fails with CORRUPT_MESSAGE")
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except OSError as error:
            raise self.storage_error(error) from error

    # Offsets

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, but not past the log's end; return whether it rose. It never falls."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._producers.first_unstable_offset is not None:
            self._producers.on_high_watermark(offset)
        return True

    def delete_records_before(self, offset: int) -> None:
        """Raise the log start to `offset`, unless it is there already. Retention removes the segments below it.

        Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark; KAFKA_STORAGE_ERROR.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.topic}-{self.partition} since "
                f"it is larger than the high watermark {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self.planned.refuse_change()
            self.raise_log_start(offset)

    def raise_log_start(self, offset: int) -> None:
        self.leader_epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self._producers.on_log_start(offset)
        self._options.on_log_start_raised(self)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been idle for longer than `expiration_ms`; return how many."""
        return self._producers.remove_expired(now_ms, expiration_ms)

    # Rolling and truncating

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log's end, unless the active one is empty. Raises KafkaError."""
        self.planned.refuse_change()
        try:
            self._roll(self._end_of_batches(self.log_end_offset), now_ms)
        except OSError as error:
            raise self.storage_error(error) from error

    def _roll(self, base_offset: int, now_ms: int, snapshot: bytes | None = None) -> Segment:
        """Begin a new segment at `base_offset` and write a producer snapshot for it. Raises OSError.

        `snapshot` is the encoded state of the producers up to `base_offset`. Without it the present state is written,
        unless appends are planned: then the state is ahead of the segment, and no snapshot is written. A start after a
        crash then replays more of the log.
        """
        active = self._segments.active
        if active.size == 0 and active.base_offset == base_offset:
            return active
        active.seal()
        if self.config.preallocate:
            active.cut_preallocation()
        if snapshot is not None or not self.planned.count:
            self._write_snapshot(base_offset, self._producers, snapshot)
        segment = self._new_segment(base_offset, now_ms)
        self._segments.add(segment)
        self._reader.end = (self.log_end_offset, segment, 0)
        self._options.on_flush_wanted(self)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        config = self.config
        segment = Segment(
            self._files,
            self._directory.path,
            base_offset,
            now_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            index_size_max=config.segment_index_bytes,
            roll_jitter_ms=roll_jitter_ms(config, self._options.random),
        )
        segment.create(preallocate_size=config.segment_bytes if config.preallocate else 0)
        self._activate(segment)
        return segment

    def _write_snapshot(self, offset: int, producers: ProducerState, content: bytes | None = None) -> None:
        if offset > (self._snapshots.latest or self.log_start_offset):
            self._snapshots.write_encoded(offset, encode(producers.producers.values()) if content is None else content)

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Remove the batch that holds `offset` and everything after it; return False if the log ends there already.

        High watermark, log start, recovery point, epochs and producer state follow. Before this returns, the
        checkpoints of recovery point and log start are written. Waits for the disk.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        if offset >= self.next_offset:
            if not self.planned.is_reserved:
                self.planned.refuse_change()
            # An epoch that began here without a record may contradict the new leader's epoch at this offset.
            try:
                self.leader_epochs.truncate_from_end(self.next_offset)
            except OSError as error:
                raise self.storage_error(error) from error
            return False
        self.planned.refuse_any()
        self.disposal.mark_dropped(now_ms)  # frees the names of dropped segments for new ones
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        try:
            self._truncate(offset)
        except OSError as error:
            raise self.unfinished_error(error) from error
        except (CorruptSegmentError, CorruptIndexError) as error:
            self.take_offline()  # the truncation is half done: the log can be neither appended to nor read
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._directory.path} cannot be truncated: {error}"
            ) from error
        return True

    def truncate_to_epoch_end(self, leaders: EpochEnd, *, now_ms: int) -> bool:
        """Truncate to where this log diverges from its leader's; return whether that is final.

        `leaders` is what the leader says about this log's latest epoch. Unless the result is final, the leader has to
        be asked again, for the epoch that is the latest then (see `storage.log.truncation`). Waits for the disk.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        point = truncation_point(
            leaders, self.leader_epochs, log_end_offset=self.log_end_offset, high_watermark=self.high_watermark
        )
        self.truncate_to(point.offset, now_ms=now_ms)
        return point.is_final

    def _truncate(self, offset: int) -> None:
        # Offsets fall first: concurrent readers must not look for batches that are about to be removed.
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
        self._end_gap = _EndGap(_next_offset_or(offset, active), offset)
        self._reader.end = (offset, active, active.size)
        self._reader.forget_positions()
        self.log_start_offset = min(self.log_start_offset, offset)
        active.sync_cut()
        self.durability.lower_recovery_point(offset)
        self.leader_epochs.truncate_from_end(offset)
        self._snapshots.delete_outside(self.log_start_offset, offset)
        self._producers = self._producers_at(offset)
        self._producers.on_high_watermark(self.high_watermark)
        self.truncation_count += 1
        self._options.on_truncated(self)

    def _producers_at(self, offset: int) -> ProducerState:
        return state_at(
            offset,
            f"{self.topic}-{self.partition}",
            self._segments,
            self._snapshots,
            self.log_start_offset,
            self._on_unread_producers,
        )

    def _on_unread_producers(self, damage: CorruptSegmentError) -> None:
        self.count_damage(damage)
        self._options.on_damage(f"{damage}; {PRODUCERS_UNKNOWN}")

    def _begin_truncation(self) -> None:
        with self.durability.without_rise():
            self.truncation_count += 1  # odd during a truncation

    def _drop(self, segments: Sequence[Segment]) -> None:
        if segments:
            self._segments.replace(segments)
            _remove(segments)
            # After a power cut, segments that come back must not follow what is appended from now on.
            self._files.sync_directory(self._directory.path)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Remove all batches; the next one gets `offset`. Waits for the disk.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.planned.refuse_any()
        self.disposal.mark_dropped(now_ms)
        self._begin_truncation()
        try:
            old = self._segments.all()
            _remove(old)
            replacement = self._new_segment(offset, now_ms)
            self._segments.replace(old, [replacement])
            self._snapshots.delete_outside(offset, offset)
            # Before the recovery point on the disk passes the old segments: no start would read them again.
            self._files.sync_directory(self._directory.path)
            self.log_end_offset = self.log_start_offset = self.high_watermark = offset
            self._end_gap = None
            self.durability.restart_at(offset)
            self._reader.end = (offset, replacement, 0)
            self._reader.forget_positions()
            self.leader_epochs.clear()
            self._producers.clear(offset)
            self.truncation_count += 1
            self._options.on_truncated(self)
        except OSError as error:
            raise self.unfinished_error(error) from error

    # Moving

    def take_over_state(self, source: "Log") -> None:
        """Adopt the producers and leader epochs of `source`, whose batches this log already holds.

        `source` may know producers and epochs whose batches retention or compaction removed, so that none was copied.
        It must not be used afterwards. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        assert self.log_end_offset == source.next_offset
        try:
            self.leader_epochs.adopt(source.leader_epochs.entries)
            self._write_snapshot(self.log_end_offset, source.producers())
            self._producers = source.producers()
        except OSError as error:
            raise self.storage_error(error) from error

    def rename(self, path: str) -> None:
        """Rename the directory. Reads and flushes in other threads continue.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.planned.refuse_change()
        try:
            self._directory.rename(path, self._relocate)
        except OSError as error:
            raise self.unfinished_error(error) from error

    def _relocate(self, path: str) -> None:
        for segment in self._segments.all():
            segment.relocate(path)
        self._snapshots.relocate(path)
        self.leader_epochs.persist_with(epochs_writer(self._files, path))

    def close(self, now_ms: int) -> None:
        """Cut the indexes to their length, write a producer snapshot, sync, and close all files.

        A log without unflushed offsets is not synced: most logs are idle, and syncing them would cost a stop a second
        for each hundred. If a crash undoes the cut of its indexes, the next start cuts them again.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.planned.refuse_any()
        try:
            active = self._segments.active
            active.seal()
            if self.config.preallocate:
                active.cut_preallocation()
            self._write_snapshot(self._end_of_batches(self.log_end_offset), self._producers)
            self.leader_epochs.write_pending()
        except OSError as error:
            raise self.storage_error(error) from error
        if self.durability.unflushed_count:
            self.durability.flush(now_ms)
        self.release()

    def release(self) -> None:
        """Close all files and maps; they are opened again when needed."""
        for segment in self._segments.all():
            segment.release()
        self._reader.forget_positions()

    def take_offline(self) -> None:
        """Reject everything from now on: the directory has failed, or the files are about to be removed."""
        self.is_offline = True
        self.release()
        self._options.on_offline(self)

    def retire(self) -> None:
        """Take the log offline because it is to be deleted.

        The indexes are cut to their length first: a start that finds the directory before it is removed checks them.
        Raises OSError.
        """
        try:
            self._segments.active.seal()
        except OSError as error:
            # A full disk must not prevent deletions. A start can do without the indexes.
            if error.errno != errno.ENOSPC and not isinstance(error, ShortageError):
                raise
        finally:
            self.take_offline()

    def storage_error(self, error: OSError) -> KafkaError:
        if isinstance(error, ShortageError):
            self._options.on_shortage(error)
            return OutOfResourcesError(error)
        # If the log was offline before, for example because it is being deleted, the error does not prove a bad disk.
        if not self.is_offline:
            self.is_offline = True
            self._options.on_io_error(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def unfinished_error(self, error: OSError) -> KafkaError:
        """`storage_error` for a step that cannot be repeated: a shortage takes this log offline, and no other."""
        failed = self.storage_error(error)
        if isinstance(failed, OutOfResourcesError):
            self.take_offline()
            self._options.on_damage(f"{self._directory.path} is out of service until the next start: {error}")
        return failed

    def _gone_error(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of partition {self.topic}-{self.partition} was removed while it was read",
        )

    def refuse_offline(self) -> None:
        if self.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {self._directory.path} is offline")


def _next_offset_or(end_offset: int, segment: Segment) -> int:
    """Return where the last batch of a segment ends, `end_offset` if damage hides it."""
    try:
        return segment.next_offset()
    except (CorruptIndexError, CorruptSegmentError):
        return end_offset


def _remove(segments: Sequence[Segment]) -> None:
    """Remove the last segment first: a crash in between leaves a shorter log without a gap."""
    for segment in reversed(segments):
        segment.remove()


def roll_jitter_ms(config: LogConfig, random: Random) -> int:
    """Return a random part of segment.jitter.ms, which spreads the rolls of logs created together."""
    return random.randrange(min(config.segment_jitter_ms, config.segment_ms)) if config.segment_jitter_ms > 0 else 0
