"""One transactional id: its producer, which partitions its transaction has, and what may happen next. Pure.

Owns: every decision about a transaction. A request goes in; the result is an error code to return immediately, or the
next metadata of the id, which the shell appends to the log before it responds. Must not know: logs, markers, futures,
clocks, wire messages, or where producer ids come from.

Theory of operation. `current` is the metadata in the log. A decision that changes it sets `pending` to its result and
returns it; the shell appends it and then calls `complete`, or `fail` if the append failed. While metadata is pending,
requests get CONCURRENT_TRANSACTIONS. Once PrepareCommit or PrepareAbort is durable, `finish` plans the complete state,
which stays pending until all markers are written.

What every request gets in every state is in the tables at the end of this module. PrepareEpochFence is an intermediate
state: the epoch is raised in memory before the append, and stays raised if the append fails, so that the older producer
is fenced from that moment on. After a failed append the state is Ongoing again, and the next attempt does not raise the
epoch a second time, as no producer was given the raised epoch.

Each epoch of a producer id is given to at most one instance of a producer. An instance that repeats its own request is
the same instance. At most one change is pending.

Transactions have one of two versions (KIP-890), which the producer chooses with each request:

* Version 1: the epoch belongs to the instance, and all of its transactions have this epoch.
* Version 2: each transaction has an epoch of its own. PrepareCommit and PrepareAbort are stored with the next epoch,
  which the markers carry and the producer continues with. So a partition that has the marker accepts nothing more of
  the ended transaction, and no coordinator adds a partition to it. If the epochs are used up, the producer continues
  with another producer id and epoch 0: Prepare* has it as `next_producer_id`, and the last epoch fences the old id.

The end of a transaction of version 2 is repeated with the epoch before. Such a request is recognised by the epoch and
by the version of the stored end; it is not the end of the next transaction, which has the raised epoch.

Invariants, which `check` tests:
* The pending change is a transition that is in `VALID_PREVIOUS`.
* The epoch of a producer id only rises.
* Ongoing and Prepare* alone have partitions. They have some, but for a PrepareAbort of version 2.
* Only in Ongoing is the epoch raised in memory alone.
* Only a Prepare* of version 2 with the last epoch has a next producer id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from base.topic_partition import TopicPartition
from broker.transactions.machine.states import VALID_PREVIOUS, TransactionState
from protocol.errors import ErrorCode
from storage.producers.producer_state import Producer

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_START: Final = -1
VERSION_1: Final = 0
"""Of a client whose transactions share an epoch. Kafka's records have 0 for it."""
VERSION_2: Final = 2
"""Of a client that gets a new epoch with each end of a transaction."""
LAST_EPOCH: Final = 32766
"""The last epoch that a producer is given. 32767 is reserved for fencing the producer that has this one."""

Partitions = Mapping[TopicPartition, None]
"""An ordered set."""

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

WITH_PARTITIONS: Final = frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT})
ENDED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT})

NO_PARTITIONS: Partitions = MappingProxyType({})

_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class


class NewProducer(NamedTuple):
    """An InitProducerId for a transactional id."""

    timeout_ms: int
    expected: Producer | None
    """The producer id and epoch that the client believes to have, when it continues after an error (KIP-360)."""
    spare_producer_id: int | None
    """A producer id that was never given before; None until one is known to be needed."""


class EndOfTransaction(NamedTuple):
    """An EndTxn."""

    producer: Producer
    is_committed: bool
    version: int = VERSION_1
    """Of the transaction."""
    spare_producer_id: int | None = None
    """As in `NewProducer`."""


class NeedsProducerId(Enum):
    """The event has to be repeated with a spare producer id."""

    YES = auto()


