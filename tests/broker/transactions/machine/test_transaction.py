"""The details of the next metadata of an id: partitions, times, epochs and producer ids."""

from __future__ import annotations

import pytest

from broker.transactions.machine.states import VALID_PREVIOUS, TransactionState
from broker.transactions.machine.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LAST_EPOCH,
    NO_EPOCH,
    NO_START,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    VERSION_1,
    VERSION_2,
    EndOfTransaction,
    Metadata,
    NeedsProducerId,
    NewProducer,
    Transaction,
)
from protocol.errors import ErrorCode
from storage.producers.producer_state import Producer
from tests.broker.transactions.support import A0, A1, B0, PRODUCER, T0_MS, TIMEOUT_MS, new_producer, transaction_in

NOW_MS = T0_MS + 1_000
OLDER = Producer(7, 2)
IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)


def planned(decision: object) -> Metadata:
    assert isinstance(decision, Metadata)
    return decision


def completed(transaction: Transaction, decision: object) -> Producer:
    metadata = planned(decision)
    transaction.check()
    transaction.complete()
    transaction.check()
    return Producer(metadata.producer_id, metadata.producer_epoch)


def test_the_first_epoch_is_0() -> None:
    transaction = Transaction.new("id", 9, TIMEOUT_MS, T0_MS)
    assert transaction.current.producer_epoch == NO_EPOCH
    assert completed(transaction, transaction.init_producer(new_producer(), NOW_MS)) == Producer(9, 0)


def test_a_producer_whose_id_expired_continues_with_a_new_one() -> None:
    transaction = Transaction.new("id", 9, TIMEOUT_MS, T0_MS)
    assert completed(transaction, transaction.init_producer(new_producer(Producer(3, 12)), NOW_MS)) == Producer(9, 0)


@pytest.mark.parametrize("state", IDLE, ids=lambda state: state.title)
def test_a_new_instance_gets_the_next_epoch_and_its_own_timeout(state: TransactionState) -> None:
    transaction = transaction_in(state)
    metadata = planned(transaction.init_producer(NewProducer(5_000, None, None), NOW_MS))
    assert metadata == Metadata(EMPTY, 7, 4, 7, NO_EPOCH, 5_000, {}, NO_START, NOW_MS)


def test_an_instance_that_repeats_itself_gets_the_same_epoch() -> None:
    transaction = transaction_in(EMPTY)
    first = completed(transaction, transaction.init_producer(new_producer(PRODUCER), NOW_MS))
    again = completed(transaction, transaction.init_producer(new_producer(PRODUCER), NOW_MS))
    once_more = completed(transaction, transaction.init_producer(new_producer(PRODUCER), NOW_MS))
    assert first == again == once_more == Producer(7, 4)
    assert completed(transaction, transaction.init_producer(new_producer(first), NOW_MS)) == Producer(7, 5)
    assert transaction.init_producer(new_producer(PRODUCER), NOW_MS) is ErrorCode.PRODUCER_FENCED


def test_a_new_instance_forgets_the_last_epoch() -> None:
    transaction = transaction_in(EMPTY)
    completed(transaction, transaction.init_producer(new_producer(PRODUCER), NOW_MS))
    assert completed(transaction, transaction.init_producer(new_producer(), NOW_MS)) == Producer(7, 5)
    assert transaction.init_producer(new_producer(PRODUCER), NOW_MS) is ErrorCode.PRODUCER_FENCED


def test_a_transaction_keeps_the_last_epoch() -> None:
    transaction = transaction_in(EMPTY)
    raised = completed(transaction, transaction.init_producer(new_producer(PRODUCER), NOW_MS))
    planned(transaction.add_partitions(raised, [A0], NOW_MS))
    transaction.complete()
    assert transaction.current.last_producer_epoch == PRODUCER.epoch


# Epochs that run out


def test_last_epoch_is_assigned() -> None:
    transaction = transaction_in(EMPTY, Producer(7, LAST_EPOCH - 1))
    assert completed(transaction, transaction.init_producer(new_producer(), NOW_MS)) == Producer(7, LAST_EPOCH)


@pytest.mark.parametrize("epoch", [LAST_EPOCH, LAST_EPOCH + 1])
def test_another_producer_id_follows_the_last_epoch(epoch: int) -> None:
    transaction = transaction_in(COMPLETE_ABORT, Producer(7, epoch))
    assert transaction.init_producer(new_producer(), NOW_MS) is NeedsProducerId.YES
    assert transaction.pending is None
    assert completed(transaction, transaction.init_producer(new_producer(spare=20), NOW_MS)) == Producer(20, 0)
    assert transaction.current.last_producer_id == 7


def test_a_producer_that_missed_its_new_producer_id_gets_it_again() -> None:
    transaction = transaction_in(EMPTY, Producer(7, LAST_EPOCH))
    spent = Producer(7, LAST_EPOCH)
    first = completed(transaction, transaction.init_producer(new_producer(spent, spare=20), NOW_MS))
    again = completed(transaction, transaction.init_producer(new_producer(spent), NOW_MS))
    once_more = completed(transaction, transaction.init_producer(new_producer(spent), NOW_MS))
    assert first == again == once_more == Producer(20, 0)
    for epoch in (0, 3):
        older = new_producer(Producer(7, epoch))
        assert transaction.init_producer(older, NOW_MS) is ErrorCode.PRODUCER_FENCED, "0 is the epoch of the new id"


