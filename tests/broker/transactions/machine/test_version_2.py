"""Transactions of version 2: each end raises the epoch, and its repetition has the same result (KIP-890)."""

from __future__ import annotations

import pytest

from broker.transactions.machine.states import RESTING, TransactionState
from broker.transactions.machine.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LAST_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    VERSION_1,
    VERSION_2,
    Decision,
    EndOfTransaction,
    Metadata,
    NeedsProducerId,
    Transaction,
)
from protocol.errors import ErrorCode
from storage.producers.producer_state import Producer
from tests.broker.transactions.support import A0, A1, PRODUCER, T0_MS, TIMEOUT_MS, new_producer, transaction_in

NOW_MS = T0_MS + 1_000
NEXT = Producer(7, 4)
LAST = Producer(7, LAST_EPOCH)
SPARE = 20

LATER, REFUSED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
FENCED, UNMAPPED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING


def end(
    transaction: Transaction, producer: Producer, *, is_committed: bool = True, spare: int | None = None
) -> Decision | NeedsProducerId:
    return transaction.end(EndOfTransaction(producer, is_committed, VERSION_2, spare), NOW_MS)


def add(transaction: Transaction, producer: Producer) -> Decision:
    return transaction.add_partitions(producer, [A0], NOW_MS, version=VERSION_2)


def stored(transaction: Transaction, decision: object) -> Metadata:
    assert isinstance(decision, Metadata), decision
    transaction.check()
    transaction.complete()
    transaction.check()
    return decision


def ended(producer: Producer = PRODUCER, *, is_committed: bool = True, spare: int | None = None) -> Transaction:
    """Return an id whose transaction has ended and waits for its markers."""
    transaction = transaction_in(ONGOING, producer)
    stored(transaction, end(transaction, producer, is_committed=is_committed, spare=spare))
    return transaction


def completed(transaction: Transaction) -> Transaction:
    transaction.finish(NOW_MS + 1)
    transaction.check()
    transaction.complete()
    transaction.check()
    return transaction


@pytest.mark.parametrize(("is_committed", "prepared", "complete"), [
    (True, PREPARE_COMMIT, COMPLETE_COMMIT), (False, PREPARE_ABORT, COMPLETE_ABORT)
])  # fmt: skip
def test_an_end_raises_the_epoch(is_committed: bool, prepared: TransactionState, complete: TransactionState) -> None:
    transaction = ended(is_committed=is_committed)
    assert transaction.current == Metadata(
        prepared, 7, 4, -1, 3, TIMEOUT_MS, {A0: None}, T0_MS, NOW_MS, NO_PRODUCER_ID, VERSION_2
    )
    assert transaction.current.holder == NEXT
    completed(transaction)
    assert transaction.current == Metadata(
        complete, 7, 4, -1, 3, TIMEOUT_MS, {}, T0_MS, NOW_MS + 1, NO_PRODUCER_ID, VERSION_2
    )
    assert add(transaction, PRODUCER) is FENCED
    assert stored(transaction, add(transaction, NEXT)).state is ONGOING


@pytest.mark.parametrize("producer", [PRODUCER, LAST], ids=["raised epoch", "other producer id"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_repeated_end_has_the_same_result(producer: Producer, is_committed: bool) -> None:
    transaction = ended(producer, is_committed=is_committed, spare=SPARE)
    holder = transaction.current.holder
    assert end(transaction, producer, is_committed=is_committed) is LATER
    assert end(transaction, producer, is_committed=not is_committed) is REFUSED
    completed(transaction)
    assert transaction.current.holder == holder
    assert end(transaction, producer, is_committed=is_committed) is ErrorCode.NONE
    assert end(transaction, producer, is_committed=not is_committed) is REFUSED
    assert transaction.pending is None
    stored(transaction, add(transaction, holder))
    code = end(transaction, producer, is_committed=is_committed)
    assert code is (FENCED if holder.producer_id == producer.producer_id else UNMAPPED), "the next one is open"


def test_the_next_end_is_not_taken_for_a_repeated_one() -> None:
    transaction = completed(ended())
    assert end(transaction, NEXT) is REFUSED
    aborted = stored(transaction, end(transaction, NEXT, is_committed=False))
    assert (aborted.state, aborted.producer_epoch, dict(aborted.partitions)) == (PREPARE_ABORT, 5, {})


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT], ids=lambda state: state.title)
def test_a_transaction_without_partitions_can_be_aborted(state: TransactionState) -> None:
    transaction = transaction_in(state)
    aborted = stored(transaction, end(transaction, PRODUCER, is_committed=False))
    assert (aborted.state, aborted.holder, aborted.started_ms) == (PREPARE_ABORT, NEXT, NOW_MS)
    assert completed(transaction).current.state is COMPLETE_ABORT


