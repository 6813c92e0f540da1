"""The request path against its plain twin: random requests and events get the same bytes from two brokers.

The twin decodes requests into objects, builds the rows from them, calls the same handlers, builds every response from
objects and encodes these. It binds the partitions of each request anew, and it reads all partitions of a fetch session
at every fetch. So a binding that should have been renewed, or news that was missed, changes the bytes of a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, groupby
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from base.file_slice import FileSlice
from base.pause import never, whole
from broker.coordination.partitioner import partition_for
from broker.handlers import fetch as fetch_handler
from broker.handlers import heartbeat as heartbeat_handler
from broker.handlers import list_offsets as list_offsets_handler
from broker.handlers import offset_commit as commit_handler
from broker.handlers import produce as produce_handler
from broker.handlers.request_context import RequestContext
from broker.loop.promise import Promise
from broker.network.channel import Channel
from broker.replica.bound_partition import BoundPartition
from broker.replica.fetch_sessions import FetchContext
from broker.replica.partition import Partition
from broker.requests.routes import TABLE
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.errors import KafkaError, Malformed
from protocol.frame import LENGTH
from protocol.headers import read_request_header, read_response_header, request_header, response_header
from protocol.internal_topics import GROUP_METADATA_TOPIC
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchRow,
    FetchTopic,
    ForgottenRow,
    ForgottenTopic,
    ReplicaState,
    ScannedFetch,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest, ScannedHeartbeat
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    ListOffsetsTopicRow,
    ScannedListOffsets,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitRow,
    ScannedOffsetCommit,
)
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    ProduceRow,
    ScannedProduce,
    TopicProduceData,
)
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.control import ControlType
from protocol.row_writer import RowResponse
from protocol.schema import ZERO_UUID, Records, message_info
from storage.batches.validation import AppendOrigin
from tests.storage.builders import batch, marker
from tests.support.in_process import INTERNAL_PARTITIONS, LISTENER, InProcessBroker, running_broker
from tests.support.manual_clock import ManualClock
from tests.support.members import join_alone

PRODUCE, FETCH, LIST_OFFSETS, COMMIT, HEARTBEAT = 0, 1, 2, 8, 12
ACKS_ALL = -1
FOLLOWER = 1
STEPS = 500
TOPICS = {"a": 3, "b": 20}
GROUPS = ("g", "members")
FLUSH_NEVER = str(2**63 - 1)
NOW_MS = 1_795_228_739_867
SIZE_MAX = 1 << 24

Write = Callable[["Side"], tuple[object, int]]
"""The request for one of the two brokers, which have topic ids and members of their own, and its version."""


# -- the twin --------------------------------------------------------------------------------------------------------


def scanned(request: Any) -> object:
    """The rows of a decoded request."""
    match request:
        case ProduceRequest():
            return ScannedProduce(
                request.transactional_id,
                request.acks,
                request.timeout_ms,
                [
                    ProduceRow(topic.name, data.index, data.records)
                    for topic in request.topic_data
                    for data in topic.partition_data
                ],
            )
        case FetchRequest():
            return ScannedFetch(
                request.replica_id,
                request.replica_state,
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                request.isolation_level,
                request.session_id,
                request.session_epoch,
                [
                    FetchRow(
                        topic.topic,
                        topic.topic_id,
                        it.partition,
                        it.current_leader_epoch,
                        it.fetch_offset,
                        it.last_fetched_epoch,
                        it.log_start_offset,
                        it.partition_max_bytes,
                    )
                    for topic in request.topics
                    for it in topic.partitions
                ],
                [ForgottenRow(it.topic, it.topic_id, it.partitions) for it in request.forgotten_topics_data],
                request.rack_id,
            )
        case OffsetCommitRequest():
            return ScannedOffsetCommit(
                request.group_id,
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
                request.retention_time_ms,
                [
                    OffsetCommitRow(
                        topic.name,
                        it.partition_index,
                        it.committed_offset,
                        it.committed_leader_epoch,
                        it.commit_timestamp,
                        it.committed_metadata,
                    )
                    for topic in request.topics
                    for it in topic.partitions
                ],
            )
        case ListOffsetsRequest():
            return ScannedListOffsets(
                request.replica_id,
                request.isolation_level,
                [ListOffsetsTopicRow(topic.name, topic.partitions) for topic in request.topics],
            )
        case HeartbeatRequest():
            return ScannedHeartbeat(
                request.group_id, request.generation_id, request.member_id, request.group_instance_id
            )
    raise TypeError(type(request))


class PlainRowWriter:
    """`protocol.row_writer.RowWriter` by objects and the ordinary encoder."""

    def __init__(self, cls: type[Any], version: int) -> None:
        self._cls = cls
        self._version = version
        self._groups = next(
            field for field in cls.__fields__ if field.is_array and field.name in ("responses", "topics")
        )
        self._elements = next(one for one in self._groups.struct.__fields__ if one.is_array)

    def write_one(self, *row: Any) -> list[Records]:
        return self.write(*([value] for value in row))

    def write(self, *columns: Iterable[Any]) -> list[Records]:
        rows = list(zip(*columns, strict=False))
        names = [one.name for one in self._elements.struct.__fields__ if not one.is_array]
        groups = []
        for name, of_name in groupby(rows, key=lambda row: row[0]):
            elements = [self._elements.struct(**dict(zip(names, row[1:], strict=False))) for row in of_name]
            groups.append(self._groups.struct(**{"name": name, self._elements.name: elements}))
        return encode(self._cls(**{self._groups.name: groups}), self._version)


class PlainTwin:
    """A broker that serves the scanned APIs in the plain way."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._broker = broker
        sessions = broker.services.fetch_sessions
        original = sessions.context

        async def context(*arguments: Any, **options: Any) -> FetchContext:
            found = await original(*arguments, **options)
            if found.session is not None:
                for key, partition in found.session.partitions.items():
                    partition.bound = None
                    found.session.news.setdefault(key, partition)
            return found

        sessions.context = context  # type: ignore[method-assign]

    async def send(self, frame: bytes) -> bytes | None:
        view = memoryview(bytearray(frame))
        header, position = read_request_header(view)
        api = APIS[header.api_key]
        module = TABLE[api.key]
        channel = Channel("127.0.0.1", 50_000, LISTENER)  # without bindings
        context = RequestContext(header.api_key, header.api_version, header.correlation_id, header.client_id, channel)
        request: Any = scanned(decode(api.request, header.api_version, view, position))
        with plain_responses():
            try:
                response = module.handle(self._broker.services, request, context)
                if isinstance(response, Coroutine | Promise):
                    response = await response
            except KafkaError as error:
                failed = getattr(module, "failed", None)
                assert failed is not None
                response = failed(request, context, error.code)
            if response is None:
                return None
            # Rows are left of a Fetch that has nothing to mention, and of what `PlainRowWriter` writes.
            is_in_rows = isinstance(response, RowResponse)
            body = joined(response.write() if is_in_rows else encode(response, header.api_version))
        payload = response_header(header.api_key, header.api_version, header.correlation_id) + body
        return LENGTH.pack(len(payload)) + payload


