"""Performs what the machine of a transactional id decides: append, change, respond, send markers, complete.

Owns: this order. What a transaction has become takes effect once its record is in the log of all in-sync replicas. Must
not know: what a request may do in which state (`broker.transactions.machine.transaction`), how a marker reaches a
leader (`broker.transactions.markers`), or which ids exist (`broker.transactions.hosted_transactions`).

An append is issued in the step that decided on it, and what follows from it is a callback and not part of the request:
a transaction continues after its client has disconnected. Results of appends from an earlier leadership are void.

A crash at any step: before PrepareCommit or PrepareAbort is in the log the transaction is still open, and its producer
or its timeout ends it. After that, loading finds the state and sends the markers (again).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from base.clock import Clock
from broker.coordination.coordinator_log import APPEND_ERRORS, CoordinatorLog, append_now
from broker.loop.promise import Promise
from broker.transactions.machine.records import write_key, write_value
from broker.transactions.machine.states import TransactionState
from broker.transactions.machine.transaction import AFTER_PREPARE, Decision, Metadata, Transaction
from broker.transactions.markers import Fate, Marker, MarkerSender
from broker.transactions.partition import StatePartition
from protocol.errors import ErrorCode, KafkaError
from protocol.records.builder import RecordData, build_batch, build_record_batch

logger = logging.getLogger("kafka.coordinator.transaction.TransactionCoordinator")

TOMBSTONE_TIMEOUT_MS: Final = 30_000
"""No request waits for tombstones; until then requests for their ids get CONCURRENT_TRANSACTIONS."""

STATE_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        **APPEND_ERRORS,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""The error in the response when the append failed with the error on the left; others are returned unchanged."""

COMPLETION_RETRIED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""A broker that still leads the partition gets the second one for a storage error: the cause may be a shortage."""


class TransactionRunner:
    """Performs the decisions for all transactional ids of one broker."""

    def __init__(self, log: CoordinatorLog, markers: MarkerSender, clock: Clock) -> None:
        self._log = log
        self._markers = markers
        self._clock = clock
        self.append_retry_count = 0
        """Transactions whose markers are written, and whose completion could not be appended yet."""

    async def carry_out(self, partition: StatePartition, transaction: Transaction, decision: Decision) -> None:
        """Store a decision, unless nothing has to be stored.

        Raises KafkaError if the decision is an error or cannot be stored.
        """
        code = decision
        if not isinstance(code, ErrorCode):
            outcome: Promise[ErrorCode] = Promise()
            self.store(partition, transaction, outcome.set_result)
            code = await outcome
        if code:
            raise KafkaError(code)

    def store(self, partition: StatePartition, transaction: Transaction, respond: Callable[[ErrorCode], None]) -> None:
        """Append the pending metadata, make it current, call `respond`, and start what follows from it."""

        def finish(error: ErrorCode) -> None:
            if not partition.is_led:
                respond(ErrorCode.NOT_COORDINATOR)
            elif error:
                transaction.fail()
                respond(STATE_APPEND_ERRORS.get(error, error))
            else:
                transaction.complete()
                respond(ErrorCode.NONE)
                self.finish_if_decided(partition, transaction)

        self._append(partition, transaction, finish)

    def store_tombstones(self, partition: StatePartition, expired: Sequence[Transaction]) -> None:
        """Append the tombstones of expired ids, and forget the ids once that has succeeded."""

        def finish(error: ErrorCode) -> None:
            if not partition.is_led:
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

    def finish_if_decided(self, partition: StatePartition, transaction: Transaction) -> None:
        """Send the markers of a transaction in PrepareCommit or PrepareAbort, and complete it when all are written."""
        decided = transaction.current
        if decided.state in AFTER_PREPARE:
            transaction.finish(self._clock.now_ms())
            # Not in this step: the response to EndTxn goes out first.
            asyncio.get_running_loop().call_soon(self._send_markers, partition, transaction, decided)

    def _append(self, partition: StatePartition, transaction: Transaction, finish: Callable[[ErrorCode], None]) -> None:
        pending = transaction.pending
        assert pending is not None
        record = RecordData(self._clock.now_ms(), write_key(transaction.transactional_id), write_value(pending))
        append_now(self._log, partition.number, build_record_batch(record), pending.timeout_ms, finish)

    def _send_markers(self, partition: StatePartition, transaction: Transaction, decided: Metadata) -> None:
        if not partition.is_led:
            return
        marker = Marker(
            decided.producer_id,
            decided.producer_epoch,
            decided.state is TransactionState.PREPARE_COMMIT,
            partition.leader_epoch,
        )
        sent = self._markers.send(transaction.transactional_id, marker, decided.partitions)
        if isinstance(sent, Fate):
            self._complete(partition, transaction, sent)
        else:
            partition.tasks.start(self._complete_when_sent(partition, transaction, sent))

    async def _complete_when_sent(
        self, partition: StatePartition, transaction: Transaction, sent: Awaitable[Fate]
    ) -> None:
        self._complete(partition, transaction, await sent)

    def _complete(self, partition: StatePartition, transaction: Transaction, fate: Fate) -> None:
        """Append the complete state, which stays pending while that fails.

        With another fate than DONE the transaction stays as it is, and its pending metadata keeps requests out until
        the partition is loaded again.
        """

        def finish(error: ErrorCode) -> None:
            if not partition.is_led:
                return
            error = STATE_APPEND_ERRORS.get(error, error)
            if not error:
                transaction.complete()
            elif error in COMPLETION_RETRIED:
                partition.tasks.start(self._complete_later(partition, transaction))
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