def test_another_producer_id_follows_the_last_epoch() -> None:
    transaction = transaction_in(ONGOING, LAST)
    assert end(transaction, LAST) is NeedsProducerId.YES
    assert transaction.pending is None
    prepared = stored(transaction, end(transaction, LAST, spare=SPARE))
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (7, LAST_EPOCH + 1, SPARE)
    assert prepared.holder == Producer(SPARE, 0)
    assert add(transaction, LAST) is FENCED
    assert add(transaction, Producer(7, LAST_EPOCH + 1)) is FENCED, "no producer has the epoch of the marker"
    assert add(transaction, prepared.holder) is LATER
    assert add(transaction, Producer(SPARE, 1)) is UNMAPPED
    completed(transaction)
    assert (transaction.current.producer_id, transaction.current.producer_epoch) == (SPARE, 0)
    assert (transaction.current.last_producer_id, transaction.current.next_producer_id) == (7, NO_PRODUCER_ID)
    assert add(transaction, LAST) is UNMAPPED
    assert end(transaction, Producer(SPARE, -1)) is FENCED, "it has ended nothing"


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_end_by_a_timeout_is_not_taken_for_that_of_the_producer(is_committed: bool) -> None:
    transaction = transaction_in(ONGOING)
    stored(transaction, transaction.time_out(T0_MS + TIMEOUT_MS))
    assert transaction.current.client_version == VERSION_1
    for _ in range(2):
        assert end(transaction, PRODUCER, is_committed=is_committed) is FENCED
        if transaction.current.state is PREPARE_ABORT:
            completed(transaction)


def test_a_producer_that_missed_the_result_of_its_end_may_initialise_itself() -> None:
    transaction = completed(ended())
    assert stored(transaction, transaction.init_producer(new_producer(PRODUCER), NOW_MS)).holder == NEXT
    transaction = completed(ended(LAST, spare=SPARE))
    found = stored(transaction, transaction.init_producer(new_producer(LAST), NOW_MS))
    assert found.holder == Producer(SPARE, 0)


def test_a_new_instance_fences_the_one_that_repeats_its_end() -> None:
    transaction = completed(ended())
    stored(transaction, transaction.init_producer(new_producer(), NOW_MS))
    assert end(transaction, PRODUCER) is FENCED
    assert end(transaction, NEXT) is FENCED


def test_a_client_may_change_its_version_between_transactions() -> None:
    """The epoch of version 1 is continued by version 2, and the other way round."""
    transaction = transaction_in(ONGOING)
    stored(transaction, transaction.end(EndOfTransaction(PRODUCER, True), NOW_MS))
    assert completed(transaction).current.holder == PRODUCER
    assert end(transaction, Producer(7, 2)) is FENCED, "nothing was raised by version 1"
    stored(transaction, add(transaction, PRODUCER))
    assert stored(transaction, end(transaction, PRODUCER)).holder == NEXT
    completed(transaction)
    opened = stored(transaction, transaction.add_partitions(NEXT, [A1], NOW_MS))
    assert opened.client_version == VERSION_1
    assert stored(transaction, transaction.end(EndOfTransaction(NEXT, True), NOW_MS)).producer_epoch == NEXT.epoch
    assert completed(transaction).current.holder == NEXT


OUTCOMES_OF_VERSION_1 = {
    TransactionState.EMPTY: [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE],
    ONGOING: ["stored", "stored"],
    TransactionState.PREPARE_COMMIT: [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE],
    TransactionState.PREPARE_ABORT: [ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS],
    TransactionState.COMPLETE_COMMIT: [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE],
    TransactionState.COMPLETE_ABORT: [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE],
}
"""What a commit and an abort get."""


@pytest.mark.parametrize("state", RESTING, ids=lambda state: state.title)
def test_an_end_of_version_1_raises_no_epoch(state: TransactionState) -> None:
    transaction = transaction_in(state)
    decisions = []
    for is_committed in (True, False):
        decision = transaction.end(EndOfTransaction(PRODUCER, is_committed), NOW_MS)
        if isinstance(decision, Metadata):
            assert (decision.producer_epoch, decision.client_version) == (PRODUCER.epoch, VERSION_1)
            transaction.fail()
        decisions.append("stored" if isinstance(decision, Metadata) else decision)
    assert decisions == OUTCOMES_OF_VERSION_1[state]
