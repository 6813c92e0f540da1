"""What readers of committed and of all records see of open, committed and aborted transactions, version by version."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID
from tests.broker.handlers.test_produce_and_fetch import fetch, partitions_of, topic_id_of, values_in
from tests.support.in_process import InProcessBroker

EVERYTHING, COMMITTED = 0, 1
LATEST = -1
NOW_MS = time.time_ns() // 1_000_000
"""Markers have the broker's time: with a time long ago beside them the log would roll."""
LONG_MS = 30_000


class TransactionalProducer:
    """Writes to partition 0 of one topic, one record a batch."""

    def __init__(self, broker: InProcessBroker, topic: str, name: str) -> None:
        self._broker = broker
        self._topic = topic
        self._name = name
        self._sequence = 0
        self.producer_id = -1
        self._epoch = -1

    async def start(self) -> TransactionalProducer:
        await self._broker.ask(FindCoordinatorRequest(key=self._name, key_type=1), 2)
        init = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        response = await self._asked_until_served(init, 4)
        self.producer_id, self._epoch = response.producer_id, response.producer_epoch
        return self

    async def write(self, *values: bytes) -> None:
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        response = await self._broker.ask(add, 3)
        assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        for value in values:
            batch = build_batch(
                [RecordData(NOW_MS + 3_600_000 * self._sequence, b"k", value)],
                producer_id=self.producer_id,
                producer_epoch=self._epoch,
                base_sequence=self._sequence,
                is_transactional=True,
            )
            self._sequence += 1
            data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            request = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=1000, topic_data=[data])
            produced = await self._broker.ask(request, 11)
            assert produced.responses[0].partition_responses[0].error_code == 0

    async def _is_complete(self) -> bool:
        """Whether the transaction that was ended last has all its markers."""
        response = await self._broker.ask(DescribeTransactionsRequest(transactional_ids=[self._name]), 0)
        state: str = response.transaction_states[0].transaction_state
        return state.startswith("Complete")

    async def end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name, producer_id=self.producer_id, producer_epoch=self._epoch, committed=committed
        )
        assert (await self._broker.ask(request, 4)).error_code == 0
        # The markers follow the response, later if the log directory has become slow.
        async with asyncio.timeout(30):
            while not await self._is_complete():  # noqa: ASYNC110 - there is no event for this
                await asyncio.sleep(0.001)

    async def _asked_until_served(self, request: object, version: int) -> Any:
        for _ in range(1000):
            response = await self._broker.ask(request, version)
            if response.error_code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                break
            await asyncio.sleep(0.001)
        assert response.error_code == 0
        return response


async def read(
    broker: InProcessBroker, topic: str, offset: int, isolation: int, *, version: int = 12, max_wait_ms: int = 0
) -> PartitionData:
    is_by_id = version >= 13
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=isolation,
        topics=[
            FetchTopic(
                topic="" if is_by_id else topic,
                topic_id=await topic_id_of(broker, topic) if is_by_id else ZERO_UUID,  # type: ignore[arg-type]
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
    )
    return partitions_of(await broker.ask(request, version))[0]


async def offset_at(broker: InProcessBroker, topic: str, timestamp: int, isolation: int, version: int = 9) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
        ],
    )
    return int((await broker.ask(request, version)).topics[0].partitions[0].offset)


@pytest.fixture
async def producers(served: InProcessBroker, name: str) -> list[TransactionalProducer]:
    """Two, for a topic of `name`."""
    await served.create_topic(name)
    return [await TransactionalProducer(served, name, f"{name}-{number}").start() for number in range(2)]


