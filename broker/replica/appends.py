"""Appends the batches of one Produce request to the partitions that this broker leads.

Owns the order of the steps: admit transactional batches, wait for room in slow directories, validate and append each
batch, and wait for the durability that the client requested. Must not know the layout of requests and responses: each
row gets an outcome.

Most requests have their outcomes synchronously. These cases take a coroutine:

* the coordinator of the transaction is another broker, which has to verify that the partitions are part of it;
* a slow log directory has no room for more appends;
* records take milliseconds to validate, so they are prepared in a thread. The event loop assigns their offsets when it
  appends them;
* the append is not written yet (slow directory), not synced as `flush.messages` demands, or not committed (acks=all).

The failure of one partition never affects the others. The records of a row point into the frame, which is valid only
during the call: code that waits copies them before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from base.clock import Clock
from base.line_limit import LineLimit
from base.pause import InThread, Pause, each, never, whole
from base.topic_partition import TopicPartition
from broker.loop.cpu_pool import CpuPool
from broker.loop.promise import Promise
from broker.loop.slices import SLICE_MS
from broker.loop.waits import Converting
from broker.replica.bound_partition import Bound, BoundPartition, bind
from broker.replica.delayed_produce import AwaitedAppend
from broker.replica.machine.refused_batches import RefusedBatches
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.replica.transaction_verification import (
    ATTRIBUTES_POSITION,
    Admission,
    ClientTerms,
    TransactionVerifier,
    has_open_transaction,
    transactional_header,
)
from protocol.errors import ERRORS, ErrorCode, KafkaError, Malformed
from protocol.messages.produce import ProduceRow
from protocol.records.batch import HEADER_SIZE, NO_PRODUCER_ID, BatchHeader, crc_is_valid, read_header
from protocol.records.compression import Buffer
from storage.batches.validation import AppendOrigin, PreparedAppend, Refusal, TooCostlyError, first_batch
from storage.log.log import Log
from storage.log.log_appends import AppendResult
from storage.producers.producer_state import NONE, ProducerState

logger = logging.getLogger("kafka.server.ReplicaManager")

ACKS_ALL = -1

SEQUENCE_ERRORS = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""After these errors a producer may begin a new epoch and send its batches again, so each of them is worth a line."""

LINE_INTERVAL_S, LINES_MAX = 10.0, 20

REPLICAS, TRANSACTION_COORDINATOR = "replicas", "transaction coordinator"  # what a produce waits for

PARTITIONS_IN_ONE_STEP_MAX = 16
"""The first append to a partition opens its files, which takes a fraction of a millisecond."""

QUICK_SIZE_MAX = 4096
"""Uncompressed records below this size take a few microseconds to validate."""

Batches = list[tuple[TopicPartition, ProducerState, BatchHeader]]
"""Transactional batches with what their partitions know of producers."""

Outcome = AppendResult | Refusal
Outcomes = list[Outcome]
"""The outcome of each row, in order."""
Appended = Outcomes | Coroutine[Any, Any, Outcomes]
"""The outcomes, or a coroutine that returns them."""


ADMIN_CLIENT_ID = "__admin_client"
"""The only client id whose requests may append to the coordinators' topics."""


class AppendTerms(NamedTuple):
    """The fields of a request that apply to all its rows."""

    acks: int
    timeout_ms: int
    transactional_id: str | None
    origin: AppendOrigin
    client: ClientTerms
    client_id: str | None
    waits: Converting
    """Records the waits for other brokers, and conversions."""
    bound: Bound
    """The bound partitions of the client."""


class _Costly(NamedTuple):
    """A row whose records have to be prepared in a thread."""

    log: Log
    records: bytearray


class _Waiting(NamedTuple):
    """A row whose append is not yet as durable as the request demands."""

    result: AppendResult
    append: AwaitedAppend


_Undecided = AppendResult | Refusal | _Costly | _Waiting
_DECIDED = frozenset({AppendResult, Refusal})
_APPENDED = frozenset({AppendResult, _Waiting})


