"""Hosts the brokers of one `milena_broker.testing.Cluster`, and runs its commands.

Owns the commands and the end of the process. Must not know pytest. The test process talks through an inherited socket:
frames of a length and JSON; a response repeats the `number` of its command. When the socket ends, or this process has
another parent than at the start, it removes the data if it is temporary, and ends; so no broker outlives its tests. If
the parent ends while this process is halted, the kernel continues it, where the kernel can (Linux).

The brokers of a cluster share this process and a metadata store in memory, so a cluster needs no ZooKeeper.
"""

from __future__ import annotations

import asyncio
import base64
import ctypes
import json
import logging
import os
import shutil
import signal
import socket
import struct
import sys
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from broker.environment import Environment, environment_of_this_machine
from broker.process import run_in_loop
from broker.requests.dispatch import request_decoder
from broker.requests.local_client import LocalClient
from broker.requests.routes import TABLE
from broker.server import Server, StartupError
from config.broker import BrokerConfig
from config.definition import ConfigError, ConfigErrors
from controller.embedded.memory_store import MemoryStore, MemoryTree
from protocol.api import APIS
from protocol.codec import encoder
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import Record, batches, records
from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID, message_info
from storage.disk.files import Buffer, OpenFile, OsFiles
from tools.log_output.log_lines import log_to_stderr

LISTENER = "PLAINTEXT"
FRAME_LENGTH = struct.Struct(">I")
PARENT_CHECK_S = 0.5
REMOVALS_MAX = 3
REQUEST_TIMEOUT_MS = 10_000
CALL_TIMEOUT_S = 10.0
APPEARANCE_S = 1.0
"""How long a topic that was created may be unknown to the other brokers."""
RETRY_S = 0.005
BATCH_BYTES_MAX = 512 << 10
FETCH_BYTES_MAX = 4 << 20
OPENED_BYTES_MAX = 256 << 20
_PR_SET_PDEATHSIG = 1
_FETCH_VERSION = 12  # the last that names topics
_READ_COMMITTED = 1

_RETRIABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What passes by itself right after a topic was created or a leader has moved."""

DEFAULTS = {
    "auto.create.topics.enable": "true",
    "controlled.shutdown.retry.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""The settings of brokers for tests that differ from Kafka's: groups form immediately, internal topics are small."""


class CommandError(Exception):
    """A command failed; the text names the value and what was expected."""


class SlowFiles(OsFiles):
    """The files of the machine, with writes and syncs that take longer."""

    def __init__(self) -> None:
        super().__init__()
        self.delay_s = 0.0

    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        if self.delay_s:
            time.sleep(self.delay_s)
        return super().write(file, buffer, position)

    def sync(self, file: OpenFile) -> None:
        if self.delay_s:
            time.sleep(self.delay_s)
        super().sync(file)


class Hosted(NamedTuple):
    """One running broker."""

    server: Server
    client: LocalClient
    port: int


