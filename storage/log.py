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

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from storage.damaged_batches import DamagedBatches, MetBy
from storage.directory_writer import SLOW_WRITE_S, DirectoryWriter
from storage.files import Files, FileSlice, ShortageError
from storage.leader_epochs import LeaderEpochs
from storage.log_disposal import LogDisposal
from storage.log_durability import LogDurability
from storage.log_loader import PRODUCERS_UNKNOWN, LoadedLog, epochs_writer, state_at
from storage.log_reader import FetchedRecords, FoundOffset, LogReader
from storage.mapped_index import CorruptIndexError
from storage.names import DirectoryState
from storage.partition_directory import PartitionDirectory
from storage.planned_appends import PlannedAppend, PlannedAppends
from storage.producer_snapshots import encode
from storage.producer_state import BatchMetadata, ProducerState, marker_in
from storage.replicated import check_replicated
from storage.segment import RELATIVE_OFFSET_MAX, CorruptSegmentError, NotInMemoryError, Segment, SegmentGoneError
from storage.segments import Segments
from storage.shortages import OutOfResourcesError
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
    "Log",
    "LogOptions",
    "PreparedAppend",
    "Refusal",
    "TimestampedOffset",
]

_REPORTS_MAX: Final = 100


_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class


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


class Log:
    """See the module. `log_start_offset`, `log_end_offset`, `high_watermark` and `recovery_point` are for reading."""

    __slots__ = (
        "_directory",
        "_files",
        "_now_s",
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
        self._now_s = options.writer.now_s
        self._directory = PartitionDirectory(options.files, directory)
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self._producers = loaded.producer_state
        self._reported: set[str] = set()
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
        self.reconfigure(config)
        self.planned = PlannedAppends(self, options.writer, self._directory)

    # What it is

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def directory(self) -> Path:
        return Path(self._directory.path)

    @property
    def is_future(self) -> bool:
        """Whether this is a copy on its way to another log directory, not in service yet."""
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
        """For the cleaner and for tools; segments are changed by the log alone."""
        return self._segments

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
            raise self.storage_error(error) from error

    def _write_topic_id(self, topic_id: UUID) -> None:
        checkpoints.write_partition_metadata(
            self._files, f"{self._directory.path}/{names.PARTITION_METADATA}", topic_id
        )
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
        self.refuse_offline()
        # Where it begins is told now: its first appends may be planned before it can be recorded.
        self.planned.between_writes(partial(self._begin_epoch, leader_epoch, self.next_offset))

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
            self.refuse_offline()
        planned = self.planned
        offset = planned.end_offset if planned.count else self.log_end_offset
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
        self.refuse_offline()
        self.planned.refuse_any()
        checked = check_replicated(records, next_offset=self.log_end_offset)
        if not checked.batches:
            return AppendResult(-1, -1, NO_TIMESTAMP, self.log_start_offset)
        first_offset, last_offset = checked.first_offset, checked.last_offset
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
            raise self.storage_error(error) from error
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
            self.count_damage(damage)
            self.report_once(f"{damage}; a new segment begins at offset {end_offset}")
            taken = False
        if not taken:
            # At the log's end also where the leader's log has a gap behind that, so that a start after a crash can
            # tell such a gap from records that were lost. Only a gap of 2^31 offsets is too wide for a segment.
            base_offset = first_offset if last_offset - end_offset > RELATIVE_OFFSET_MAX else end_offset
            segment = self._roll(base_offset, now_ms, snapshot)
            taken = segment.append(records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms)
            assert taken, f"a segment from {base_offset} on cannot hold offset {last_offset}"
        return segment

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
        """`header` says what the batch was before it had its offset. `records` are copied."""
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
            active_size=active_size,
            snapshot=snapshot,
        )

    def store_planned(self, append: PlannedAppend) -> Segment:
        """Write a planned append; return the segment that holds it. In the directory's thread, for `planned`.

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
            end_offset=append.offset,
            snapshot=append.snapshot,
        )
        for aborted in append.aborted:
            self._index_aborted(segment, aborted)
        return segment

    def finish_planned(self, append: PlannedAppend, error: Exception | None) -> None:
        """Make a stored append readable; if it failed with `error`, take the log offline. For `planned`."""
        if error is not None and not self.is_offline:
            self._give_up(error)
        segment = append.segment
        if segment is not None and not self.is_offline:
            self.log_end_offset = end_offset = append.last_offset + 1
            self._reader.end = (end_offset, segment, segment.size)
            if append.config is not self.config:
                self._activate(self._segments.active)  # the segment may have been rolled by the earlier configuration
        self._options.on_write_finished(self)

    def _give_up(self, error: Exception) -> None:
        """An append that was planned cannot be stored, and what was planned after it neither."""
        if isinstance(error, OSError):
            self.unfinished_error(error)
        else:
            self.take_offline()
            self._options.on_damage(f"{self._directory.path} is out of service until the next start: {error!r}")

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
                raise self.storage_error(error) from error

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
        """Returns if a segment's files were removed or renamed before the reader opened them: the read is repeated.

        The segments that the log has now hold the offset, or the log starts above it. The repetition ends, because a
        segment leaves the log before its files go. After a truncation the read fails instead: the caller's upper bound
        may lie above what is committed now. Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        if isinstance(error, SegmentGoneError):
            if self.was_truncated_since(truncation_count):
                raise self._gone_error(offset) from error
        elif not self._directory.has_moved(error):
            raise self.storage_error(error) from error

    def was_truncated_since(self, truncation_count: int) -> bool:
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
            self.count_damage(error)
            self.report_once(f"{error}; answered CORRUPT_MESSAGE")
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
        self.refuse_offline()
        truncation_count = self.truncation_count
        try:
            found = look_up()
        except SegmentGoneError:
            # Retention or a cleaning has removed it during the look-up: the present segments are searched instead.
            return None if self.was_truncated_since(truncation_count) else self._found(look_up, upper_bound_offset)
        except (CorruptIndexError, CorruptSegmentError) as damage:
            if self.was_truncated_since(truncation_count):
                return None
            self.count_damage(damage)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except OSError as error:
            if self._directory.has_moved(error):
                return self._found(look_up, upper_bound_offset)
            raise self.storage_error(error) from error
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
            self.report_once(f"{damage}; answered CORRUPT_MESSAGE")
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except OSError as error:
            raise self.storage_error(error) from error

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
            self.planned.refuse_change()
            self.raise_log_start(offset)

    def raise_log_start(self, offset: int) -> None:
        self.leader_epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.durability.raise_recovery_point(offset)
        self._producers.on_log_start(offset)
        self._options.on_log_start_raised(self)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that were silent for longer; returns how many."""
        return self._producers.remove_expired(now_ms, expiration_ms)

    # Rolling, truncating, retention

    def roll(self, now_ms: int) -> None:
        """Starts a new segment at the log's end, unless the active one is new itself."""
        self.planned.refuse_change()
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.storage_error(error) from error

    def _roll(self, base_offset: int, now_ms: int, snapshot: bytes | None = None) -> Segment:
        """`snapshot` is of the producers up to `base_offset`; without one they are taken as they are, unless appends
        are planned: then there is no snapshot, which costs a start after a crash some time."""
        active = self._segments.active
        if active.size == 0 and active.base_offset == base_offset:
            return active
        active.seal()
        if self.config.preallocate:
            active.cut_preallocation()
        if snapshot is not None or not self.planned.count:
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
            self.planned.refuse_change()
            # An epoch that began here and wrote nothing may contradict what the new leader has at this offset.
            try:
                self.leader_epochs.truncate_from_end(self.next_offset)
            except OSError as error:
                raise self.storage_error(error) from error
            return False
        self.planned.refuse_any()
        self.disposal.mark_dropped(now_ms)  # the names of segments become free for others
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        try:
            self._truncate(offset)
        except OSError as error:
            raise self.unfinished_error(error) from error
        except (CorruptSegmentError, CorruptIndexError) as error:
            self.take_offline()  # half done: it can be neither appended to nor read
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._directory.path} cannot be truncated: {error}"
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
        self.durability.lower_recovery_point(offset)
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
        self.count_damage(damage)
        self._options.on_damage(f"{damage}; {PRODUCERS_UNKNOWN}")

    def _begin_truncation(self) -> None:
        with self.durability.without_rise():
            self.truncation_count += 1  # odd during a truncation

    def _drop(self, segments: Sequence[Segment]) -> None:
        if segments:
            self._segments.replace(segments)
            _remove(segments)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Removes everything; the next batch gets `offset`. It waits for the disk."""
        self.planned.refuse_any()
        self.disposal.mark_dropped(now_ms)
        self._begin_truncation()
        try:
            old = self._segments.all()
            _remove(old)
            replacement = self._new_segment(offset, now_ms)
            self._segments.replace(old, [replacement])
            self.log_end_offset = self.log_start_offset = self.high_watermark = offset
            self.durability.restart_at(offset)
            self._reader.end = (offset, replacement, 0)
            self._reader.forget_positions()
            self.leader_epochs.clear()
            self._snapshots.delete_outside(offset, offset)
            self._producers.clear(offset)
            self.truncation_count += 1
            self._options.on_truncated(self)
        except OSError as error:
            raise self.unfinished_error(error) from error

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
            raise self.storage_error(error) from error

    def rename(self, path: str) -> None:
        """Gives the directory another name. Whoever reads or syncs meanwhile in another thread goes on.

        Raises KafkaError KAFKA_STORAGE_ERROR.
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
        """A clean end: indexes at their length, a snapshot at the log's end, everything synced, nothing held.

        A log that has nothing to sync is not synced: most are idle, and a stop must not take a second for each hundred.
        What was only cut meanwhile is cut again at the next start. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        self.planned.refuse_any()
        try:
            active = self._segments.active
            active.seal()
            if self.config.preallocate:
                active.cut_preallocation()
            self._write_snapshot(self._producers)
            self.leader_epochs.write_pending()
        except OSError as error:
            raise self.storage_error(error) from error
        if self.durability.unflushed_count:
            self.durability.flush(now_ms)
        self.release()

    def release(self) -> None:
        """Gives all descriptors and maps back; they are opened again when needed."""
        for segment in self._segments.all():
            segment.release()
        self._reader.forget_positions()

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

    def storage_error(self, error: OSError) -> KafkaError:
        if isinstance(error, ShortageError):
            self._options.on_shortage(error)
            return OutOfResourcesError(error)
        # A log that was taken out of service before, deleted perhaps, says nothing about its directory any more.
        if not self.is_offline:
            self.is_offline = True
            self._options.on_io_error(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def unfinished_error(self, error: OSError) -> KafkaError:
        """`storage_error` in a step that cannot be repeated: after a shortage the log alone is out of service."""
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


def _remove(segments: Sequence[Segment]) -> None:
    """The last one first: a crash in between leaves a shorter log, and no gap."""
    for segment in reversed(segments):
        segment.remove()


def roll_jitter_ms(config: LogConfig, random: Random) -> int:
    """Spreads the rolls of logs that were made together."""
    return random.randrange(min(config.segment_jitter_ms, config.segment_ms)) if config.segment_jitter_ms > 0 else 0
