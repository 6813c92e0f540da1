"""Deliveries of one partition to a share group: the states of records, and what is stored of them."""

import random

import pytest

from broker.share.machine.deliveries import (
    Acknowledgement,
    Acquired,
    Deliveries,
    DeliveryLimits,
    ReadBatch,
    RecordState,
    StateBatch,
)
from protocol.errors import ErrorCode, KafkaError

LIMITS = DeliveryLimits(delivery_count_max=3, in_flight_max=20, lock_duration_ms=100)
GAP, ACCEPT, RELEASE, REJECT = range(4)


def acquired(deliveries: Deliveries, member: str, batches: list[tuple[int, int]], now_ms: int = 0) -> list[Acquired]:
    return deliveries.acquire(member, batches[0][0], [ReadBatch(*each) for each in batches], 1000, LIMITS, now_ms)


def test_a_record_is_delivered_to_one_member_at_a_time() -> None:
    deliveries = Deliveries(10)
    assert acquired(deliveries, "ann", [(10, 14)]) == [Acquired(10, 14, 1)]
    assert acquired(deliveries, "bob", [(10, 14), (15, 19)]) == [Acquired(15, 19, 1)]
    assert deliveries.next_offset(LIMITS) == 20


def test_acknowledged_records_move_the_start() -> None:
    deliveries = Deliveries(0)
    acquired(deliveries, "ann", [(0, 9)])
    change = deliveries.acknowledge("ann", [Acknowledgement(5, 9, [ACCEPT])], LIMITS)
    assert (change.start_offset, change.batches) == (0, [StateBatch(5, 9, RecordState.ACKNOWLEDGED, 1)])
    change = deliveries.acknowledge("ann", [Acknowledgement(0, 4, [ACCEPT, REJECT, GAP, ACCEPT, ACCEPT])], LIMITS)
    assert (change.start_offset, change.batches, deliveries.in_flight_count) == (10, [], 0)


def test_a_released_record_is_delivered_again_until_the_limit() -> None:
    deliveries = Deliveries(0)
    for count in (1, 2, 3):
        assert acquired(deliveries, "ann", [(0, 0)]) == [Acquired(0, 0, count)]
        deliveries.acknowledge("ann", [Acknowledgement(0, 0, [RELEASE])], LIMITS)
    assert (deliveries.start_offset, deliveries.next_offset(LIMITS)) == (1, 1)


def test_an_expired_lock_makes_records_available() -> None:
    deliveries = Deliveries(0)
    acquired(deliveries, "ann", [(0, 4)])
    assert deliveries.wake_at_ms == LIMITS.lock_duration_ms
    assert deliveries.expire(LIMITS, 99) is None
    change = deliveries.expire(LIMITS, 100)
    assert change is not None
    assert change.batches == [StateBatch(0, 4, RecordState.AVAILABLE, 1)]
    assert acquired(deliveries, "bob", [(0, 4)]) == [Acquired(0, 4, 2)]


