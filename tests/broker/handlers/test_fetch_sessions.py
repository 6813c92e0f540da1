"""Fetch sessions of a whole broker: a fetch reads the partitions with news, and says what a walk over all would say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from base.pause import never, whole
from broker.network.unsent_responses import UNSENT_SIZE_MAX
from broker.replica.bound_partition import BoundPartition
from broker.replica.fetch_service import Fetch
from broker.replica.fetch_sessions import FINAL_EPOCH, FetchSession
from broker.replica.partition import Partition
from broker.requests import dispatch
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.headers import request_header
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType
from protocol.schema import ZERO_UUID
from storage.batches.validation import AppendOrigin
from storage.log.log_reader import LogReader
from storage.log.segment_reader import Wanted
from tests.broker.handlers.test_produce_and_fetch import topic_id_of, values_in
from tests.storage.builders import NOW_MS, batch, delete_expired, marker
from tests.support.in_process import InProcessBroker, reserved, running_broker
from tests.support.manual_clock import ManualClock, SteppingClock

CONSUMER, FOLLOWER, OTHER = -1, 1, 2
EVERYTHING, COMMITTED = 0, 1
BY_NAME, BY_ID = 12, 17
FOREVER_MS = 600_000
SIZE_MAX = 1 << 24


class Client:
    """A client that reads one topic in a session, and optionally continues where its responses end."""

    def __init__(
        self,
        broker: InProcessBroker,
        topic: str,
        topic_id: UUID = ZERO_UUID,
        *,
        version: int = BY_NAME,
        isolation: int = EVERYTHING,
        replica_id: int = CONSUMER,
        leader_epoch: int = -1,
    ) -> None:
        self._broker = broker
        self._topic = topic if version < 13 else ""
        self._topic_id = topic_id if version >= 13 else ZERO_UUID
        self._version = version
        self._isolation = isolation
        self._replica_id = replica_id
        self._leader_epoch = leader_epoch
        self.session_id = 0
        self.epoch = 0

    def request(
        self,
        offsets: dict[int, int],
        *,
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = SIZE_MAX,
        partition_max_bytes: int = SIZE_MAX,
        forgotten: tuple[int, ...] = (),
    ) -> FetchRequest:
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=self._leader_epoch,
            )
            for index, offset in offsets.items()
        ]
        topics = [FetchTopic(topic=self._topic, topic_id=self._topic_id, partitions=partitions)]
        gone = [ForgottenTopic(topic=self._topic, topic_id=self._topic_id, partitions=list(forgotten))]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=self._isolation,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics if offsets else [],
            forgotten_topics_data=gone if forgotten else [],
        )
        if self._version < 15:
            request.replica_id = self._replica_id
        else:
            request.replica_state = ReplicaState(replica_id=self._replica_id)
        return request

    async def fetch(self, offsets: dict[int, int] | None = None, **more: Any) -> FetchResponse:
        request = self.request(offsets or {}, **more)
        self.epoch += 1
        response: FetchResponse = await self._broker.ask(request, self._version)
        if not self.session_id:
            self.session_id = response.session_id
        return response

    async def parked(
        self, offsets: dict[int, int] | None = None, wait_ms: int = FOREVER_MS, **more: Any
    ) -> asyncio.Task[FetchResponse]:
        fetching = asyncio.ensure_future(self.fetch(offsets, wait_ms=wait_ms, **more))
        assert not await is_done(fetching)
        return fetching

    @property
    def session(self) -> FetchSession:
        return self._broker.services.fetch_sessions._sessions[self.session_id]

    async def walk(self, offsets: dict[int, int] | None = None, **more: Any) -> FetchResponse:
        """A fetch that reads every partition of the session."""
        for key, partition in self.session.partitions.items():
            self.session.news.setdefault(key, partition)
        return await self.fetch(offsets, **more)


async def is_done(fetching: asyncio.Future[Any]) -> bool:
    """Whether the fetch has its response, without any time passing."""
    for _ in range(20):
        await asyncio.sleep(0)
    return fetching.done()


async def soon(fetching: Awaitable[FetchResponse]) -> FetchResponse:
    async with asyncio.timeout(5):
        return await fetching


def sent(response: FetchResponse) -> dict[int, PartitionData]:
    """The partitions in a response, in order."""
    assert not response.error_code
    return {one.partition_index: one for topic in response.responses for one in topic.partitions}


def seen(response: FetchResponse) -> list[tuple[int, PartitionData]]:
    """What a response says, apart from the session's id."""
    return list(sent(response).items())


def hosted(broker: InProcessBroker, topic: str, index: int = 0) -> Partition:
    partition = broker.services.replica_manager.find(topic, index)
    assert partition is not None
    return partition


def one_record(value: bytes = b"v") -> bytes:
    return build_batch([RecordData(timestamp=NOW_MS, key=b"k", value=value)])


async def produce(broker: InProcessBroker, topic: str, *indexes: int, value: bytes = b"v") -> None:
    data = [PartitionProduceData(index=index, records=one_record(value)) for index in indexes]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    response = await broker.ask(request)
    assert not any(one.error_code for one in response.responses[0].partition_responses)


def append(broker: InProcessBroker, topic: str, index: int, records: memoryview, *, is_marker: bool = False) -> None:
    """Append what no plain producer may send."""
    origin = AppendOrigin.COORDINATOR if is_marker else AppendOrigin.CLIENT
    partition = hosted(broker, topic, index)
    BoundPartition(partition, broker.services.replica_manager).append(
        records, needs_isr=False, now_ms=NOW_MS, origin=origin
    )


