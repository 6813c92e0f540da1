"""The transaction coordinator: the requests of producers, and the parts that serve all others.

Owns: which event of a transactional id's machine a producer's request is. Must not know: request layouts and versions
(the handlers'), what a request may do in which state (`broker.transactions.machine.transaction`), or how a decision is
carried out (`broker.transactions.runner`).

Everything runs on one event loop and an id has at most one pending change, so it needs no lock.

Methods raise KafkaError when the id cannot be served here now: INVALID_REQUEST (empty id), then the errors of
`LedPartitions.require` in their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from base.clock import Clock
from base.topic_partition import TopicPartition
from broker.coordination.background import ended
from broker.coordination.coordinator_log import CoordinatorLog
from broker.loop.timer import Timer
from broker.transactions.expiry import TransactionExpiry
from broker.transactions.hosted_transactions import HostedTransactions
from broker.transactions.inspection import TransactionInspection
from broker.transactions.machine.states import TransactionState
from broker.transactions.machine.transaction import (
    VERSION_1,
    EndOfTransaction,
    Metadata,
    NeedsProducerId,
    NewProducer,
    Transaction,
)
from broker.transactions.markers import MarkerSender
from broker.transactions.runner import TransactionRunner
from broker.transactions.settings import TransactionSettings
from protocol.errors import ErrorCode, KafkaError
from storage.producers.producer_state import Producer


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
        """`next_producer_id()` returns an id that was never given before. `ensure_internal_topic(name)` creates the
        topic unless it exists. Both raise KafkaError if they cannot."""
        self._settings = settings
        self._clock = clock
        self._next_producer_id = next_producer_id
        self.markers = markers
        self.runner = TransactionRunner(log, markers, clock)
        self._transactions = HostedTransactions(settings, log, self.runner, clock, ensure_internal_topic)
        self.partitions = self._transactions.partitions
        self.expiry = TransactionExpiry(settings, self.partitions, self.runner, timer, clock)
        self.inspection = TransactionInspection(self._transactions)

    def start(self) -> None:
        """Start the periodic work."""
        self.expiry.start()

    async def stop(self) -> None:
        """Stop serving. Markers on their way are sent again by the next broker that loads the partition."""
        cancelled = self.expiry.stop()
        await self.partitions.stop()
        await ended(cancelled)

    async def init_producer_id(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> Producer:
        """Return the producer id and epoch of this instance, and fence every older instance of the id.

        `timeout_ms` is the timeout of its transactions. `expected` is what the client believes to have, when it
        continues after an error (KIP-360). Raises KafkaError: INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS (an open transaction is being aborted first: the client retries).
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.timeout_max_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        spare: int | None = None
        while True:
            # Looked up in every round: everything may have changed while a producer id was fetched.
            partition = self._transactions.partition_of(transactional_id)
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
        await self.runner.carry_out(partition, transaction, decision)
        assert isinstance(decision, Metadata), "a producer is always stored"
        if decision.state is TransactionState.PREPARE_ABORT:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return Producer(decision.producer_id, decision.producer_epoch)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        *,
        version: int = VERSION_1,
    ) -> None:
        """Add partitions to the producer's transaction, which begins with the first of them.

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        partition, transaction = self._transactions.require(transactional_id)
        decision = transaction.add_partitions(producer, partitions, self._clock.now_ms(), version=version)
        await self.runner.carry_out(partition, transaction, decision)

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return NONE for each partition in the producer's transaction, TRANSACTION_ABORTABLE for the others (KIP-890).

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        _, transaction = self._transactions.require(transactional_id)
        if error := transaction.verify(producer):
            raise KafkaError(error)
        included = transaction.current.partitions
        return {
            partition: ErrorCode.NONE if partition in included else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    async def end(self, transactional_id: str, request: EndOfTransaction) -> Producer:
        """Commit or abort. The outcome is durable then; the partitions get their markers after that.

        Returns the producer id and epoch that the producer continues with.

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        while True:
            partition, transaction = self._transactions.require(transactional_id)
            decision = transaction.end(request, self._clock.now_ms())
            if not isinstance(decision, NeedsProducerId):
                break
            request = request._replace(spare_producer_id=await self._next_producer_id())
        holder = (decision if isinstance(decision, Metadata) else transaction.current).holder
        await self.runner.carry_out(partition, transaction, decision)
        return holder