@pytest.mark.parametrize("version", range(4, 18))
async def test_an_open_transaction_is_the_end_for_committed_readers(
    served: InProcessBroker, name: str, producers: list[TransactionalProducer], version: int
) -> None:
    first, second = producers
    await first.write(b"0")
    await first.end(committed=True)  # a marker at 1
    await second.write(b"2")
    await first.write(b"3")
    await first.end(committed=True)  # a marker at 4
    seen = await read(served, name, 0, COMMITTED, version=version)
    assert (seen.high_watermark, seen.last_stable_offset, seen.aborted_transactions) == (5, 2, [])
    assert [value for _, value in values_in(seen)][:1] == [b"0"]
    assert max(offset for offset, _ in values_in(seen)) < 2
    everything = await read(served, name, 0, EVERYTHING, version=version)
    assert (everything.high_watermark, everything.last_stable_offset) == (5, 2)
    assert everything.aborted_transactions is None
    assert {b"0", b"2", b"3"} <= {value for _, value in values_in(everything)}
    await second.end(committed=True)
    seen = await read(served, name, 2, COMMITTED, version=version)
    assert (seen.high_watermark, seen.last_stable_offset) == (6, 6)
    assert {b"2", b"3"} <= {value for _, value in values_in(seen)}


@pytest.mark.parametrize("version", range(4, 18))
async def test_aborted_transactions_are_returned_where_they_overlap(
    served: InProcessBroker, name: str, producers: list[TransactionalProducer], version: int
) -> None:
    first, second = producers
    await first.write(b"0")
    await second.write(b"1")
    await first.end(committed=False)  # at 2
    await second.write(b"3")
    await second.end(committed=False)  # at 4
    await first.write(b"5")
    await first.end(committed=True)  # at 6
    for offset, expected in (
        (0, {(first.producer_id, 0), (second.producer_id, 1)}),
        (3, {(second.producer_id, 1)}),
        (5, set()),
    ):
        reported = await read(served, name, offset, COMMITTED, version=version)
        assert reported.aborted_transactions is not None
        assert {(each.producer_id, each.first_offset) for each in reported.aborted_transactions} >= expected
        # Who is over before the range begins is of no concern to it.
        assert len(reported.aborted_transactions) == len(expected)
        assert reported.last_stable_offset == 7


@pytest.mark.parametrize("version", range(4))
async def test_older_readers_see_everything_but_markers(
    served: InProcessBroker, name: str, producers: list[TransactionalProducer], version: int
) -> None:
    first, second = producers
    await first.write(b"0")
    await first.end(committed=False)
    await second.write(b"2")
    seen = partitions_of(await fetch(served, name, {0: 0}, version=version))[0]
    assert seen.high_watermark == 3
    assert values_in(seen) == [(0, b"0"), (2, b"2")]


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_bounded_by_what_is_committed(
    served: InProcessBroker, name: str, producers: list[TransactionalProducer], version: int
) -> None:
    first, _ = producers
    await first.write(b"0")
    await first.end(committed=True)
    await first.write(b"2")
    assert await offset_at(served, name, LATEST, COMMITTED, version) == 2
    assert await offset_at(served, name, LATEST, EVERYTHING, version) == 3
    far_off = NOW_MS + 3_600_000
    assert await offset_at(served, name, far_off, EVERYTHING, version) == 2
    assert await offset_at(served, name, far_off, COMMITTED, version) == -1
    await first.end(committed=True)
    assert await offset_at(served, name, LATEST, COMMITTED, version) == 4


async def test_a_waiting_committed_reader_is_woken_by_the_end_of_a_transaction(
    served: InProcessBroker, name: str, producers: list[TransactionalProducer]
) -> None:
    first, second = producers
    await first.write(b"0")
    await second.write(b"1")
    waiting = asyncio.ensure_future(read(served, name, 0, COMMITTED, max_wait_ms=LONG_MS))
    parked = served.services.replica_manager.fetch_purgatory
    async with asyncio.timeout(5):
        while not parked.delayed_count:  # noqa: ASYNC110 - no event says when it is parked
            await asyncio.sleep(0)
    await second.end(committed=True)
    assert not waiting.done(), "the first transaction is still open"
    await first.end(committed=False)
    woken = await asyncio.wait_for(waiting, 5)
    assert woken.last_stable_offset == 4
    assert {b"0", b"1"} <= {value for _, value in values_in(woken)}
    assert woken.aborted_transactions is not None
    assert [(each.producer_id, each.first_offset) for each in woken.aborted_transactions] == [(first.producer_id, 0)]
