"""Produce with a transactional id: verified first, synchronously or after a wait, and never without a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from base.topic_partition import TopicPartition
from broker.handlers import produce
from broker.handlers.request_context import RequestContext
from broker.loop.promise import Promise
from broker.network.channel import Channel
from broker.replica.transaction_verification import CoordinatorLink, Verdicts
from broker.requests.dispatch import request_decoder
from broker.transactions.machine.transaction import VERSION_2
from broker.transactions.markers import Marker
from protocol.api import APIS
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from storage.producers.producer_state import Producer
from tests.broker.groups.served import as_received, received_by
from tests.broker.transactions.leading import transactional_batch
from tests.broker.transactions.served import ServedTransactions

T0, T1 = ("t", 0), ("t", 1)
PLAIN = build_batch([RecordData(0, None, b"plain")])


class FarCoordinator:
    """`CoordinatorLink` to another broker: verdicts arrive when the test provides them."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Verdicts]] = []
        self.asked: list[tuple[TopicPartition, ...]] = []

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]
    ) -> Awaitable[Verdicts]:
        self.asked.append(tuple(partitions))
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    async def add(self, transactional_id: str, producer: Producer, partitions: Sequence[TopicPartition]) -> Verdicts:
        return await self.verify(transactional_id, producer, partitions)

    def respond(self, code: int = 0) -> None:
        self.waiting.pop().set_result(dict.fromkeys(self.asked[-1], code))