class Host:
    """The brokers of one test process."""

    def __init__(self, order: Mapping[str, Any], on_fatal: asyncio.Event) -> None:
        """`order` has the data folder, the number of brokers, their ports (0: any) and settings."""
        self._folder: str = order["folder"]
        self._count: int = order["brokers"]
        self._ports: list[int] = order["ports"]
        self._settings: dict[str, str] = order["settings"]
        self._files = SlowFiles()
        self._tree = MemoryTree()
        self._brokers: dict[int, Hosted] = {}
        self._on_fatal = on_fatal

    async def start(self) -> list[int]:
        """Start all brokers and return their ports. Raises StartupError, ConfigError and ConfigErrors."""
        for broker_id in range(self._count):
            await self._start(broker_id)
        await self._until_all_are_known()
        return [self._brokers[broker_id].port for broker_id in range(self._count)]

    async def stop(self) -> None:
        """Stop all brokers cleanly."""
        for broker_id in reversed(list(self._brokers)):
            await self._brokers.pop(broker_id).server.stop()

    async def run(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run one command and return its result. Raises CommandError, KafkaError and StartupError."""
        match command:
            case "create_topic":
                return await self._create_topic(**arguments)
            case "produce":
                return await self._produce(**arguments)
            case "consume":
                return await self._consume(**arguments)
            case "reset":
                return await self._reset()
            case "slow_disk":
                self._files.delay_s = arguments["delay_ms"] / 1000
                return None
            case "stop_broker":
                return await self._running(arguments["broker_id"], remove=True).server.stop()
            case "start_broker":
                return await self._start(arguments["broker_id"])
        raise CommandError(f"unknown command {command!r}")

    async def _start(self, broker_id: int) -> None:
        if broker_id in self._brokers or broker_id not in range(self._count):
            raise CommandError(f"broker {broker_id} is running, or not one of 0 to {self._count - 1}")
        config = BrokerConfig.from_properties(
            {
                **DEFAULTS,
                "broker.id": str(broker_id),
                "listeners": f"{LISTENER}://127.0.0.1:{self._ports[broker_id]}",
                "log.dirs": os.path.join(self._folder, f"data-{broker_id}"),
                **_replication(self._count),
                **self._settings,
            }
        )
        environment = self._environment()
        server = Server(config, environment)
        try:
            await server.start(on_fatal=self._on_fatal.set)
        except BaseException:
            await server.stop()
            raise
        port = self._ports[broker_id] = server.ports[next(iter(server.ports))]
        listener = config.listeners[0].name
        self._brokers[broker_id] = Hosted(server, LocalClient(server.dispatcher, environment.clock, listener), port)

    def _environment(self) -> Environment:
        environment = replace(environment_of_this_machine(), files=self._files)
        if self._count == 1:
            return environment
        return replace(environment, new_cluster_store=lambda _: MemoryStore(self._tree))

    async def _until_all_are_known(self) -> None:
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        for hosted in self._brokers.values():
            while len((await hosted.client.ask(MetadataRequest(topics=[]))).brokers) < self._count:
                _check_time(deadline_s, f"{self._count} brokers do not know each other")
                await asyncio.sleep(RETRY_S)

    def _running(self, broker_id: int, *, remove: bool = False) -> Hosted:
        if broker_id not in self._brokers:
            raise CommandError(f"broker {broker_id} is not running, expected one of {sorted(self._brokers)}")
        return self._brokers.pop(broker_id) if remove else self._brokers[broker_id]

    @property
    def _any(self) -> LocalClient:
        if not self._brokers:
            raise CommandError("no broker is running")
        return next(iter(self._brokers.values())).client

    async def _controller(self) -> LocalClient:
        controller_id = (await self._any.ask(MetadataRequest(topics=[]))).controller_id
        return self._brokers[controller_id].client if controller_id in self._brokers else self._any

    # -- topics --------------------------------------------------------------------------------------------------------

    async def _create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS)
        (result,) = (await (await self._controller()).ask(request)).topics
        _raise_for(result.error_code, f"topic {name}: {result.error_message}")

    async def _topic(self, name: str, *, create: bool, timeout_s: float = CALL_TIMEOUT_S) -> MetadataResponseTopic:
        """Return the metadata of a topic whose partitions all have leaders here."""
        begin_s = time.monotonic()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        while True:
            (topic,) = (await self._any.ask(request)).topics
            code = ErrorCode(topic.error_code)
            if not code and all(partition.leader_id in self._brokers for partition in topic.partitions):
                found: MetadataResponseTopic = topic
                return found
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and create:
                with suppress(_TopicExistsError):
                    await self._create_topic(name, -1, -1, {})
                create = False
            elif code not in _RETRIABLE and code:
                raise KafkaError(code, f"topic {name!r}: {code.name}")
            elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
                _check_time(begin_s + min(timeout_s, APPEARANCE_S), f"topic {name!r} does not exist")
            _check_time(begin_s + timeout_s, f"topic {name!r} has no leader for each partition")
            await asyncio.sleep(RETRY_S)

    async def _reset(self) -> None:
        """Delete all topics of users and all groups, with their members."""
        found = (await self._any.ask(MetadataRequest(topics=None))).topics
        names = [topic.name for topic in found if not topic.is_internal]
        if names:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
                timeout_ms=REQUEST_TIMEOUT_MS,
            )
            for result in (await (await self._controller()).ask(request)).responses:
                if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    _raise_for(result.error_code, f"topic {result.name}: {result.error_message}")
        for hosted in list(self._brokers.values()):
            await _delete_groups(hosted.client)

    # -- records -------------------------------------------------------------------------------------------------------

    async def _produce(self, topic: str, records: Sequence[Mapping[str, Any]]) -> None:
        partitions = len((await self._topic(topic, create=True)).partitions)
        pending: dict[int, list[RecordData]] = {}
        for number, fields in enumerate(records):
            record = _record_of(fields)
            index = fields.get("partition")
            if index is None:
                index = number % partitions if record.key is None else zlib.crc32(record.key) % partitions
            if not 0 <= index < partitions:
                raise CommandError(f"partition {index} of topic {topic!r}: expected one of 0 to {partitions - 1}")
            pending.setdefault(index, []).append(record)
        for index, kept in pending.items():
            for batch in _batches_of(kept):
                await self._append(topic, index, batch)

    async def _append(self, topic: str, index: int, batch: bytes) -> None:
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])]
        request = ProduceRequest(acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=data)
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        while True:
            response = await (await self._leader(topic, index)).ask(request)
            (result,) = response.responses[0].partition_responses
            if result.error_code not in _RETRIABLE or time.monotonic() > deadline_s:
                return _raise_for(result.error_code, f"{topic}-{index}: {result.error_message}")
            await asyncio.sleep(RETRY_S)

    async def _leader(self, topic: str, index: int) -> LocalClient:
        for partition in (await self._topic(topic, create=False)).partitions:
            if partition.partition_index == index:
                return self._brokers[partition.leader_id].client
        raise CommandError(f"topic {topic!r} has no partition {index}")

    async def _consume(self, topic: str, positions: Mapping[str, int], timeout_s: float) -> Mapping[str, Any]:
        """Return the committed records from `positions` (by partition, absent: the earliest) on, and where they end."""
        found: list[Mapping[str, Any]] = []
        ends: dict[str, int] = {}
        partitions = (await self._topic(topic, create=False, timeout_s=timeout_s)).partitions
        for partition in sorted(partitions, key=lambda one: one.partition_index):
            index = partition.partition_index
            client = self._brokers[partition.leader_id].client
            ends[str(index)] = await _read_partition(client, topic, index, positions.get(str(index), 0), found)
        return {"records": found, "positions": ends}


async def _read_partition(
    client: LocalClient, topic: str, index: int, offset: int, found: list[Mapping[str, Any]]
) -> int:
    """Add the committed records from `offset` on to `found`; return the next offset."""
    ended: dict[int, int] = {}
    while True:
        data = await _fetched(client, topic, index, offset)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < data.log_start_offset:
            offset = data.log_start_offset
            continue
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return offset
        _raise_for(data.error_code, f"{topic}-{index} at offset {offset}")
        buffer = bytes(data.records or b"")
        aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
        start = offset
        for position, header in batches(buffer):
            while aborted and aborted[0][0] <= header.base_offset:
                first_offset, producer_id = aborted.pop(0)
                ended[producer_id] = first_offset
            next_offset = header.next_offset
            if header.is_control:
                ended.pop(header.producer_id, None)
            elif not (header.is_transactional and header.producer_id in ended):
                opened = records(buffer, position, size_max=OPENED_BYTES_MAX)
                found.extend(_fields_of(index, record) for record in opened if record.offset >= offset)
            offset = max(offset, next_offset)
        if offset == start:
            return offset


async def _fetched(client: LocalClient, topic: str, index: int, offset: int) -> PartitionData:
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=_READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    data: PartitionData = (await client.ask(request, _FETCH_VERSION)).responses[0].partitions[0]
    return data


async def _delete_groups(client: LocalClient) -> None:
    """Delete the groups that this broker coordinates; members that are still there leave first."""
    groups = [group.group_id for group in (await client.ask(ListGroupsRequest())).groups]
    if not groups:
        return
    for group in (await client.ask(DescribeGroupsRequest(groups=groups))).groups:
        if group.members:
            members = [MemberIdentity(member_id=one.member_id) for one in group.members]
            await client.ask(LeaveGroupRequest(group_id=group.group_id, members=members))
    for result in (await client.ask(DeleteGroupsRequest(groups_names=groups))).results:
        if result.error_code not in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP}:
            _raise_for(result.error_code, f"group {result.group_id}")


class _TopicExistsError(KafkaError):
    """Another request created the topic at the same time."""


def _raise_for(code: int, what: str) -> None:
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:
        raise _TopicExistsError(ErrorCode(code), what)
    if code:
        raise KafkaError(ErrorCode(code), f"{ErrorCode(code).name}: {what}")


def _check_time(deadline_s: float, what: str) -> None:
    if time.monotonic() > deadline_s:
        raise CommandError(what)


def _replication(brokers: int) -> dict[str, str]:
    copies = str(min(brokers, 3))
    settings = {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(brokers, 2)),
    }
    return settings if brokers == 1 else {**settings, "zookeeper.connect": "memory:2181"}


def _record_of(fields: Mapping[str, Any]) -> RecordData:
    timestamp_ms = fields.get("timestamp_ms")
    return RecordData(
        time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
        _decoded(fields.get("key")),
        _decoded(fields.get("value")),
        [(name, _decoded(value)) for name, value in fields.get("headers", ())],
    )


def _fields_of(index: int, record: Record) -> Mapping[str, Any]:
    return {
        "partition": index,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": _encoded(record.key),
        "value": _encoded(record.value),
        "headers": [(name, _encoded(value)) for name, value in record.headers],
    }


PRELOADED = (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    ProduceRequest,
)
"""The requests of this module. At first use, the imports of their handlers would delay `reset`."""


def _batches_of(pending: Iterable[RecordData]) -> Iterable[bytes]:
    """Yield record batches of bounded size."""
    gathered: list[RecordData] = []
    size = 0
    for record in pending:
        gathered.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if size >= BATCH_BYTES_MAX:
            yield build_batch(gathered)
            gathered, size = [], 0
    if gathered:
        yield build_batch(gathered)


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


# -- the process -------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Host brokers until the socket ends whose descriptor is the argument; return the exit status."""
    (descriptor,) = sys.argv[1:] if arguments is None else arguments
    parent_id = os.getppid()
    _continue_when_parent_dies()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the tests, and they stop their brokers
    log_to_stderr(logging.INFO)
    return run_in_loop(_serve(socket.socket(fileno=int(descriptor)), parent_id))


def preload() -> None:
    """Import what most brokers for tests use, and compile its codecs, before brokers are forked."""
    for request in PRELOADED:
        api = APIS[message_info(request).api_key]
        request_decoder(TABLE[api.key], api, api.versions[-1])
        encoder(api.response, api.versions[-1])


def _continue_when_parent_dies() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


async def _serve(control: socket.socket, parent_id: int) -> int:
    reader, writer = await asyncio.open_connection(sock=control)
    order = await _received(reader)
    if order is None:
        return 1
    failed = asyncio.Event()
    asyncio.get_running_loop().call_soon(_watch_parent, parent_id, order)
    host = Host(order, failed)
    try:
        _send(writer, order, {"result": await host.start()})
    except (StartupError, ConfigError, ConfigErrors, OSError) as error:
        _send(writer, order, {"error": str(error)})
        await writer.drain()
        return 1
    ended = asyncio.create_task(failed.wait())
    while True:
        receiving = asyncio.ensure_future(_received(reader))
        await asyncio.wait({receiving, ended}, return_when=asyncio.FIRST_COMPLETED)
        request = receiving.result() if receiving.done() else {"command": "stop", "number": None}
        if request is None:
            _end(order)
        elif request["command"] == "stop":
            await host.stop()
            _send(writer, request, {"result": None})
            await writer.drain()
            return int(failed.is_set())
        else:
            _send(writer, request, await _outcome(host, request))
            await writer.drain()


async def _outcome(host: Host, request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return {"result": await host.run(request["command"], request["arguments"])}
    except (CommandError, KafkaError, StartupError, ConfigError, ConfigErrors, OSError) as error:
        return {"error": str(error)}


def _watch_parent(parent_id: int, order: Mapping[str, Any]) -> None:
    if os.getppid() != parent_id:
        _end(order)
    asyncio.get_running_loop().call_later(PARENT_CHECK_S, _watch_parent, parent_id, order)


def _end(order: Mapping[str, Any]) -> None:
    """End this process immediately, because no process is left that reads its data."""
    for _ in range(REMOVALS_MAX if order["is_temporary"] else 0):
        shutil.rmtree(order["folder"], ignore_errors=True)  # a thread of the broker may still create a file in it
    os._exit(0)


async def _received(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next message of the parent; None if it has ended."""
    try:
        (size,) = FRAME_LENGTH.unpack(await reader.readexactly(FRAME_LENGTH.size))
        message: dict[str, Any] = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message


def _send(writer: asyncio.StreamWriter, request: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
    """Send what became of a request, with its number."""
    data = json.dumps({"number": request["number"], **outcome}).encode()
    writer.write(FRAME_LENGTH.pack(len(data)) + data)


if __name__ == "__main__":
    raise SystemExit(main())
