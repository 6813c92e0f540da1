"""Appends to one log: as the leader, which assigns offsets, and as a follower.

Owns the order of steps that keeps segments, producer state and leader epochs consistent during an append. Must not know
requests, or where records come from.

While the log's directory is slow (`storage.disk.directory_writer`), an append gets its offsets now and is stored later,
in the directory's threads (`planned_appends`).

Invariants:
- A batch is checked, then written, then counted: if the check or the write raises, offsets and producer state have not
  changed. The index of aborted transactions comes last: if it cannot be written, the batch is in the log.
- The producer state is that of the planned end. The snapshot that a roll writes is taken when the append is planned.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import CONTROL_BIT, NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from protocol.records.compression import Buffer
from protocol.records.control import TransactionMarker
from storage.batches.stored_batch import StoredBatch
from storage.batches.validation import (
    NO_CONVERSION,
    AppendOrigin,
    ConversionCost,
    PreparedAppend,
    Refusal,
    prepare,
    validate_and_assign_offsets,
)
from storage.disk.directory_writer import SLOW_WRITE_S
from storage.disk.files import ShortageError
from storage.log.log_state import LogState
from storage.log.planned_appends import PlannedAppend, PlannedAppends
from storage.log.replicated import check_replicated
from storage.log.segment_rolls import SegmentRolls
from storage.producers.producer_snapshots import encode
from storage.producers.producer_state import BatchMetadata, marker_in
from storage.recovery.recovery import batches_before
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.segment import RELATIVE_OFFSET_MAX, CorruptSegmentError, Segment
from storage.segments.segment_files import SegmentGoneError
from storage.segments.transaction_index import AbortedTransaction

_new_tuple = tuple.__new__  # builds a named tuple in half the time that calling its class takes


class AppendResult(NamedTuple):
    """`log_append_time_ms` is -1 with CreateTime. The first two offsets are -1 if nothing was appended."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False
    conversion: ConversionCost = NO_CONVERSION