class ServedFromAfar(ServedTransactions):
    """As `ServedTransactions`, where every transactional id has its coordinator on another broker."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.far = FarCoordinator()

    def link(self) -> CoordinatorLink:
        return self.far


def request(name: str | None, *batches: tuple[TopicPartition, bytes], acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=name,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
            for (topic, index), batch in batches
        ],
    )


def context_of(version: int) -> RequestContext:
    return RequestContext(0, version, 1, "client", Channel("192.0.2.1", 50_000, "PLAINTEXT"))


def codes(response: Any) -> list[int]:
    return [partition.error_code for topic in response.responses for partition in topic.partition_responses]


@pytest.fixture
async def served(tmp_path: Path) -> ServedTransactions:
    served = ServedTransactions(tmp_path)
    await served.lead_all()
    for _, index in (T0, T1):
        served.leading.lead("t", index)
    return served


@pytest.fixture
def afar(tmp_path: Path) -> ServedFromAfar:
    served = ServedFromAfar(tmp_path)
    served.leading.lead("t", 0)
    return served


@pytest.mark.parametrize("version", range(3, 12))
async def test_only_partitions_of_the_transaction_are_written(served: ServedTransactions, version: int) -> None:
    producer = await served.new_producer()
    await served.there.add_partitions("id", producer, [T0])
    batch = transactional_batch(producer.producer_id, producer.epoch)
    response = await served.ask(produce, request("id", (T0, batch), (T1, batch), (("t", 9), batch)), version)
    absent = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
    assert codes(response) == [ErrorCode.NONE, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", range(3, 12))
async def test_a_transactional_batch_needs_a_transactional_id(served: ServedTransactions, version: int) -> None:
    response = await served.ask(produce, request(None, (T0, transactional_batch()), (T1, PLAIN)), version)
    assert codes(response) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.NONE]


async def test_a_plain_batch_of_a_transactional_producer_is_not_verified(served: ServedTransactions) -> None:
    assert codes(await served.ask(produce, request("nobody", (T0, PLAIN)), 11)) == [ErrorCode.NONE]


async def test_records_that_are_no_batch_are_refused_by_validation(served: ServedTransactions) -> None:
    response = await served.ask(produce, request("id", (T0, b"\xff" * 100)), 11)
    assert codes(response) == [ErrorCode.CORRUPT_MESSAGE]


BASE_SEQUENCE, PRODUCER_ID, ATTRIBUTES = 53, 43, 22


def damaged(batch: bytes, position: int, bit: int = 0x80) -> bytes:
    return batch[:position] + bytes([batch[position] ^ bit]) + batch[position + 1 :]


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("position", [BASE_SEQUENCE, PRODUCER_ID])
async def test_a_damaged_header_is_not_verified(served: ServedTransactions, version: int, position: int) -> None:
    producer = await served.new_producer()
    await served.there.add_partitions("id", producer, [T0, T1])
    first, second = (transactional_batch(producer.producer_id, producer.epoch, sequence) for sequence in (0, 1))
    response = await served.ask(produce, request("id", (T0, damaged(first, position)), (T1, first)), version)
    assert codes(response) == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    for batch in (first, second):
        assert codes(await served.ask(produce, request("id", (T0, batch)), version)) == [ErrorCode.NONE]


async def test_a_plain_batch_that_damage_makes_transactional_is_corrupt(served: ServedTransactions) -> None:
    response = await served.ask(produce, request(None, (T0, damaged(PLAIN, ATTRIBUTES, 0x10))), 11)
    assert codes(response) == [ErrorCode.CORRUPT_MESSAGE]


async def test_a_request_that_waits_for_a_far_coordinator(afar: ServedFromAfar) -> None:
    responding = afar.send(produce, request("id", (T0, transactional_batch())), 11)
    assert not responding.done()
    afar.far.respond()
    assert codes(await responding) == [ErrorCode.NONE]
    assert codes(await afar.ask(produce, request("id", (T0, transactional_batch(sequence=1))), 11)) == [ErrorCode.NONE]
    assert afar.far.asked == [(T0,)], "with data of the transaction no verification is needed"


async def test_a_far_coordinator_that_refuses(afar: ServedFromAfar) -> None:
    responding = afar.send(produce, request("id", (T0, transactional_batch())), 11)
    afar.far.respond(ErrorCode.NETWORK_EXCEPTION)
    assert codes(await responding) == [ErrorCode.NOT_ENOUGH_REPLICAS]


async def test_marker_during_the_verification_rejects_the_batch(afar: ServedFromAfar) -> None:
    responding = afar.send(produce, request("id", (T0, transactional_batch())), 11)
    afar.marker_writer.write(Marker(7, 0, False, 0), [T0])
    afar.far.respond()
    assert codes(await responding) == [ErrorCode.INVALID_TXN_STATE]


async def test_waiting_request_does_not_need_its_frame(afar: ServedFromAfar) -> None:
    frame = memoryview(bytearray(b"".join(encode(request("id", (T0, transactional_batch())), 11))))
    asked = request_decoder(produce, APIS[0], 11)(frame)
    admitting = produce.handle(afar.services(), asked, context_of(11))
    frame[:] = bytes(len(frame))
    afar.far.respond()
    assert isinstance(admitting, Promise)
    assert codes(as_received(await admitting, APIS[0], 11)) == [ErrorCode.NONE]


async def test_verification_with_acks_0_sends_no_response(afar: ServedFromAfar) -> None:
    asked = received_by(produce, request("id", (T0, transactional_batch()), acks=0), 11)
    responding = produce.handle(afar.services(), asked, context_of(11))
    afar.far.respond()
    assert isinstance(responding, Promise)
    assert await responding is None


# Version 12: the request adds its partitions to the transaction


async def end_of(served: ServedTransactions, producer: Producer, *, is_committed: bool = True) -> Producer:
    """End a transaction of version 2, and write its markers; return the producer that continues."""
    holder = await served.there.end("id", producer, is_committed=is_committed, version=VERSION_2)
    await served.idle()
    for marker, partition in served.there.channel.written:
        served.marker_writer.write(marker, [partition])
    served.there.channel.written.clear()
    return holder


async def test_partitions_are_added_by_their_first_batch(served: ServedTransactions) -> None:
    producer = await served.new_producer()
    batch = transactional_batch(producer.producer_id, producer.epoch)
    response = await served.ask(produce, request("id", (T0, batch), (T1, batch)), 12)
    assert codes(response) == [ErrorCode.NONE] * 2
    described = served.transactions.inspection.describe("id")
    assert (described.state.title, list(described.partitions)) == ("Ongoing", [T0, T1])
    count = len(served.there.stored())
    again = transactional_batch(producer.producer_id, producer.epoch, 1)
    assert codes(await served.ask(produce, request("id", (T0, again)), 12)) == [ErrorCode.NONE]
    assert len(served.there.stored()) == count, "the coordinator is not asked again"


@pytest.mark.parametrize("late", [T0, T1], ids=["with its marker", "without data of the transaction"])
async def test_a_late_batch_of_an_ended_transaction_is_refused(
    served: ServedTransactions, late: TopicPartition
) -> None:
    producer = await served.new_producer()
    first = transactional_batch(producer.producer_id, producer.epoch)
    assert codes(await served.ask(produce, request("id", (T0, first)), 12)) == [ErrorCode.NONE]
    holder = await end_of(served, producer)
    for version in (12, 11):
        delayed = transactional_batch(producer.producer_id, producer.epoch, 1 if late == T0 else 0)
        response = await served.ask(produce, request("id", (late, delayed)), version)
        assert codes(response) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    following = transactional_batch(holder.producer_id, holder.epoch)
    assert codes(await served.ask(produce, request("id", (late, following)), 12)) == [ErrorCode.NONE]


async def test_a_batch_waits_for_the_end_of_the_transaction_before(served: ServedTransactions) -> None:
    producer = await served.new_producer()
    first = transactional_batch(producer.producer_id, producer.epoch)
    await served.ask(produce, request("id", (T0, first)), 12)
    served.there.channel.holds = True
    holder = await served.there.end("id", producer, is_committed=True, version=VERSION_2)
    following = transactional_batch(holder.producer_id, holder.epoch)
    for is_done in (False, True):
        producing = asyncio.ensure_future(served.ask(produce, request("id", (T1, following)), 12))
        await served.idle()
        assert not producing.done()
        if is_done:
            (held,) = served.there.channel.held
            held.done.set_result({T0: 0})
        await served.there.advance(200)
        assert codes(await producing) == [ErrorCode.NONE if is_done else ErrorCode.CONCURRENT_TRANSACTIONS]
