"""The commands of `milena_broker.testing` that clients of the brokers perform: topics and records.

Owns what they do. Must not know how a broker is reached, or in which process it is.
"""

from __future__ import annotations

import asyncio
import base64
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

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
from protocol.schema import ZERO_UUID

REQUEST_TIMEOUT_MS = 10_000
CALL_TIMEOUT_S = 10.0
APPEARANCE_S = 1.0
"""How long a topic that was created may be unknown to the other brokers."""
RETRY_S = 0.005
BATCH_BYTES_MAX = 512 << 10
FETCH_BYTES_MAX = 4 << 20
OPENED_BYTES_MAX = 256 << 20
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


class CommandError(Exception):
    """A command failed; the text names the value and what was expected."""


class Client(Protocol):
    """A client of one broker."""

    async def ask(self, request: object, version: int | None = None) -> Any:
        """Return the response to a request in `version` (default: the latest)."""
        ...


class Commands:
    """`clients` are those of the brokers that run, by their ids."""

    def __init__(self, clients: Mapping[int, Client], appearance_s: float = APPEARANCE_S) -> None:
        """A topic of which a broker knows nothing for `appearance_s` does not exist."""
        self._clients = clients
        self._appearance_s = appearance_s

    async def run(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run one command and return its result. Raises CommandError and KafkaError."""
        match command:
            case "create_topic":
                return await self._create_topic(**arguments)
            case "produce":
                return await self._produce(**arguments)
            case "consume":
                return await self._consume(**arguments)
            case "reset":
                return await self._reset()
            case "leader_of":
                return await self._leader_of(**arguments)
        raise CommandError(f"unknown command {command!r}")

    async def until_all_know(self, count: int) -> None:
        """Return when every broker knows that many brokers."""
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        for client in self._clients.values():
            while len((await client.ask(MetadataRequest(topics=[]))).brokers) < count:
                check_time(deadline_s, f"{count} brokers do not know each other")
                await asyncio.sleep(RETRY_S)

    async def _leader_of(self, topic: str, partition: int) -> int:
        for found in (await self._topic(topic, create=False)).partitions:
            if found.partition_index == partition:
                leader_id: int = found.leader_id
                return leader_id
        raise CommandError(f"topic {topic!r} has no partition {partition}")

    @property
    def _any(self) -> Client:
        if not self._clients:
            raise CommandError("no broker is running")
        return next(iter(self._clients.values()))

    async def _controller(self) -> Client:
        controller_id = (await self._any.ask(MetadataRequest(topics=[]))).controller_id
        return self._clients.get(controller_id, self._any)

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
            if not code and all(partition.leader_id in self._clients for partition in topic.partitions):
                found: MetadataResponseTopic = topic
                return found
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and create:
                with suppress(_TopicExistsError):
                    await self._create_topic(name, -1, -1, {})
                create = False
            elif code not in _RETRIABLE and code:
                raise KafkaError(code, f"topic {name!r}: {code.name}")
            elif code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
                check_time(begin_s + min(timeout_s, self._appearance_s), f"topic {name!r} does not exist")
            check_time(begin_s + timeout_s, f"topic {name!r} has no leader for each partition")
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
        for client in list(self._clients.values()):
            await _delete_groups(client)

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

    async def _leader(self, topic: str, index: int) -> Client:
        return self._clients[await self._leader_of(topic, index)]

    async def _consume(self, topic: str, positions: Mapping[str, int], timeout_s: float) -> Mapping[str, Any]:
        """Return the committed records from `positions` (by partition, absent: the earliest) on, and where they end."""
        found: list[Mapping[str, Any]] = []
        ends: dict[str, int] = {}
        partitions = (await self._topic(topic, create=False, timeout_s=timeout_s)).partitions
        for partition in sorted(partitions, key=lambda one: one.partition_index):
            index = partition.partition_index
            client = self._clients[partition.leader_id]
            ends[str(index)] = await _read_partition(client, topic, index, positions.get(str(index), 0), found)
        return {"records": found, "positions": ends}


async def _read_partition(client: Client, topic: str, index: int, offset: int, found: list[Mapping[str, Any]]) -> int:
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


async def _fetched(client: Client, topic: str, index: int, offset: int) -> PartitionData:
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=_READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    data: PartitionData = (await client.ask(request, _FETCH_VERSION)).responses[0].partitions[0]
    return data


async def _delete_groups(client: Client) -> None:
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


def check_time(deadline_s: float, what: str) -> None:
    if time.monotonic() > deadline_s:
        raise CommandError(what)


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
