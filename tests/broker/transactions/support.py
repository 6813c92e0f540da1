"""Helpers that create a transactional id in any state, for the tests of the machine."""

from __future__ import annotations

from broker.transactions.machine.states import TransactionState
from broker.transactions.machine.transaction import Metadata, NewProducer, Transaction
from storage.producers.producer_state import Producer

T0_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
PRODUCER = Producer(7, 3)
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
WITH_PARTITIONS = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})


def transaction_in(state: TransactionState, producer: Producer = PRODUCER) -> Transaction:
    """Producer 7 with epoch 3, and partition a-0 where the state has partitions."""
    metadata = Metadata(
        state=state,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_producer_id=-1,
        last_producer_epoch=-1,
        timeout_ms=TIMEOUT_MS,
        partitions={A0: None} if state in WITH_PARTITIONS else {},
        started_ms=-1 if state is TransactionState.EMPTY else T0_MS,
        updated_ms=T0_MS,
    )
    return Transaction("id", metadata)


def new_producer(expected: Producer | None = None, spare: int | None = None) -> NewProducer:
    return NewProducer(TIMEOUT_MS, expected, spare)