@contextmanager
def plain_responses() -> Any:
    with pytest.MonkeyPatch.context() as patched:
        for module in (produce_handler, commit_handler, list_offsets_handler):
            patched.setattr(module, "row_writer", PlainRowWriter)

        async def no_rows(*arguments: Any, is_committed: bool) -> object:
            return await fetch_handler._message(*arguments, is_urgent=False)

        patched.setattr(fetch_handler, "_rows", no_rows)
        yield


def joined(pieces: Iterable[Any]) -> bytes:
    return b"".join(piece.read() if isinstance(piece, FileSlice) else piece for piece in pieces)


# -- two brokers of the same history ---------------------------------------------------------------------------------


@dataclass
class Side:
    """One of the two brokers."""

    broker: InProcessBroker
    twin: PlainTwin | None
    ids: dict[str, UUID] = field(default_factory=dict)
    all_ids: list[UUID] = field(default_factory=list)
    """Also of topics that are deleted, which sessions still name."""
    member_id: str = ""

    async def respond(self, frame: bytes) -> bytes | str | None:
        """The bytes of the response, or why the connection is closed."""
        try:
            if self.twin is not None:
                return await self.twin.send(frame)
            response = await self.broker.send(frame, self.broker.channel)
            return None if response is None else joined(response)
        except Malformed as error:
            return f"{type(error).__name__}: {error}"

    def own_bytes(self) -> list[bytes]:
        """What responses of the two brokers differ in: topic ids, and the port."""
        _, port = self.broker.services.metadata_cache.brokers[0].endpoints[LISTENER]
        return [*(topic_id.bytes for topic_id in self.all_ids), b"127.0.0.1" + port.to_bytes(4)]

    def hosted(self) -> list[Partition]:
        found = [one for one in self.broker.services.replica_manager.hosted() if one.topic in TOPICS]
        return sorted(found, key=lambda one: (one.topic, one.partition))

    def partition(self, topic: str, index: int) -> Partition:
        found = self.broker.services.replica_manager.find(topic, index)
        assert found is not None
        return found

    async def create(self, topic: str) -> None:
        await self.broker.create_topic(topic, TOPICS[topic])
        topic_id = self.partition(topic, 0).topic_id
        assert topic_id is not None
        self.ids[topic] = topic_id
        self.all_ids.append(topic_id)

    async def groups_loaded(self) -> None:
        """Wait until this broker coordinates both groups."""
        async with asyncio.timeout(10):
            for group_id in GROUPS:
                while (  # noqa: ASYNC110 - no event says when a partition is loaded
                    await self.broker.ask(OffsetFetchRequest(group_id=group_id, topics=[]), 7)
                ).error_code:
                    await asyncio.sleep(0.01)

    def apply_leadership(self, topic: str, index: int, leader: int, isr: list[int], replicas: list[int]) -> None:
        """Apply a LeaderAndIsr request with the next leader epoch of one partition."""
        partition = self.partition(topic, index)
        assert partition.topic_id is not None
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=partition.leader_epoch + 1,
            isr=isr,
            partition_epoch=partition.leadership.partition_epoch + 1,
            replicas=replicas,
        )
        states = [LeaderAndIsrTopicState(topic_name=topic, topic_id=partition.topic_id, partition_states=[state])]
        request = LeaderAndIsrRequest(controller_id=0, controller_epoch=1, topic_states=states, live_leaders=[])
        response = whole(self.broker.services.assigned_replicas.become_leader_or_follower(request, never))
        assert not response.topics[0].partition_errors[0].error_code

    def commit_all(self) -> None:
        """The followers have everything."""
        manager = self.broker.services.replica_manager
        for one in self.hosted():
            if one.is_leader and FOLLOWER in one.leadership.replicas:
                manager.follower_fetched(one, FOLLOWER, one.log.log_end_offset, 0)


