"""Batches that a producer has sent behind one that was refused are refused too, until that one has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from broker.replica.bound_partition import BoundPartition
from broker.replica.machine.refused_batches import REFUSED_MAX, REMEMBERED_MS, RefusedBatches
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import MetadataRequest
from protocol.records.batch import BatchHeader, batches, read_header, records
from protocol.records.builder import RecordData, build_batch
from storage.producers.producer_state import NONE, SEQUENCE_MAX
from tests.support.in_process import running_broker

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NOW_MS = 5_000


def header(base_sequence: int, *, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return read_header(
        build_batch(
            [RecordData(1, None, b"v")], producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence
        )
    )


def refused_at(base_sequence: int, code: ErrorCode = NOT_LEADER, last_sequence: int = NONE) -> RefusedBatches:
    refused = RefusedBatches()
    refused.add("t", 0, header(base_sequence), last_sequence, code, NOW_MS)
    return refused


@pytest.mark.parametrize("code", [NOT_LEADER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT])
def test_a_later_batch_gets_the_code_of_the_refused_one(code: ErrorCode) -> None:
    assert refused_at(5, code).code_for("t", 0, header(6), 4) is code


@pytest.mark.parametrize(
    ("topic", "partition", "sent", "last_sequence"),
    [
        ("t", 0, header(5), 4),
        ("t", 0, header(4), 3),
        ("t", 0, header(6), 5),
        ("t", 0, header(6), 7),
        ("t", 0, header(6, epoch=1), NONE),
        ("t", 0, header(6, producer_id=8), NONE),
        ("t", 1, header(6), NONE),
        ("u", 0, header(6), NONE),
    ],
    ids=["itself", "earlier", "stored", "stored long ago", "epoch", "producer", "partition", "topic"],
)
def test_other_batches_are_not_refused(topic: str, partition: int, sent: BatchHeader, last_sequence: int) -> None:
    assert refused_at(5).code_for(topic, partition, sent, last_sequence) is None


def test_the_refused_batch_ends_the_refusals_when_it_comes_again() -> None:
    refused = refused_at(5)
    assert refused.code_for("t", 0, header(6), 4) is NOT_LEADER
    assert refused.code_for("t", 0, header(5), 4) is None
    assert refused.code_for("t", 0, header(9), 4) is None


def test_a_refused_batch_that_never_comes_again_stops_four_batches() -> None:
    refused = refused_at(5)
    codes = [refused.code_for("t", 0, header(sequence), 4) for sequence in range(6, 12)]
    assert codes == [NOT_LEADER] * 4 + [None] * 2


def test_the_first_of_several_refused_batches_counts_unless_it_was_stored() -> None:
    refused = refused_at(5)
    refused.add("t", 0, header(6), 4, ErrorCode.NOT_ENOUGH_REPLICAS, NOW_MS)
    assert refused.code_for("t", 0, header(7), 4) is NOT_LEADER
    refused.add("t", 0, header(8), 7, ErrorCode.NOT_ENOUGH_REPLICAS, NOW_MS)
    assert refused.code_for("t", 0, header(9), 7) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_sequence_numbers_wrap_around() -> None:
    refused = refused_at(SEQUENCE_MAX)
    assert refused.code_for("t", 0, header(0), SEQUENCE_MAX - 1) is NOT_LEADER
    assert refused.code_for("t", 0, header(3), 2) is None


def test_final_codes_and_batches_without_a_producer_are_not_noted() -> None:
    refused = refused_at(5, ErrorCode.MESSAGE_TOO_LARGE)
    refused.add("t", 0, header(-1, producer_id=-1, epoch=-1), NONE, NOT_LEADER, NOW_MS)
    refused.add("t", 0, header(-1), NONE, ErrorCode.CORRUPT_MESSAGE, NOW_MS)  # it would come before every other
    assert (len(refused), refused.until_ms) == (0, 0)


@pytest.mark.parametrize(
    ("base_sequence", "last_sequence", "is_refused"),
    [
        (0, NONE, False),
        (3, NONE, True),
        (3, 2, False),
        (6, 2, True),
        (0, 2, False),
        (0, SEQUENCE_MAX, False),
        (NONE, NONE, False),
        (NONE, 2, False),
    ],
)
def test_a_corrupt_batch_holds_back_what_does_not_follow_the_log(
    base_sequence: int, last_sequence: int, is_refused: bool
) -> None:
    refused = RefusedBatches()
    refused.add_corrupt("t", 0, ErrorCode.CORRUPT_MESSAGE, NOW_MS)
    expected = ErrorCode.CORRUPT_MESSAGE if is_refused else None
    assert refused.code_for("t", 0, header(base_sequence), last_sequence) is expected
    assert refused.code_for("t", 1, header(base_sequence), last_sequence) is None


def test_a_corrupt_batch_stops_four_batches() -> None:
    refused = RefusedBatches()
    refused.add_corrupt("t", 0, ErrorCode.CORRUPT_MESSAGE, NOW_MS)
    codes = [refused.code_for("t", 0, header(sequence, producer_id=sequence), NONE) for sequence in range(1, 7)]
    assert codes == [ErrorCode.CORRUPT_MESSAGE] * 4 + [None] * 2


def test_a_corrupt_batch_with_a_final_code_is_not_noted() -> None:
    refused = RefusedBatches()
    refused.add_corrupt("t", 0, ErrorCode.MESSAGE_TOO_LARGE, NOW_MS)
    assert (len(refused), refused.until_ms) == (0, 0)


def test_memory_is_bounded_in_number_and_time() -> None:
    refused = RefusedBatches()
    for number in range(REFUSED_MAX + 5):
        refused.add(f"t{number}", 0, header(0), NONE, NOT_LEADER, NOW_MS)
    assert len(refused) == 5
    assert refused.until_ms == NOW_MS + REMEMBERED_MS
    refused.add("t", 0, header(0), NONE, NOT_LEADER, NOW_MS + REMEMBERED_MS)
    assert len(refused) == 1


@pytest.mark.parametrize("refused_sequence", [0, 3], ids=["unknown producer", "known producer"])
async def test_librdkafka_stores_each_record_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_sequence: int
) -> None:
    """A broker becomes the leader between two requests of a pipeline.

    Without the first batch, librdkafka takes the success of the second for that of the first, or begins a new epoch.
    """
    arrived: list[int] = []
    append: Callable[..., object] = BoundPartition.append_unread

    def lead_after_the_first(self: BoundPartition, sent: memoryview, *more: object) -> object:
        arrived.append(read_header(sent).base_sequence)
        if arrived[-1] == refused_sequence and arrived.count(refused_sequence) == 1:
            raise KafkaError(NOT_LEADER)
        return append(self, sent, *more)

    monkeypatch.setattr(BoundPartition, "append_unread", lead_after_the_first)
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        (node,) = (await broker.ask(MetadataRequest(topics=[]))).brokers
        producer = Producer(
            {
                "bootstrap.servers": f"{node.host}:{node.port}",
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "retry.backoff.ms": 1,
            }
        )
        values = [b"%d" % number for number in range(20)]
        errors: list[object] = []
        for value in values:  # they wait for the connection, so that five of them are sent at once
            producer.produce("t", value, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert await asyncio.to_thread(producer.flush, 60) == 0
        assert errors == [None] * len(values)
        partition = broker.services.replica_manager.find("t", 0)
        assert partition is not None
        log = partition.log
        stored = log.reader.read(0, 1 << 20, upper_bound_offset=log.log_end_offset, min_one_batch=True).records  # type: ignore[union-attr]
    found = [(it.producer_epoch, at) for at, it in batches(stored)]
    assert {epoch for epoch, _ in found} == {0}
    assert [record.value for _, at in found for record in records(stored, at, size_max=1 << 20)] == values
