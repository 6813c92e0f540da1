"""The coordinator over a log in memory: what is stored before what is said, slow and failing appends, markers, loading
and moving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from broker.transactions import expiry
from broker.transactions.links import CoordinatorLinks
from broker.transactions.machine.states import TransactionState
from broker.transactions.machine.transaction import LAST_EPOCH, VERSION_2
from broker.transactions.markers import RETRY_BACKOFF_MS, Marker
from broker.transactions.settings import TransactionSettings
from config.broker import BrokerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import TRANSACTION_STATE_TOPIC
from protocol.records.batch import HEADER_SIZE, batches
from protocol.records.builder import RecordData, build_batch
from storage.producers.producer_state import Producer
from tests.broker.golden import GoldenPartition
from tests.broker.groups.fakes import FakeLog
from tests.broker.transactions.fakes import BROKER, Surroundings, code_of
from tests.broker.transactions.golden import PARTITIONS
from tests.broker.transactions.support import A0, A1, B0

MINUTE_MS = 60_000


@pytest.fixture
async def here() -> Surroundings:
    surroundings = Surroundings()
    await surroundings.lead()
    return surroundings


async def init(here: Surroundings, name: str = "id", expected: Producer | None = None) -> Producer:
    return await here.coordinator.init_producer_id(name, MINUTE_MS, expected)


async def open_transaction(here: Surroundings, *partitions: tuple[str, int]) -> Producer:
    producer = await init(here)
    await here.add_partitions("id", producer, partitions or [A0])
    return producer


async def refusal(awaited: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await awaited
    return caught.value.code


# Store, then change, then say


async def test_transaction_runs_from_init_to_complete(here: Surroundings) -> None:
    producer = await open_transaction(here, A0, B0)
    await here.end("id", producer, is_committed=True)
    await here.idle()
    assert here.states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
    marker = Marker(producer.producer_id, producer.epoch, True, 0)
    assert here.channel.written == [(marker, A0), (marker, B0)]
    await here.end("id", producer, is_committed=True)
    assert await refusal(here.end("id", producer, is_committed=False)) is ErrorCode.INVALID_TXN_STATE
    await here.add_partitions("id", producer, [A1])
    await here.end("id", producer, is_committed=False)
    await here.idle()
    assert here.states()[4:] == ["Ongoing", "PrepareAbort", "CompleteAbort"]
    assert here.channel.written[2:] == [(Marker(producer.producer_id, producer.epoch, False, 0), A1)]


@pytest.mark.parametrize("step", ["init", "add", "end"])
async def test_no_response_is_sent_before_the_append(here: Surroundings, step: str) -> None:
    producer = await init(here)
    if step == "end":
        await here.add_partitions("id", producer, [A0])
    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "init": lambda: init(here),
        "add": lambda: here.add_partitions("id", producer, [A0]),
        "end": lambda: here.end("id", producer, is_committed=True),
    }
    before = here.coordinator.inspection.describe("id")
    here.log.holds = True
    waiting = asyncio.ensure_future(steps[step]())
    await here.idle()
    assert not waiting.done()
    assert here.coordinator.inspection.describe("id") == before
    concurrent = await refusal(init(here))
    assert concurrent is ErrorCode.CONCURRENT_TRANSACTIONS
    assert here.channel.asked == []
    here.log.release()
    await waiting
    assert here.coordinator.inspection.describe("id") != before


@pytest.mark.parametrize(
    ("append_error", "reported"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_change_that_cannot_be_stored_is_dropped_and_can_be_retried(
    here: Surroundings, append_error: ErrorCode, reported: ErrorCode, is_late: bool
) -> None:
    producer = await open_transaction(here)
    ending = asyncio.ensure_future(here.end("id", producer, is_committed=True))
    if is_late:
        here.log.holds = True
        await here.idle()
        here.log.release(error=append_error)
    else:
        here.log.append_error = append_error
    assert await refusal(ending) is reported
    assert here.state() is TransactionState.ONGOING
    here.log.append_error, here.log.holds = None, False
    await here.end("id", producer, is_committed=True)


async def test_a_transaction_continues_after_its_client_has_disconnected(here: Surroundings) -> None:
    producer = await open_transaction(here)
    here.log.holds = True
    ending = asyncio.ensure_future(here.end("id", producer, is_committed=True))
    await here.idle()
    ending.cancel()
    await here.idle()
    here.log.holds = False
    here.log.release()
    await here.idle()
    assert here.states()[-2:] == ["PrepareCommit", "CompleteCommit"]


async def test_the_response_does_not_wait_for_markers(here: Surroundings) -> None:
    producer = await open_transaction(here)
    here.channel.holds = True
    await here.end("id", producer, is_committed=True)
    await here.idle()
    assert here.state() is TransactionState.PREPARE_COMMIT
    assert await refusal(here.add_partitions("id", producer, [A1])) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert await refusal(init(here)) is ErrorCode.CONCURRENT_TRANSACTIONS
    here.channel.held[0].release()
    await here.idle()
    assert here.state() is TransactionState.COMPLETE_COMMIT
    await here.add_partitions("id", producer, [A1])


# Producers


async def test_init_assigns_producer_ids_and_epochs(here: Surroundings) -> None:
    assert await init(here) == Producer(100, 0)
    assert await init(here) == Producer(100, 1)
    assert await init(here, "other") == Producer(101, 0)
    assert await init(here, expected=Producer(100, 1)) == Producer(100, 2)
    assert await init(here, expected=Producer(100, 1)) == Producer(100, 2)
    assert await refusal(init(here, expected=Producer(100, 0))) is ErrorCode.PRODUCER_FENCED
    assert await refusal(init(here, expected=Producer(101, 0))) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("timeout_ms", "is_taken"), [(-1, False), (0, False), (1, True), (900_000, True), (900_001, False)]
)
async def test_a_timeout_out_of_bounds_is_rejected(here: Surroundings, timeout_ms: int, is_taken: bool) -> None:
    asked = here.coordinator.init_producer_id("id", timeout_ms, None)
    if is_taken:
        await asked
        assert here.coordinator.inspection.describe("id").timeout_ms == timeout_ms
    else:
        assert await refusal(asked) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_concurrent_requests_do_not_share_an_epoch(here: Surroundings) -> None:
    here.log.holds = True
    asked = [asyncio.ensure_future(init(here)) for _ in range(2)]
    await here.idle()
    here.log.release()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert results[0] == Producer(101, 0) or results[0] == Producer(100, 0)
    assert isinstance(results[1], KafkaError)
    assert code_of(results[1]) is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_new_producer_id_is_assigned_after_the_last_epoch(here: Surroundings) -> None:
    for epoch in (0, LAST_EPOCH - 1):
        await init(here)
        transaction = here.coordinator._transactions.require("id")[1]
        transaction.current = transaction.current._replace(producer_epoch=epoch)
    assert await init(here) == Producer(100, LAST_EPOCH)
    assert await init(here) == Producer(101, 0)
    assert await init(here, expected=Producer(101, 0)) == Producer(101, 1)


async def test_an_error_of_the_producer_ids_is_returned(here: Surroundings) -> None:
    here.id_error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert await refusal(init(here)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    here.id_error = None
    assert await init(here) == Producer(100, 0)


async def test_a_newer_instance_aborts_the_transaction_of_the_older_one(here: Surroundings) -> None:
    zombie = await open_transaction(here)
    assert await refusal(init(here)) is ErrorCode.CONCURRENT_TRANSACTIONS
    await here.idle()
    assert here.states()[-2:] == ["PrepareAbort", "CompleteAbort"]
    assert here.channel.written == [(Marker(zombie.producer_id, zombie.epoch + 1, False, 0), A0)]
    assert await init(here) == Producer(zombie.producer_id, zombie.epoch + 2)
    assert await refusal(here.end("id", zombie, is_committed=True)) is ErrorCode.PRODUCER_FENCED


async def test_a_fence_that_cannot_be_stored_can_be_retried(here: Surroundings) -> None:
    zombie = await open_transaction(here)
    here.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await refusal(init(here)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refusal(init(here)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refusal(here.end("id", zombie, is_committed=True)) is ErrorCode.PRODUCER_FENCED
    here.log.append_error = None
    assert await refusal(init(here)) is ErrorCode.CONCURRENT_TRANSACTIONS
    await here.idle()
    assert await init(here) == Producer(zombie.producer_id, zombie.epoch + 2)


async def test_verification_returns_the_code_of_each_partition(here: Surroundings) -> None:
    producer = await open_transaction(here, A0)
    verify = here.coordinator.verify
    assert verify("id", producer, [A0, A1]) == {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE}
    for name, who, code in (
        ("id", Producer(producer.producer_id, 9), ErrorCode.PRODUCER_FENCED),
        ("id", Producer(9, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("nobody", producer, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("", producer, ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(KafkaError, match=code.name):
            verify(name, who, [A0])
    await here.end("id", producer, is_committed=True)
    with pytest.raises(KafkaError, match="CONCURRENT_TRANSACTIONS"):
        verify("id", producer, [A0])
    await here.idle()
    assert verify("id", producer, [A0]) == {A0: ErrorCode.TRANSACTION_ABORTABLE}


async def test_unknown_and_empty_ids_are_rejected(here: Surroundings) -> None:
    producer = Producer(1, 0)
    for name, code in (("nobody", ErrorCode.INVALID_PRODUCER_ID_MAPPING), ("", ErrorCode.INVALID_REQUEST)):
        assert await refusal(here.add_partitions(name, producer, [A0])) is code
        assert await refusal(here.end(name, producer, is_committed=True)) is code
    assert await refusal(here.coordinator.init_producer_id("", MINUTE_MS, None)) is ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        here.coordinator.inspection.describe("nobody")


# Time


async def test_transaction_is_aborted_after_its_timeout(here: Surroundings) -> None:
    here.coordinator.start()
    producer = await open_transaction(here)
    await here.advance(MINUTE_MS - 1)
    assert here.state() is TransactionState.ONGOING
    await here.advance(10_001)
    assert here.state() is TransactionState.COMPLETE_ABORT
    assert await refusal(here.end("id", producer, is_committed=True)) is ErrorCode.PRODUCER_FENCED


async def test_an_abort_that_cannot_be_stored_is_retried(here: Surroundings) -> None:
    here.coordinator.start()
    producer = await open_transaction(here)
    here.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    await here.advance(2 * MINUTE_MS)
    assert here.state() is TransactionState.ONGOING
    here.log.append_error = None
    await here.advance(10_000)
    assert here.state() is TransactionState.COMPLETE_ABORT
    assert here.coordinator.inspection.describe("id").producer_epoch == producer.epoch + 1


async def test_an_id_that_cannot_be_aborted_does_not_keep_others_from_their_timeout(
    here: Surroundings, caplog: pytest.LogCaptureFixture
) -> None:
    await init(here, "spent")
    (partition,) = here.coordinator.partitions
    spent = partition.transactions["spent"]
    spent.current = spent.current._replace(
        state=TransactionState.ONGOING, partitions={A0: None}, producer_epoch=LAST_EPOCH + 1
    )
    await open_transaction(here)
    here.clock.advance(2 * MINUTE_MS)
    await here.coordinator.expiry.abort_timed_out()
    await here.idle()
    assert here.state() is TransactionState.COMPLETE_ABORT
    assert "spent cannot be aborted after its timeout" in caplog.text


async def test_a_timeout_does_not_disturb_a_commit_that_is_being_stored(here: Surroundings) -> None:
    here.coordinator.start()
    producer = await open_transaction(here)
    here.log.holds = True
    ending = asyncio.ensure_future(here.end("id", producer, is_committed=True))
    await here.idle()
    await here.advance(2 * MINUTE_MS)
    here.log.holds = False
    here.log.release()
    await ending
    await here.idle()
    assert here.states()[-2:] == ["PrepareCommit", "CompleteCommit"]


@pytest.mark.parametrize("ends", [False, True])
async def test_unused_ids_expire(ends: bool) -> None:
    here = Surroundings(TransactionSettings(id_expiration_ms=10_000, expiry_check_interval_ms=1_000))
    await here.lead()
    here.coordinator.start()
    producer = await init(here)
    if ends:
        await here.add_partitions("id", producer, [A0])
        await here.end("id", producer, is_committed=True)
        await here.idle()
    await here.advance(9_000)
    assert here.state() is (TransactionState.COMPLETE_COMMIT if ends else TransactionState.EMPTY)
    here.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    await here.advance(2_000)
    assert here.state() is not TransactionState.DEAD
    here.log.append_error = None
    await here.advance(1_000)
    assert here.states()[-1] == "-"
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await refusal(here.add_partitions("id", producer, [A0])) is unknown
    await here.restart()
    assert list(here.coordinator.inspection.transactions()) == []


async def test_open_transactions_do_not_expire() -> None:
    here = Surroundings(TransactionSettings(id_expiration_ms=10_000, expiry_check_interval_ms=1_000))
    await here.lead()
    await open_transaction(here)
    here.clock.advance(1_000_000)
    await here.coordinator.expiry.remove_expired()
    await here.idle()
    assert here.state() is TransactionState.ONGOING


async def test_many_tombstones_are_appended_in_several_batches() -> None:
    here = Surroundings(TransactionSettings(id_expiration_ms=10))
    await here.lead()
    for number in range(50):
        await here.coordinator.init_producer_id(str(number) * 15_000, MINUTE_MS, None)
    here.clock.advance(10)
    before = len(here.log.batch_sequences())
    await here.coordinator.expiry.remove_expired()
    await here.idle()
    assert len(here.log.batch_sequences()) - before == 3
    assert list(here.coordinator.inspection.transactions()) == []


async def test_batches_of_tombstones_are_limited_for_short_ids_too(monkeypatch: pytest.MonkeyPatch) -> None:
    size_max = 1_000
    monkeypatch.setattr(expiry, "BATCH_SIZE_MAX", size_max)
    here = Surroundings(TransactionSettings(id_expiration_ms=10))
    await here.lead()
    for number in range(150):
        await init(here, str(number))
    here.clock.advance(10)
    await here.coordinator.expiry.remove_expired()
    sizes = [header.size for _, header in batches(here.log.logs[0]) if header.records_count > 1]
    assert max(sizes) <= HEADER_SIZE + size_max


async def test_other_requests_are_served_while_ids_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "SLICE_IDS", 2)
    here = Surroundings(TransactionSettings(id_expiration_ms=10))
    await here.lead()
    for number in range(5):
        await init(here, f"id-{number}")
    here.clock.advance(10)
    removing = asyncio.ensure_future(here.coordinator.expiry.remove_expired())
    await asyncio.sleep(0)
    assert await init(here, "id-4") == Producer(104, 1), "not checked yet"
    here.coordinator.partitions.become_leader(0, 1)
    await removing
    await here.idle()
    assert sorted(name for name, _ in here.coordinator.inspection.transactions()) == [
        f"id-{number}" for number in range(5)
    ]


# Markers


@pytest.mark.parametrize("code", [3, 6, 7, 13, 19, 20, 56], ids=lambda code: ErrorCode(code).name)
async def test_a_marker_is_sent_until_it_is_written(here: Surroundings, code: int) -> None:
    producer = await open_transaction(here, A0, A1)
    here.channel.codes[A1] = [code, code]
    await here.end("id", producer, is_committed=True)
    await here.idle()
    assert here.state() is TransactionState.PREPARE_COMMIT
    await here.advance(2 * RETRY_BACKOFF_MS)
    assert here.state() is TransactionState.COMPLETE_COMMIT
    assert here.channel.asked == [(A0, A1), (A1,), (A1,)]


@pytest.mark.parametrize("code", [47, 52, -1, 87], ids=lambda code: ErrorCode(code).name)
async def test_a_rejected_marker_leaves_the_transaction_to_the_next_load(here: Surroundings, code: int) -> None:
    producer = await open_transaction(here)
    here.channel.codes[A0] = [code]
    await here.end("id", producer, is_committed=True)
    await here.advance(60_000)
    assert here.state() is TransactionState.PREPARE_COMMIT
    assert await refusal(init(here)) is ErrorCode.CONCURRENT_TRANSACTIONS
    await here.restart()
    assert here.state() is TransactionState.COMPLETE_COMMIT


async def test_a_deleted_topic_does_not_keep_a_transaction_open(here: Surroundings) -> None:
    producer = await open_transaction(here, A0, B0)
    here.leaders.deleted.add("a")
    await here.end("id", producer, is_committed=True)
    await here.idle()
    assert here.state() is TransactionState.COMPLETE_COMMIT
    assert [partition for _, partition in here.channel.written] == [B0]


async def test_a_partition_without_a_leader_gets_its_marker_later(here: Surroundings) -> None:
    producer = await open_transaction(here, A0, B0)
    here.leaders.leaders[A0] = -1
    await here.end("id", producer, is_committed=True)
    await here.advance(1_000)
    assert here.state() is TransactionState.PREPARE_COMMIT
    del here.leaders.leaders[A0]
    await here.advance(RETRY_BACKOFF_MS)
    assert here.state() is TransactionState.COMPLETE_COMMIT
    assert [partition for _, partition in here.channel.written] == [B0, A0]


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
async def test_a_complete_state_that_cannot_be_stored_is_retried(here: Surroundings, error: ErrorCode) -> None:
    producer = await open_transaction(here)
    here.channel.holds = True
    await here.end("id", producer, is_committed=True)
    await here.idle()
    here.log.append_error = error
    here.channel.held[0].release()
    await here.advance(500)
    assert here.state() is TransactionState.PREPARE_COMMIT
    here.log.append_error = None
    await here.advance(RETRY_BACKOFF_MS)
    assert here.state() is TransactionState.COMPLETE_COMMIT


# Loading and moving


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: f"partition {golden.number}")
async def test_ids_written_by_kafka_are_loaded(golden: GoldenPartition) -> None:
    here = Surroundings()
    here.log.logs[0] = bytearray(golden.log)
    await here.lead()
    last = {record["decodedKey"].partition("=")[2]: record["decodedValue"] for record in golden.records}
    loaded = {
        name: f"producerId:{each.producer_id},producerEpoch:{each.producer_epoch},state={each.state.title}"
        for name, each in here.coordinator.inspection.transactions()
    }
    assert loaded == {name: value.partition(",partitions")[0] for name, value in last.items()}
    assert here.channel.asked == []


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_decided_transaction_is_completed_by_the_next_coordinator(
    here: Surroundings, is_committed: bool
) -> None:
    producer = await open_transaction(here, A0, B0)
    here.channel.holds = True
    await here.end("id", producer, is_committed=is_committed)
    await here.idle()
    await here.restart()
    marker = Marker(producer.producer_id, producer.epoch, is_committed, 1)
    assert here.channel.written == [(marker, A0), (marker, B0)]
    assert here.states()[-1] == ("CompleteCommit" if is_committed else "CompleteAbort")


async def test_missing_metadata_does_not_mean_deleted_topics(here: Surroundings) -> None:
    producer = await open_transaction(here)
    here.channel.holds = True
    await here.end("id", producer, is_committed=True)
    here.leaders.has_arrived = False
    await here.restart()
    await here.advance(1_000)
    assert here.state() is TransactionState.PREPARE_COMMIT
    here.leaders.has_arrived = True
    await here.advance(RETRY_BACKOFF_MS)
    assert here.state() is TransactionState.COMPLETE_COMMIT
    assert len(here.channel.written) == 1


async def test_an_undecided_transaction_stays_open_over_a_restart(here: Surroundings) -> None:
    producer = await open_transaction(here)
    here.log.holds = True
    ending = asyncio.ensure_future(here.end("id", producer, is_committed=True))
    await here.idle()
    ending.cancel()
    await here.restart()
    assert here.state() is TransactionState.ONGOING
    await here.end("id", producer, is_committed=False)
    await here.idle()
    assert here.states()[-2:] == ["PrepareAbort", "CompleteAbort"]


async def test_a_result_for_an_older_leadership_is_void(here: Surroundings) -> None:
    producer = await open_transaction(here)
    here.log.holds = True
    ending = asyncio.ensure_future(here.end("id", producer, is_committed=True))
    await here.idle()
    here.log.holds = False
    here.coordinator.partitions.become_leader(0, 5)
    await here.idle()
    here.log.release()
    assert await refusal(ending) is ErrorCode.NOT_COORDINATOR
    await here.idle()
    assert here.state() is TransactionState.ONGOING
    assert here.channel.asked == []


async def test_markers_of_an_older_leadership_are_cancelled(here: Surroundings) -> None:
    producer = await open_transaction(here)
    here.channel.codes[A0] = [6] * 1_000
    await here.end("id", producer, is_committed=True)
    await here.idle()
    here.coordinator.partitions.resign(0)
    asked = len(here.channel.asked)
    await here.advance(10_000)
    assert len(here.channel.asked) == asked


async def test_the_same_epoch_again_is_no_new_leadership(here: Surroundings) -> None:
    await init(here)
    here.log.read_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    here.coordinator.partitions.become_leader(0, 0)
    await here.idle()
    assert here.state() is TransactionState.EMPTY


async def test_ids_that_are_not_served_get_the_codes_of_kafka(here: Surroundings) -> None:
    await init(here)

    def reported() -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            here.coordinator.inspection.describe("id")
        return caught.value.code

    here.coordinator.partitions.resign(0)
    assert reported() is ErrorCode.NOT_COORDINATOR
    here.coordinator.partitions.become_leader(0, 1)
    assert reported() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaError, match="LOAD_IN_PROGRESS"):
        here.coordinator.inspection.transactions()
    await here.idle()
    assert here.state() is TransactionState.EMPTY
    here.log.count = None
    assert reported() is ErrorCode.NOT_COORDINATOR
    await here.coordinator.stop()
    assert reported() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        here.coordinator.inspection.transactions()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda log: setattr(log, "read_error", KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)),
        lambda log: setattr(log, "read_error", ZeroDivisionError()),
    ],
    ids=["unreadable", "bug"],
)
async def test_a_log_that_cannot_be_read_is_not_served(spoil: Callable[[FakeLog], None]) -> None:
    here = Surroundings()
    here.log.write(0, build_batch([RecordData(0, b"\x00\x00\x00\x01a", None)]))
    spoil(here.log)
    await here.lead()
    assert await refusal(init(here)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    "damaged",
    [RecordData(0, b"\x00\x00\x00\x01a", b"\x00\x09"), RecordData(0, None, b"\x00\x00")],
    ids=["unknown version", "no key"],
)
async def test_record_that_cannot_be_decoded_does_not_keep_other_ids_from_being_served(damaged: RecordData) -> None:
    here = Surroundings()
    await here.lead()
    await init(here)
    here.log.write(0, build_batch([damaged]))
    here.coordinator = here.new_coordinator()
    await here.lead()
    assert here.state() is TransactionState.EMPTY
    assert await init(here) == Producer(100, 1)


async def test_records_of_other_types_are_skipped() -> None:
    here = Surroundings()
    here.log.write(0, build_batch([RecordData(0, b"\x00\x01what", b"ever")]))
    await here.lead()
    assert await init(here) == Producer(100, 0)


async def test_the_topic_is_created_on_demand() -> None:
    here = Surroundings(partition_count=None)
    assert here.coordinator.partitions.count() is None
    here.creation_error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)
    assert await refusal(here.coordinator.partitions.ensure_topic()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    here.creation_error = None
    assert await here.coordinator.partitions.ensure_topic() == 1
    assert await here.coordinator.partitions.ensure_topic() == 1
    assert here.created == ["__transaction_state"] * 2


async def test_stopping_cancels_unfinished_work(here: Surroundings) -> None:
    here.coordinator.start()
    producer = await open_transaction(here)
    here.channel.codes[A0] = [6] * 1_000
    await here.end("id", producer, is_committed=True)
    await here.coordinator.stop()
    asked = len(here.channel.asked)
    await here.advance(100_000)
    assert len(here.channel.asked) == asked


def test_settings_come_from_the_configuration() -> None:
    config = BrokerConfig.from_properties(
        {
            "transaction.max.timeout.ms": "1",
            "transactional.id.expiration.ms": "2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "4",
            "transaction.state.log.load.buffer.size": "5",
        },
        {},
    )
    assert TransactionSettings.from_config(config) == TransactionSettings(1, 2, 3, 4, 5)
    assert TransactionSettings.from_config(BrokerConfig.from_properties({}, {})) == TransactionSettings()


# Version 2


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_repeated_end_has_the_same_result_after_a_restart(here: Surroundings, is_committed: bool) -> None:
    producer = await init(here)
    await here.add_partitions("id", producer, [A0], version=VERSION_2)
    holder = await here.end("id", producer, is_committed=is_committed, version=VERSION_2)
    assert holder == Producer(producer.producer_id, producer.epoch + 1)
    await here.idle()
    assert {marker.producer_epoch for marker, _ in here.channel.written} == {holder.epoch}
    await here.restart()
    assert await here.end("id", producer, is_committed=is_committed, version=VERSION_2) == holder
    assert await refusal(here.add_partitions("id", producer, [A0], version=VERSION_2)) is ErrorCode.PRODUCER_FENCED
    await here.add_partitions("id", holder, [A0], version=VERSION_2)


@pytest.mark.parametrize("restarts", [False, True])
async def test_used_up_epochs_are_followed_by_another_producer_id(here: Surroundings, restarts: bool) -> None:
    first = await init(here)
    (partition,) = here.coordinator.partitions
    transaction = partition.transactions["id"]
    last = Producer(first.producer_id, LAST_EPOCH)
    transaction.current = transaction.current._replace(producer_epoch=LAST_EPOCH)
    await here.add_partitions("id", last, [A0], version=VERSION_2)
    here.channel.holds = restarts
    holder = await here.end("id", last, is_committed=True, version=VERSION_2)
    assert holder == Producer(first.producer_id + 1, 0)
    await here.idle()
    if restarts:
        await here.restart()
    assert [(marker.producer_id, marker.producer_epoch) for marker, _ in here.channel.written] == [
        (last.producer_id, LAST_EPOCH + 1)
    ], "the marker is of the producer that has written"
    assert await here.end("id", last, is_committed=True, version=VERSION_2) == holder
    await here.add_partitions("id", holder, [A0], version=VERSION_2)


async def test_a_partition_that_the_metadata_lacks_is_not_added(here: Surroundings) -> None:
    """Its marker would not be sent. A leader may serve a new partition before the metadata of its broker has it."""
    producer = await init(here)
    here.leaders.deleted.add(B0[0])
    no_peer, no_pause = cast(Any, None), cast(Any, None)
    links = CoordinatorLinks(BROKER, here.coordinator, TRANSACTION_STATE_TOPIC, here.leaders, no_peer, 1, no_pause)
    assert await links.add("id", producer, [A0, B0]) == {
        A0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        B0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert here.state() is TransactionState.EMPTY
    here.leaders.deleted.clear()
    assert await links.add("id", producer, [A0, B0]) == {A0: ErrorCode.NONE, B0: ErrorCode.NONE}
