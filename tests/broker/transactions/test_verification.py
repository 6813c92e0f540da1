"""Guards, and the error codes of a producer: synchronously, after a wait, and with a marker in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from base.topic_partition import TopicPartition
from broker.replica import transaction_verification
from broker.replica.partition import Leadership
from broker.replica.transaction_verification import (
    ADDITIONS_MAX,
    Admission,
    ClientTerms,
    Guards,
    TransactionVerifier,
    Verdicts,
    transactional_header,
)
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import Marker
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader
from protocol.records.builder import RecordData, build_batch
from storage.producers.producer_state import Producer
from tests.broker.transactions.leading import Leading, transactional_batch
from tests.support.manual_clock import ManualClock

T0 = ("t", 0)
EXPIRATION_MS = 1_000
OLDER_CLIENT, CLIENT = ClientTerms(False), ClientTerms(True)
VERSION_2_CLIENT = ClientTerms(True, True)


class FakeLink:
    """`CoordinatorLink` with the verdict `code` for every partition, synchronously or when it is released."""

    def __init__(self) -> None:
        self.code: int = ErrorCode.NONE
        self.waits = False
        self.waiting: list[asyncio.Future[Verdicts]] = []
        self.asked: list[tuple[str, Producer, tuple[TopicPartition, ...]]] = []
        self.added: list[tuple[str, Producer, tuple[TopicPartition, ...]]] = []
        self.interruptions = 0
        """During how many additions `interrupt` is called."""
        self.interrupt: Callable[[], object] = lambda: None

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Verdicts | Awaitable[Verdicts]:
        self.asked.append((transactional_id, producer, tuple(partitions)))
        if not self.waits:
            return dict.fromkeys(partitions, self.code)
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    async def add(self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]) -> Verdicts:
        self.added.append((transactional_id, producer, tuple(partitions)))
        if len(self.added) <= self.interruptions:
            self.interrupt()
        return dict.fromkeys(partitions, self.code)


class Verifying(Leading):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.link = FakeLink()
        self.guards = Guards(lambda: EXPIRATION_MS, self.replica_manager.leading_since)
        self.is_enabled = True
        self.verifier = TransactionVerifier(self.link, self.guards, lambda: self.is_enabled, self.clock)
        self.partition = self.lead("t", 0)
        self.markers = MarkerWriter(
            self.replica_manager, self.own_appends, self.guards, self.clock, 1_000, lambda *_: None
        )

    async def admit(self, *headers: BatchHeader, client: ClientTerms = CLIENT) -> Admission:
        batches = [(T0, self.partition.log.producer_state, header) for header in headers]
        admission = self.verifier.admit("id", batches, client)
        return admission if isinstance(admission, Admission) else await admission

    def check(self, admission: Admission, header: BatchHeader) -> ErrorCode:
        try:
            admission.check(T0, self.partition.log.producer_state, header)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    async def verdict(self, header: BatchHeader, client: ClientTerms = CLIENT) -> ErrorCode:
        return self.check(await self.admit(header, client=client), header)

    def interrupt_additions(self, count: int) -> None:
        """Append a marker during each of the first `count` additions."""
        self.link.interruptions = count
        self.link.interrupt = lambda: self.markers.write(Marker(7, 0, False, 0), [T0])

    async def write_marker(self, producer_id: int = 7) -> None:
        self.markers.write(Marker(producer_id, 0, False, 0), [T0])


@pytest.fixture
def here(tmp_path: Path) -> Verifying:
    return Verifying(tmp_path)


def header(sequence: int = 0, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    found = transactional_header(transactional_batch(producer_id, epoch, sequence))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "records",
    [
        b"",
        b"\xff" * 22,
        b"\xff" * 60,
        b"\xff" * 100,
        build_batch([RecordData(0, None, b"v")]),
        build_batch([RecordData(0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0),
        b"\x00" * 16 + b"\x01" + b"\xff" * 60,
    ],
)
def test_only_transactional_data_batches_are_verified(records: bytes) -> None:
    assert transactional_header(records) is None


@pytest.mark.parametrize(
    ("code", "verdict", "verdict_before_abortable"),
    [
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * 3,
    ],
)
async def test_producer_gets_the_translated_error_code(
    here: Verifying, code: ErrorCode, verdict: ErrorCode, verdict_before_abortable: ErrorCode
) -> None:
    here.link.code = code
    assert await here.verdict(header()) is verdict
    assert await here.verdict(header(), OLDER_CLIENT) is verdict_before_abortable
    assert here.link.asked == [("id", Producer(7, 0), (T0,))] * 2


async def test_only_the_first_batch_of_a_transaction_is_verified(here: Verifying) -> None:
    assert await here.verdict(header(0)) is ErrorCode.NONE
    here.produce(here.partition, 7, 0, 0)
    here.link.code = ErrorCode.TRANSACTION_ABORTABLE
    assert await here.verdict(header(1)) is ErrorCode.NONE
    assert len(here.link.asked) == 1
    assert await here.verdict(header(0, epoch=1)) is ErrorCode.TRANSACTION_ABORTABLE, (
        "a newer epoch is another transaction"
    )
    await here.write_marker()
    assert await here.verdict(header(1)) is ErrorCode.TRANSACTION_ABORTABLE


async def test_disabled_verification_admits_every_batch(here: Verifying) -> None:
    here.is_enabled = False
    here.link.code = ErrorCode.TRANSACTION_ABORTABLE
    assert await here.verdict(header()) is ErrorCode.NONE
    assert here.link.asked == []
    assert len(here.guards) == 0


async def test_a_marker_before_the_verdict_cancels_the_append(here: Verifying) -> None:
    here.link.waits = True
    admitting = asyncio.ensure_future(here.admit(header()))
    await asyncio.sleep(0)
    await here.write_marker()
    here.link.waiting[0].set_result({T0: ErrorCode.NONE})
    assert here.check(await admitting, header()) is ErrorCode.INVALID_TXN_STATE


async def test_a_verdict_on_the_last_transaction_does_not_apply_to_the_next(here: Verifying) -> None:
    """The first verdict must not admit a late batch after the transaction has ended and another one has begun."""
    here.link.waits = True
    late = asyncio.ensure_future(here.admit(header()))
    await asyncio.sleep(0)
    await here.write_marker()
    again = asyncio.ensure_future(here.admit(header()))
    await asyncio.sleep(0)
    here.link.waiting[0].set_result({T0: ErrorCode.NONE})
    here.link.waiting[1].set_result({T0: ErrorCode.NONE})
    assert here.check(await late, header()) is ErrorCode.INVALID_TXN_STATE
    assert here.check(await again, header()) is ErrorCode.NONE


async def test_a_marker_of_another_producer_cancels_nothing(here: Verifying) -> None:
    here.link.waits = True
    admitting = asyncio.ensure_future(here.admit(header()))
    await asyncio.sleep(0)
    await here.write_marker(producer_id=8)
    here.link.waiting[0].set_result({T0: ErrorCode.NONE})
    assert here.check(await admitting, header()) is ErrorCode.NONE


async def test_batch_after_the_end_of_a_verified_transaction_is_rejected(here: Verifying) -> None:
    here.produce(here.partition, 7, 0, 0)
    admission = await here.admit(header(1))
    await here.write_marker()
    assert here.check(admission, header(1)) is ErrorCode.INVALID_TXN_STATE


async def test_a_guard_ends_with_the_leadership(here: Verifying) -> None:
    """Another leader has appended the end of the transaction, and further ones."""
    here.link.waits = True
    late = asyncio.ensure_future(here.admit(header(0)))
    await asyncio.sleep(0)
    here.partition.follow(Leadership(1, 2, 1, (1, 2), 1, (1, 2)))
    here.partition.lead(Leadership(1, 1, 2, (1, 2), 2, (1, 2)), 0)
    here.link.waiting[0].set_result({T0: ErrorCode.NONE})
    assert here.check(await late, header(0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    here.link.waits = False
    assert await here.verdict(header(5)) is ErrorCode.NONE, "the guard of sequence number 0 does not count"
    here.partition.lead(Leadership(1, 1, 3, (1,), 3, (1, 2)), 0)
    assert await here.verdict(header(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the same leader"


async def test_a_later_batch_does_not_overtake_a_rejected_one(here: Verifying) -> None:
    here.link.code = ErrorCode.NOT_COORDINATOR
    assert await here.verdict(header(0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    here.link.code = ErrorCode.NONE
    assert await here.verdict(header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await here.verdict(header(0)) is ErrorCode.NONE


async def test_the_first_batch_seen_may_have_any_sequence(here: Verifying) -> None:
    assert await here.verdict(header(5)) is ErrorCode.NONE


async def test_first_batch_seen_of_a_new_epoch_may_have_any_sequence(here: Verifying) -> None:
    here.link.code = ErrorCode.NOT_COORDINATOR
    await here.verdict(header(0))
    here.link.code = ErrorCode.NONE
    assert await here.verdict(header(3, epoch=1)) is ErrorCode.NONE


async def test_several_producers_in_one_request_are_rejected(here: Verifying) -> None:
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_ID_MAPPING"):
        await here.admit(header(), header(producer_id=8))


async def test_a_request_without_transactional_batches_is_not_verified(here: Verifying) -> None:
    await here.admit()
    assert here.link.asked == []


def test_guards_of_silent_producers_are_dropped_and_cancelled() -> None:
    guards, clock = Guards(lambda: EXPIRATION_MS, lambda partition: 0), ManualClock()
    taken = [guards.take(("t", number), Producer(7, 0), 0, clock.now_ms()) for number in range(100)]
    clock.advance(EXPIRATION_MS // 2)
    guards.take(("t", 0), Producer(7, 0), 0, clock.now_ms())
    clock.advance(EXPIRATION_MS // 2 + 1)
    guards.take(("u", 0), Producer(7, 0), 0, clock.now_ms())
    assert len(guards) == 2
    assert [guard.is_cancelled for guard in taken] == [False, *[True] * 99]


def test_beyond_the_most_guards_the_least_recent_one_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_verification, "GUARDS_MAX", 3)
    guards = Guards(lambda: EXPIRATION_MS, lambda partition: 0)
    taken = [guards.take(("t", 0), Producer(number, 0), 0, now_ms=0) for number in range(3)]
    guards.take(("t", 0), Producer(0, 0), 0, now_ms=1)
    guards.take(("t", 0), Producer(9, 0), 0, now_ms=1)
    assert [guard.is_cancelled for guard in taken] == [False, True, False]
    assert len(guards) == 3


# Offsets


@pytest.mark.parametrize(
    ("code", "verdict", "verdict_before_abortable"),
    [
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS,) + (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,) * 2,
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,) * 3,
        (ErrorCode.COORDINATOR_NOT_AVAILABLE,) + (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,) * 2,
        (ErrorCode.NOT_COORDINATOR,) + (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,) * 2,
        (ErrorCode.PRODUCER_FENCED,) + (ErrorCode.INVALID_PRODUCER_EPOCH,) * 2,
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * 3,
    ],
)
@pytest.mark.parametrize("waits", [False, True])
async def test_committing_producer_gets_the_translated_error_code(
    here: Verifying, code: ErrorCode, verdict: ErrorCode, verdict_before_abortable: ErrorCode, waits: bool
) -> None:
    here.link.code, here.link.waits = code, waits
    for client, expected in ((CLIENT, verdict), (OLDER_CLIENT, verdict_before_abortable)):
        assert await error_of_offsets(here, client) is expected


async def test_a_marker_before_the_verdict_cancels_the_commit(here: Verifying) -> None:
    here.link.waits = True
    verifying = asyncio.ensure_future(here.verifier.admit_offsets("id", Producer(7, 0), T0, CLIENT))
    await asyncio.sleep(0)
    await here.write_marker()
    here.link.waiting[0].set_result({T0: ErrorCode.NONE})
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        await verifying


async def test_a_change_of_the_coordinator_before_the_verdict_lets_the_client_retry(here: Verifying) -> None:
    here.link.waits = True
    verifying = asyncio.ensure_future(here.verifier.admit_offsets("id", Producer(7, 0), T0, CLIENT))
    await asyncio.sleep(0)
    here.partition.follow(Leadership(1, 2, 1, (1, 2), 1, (1, 2)))
    here.partition.lead(Leadership(1, 1, 2, (1, 2), 2, (1, 2)), 0)
    here.link.waiting[0].set_result({T0: ErrorCode.NONE})
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await verifying


async def test_offsets_are_not_verified_if_verification_is_disabled(here: Verifying) -> None:
    here.is_enabled = False
    here.link.code = ErrorCode.TRANSACTION_ABORTABLE
    assert await error_of_offsets(here, CLIENT) is ErrorCode.NONE


async def error_of_offsets(here: Verifying, client: ClientTerms) -> ErrorCode:
    verifying = asyncio.ensure_future(here.verifier.admit_offsets("id", Producer(7, 0), T0, client))
    await asyncio.sleep(0)
    if here.link.waits and here.link.waiting:
        here.link.waiting.pop().set_result({T0: here.link.code})
    try:
        await verifying
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


# Version 2


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_partitions_of_version_2_are_added_before_their_first_batch(here: Verifying, is_enabled: bool) -> None:
    here.is_enabled = is_enabled
    admission = await here.admit(header(), client=VERSION_2_CLIENT)
    assert here.check(admission, header()) is ErrorCode.NONE
    here.produce(here.partition, 7, 0, 0)
    await here.admit(header(1), client=VERSION_2_CLIENT)
    assert here.link.added == [("id", Producer(7, 0), (T0,))]
    assert here.link.asked == []


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_a_batch_of_version_2_is_refused_if_its_partition_was_not_added(
    here: Verifying, code: ErrorCode, verdict: ErrorCode
) -> None:
    here.link.code = code
    assert await here.verdict(header(), client=VERSION_2_CLIENT) is verdict


async def test_a_marker_of_the_last_transaction_during_an_addition_refuses_nothing(here: Verifying) -> None:
    """The coordinator lets the addition wait for it, and the producer has done nothing wrong."""
    here.interrupt_additions(1)
    assert await here.verdict(header(), client=VERSION_2_CLIENT) is ErrorCode.NONE
    assert here.link.added == 2 * [("id", Producer(7, 0), (T0,))]
    here.interrupt_additions(3)
    assert await error_of_offsets(here, VERSION_2_CLIENT) is ErrorCode.NONE
    assert len(here.link.added) == 4


async def test_markers_during_every_addition_refuse_the_batch(here: Verifying) -> None:
    here.interrupt_additions(1_000)
    assert await here.verdict(header(), client=VERSION_2_CLIENT) is ErrorCode.INVALID_TXN_STATE
    assert len(here.link.added) == ADDITIONS_MAX


async def test_a_marker_after_the_addition_refuses_the_batch(here: Verifying) -> None:
    admission = await here.admit(header(), client=VERSION_2_CLIENT)
    await here.write_marker()
    assert here.check(admission, header()) is ErrorCode.INVALID_TXN_STATE


async def test_the_first_batch_of_a_producer_of_version_2_begins_with_sequence_0(here: Verifying) -> None:
    assert await here.verdict(header(3), client=VERSION_2_CLIENT) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await here.verdict(header(3, producer_id=8)) is ErrorCode.NONE, "with version 1 it may continue"


async def test_offsets_of_version_2_add_the_partition_of_the_group(here: Verifying) -> None:
    here.is_enabled = False
    assert await error_of_offsets(here, VERSION_2_CLIENT) is ErrorCode.NONE
    assert here.link.added == [("id", Producer(7, 0), (T0,))]
    here.link.code = ErrorCode.CONCURRENT_TRANSACTIONS
    assert await error_of_offsets(here, VERSION_2_CLIENT) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
