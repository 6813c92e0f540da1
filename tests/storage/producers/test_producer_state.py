"""The table of what a producer's batch meets, transactions and the last stable offset."""

from random import Random

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader, read_header
from protocol.records.control import ControlType, TransactionMarker
from storage.producers.producer_state import BATCHES_KEPT, SEQUENCE_MAX, ProducerState
from tests.storage.builders import NOW_MS, batch, marker
from tests.support.lines import counted_lines

PRODUCER = 7
ENDS = ControlType.COMMIT, ControlType.ABORT


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, producer: int = PRODUCER
) -> BatchHeader:
    return read_header(
        batch(count, producer_id=producer, sequence=sequence, producer_epoch=epoch, is_transactional=transactional)
    )


def marker_header(epoch: int = 0, producer: int = PRODUCER) -> BatchHeader:
    return read_header(marker(ControlType.COMMIT, producer, epoch=epoch))


def state(*appended: BatchHeader) -> ProducerState:
    """After these batches, at consecutive offsets from 0."""
    producers, offset = ProducerState("topic-0"), 0
    for one in appended:
        producers.append_data(one, offset)
        offset += one.last_offset_delta + 1
    return producers


KNOWN = (header(0, 3, epoch=4), header(3, 2, epoch=4))  # last sequence 4
CASES: dict[str, tuple[BatchHeader, ErrorCode | None]] = {
    "next": (header(5, epoch=4), None),
    "gap": (header(6, epoch=4), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "goes back": (header(2, epoch=4), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "same first, other last": (header(3, 1, epoch=4), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "higher epoch from 0": (header(0, epoch=5), None),
    "higher epoch from 1": (header(1, epoch=5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "lower epoch": (header(5, epoch=3), ErrorCode.INVALID_PRODUCER_EPOCH),
    "unknown producer, any sequence": (header(99, producer=8), None),
}


@pytest.mark.parametrize("case", CASES)
def test_data_of_a_known_producer_is_accepted_or_rejected_as_in_kafka(case: str) -> None:
    incoming, code = CASES[case]
    producers = state(*KNOWN)
    if code is None:
        assert producers.check_data(incoming, 5) is None
        return
    with pytest.raises(KafkaError) as raised:
        producers.check_data(incoming, 5)
    assert raised.value.code is code
    assert producers.producers[PRODUCER].last_sequence == 4


def test_sequence_after_int32_max_is_0() -> None:
    producers = state(header(SEQUENCE_MAX - 1, 2))
    assert producers.producers[PRODUCER].last_sequence == SEQUENCE_MAX
    assert producers.check_data(header(0), 2) is None
    around = state(header(SEQUENCE_MAX, 2))  # SEQUENCE_MAX and 0
    assert around.producers[PRODUCER].last_sequence == 0
    assert around.check_data(header(SEQUENCE_MAX, 2), 2) is not None
    assert around.check_data(header(1), 2) is None


def test_duplicates_of_the_last_five_batches_are_detected() -> None:
    sent = [header(number) for number in range(BATCHES_KEPT + 2)]
    producers = state(*sent)
    offset = len(sent)
    found = [producers.check_data(one, offset) for one in sent[2:]]
    assert [duplicate and duplicate.first_offset for duplicate in found] == [2, 3, 4, 5, 6]
    for forgotten in sent[:2]:
        with pytest.raises(KafkaError, match="Out of order sequence number"):
            producers.check_data(forgotten, offset)
    with pytest.raises(KafkaError, match="Invalid sequence number for new epoch"):
        producers.check_data(header(6, epoch=1), offset)


def test_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    producers = state(header(0), header(1), header(0, epoch=1))
    with pytest.raises(KafkaError) as raised:
        producers.check_data(header(1), 3)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError):
        producers.check_data(header(2, epoch=1), 3)


def test_batch_without_a_transaction_during_one_is_rejected() -> None:
    producers = state(header(0, transactional=True))
    with pytest.raises(KafkaError) as raised:
        producers.check_data(header(1), 1)
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE
    producers.check_data(header(1, transactional=True), 1)


def test_marker_of_an_older_coordinator_is_fenced() -> None:
    producers = state(header(0, transactional=True))
    producers.append_marker(marker_header(), TransactionMarker(ControlType.COMMIT, 5), 1)
    producers.check_marker(marker_header(), TransactionMarker(ControlType.COMMIT, 5), 2)
    with pytest.raises(KafkaError) as raised:
        producers.check_marker(marker_header(), TransactionMarker(ControlType.ABORT, 4), 2)
    assert raised.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_first_sequence_after_a_marker_of_a_new_epoch_must_be_0() -> None:
    producers = state(header(0, transactional=True))
    producers.append_marker(marker_header(epoch=1), TransactionMarker(ControlType.ABORT, 0), 1)
    with pytest.raises(KafkaError):
        producers.check_data(header(1, epoch=1), 2)
    producers.check_data(header(0, epoch=1), 2)


def test_open_and_uncommitted_transactions_limit_the_last_stable_offset() -> None:
    producers = ProducerState("topic-0")
    producers.append_data(header(0, transactional=True, producer=1), 10)
    producers.append_data(header(0, transactional=True, producer=2), 11)
    assert producers.first_unstable_offset == 10
    aborted = producers.append_marker(marker_header(producer=1), TransactionMarker(ControlType.ABORT, 0), 12)
    assert aborted is not None
    assert aborted == (1, 10, 12, 11)  # producer 2 is still open at 11
    assert producers.first_unstable_offset == 10  # the marker is not committed yet
    producers.on_high_watermark(12)
    assert producers.first_unstable_offset == 10
    producers.on_high_watermark(13)
    assert producers.first_unstable_offset == 11
    assert producers.append_marker(marker_header(producer=2), TransactionMarker(ControlType.COMMIT, 0), 13) is None
    producers.on_high_watermark(14)
    assert producers.first_unstable_offset is None
    assert not producers.has_open_transaction


def test_older_transaction_that_ended_last_limits_the_last_stable_offset() -> None:
    producers = ProducerState("topic-0")
    producers.append_data(header(0, transactional=True, producer=1), 0)
    producers.append_data(header(0, transactional=True, producer=2), 1)
    producers.append_marker(marker_header(producer=2), TransactionMarker(ControlType.COMMIT, 0), 2)
    producers.append_marker(marker_header(producer=1), TransactionMarker(ControlType.COMMIT, 0), 3)
    producers.on_high_watermark(3)
    assert producers.first_unstable_offset == 0


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_transactions_and_high_watermarks_gives_the_lowest_first_offset(seed: int) -> None:
    random, producers = Random(seed), ProducerState("topic-0")
    begun: dict[int, int] = {}  # the first offset of each open transaction by producer
    ended: list[tuple[int, int]] = []  # the first and the last offset of those whose marker is not committed
    high_watermark = 0
    for offset in range(400):
        producer = random.randrange(12)
        if producer in begun:
            producers.append_marker(marker_header(producer=producer), TransactionMarker(random.choice(ENDS), 0), offset)
            ended.append((begun.pop(producer), offset))
        else:
            producers.append_data(header(0, transactional=True, producer=producer), offset)
            begun[producer] = offset
        if random.random() < 0.2:
            high_watermark = random.randint(high_watermark, offset + 1)
            producers.on_high_watermark(high_watermark)
            ended = [each for each in ended if each[1] >= high_watermark]
        first_offsets = [*begun.values(), *(first for first, _ in ended)]
        assert producers.first_unstable_offset == min(first_offsets, default=None)


def lines_of_transactions(count: int) -> int:
    """Return how many lines run to apply committed transactions while no high watermark is known, as after a crash."""
    producers = ProducerState("topic-0")
    data, end = header(0, transactional=True), marker_header()
    with counted_lines() as lines:
        for number in range(count):
            producers.append_data(data, 2 * number)
            producers.append_marker(end, TransactionMarker(ControlType.COMMIT, 0), 2 * number + 1)
    return lines.count


def test_a_transaction_costs_no_more_after_thousands_of_others() -> None:
    assert lines_of_transactions(1_000) < 11 * lines_of_transactions(100)


def test_marker_without_data_starts_no_transaction() -> None:
    producers = ProducerState("topic-0")
    assert producers.append_marker(marker_header(), TransactionMarker(ControlType.ABORT, 0), 0) is None
    assert producers.first_unstable_offset is None


@pytest.mark.parametrize(("now_ms", "left"), [(NOW_MS + 999, {1, 2}), (NOW_MS + 1000, {2})])
def test_producers_with_open_transactions_do_not_expire(now_ms: int, left: set[int]) -> None:
    producers = state(header(0, producer=1), header(0, producer=2, transactional=True))
    producers.remove_expired(now_ms, 1000)
    assert producers.producers.keys() == left