class Appends:
    """The appends of all clients."""

    def __init__(
        self,
        manager: ReplicaManager,
        verifier: TransactionVerifier,
        cpu_pool: CpuPool,
        clock: Clock,
        *,
        why_not_hosted: Callable[[str, int], KafkaError],
        in_thread: InThread,
        internal_topics: frozenset[str],
    ) -> None:
        """`why_not_hosted(topic, partition)` returns the error for a partition that is not served here.

        `in_thread(work)` runs `work`, which may wait for a disk, in a thread.
        """
        self._manager = manager
        self._verifier = verifier
        self._cpu_pool = cpu_pool
        self._clock = clock
        self._why_not_hosted = why_not_hosted
        self._in_thread = in_thread
        self._internal_topics = internal_topics
        self._refused_batches = RefusedBatches()
        self._sequence_lines = LineLimit(LINE_INTERVAL_S, LINES_MAX)

    def serve(self, rows: Sequence[ProduceRow], terms: AppendTerms) -> Appended:
        """Append a few rows, which name each partition once.

        Records of the frame are appended or copied before this returns; the coroutine does what takes longer.

        Raises:
            KafkaError: The request is rejected as a whole.
        """
        admission = None
        if terms.transactional_id is not None or self._manager.slow_directories:
            admitted = self._admitted(rows, terms, whole(self._transactional_batches(rows, terms, never)))
            if isinstance(admitted, Awaitable):
                return self._when_admitted(with_own_records(rows), terms, admitted)
            admission = admitted
        return self._serve_few(rows, terms, admission)

    async def serve_in_slices(self, rows: Sequence[ProduceRow], terms: AppendTerms, pause: Pause) -> Outcomes:
        """Do the same as `serve` for many rows, whose records must stay valid until they are appended."""
        admitted = self._admitted(rows, terms, await self._transactional_batches(rows, terms, pause))
        admission = await self._wait_for(admitted, terms) if isinstance(admitted, Awaitable) else admitted
        now_ms = self._clock.now_ms()
        outcomes = await each(rows, lambda row: self._append_one(row, terms, admission, now_ms), pause)
        if _DECIDED.issuperset(map(type, outcomes)):
            return cast(Outcomes, outcomes)
        return await self._outcomes_later(rows, outcomes, terms, admission)

    # -- before the append -------------------------------------------------------------------------------------------

    async def _transactional_batches(self, rows: Sequence[ProduceRow], terms: AppendTerms, pause: Pause) -> Batches:
        """Return the transactional batches for partitions led here, with the producer states of these partitions.

        A batch with a wrong CRC is left out: its producer and sequence may be wrong, and a guard would keep them. The
        CRC is checked only where a guard is needed, which is once for each partition of a transaction.
        """
        batches: Batches = []
        if terms.transactional_id is None:
            return batches
        for row in rows:
            header = None if row.records is None else transactional_header(row.records)
            found = bind(terms.bound, self._manager, row.name, row.index_)
            if header is not None and found is not None and found.partition.is_leader:
                state = found.log.producer_state
                if has_open_transaction(state, header) or crc_is_valid(row.records, 0, header):  # type: ignore[arg-type]
                    batches.append((found.key, state, header))
            await pause()
        return batches

    def _admitted(
        self, rows: Sequence[ProduceRow], terms: AppendTerms, batches: Batches
    ) -> Admission | Awaitable[Admission | None] | None:
        """Return the admission of a request's transactional batches, None if it has none.

        Returns an awaitable if another broker has to verify them, or a log has no room. Raises KafkaError.
        """
        admitted: Admission | Awaitable[Admission] | None = None
        if terms.transactional_id is not None:
            admitted = self._verifier.admit(terms.transactional_id, batches, terms.client)
        if isinstance(admitted, Awaitable) or self._log_without_room(rows, terms.bound) is not None:
            return self._admitted_with_room(rows, terms, admitted)
        return admitted

    async def _admitted_with_room(
        self, rows: Sequence[ProduceRow], terms: AppendTerms, admitted: Admission | Awaitable[Admission] | None
    ) -> Admission | None:
        """Wait until all logs have room. Raises KafkaError(REQUEST_TIMED_OUT) before anything is appended."""
        admission = await admitted if isinstance(admitted, Awaitable) else admitted
        loop = asyncio.get_running_loop()
        deadline_ms = self._clock.monotonic_ms() + max(terms.timeout_ms, 0)
        while (log := self._log_without_room(rows, terms.bound)) is not None:
            room = loop.create_future()
            log.planned.when_room(lambda room=room: None if room.done() else room.set_result(None))  # type: ignore[misc]
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                for row in rows:
                    if row.records is not None:
                        found = bind(terms.bound, self._manager, row.name, row.index_)
                        self._note_refused_batch(row.name, row.index_, found, row.records, Refusal.of(error))
                raise error
            await asyncio.wait({room}, timeout=left_ms / 1000)
        return admission

    async def _when_admitted(
        self, rows: Sequence[ProduceRow], terms: AppendTerms, admitted: Awaitable[Admission | None]
    ) -> Outcomes:
        appended = self._serve_few(rows, terms, await self._wait_for(admitted, terms))
        return appended if isinstance(appended, list) else await appended

    async def _wait_for(self, admitted: Awaitable[Admission | None], terms: AppendTerms) -> Admission | None:
        terms.waits.begin_wait(TRANSACTION_COORDINATOR, self._clock.monotonic_s())
        admission = await admitted
        terms.waits.end_wait(self._clock.monotonic_s())
        return admission

    def _log_without_room(self, rows: Sequence[ProduceRow], bound: Bound) -> Log | None:
        """Return a log that accepts no appends now: too many bytes wait to be written to its slow directory."""
        if self._manager.slow_directories:
            for row in rows:
                found = bind(bound, self._manager, row.name, row.index_)
                if found is not None and not found.log.planned.has_room:
                    return found.log
        return None

    # -- the append --------------------------------------------------------------------------------------------------

    def _serve_few(self, rows: Sequence[ProduceRow], terms: AppendTerms, admission: Admission | None) -> Appended:
        """Append the rows in one step. Those that are left when a slice is over are prepared in a thread."""
        clock = self._clock
        end_ms = None if len(rows) == 1 else clock.monotonic_ms() + SLICE_MS
        outcomes = self._append(rows, terms, admission, clock.now_ms(), end_ms)
        if _DECIDED.issuperset(map(type, outcomes)):
            return outcomes  # type: ignore[return-value]  # as their types say
        return self._outcomes_later(rows, outcomes, terms, admission)

    def _append_one(self, row: ProduceRow, terms: AppendTerms, admission: Admission | None, now_ms: int) -> _Undecided:
        return self._append((row,), terms, admission, now_ms)[0]

    def _append(
        self,
        rows: Sequence[ProduceRow],
        terms: AppendTerms,
        admission: Admission | None,
        now_ms: int,
        end_ms: int | None = None,
        prepared: PreparedAppend | None = None,
    ) -> list[_Undecided]:
        """Append the records of each row, or the `prepared` append of the only one; return the outcomes.

        From `end_ms` on, leave records that take long to validate to a thread. Readers that wait for records are woken
        once all are appended.
        """
        acks, _, _, origin, _, client_id, waits, bound = terms
        manager = self._manager
        needs_isr = acks == ACKS_ALL
        may_follow_refused = now_ms < self._refused_batches.until_ms
        # In an old format, a few bytes may open to many messages, and the codec is elsewhere.
        quick_size_max = 0 if origin is AppendOrigin.OLD_CLIENT else QUICK_SIZE_MAX
        outcomes: list[_Undecided] = []
        try:
            for topic, index, records in rows:
                found = bound.get((topic, index))
                if found is None or found.version != found.partition.version:
                    found = bind(bound, manager, topic, index)
                try:
                    if found is None:
                        raise self._why_not_hosted(topic, index)
                    if topic in self._internal_topics and client_id != ADMIN_CLIENT_ID:
                        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
                    if records is None:
                        raise KafkaError(ErrorCode.INVALID_RECORD, f"No records for partition {topic}-{index}")
                    if not HEADER_SIZE <= len(records) < quick_size_max or records[ATTRIBUTES_POSITION]:
                        if (header := transactional_header(records)) is not None and found.partition.is_leader:
                            _check_admission(found, header, admission, records)
                        if end_ms is not None and self._must_leave_to_thread(found.log, records, end_ms):
                            outcomes.append(_Costly(found.log, bytearray(records)))
                            continue
                    if may_follow_refused:
                        self._require_earlier_batches(found, records)
                    # The records of a scanned row are a memoryview.
                    result = found.append_unread(prepared or records, needs_isr, now_ms, origin, False, waits)  # type: ignore[arg-type]
                except KafkaError as error:
                    outcomes.append(self._refused(topic, index, found, Refusal.of(error), records))
                    continue
                except TooCostlyError:
                    assert found is not None
                    assert records is not None
                    outcomes.append(_Costly(found.log, bytearray(first_batch(records))))
                    continue
                log = found.log
                if (
                    log.planned.count
                    or (found.may_need_flush and log.durability.needs_flush)
                    or (needs_isr and log.high_watermark <= result[1])
                ):
                    outcomes.append(_Waiting(result, _awaited(found.partition, result, needs_isr)))
                else:
                    outcomes.append(result)
        finally:
            if manager.fetch_purgatory.watched or manager.fetch_news.watched:
                self._wake_readers(rows, outcomes, bound)
        return outcomes

    def _must_leave_to_thread(self, log: Log, records: Buffer, end_ms: int) -> bool:
        """Return whether no time is left to validate records here, and whether their size is valid.

        A check of the size is cheaper than the copy for a thread.
        """
        return self._clock.monotonic_ms() >= end_ms and len(records) <= log.config.max_message_bytes

    def _wake_readers(self, rows: Sequence[ProduceRow], outcomes: Sequence[_Undecided], bound: Bound) -> None:
        for row, outcome in zip(rows, outcomes, strict=False):
            found = bind(bound, self._manager, row.name, row.index_)
            if found is not None and type(outcome) in _APPENDED:
                self._manager.wake_readers(found.partition)

    def _refused(
        self, topic: str, index: int, partition: BoundPartition | None, refusal: Refusal, records: Buffer | None
    ) -> Refusal:
        """Note and count what is refused; return the refusal."""
        if records is not None:
            self._note_refused_batch(topic, index, partition, records, refusal)
        metrics = self._manager.topic_metrics.others if partition is None else partition.metrics
        metrics.refused(refusal, 0 if records is None else len(records))
        return refusal

    def _require_earlier_batches(self, partition: BoundPartition, records: Buffer) -> None:
        """Check that no batch was refused that the same producer had sent before this one. Raises KafkaError."""
        header = _idempotent_header(records)
        if header is not None:
            code = self._refused_batches.code_for(*partition.key, header, _last_sequence(partition, header))
            if code is not None:
                raise KafkaError(code)

    def _note_refused_batch(
        self, topic: str, index: int, partition: BoundPartition | None, records: Buffer, refusal: Refusal
    ) -> None:
        """Note that a batch is refused, for those that the same producer has sent behind it."""
        try:
            header = read_header(records)
        except Malformed:
            return
        if ERRORS[refusal.code].retriable and not crc_is_valid(records, 0, header):
            self._refused_batches.add_corrupt(topic, index, refusal.code, self._clock.now_ms())
        elif header.producer_id > NO_PRODUCER_ID:
            last_sequence = _last_sequence(partition, header)
            self._refused_batches.add(topic, index, header, last_sequence, refusal.code, self._clock.now_ms())
            if refusal.code in SEQUENCE_ERRORS:
                self._log_sequence_error(refusal, header)

    def _log_sequence_error(self, refusal: Refusal, header: BatchHeader) -> None:
        held_back = self._sequence_lines.admit(self._clock.monotonic_s())
        if held_back is None:
            return
        logger.info(
            "Refused a batch of producer %d with epoch %d and sequences %d to %d: %s: %s%s",
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            refusal.code.name,
            refusal.message,
            f" ({held_back} such lines not logged)" if held_back else "",
        )

    def _outcomes_later(
        self,
        rows: Sequence[ProduceRow],
        outcomes: list[_Undecided],
        terms: AppendTerms,
        admission: Admission | None,
    ) -> Coroutine[Any, Any, Outcomes]:
        """Return a coroutine that returns the outcomes, of which some are undecided."""
        # The records stay in the frame, which is not kept until the outcomes are known.
        costly = {
            position: rows[position]._replace(records=None)
            for position, outcome in enumerate(outcomes)
            if type(outcome) is _Costly
        }
        if not costly and all(map(_waits_for_replicas_alone, outcomes)):
            return self._when_committed(outcomes, terms)
        return self._when_decided(costly, outcomes, terms, admission)

    # -- after the append --------------------------------------------------------------------------------------------

    async def _when_committed(self, outcomes: list[_Undecided], terms: AppendTerms) -> Outcomes:
        """Return the outcomes once all appends are committed."""
        waiting = _waiting_in(outcomes)
        await self._committed(list(waiting.values()), terms, self._deadline_ms(terms))
        return _with_errors(outcomes, waiting)

    def _deadline_ms(self, terms: AppendTerms) -> int:
        return self._clock.monotonic_ms() + max(terms.timeout_ms, 0)

    async def _committed(self, appends: list[AwaitedAppend], terms: AppendTerms, deadline_ms: int) -> None:
        """Wait until each append is committed or has an error."""
        terms.waits.begin_wait(REPLICAS, self._clock.monotonic_s())
        await self._until_decided(appends, deadline_ms)
        terms.waits.end_wait(self._clock.monotonic_s())

    async def _when_decided(
        self,
        costly: Mapping[int, ProduceRow],
        outcomes: list[_Undecided],
        terms: AppendTerms,
        admission: Admission | None,
    ) -> Outcomes:
        """Return the outcomes once all appends are written, synced as flush.messages demands and, with acks=all,
        committed."""
        for position, outcome in enumerate(outcomes):
            if isinstance(outcome, _Costly):
                outcomes[position] = await self._append_prepared(costly[position], outcome, terms, admission)
        waiting = _waiting_in(outcomes)
        deadline_ms = self._deadline_ms(terms)
        await self._until_decided(
            [
                AwaitedAppend(append.partition, append.leading_since, append.end_offset, needs_isr=False)
                for append in waiting.values()
                if append.partition.log.planned.count
            ],
            deadline_ms,
        )
        for append in waiting.values():
            if append.partition.log.durability.needs_flush:
                from broker.replica.log_sync import sync_log  # on demand: few topics have flush.messages

                try:
                    await sync_log(append.partition, self._in_thread, self._clock)
                except KafkaError as error:
                    append.error = error.code
        await self._committed(list(waiting.values()), terms, deadline_ms)
        return _with_errors(outcomes, waiting)

    async def _append_prepared(
        self, row: ProduceRow, costly: _Costly, terms: AppendTerms, admission: Admission | None
    ) -> _Undecided:
        """Append records that take long to validate: a thread prepares them first."""
        now_ms = self._clock.now_ms()
        records = memoryview(costly.records)
        prepare = partial(costly.log.appends.prepare, records, now_ms=now_ms, origin=terms.origin)
        try:
            prepared = await self._cpu_pool.run(partial(prepare, is_alone=False))
        except TooCostlyError:
            prepared = await self._cpu_pool.run_alone(partial(prepare, is_alone=True))
        if isinstance(prepared, Refusal):
            partition = bind(terms.bound, self._manager, row.name, row.index_)
            return self._refused(row.name, row.index_, partition, prepared, records)
        (outcome,) = self._append((row._replace(records=records),), terms, admission, now_ms, prepared=prepared)
        return outcome

    async def _until_decided(self, appends: list[AwaitedAppend], deadline_ms: int) -> None:
        """Wait until each append has its outcome."""
        if appends:
            decided: Promise[None] = Promise()
            operation = self._manager.await_commit(appends, deadline_ms, lambda: decided.set_result(None))
            decided.on_cancel(lambda: self._manager.produce_purgatory.abandon(operation))
            await decided