def transactional(sequence: int = 0) -> memoryview:
    return batch(1, producer_id=7, sequence=sequence, is_transactional=True)


def lead(
    broker: InProcessBroker,
    topic: str,
    index: int = 0,
    *,
    leader: int = 0,
    isr: tuple[int, ...] = (0,),
    replicas: tuple[int, ...] = (0,),
) -> None:
    """A newer leader epoch, as the controller says it."""
    partition = hosted(broker, topic, index)
    state = LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=partition.leadership.controller_epoch,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        isr=list(isr),
        partition_epoch=partition.leadership.partition_epoch + 1,
        replicas=list(replicas),
    )
    topic_id = partition.topic_id
    assert topic_id is not None
    states = [LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])]
    request = LeaderAndIsrRequest(controller_id=0, controller_epoch=1, topic_states=states, live_leaders=[])
    response = whole(broker.services.assigned_replicas.become_leader_or_follower(request, never))
    assert [one.error_code for one in response.topics[0].partition_errors] == [0]


async def delete_topic(broker: InProcessBroker, topic: str) -> None:
    state = DeleteTopicState(name=topic, topic_id=ZERO_UUID)
    response = await broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000))
    assert not response.responses[0].error_code


async def delete_records(broker: InProcessBroker, topic: str, index: int, offset: int) -> None:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)
    response = await broker.ask(request)
    assert not response.topics[0].partitions[0].error_code