def test_older_instance_uses_no_new_producer_id() -> None:
    transaction = transaction_in(EMPTY, Producer(7, LAST_EPOCH))
    assert transaction.init_producer(new_producer(Producer(7, 5)), NOW_MS) is ErrorCode.PRODUCER_FENCED


def test_the_producer_with_the_last_epoch_can_be_fenced() -> None:
    transaction = transaction_in(ONGOING, Producer(7, LAST_EPOCH))
    metadata = planned(transaction.init_producer(new_producer(), NOW_MS))
    assert (metadata.state, metadata.producer_epoch) == (PREPARE_ABORT, LAST_EPOCH + 1)
    transaction.complete()
    transaction.finish(NOW_MS)
    transaction.complete()
    assert transaction.init_producer(new_producer(), NOW_MS) is NeedsProducerId.YES


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
@pytest.mark.parametrize(
    ("state", "epoch"), [(EMPTY, NO_EPOCH), (ONGOING, LAST_EPOCH + 1), (COMPLETE_ABORT, LAST_EPOCH + 1)]
)
def test_an_epoch_that_no_producer_was_given_is_fenced(state: TransactionState, epoch: int, version: int) -> None:
    """An id has -1 before its first producer, and 32767 after the producer with the last epoch was fenced."""
    nobody = Producer(7, epoch)
    transaction = transaction_in(state, nobody)
    assert transaction.add_partitions(nobody, [A0], NOW_MS, version=version) is ErrorCode.PRODUCER_FENCED
    assert transaction.verify(nobody) is ErrorCode.PRODUCER_FENCED
    for is_committed in (True, False):
        request = EndOfTransaction(nobody, is_committed, version, spare_producer_id=20)
        assert transaction.end(request, NOW_MS) is ErrorCode.PRODUCER_FENCED
    assert transaction.pending is None


# Fencing


def test_an_open_transaction_is_fenced_and_aborted() -> None:
    transaction = transaction_in(ONGOING)
    metadata = planned(transaction.init_producer(new_producer(), NOW_MS))
    assert metadata == Metadata(PREPARE_ABORT, 7, 4, -1, NO_EPOCH, TIMEOUT_MS, {A0: None}, T0_MS, NOW_MS)
    assert transaction.end(EndOfTransaction(PRODUCER, True), NOW_MS) is ErrorCode.PRODUCER_FENCED
    assert transaction.add_partitions(PRODUCER, [A0], NOW_MS) is ErrorCode.PRODUCER_FENCED
    assert transaction.verify(PRODUCER) is ErrorCode.PRODUCER_FENCED
    transaction.complete()
    transaction.finish(NOW_MS)
    transaction.complete()
    assert completed(transaction, transaction.init_producer(new_producer(), NOW_MS)) == Producer(7, 5)


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_a_failed_fence_does_not_raise_the_epoch_again(failures: int) -> None:
    transaction = transaction_in(ONGOING)
    for _ in range(failures):
        assert planned(transaction.time_out(T0_MS + TIMEOUT_MS)).producer_epoch == 4
        transaction.fail()
        assert transaction.current.state is ONGOING
        assert transaction.end(EndOfTransaction(PRODUCER, True), NOW_MS) is ErrorCode.PRODUCER_FENCED
    assert planned(transaction.init_producer(new_producer(), NOW_MS)).producer_epoch == 4
    transaction.complete()
    transaction.finish(NOW_MS)
    transaction.complete()
    planned(transaction.init_producer(new_producer(), NOW_MS))
    transaction.complete()
    planned(transaction.add_partitions(Producer(7, 5), [A0], NOW_MS))
    transaction.complete()
    assert planned(transaction.init_producer(new_producer(), NOW_MS)).producer_epoch == 6, "a new fence raises it"


# Partitions and times


def test_the_first_partition_begins_a_transaction() -> None:
    transaction = transaction_in(COMPLETE_COMMIT)
    metadata = planned(transaction.add_partitions(PRODUCER, [B0, A0, B0], NOW_MS))
    assert (metadata.state, list(metadata.partitions), metadata.started_ms) == (ONGOING, [B0, A0], NOW_MS)


def test_more_partitions_do_not_begin_a_new_transaction() -> None:
    transaction = transaction_in(ONGOING)
    metadata = planned(transaction.add_partitions(PRODUCER, [A1, A0], NOW_MS))
    assert (list(metadata.partitions), metadata.started_ms, metadata.updated_ms) == ([A0, A1], T0_MS, NOW_MS)
    assert list(transaction.current.partitions) == [A0]


@pytest.mark.parametrize(("is_committed", "prepared", "complete"), [
    (True, PREPARE_COMMIT, COMPLETE_COMMIT), (False, PREPARE_ABORT, COMPLETE_ABORT)
])  # fmt: skip
def test_an_end_keeps_the_partitions_until_it_is_complete(
    is_committed: bool, prepared: TransactionState, complete: TransactionState
) -> None:
    transaction = transaction_in(ONGOING)
    decided = planned(transaction.end(EndOfTransaction(PRODUCER, is_committed), NOW_MS))
    assert (decided.state, list(decided.partitions), decided.producer_epoch) == (prepared, [A0], PRODUCER.epoch)
    transaction.complete()
    finished = transaction.finish(NOW_MS + 1)
    assert (finished.state, dict(finished.partitions)) == (complete, {})
    assert (finished.started_ms, finished.updated_ms) == (T0_MS, NOW_MS + 1)


def test_every_state_but_the_intermediate_one_has_a_transition_or_is_final() -> None:
    reachable = {previous for states in VALID_PREVIOUS.values() for previous in states}
    assert set(TransactionState) - reachable == {TransactionState.DEAD}