class Metadata(NamedTuple):
    """The metadata of a transactional id."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    """The producer id before the last change, for a producer that did not receive its new one."""
    last_producer_epoch: int
    """The epoch before the last bump that the producer itself asked for; otherwise NO_EPOCH."""
    timeout_ms: int
    partitions: Partitions
    started_ms: int
    """When the last transaction began; NO_START before the first one of a producer."""
    updated_ms: int
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that the producer continues with once the transaction is complete; NO_PRODUCER_ID for its own."""
    client_version: int = VERSION_1
    """The version of the last transaction. What the coordinator ended itself has version 1."""

    @property
    def holder(self) -> Producer:
        """The producer id and epoch that the producer continues with."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Producer(self.next_producer_id, 0)
        return Producer(self.producer_id, self.producer_epoch)

    def moved_to(
        self,
        state: TransactionState,
        partitions: Partitions,
        now_ms: int,
        *,
        started_ms: int | None = None,
        version: int | None = None,
    ) -> Metadata:
        """Return the metadata in another state, with the same producer.

        Every transaction does this three times; `_replace` takes longer.
        """
        _, *producer, _, before_ms, _, next_id, before_version = self
        return _new_tuple(
            Metadata,
            (
                state,
                *producer,
                partitions,
                before_ms if started_ms is None else started_ms,
                now_ms,
                next_id,
                before_version if version is None else version,
            ),
        )

    def is_end_by(self, producer: Producer) -> bool:
        """Return whether `producer` has ended the transaction of version 2 that this is the end of."""
        if self.client_version != VERSION_2 or self.state not in ENDED:
            return False
        if producer.epoch >= LAST_EPOCH and self.state not in AFTER_PREPARE:
            return self.last_producer_id == producer.producer_id != self.producer_id and self.producer_epoch == 0
        return producer.producer_id == self.producer_id and 0 <= producer.epoch == self.producer_epoch - 1


Decision = Metadata | ErrorCode


class Transaction:
    """A transactional id. Every method that returns a `Decision` or `Metadata` is one event."""

    __slots__ = ("current", "is_epoch_fenced", "pending", "transactional_id")

    def __init__(self, transactional_id: str, metadata: Metadata) -> None:
        self.transactional_id = transactional_id
        self.current = metadata
        self.pending: Metadata | None = None
        self.is_epoch_fenced = False

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Create an unused id. Nothing of it is stored until its first producer gets an epoch."""
        metadata = Metadata(
            EMPTY, producer_id, NO_EPOCH, NO_PRODUCER_ID, NO_EPOCH, timeout_ms, NO_PARTITIONS, NO_START, now_ms
        )
        return cls(transactional_id, metadata)

    # Requests

    def init_producer(self, request: NewProducer, now_ms: int) -> Decision | NeedsProducerId:
        """Initialise a new instance of the producer, or one that continues after an error.

        If the result is PrepareAbort, an open transaction is aborted first: the client has to retry.
        """
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if request.expected is not None and not self._is_possibly(request.expected):
            return ErrorCode.PRODUCER_FENCED
        return ON_INIT_PRODUCER[self.current.state](self, request, now_ms)

    def add_partitions(
        self, producer: Producer, partitions: Iterable[TopicPartition], now_ms: int, *, version: int = VERSION_1
    ) -> Decision:
        """Add partitions that the producer is about to write to."""
        if error := self._producer_error(producer):
            return error
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ON_ADD_PARTITIONS[self.current.state](self, partitions, now_ms, version)

    def verify(self, producer: Producer) -> ErrorCode:
        """Check whether the producer may write to the partitions in `current.partitions` now.

        A pending end is ignored: everything that is written before its marker belongs to the transaction.
        """
        return self._producer_error(producer) or ON_VERIFY[self.current.state]

    def end(self, request: EndOfTransaction, now_ms: int) -> Decision | NeedsProducerId:
        """Commit or abort the transaction of the producer.

        After success the producer continues as `Metadata.holder` of the decision, or of `current` if that is NONE.
        """
        is_repeated = request.version == VERSION_2 and self.current.is_end_by(request.producer)
        if not is_repeated and (error := self._producer_error(request.producer)):
            return error
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if request.version == VERSION_2 and not is_repeated:
            table = ON_COMMIT_2 if request.is_committed else ON_ABORT_2
        else:
            table = ON_COMMIT if request.is_committed else ON_ABORT
        return table[self.current.state](self, request, now_ms)

    # The passing of time

    def time_out(self, now_ms: int) -> Metadata | None:
        """Fence the producer and abort its transaction, if that has been open longer than its timeout."""
        current = self.current
        if current.state is not ONGOING or self.pending is not None or current.started_ms + current.timeout_ms > now_ms:
            return None
        return self._fence(now_ms)

    def expire(self, now_ms: int, expiration_ms: int) -> Metadata | None:
        """Plan the removal of the id, if it has been unused for `expiration_ms`."""
        current = self.current
        is_idle = self.pending is None and current.state in VALID_PREVIOUS[DEAD]
        if not is_idle or current.updated_ms + expiration_ms > now_ms:
            return None
        return self._plan(current._replace(state=DEAD, partitions=NO_PARTITIONS))

    # The result of a decision

    def complete(self) -> None:
        """Make the pending metadata current: it is in the log."""
        assert self.pending is not None
        self.current, self.pending = self.pending, None
        self.is_epoch_fenced = False

    def fail(self) -> None:
        """Drop the pending metadata: the append failed, or its outcome is unknown. The client gets the error."""
        assert self.pending is not None
        self.pending = None

    def finish(self, now_ms: int) -> Metadata:
        """Plan the complete state. It is appended once all partitions have their markers."""
        current = self.current
        complete = current.moved_to(AFTER_PREPARE[current.state], NO_PARTITIONS, now_ms)
        if current.next_producer_id != NO_PRODUCER_ID:
            complete = complete._replace(
                producer_id=current.next_producer_id,
                producer_epoch=0,
                last_producer_id=current.producer_id,
                next_producer_id=NO_PRODUCER_ID,
            )
        return self._plan(complete)

    # Checks of the producer

    def _is_possibly(self, expected: Producer) -> bool:
        """Return whether a client may still believe to be this producer. `_next_epoch` checks its epoch.

        An id without an epoch was just created: it had expired, and its producer continues with a new producer id.
        """
        current = self.current
        return (
            current.producer_epoch == NO_EPOCH
            or expected.producer_id == current.producer_id
            or (expected.producer_id == current.last_producer_id and expected.epoch >= LAST_EPOCH)
        )

    def _producer_error(self, producer: Producer) -> ErrorCode:
        current = self.current
        if producer.producer_id == current.producer_id:
            # The id itself has other epochs before its first producer and after a fence. No producer was given those.
            is_given = 0 <= producer.epoch <= LAST_EPOCH and current.next_producer_id == NO_PRODUCER_ID
            is_current = is_given and producer.epoch == current.producer_epoch
            return ErrorCode.NONE if is_current else ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE if producer == current.holder else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    # Reactions: docs/transactions.md shows their docstrings in its tables

    def _next_epoch(self, request: NewProducer, now_ms: int) -> Decision | NeedsProducerId:
        """the next epoch is stored and returned; a new producer id with epoch 0 when the epochs are used up"""
        current, expected = self.current, request.expected
        is_current = expected is None or expected.epoch == current.producer_epoch
        if current.producer_epoch >= LAST_EPOCH and is_current:
            if request.spare_producer_id is None:
                return NeedsProducerId.YES
            producer, last_epoch = Producer(request.spare_producer_id, 0), current.producer_epoch
        elif is_current or current.producer_epoch == NO_EPOCH:
            producer, last_epoch = Producer(current.producer_id, current.producer_epoch + 1), current.producer_epoch
        elif expected is not None and expected.epoch == current.last_producer_epoch:
            producer, last_epoch = Producer(current.producer_id, current.producer_epoch), current.last_producer_epoch
        else:
            return ErrorCode.PRODUCER_FENCED
        is_same = producer.producer_id == current.producer_id and producer.epoch == current.producer_epoch
        return self._plan(
            Metadata(
                state=EMPTY,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_producer_id=current.last_producer_id if is_same else current.producer_id,
                last_producer_epoch=NO_EPOCH if expected is None else last_epoch,
                timeout_ms=request.timeout_ms,
                partitions=NO_PARTITIONS,
                started_ms=NO_START,
                updated_ms=now_ms,
            )
        )

    def _abort_first(self, request: NewProducer, now_ms: int) -> Decision:
        """the older producer is fenced and its transaction aborted; CONCURRENT_TRANSACTIONS"""
        return self._fence(now_ms)

    def _reject_init(self, request: NewProducer, now_ms: int) -> Decision:
        """CONCURRENT_TRANSACTIONS"""
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _open(self, partitions: Iterable[TopicPartition], now_ms: int, version: int) -> Decision:
        """a transaction begins with these partitions"""
        added = dict.fromkeys(partitions)
        return self._plan(self.current.moved_to(ONGOING, added, now_ms, started_ms=now_ms, version=version))

    def _extend(self, partitions: Iterable[TopicPartition], now_ms: int, version: int) -> Decision:
        """new partitions are added; nothing is stored if there are none"""
        current = self.current
        extended = dict(current.partitions) | dict.fromkeys(partitions)
        if len(extended) == len(current.partitions):
            return ErrorCode.NONE
        return self._plan(current.moved_to(ONGOING, extended, now_ms, version=version))

    def _reject_add(self, partitions: Iterable[TopicPartition], now_ms: int, version: int) -> Decision:
        """CONCURRENT_TRANSACTIONS"""
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _prepare_commit(self, request: EndOfTransaction, now_ms: int) -> Decision:
        """PrepareCommit is stored, then success; markers follow"""
        return self._plan(self.current.moved_to(PREPARE_COMMIT, self.current.partitions, now_ms, version=VERSION_1))

    def _prepare_abort(self, request: EndOfTransaction, now_ms: int) -> Decision:
        """PrepareAbort is stored, then success; markers follow"""
        return self._plan(self.current.moved_to(PREPARE_ABORT, self.current.partitions, now_ms, version=VERSION_1))

    def _raise_and_commit(self, request: EndOfTransaction, now_ms: int) -> Decision | NeedsProducerId:
        """PrepareCommit is stored with the next epoch, then success with that epoch; markers follow"""
        return self._raise_and_end(PREPARE_COMMIT, self.current.started_ms, request, now_ms)

    def _raise_and_abort(self, request: EndOfTransaction, now_ms: int) -> Decision | NeedsProducerId:
        """PrepareAbort is stored with the next epoch, then success with that epoch; markers follow"""
        return self._raise_and_end(PREPARE_ABORT, self.current.started_ms, request, now_ms)

    def _abort_nothing(self, request: EndOfTransaction, now_ms: int) -> Decision | NeedsProducerId:
        """PrepareAbort without partitions is stored with the next epoch, then success with that epoch"""
        return self._raise_and_end(PREPARE_ABORT, now_ms, request, now_ms)

    def _repeat_end(self, request: EndOfTransaction, now_ms: int) -> Decision:
        """success, for a repeated request"""
        return ErrorCode.NONE

    def _retry_end(self, request: EndOfTransaction, now_ms: int) -> Decision:
        """CONCURRENT_TRANSACTIONS"""
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _reject_end(self, request: EndOfTransaction, now_ms: int) -> Decision:
        """INVALID_TXN_STATE"""
        return ErrorCode.INVALID_TXN_STATE

    # Small steps

    def _fence(self, now_ms: int) -> Metadata:
        current = self.current
        assert current.state in VALID_PREVIOUS[PREPARE_EPOCH_FENCE]
        assert PREPARE_EPOCH_FENCE in VALID_PREVIOUS[PREPARE_ABORT]
        epoch = current.producer_epoch if self.is_epoch_fenced else current.producer_epoch + 1
        assert epoch <= LAST_EPOCH + 1, f"epoch {current.producer_epoch}, expected at most {LAST_EPOCH}"
        self.current = current._replace(producer_epoch=epoch, last_producer_epoch=NO_EPOCH)
        self.is_epoch_fenced = True  # until it is in the log
        return self._plan(self.current.moved_to(PREPARE_ABORT, self.current.partitions, now_ms, version=VERSION_1))

    def _raise_and_end(
        self, state: TransactionState, started_ms: int, request: EndOfTransaction, now_ms: int
    ) -> Decision | NeedsProducerId:
        current, next_producer_id = self.current, NO_PRODUCER_ID
        if current.producer_epoch == LAST_EPOCH:
            if request.spare_producer_id is None:
                return NeedsProducerId.YES
            next_producer_id = request.spare_producer_id
        ended = current.moved_to(state, current.partitions, now_ms, started_ms=started_ms, version=VERSION_2)
        return self._plan(
            ended._replace(
                producer_epoch=current.producer_epoch + 1,
                last_producer_epoch=current.producer_epoch,
                next_producer_id=next_producer_id,
            )
        )

    def _plan(self, metadata: Metadata) -> Metadata:
        assert self.pending is None
        assert self.current.state in VALID_PREVIOUS[metadata.state], f"{self.current.state} to {metadata.state}"
        self.pending = metadata
        return metadata

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold."""
        current, pending = self.current, self.pending
        if pending is not None:
            assert current.state in VALID_PREVIOUS[pending.state], (
                "The pending change is a transition that is in `VALID_PREVIOUS`"
            )
            is_same = pending.producer_id == current.producer_id
            assert not is_same or pending.producer_epoch >= current.producer_epoch, (
                "The epoch of a producer id only rises"
            )
        for metadata in (current, current if pending is None else pending):
            is_empty_abort = metadata.state is PREPARE_ABORT and metadata.client_version == VERSION_2
            assert bool(metadata.partitions) == (metadata.state in WITH_PARTITIONS) or is_empty_abort, (
                "Ongoing and Prepare* alone have partitions. They have some, but for a PrepareAbort of version 2"
            )
            is_exhausted = (
                metadata.state in AFTER_PREPARE
                and metadata.client_version == VERSION_2
                and metadata.producer_epoch > LAST_EPOCH
            )
            assert (metadata.next_producer_id != NO_PRODUCER_ID) == is_exhausted, (
                "Only a Prepare* of version 2 with the last epoch has a next producer id"
            )
        assert not self.is_epoch_fenced or current.state is ONGOING, (
            "Only in Ongoing is the epoch raised in memory alone"
        )


OnInit = Callable[[Transaction, NewProducer, int], Decision | NeedsProducerId]
OnAdd = Callable[[Transaction, Iterable[TopicPartition], int, int], Decision]
OnEnd = Callable[[Transaction, EndOfTransaction, int], Decision | NeedsProducerId]

ON_INIT_PRODUCER: Mapping[TransactionState, OnInit] = MappingProxyType(
    {
        EMPTY: Transaction._next_epoch,
        ONGOING: Transaction._abort_first,
        PREPARE_COMMIT: Transaction._reject_init,
        PREPARE_ABORT: Transaction._reject_init,
        COMPLETE_COMMIT: Transaction._next_epoch,
        COMPLETE_ABORT: Transaction._next_epoch,
    }
)
ON_ADD_PARTITIONS: Mapping[TransactionState, OnAdd] = MappingProxyType(
    {
        EMPTY: Transaction._open,
        ONGOING: Transaction._extend,
        PREPARE_COMMIT: Transaction._reject_add,
        PREPARE_ABORT: Transaction._reject_add,
        COMPLETE_COMMIT: Transaction._open,
        COMPLETE_ABORT: Transaction._open,
    }
)
ON_VERIFY: Mapping[TransactionState, ErrorCode] = MappingProxyType(
    {
        EMPTY: ErrorCode.NONE,
        ONGOING: ErrorCode.NONE,
        PREPARE_COMMIT: ErrorCode.CONCURRENT_TRANSACTIONS,
        PREPARE_ABORT: ErrorCode.CONCURRENT_TRANSACTIONS,
        COMPLETE_COMMIT: ErrorCode.NONE,
        COMPLETE_ABORT: ErrorCode.NONE,
    }
)
"""With NONE each partition is checked by itself; outside a transaction no partition is included."""
ON_COMMIT: Mapping[TransactionState, OnEnd] = MappingProxyType(
    {
        EMPTY: Transaction._reject_end,
        ONGOING: Transaction._prepare_commit,
        PREPARE_COMMIT: Transaction._retry_end,
        PREPARE_ABORT: Transaction._reject_end,
        COMPLETE_COMMIT: Transaction._repeat_end,
        COMPLETE_ABORT: Transaction._reject_end,
    }
)
ON_ABORT: Mapping[TransactionState, OnEnd] = MappingProxyType(
    {
        EMPTY: Transaction._reject_end,
        ONGOING: Transaction._prepare_abort,
        PREPARE_COMMIT: Transaction._reject_end,
        PREPARE_ABORT: Transaction._retry_end,
        COMPLETE_COMMIT: Transaction._reject_end,
        COMPLETE_ABORT: Transaction._repeat_end,
    }
)
ON_COMMIT_2: Mapping[TransactionState, OnEnd] = MappingProxyType(
    {
        EMPTY: Transaction._reject_end,
        ONGOING: Transaction._raise_and_commit,
        PREPARE_COMMIT: Transaction._retry_end,
        PREPARE_ABORT: Transaction._retry_end,
        COMPLETE_COMMIT: Transaction._reject_end,
        COMPLETE_ABORT: Transaction._reject_end,
    }
)
"""Of version 2, for the present epoch. A repeated request has the epoch before, and gets what `ON_COMMIT` says."""
ON_ABORT_2: Mapping[TransactionState, OnEnd] = MappingProxyType(
    {
        EMPTY: Transaction._abort_nothing,
        ONGOING: Transaction._raise_and_abort,
        PREPARE_COMMIT: Transaction._retry_end,
        PREPARE_ABORT: Transaction._retry_end,
        COMPLETE_COMMIT: Transaction._abort_nothing,
        COMPLETE_ABORT: Transaction._abort_nothing,
    }
)
AFTER_PREPARE: Mapping[TransactionState, TransactionState] = MappingProxyType(
    {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
)