async def set_config(broker: InProcessBroker, topic: str, name: str, value: str) -> None:
    change = AlterConfigsResource(
        resource_type=2,
        resource_name=topic,
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    response = await broker.ask(IncrementalAlterConfigsRequest(resources=[change], validate_only=False))
    assert not response.responses[0].error_code


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the partitions whose logs are read, in order."""
    numbers: list[int] = []
    original = LogReader.read_or_slice

    def read(self: LogReader, wanted: Wanted) -> Any:
        numbers.append(self._state.partition)
        return original(self, wanted)

    monkeypatch.setattr(LogReader, "read_or_slice", read)
    return numbers


async def client_of(
    broker: InProcessBroker, topic: str, offsets: dict[int, int], *, version: int = BY_NAME, **more: Any
) -> Client:
    """A client whose session has settled: it has everything up to these offsets."""
    topic_id = await topic_id_of(broker, topic) if version >= 13 else ZERO_UUID
    assert isinstance(topic_id, UUID)
    client = Client(broker, topic, topic_id, version=version, **more)
    response = await client.fetch(offsets)
    assert sorted(sent(response)) == sorted(offsets)
    assert client.session_id > 0
    await client.fetch()
    return client


# -- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, BY_NAME, 13, BY_ID])
@pytest.mark.parametrize("isolation", [EVERYTHING, COMMITTED])
async def test_an_idle_session_reads_nothing_and_after_an_append_one_partition(
    served: InProcessBroker, name: str, reads: list[int], version: int, isolation: int
) -> None:
    await served.create_topic(name, 100)
    client = await client_of(served, name, dict.fromkeys(range(100), 0), version=version, isolation=isolation)
    reads.clear()
    for _ in range(3):
        assert not sent(await client.fetch())
    assert not reads
    await produce(served, name, 42)
    response = await client.fetch()
    assert list(sent(response)) == [42]
    assert values_in(sent(response)[42]) == [(0, b"v")]
    assert reads == [42]
    assert not sent(await client.fetch({42: 1}))
    assert not sent(await client.fetch())
    assert reads == [42, 42], "once more, to learn that nothing is left"


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
async def test_a_parked_fetch_of_a_session_reads_the_partition_that_was_appended_to(
    served: InProcessBroker, name: str, reads: list[int], version: int
) -> None:
    await served.create_topic(name, 100)
    client = await client_of(served, name, dict.fromkeys(range(100), 0), version=version)
    reads.clear()
    fetching = await client.parked()
    assert not reads
    await produce(served, name, 42)
    assert values_in(sent(await soon(fetching))[42]) == [(0, b"v")]
    assert reads == [42]


async def test_a_parked_fetch_that_names_a_partition_waits_for_the_others_too(
    served: InProcessBroker, name: str, reads: list[int]
) -> None:
    await served.create_topic(name, 10)
    client = await client_of(served, name, dict.fromkeys(range(10), 0))
    reads.clear()
    fetching = await client.parked({3: 0})
    await produce(served, name, 7)
    assert list(sent(await soon(fetching))) == [7]
    assert reads == [3, 3, 7]


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
async def test_a_partition_in_error_is_read_and_mentioned_at_every_fetch(
    served: InProcessBroker, name: str, reads: list[int], version: int
) -> None:
    await served.create_topic(name, 10)
    await produce(served, name, 3)
    offsets = {**dict.fromkeys(range(10), 0), 3: 1, 5: 99}
    client = await client_of(served, name, offsets, version=version)
    for _ in range(3):
        reads.clear()
        response = await client.fetch(wait_ms=FOREVER_MS)
        codes = {index: data.error_code for index, data in sent(response).items()}
        assert codes == {5: ErrorCode.OFFSET_OUT_OF_RANGE}
        assert reads == [5]
    assert sent(await client.fetch({5: 0}))[5].error_code == 0, "mentioned once when it is over"
    reads.clear()
    assert not sent(await client.fetch())
    assert not reads


async def test_a_partition_that_does_not_exist_is_mentioned_at_every_fetch_until_it_does(
    served: InProcessBroker, name: str
) -> None:
    await served.create_topic(name, 1)
    client = await client_of(served, name, {0: 0, 1: 0})
    for _ in range(3):
        response = await client.fetch(wait_ms=FOREVER_MS)
        codes = {index: data.error_code for index, data in sent(response).items()}
        assert codes == {1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    await delete_topic(served, name)
    await served.create_topic(name, 2)
    codes = {index: data.error_code for index, data in sent(await client.fetch()).items()}
    assert codes == {1: ErrorCode.NONE}
    assert not sent(await client.fetch())


@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes"])
async def test_a_partition_that_was_not_read_to_its_end_is_read_next(
    served: InProcessBroker, name: str, reads: list[int], limit: str
) -> None:
    await served.create_topic(name, 5)
    client = await client_of(served, name, dict.fromkeys(range(5), 0))
    size = len(one_record())
    for _ in range(2):
        await produce(served, name, 1, 3)
    offsets = {1: 0, 3: 0}
    got: list[int] = []
    named = {1: 0, 3: 0}
    for _ in range(10):
        reads.clear()
        response = await client.fetch(named, **{limit: size})
        assert set(reads) <= {1, 3}
        named = {}
        for index, data in sent(response).items():
            offsets[index] += len(values_in(data))
            got += [index] * len(values_in(data))
            if data.records:
                named[index] = offsets[index]
        if len(got) == 4:
            break
    assert got == [1, 3, 1, 3], "in turn"
    await client.fetch(named)
    reads.clear()
    assert not sent(await client.fetch())
    assert not reads


async def test_a_batch_that_does_not_fit_behind_others_comes_first_in_the_next_response(
    served: InProcessBroker, name: str
) -> None:
    """Also while the partition before it has new records at every fetch."""
    await served.create_topic(name, 2)
    client = await client_of(served, name, {0: 0, 1: 0})
    large = bytes(5000)
    await produce(served, name, 0)
    await produce(served, name, 1, value=large)
    first = sent(await client.fetch(max_bytes=1000))
    assert (values_in(first[0]), first[1].records) == ([(0, b"v")], b"")
    await produce(served, name, 0)
    second = await client.fetch({0: 1}, max_bytes=1000)
    assert values_in(sent(second)[1]) == [(0, large)]


async def test_records_that_a_client_does_not_take_are_sent_again(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, 2)
    client = await client_of(served, name, {0: 0, 1: 0})
    await produce(served, name, 1)
    for _ in range(3):
        assert values_in(sent(await client.fetch())[1]) == [(0, b"v")]
    assert not sent(await client.fetch(forgotten=(1,)))


@pytest.mark.parametrize("is_parked", [False, True])
async def test_min_bytes_count_over_partitions_and_appends(served: InProcessBroker, name: str, is_parked: bool) -> None:
    await served.create_topic(name, 10)
    size = len(one_record())
    client = await client_of(served, name, dict.fromkeys(range(10), 0))
    appended = [2, 5, 2, 9, 5]
    fetching = await client.parked({4: 0}, min_bytes=5 * size) if is_parked else None
    for number, index in enumerate(appended):
        if fetching is None:
            fetching = await client.parked(min_bytes=5 * size)
        assert not fetching.done()
        await produce(served, name, index, value=b"%d" % number)
        if number < len(appended) - 1:
            assert not await is_done(fetching)
    assert fetching is not None
    found = {index: [value for _, value in values_in(data)] for index, data in sent(await soon(fetching)).items()}
    assert found == {2: [b"0", b"2"], 5: [b"1", b"4"], 9: [b"3"]}


async def test_bytes_that_were_too_few_for_one_fetch_count_for_the_next(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, 10)
    size = len(one_record())
    client = await client_of(served, name, dict.fromkeys(range(10), 0))
    await produce(served, name, 4)
    fetching = await client.parked(min_bytes=2 * size, wait_ms=50)
    assert list(sent(await soon(fetching))) == [4], "at its deadline it has the available records"
    fetching = await client.parked(min_bytes=2 * size)
    await produce(served, name, 8)
    assert sorted(sent(await soon(fetching))) == [4, 8]


# -- what a walk over the whole session would say --------------------------------------------------------------------


Event = Callable[[InProcessBroker, str], Awaitable[None]]


async def appended_to(broker: InProcessBroker, topic: str) -> None:
    await produce(broker, topic, 1)


async def lost_leadership(broker: InProcessBroker, topic: str) -> None:
    lead(broker, topic, 1, leader=7, replicas=(0, 7), isr=(7,))


async def regained_leadership(broker: InProcessBroker, topic: str) -> None:
    await lost_leadership(broker, topic)
    lead(broker, topic, 1)


async def another_epoch(broker: InProcessBroker, topic: str) -> None:
    lead(broker, topic, 1)


async def in_sync_follower(broker: InProcessBroker, topic: str) -> None:
    """What is appended from now on is not committed, which later requests see as no change."""
    lead(broker, topic, 1, isr=(0, FOLLOWER), replicas=(0, FOLLOWER))
    await produce(broker, topic, 1)


async def committed_by_follower(broker: InProcessBroker, topic: str) -> None:
    await in_sync_follower(broker, topic)
    partition = hosted(broker, topic, 1)
    broker.services.replica_manager.follower_fetched(partition, FOLLOWER, partition.log.log_end_offset, 0)


async def shrunk_isr(broker: InProcessBroker, topic: str) -> None:
    await in_sync_follower(broker, topic)
    lead(broker, topic, 1, isr=(0,), replicas=(0, FOLLOWER))


async def too_few_in_sync(broker: InProcessBroker, topic: str) -> None:
    await set_config(broker, topic, "min.insync.replicas", "2")
    lead(broker, topic, 1, isr=(0,), replicas=(0, FOLLOWER))
    await produce(broker, topic, 1)


async def lower_min_insync_replicas(broker: InProcessBroker, topic: str) -> None:
    await too_few_in_sync(broker, topic)
    await set_config(broker, topic, "min.insync.replicas", "1")


async def records_deleted(broker: InProcessBroker, topic: str) -> None:
    await delete_records(broker, topic, 1, 1)


async def all_records_deleted(broker: InProcessBroker, topic: str) -> None:
    await delete_records(broker, topic, 1, -1)


async def retention(broker: InProcessBroker, topic: str) -> None:
    log = hosted(broker, topic, 1).log
    log.appends.roll(NOW_MS)
    assert delete_expired(log, NOW_MS + (1 << 40))
    assert log.log_start_offset == 2


async def deleted(broker: InProcessBroker, topic: str) -> None:
    await delete_topic(broker, topic)


async def recreated(broker: InProcessBroker, topic: str) -> None:
    await delete_topic(broker, topic)
    await broker.create_topic(topic, 3)


async def recreated_and_appended_to(broker: InProcessBroker, topic: str) -> None:
    await recreated(broker, topic)
    await produce(broker, topic, 0, 1)


async def open_transaction(broker: InProcessBroker, topic: str) -> None:
    append(broker, topic, 1, transactional())


async def committed_transaction(broker: InProcessBroker, topic: str) -> None:
    append(broker, topic, 1, transactional())
    append(broker, topic, 1, marker(ControlType.COMMIT, 7), is_marker=True)


async def aborted_transaction(broker: InProcessBroker, topic: str) -> None:
    append(broker, topic, 1, transactional())
    await produce(broker, topic, 1)
    append(broker, topic, 1, marker(ControlType.ABORT, 7), is_marker=True)


async def failed_directory(broker: InProcessBroker, topic: str) -> None:
    hosted(broker, topic, 1).log.take_offline()
    whole(broker.services.assigned_replicas.directory_failed(never))


EVENTS: list[Event] = [
    appended_to,
    lost_leadership,
    regained_leadership,
    another_epoch,
    in_sync_follower,
    committed_by_follower,
    shrunk_isr,
    too_few_in_sync,
    lower_min_insync_replicas,
    records_deleted,
    all_records_deleted,
    retention,
    deleted,
    recreated,
    recreated_and_appended_to,
    open_transaction,
    committed_transaction,
    aborted_transaction,
]
"""They leave a broker that serves other topics as before; a failed directory does not."""
READERS: dict[str, dict[str, int]] = {
    "by name": {"version": BY_NAME},
    "by id": {"version": BY_ID},
    "committed": {"version": BY_NAME, "isolation": COMMITTED},
    "with leader epoch": {"version": 9, "leader_epoch": 0},
    "tool": {"version": BY_NAME, "replica_id": -2},
}


async def compare_with_walks(broker: InProcessBroker, topic: str, event: Event) -> None:
    """Fetch in sessions that have settled, that stand before the end, and that were opened just now."""
    await broker.create_topic(topic, 3)
    await produce(broker, topic, 0, 1, 2)
    await produce(broker, topic, 1)
    pairs: list[tuple[str, Client, Client]] = []
    for who, how in READERS.items():
        for offsets in ({0: 1, 1: 2, 2: 1}, {0: 1, 1: 1, 2: 1}):
            client, twin = [await client_of(broker, topic, offsets, **how) for _ in range(2)]
            pairs.append((f"{who} {offsets}", client, twin))
    for round_number in range(3):
        for who, client, twin in pairs:
            for number in range(2):
                assert seen(await client.fetch()) == seen(await twin.walk()), (who, round_number, number)
        if round_number == 0:
            await event(broker, topic)
        elif event is not failed_directory:
            if event is deleted and round_number == 1:
                await broker.create_topic(topic, 3)
            elif broker.services.replica_manager.find(topic, 1) is not None and hosted(broker, topic, 1).is_leader:
                await produce(broker, topic, 1)
            else:
                lead(broker, topic, 1)
        await asyncio.sleep(0)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
async def test_after_any_event_a_session_says_what_a_walk_over_it_says(
    broker_of_file: InProcessBroker, name: str, event: Event
) -> None:
    await compare_with_walks(broker_of_file, name, event)


async def test_after_the_failure_of_a_directory_a_session_says_what_a_walk_over_it_says(
    served: InProcessBroker, name: str
) -> None:
    await compare_with_walks(served, name, failed_directory)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker_without_slices(memory_path_of_file: Path) -> AsyncIterator[InProcessBroker]:
    """A broker whose time stands still, so that no fetch pauses: else one may see more of an event than another."""
    async with running_broker(memory_path_of_file / "without-slices", clock=ManualClock()) as broker:
        yield broker


async def compare_parked_fetches(broker: InProcessBroker, topic: str, event: Event, reader: str) -> None:
    """Let an event end parked fetches: two of sessions and one without a session.

    A new leader epoch ends a fetch without a session even without news; a fetch in a session continues to wait.
    """
    await broker.create_topic(topic, 3)
    await produce(broker, topic, 0, 1, 2)
    await produce(broker, topic, 1)
    offsets = {0: 1, 1: 2, 2: 1}
    settled, naming, lone = [await client_of(broker, topic, offsets, **READERS[reader]) for _ in range(3)]
    lone.session_id, lone.epoch = 0, FINAL_EPOCH
    fetching = [await settled.parked(), await naming.parked(offsets), await lone.parked(offsets)]
    await event(broker, topic)
    done = [await is_done(one) for one in fetching]
    assert done[0] == done[1]
    said = sent(fetching[2].result())[1] if done[2] else None
    if said is not None and (said.error_code or said.records):
        assert done == [True] * 3
        for client, one in ((settled, fetching[0]), (naming, fetching[1])):
            mentioned = sent(one.result()).get(1) or sent(await client.fetch())[1]
            assert bool(mentioned.error_code) == bool(said.error_code)
            if not said.error_code:
                assert mentioned == said
    elif done[0]:
        assert done[2]
        # A tool may read any replica, so its fetch ends without an error when the leader changes.
        has_news = any(one.error_code or one.records for one in sent(fetching[0].result()).values())
        assert has_news or reader == "tool", "it continued"
    sessions = [one.session for one in (settled, naming)]
    assert [one.on_news is None for one in sessions] == done[:2]
    for one in fetching:
        one.cancel()
    await asyncio.wait(fetching)
    assert [one.on_news for one in sessions] == [None, None]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("event", EVENTS)
async def test_a_parked_fetch_of_a_session_ends_with_what_one_without_a_session_has_to_say(
    broker_without_slices: InProcessBroker, name: str, event: Event, reader: str
) -> None:
    await compare_parked_fetches(broker_without_slices, name, event, reader)


@pytest.mark.parametrize("reader", READERS)
async def test_a_parked_fetch_of_a_session_ends_at_the_failure_of_a_directory(
    served: InProcessBroker, name: str, reader: str
) -> None:
    await compare_parked_fetches(served, name, failed_directory, reader)


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
async def test_a_forgotten_partition_is_not_mentioned_whatever_happens_to_it(
    served: InProcessBroker, name: str, reads: list[int], version: int
) -> None:
    await served.create_topic(name, 3)
    client = await client_of(served, name, {0: 0, 1: 0, 2: 0}, version=version)
    await produce(served, name, 1)
    assert not sent(await client.fetch(forgotten=(1,)))
    reads.clear()
    await produce(served, name, 1)
    lead(served, name, 1)
    assert not sent(await client.fetch())
    assert not reads
    assert values_in(sent(await client.fetch({1: 1}))[1]) == [(1, b"v")], "named again, it is part of the session"


async def test_a_session_that_is_read_with_another_isolation_says_what_a_walk_says(
    served: InProcessBroker, name: str
) -> None:
    """Kafka's sessions know no isolation level; it belongs to each request."""
    await served.create_topic(name, 2)
    append(served, name, 1, transactional())
    client = await client_of(served, name, {0: 0, 1: 0}, isolation=COMMITTED)
    client._isolation = EVERYTHING
    assert list(sent(await client.fetch())) == [1]


async def test_a_session_of_a_consumer_that_is_read_by_a_tool_says_what_a_walk_says(
    served: InProcessBroker, name: str
) -> None:
    await served.create_topic(name, 2)
    lead(served, name, 1, isr=(0, FOLLOWER), replicas=(0, FOLLOWER))
    await produce(served, name, 1)
    client = await client_of(served, name, {0: 0, 1: 0})
    client._replica_id = -2
    assert list(sent(await client.fetch())) == []


# -- readers of committed records and followers ----------------------------------------------------------------------


async def test_committed_readers_get_an_open_transaction_when_it_ends(
    served: InProcessBroker, name: str, reads: list[int]
) -> None:
    await served.create_topic(name, 5)
    client = await client_of(served, name, dict.fromkeys(range(5), 0), isolation=COMMITTED)
    append(served, name, 3, transactional())
    first = sent(await client.fetch())
    assert [(index, data.high_watermark, data.last_stable_offset) for index, data in first.items()] == [(3, 1, 0)]
    assert first[3].records == b""
    reads.clear()
    fetching = await client.parked()
    append(served, name, 3, transactional(1))
    assert not await is_done(fetching)
    assert not reads, "nothing becomes readable by it"
    append(served, name, 3, marker(ControlType.ABORT, 7), is_marker=True)
    data = sent(await soon(fetching))[3]
    assert len(values_in(data)) == 3
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions or []] == [(7, 0)]
    assert reads == [3]
    assert not sent(await client.fetch({3: 3}))
    reads.clear()
    assert not sent(await client.fetch())
    assert not reads


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
async def test_the_session_of_a_follower_reads_what_changed(
    served: InProcessBroker, name: str, reads: list[int], version: int
) -> None:
    """Records up to the end of the log, and each high watermark once."""
    await served.create_topic(name, 20)
    for index in range(20):
        lead(served, name, index, isr=(0, FOLLOWER, OTHER), replicas=(0, FOLLOWER, OTHER))
    client = await client_of(served, name, dict.fromkeys(range(20), 0), version=version, replica_id=FOLLOWER)
    reads.clear()
    fetching = await client.parked()
    await produce(served, name, 6)
    data = sent(await soon(fetching))
    assert [(index, one.high_watermark, len(values_in(one))) for index, one in data.items()] == [(6, 0, 1)]
    assert reads == [6]
    fetching = await client.parked({6: 1})
    partition = hosted(served, name, 6)
    served.services.replica_manager.follower_fetched(partition, OTHER, 1, 0)
    data = sent(await soon(fetching))
    assert [(index, one.high_watermark, one.records) for index, one in data.items()] == [(6, 1, b"")]
    assert not sent(await client.fetch())
    reads.clear()
    assert not sent(await client.fetch())
    assert not reads