@dataclass
class Session:
    """What the client of a fetch session knows."""

    session_id: int
    version: int
    isolation: int
    replica_id: int
    epoch: int = 1


class Walk:
    """A random walk; `sides` are the broker and its twin."""

    def __init__(self, sides: tuple[Side, Side], random: Random) -> None:
        self._sides = sides
        self._random = random
        self._sessions: list[Session] = []
        self._sequences: dict[tuple[int, str, int], int] = {}
        self._transactions: dict[tuple[str, int], int] = {}
        """The producers of open transactions."""
        self._number = 0
        self.good_count = dict.fromkeys((PRODUCE, FETCH, LIST_OFFSETS, COMMIT, HEARTBEAT), 0)

    async def start(self) -> None:
        for side in self._sides:
            for topic in TOPICS:
                await side.create(topic)
            await side.broker.ask(FindCoordinatorRequest(key=GROUPS[0], key_type=0), 2)
            await side.groups_loaded()
            member = await join_alone(side.broker, "members", session_timeout_ms=10_000)
            side.member_id = member.member_id

    async def step(self) -> None:
        requests = (self._produce, self._fetch, self._list_offsets, self._commit, self._heartbeat)
        events = (
            self._lead,
            self._follower_fetched,
            self._configure,
            self._delete_records,
            self._transaction,
            self._recreate,
            self._move_coordinator,
        )
        if self._random.random() < 0.8:
            await self._random.choices(requests, (8, 10, 3, 3, 1))[0]()
        else:
            await self._random.choices(events, (6, 3, 4, 4, 6, 1, 1))[0]()

    async def same_responses(self, write: Write) -> bytes | None:
        """Send a request to both; the bytes of the response, which are the same."""
        self._number += 1
        responses = []
        for side in self._sides:
            request, version = write(side)
            key = message_info(type(request)).api_key
            frame = request_header(key, version, self._number, "client") + joined(encode(request, version))
            responding = asyncio.ensure_future(side.respond(frame))
            purgatory = side.broker.services.replica_manager.produce_purgatory
            async with asyncio.timeout(10):
                while not responding.done():
                    if purgatory.delayed_count:
                        side.commit_all()
                    await asyncio.sleep(0)
            if getattr(request, "acks", None) == ACKS_ALL:
                side.commit_all()  # whether or not it had to wait
            responses.append(responding.result())
        response, expected = responses
        if isinstance(expected, bytes):
            for own, of_twin in zip(*(side.own_bytes() for side in self._sides), strict=True):
                expected = expected.replace(of_twin, own)
        reported = [shown(key, version, one) for one in (response, expected)]
        assert response == expected, (self._number, request, version, *reported)
        self.good_count[key] += isinstance(response, bytes)
        return response if isinstance(response, bytes) else None

    def _indexes(self, topic: str, count_max: int) -> list[int]:
        """Partitions, one of them perhaps of those that do not exist, or twice."""
        random = self._random
        indexes = random.sample(range(TOPICS[topic]), random.randint(1, min(count_max, TOPICS[topic])))
        if random.random() < 0.1:
            indexes.append(random.choice([indexes[0], TOPICS[topic]]))
        return indexes

    def _topics(self) -> list[str]:
        return self._random.choice([["a"], ["b"], ["a", "b"], ["b", "a", "b"], ["a", "missing"]])

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        random = self._random
        count_max = random.choice([1, 1, 3, 20])
        topic_data = [
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=self._records(topic, index))
                    for index in self._indexes(topic if topic in TOPICS else "a", count_max)
                ],
            )
            for topic in (self._topics() if count_max > 1 else [random.choice(list(TOPICS))])
        ]
        request = ProduceRequest(acks=random.choice([1, 1, 1, -1, -1, 0, 2]), timeout_ms=1000, topic_data=topic_data)
        version = random.randint(3, 11)
        response = await self.same_responses(lambda side: (request, version))
        if response is not None:
            self._check_flushed(shown(PRODUCE, version, response))

    def _check_flushed(self, response: object) -> None:
        """What was acknowledged is synced, where the present configuration demands it."""
        assert isinstance(response, ProduceResponse)
        for topic in response.responses:
            for one in topic.partition_responses:
                if not one.error_code:
                    for side in self._sides:
                        assert not side.partition(topic.name, one.index).log.durability.needs_flush

    def _records(self, topic: str, index: int) -> bytes | None:
        random = self._random
        producer_id = random.choice([-1, -1, 7, 8])
        fields: dict[str, Any] = {}
        if producer_id >= 0:
            key = (producer_id, topic, index)
            sequence = self._sequences.get(key, 0)
            kind = random.random()
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            if kind < 0.15:
                fields["base_sequence"] = sequence + 5  # out of order
            elif kind < 0.4 and sequence:
                fields["base_sequence"] = sequence - 1  # a duplicate
            else:
                self._sequences[key] = sequence + 1
        records = build_batch(
            [
                RecordData(
                    timestamp=NOW_MS + random.randint(-5, 5), key=random.choice([b"k", b"l", None]), value=bytes(size)
                )
                for size in ([10] if producer_id >= 0 else random.choices([0, 10, 100, 700], k=random.randint(1, 4)))
            ],
            compression=random.choice([Compression.NONE] * 4 + list(Compression)),
            **fields,
        )
        kind = random.random()
        if kind < 0.04:
            return records[:-1] + bytes([records[-1] ^ 1])
        if kind < 0.08:
            return random.choice([None, b"", bytes(30), records * 2, records[:-1]])
        return records

    async def _list_offsets(self) -> None:
        random = self._random
        version = random.randint(0, 9)
        timestamps = [-1, -1, -2, -2, *range(-6, 1), NOW_MS, NOW_MS + 10]
        request = ListOffsetsRequest(
            replica_id=random.choice([-1, -1, -1, -2, FOLLOWER]),
            isolation_level=random.choice([0, 0, 1, 2]) if version >= 2 else 0,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index,
                            current_leader_epoch=random.choice([-1, -1, -1, 0, 9]) if version >= 4 else -1,
                            timestamp=random.choice(timestamps),
                            max_num_offsets=random.choice([1, 5]) if version == 0 else 1,
                        )
                        for index in self._indexes(topic if topic in TOPICS else "a", random.choice([1, 1, 20]))
                    ],
                )
                for topic in random.choice([["a"], ["b"], ["b", "b"], self._topics()])
            ],
        )
        await self.same_responses(lambda side: (request, version))

    async def _commit(self) -> None:
        random = self._random
        version = random.randint(0, 9)
        is_member = version > 0 and random.random() < 0.6
        generation = random.choice([1, 1, 1, 2])
        partitions = [
            (
                topic,
                [
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=random.randint(0, 1 << 40),
                        committed_leader_epoch=random.randint(-1, 5) if version >= 6 else -1,
                        committed_metadata=random.choice(["", "m", None, "m" * 5000]),
                    )
                    for index in self._indexes(topic if topic in TOPICS else "a", 20)
                ],
            )
            for topic in self._topics()
        ]

        def write(side: Side) -> tuple[object, int]:
            request = OffsetCommitRequest(
                group_id="members" if is_member else "g",
                generation_id_or_member_epoch=generation if is_member else -1,
                member_id=side.member_id if is_member else "",
                topics=[OffsetCommitRequestTopic(name=name, partitions=its) for name, its in partitions],
            )
            return request, version

        await self.same_responses(write)

    async def _heartbeat(self) -> None:
        version, is_known = self._random.randint(0, 4), self._random.random() < 0.7
        generation = self._random.choice([1, 1, 2])
        await self.same_responses(
            lambda side: (
                HeartbeatRequest(
                    group_id="members", generation_id=generation, member_id=side.member_id if is_known else "nobody"
                ),
                version,
            )
        )

    async def _fetch(self) -> None:
        random = self._random
        is_new = not self._sessions or random.random() < 0.35
        if is_new:
            session = Session(0, random.randint(0, 17), random.choice([0, 0, 1]), random.choice([-1, -1, -1, -2, 1]), 0)
            if session.version < 7 or random.random() < 0.3:
                session.epoch = -1
        else:
            session = random.choice(self._sessions)
        epoch = session.epoch if random.random() < 0.97 else random.choice([session.epoch + 5, -1, 0])
        if not is_new and epoch != session.epoch:
            self._sessions.remove(session)
        topics = [topic for topic in dict.fromkeys(self._topics()) if topic in TOPICS or session.version < 13]
        if not is_new and random.random() < 0.4:
            topics = []
        wanted = [(topic, [self._wanted(session, topic, it) for it in self._fetched(topic)]) for topic in topics]
        forgotten = random.choice(list(TOPICS)) if not is_new and random.random() < 0.2 else None
        gone = self._indexes(forgotten, 3) if forgotten is not None else []
        limits = random.choice([SIZE_MAX, SIZE_MAX, 0, 300, 2000])

        def write(side: Side) -> tuple[object, int]:
            by_id = session.version >= 13

            def named(topic: str) -> dict[str, Any]:
                return {"topic_id": side.ids.get(topic, ZERO_UUID)} if by_id else {"topic": topic}

            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=limits,
                isolation_level=session.isolation,
                session_id=session.session_id,
                session_epoch=epoch,
                topics=[FetchTopic(partitions=its, **named(topic)) for topic, its in wanted],
                forgotten_topics_data=[ForgottenTopic(partitions=gone, **named(forgotten))] if forgotten else [],
            )
            if session.version < 15:
                request.replica_id = session.replica_id
            else:
                request.replica_state = ReplicaState(replica_id=session.replica_id)
            return request, session.version

        payload = await self.same_responses(write)
        assert payload is not None
        response = shown(FETCH, session.version, payload)
        assert isinstance(response, FetchResponse)
        session.epoch += 1
        if epoch == 0 and response.session_id:
            fresh = Session(response.session_id, session.version, session.isolation, session.replica_id)
            self._sessions = [*self._sessions[-15:], fresh]

    def _fetched(self, topic: str) -> list[int]:
        return (
            list(range(TOPICS[topic]))
            if topic in TOPICS and self._random.random() < 0.3
            else self._indexes(topic if topic in TOPICS else "a", 5)
        )

    def _wanted(self, session: Session, topic: str, index: int) -> FetchPartition:
        random = self._random
        found = self._sides[0].broker.services.replica_manager.find(topic, index)
        end = 0 if found is None else found.log.log_end_offset
        epoch = -1 if found is None else found.leader_epoch
        return FetchPartition(
            partition=index,
            fetch_offset=random.choice([end, end, end, end - 1, end // 2, 0, end + 1]),
            partition_max_bytes=random.choice([SIZE_MAX, SIZE_MAX, 0, 200, 1000]),
            current_leader_epoch=random.choice([-1, -1, epoch, epoch, epoch - 1]) if session.version >= 9 else -1,
            last_fetched_epoch=random.choice([-1, -1, -1, epoch]) if session.version >= 12 else -1,
        )

    # -- events ------------------------------------------------------------------------------------------------------

    def _any_partition(self) -> tuple[str, int]:
        topic = self._random.choice(list(TOPICS))
        return topic, self._random.randrange(TOPICS[topic])

    async def _lead(self) -> None:
        topic, index = self._any_partition()
        leader, isr = self._random.choice([(0, [0]), (0, [0]), (0, [0, FOLLOWER]), (FOLLOWER, [FOLLOWER])])
        replicas = self._random.choice([[0, FOLLOWER], isr if 0 in isr else [0, FOLLOWER]])
        for side in self._sides:
            side.apply_leadership(topic, index, leader, isr, replicas)

    async def _move_coordinator(self) -> None:
        """Another broker coordinates the groups for a while."""
        partitions = [partition_for(group_id, INTERNAL_PARTITIONS) for group_id in GROUPS]
        for leader in (FOLLOWER, 0):
            for side in self._sides:
                for index in partitions:
                    side.apply_leadership(GROUP_METADATA_TOPIC, index, leader, [leader], [0, FOLLOWER])
            if leader == FOLLOWER:
                await self._commit()
                await self._heartbeat()
        for side in self._sides:
            await side.groups_loaded()

    async def _follower_fetched(self) -> None:
        for side in self._sides:
            side.commit_all()

    async def _configure(self) -> None:
        random = self._random
        topic = random.choice(list(TOPICS))
        name, value = random.choice(
            [
                ("compression.type", random.choice(["producer", "gzip", "snappy", "lz4", "uncompressed"])),
                ("cleanup.policy", random.choice(["delete", "delete", "compact", "compact,delete"])),
                ("max.message.bytes", random.choice(["1048588", "1048588", "300"])),
                ("message.timestamp.type", random.choice(["CreateTime", "LogAppendTime"])),
                ("min.insync.replicas", random.choice(["1", "1", "2"])),
                ("flush.messages", random.choice(["1", FLUSH_NEVER])),
            ]
        )
        change = AlterConfigsResource(
            resource_type=2, resource_name=topic, configs=[AlterableConfig(name=name, config_operation=0, value=value)]
        )
        for side in self._sides:
            response = await side.broker.ask(IncrementalAlterConfigsRequest(resources=[change], validate_only=False))
            assert not response.responses[0].error_code

    async def _delete_records(self) -> None:
        topic, index = self._any_partition()
        part = self._random.choice([-1, 0.3, 0.7, 1.0])
        codes = []
        for side in self._sides:
            partition = side.partition(topic, index)
            offset = -1 if part == -1 else int(partition.log.high_watermark * part)
            try:
                side.broker.services.replica_manager.delete_records(partition, offset)
                codes.append(0)
            except KafkaError as error:
                codes.append(int(error.code))
        assert codes[0] == codes[1]

    async def _transaction(self) -> None:
        """A batch of an open transaction, or the marker that ends it."""
        topic, index = self._any_partition()
        key = (topic, index)
        is_open = key in self._transactions
        if is_open:
            producer_id = self._transactions.pop(key)
            records = marker(self._random.choice([ControlType.ABORT, ControlType.COMMIT]), producer_id)
            origin = AppendOrigin.COORDINATOR
        else:
            self._number += 1
            producer_id = self._transactions[key] = 1000 + self._number
            records = batch(1, producer_id=producer_id, sequence=0, is_transactional=True)
            origin = AppendOrigin.CLIENT
        codes = []
        for side in self._sides:
            manager = side.broker.services.replica_manager
            try:
                BoundPartition(side.partition(topic, index), manager).append(
                    memoryview(bytearray(records)),
                    needs_isr=False,
                    now_ms=NOW_MS,
                    origin=origin,
                )
                codes.append(0)
            except KafkaError as error:
                codes.append(int(error.code))
        assert codes[0] == codes[1]

    async def _recreate(self) -> None:
        topic = self._random.choice(list(TOPICS))
        for side in self._sides:
            # The controller stops the partitions in any order, which would be the order in which sessions mention them.
            for session in side.broker.services.fetch_sessions._sessions.values():
                for partition in sorted(session.partitions.values(), key=lambda one: one.partition):
                    if partition.topic == topic:
                        partition.note_event()
            state = DeleteTopicState(name=topic, topic_id=ZERO_UUID)
            response = await side.broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000))
            assert not response.responses[0].error_code
        if self._random.random() < 0.5:
            await self._fetch_everywhere()
        for side in self._sides:
            await side.create(topic)
        self._transactions = {key: value for key, value in self._transactions.items() if key[0] != topic}
        self._sequences = {key: value for key, value in self._sequences.items() if key[1] != topic}

    async def _fetch_everywhere(self) -> None:
        """One fetch of each session, which mentions what happened."""
        for session in self._sessions:
            await self.same_responses(partial(_unchanged, session))
            session.epoch += 1

    async def end(self) -> None:
        await self._fetch_everywhere()
        hosted, expected = [side.hosted() for side in self._sides]
        assert [self._state(one) for one in hosted] == [self._state(one) for one in expected]

    def _state(self, partition: Partition) -> object:
        log = partition.log
        start, end = log.log_start_offset, log.log_end_offset
        fetched = log.reader.read(start, SIZE_MAX, upper_bound_offset=end, min_one_batch=True)
        assert fetched is not None
        return partition.topic, partition.partition, start, log.high_watermark, end, bytes(fetched.records)