def _waits_for_replicas_alone(outcome: _Undecided) -> bool:
    """Return whether an outcome is known, or will be once the replicas have the records: nothing waits for the disk."""
    if not isinstance(outcome, _Waiting):
        return True
    log = outcome.append.partition.log
    return not log.planned.count and not log.durability.needs_flush


def _waiting_in(outcomes: Sequence[_Undecided]) -> dict[int, AwaitedAppend]:
    """Return the appends that wait, by the positions of their rows."""
    return {position: outcome.append for position, outcome in enumerate(outcomes) if isinstance(outcome, _Waiting)}


def _with_errors(outcomes: Sequence[_Undecided], waiting: Mapping[int, AwaitedAppend]) -> Outcomes:
    """Return the final outcomes; each append of `waiting` is decided."""
    final: list[Outcome] = []
    for position, outcome in enumerate(outcomes):
        append = waiting.get(position)
        if append is not None and append.error:
            final.append(Refusal.of(KafkaError(append.error)))
        else:
            final.append(outcome.result if isinstance(outcome, _Waiting) else cast(Outcome, outcome))
    return final


def _awaited(partition: Partition, result: AppendResult, needs_isr: bool) -> AwaitedAppend:
    return AwaitedAppend(partition, partition.leading_since, result.last_offset + 1, needs_isr)