async def test_a_follower_that_is_no_replica_any_more_is_refused_by_the_next_fetch(
    served: InProcessBroker, name: str
) -> None:
    await served.create_topic(name, 2)
    for index in range(2):
        lead(served, name, index, isr=(0, FOLLOWER), replicas=(0, FOLLOWER))
    client = await client_of(served, name, {0: 0, 1: 0}, replica_id=FOLLOWER)
    fetching = await client.parked()
    lead(served, name, 1)
    assert await is_done(fetching)
    codes = {index: one.error_code for index, one in sent(fetching.result()).items()}
    assert codes == {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}


# -- sessions that end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_parked", [False, True])
@pytest.mark.parametrize("end", ["closed", "replaced", "evicted", "forgotten", "deleted"])
async def test_a_session_that_ends_leaves_no_watch_behind(
    served: InProcessBroker, name: str, end: str, is_parked: bool
) -> None:
    await served.create_topic(name, 10)
    watched = served.services.replica_manager.fetch_news.watched
    client = await client_of(served, name, dict.fromkeys(range(10), 0))
    assert len(watched) == 10
    fetching = await client.parked({2: 0}, wait_ms=300) if is_parked else None
    match end:
        case "closed":
            client.epoch = FINAL_EPOCH
            await client.fetch()
        case "replaced":
            client.epoch = 0
            await client.fetch({5: 0})
            (session,) = served.services.fetch_sessions._sessions.values()
            assert list(session.partitions) == [(name, 5)]
            assert list(watched) == [(name, 5)]
            client.session_id, client.epoch = session.id, FINAL_EPOCH
            await client.fetch()
        case "evicted":
            served.services.fetch_sessions._drop(client.session)
        case "forgotten":
            await client.fetch(forgotten=tuple(range(10)))
        case "deleted":
            await delete_topic(served, name)
            assert client.session.news.keys() == client.session.partitions.keys()
    assert not watched
    if end != "deleted":
        assert not len(served.services.fetch_sessions)
    if fetching is not None:
        response = await soon(fetching)
        assert bool(sent(response)) == (end == "deleted")
    assert not watched