class LogAppends:
    """Appends to one log. `planned` and `rolls` are for the other parts of the log."""

    __slots__ = ("_state", "planned", "rolls")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.planned = PlannedAppends(state, self.store_planned, self.finish_planned)
        self.rolls = SegmentRolls(state, self.planned)

    @property
    def next_offset(self) -> int:
        """The offset of the next record. Offsets from the log's end on are planned and not stored yet."""
        return self.planned.end_offset if self.planned.count else self._state.log_end_offset

    def prepare(
        self, records: memoryview, *, now_ms: int, origin: AppendOrigin, is_alone: bool = True
    ) -> PreparedAppend | Refusal:
        """Validate `records` and convert them as the present configuration requires. Any thread.

        The caller must not change `records` until the result was appended.

        Raises TooCostlyError: they need a thread that others do not wait for, and `is_alone` is False.
        """
        state = self._state
        return prepare(
            records, state.rules, now_ms=now_ms, origin=origin, is_alone=is_alone, monotonic_s=state.files.monotonic_s
        )

    def assign_epoch(self, leader_epoch: int) -> None:
        """Record that a leader's epoch begins at the end of the log, before the leader accepts records.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._state.refuse_offline()
        # The start offset is read now: the first appends of the epoch may be planned before the entry can be written.
        self.planned.between_writes(partial(self._begin_epoch, leader_epoch, self.next_offset))

    def _begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        state = self._state
        if leader_epoch > state.leader_epochs.latest:
            state.leader_epochs.begin(leader_epoch, start_offset)

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
        append. If anything is raised, nothing was written and no state has changed; but if an aborted transaction
        cannot be added to its index, the marker is in the log.

        Args:
            records: as received, or as `prepare` returned them. The buffer is writable and is changed in place, also
                if the records are rejected.
            may_take_long: whether costly validation may run now, in this thread.

        Raises:
            KafkaError: the records are invalid (see `storage.batches.validation`), the producer's state forbids them,
                or KAFKA_STORAGE_ERROR.
            CorruptIndexError: the index of aborted transactions is damaged; reads that need it fail too.
            TooCostlyError: the records should go through `prepare` in another thread first, and are unchanged. Only
                without `may_take_long`.
        """
        state = self._state
        if state.is_offline:
            state.refuse_offline()
        planned = self.planned
        offset = planned.end_offset if planned.count else state.log_end_offset
        if type(records) is memoryview:
            validated = validate_and_assign_offsets(
                records,
                state.rules,
                offset,
                leader_epoch,
                now_ms,
                origin,
                may_take_long,
                monotonic_s=state.files.monotonic_s,
            )
        else:
            assert isinstance(records, PreparedAppend)
            validated = records.at(offset, leader_epoch)
        if validated is None:
            return AppendResult(-1, -1, NO_TIMESTAMP, state.log_start_offset)
        accepted, header, log_append_time_ms, conversion = validated
        marker = None
        has_producer = header.producer_id > NO_PRODUCER_ID
        if has_producer:
            duplicate, marker = self._check_producer(accepted, header, offset, origin)
            if duplicate is not None:
                return self._result_of_duplicate(duplicate, conversion)
        last_offset = offset + header.last_offset_delta
        if state.writer.is_slow:
            self._plan(accepted, header, offset, marker, leader_epoch, now_ms)
        else:
            self._write(accepted, offset, last_offset, header.max_timestamp, last_offset, leader_epoch, now_ms)
            if has_producer:
                if header.attributes & CONTROL_BIT:
                    self._apply_to_producers(header, offset, marker)
                else:
                    state.producer_state.append_data(header, offset)
        return _new_tuple(
            AppendResult, (offset, last_offset, log_append_time_ms, state.log_start_offset, False, conversion)
        )

    def append_as_follower(
        self, records: memoryview, *, now_ms: int, leader_epoch: int | None = None, may_plan: bool = False
    ) -> AppendResult:
        """Append what a leader has sent, with its offsets and epochs, as far as `check_replicated` accepts it.

        `leader_epoch` is the leader's present epoch: no batch may have a newer one, nor one that is older than the
        last batch of this log. None: the batches come from a log whose epochs need no check. With `may_plan` the
        append is planned if the directory is slow: `log_end_offset` rises when it is stored (`planned.when_stored`).

        The batches of each epoch are written by themselves. So when a write fails, no epoch begins above the log's end,
        and the batches of earlier epochs stay in the log.

        Raises:
            KafkaError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE (see `check_replicated`), KAFKA_STORAGE_ERROR.
            TryLaterError: An earlier append is planned, or another thread is changing the log.
        """
        state = self._state
        state.refuse_offline()
        self.planned.refuse_any()
        epochs = None if leader_epoch is None else (state.leader_epochs.latest, leader_epoch)
        runs = check_replicated(records, next_offset=state.log_end_offset, epochs=epochs)
        if not runs:
            return AppendResult(-1, -1, NO_TIMESTAMP, state.log_start_offset)
        first_offset, last_offset = runs[0].first_offset, runs[-1].last_offset
        batches = [batch for run in runs for batch in run.batches]
        if may_plan and state.writer.is_slow and all(batch.header is not None for batch in batches):
            self._plan_replicated(batches, now_ms)
            return AppendResult(first_offset, last_offset, NO_TIMESTAMP, state.log_start_offset)
        for run in runs:
            self._write(
                run.records,
                run.first_offset,
                run.last_offset,
                *run.largest,
                max(run.leader_epoch, state.leader_epochs.latest),
                now_ms,
            )
            for batch in run.batches:
                self._apply_replicated(batch)
        return AppendResult(first_offset, last_offset, NO_TIMESTAMP, state.log_start_offset)

    def _plan_replicated(self, batches: Sequence[StoredBatch], now_ms: int) -> None:
        """Plan the append of `batches`, which are copied. Requires that nothing else changes the log."""
        self.planned.refuse_change()
        epochs = self._state.leader_epochs
        for batch in batches:  # before the first write can begin, which uses the epochs in the directory's threads
            if batch.leader_epoch > epochs.latest:
                epochs.begin(batch.leader_epoch, batch.extent.base_offset)
        for batch in batches:
            header = batch.header
            assert header is not None
            marker = marker_in(batch.view, header) if header.is_control else None
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
        state = self._state
        segment = state.segments.active
        now_s = state.writer.clock_s
        started_s = now_s()
        try:
            # This append stores nearly all batches; `_store` handles the rest. It spares a call on the hot path.
            try:
                is_stored = leader_epoch <= state.leader_epochs.latest_written and segment.append(
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
                    end_offset=state.log_end_offset,
                )
        except OSError as error:
            raise state.storage_error(error) from error
        state.log_end_offset = end_offset = last_offset + 1
        state.segment_reader.end = (end_offset, segment, segment.size)
        if (elapsed_s := now_s() - started_s) > SLOW_WRITE_S:
            state.writer.note_slow_write(elapsed_s, now_s)

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
        state = self._state
        if leader_epoch > state.leader_epochs.latest_written:
            state.leader_epochs.store_first_record(leader_epoch, first_offset)
        segment = state.segments.active
        try:
            is_stored = segment.append(records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms)
        except (CorruptSegmentError, CorruptIndexError) as damage:
            state.count_damage(damage)
            state.report_once(f"{damage}; a new segment begins at offset {end_offset}")
            is_stored = False
        if not is_stored:
            # The new segment begins where the last batch ends, also if a gap follows in the leader's log. So a start
            # after a crash can distinguish such a gap from lost records. Only a gap of 2^31 offsets is too wide.
            base_offset = state.end_of_batches(end_offset)
            if last_offset - base_offset > RELATIVE_OFFSET_MAX:
                base_offset = first_offset
            segment = self.rolls.roll(base_offset, now_ms, snapshot)
            is_stored = segment.append(records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms)
            assert is_stored, f"a segment from {base_offset} on cannot hold offset {last_offset}"
        return segment

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
        state = self._state
        planned, active_size = self.planned, state.segments.active.size
        snapshot = None
        if planned.begins_segment(len(records), active_size):
            snapshot = encode(state.producer_state.producers.values())
        aborted = None
        if header.producer_id > NO_PRODUCER_ID:
            aborted = state.producer_state.append(header, offset, marker)
        planned.add(
            records,
            offset,
            offset + header.last_offset_delta,
            header.max_timestamp,
            aborted,
            leader_epoch,
            now_ms,
            log_end_offset=state.log_end_offset,
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
        state = self._state
        if error is not None and not state.is_offline:
            self._fail_planned(error)
        segment = append.segment
        if segment is not None and not state.is_offline:
            state.log_end_offset = end_offset = append.last_offset + 1
            state.segment_reader.end = (end_offset, segment, segment.size)
            if append.config is not state.config:
                self.rolls.activate(
                    state.segments.active
                )  # the segment may have been rolled by the earlier configuration
        state.options.on_write_finished(state)

    def _fail_planned(self, error: Exception) -> None:
        """Take the log offline: a planned append cannot be stored, so no later one can either."""
        state = self._state
        if isinstance(error, OSError):
            state.unfinished_error(error)
        else:
            state.take_offline()
            state.options.on_damage(f"{state.folder.path} is out of service until the next start: {error!r}")

    def _check_producer(
        self, records: Buffer, header: BatchHeader, offset: int, origin: AppendOrigin
    ) -> tuple[BatchMetadata | None, TransactionMarker | None]:
        """Return the earlier batch that this one repeats, and the marker that it contains. Raises KafkaError."""
        producers = self._state.producer_state
        if header.attributes & CONTROL_BIT:
            marker = marker_in(records, header)
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
        state = self._state
        entry = state.producer_state.entry_to_recall(header)
        if entry is None:
            return False
        segments = state.segments.covering(state.log_start_offset, entry.batches[0].first_offset)
        try:
            earlier = batches_before(segments, entry)
        except (OSError, SegmentGoneError, CorruptIndexError, CorruptSegmentError):
            return False
        entry.recall(earlier)
        return bool(earlier)

    def _result_of_duplicate(self, duplicate: BatchMetadata, conversion: ConversionCost) -> AppendResult:
        state = self._state
        log_append_time_ms = duplicate.timestamp_ms if state.rules.is_log_append_time else NO_TIMESTAMP
        return AppendResult(
            duplicate.first_offset,
            duplicate.last_offset,
            log_append_time_ms,
            state.log_start_offset,
            is_duplicate=True,
            conversion=conversion,
        )

    def _apply_to_producers(self, header: BatchHeader, offset: int, marker: TransactionMarker | None) -> None:
        """Raises KafkaError: KAFKA_STORAGE_ERROR."""
        state = self._state
        aborted = state.producer_state.append(header, offset, marker)
        if aborted is not None:
            try:
                self._index_aborted(state.segments.active, aborted)
            except OSError as error:
                raise state.storage_error(error) from error

    def _index_aborted(self, segment: Segment, aborted: AbortedTransaction) -> None:
        """Index an aborted transaction whose marker is in `segment`. Raises OSError, CorruptIndexError."""
        try:
            segment.transaction_index.append(aborted)
        except ShortageError as error:
            self._state.options.on_shortage(error)  # the index holds the entry in memory and writes it later

    def _apply_replicated(self, batch: StoredBatch) -> None:
        header = batch.header
        if header is not None and header.producer_id > NO_PRODUCER_ID:
            marker = marker_in(batch.view, header) if header.is_control else None
            self._apply_to_producers(header, header.base_offset, marker)

    # Rolling

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log's end, unless the active one is empty. Raises KafkaError."""
        state = self._state
        self.planned.refuse_change()
        try:
            self.rolls.roll(state.end_of_batches(state.log_end_offset), now_ms)
        except OSError as error:
            raise state.storage_error(error) from error