def _check_admission(
    partition: BoundPartition, header: BatchHeader, admission: Admission | None, records: Buffer
) -> None:
    """Check that a transactional batch may be appended in this step. Raises KafkaError."""
    try:
        if admission is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        admission.check(partition.key, partition.log.producer_state, header)
    except KafkaError:
        if not crc_is_valid(records, 0, header):
            topic, index = partition.key
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"The batch for partition {topic}-{index} has a wrong CRC"
            ) from None
        raise


def _idempotent_header(records: Buffer) -> BatchHeader | None:
    """Return the header of a batch that an idempotent producer has sent, None for other bytes."""
    try:
        header = read_header(records)
    except Malformed:
        return None
    return None if header.producer_id <= NO_PRODUCER_ID else header


def _last_sequence(partition: BoundPartition | None, header: BatchHeader) -> int:
    """Return the last sequence number of the batch's producer and epoch in the log, NONE without one."""
    known = None if partition is None else partition.log.producer_state.producers.get(header.producer_id)
    return NONE if known is None or known.epoch != header.producer_epoch else known.last_sequence


def with_own_records(rows: Sequence[ProduceRow]) -> list[ProduceRow]:
    """Return the rows with copies of their records, for a caller whose frame is valid only during the call."""
    return [
        row if row.records is None else ProduceRow(row.name, row.index_, memoryview(bytearray(row.records)))
        for row in rows
    ]
