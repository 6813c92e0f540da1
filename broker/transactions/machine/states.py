"""The states of a transactional id and the transitions between them.

The text of each state is its specification: its meaning, and every transition from it. What each request gets in each
state is in the tables of `broker.transactions.machine.transaction`; docs/transactions.md is generated from both.

Owns: the table of transitions. Must not know: what causes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class TransactionState(Enum):
    """A transactional id's state: its number in the log, and the name that clients see."""

    EMPTY = (0, "Empty")
    """A producer has its id and epoch, no transaction is open. The first partition or group begins one. A new instance
    gets the next epoch. An id that is unused for too long is removed. A producer of version 2 may abort a transaction
    that has no partition: it continues with the next epoch."""
    ONGOING = (1, "Ongoing")
    """A transaction is open and has partitions. Its producer ends it; its timeout or a newer instance of the producer
    fences the producer and aborts it."""
    PREPARE_COMMIT = (2, "PrepareCommit")
    """The outcome is decided and durable: commit. Markers are being written to the partitions; when all have theirs the
    transaction is complete. There is no other transition, even after a crash."""
    PREPARE_ABORT = (3, "PrepareAbort")
    """The outcome is decided and durable: abort. Otherwise like PrepareCommit."""
    COMPLETE_COMMIT = (4, "CompleteCommit")
    """Every partition has its commit marker. Like Empty, except that a repeated commit succeeds."""
    COMPLETE_ABORT = (5, "CompleteAbort")
    """Every partition has its abort marker. Like Empty, except that a repeated abort succeeds."""
    DEAD = (6, "Dead")
    """The id has expired, its tombstone is being written. The id is removed when the tombstone is in the log."""
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")
    """The epoch is raised in memory, so that the producer with the open transaction is fenced before the transaction is
    aborted. An intermediate state on the way to PrepareAbort, never stored."""

    __hash__ = object.__hash__  # each transaction does a dozen table lookups, and Enum.__hash__ is Python code

    def __init__(self, number: int, title: str) -> None:
        self.number = number
        self.title = title


STATES_BY_NUMBER: Mapping[int, TransactionState] = MappingProxyType({state.number: state for state in TransactionState})
STATES_BY_TITLE: Mapping[str, TransactionState] = MappingProxyType({state.title: state for state in TransactionState})

_EMPTY, _COMMITTED, _ABORTED = TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

VALID_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = MappingProxyType(
    {
        TransactionState.EMPTY: frozenset({_EMPTY, _COMMITTED, _ABORTED}),
        TransactionState.ONGOING: frozenset({TransactionState.ONGOING, _EMPTY, _COMMITTED, _ABORTED}),
        TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
        TransactionState.PREPARE_ABORT: frozenset(
            {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE, _EMPTY, _COMMITTED, _ABORTED}
        ),
        TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
        TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
        TransactionState.DEAD: frozenset({_EMPTY, _COMMITTED, _ABORTED}),
        TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
    }
)

RESTING = tuple(
    state for state in TransactionState if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
)
"""The states that an id can be in between two events; the other two are intermediate."""
