"""The transaction coordinator: the transactional ids of the `__transaction_state` partitions that this broker leads.

Owns: which ids are here, and the order append, change, answer, send markers: what a transaction has become is acted on
only after its record is in the log of all in-sync replicas. Must not know: request layouts and versions (the
handlers'), what a request may do in which state (`transaction`), what becomes of a marker (`markers`), or how the log
replicates.

Everything runs on one event loop and an id has at most one change under way, so it needs no lock. An append is issued
in the step that decided on it, and what follows from it is a callback and not part of the request that asked: a client
that hangs up leaves a transaction that goes on. The leader epoch of the partition is the coordinator epoch, which
fences markers of earlier coordinators; a new one begins with an empty memory and reads everything back, and results of
appends made before are void.

A crash at any step: before PrepareCommit or PrepareAbort is in the log the transaction is still open, and its producer
or its timeout ends it; after that loading finds the state and sends the markers (again).

Methods raise KafkaError when the id cannot be served here now, in this order: INVALID_REQUEST (empty id),
COORDINATOR_NOT_AVAILABLE (stopping), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from broker.cluster.internal_topics import TRANSACTION_STATE_TOPIC
from broker.coordination.coordinator_log import CoordinatorLog, PartitionState, append_now, replay
from broker.coordination.partitioner import partition_for
from broker.loop.clock import Clock
from broker.loop.timer import Timer, TimerHandle
from broker.transactions.markers import Fate, Marker, MarkerSender
from broker.transactions.records import read_key, read_value, write_key, write_value
from broker.transactions.settings import TransactionSettings
from broker.transactions.states import TransactionState
from broker.transactions.transaction import (
    AFTER_PREPARE,
    Decision,
    Metadata,
    NeedsProducerId,
    NewProducer,
    TopicPartition,
    Transaction,
)
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.records.batch import BatchHeader, Record
from protocol.records.builder import RecordData, build_batch, build_record_batch
from storage.producer_state import Producer

logger = logging.getLogger("kafka.coordinator.transaction.TransactionCoordinator")

SLICE_IDS: Final = 2_000
"""Ids that are looked at before other requests get their turn: about a millisecond."""
TOMBSTONE_BATCH_SIZE_MAX: Final = 524_288
"""Tombstones are cut into batches of about half of what a topic takes by default (message.max.bytes)."""
LOAD_TIMES_KEPT: Final = 50
"""One for each partition of a topic of the default size, for the metrics."""
TOMBSTONE_TIMEOUT_MS: Final = 30_000
"""Nobody waits for tombstones; until then nothing else may happen to their ids."""

APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""What a client is told when the append failed; codes that are not here go through."""