async def test_a_fetch_that_its_session_completes_waits_no_more(served: InProcessBroker, name: str) -> None:
    """The purgatory sweeps the less often the more operations it believes to wait."""
    await served.create_topic(name, 10)
    client = await client_of(served, name, dict.fromkeys(range(10), 0))
    fetching = await client.parked()
    assert served.services.replica_manager.fetch_purgatory.delayed_count == 1
    await produce(served, name, 3)
    await soon(fetching)
    assert served.services.replica_manager.fetch_purgatory.delayed_count == 0


async def test_a_client_that_leaves_a_parked_fetch_keeps_its_session(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, 10)
    client = await client_of(served, name, dict.fromkeys(range(10), 0))
    fetching = await client.parked()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert client.session.on_news is None
    assert not served.services.replica_manager.fetch_purgatory.delayed_count
    await produce(served, name, 3)
    assert list(sent(await client.fetch())) == [3]


async def test_a_session_that_is_closed_while_its_fetch_waits_for_memory_leaves_no_watch(
    served: InProcessBroker, name: str
) -> None:
    await served.create_topic(name, 3)
    client = await client_of(served, name, {0: 0, 1: 0, 2: 0})
    unsent = served.services.unsent_responses
    with reserved(unsent, UNSENT_SIZE_MAX):
        fetching = await client.parked({1: 0})
        served.services.fetch_sessions._drop(client.session)
    await is_done(fetching)
    assert not served.services.replica_manager.fetch_news.watched
    fetching.cancel()