def shown(key: int, version: int, response: bytes | str | None) -> object:
    """A response that people can read."""
    if not isinstance(response, bytes):
        return response
    _, position = read_response_header(key, version, response[LENGTH.size :])
    return decode(APIS[key].response, version, response, LENGTH.size + position)


def _unchanged(session: Session, side: Side) -> tuple[object, int]:
    """A fetch that changes nothing of its session."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=session.isolation,
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=[],
    )
    if session.version < 15:
        request.replica_id = session.replica_id
    else:
        request.replica_state = ReplicaState(replica_id=session.replica_id)
    return request, session.version


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[tuple[Side, Side]]:
    # Some records are years old. Retention runs by the time of the machine, so it would delete them on one side first.
    settings = {"log.retention.ms": "-1"}
    async with AsyncExitStack() as stack:
        brokers = []
        for name in ("broker", "twin"):
            broker = await stack.enter_async_context(
                running_broker(tmp_path / name, settings, clock=ManualClock(NOW_MS))
            )
            for writer in broker.services.log_manager.writers.values():
                writer._start = None  # a directory that became slow on one side would be written in another order
            numbers = count(1)
            broker.services.fetch_sessions._new_id = lambda numbers=numbers: next(numbers)  # type: ignore[misc]
            brokers.append(broker)
        yield Side(brokers[0], None), Side(brokers[1], PlainTwin(brokers[1]))


@pytest.mark.parametrize("seed", range(4))
async def test_fast_path_returns_the_same_bytes_as_the_full_path(sides: tuple[Side, Side], seed: int) -> None:
    walk = Walk(sides, Random(seed))
    await walk.start()
    for _ in range(STEPS):
        await walk.step()
    await walk.end()
    assert all(walk.good_count.values()), walk.good_count


def test_the_twin_builds_the_rows_of_every_scanned_request() -> None:
    modules = {module for module in TABLE.values() if hasattr(module, "SCANNED")}
    assert modules == {
        produce_handler,
        fetch_handler,
        list_offsets_handler,
        commit_handler,
        heartbeat_handler,
    }
