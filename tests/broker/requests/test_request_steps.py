"""How many steps of the interpreter the most frequent requests take: numbers that do not depend on the machine's load.

A step is one bytecode instruction of the broker's own code, between the arrival of a frame and the end of the write of
its response. The limits of `COSTS` are slightly less than a tenth above the present counts; lower them when these fall.
This file is a program as well: `python -m tests.broker.requests.test_request_steps 20 Fetch` prints the counts of the
requests whose name has `Fetch`, with the twenty functions that take most.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from itertools import count, cycle, repeat
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from base.compiled import form
from bench.frames import request_frame
from broker.handlers.list_offsets import CONSUMER, EARLIEST, LATEST
from broker.loop.reservoir import SAMPLE_SIZE, Reservoir
from broker.network.channel import Channel
from broker.network.connection import Connection
from broker.requests.request_metrics import RequestParts
from protocol.frame import FrameReader
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import LISTENER, InProcessBroker, running_broker
from tests.support.manual_clock import ManualClock
from tests.support.members import join_alone

ROOT = Path(__file__).parents[3]
COUNTED = (*(f"{ROOT / package}{os.sep}" for package in ("base", "broker", "controller", "storage", "protocol")), "<")
"""Where steps count; the names of generated readers and of named tuples begin with `<`."""

COUNTED_BY = (3, 11)
"""The interpreter of the limits: each release of CPython has other instructions."""

ACKS_ALL, ACKS_LEADER, ACKS_NONE = -1, 1, 0
TOPIC, PARTITIONS, GROUP = "flights", 20, "readers"
NOW_MS = ManualClock().now_ms()

REQUESTS_WARM, REQUESTS_COUNTED = 100, 64

Frames = Iterator[bytearray]


class Cost(NamedTuple):
    """One kind of request and the most steps that it may take."""

    name: str
    frames: Callable[[Client], Any]
    steps_max: int


class Client:
    """One connection, whose requests are served as if they had arrived on its socket."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.channel = Channel("127.0.0.1", 50_000, LISTENER)
        (listener,) = broker.listeners
        self.turn_writes = listener.turn_writes
        reader = FrameReader(listener._scratch, 1 << 20)
        self.connection = Connection(listener, broker.dispatcher, reader, listener._unsent, self.channel)
        self.socket = Socket()
        self.connection.connection_made(self.socket)  # type: ignore[arg-type]

    def send(self, frame: bytearray) -> None:
        self.ask(frame)
        assert not self.turn_writes.is_worthwhile, "of one connection"
        assert not self.channel.holds

    def ask(self, frame: bytearray) -> None:
        """Send a request that may have to wait."""
        size = len(frame)
        self.connection.get_buffer(-1)[:size] = frame
        self.connection.buffer_updated(size)
        assert not self.socket.is_closed


class Socket:
    """The transport of a connection to a client that reads everything at once."""

    def __init__(self) -> None:
        self._null = open(os.devnull, "wb")  # noqa: SIM115 - as long as the socket
        self.is_closed = False

    def get_extra_info(self, name: str) -> Any:
        return self if name == "socket" else None

    def fileno(self) -> int:
        return self._null.fileno()

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True
        self._null.close()


def fill(sample: Reservoir[RequestParts]) -> None:
    """Fill a sample of request times, as on a broker that serves many requests: then few more enter it."""
    for _ in range(SAMPLE_SIZE):
        sample.add(RequestParts(*repeat(0, len(RequestParts._fields))), NOW_MS / 1000 + 1_000)


def fill_samples(broker: InProcessBroker, apis: str | tuple[str, ...]) -> None:
    """Fill those of APIs whose name begins so: those of fetches have the kind of client as well."""
    for name, metrics in broker.dispatcher.metrics.items():
        if name.startswith(apis):
            fill(metrics.sample)


class Steps:
    """Counts steps by function."""

    def __init__(self) -> None:
        self.by_function: Counter[str] = Counter()

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(COUNTED):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            self.by_function[frame.f_code.co_qualname] += 1
        return self._trace


# -- the requests ----------------------------------------------------------------------------------------------------


def produce(version: int, indexes: Sequence[int], data: bytes, acks: int) -> bytearray:
    topic = TopicProduceData(
        name=TOPIC, partition_data=[PartitionProduceData(index=index, records=data) for index in indexes]
    )
    return request_frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic]), version)


def producing(version: int, partition_count: int = 1, acks: int = ACKS_LEADER) -> Callable[[Client], Frames]:
    """One record for each of some partitions."""

    def frames(client: Client) -> Frames:
        for number in count():
            data = build_batch([RecordData(NOW_MS + number, None, bytes(100))])
            yield produce(version, range(partition_count), data, acks)

    return frames


def producing_idempotently(client: Client) -> Frames:
    """A client of Java: acks=all, sequence numbers, and another partition with each request."""
    producer_id = 7
    for sequence in range(REQUESTS_WARM + REQUESTS_COUNTED):
        for index in range(PARTITIONS):
            data = build_batch(
                [RecordData(NOW_MS, None, bytes(100))],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            yield produce(9, [index], data, ACKS_ALL)


async def idle_session(client: Client, version: int, partition_count: int) -> Frames:
    """Fetches of a session that has no news."""
    state = next(one for one in client.broker.services.replica_manager.hosted() if one.topic == TOPIC)
    assert state.topic_id is not None
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(partition_count)
    ]
    topic = FetchTopic(
        topic=TOPIC if version < 13 else "",
        topic_id=state.topic_id if version >= 13 else UUID(int=0),
        partitions=partitions,
    )
    opening = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[topic])
    opened = await client.broker.ask(opening, version)
    assert opened.session_id

    def frames() -> Frames:
        for epoch in range(1, 1 << 20):
            request = FetchRequest(
                max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=epoch, topics=[]
            )
            yield request_frame(request, version)

    return frames()


