"""Every request in every state: its error code, or the next metadata of the id."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.transactions.machine import transaction as machine
from broker.transactions.machine.states import RESTING, VALID_PREVIOUS, TransactionState
from broker.transactions.machine.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    VERSION_2,
    EndOfTransaction,
    Metadata,
    Transaction,
)
from protocol.errors import ErrorCode
from storage.producers.producer_state import Producer
from tests.broker.transactions.support import A0, A1, PRODUCER, T0_MS, TIMEOUT_MS, new_producer, transaction_in
from tests.support.invariants import broken, stated

NOW_MS = T0_MS + 1_000
LATE_MS = T0_MS + TIMEOUT_MS
OLDER, NEWER, OTHER = Producer(7, 2), Producer(7, 4), Producer(8, 3)

NONE = ErrorCode.NONE
LATER = ErrorCode.CONCURRENT_TRANSACTIONS
REFUSED = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING

REQUESTS: dict[str, Callable[[Transaction], object]] = {
    "a new instance": lambda t: t.init_producer(new_producer(), NOW_MS),
    "the instance continues": lambda t: t.init_producer(new_producer(PRODUCER), NOW_MS),
    "an older instance continues": lambda t: t.init_producer(new_producer(OLDER), NOW_MS),
    "another producer continues": lambda t: t.init_producer(new_producer(OTHER), NOW_MS),
    "add a partition": lambda t: t.add_partitions(PRODUCER, [A1], NOW_MS),
    "add the same partition": lambda t: t.add_partitions(PRODUCER, [A0], NOW_MS),
    "add with an older epoch": lambda t: t.add_partitions(OLDER, [A1], NOW_MS),
    "add with a newer epoch": lambda t: t.add_partitions(NEWER, [A1], NOW_MS),
    "add with another producer id": lambda t: t.add_partitions(OTHER, [A1], NOW_MS),
    "verify": lambda t: t.verify(PRODUCER),
    "verify with an older epoch": lambda t: t.verify(OLDER),
    "verify with another producer id": lambda t: t.verify(OTHER),
    "commit": lambda t: t.end(EndOfTransaction(PRODUCER, True), NOW_MS),
    "commit with an older epoch": lambda t: t.end(EndOfTransaction(OLDER, True), NOW_MS),
    "commit with another producer id": lambda t: t.end(EndOfTransaction(OTHER, True), NOW_MS),
    "abort": lambda t: t.end(EndOfTransaction(PRODUCER, False), NOW_MS),
    "abort with a newer epoch": lambda t: t.end(EndOfTransaction(NEWER, False), NOW_MS),
    "commit of version 2": lambda t: t.end(EndOfTransaction(PRODUCER, True, VERSION_2), NOW_MS),
    "commit of version 2 with an older epoch": lambda t: t.end(EndOfTransaction(OLDER, True, VERSION_2), NOW_MS),
    "commit of version 2 with another producer id": lambda t: t.end(EndOfTransaction(OTHER, True, VERSION_2), NOW_MS),
    "abort of version 2": lambda t: t.end(EndOfTransaction(PRODUCER, False, VERSION_2), NOW_MS),
    "abort of version 2 with a newer epoch": lambda t: t.end(EndOfTransaction(NEWER, False, VERSION_2), NOW_MS),
    "just before the timeout": lambda t: t.time_out(LATE_MS - 1),
    "timeout": lambda t: t.time_out(LATE_MS),
    "just before expiry": lambda t: t.expire(T0_MS + 9, 10),
    "expiry": lambda t: t.expire(T0_MS + 10, 10),
}

STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
EXPECTED: dict[str, tuple[object, ...]] = {
    "a new instance": (EMPTY, PREPARE_ABORT, LATER, LATER, EMPTY, EMPTY),
    "the instance continues": (EMPTY, PREPARE_ABORT, LATER, LATER, EMPTY, EMPTY),
    "an older instance continues": (FENCED, PREPARE_ABORT, LATER, LATER, FENCED, FENCED),
    "another producer continues": (FENCED,) * 6,
    "add a partition": (ONGOING, ONGOING, LATER, LATER, ONGOING, ONGOING),
    "add the same partition": (ONGOING, NONE, LATER, LATER, ONGOING, ONGOING),
    "add with an older epoch": (FENCED,) * 6,
    "add with a newer epoch": (FENCED,) * 6,
    "add with another producer id": (UNMAPPED,) * 6,
    "verify": (NONE, NONE, LATER, LATER, NONE, NONE),
    "verify with an older epoch": (FENCED,) * 6,
    "verify with another producer id": (UNMAPPED,) * 6,
    "commit": (REFUSED, PREPARE_COMMIT, LATER, REFUSED, NONE, REFUSED),
    "commit with an older epoch": (FENCED,) * 6,
    "commit with another producer id": (UNMAPPED,) * 6,
    "abort": (REFUSED, PREPARE_ABORT, REFUSED, LATER, REFUSED, NONE),
    "abort with a newer epoch": (FENCED,) * 6,
    "commit of version 2": (REFUSED, PREPARE_COMMIT, LATER, LATER, REFUSED, REFUSED),
    "commit of version 2 with an older epoch": (FENCED,) * 6,
    "commit of version 2 with another producer id": (UNMAPPED,) * 6,
    "abort of version 2": (PREPARE_ABORT, PREPARE_ABORT, LATER, LATER, PREPARE_ABORT, PREPARE_ABORT),
    "abort of version 2 with a newer epoch": (FENCED,) * 6,
    "just before the timeout": (None,) * 6,
    "timeout": (None, PREPARE_ABORT, None, None, None, None),
    "just before expiry": (None,) * 6,
    "expiry": (DEAD, None, None, None, DEAD, DEAD),
}
WHILE_PENDING: dict[str, object] = {
    "a new instance": LATER,
    "add a partition": LATER,
    "add with an older epoch": FENCED,
    "add with another producer id": UNMAPPED,
    "commit": LATER,
    "abort": LATER,
    "commit of version 2": LATER,
    "abort of version 2": LATER,
    "timeout": None,
    "expiry": None,
}


def outcome(decision: object) -> object:
    return decision.state if isinstance(decision, Metadata) else decision


CELLS = [(name, state, expected) for name, row in EXPECTED.items() for state, expected in zip(STATES, row, strict=True)]


def test_tables_cover_every_state_and_request() -> None:
    assert EXPECTED.keys() == REQUESTS.keys()
    assert STATES == RESTING
    for table in (
        machine.ON_INIT_PRODUCER, machine.ON_ADD_PARTITIONS, machine.ON_VERIFY, machine.ON_COMMIT, machine.ON_ABORT,
        machine.ON_COMMIT_2, machine.ON_ABORT_2,
    ):  # fmt: skip
        assert tuple(table) == RESTING


@pytest.mark.parametrize(("name", "state", "expected"), CELLS, ids=lambda cell: getattr(cell, "title", str(cell)))
def test_request_in_each_state_returns_the_code_of_kafka(name: str, state: TransactionState, expected: object) -> None:
    transaction = transaction_in(state)
    before = transaction.current
    decision = REQUESTS[name](transaction)
    transaction.check()
    assert outcome(decision) is expected
    if not isinstance(decision, Metadata):
        assert transaction.current is before
        assert transaction.pending is None
        return
    assert transaction.pending is decision
    assert transaction.current.state is state, "nothing is true before it is in the log"
    if transaction.is_epoch_fenced:
        assert state in VALID_PREVIOUS[PREPARE_EPOCH_FENCE]
        assert PREPARE_EPOCH_FENCE in VALID_PREVIOUS[PREPARE_ABORT]
    else:
        assert transaction.current is before
        assert state in VALID_PREVIOUS[decision.state]
    transaction.complete()
    transaction.check()
    assert transaction.current is decision
    assert transaction.pending is None


@pytest.mark.parametrize("name", WHILE_PENDING)
@pytest.mark.parametrize("state", RESTING, ids=lambda state: state.title)
def test_request_during_a_pending_change_returns_the_code_of_kafka(name: str, state: TransactionState) -> None:
    transaction = transaction_in(state)
    transaction.pending = pending = transaction.current
    assert outcome(REQUESTS[name](transaction)) is WHILE_PENDING[name]
    assert transaction.pending is pending


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("state", RESTING, ids=lambda state: state.title)
def test_a_change_that_cannot_be_stored_can_be_retried(name: str, state: TransactionState) -> None:
    transaction = transaction_in(state)
    decision = REQUESTS[name](transaction)
    if not isinstance(decision, Metadata):
        return
    transaction.fail()
    transaction.check()
    assert transaction.pending is None
    assert transaction.current.state is state
    assert transaction.current.partitions == transaction_in(state).current.partitions
    if "instance continues" in name and decision.state is PREPARE_ABORT:
        name = "a new instance"
    assert REQUESTS[name](transaction) == decision, "in the end it is the same change"


def _plan(transaction: Transaction, state: TransactionState, epoch: int) -> None:
    transaction.pending = transaction.current._replace(state=state, producer_epoch=epoch)


HAS_PARTITIONS = "Ongoing and Prepare* alone have partitions. They have some, but for a PrepareAbort of version 2"
BREAKS: dict[str, Callable[[Transaction], object]] = {
    "The pending change is a transition that is in `VALID_PREVIOUS`": lambda t: _plan(t, COMPLETE_COMMIT, 3),
    "The epoch of a producer id only rises": lambda t: _plan(t, PREPARE_COMMIT, 2),
    "Ongoing and Prepare* alone have partitions. They have some, but for a PrepareAbort of version 2": lambda t: (
        setattr(t, "current", t.current._replace(partitions={}))
    ),
    "Only in Ongoing is the epoch raised in memory alone": lambda t: (
        setattr(t, "is_epoch_fenced", True),
        setattr(t, "current", t.current._replace(state=PREPARE_ABORT)),
    ),
    "Only a Prepare* of version 2 with the last epoch has a next producer id": lambda t: setattr(
        t, "current", t.current._replace(next_producer_id=9)
    ),
}


def test_every_stated_invariant_is_checked() -> None:
    assert list(BREAKS) == stated(machine)


@pytest.mark.parametrize("invariant", BREAKS)
def test_broken_invariant_is_named(invariant: str) -> None:
    transaction = transaction_in(ONGOING)
    assert broken(transaction.check) is None
    BREAKS[invariant](transaction)
    assert broken(transaction.check) == invariant


@pytest.mark.parametrize(("state", "pending"), [(EMPTY, ONGOING), (PREPARE_COMMIT, COMPLETE_COMMIT)])
def test_pending_set_of_partitions_is_checked(state: TransactionState, pending: TransactionState) -> None:
    transaction = transaction_in(state)
    transaction.pending = transaction.current._replace(state=pending)
    assert broken(transaction.check) == HAS_PARTITIONS