def test_the_last_delivery_of_a_member_that_leaves_does_not_count() -> None:
    deliveries = Deliveries(0)
    acquired(deliveries, "ann", [(0, 4)])
    assert deliveries.release("bob", LIMITS) is None
    deliveries.release("ann", LIMITS)
    assert acquired(deliveries, "bob", [(0, 4)]) == [Acquired(0, 4, 1)]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (Acknowledgement(0, 0, [4]), ErrorCode.INVALID_REQUEST),
        (Acknowledgement(0, 0, []), ErrorCode.INVALID_REQUEST),
        (Acknowledgement(0, 4, [ACCEPT, ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Acknowledgement(3, 2, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Acknowledgement(-1, 2, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Acknowledgement(0, 1 << 60, [ACCEPT]), ErrorCode.INVALID_REQUEST),
        (Acknowledgement(5, 9, [ACCEPT]), ErrorCode.INVALID_RECORD_STATE),
        (Acknowledgement(2, 9, [ACCEPT]), ErrorCode.INVALID_RECORD_STATE),
        (Acknowledgement(1, 2, [ACCEPT]), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_acknowledgement_changes_nothing(given: Acknowledgement, code: ErrorCode) -> None:
    deliveries = Deliveries(0)
    acquired(deliveries, "ann", [(0, 4)])
    acquired(deliveries, "bob", [(5, 9)])
    before = deliveries.stored_batches()
    with pytest.raises(KafkaError) as caught:
        deliveries.acknowledge("ann", [Acknowledgement(0, 1, [ACCEPT]), given], LIMITS)
    assert (caught.value.code, deliveries.stored_batches()) == (code, before)
    deliveries.check()


def test_offsets_that_the_log_lacks_are_not_delivered() -> None:
    deliveries = Deliveries(0)
    assert deliveries.acquire("ann", 0, [ReadBatch(3, 4), ReadBatch(8, 9)], 1000, LIMITS, 0) == [
        Acquired(3, 4, 1),
        Acquired(8, 9, 1),
    ]
    assert deliveries.start_offset == 3
    deliveries.acknowledge("ann", [Acknowledgement(3, 4, [ACCEPT])], LIMITS)
    assert deliveries.start_offset == 8


def test_available_records_that_were_compacted_away_do_not_stop_the_group() -> None:
    deliveries = Deliveries(0, [StateBatch(0, 4, RecordState.AVAILABLE, 1)])
    assert deliveries.next_offset(LIMITS) == 0
    assert deliveries.acquire("ann", 0, [ReadBatch(7, 8)], 1000, LIMITS, 0) == [Acquired(7, 8, 1)]
    assert deliveries.start_offset == 7


def test_no_more_records_are_in_flight_than_allowed() -> None:
    deliveries = Deliveries(0)
    acquired(deliveries, "ann", [(0, 9), (10, 24)])
    assert (deliveries.next_offset(LIMITS), acquired(deliveries, "bob", [(25, 29)])) == (None, [])


def test_retention_moves_the_start() -> None:
    deliveries = Deliveries(0)
    acquired(deliveries, "ann", [(0, 4)])
    deliveries.move_to(3)
    assert deliveries.start_offset == 0  # what is acquired stays
    deliveries.release("ann", LIMITS)
    deliveries.move_to(3)
    assert deliveries.start_offset == 3
    deliveries.move_to(100)
    assert (deliveries.start_offset, deliveries.next_offset(LIMITS)) == (100, 100)


@pytest.mark.parametrize("seed", range(20))
def test_any_history_keeps_the_invariants(seed: int) -> None:
    chance = random.Random(seed)
    deliveries, log_end, now_ms = Deliveries(0), 0, 0
    counts: dict[int, int] = {}
    done: set[int] = set()
    holder: dict[int, str] = {}
    stored: list[StateBatch] = []
    start = 0
    for _ in range(400):
        now_ms += chance.randrange(30)
        member = chance.choice("abc")
        event = chance.randrange(6)
        change = None
        if event <= 1:
            start_of_read = deliveries.next_offset(LIMITS)
            if start_of_read is None:
                continue
            batches, first = [], start_of_read
            for _ in range(chance.randrange(1, 4)):
                last = first + chance.randrange(6)
                batches.append(ReadBatch(first, last, chance.random() < 0.9))
                first = last + 1
            log_end = max(log_end, first)
            for found in deliveries.acquire(member, start_of_read, batches, chance.randrange(1, 9), LIMITS, now_ms):
                for offset in range(found.first_offset, found.last_offset + 1):
                    assert offset not in done, "what is acknowledged is not delivered again"
                    assert offset not in holder, "nobody else has it"
                    assert found.delivery_count <= LIMITS.delivery_count_max
                    holder[offset] = member
                    counts[offset] = counts.get(offset, 0) + 1
        elif event <= 3 and (mine := [offset for offset, who in holder.items() if who == member]):
            offset, kind = chance.choice(mine), chance.choice([ACCEPT, RELEASE, REJECT])
            change = deliveries.acknowledge(member, [Acknowledgement(offset, offset, [kind])], LIMITS)
            del holder[offset]
            if kind != RELEASE:
                done.add(offset)
        elif event == 4:
            change = deliveries.release(member, LIMITS)
            holder = {offset: who for offset, who in holder.items() if who != member}
        else:
            change = deliveries.expire(LIMITS, now_ms)
            still = {each for run in deliveries._runs if run.owner for each in range(run.first, run.last + 1)}
            holder = {offset: who for offset, who in holder.items() if offset in still}
        deliveries.check()
        if change is not None:
            stored, start = deliveries.stored_batches(), change.start_offset
    restored = Deliveries(start, stored)
    restored.check()
    start = restored.start_offset
    for found in restored.acquire("z", start, [ReadBatch(start, log_end)], 1 << 30, LIMITS, 0):
        assert not done & set(range(found.first_offset, found.last_offset + 1)), "nor after a restart"