# -- appends while a fetch is on its way ---------------------------------------------------------------------------


@pytest.fixture
def interrupted(served: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> InProcessBroker:
    """A broker that serves other requests after every step of work in slices."""
    work = served.services.sliced_work
    monkeypatch.setattr(work, "_steps_min", 1)
    monkeypatch.setattr(work, "_monotonic_ms", SteppingClock(10).monotonic_ms)
    return served


STEPS = 60


@pytest.mark.parametrize(
    "index",
    [
        1,
        9,
    ],
    ids=["named", "not named"],
)
async def test_an_append_between_the_steps_of_a_fetch_that_parks_wakes_it(
    interrupted: InProcessBroker, name: str, index: int
) -> None:
    await interrupted.create_topic(name, 10)
    late = []
    for step in range(STEPS):
        offset = step
        client = await client_of(interrupted, name, dict.fromkeys(range(10), 0) | {index: offset})
        fetching = asyncio.ensure_future(client.fetch({0: 0, 1: offset * (index == 1)}, wait_ms=FOREVER_MS))
        for _ in range(step):
            await asyncio.sleep(0)
        append(interrupted, name, index, memoryview(bytearray(one_record())))
        for _ in range(100):
            await asyncio.sleep(0)
        if not fetching.done():
            late.append(step)
        elif index in sent(fetching.result()):
            assert values_in(sent(fetching.result())[index]) == [(offset, b"v")]
        else:
            assert list(sent(await client.fetch())) == [index]
        fetching.cancel()
    assert not late


@pytest.mark.parametrize("index", [1, 9], ids=["named", "not named"])
@pytest.mark.parametrize("wait_ms", [0, 1])
async def test_an_append_between_the_steps_of_a_fetch_is_in_this_response_or_the_next(
    interrupted: InProcessBroker, name: str, index: int, wait_ms: int
) -> None:
    await interrupted.create_topic(name, 10)
    for step in range(STEPS):
        client = await client_of(interrupted, name, dict.fromkeys(range(10), 0) | {index: step})
        fetching = asyncio.ensure_future(client.fetch({0: 0, 1: step * (index == 1)}, wait_ms=wait_ms))
        for _ in range(step):
            await asyncio.sleep(0)
        append(interrupted, name, index, memoryview(bytearray(one_record())))
        response = await soon(fetching)
        if index not in sent(response) or not sent(response)[index].records:
            response = await client.fetch()
        assert values_in(sent(response)[index]) == [(step, b"v")]


async def test_an_append_while_a_session_is_opened_in_slices_is_in_its_next_response(
    interrupted: InProcessBroker, name: str
) -> None:
    await interrupted.create_topic(name, 10)
    for step in range(STEPS):
        client = Client(interrupted, name)
        offsets = dict.fromkeys(range(10), 0) | {4: step}
        fetching = asyncio.ensure_future(client.fetch(offsets))
        for _ in range(step):
            await asyncio.sleep(0)
        append(interrupted, name, 4, memoryview(bytearray(one_record())))
        response = await soon(fetching)
        data = sent(response)[4]
        if not data.records:
            data = sent(await client.fetch())[4]
        assert values_in(data) == [(step, b"v")]


async def test_append_during_a_wait_for_memory_is_returned_once_memory_is_free(
    served: InProcessBroker, name: str
) -> None:
    await served.create_topic(name, 3)
    client = await client_of(served, name, {0: 0, 1: 0, 2: 0})
    with reserved(served.services.unsent_responses, UNSENT_SIZE_MAX):
        fetching = await client.parked()
        await produce(served, name, 1)
        assert not await is_done(fetching)
    assert await is_done(fetching)
    assert list(sent(fetching.result())) == [1]


async def test_an_append_while_cold_records_are_read_is_in_the_next_response(
    served: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create_topic(name, 4)
    client = await client_of(served, name, dict.fromkeys(range(4), 0))
    original = LogReader.read_or_slice
    is_reading, may_go_on = threading.Event(), threading.Event()

    def read(self: LogReader, wanted: Wanted) -> Any:
        if self._state.partition == 2 and self._state.topic == name:
            if not wanted.wait:
                return None
            is_reading.set()
            assert may_go_on.wait(10)
        return original(self, wanted)

    await produce(served, name, 2)
    with monkeypatch.context() as cold:
        cold.setattr(LogReader, "read_or_slice", read)
        fetching = asyncio.ensure_future(client.fetch({1: 0}, wait_ms=FOREVER_MS))
        async with asyncio.timeout(10):
            while not is_reading.is_set():  # noqa: ASYNC110 - the thread cannot notify the event loop
                await asyncio.sleep(0.001)
        await produce(served, name, 0, 1, 3)
        may_go_on.set()
        first = sent(await soon(fetching))
    assert values_in(first[2]) == [(0, b"v")]
    second = await client.fetch({2: 1})
    found = {index: values_in(data) for index, data in [*first.items(), *sent(second).items()] if data.records}
    assert found == {index: [(0, b"v")] for index in range(4)}


# -- many sessions ---------------------------------------------------------------------------------------------------


async def test_thousands_of_sessions_that_wait_for_one_partition_get_responses_in_parts(
    served: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create_topic(name, 2)
    monkeypatch.setattr(served.services.sliced_work, "_monotonic_ms", ManualClock().monotonic_ms)
    clients = [await client_of(served, name, {0: 0, 1: 0}) for _ in range(1000)]
    responses = [served.dispatcher.dispatch(_frame(client), served.channel) for client in clients]
    assert not any(one.done() for one in responses)  # type: ignore[union-attr]
    append(served, name, 1, memoryview(bytearray(one_record())))
    done = [sum(one.done() for one in responses)]  # type: ignore[union-attr]
    while done[-1] < len(clients):
        await asyncio.sleep(0)
        done.append(sum(one.done() for one in responses))  # type: ignore[union-attr]
        assert done[-1] > done[-2]
    assert 0 < done[0] <= 64
    assert max(later - before for before, later in pairwise(done)) <= 64
    assert not any(one.on_news for one in served.services.fetch_sessions._sessions.values())


def _frame(client: Client) -> memoryview:
    request = client.request({}, wait_ms=FOREVER_MS)
    client.epoch += 1
    return memoryview(bytearray(request_header(1, BY_NAME, 7, "test") + b"".join(encode(request, BY_NAME))))


async def test_every_session_reads_an_acknowledged_append(served: InProcessBroker, name: str) -> None:
    """A client that learned of the append elsewhere must find it, however many others watch the partition."""
    await served.create_topic(name, 2)
    clients = [await client_of(served, name, {0: 0, 1: 0}) for _ in range(100)]
    append(served, name, 1, memoryview(bytearray(one_record())))
    assert list(sent(await clients[-1].fetch())) == [1]


# -- other cases -----------------------------------------------------------------------------------------------------


async def test_a_session_names_a_partition_whose_epochs_diverge_at_every_fetch(
    served: InProcessBroker, name: str
) -> None:
    """A reader without the offset to truncate to would fetch forever."""
    await served.create_topic(name, 1)
    await produce(served, name, 0)
    client = await client_of(served, name, {0: 1}, version=12)
    for _ in range(3):
        request = client.request({0: 5}, wait_ms=FOREVER_MS)
        request.topics[0].partitions[0].last_fetched_epoch = 0
        client.epoch += 1
        response = await soon(served.ask(request, 12))
        diverging = sent(response)[0].diverging_epoch
        assert diverging is not None
        assert (diverging.epoch, diverging.end_offset) == (0, 1)
    request = client.request({0: 1})
    request.topics[0].partitions[0].last_fetched_epoch = 0
    client.epoch += 1
    response = await served.ask(request, 12)
    assert sent(response)[0].high_watermark == 1, "a follower that truncates its log has not applied it"


async def test_sessions_learn_that_a_single_log_went_out_of_service(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, 2)
    client = await client_of(served, name, {0: 0, 1: 0})
    fetching = await client.parked()
    hosted(served, name, 1).log.take_offline()
    assert sent(await soon(fetching))[1].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert sent(await client.fetch())[1].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_memory_of_a_cold_read_is_reserved_until_its_response_is_complete(
    served: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create_topic(name, 1)
    await produce(served, name, 0)
    reserved_sizes: list[int] = []
    unsent, original, sent = served.services.unsent_responses, LogReader.read_or_slice, Fetch.sent

    def read(self: LogReader, wanted: Wanted) -> Any:
        if not wanted.wait:
            return None
        reserved_sizes.append(unsent.size)
        return original(self, wanted)

    async def note_and_send(self: Fetch, *arguments: Any) -> Any:
        reserved_sizes.append(unsent.size)
        return await sent(self, *arguments)

    monkeypatch.setattr(LogReader, "read_or_slice", read)
    monkeypatch.setattr(Fetch, "sent", note_and_send)
    client = Client(served, name)
    await client.fetch({0: 0}, partition_max_bytes=1000)
    assert reserved_sizes == [1000, len(one_record())]
    assert unsent.size == 0


async def test_records_count_while_their_response_waits_for_a_thread(
    served: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create_topic(name, 2)
    for index in (0, 1):
        await produce(served, name, index)
    sizes: list[int] = []
    unsent, pool, original = served.services.unsent_responses, served.services.cpu_pool, LogReader.read_or_slice
    run = pool.run

    def read(self: LogReader, wanted: Wanted) -> Any:
        return original(self, wanted) if wanted.wait else None

    async def note_and_run(work: Callable[[], object]) -> object:
        sizes.append(unsent.size)
        return await run(work)

    monkeypatch.setattr(LogReader, "read_or_slice", read)
    monkeypatch.setattr(pool, "run", note_and_run)
    monkeypatch.setattr(dispatch, "ELEMENTS_ON_LOOP_MAX", 1)
    await Client(served, name).fetch({0: 0, 1: 0})
    assert sizes == [2 * len(one_record())]
    assert unsent.size == 0


async def test_negative_limits_of_a_cold_read_reserve_nothing(
    served: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.create_topic(name, 1)
    await produce(served, name, 0)
    sizes: list[int] = []
    unsent = served.services.unsent_responses
    reserve = unsent.reserve
    monkeypatch.setattr(unsent, "reserve", lambda size: (sizes.append(size), reserve(size)))
    original = LogReader.read_or_slice

    def read(self: LogReader, wanted: Wanted) -> Any:
        return original(self, wanted) if wanted.wait else None

    monkeypatch.setattr(LogReader, "read_or_slice", read)
    client = Client(served, name)
    await client.fetch({0: 0}, partition_max_bytes=-(1 << 30))
    assert sizes == [0, len(one_record())], "before the read and after it: the first batch is whole"
    assert unsent.size == 0


@pytest.mark.parametrize(("version", "partition_max_bytes"), [(2, 512 << 10), (3, 512 << 10), (12, 48 << 10)])
async def test_fetches_that_arrive_together_share_the_memory_for_what_is_not_sent_from_files(
    interrupted: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch, version: int, partition_max_bytes: int
) -> None:
    """Each of them pauses while it reads. Before version 4 records are converted, afterwards small parts are copied.
    Before version 3 a response is not shortened to its share."""
    size, batch_size, count = 1 << 20, 16 << 10, 30
    await interrupted.create_topic(name, 2)
    for _ in range(size // 2 // batch_size):
        for index in (0, 1):
            await produce(interrupted, name, index, value=bytes(batch_size))
    unsent, sizes = interrupted.services.unsent_responses, [0]
    change = unsent._change
    monkeypatch.setattr(unsent, "_change", lambda by: (change(by), sizes.append(unsent.size)))
    monkeypatch.setattr(unsent, "_size_max", size)
    unsent._change(0)
    client = Client(interrupted, name, version=version)
    request = client.request({0: 0, 1: 0}, max_bytes=size, partition_max_bytes=partition_max_bytes)
    responses = await asyncio.gather(*(interrupted.ask(request, version) for _ in range(count)))
    assert all(any(part.records for part in it.responses[0].partitions) for it in responses)
    one = 2 * size if version == 2 else 4 * batch_size
    assert size // 4 < max(sizes) <= size + one, f"{max(sizes)} bytes for {count} fetches"
    assert unsent.size == 0


async def test_a_fetch_of_partitions_that_do_not_exist_counts_no_memory(
    interrupted: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client could else let all others wait for as long as it names some."""
    unsent = interrupted.services.unsent_responses
    sizes: list[int] = []
    change = unsent._change
    monkeypatch.setattr(unsent, "_change", lambda by: (change(by), sizes.append(unsent.size)))
    request = Client(interrupted, name, version=2).request(dict.fromkeys(range(100), 0), partition_max_bytes=1 << 30)
    response = await interrupted.ask(request, 2)
    assert {part.error_code for part in response.responses[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert max(sizes, default=0) == 0
