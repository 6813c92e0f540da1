"""Shortcuts of transactions against their dumb twin, the general way: the same bytes, whatever state there is.

Two producers do the same, one with shortcuts and one without; each has a topic of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from broker.offsets_log import PartitionOffsetsLog
from broker.shortcuts import Shortcuts
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import read_response_header, request_header
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID
from tests.broker.test_shortcuts import CountedShortcuts, NoShortcuts, send
from tests.support.in_process import InProcessBroker, running_broker

PRODUCE, ADD, END = 0, 24, 26
TRANSACTION_COORDINATOR = 1
READ_COMMITTED = 1
SHORT, GENERAL = "short", "plain"  # names of one length, so that answers differ in nothing else
ADD_VERSIONS = [version for version in APIS[ADD].versions if version <= 3]
END_VERSIONS = list(APIS[END].versions)


class TransactionalProducer(NamedTuple):
    """A producer whose transactional id is the name of its topic."""

    broker: InProcessBroker
    name: str
    producer_id: int
    epoch: int
    shortcuts: Shortcuts

    async def add(self, version: int = 3, *, partitions: tuple[int, ...] = (0,), number: int = 0) -> bytes:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.name, partitions=list(partitions))],
        )
        return await self._send(ADD, version, request, number)

    async def produce(self, sequence: int, version: int = 9, *, number: int = 0) -> bytes:
        batch = build_batch(
            [RecordData(1000, None, b"v")],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = TopicProduceData(name=self.name, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=1000, topic_data=[data])
        return await self._send(PRODUCE, version, request, number)

    async def end(self, version: int = 3, *, is_committed: bool = True, number: int = 0) -> bytes:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_committed,
        )
        return await self._send(END, version, request, number)

    async def _send(self, api_key: int, version: int, request: object, number: int) -> bytes:
        frame = request_header(api_key, version, number, "client") + b"".join(encode(request, version))
        answer = await send(self.broker, frame, self.shortcuts)
        return answer.replace(self.name.encode(), b"topic")


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path / "data") as running:
        for topic in (SHORT, GENERAL):
            await running.create_topic(topic, 3)
        find = FindCoordinatorRequest(key=SHORT, key_type=TRANSACTION_COORDINATOR)
        async with asyncio.timeout(10):
            while (await running.ask(find, 2)).error_code:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        yield running


@pytest.fixture
def learning() -> CountedShortcuts:
    return CountedShortcuts()


async def new_producer(broker: InProcessBroker, name: str, shortcuts: Shortcuts) -> TransactionalProducer:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    async with asyncio.timeout(10):
        while (answer := await broker.ask(request, 2)).error_code:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    return TransactionalProducer(broker, name, answer.producer_id, answer.producer_epoch, shortcuts)


@pytest_asyncio.fixture
async def both(
    broker: InProcessBroker, learning: CountedShortcuts
) -> tuple[TransactionalProducer, TransactionalProducer]:
    return await new_producer(broker, SHORT, learning), await new_producer(broker, GENERAL, NoShortcuts())


def produce_error(answer: bytes, version: int = 9) -> int:
    _, position = read_response_header(PRODUCE, version, answer[4:])
    return decode(ProduceResponse, version, answer[4:], position).responses[0].partition_responses[0].error_code


async def values_in(broker: InProcessBroker, topic: str) -> tuple[int, int]:
    """High watermark and last stable offset of the first partition."""
    wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=9999)])
    answer = await broker.ask(
        FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=READ_COMMITTED, topics=[wanted]), 12
    )
    data = answer.responses[0].partitions[0]
    return data.high_watermark, data.last_stable_offset


Both = tuple[TransactionalProducer, TransactionalProducer]


@pytest.mark.parametrize(("add_version", "end_version"), list(zip(ADD_VERSIONS, END_VERSIONS, strict=False)))
@pytest.mark.parametrize("partitions", [(0,), (0, 2)])
async def test_transactions_that_repeat_are_answered_the_same_bytes(
    broker: InProcessBroker,
    learning: CountedShortcuts,
    both: Both,
    add_version: int,
    end_version: int,
    partitions: tuple[int, ...],
) -> None:
    for number in range(4):
        for step in (
            lambda each, n=number: each.add(add_version, partitions=partitions, number=n),
            lambda each, n=number: each.add(add_version, partitions=partitions, number=n),
            lambda each, n=number: each.produce(2 * n, number=n),
            lambda each, n=number: each.produce(2 * n + 1, number=n),
            lambda each, n=number: each.end(end_version, number=n),
            # The markers are not written yet: the code varies.
            lambda each, n=number: each.add(add_version, partitions=partitions, number=n),
            lambda each, n=number: each.end(end_version, number=n),
        ):
            short, general = [await step(each) for each in both]
            assert short == general
        await asyncio.sleep(0.01)
    assert await values_in(broker, SHORT) == await values_in(broker, GENERAL) == (12, 12)
    has_own_codes = add_version >= 2, end_version >= 2
    assert learning.answer_count >= 3 * 2 + 3 * 3 * has_own_codes[0] + 3 * 2 * has_own_codes[1]


async def test_of_an_end_only_the_same_outcome_is_a_repetition(
    broker: InProcessBroker, learning: CountedShortcuts, both: Both
) -> None:
    for number in range(6):
        for each in both:
            await each.add()
            await each.produce(number)
        short, general = [await each.end(is_committed=number % 2 == 0) for each in both]
        assert short == general
        await asyncio.sleep(0.01)
    assert await values_in(broker, SHORT) == await values_in(broker, GENERAL) == (12, 12)
    partitions = [broker.services.replica_manager.find(name, 0) for name in (SHORT, GENERAL)]
    for partition in partitions:
        assert partition is not None
        assert [each.first_offset for each in partition.log.aborted_transactions(0, 12)] == [2, 6, 10]


async def test_a_producer_that_is_fenced_is_told_so(
    broker: InProcessBroker, learning: CountedShortcuts, both: Both
) -> None:
    for number in range(2):
        for each in both:
            await each.add()
            await each.produce(number)
            await each.end()
        await asyncio.sleep(0.01)
    for each in both:
        await new_producer(broker, each.name, NoShortcuts())
    before = learning.answer_count
    for step in (TransactionalProducer.add, TransactionalProducer.end):
        short, general = [await step(each) for each in both]
        assert short == general
        assert ErrorCode.PRODUCER_FENCED.to_bytes(2) in short
    assert learning.answer_count == before + 2
    short, general = [await each.produce(2) for each in both]
    assert short == general
    assert produce_error(short) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "code"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)])
async def test_a_batch_outside_of_a_transaction_is_refused_alike(
    learning: CountedShortcuts, both: Both, version: int, code: ErrorCode
) -> None:
    for number in range(2):
        for each in both:
            await each.add()
            await each.produce(number, version)
            await each.end()
        await asyncio.sleep(0.01)
    before = learning.answer_count
    short, general = [await each.produce(2, version) for each in both]
    assert short == general
    assert produce_error(short, version) == code
    assert learning.answer_count == before


async def test_a_later_batch_does_not_overtake_one_that_was_refused(
    broker: InProcessBroker, learning: CountedShortcuts, both: Both
) -> None:
    for each in both:
        await each.add()
        await each.produce(0)
        await each.end()
    await asyncio.sleep(0.01)
    for each in both:
        partition = broker.services.replica_manager.find(each.name, 0)
        assert partition is not None
        assert partition.log.expire_producers(broker.services.clock.now_ms(), 0) == 1
        await each.produce(1)  # refused: there is no transaction. From now on the partition knows of it.
        await each.add()
    before = learning.answer_count
    for each in both:
        assert produce_error(await each.produce(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert learning.answer_count == before


async def test_verification_may_be_switched_off(broker: InProcessBroker, both: Both) -> None:
    for each in both:
        await each.add()
        await each.produce(0)
        await each.end()
    await asyncio.sleep(0.01)
    broker.services.verifier._is_enabled = lambda: False
    short, general = [await each.produce(1) for each in both]
    assert short == general
    assert produce_error(short) == ErrorCode.NONE


async def test_partitions_that_exist_no_more_are_not_added(
    broker: InProcessBroker, learning: CountedShortcuts, both: Both
) -> None:
    for each in both:
        await each.add()
        await each.end()
    await asyncio.sleep(0.01)
    topics = [DeleteTopicState(name=each.name, topic_id=ZERO_UUID) for each in both]
    await broker.ask(DeleteTopicsRequest(topics=topics, timeout_ms=10_000))
    before = learning.answer_count
    short, general = [await each.add() for each in both]
    assert short == general
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.to_bytes(2) in short
    assert learning.answer_count == before


@pytest.mark.parametrize("error", [None, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
async def test_a_step_whose_append_takes_time(
    learning: CountedShortcuts, both: Both, error: ErrorCode | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in both:
        await each.add()
        await each.end()
    await asyncio.sleep(0.01)
    appends: list[asyncio.Future[None]] = []

    def append(*_: object) -> asyncio.Future[None]:
        appends.append(asyncio.get_running_loop().create_future())
        return appends[-1]

    monkeypatch.setattr(PartitionOffsetsLog, "append", append)
    before = learning.answer_count
    waiting = [asyncio.ensure_future(each.add(number=7)) for each in both]
    await asyncio.sleep(0.01)
    assert not any(each.done() for each in waiting)
    for appended in appends:
        if error is None:
            appended.set_result(None)
        else:
            appended.set_exception(KafkaError(error))
    short, general = await asyncio.gather(*waiting)
    assert short == general
    assert (ErrorCode.COORDINATOR_NOT_AVAILABLE.to_bytes(2) in short) == (error is not None)
    assert learning.answer_count == before + 1


async def test_what_is_another_request_is_not_taken_for_a_repetition(learning: CountedShortcuts, both: Both) -> None:
    short, _ = both
    await short.add()
    await short.add(partitions=(1,))
    await short.add(2)
    await short._replace(epoch=short.epoch + 1).add()
    await short._replace(producer_id=short.producer_id + 1).add()
    assert learning.answer_count == 0
