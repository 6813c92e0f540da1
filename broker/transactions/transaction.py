"""One transactional id: who its producer is, which partitions its transaction has, and what may happen next. Pure.

Owns: every decision about a transaction. A request goes in; out comes a code to answer at once, or what the id is to
become, which the shell writes to the log before anybody is told. Must not know: logs, markers, futures, clocks, wire
messages, or where producer ids come from.

Theory of operation. `current` is what the log says. A decision that changes it leaves its result in `pending` and
returns it; the shell appends it and then calls `complete`, or `fail` when it is not in the log. While something is
pending, requests are told CONCURRENT_TRANSACTIONS. Once PrepareCommit or PrepareAbort is durable, `finish` plans the
complete state, which is pending for as long as the markers take.

What every request gets in every state is in the tables at the end of this module. PrepareEpochFence is passed through:
the epoch is raised in memory, at once and whatever becomes of the append, so that the older producer is fenced from
that moment on; when the append fails the state is Ongoing again, and the next try does not raise it once more (the
raised epoch was given to nobody).

Invariants:
* At most one change is pending, and `complete` is a step that `VALID_PREVIOUS` has.
* A producer epoch of one producer id only rises, and is given to at most one instance of a producer. An instance that
  repeats its own request is the same instance.
* Partitions are there exactly from Ongoing to Prepare*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.transactions.states import VALID_PREVIOUS, TransactionState
from protocol.errors import ErrorCode
from storage.producer_state import Producer

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_START: Final = -1
LAST_EPOCH: Final = 32766
"""With it a producer id is used up. 32767 is left for fencing the producer that has it."""

TopicPartition = tuple[str, int]
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

NO_PARTITIONS: Partitions = MappingProxyType({})

_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class


class NewProducer(NamedTuple):
    """An InitProducerId for a transactional id."""

    timeout_ms: int
    expected: Producer | None
    """Who the client believes to be, when it asks to go on after an error (KIP-360)."""
    spare_producer_id: int | None
    """A producer id that nobody had before; None as long as none is known to be needed."""


class NeedsProducerId(Enum):
    """The request has to come again with a spare producer id."""

    YES = auto()


class Metadata(NamedTuple):
    """All that is known of a transactional id."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    """The id before the last change of ids, for a producer that did not hear of its new one."""
    last_producer_epoch: int
    """The epoch before the last bump that the producer itself asked for; otherwise NO_EPOCH."""
    timeout_ms: int
    partitions: Partitions
    started_ms: int
    """When the last transaction began; NO_START before the first one of a producer."""
    updated_ms: int

    def moved_to(
        self, state: TransactionState, partitions: Partitions, now_ms: int, *, started_ms: int | None = None
    ) -> Metadata:
        """The same producer a step further. Every transaction does this three times; `_replace` takes longer."""
        _, *producer, _, before_ms, _ = self
        return _new_tuple(
            Metadata, (state, *producer, partitions, before_ms if started_ms is None else started_ms, now_ms)
        )


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
        """An id that nobody used before. Nothing is stored of it until its first producer gets an epoch."""
        metadata = Metadata(
            EMPTY, producer_id, NO_EPOCH, NO_PRODUCER_ID, NO_EPOCH, timeout_ms, NO_PARTITIONS, NO_START, now_ms
        )
        return cls(transactional_id, metadata)

    # Requests

    def init_producer(self, request: NewProducer, now_ms: int) -> Decision | NeedsProducerId:
        """A new instance of the producer, or one that goes on. PrepareAbort means: come again when that is complete."""
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if request.expected is not None and not self._may_be(request.expected):
            return ErrorCode.PRODUCER_FENCED
        return ON_INIT_PRODUCER[self.current.state](self, request, now_ms)

    def add_partitions(self, producer: Producer, partitions: Iterable[TopicPartition], now_ms: int) -> Decision:
        """The producer is about to write to partitions."""
        if error := self._error_of(producer):
            return error
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ON_ADD_PARTITIONS[self.current.state](self, partitions, now_ms)

    def verify(self, producer: Producer) -> ErrorCode:
        """Whether the producer may write to the partitions in `current.partitions` now.

        A pending end does not matter: whatever is written before its marker is part of the transaction.
        """
        return self._error_of(producer) or ON_VERIFY[self.current.state]

    def end(self, producer: Producer, *, is_committed: bool, now_ms: int) -> Decision:
        """The producer commits or aborts."""
        if error := self._error_of(producer):
            return error
        if self.pending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return (ON_COMMIT if is_committed else ON_ABORT)[self.current.state](self, now_ms)

    # The passing of time

    def time_out(self, now_ms: int) -> Metadata | None:
        """Fence the producer and abort, if its transaction has been open for longer than it wanted."""
        current = self.current
        if current.state is not ONGOING or self.pending is not None or current.started_ms + current.timeout_ms > now_ms:
            return None
        return self._fence(now_ms)

    def expire(self, now_ms: int, expiration_ms: int) -> Metadata | None:
        """Forget the id, if it has been idle for so long."""
        current = self.current
        is_idle = self.pending is None and current.state in VALID_PREVIOUS[DEAD]
        if not is_idle or current.updated_ms + expiration_ms > now_ms:
            return None
        return self._plan(current._replace(state=DEAD, partitions=NO_PARTITIONS))

    # What became of a decision

    def complete(self) -> None:
        """What was pending is in the log."""
        assert self.pending is not None
        self.current, self.pending = self.pending, None
        self.is_epoch_fenced = False

    def fail(self) -> None:
        """What was pending is not in the log, or nobody knows; who asked was told so."""
        assert self.pending is not None
        self.pending = None

    def finish(self, now_ms: int) -> Metadata:
        """The outcome is durable: plan the complete state, which is written once all partitions have their markers."""
        state = AFTER_PREPARE[self.current.state]
        return self._plan(self.current.moved_to(state, NO_PARTITIONS, now_ms))

    # Who asks

    def _may_be(self, expected: Producer) -> bool:
        """Whether a client may still believe to be this producer; its epoch is looked at where it is raised.

        An id without an epoch was just created: the broker had forgotten it, and its producer goes on with a new one.
        """
        current = self.current
        return (
            current.producer_epoch == NO_EPOCH
            or expected.producer_id == current.producer_id
            or (expected.producer_id == current.last_producer_id and expected.epoch >= LAST_EPOCH)
        )

    def _error_of(self, producer: Producer) -> ErrorCode:
        if producer.producer_id != self.current.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.current.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    # Reactions: their text is what the tables in the documentation show

    def _next_epoch(self, request: NewProducer, now_ms: int) -> Decision | NeedsProducerId:
        """the next epoch is stored and answered; a new producer id with epoch 0 when epochs have run out"""
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

    def _init_later(self, request: NewProducer, now_ms: int) -> Decision:
        """CONCURRENT_TRANSACTIONS"""
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _open(self, partitions: Iterable[TopicPartition], now_ms: int) -> Decision:
        """a transaction begins with these partitions"""
        return self._plan(self.current.moved_to(ONGOING, dict.fromkeys(partitions), now_ms, started_ms=now_ms))

    def _extend(self, partitions: Iterable[TopicPartition], now_ms: int) -> Decision:
        """those that are new are added; nothing is written when none is"""
        current = self.current
        extended = dict(current.partitions) | dict.fromkeys(partitions)
        if len(extended) == len(current.partitions):
            return ErrorCode.NONE
        return self._plan(current.moved_to(ONGOING, extended, now_ms))

    def _add_later(self, partitions: Iterable[TopicPartition], now_ms: int) -> Decision:
        """CONCURRENT_TRANSACTIONS"""
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _prepare_commit(self, now_ms: int) -> Decision:
        """PrepareCommit is stored and answered; markers follow"""
        return self._plan(self.current.moved_to(PREPARE_COMMIT, self.current.partitions, now_ms))

    def _prepare_abort(self, now_ms: int) -> Decision:
        """PrepareAbort is stored and answered; markers follow"""
        return self._plan(self.current.moved_to(PREPARE_ABORT, self.current.partitions, now_ms))

    def _end_again(self, now_ms: int) -> Decision:
        """success, for a repeated request"""
        return ErrorCode.NONE

    def _end_later(self, now_ms: int) -> Decision:
        """CONCURRENT_TRANSACTIONS"""
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _refuse_end(self, now_ms: int) -> Decision:
        """INVALID_TXN_STATE"""
        return ErrorCode.INVALID_TXN_STATE

    # Small steps

    def _fence(self, now_ms: int) -> Metadata:
        current = self.current
        assert current.state in VALID_PREVIOUS[PREPARE_EPOCH_FENCE]
        assert PREPARE_EPOCH_FENCE in VALID_PREVIOUS[PREPARE_ABORT]
        epoch = current.producer_epoch if self.is_epoch_fenced else current.producer_epoch + 1
        assert epoch <= LAST_EPOCH + 1, f"epoch {current.producer_epoch} was given to a producer"
        self.current = current._replace(producer_epoch=epoch, last_producer_epoch=NO_EPOCH)
        self.is_epoch_fenced = True  # until it is in the log
        return self._plan(self.current._replace(state=PREPARE_ABORT, updated_ms=now_ms))

    def _plan(self, metadata: Metadata) -> Metadata:
        assert self.pending is None
        assert self.current.state in VALID_PREVIOUS[metadata.state], f"{self.current.state} to {metadata.state}"
        self.pending = metadata
        return metadata


OnInit = Callable[[Transaction, NewProducer, int], Decision | NeedsProducerId]
OnAdd = Callable[[Transaction, Iterable[TopicPartition], int], Decision]
OnEnd = Callable[[Transaction, int], Decision]

ON_INIT_PRODUCER: Mapping[TransactionState, OnInit] = MappingProxyType(
    {
        EMPTY: Transaction._next_epoch,
        ONGOING: Transaction._abort_first,
        PREPARE_COMMIT: Transaction._init_later,
        PREPARE_ABORT: Transaction._init_later,
        COMPLETE_COMMIT: Transaction._next_epoch,
        COMPLETE_ABORT: Transaction._next_epoch,
    }
)
ON_ADD_PARTITIONS: Mapping[TransactionState, OnAdd] = MappingProxyType(
    {
        EMPTY: Transaction._open,
        ONGOING: Transaction._extend,
        PREPARE_COMMIT: Transaction._add_later,
        PREPARE_ABORT: Transaction._add_later,
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
"""Where the answer is NONE each partition is answered by itself; outside a transaction there are none."""
ON_COMMIT: Mapping[TransactionState, OnEnd] = MappingProxyType(
    {
        EMPTY: Transaction._refuse_end,
        ONGOING: Transaction._prepare_commit,
        PREPARE_COMMIT: Transaction._end_later,
        PREPARE_ABORT: Transaction._refuse_end,
        COMPLETE_COMMIT: Transaction._end_again,
        COMPLETE_ABORT: Transaction._refuse_end,
    }
)
ON_ABORT: Mapping[TransactionState, OnEnd] = MappingProxyType(
    {
        EMPTY: Transaction._refuse_end,
        ONGOING: Transaction._prepare_abort,
        PREPARE_COMMIT: Transaction._refuse_end,
        PREPARE_ABORT: Transaction._end_later,
        COMPLETE_COMMIT: Transaction._refuse_end,
        COMPLETE_ABORT: Transaction._end_again,
    }
)
AFTER_PREPARE: Mapping[TransactionState, TransactionState] = MappingProxyType(
    {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
)