@dataclass(slots=True, eq=False)
class StatePartition:
    """One led partition of the topic and the ids that hash to it."""

    number: int
    coordinator_epoch: int
    state: PartitionState = PartitionState.LOADING
    transactions: dict[str, Transaction] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Loading, and sending what has to wait."""


class TransactionCoordinator:
    """The coordinator of one broker."""

    def __init__(
        self,
        settings: TransactionSettings,
        log: CoordinatorLog,
        markers: MarkerSender,
        timer: Timer,
        clock: Clock,
        *,
        next_producer_id: Callable[[], Awaitable[int]],
        ensure_internal_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        """`next_producer_id()` gives one that nobody had before. `ensure_internal_topic(name)` creates the topic unless
        it exists. Both raise KafkaError when they cannot."""
        self._settings = settings
        self._log = log
        self._markers = markers
        self._timer = timer
        self._clock = clock
        self._next_producer_id = next_producer_id
        self._ensure_internal_topic = ensure_internal_topic
        self._partitions: dict[int, StatePartition] = {}
        self._is_stopping = False
        self._timers: dict[str, TimerHandle] = {}
        self._chores: dict[str, asyncio.Task[None]] = {}
        self.append_retry_count = 0
        """Transactions whose markers are written, and whose completion could not be appended yet."""
        self.load_times_ms: deque[int] = deque(maxlen=LOAD_TIMES_KEPT)

    # The life of the coordinator

    def start(self) -> None:
        """Begin to look for transactions that take too long and for ids that nobody uses."""
        self._repeat("timeouts", self._settings.timeout_check_interval_ms, self.abort_timed_out)
        self._repeat("expiry", self._settings.expiry_check_interval_ms, self.remove_expired)

    async def stop(self) -> None:
        """Stop serving. Markers that are on their way are sent again by whoever loads the partition."""
        self._is_stopping = True
        for handle in self._timers.values():
            handle.cancel()
        for chore in self._chores.values():
            chore.cancel()
        tasks = [*self._chores.values(), *(task for each in self._partitions.values() for task in each.tasks)]
        for number in list(self._partitions):
            self.resign(number)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ensure_topic(self) -> int:
        """Create `__transaction_state` unless it exists, and return its partition count.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) when it is not there yet, for example because too few brokers are.
        """
        count = self._log.partition_count()
        if count is None:
            try:
                await self._ensure_internal_topic(TRANSACTION_STATE_TOPIC)
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
            count = self._log.partition_count()
        if count is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return count

    def partition_count(self) -> int | None:
        """The partition count of `__transaction_state`; None while it does not exist."""
        return self._log.partition_count()

    # Leadership of partitions

    def become_leader(self, number: int, coordinator_epoch: int) -> None:
        """This broker leads a partition now: load it. In a new epoch everything is read anew."""
        current = self._partitions.get(number)
        if current is not None and current.coordinator_epoch >= coordinator_epoch:
            return
        self.resign(number)
        partition = self._partitions[number] = StatePartition(number, coordinator_epoch)
        self._run(partition, self._load(partition))

    def resign(self, number: int) -> None:
        """Another broker leads the partition now, or none: forget it, with all markers on their way."""
        partition = self._partitions.pop(number, None)
        if partition is not None:
            for task in partition.tasks:
                task.cancel()

    # Requests of producers

    async def init_producer_id(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> Producer:
        """The producer that this instance is from now on. Every older instance is fenced.

        `expected` is who the client believes to be, when it goes on after an error (KIP-360). Raises KafkaError:
        INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS (a transaction has to be ended first;
        that was begun, so ask again).
        """
        _require_id(transactional_id)
        if not 0 < timeout_ms <= self._settings.timeout_max_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        spare: int | None = None
        while True:
            # Found again each time round: everything may have changed while a producer id was fetched.
            partition = self._partition_of(transactional_id)
            transaction = partition.transactions.get(transactional_id)
            now_ms = self._clock.now_ms()
            if transaction is None and spare is not None:
                transaction = Transaction.new(transactional_id, spare, timeout_ms, now_ms)
                partition.transactions[transactional_id] = transaction
                spare = None
            if transaction is not None:
                decision = transaction.init_producer(NewProducer(timeout_ms, expected, spare), now_ms)
                if not isinstance(decision, NeedsProducerId):
                    break
            spare = await self._next_producer_id()
        if (storing := self._carry_out(partition, transaction, decision)) is not None:
            await storing
        assert isinstance(decision, Metadata), "a producer is always stored"
        if decision.state is TransactionState.PREPARE_ABORT:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return Producer(decision.producer_id, decision.producer_epoch)

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> Awaitable[None] | None:
        """Make partitions part of the producer's transaction, which begins with the first of them.

        None when that is done; otherwise wait for it. Raises KafkaError, at once or when awaited:
        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        partition, transaction = self._require(transactional_id)
        decision = transaction.add_partitions(producer, partitions, self._clock.now_ms())
        return self._carry_out(partition, transaction, decision)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Which partitions are part of the producer's transaction: NONE or TRANSACTION_ABORTABLE for each.

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        _, transaction = self._require(transactional_id)
        if error := transaction.verify(producer):
            raise KafkaError(error)
        included = transaction.current.partitions
        return {
            partition: ErrorCode.NONE if partition in included else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end(self, transactional_id: str, producer: Producer, *, is_committed: bool) -> Awaitable[None] | None:
        """Commit or abort. The outcome is durable then; the partitions get their markers after that.

        None when that is done; otherwise wait for it. Raises KafkaError, at once or when awaited:
        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        partition, transaction = self._require(transactional_id)
        decision = transaction.end(producer, is_committed=is_committed, now_ms=self._clock.now_ms())
        return self._carry_out(partition, transaction, decision)

    # Administration

    def describe(self, transactional_id: str) -> Metadata:
        """What is known of an id. Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND)."""
        _require_id(transactional_id)
        transaction = self._partition_of(transactional_id).transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction.current

    def transactions(self) -> Iterator[tuple[str, Metadata]]:
        """Every id that is here. Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) when more may be on the way."""
        if self._is_stopping:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if any(partition.state is PartitionState.LOADING for partition in self._partitions.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return (
            (transactional_id, transaction.current)
            for partition in self._partitions.values()
            for transactional_id, transaction in partition.transactions.items()
        )

    @property
    def unsent_count(self) -> int:
        """Decided transactions with partitions that have no leader to take the marker now."""
        return self._markers.waiting_count

    # The passing of time

    async def abort_timed_out(self) -> None:
        """Fence the producers whose transactions are open for too long, and abort those."""
        now_ms = self._clock.now_ms()
        for partition in self._active():
            async for transaction in self._in_turns(partition):
                if transaction.time_out(now_ms) is not None:
                    self._store(partition, transaction, _log_outcome("aborting after its timeout", transaction))

    async def remove_expired(self) -> None:
        """Forget ids that nobody has used for long, with a tombstone for each."""
        now_ms, expiration_ms = self._clock.now_ms(), self._settings.id_expiration_ms
        for partition in self._active():
            size, expired = 0, []
            async for transaction in self._in_turns(partition):
                if transaction.expire(now_ms, expiration_ms) is None:
                    continue
                expired.append(transaction)
                size += len(transaction.transactional_id)
                if size >= TOMBSTONE_BATCH_SIZE_MAX:
                    self._store_tombstones(partition, expired)
                    size, expired = 0, []
            if expired and self._is_current(partition):
                self._store_tombstones(partition, expired)

    async def _in_turns(self, partition: StatePartition) -> AsyncIterator[Transaction]:
        """Every id of a partition, with turns for others in between, for as long as this leadership lasts."""
        for number, transaction in enumerate(list(partition.transactions.values()), 1):
            if number % SLICE_IDS == 0:
                await asyncio.sleep(0)
            if not self._is_current(partition):
                return
            yield transaction

    def _repeat(self, name: str, interval_ms: int, work: Callable[[], Coroutine[object, object, None]]) -> None:
        def run() -> None:
            self._repeat(name, interval_ms, work)
            task = self._chores[name] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(_log_failure)

        self._timers[name] = self._timer.schedule(self._clock.monotonic_ms() + interval_ms, run)

    # Finding

    def _partition_of(self, transactional_id: str) -> StatePartition:
        if self._is_stopping:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        count = self._log.partition_count()
        partition = None if count is None else self._partitions.get(partition_for(transactional_id, count))
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if partition.state is PartitionState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if partition.state is PartitionState.FAILED:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition

    def _require(self, transactional_id: str) -> tuple[StatePartition, Transaction]:
        _require_id(transactional_id)
        partition = self._partition_of(transactional_id)
        transaction = partition.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return partition, transaction

    def _active(self) -> Iterator[StatePartition]:
        return (each for each in list(self._partitions.values()) if each.state is PartitionState.ACTIVE)

    def _is_current(self, partition: StatePartition) -> bool:
        """Whether this is still the leadership that something was begun in."""
        return self._partitions.get(partition.number) is partition

    # From a decision to the log, and on

    def _carry_out(
        self, partition: StatePartition, transaction: Transaction, decision: Decision
    ) -> Awaitable[None] | None:
        """Store what was decided: None when that is done, or nothing need be; otherwise wait for it.

        Raises KafkaError, at once or when awaited, when the decision is one or it cannot be stored.
        """
        if isinstance(decision, ErrorCode):
            if decision:
                raise KafkaError(decision)
            return None
        outcome = _Outcome()
        self._store(partition, transaction, outcome.tell)
        return outcome.known_or_awaited()

    def _store(self, partition: StatePartition, transaction: Transaction, answer: Callable[[ErrorCode], None]) -> None:
        """Append what is pending, make it true, answer, and go on with what follows from it."""

        def finish(error: ErrorCode) -> None:
            if not self._is_current(partition):
                answer(ErrorCode.NOT_COORDINATOR)
            elif error:
                transaction.fail()
                answer(APPEND_ERRORS.get(error, error))
            else:
                transaction.complete()
                answer(ErrorCode.NONE)
                self._finish_if_decided(partition, transaction)

        self._append(partition, transaction, finish)

    def _append(self, partition: StatePartition, transaction: Transaction, finish: Callable[[ErrorCode], None]) -> None:
        pending = transaction.pending
        assert pending is not None
        record = RecordData(self._clock.now_ms(), write_key(transaction.transactional_id), write_value(pending))
        append_now(self._log, partition.number, build_record_batch(record), pending.timeout_ms, finish)

    def _store_tombstones(self, partition: StatePartition, expired: Sequence[Transaction]) -> None:
        def finish(error: ErrorCode) -> None:
            if not self._is_current(partition):
                return
            if error:
                logger.warning("%d expired transactional ids were not removed: %s", len(expired), error.name)
            for transaction in expired:
                if error:
                    transaction.fail()
                else:
                    transaction.complete()
                    del partition.transactions[transaction.transactional_id]

        now_ms = self._clock.now_ms()
        batch = build_batch([RecordData(now_ms, write_key(each.transactional_id), None) for each in expired])
        append_now(self._log, partition.number, batch, TOMBSTONE_TIMEOUT_MS, finish)

    # Completing what is decided

    def _finish_if_decided(self, partition: StatePartition, transaction: Transaction) -> None:
        decided = transaction.current
        if decided.state in AFTER_PREPARE:
            transaction.finish(self._clock.now_ms())
            # Not now: who asked for the end is answered first.
            asyncio.get_running_loop().call_soon(self._send_markers, partition, transaction, decided)

    def _send_markers(self, partition: StatePartition, transaction: Transaction, decided: Metadata) -> None:
        if not self._is_current(partition):
            return
        marker = Marker(
            decided.producer_id,
            decided.producer_epoch,
            decided.state is TransactionState.PREPARE_COMMIT,
            partition.coordinator_epoch,
        )
        sent = self._markers.send(transaction.transactional_id, marker, decided.partitions)
        if isinstance(sent, Fate):
            self._complete(partition, transaction, sent)
        else:
            self._run(partition, self._complete_when_sent(partition, transaction, sent))

    async def _complete_when_sent(
        self, partition: StatePartition, transaction: Transaction, sent: Awaitable[Fate]
    ) -> None:
        self._complete(partition, transaction, await sent)

    def _complete(self, partition: StatePartition, transaction: Transaction, fate: Fate) -> None:
        """Append the complete state, which stays pending while that fails.

        With another fate than DONE the transaction stays as it is, and what is pending keeps requests out, until the
        partition is loaded again.
        """

        def finish(error: ErrorCode) -> None:
            if not self._is_current(partition):
                return
            error = APPEND_ERRORS.get(error, error)
            if not error:
                transaction.complete()
            elif error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._run(partition, self._complete_later(partition, transaction))
            else:
                logger.error("%s was not completed: %s", transaction.transactional_id, error.name)

        if fate is Fate.DONE:
            self._append(partition, transaction, finish)

    async def _complete_later(self, partition: StatePartition, transaction: Transaction) -> None:
        self.append_retry_count += 1
        try:
            await self._markers.pause()
        finally:
            self.append_retry_count -= 1
        self._complete(partition, transaction, Fate.DONE)

    # Loading

    async def _load(self, partition: StatePartition) -> None:
        started_ms = self._clock.monotonic_ms()
        loaded: dict[str, Metadata] = {}

        def take(batch: BatchHeader, record: Record) -> None:
            if not batch.is_control:
                _take_in(loaded, record)

        try:
            await replay(self._log, partition.number, self._settings.load_buffer_size, take)
        except (KafkaError, Malformed) as error:
            partition.state = PartitionState.FAILED
            logger.error("Partition %d of %s was not loaded: %s", partition.number, TRANSACTION_STATE_TOPIC, error)
            return
        except Exception:
            partition.state = PartitionState.FAILED
            logger.exception("Partition %d of %s was not loaded", partition.number, TRANSACTION_STATE_TOPIC)
            return
        partition.transactions = {name: Transaction(name, metadata) for name, metadata in loaded.items()}
        partition.state = PartitionState.ACTIVE
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        self.load_times_ms.append(elapsed_ms)
        if loaded:
            logger.info("Loaded %d ids of partition %d in %d ms", len(loaded), partition.number, elapsed_ms)
        for transaction in partition.transactions.values():
            self._finish_if_decided(partition, transaction)

    def _run(self, partition: StatePartition, work: Coroutine[object, object, None]) -> None:
        """Have something done for as long as this broker leads the partition."""
        task = asyncio.get_running_loop().create_task(work)
        partition.tasks.add(task)
        task.add_done_callback(partition.tasks.discard)
        task.add_done_callback(_log_failure)


class _Outcome:
    """What became of an append: known when it is asked for, or to be waited for."""

    __slots__ = ("_code", "_waiter")

    def __init__(self) -> None:
        self._code: ErrorCode | None = None
        self._waiter: asyncio.Future[None] | None = None

    def tell(self, code: ErrorCode) -> None:
        self._code = code
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def known_or_awaited(self) -> Awaitable[None] | None:
        """None for success. Raises KafkaError, at once or when awaited."""
        if self._code is None:
            self._waiter = asyncio.get_running_loop().create_future()
            return self._wait(self._waiter)
        if self._code:
            raise KafkaError(self._code)
        return None

    async def _wait(self, waiter: asyncio.Future[None]) -> None:
        await waiter
        if self._code:
            raise KafkaError(self._code)


def _take_in(loaded: dict[str, Metadata], record: Record) -> None:
    """The last record of an id says what it is; a tombstone says that it is no more."""
    if record.key is None:
        raise Malformed(f"record {record.offset} has no key")
    transactional_id = read_key(record.key)
    if transactional_id is None:
        return
    if record.value is None:
        loaded.pop(transactional_id, None)
    else:
        loaded[transactional_id] = read_value(record.value)


def _require_id(transactional_id: str) -> None:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _log_outcome(what: str, transaction: Transaction) -> Callable[[ErrorCode], None]:
    producer_id, epoch = transaction.current.producer_id, transaction.current.producer_epoch

    def answer(error: ErrorCode) -> None:
        logger.info(
            "%s (producer id %d, raised to epoch %d): %s, %s",
            transaction.transactional_id, producer_id, epoch, what, "failed: " + error.name if error else "decided",
        )  # fmt: skip

    return answer


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("A task of the transaction coordinator failed", exc_info=error)
