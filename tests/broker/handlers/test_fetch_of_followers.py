"""A follower's fetch waits for the end of the leader's log, or for a high watermark that it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.network.unsent_responses import UNSENT_SIZE_MAX
from broker.replica.machine.isr import IsrChange
from broker.replica.partition import Partition
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker, running_broker

FOLLOWER, OTHER = 1, 2
VERSION = 12
SESSION = (0, 0)
NO_SESSION = (0, -1)
FOREVER_MS = 600_000


class Leader:
    """A broker that leads t-0, which brokers 1 and 2 follow; all are in sync."""

    def __init__(self, broker: InProcessBroker, partition: Partition) -> None:
        self._broker = broker
        self.partition = partition

    async def append(self) -> None:
        batch = build_batch([RecordData(timestamp=1, key=None, value=b"v")])
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        await self._broker.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)

    def has_fetched(self, offset: int) -> None:
        """The other follower has everything below `offset`."""
        self._broker.services.replica_manager.follower_fetched(self.partition, OTHER, offset, 0)

    async def fetch_news(self, session: tuple[int, int]) -> FetchResponse:
        """Fetch without naming the partition: nothing has changed for the follower."""
        request = FetchRequest(
            replica_id=FOLLOWER, max_wait_ms=0, min_bytes=1, session_id=session[0], session_epoch=session[1], topics=[]
        )
        response: FetchResponse = await self._broker.ask(request, VERSION)
        return response

    async def fetch(self, offset: int, session: tuple[int, int], wait_ms: int = FOREVER_MS) -> FetchResponse:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
        request = FetchRequest(
            replica_id=FOLLOWER,
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic="t", partitions=[wanted])],
        )
        response: FetchResponse = await self._broker.ask(request, VERSION)
        return response

    async def parked(self, offset: int, session: tuple[int, int]) -> asyncio.Task[FetchResponse]:
        fetching = asyncio.ensure_future(self.fetch(offset, session))
        assert not await is_done(fetching)
        return fetching


async def is_done(fetching: asyncio.Task[FetchResponse]) -> bool:
    """Whether the fetch has its response, without any time passing."""
    for _ in range(10):
        await asyncio.sleep(0)
    return fetching.done()


async def responded(fetching: asyncio.Task[FetchResponse]) -> PartitionData:
    """The response, which must have arrived by now."""
    assert await is_done(fetching)
    return only(fetching.result())


def only(response: FetchResponse) -> PartitionData:
    return response.responses[0].partitions[0]


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic("t")
        partition = broker.services.replica_manager.find("t", 0)
        assert partition is not None
        everyone = (0, FOLLOWER, OTHER)
        partition.lead(replace(partition.leadership, leader_epoch=1, isr=everyone, replicas=everyone), 0)
        yield Leader(broker, partition)


@pytest.mark.parametrize("has_session", [True, False])
async def test_a_follower_has_records_with_the_append_and_not_when_they_are_committed(
    leader: Leader, has_session: bool
) -> None:
    session = NO_SESSION
    if has_session:
        session = ((await leader.fetch(0, SESSION, wait_ms=0)).session_id, 1)
    fetching = await leader.parked(0, session)
    await leader.append()
    data = await responded(fetching)
    assert (data.high_watermark, bool(data.records)) == (0, True)


async def test_a_follower_in_a_session_gets_every_high_watermark_once(leader: Leader) -> None:
    await leader.append()
    first = await leader.fetch(0, SESSION)
    assert only(first).high_watermark == 0
    leader.has_fetched(1)
    data = await responded(asyncio.ensure_future(leader.fetch(1, (first.session_id, 1))))
    assert (data.high_watermark, bool(data.records)) == (1, False), "it moved after the last response"
    fetching = await leader.parked(1, (first.session_id, 2))
    await leader.append()
    assert (await responded(fetching)).records


@pytest.mark.parametrize("has_session", [True, False])
async def test_a_high_watermark_that_moves_wakes_the_follower(leader: Leader, has_session: bool) -> None:
    await leader.append()
    session = NO_SESSION
    if has_session:
        session = ((await leader.fetch(0, SESSION)).session_id, 1)
    fetching = await leader.parked(1, session)
    leader.has_fetched(1)
    data = await responded(fetching)
    assert (data.high_watermark, bool(data.records)) == (1, False)


async def test_follower_may_ask_by_id_before_the_metadata_has_come(leader: Leader) -> None:
    """The controller sends LeaderAndIsr before UpdateMetadata."""
    services = leader._broker.services
    await leader.append()
    services.metadata_cache._names_by_id.clear()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    assert leader.partition.topic_id is not None
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=FOLLOWER),
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic_id=leader.partition.topic_id, partitions=[wanted])],
    )
    assert only(await leader._broker.ask(request, 17)).records


async def test_a_follower_does_not_wait_for_clients_that_do_not_read_their_responses(leader: Leader) -> None:
    leader._broker.services.unsent_responses.reserve(UNSENT_SIZE_MAX)
    for _ in range(3):
        await leader.append()
    data = await responded(asyncio.ensure_future(leader.fetch(0, NO_SESSION)))
    assert data.records
    leader.has_fetched(3)
    fetching = await leader.parked(3, NO_SESSION)
    assert leader.partition.log.high_watermark == 3
    await leader.append()
    assert (await responded(fetching)).records


@pytest.mark.parametrize("is_in_sync", [False, True])
async def test_each_fetch_of_a_follower_outside_of_the_isr_may_let_it_join(leader: Leader, is_in_sync: bool) -> None:
    """Its first fetch comes while another change of the ISR is in flight; the next one names no partition."""
    partition, manager = leader.partition, leader._broker.services.replica_manager
    isr = (0, FOLLOWER, OTHER) if is_in_sync else (0, OTHER)
    partition.lead(replace(partition.leadership, leader_epoch=2, isr=isr), 0)
    partition._rules = replace(partition._rules, is_alive=lambda replica: True)
    proposed: list[tuple[int, ...]] = []
    manager._on_isr_change = lambda _, change: proposed.append(change.proposed)
    partition.isr_change = IsrChange(isr, isr[:-1], 2, 0, {}, {OTHER: "it lags"})
    first = await leader.fetch(0, SESSION, wait_ms=0)
    await leader.fetch_news((first.session_id, 1))
    assert proposed == []
    partition.isr_change = None
    await leader.fetch_news((first.session_id, 2))
    assert proposed == ([] if is_in_sync else [(0, OTHER, FOLLOWER)])