def fetching(version: int, partition_count: int) -> Callable[[Client], Any]:
    return lambda client: idle_session(client, version, partition_count)


def asking_for_ends(client: Client) -> Frames:
    """A task of Spark, which asks for the start and the end of its partition before each poll."""
    for timestamp in cycle((EARLIEST, LATEST)):
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=CONSUMER, topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])])
        yield request_frame(request, 9)


async def committing(client: Client) -> Frames:
    await client.broker.services.groups.partitions.ensure_topic()
    await group_loaded(client.broker)
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")]
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=rows)
    return cycle([request_frame(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 8)])


async def group_loaded(broker: InProcessBroker) -> None:
    async with asyncio.timeout(10):
        while (await broker.ask(OffsetFetchRequest(group_id=GROUP, topics=[]), 7)).error_code:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def beating(client: Client) -> Frames:
    broker = client.broker
    await broker.services.groups.partitions.ensure_topic()
    await group_loaded(broker)
    member = await join_alone(broker, GROUP, session_timeout_ms=30_000)
    request = HeartbeatRequest(group_id=GROUP, generation_id=member.generation_id, member_id=member.member_id)
    return cycle([request_frame(request, 4)])


COSTS = [
    Cost("Produce v3", producing(3), 1_850),
    Cost("Produce v7", producing(7), 1_800),
    Cost("Produce v9", producing(9), 1_870),
    Cost("Produce v11", producing(11), 1_870),
    Cost("Produce v9, acks=0", producing(9, acks=ACKS_NONE), 1_620),
    Cost("Produce v9, idempotent, acks=all", producing_idempotently, 2_090),
    Cost("Produce v9, 11 partitions", producing(9, 11), 9_600),
    Cost("Fetch v11, idle session", fetching(11, 10), 1_620),
    Cost("Fetch v13, idle session", fetching(13, 10), 1_650),
    Cost("Fetch v17, idle session", fetching(17, 10), 1_650),
    Cost("ListOffsets v9", asking_for_ends, 1_220),
    Cost("OffsetCommit v8", committing, 2_700),
    Cost("Heartbeat v4", beating, 1_070),
]


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Client]:
    settings: Mapping[str, str] = {"offsets.topic.num.partitions": "1"}
    async with running_broker(folder, settings, clock=ManualClock()) as broker:
        await broker.create_topic(TOPIC, PARTITIONS)
        client = Client(broker)
        yield client
        client.socket.close()


async def steps_of(client: Client, cost: Cost) -> Counter[str]:
    """Return the steps of all counted requests by function."""
    fill_samples(client.broker, cost.name.partition(" ")[0])
    made = cost.frames(client)
    frames = await made if inspect.iscoroutine(made) else made
    for _ in range(REQUESTS_WARM):
        client.send(next(frames))
    steps = Steps()
    for _ in range(REQUESTS_COUNTED):
        frame = next(frames)
        with steps.counted():
            client.send(frame)
    return steps.by_function


@pytest.mark.skipif(
    sys.version_info[:2] != COUNTED_BY, reason="the limits hold for the bytecode of CPython 3.11; run the suite with it"
)
@pytest.mark.skipif(form() != "compiled", reason="the limits hold for compiled loops, which need gcc and python3-dev")
@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.name)
async def test_a_request_takes_no_more_steps_than_its_limit(tmp_path: Path, cost: Cost) -> None:
    async with connected(tmp_path / "data") as client:
        by_function = await steps_of(client, cost)
    steps = round(by_function.total() / REQUESTS_COUNTED)
    assert 0 < steps <= cost.steps_max, by_function.most_common(10)


WOKEN_STEPS_MAX = 7_800
"""Of a Produce and of the Fetch that waits for its record."""


@pytest.mark.skipif(
    sys.version_info[:2] != COUNTED_BY, reason="the limits hold for the bytecode of CPython 3.11; run the suite with it"
)
@pytest.mark.skipif(form() != "compiled", reason="the limits hold for compiled loops, which need gcc and python3-dev")
async def test_a_record_for_a_waiting_consumer_takes_no_more_steps_than_its_limit(tmp_path: Path) -> None:
    steps = Steps()
    async with connected(tmp_path / "data") as producer:
        consumer = Client(producer.broker)
        fill_samples(producer.broker, ("Produce", "Fetch"))
        produced = producing(9)(producer)
        for offset in range(REQUESTS_WARM + REQUESTS_COUNTED):
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topic = FetchTopic(topic=TOPIC, partitions=[partition])
            fetch = FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=-1, topics=[topic])
            frames = request_frame(fetch, 12), next(produced)
            with steps.counted() if offset >= REQUESTS_WARM else nullcontext():
                consumer.ask(frames[0])
                assert consumer.channel.holds
                producer.send(frames[1])
            assert not consumer.channel.holds
        consumer.socket.close()
    assert 0 < steps.by_function.total() / REQUESTS_COUNTED <= WOKEN_STEPS_MAX, steps.by_function.most_common(10)


async def _print_all(names: Sequence[str], function_count: int) -> None:
    for cost in COSTS:
        if names and not any(name in cost.name for name in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            async with connected(Path(folder) / "data") as client:
                by_function = await steps_of(client, cost)
        print(f"{by_function.total() / REQUESTS_COUNTED:8.0f}  {cost.name}")
        for name, steps in by_function.most_common(function_count):
            print(f"{steps / REQUESTS_COUNTED:16.1f}  {name}")


if __name__ == "__main__":
    asyncio.run(_print_all(sys.argv[2:], int(sys.argv[1]) if len(sys.argv) > 1 else 0))
