"""Measures how much one connection can harm another: `python -m bench.attacks [--case NAME ...] [--list]`.

Owns: the attacks, a second connection that requests ApiVersions continuously, and the readings of the broker's memory.
For each attack it prints what was sent, the result, the longest round trip of the other connection and the growth of
resident memory. Of the broker's limits it knows only those of elements, to stay just below them.

Named attacks are ways in which few bytes may exhaust or stall a broker. One generated attack for every list of every
request that the broker serves sends as many of the smallest elements as the broker accepts in 1 MiB.

The goals (docs/bench.md): no round trip above 50 ms; memory grows by at most 20 MiB plus four times what was
sent, and is within 20 MiB of its start ten seconds later. The machine's own noise is printed first.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import zstandard
from crc32c import crc32c

from bench.processes import PeakMemory, resident_mib
from broker.requests.budget import elements_max
from broker.requests.routes import TABLE
from broker.security.acls import Operation, PatternType, Permission, ResourceType
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.frame import LENGTH
from protocol.headers import read_response_header, request_header
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.reader import size_min
from protocol.records.batch import HEADER_SIZE
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.schema import REQUIRED, ZERO_UUID, Field, Struct
from protocol.writer import uvarint
from tests.support.broker import BrokerProcess

MIB = 1 << 20
GENERATED_SIZE = 1 * MIB
PING_INTERVAL_S = 0.002
PING_TIMEOUT_S = 60.0
RESPONSE_TIMEOUT_S = 60.0
SETTLE_S = 10.0
TOPIC = "attacked"
GROUP = "attacked-group"

ROUND_TRIP_GOAL_MS = 50.0
GROWTH_GOAL_MIB = 20.0
GROWTH_PER_BYTE_GOAL = 4.0


class Closed(Exception):  # noqa: N818 - it is how most attacks end
    """The broker closed the connection."""


class Client:
    """One connection that sends requests and raw frames and reads whole responses."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), RESPONSE_TIMEOUT_S)
        self.sent_size = 0
        self.received_size = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, frame: bytes | memoryview) -> None:
        """Send one frame. Raises Closed."""
        try:
            self._socket.sendall(LENGTH.pack(len(frame)))
            self._socket.sendall(frame)
        except ConnectionError as error:
            raise Closed from error
        self.sent_size += LENGTH.size + len(frame)

    def receive(self) -> bytearray:
        """Return one response frame. Raises Closed."""
        (size,) = LENGTH.unpack(self._receive(LENGTH.size))
        self.received_size += LENGTH.size + int(size)
        return self._receive(size)

    def ask(self, request: object, version: int) -> Any:
        """Send a request; return its response. Raises Closed."""
        api = next(api for api in APIS.values() if api.request is type(request))
        self.send(framed(request, version))
        response = self.receive()
        _, position = read_response_header(api.key, version, response)
        return decode(api.response, version, response, position)

    def _receive(self, size: int) -> bytearray:
        received = bytearray(size)
        view = memoryview(received)
        while view:
            try:
                count = self._socket.recv_into(view)
            except ConnectionError as error:
                raise Closed from error
            if not count:
                raise Closed
            view = view[count:]
        return received


def framed(request: object, version: int) -> bytes:
    """Return header and body of a request."""
    api = next(api for api in APIS.values() if api.request is type(request))
    return request_header(api.key, version, 1, "attacker") + b"".join(encode(request, version))


# --- the other connection ---------------------------------------------------------------------------------------------


def ping(port: int, pipe: Pipe) -> None:
    """Request ApiVersions continuously; for each message on `pipe`, send the longest round trip since the last."""
    frame = framed(ApiVersionsRequest(), 0)
    frame = LENGTH.pack(len(frame)) + frame
    with socket.create_connection(("127.0.0.1", port), PING_TIMEOUT_S) as stream:
        longest_s = 0.0
        while True:
            started = time.perf_counter()
            stream.sendall(frame)
            (size,) = LENGTH.unpack(stream.recv(LENGTH.size, socket.MSG_WAITALL))
            stream.recv(size, socket.MSG_WAITALL)
            longest_s = max(longest_s, time.perf_counter() - started)
            if pipe.poll(PING_INTERVAL_S):
                if pipe.recv() is None:
                    return
                pipe.send(longest_s * 1000)
                longest_s = 0.0


class Neighbour:
    """A process with the second connection."""

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=ping, args=(port, theirs), daemon=True)
        self._process.start()

    def longest_ms(self) -> float:
        """Return the longest round trip since the last call."""
        self._pipe.send(True)
        return float(self._pipe.recv())

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join()


# --- attacks ----------------------------------------------------------------------------------------------------------

Attack = Callable[[Client], None]


def repeated(request: object, version: int, count: int) -> Attack:
    """Send one request `count` times and read each response."""

    def attack(client: Client) -> None:
        frame = framed(request, version)
        for _ in range(count):
            client.send(frame)
            client.receive()

    return attack


def crowd(request: object, version: int, connections: int) -> Attack:
    """Send one request on each of many connections, then read all responses."""

    def attack(client: Client) -> None:
        frame = framed(request, version)
        others = [Client(client.port) for _ in range(connections)]
        for each in others:
            each.send(frame)
        for each in others:
            each.receive()
            each.close()
        client.sent_size = sum(each.sent_size for each in others)
        client.received_size = sum(each.received_size for each in others)

    return attack


def raw(frame: bytes) -> Attack:
    def attack(client: Client) -> None:
        client.send(frame)
        client.receive()

    return attack


def zstd_bomb(version: int, count: int) -> Attack:
    """Send a batch whose few kilobytes open to 200 MB, in a version of Produce that may reject it."""
    plain_size = 200_000_000
    batch = bytearray(build_batch([RecordData(0, None, b"x")], compression=Compression.ZSTD))
    batch[HEADER_SIZE:] = zstandard.ZstdCompressor().compress(bytes(plain_size))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    data = made(PartitionProduceData, index=0, records=bytes(batch))
    request = made(
        ProduceRequest, acks=1, timeout_ms=1000, topic_data=[made(TopicProduceData, name=TOPIC, partition_data=[data])]
    )
    return repeated(request, version, count)


def header_tags(size: int) -> bytes:
    """Return an ApiVersions request whose header has as many tagged fields as fit."""
    header = request_header(18, 3, 1, "attacker")[:-1]
    tags = bytearray()
    count = 0
    while len(tags) < size:
        tags += uvarint(count) + b"\0"
        count += 1
    return header + uvarint(count) + bytes(tags) + b"\1\1\0"


def empty_topics(size: int) -> bytes:
    """Return a Produce request of topics without names and partitions."""
    return framed(
        made(
            ProduceRequest,
            acks=1,
            timeout_ms=1,
            topic_data=[made(TopicProduceData, name="", partition_data=[])] * (size // 3),
        ),
        9,
    )


def unknown_topics(count: int) -> Any:
    topics = [made(MetadataRequestTopic, name=f"t{number:x}") for number in range(count)]
    return made(MetadataRequest, topics=topics, allow_auto_topic_creation=False)


def topic_of(partitions: int, name: str = "wide") -> Any:
    topic = made(CreatableTopic, name=name, num_partitions=partitions, replication_factor=1)
    return made(CreateTopicsRequest, topics=[topic], timeout_ms=60_000)


def topic_grown_to(partitions: int, name: str) -> Any:
    topic = made(CreatePartitionsTopic, name=name, count=partitions, assignments=None)
    return made(CreatePartitionsRequest, topics=[topic], timeout_ms=60_000)


def produce_everywhere(partitions: int) -> Any:
    batch = build_batch([RecordData(0, None, b"x")])
    data = [made(PartitionProduceData, index=index, records=batch) for index in range(partitions)]
    return made(
        ProduceRequest, acks=1, timeout_ms=1000, topic_data=[made(TopicProduceData, name="wide", partition_data=data)]
    )


def fetch_everywhere(partitions: int) -> Any:
    wanted = [
        made(FetchPartition, partition=index, fetch_offset=0, partition_max_bytes=MIB) for index in range(partitions)
    ]
    return made(
        FetchRequest,
        max_wait_ms=100,
        min_bytes=10 * MIB,
        max_bytes=10 * MIB,
        topics=[made(FetchTopic, topic="wide", partitions=wanted)],
    )


def one_topic_often(count: int) -> Any:
    resource = made(DescribeConfigsResource, resource_type=2, resource_name=TOPIC, configuration_keys=None)
    return made(DescribeConfigsRequest, resources=[resource] * count)


def one_broker_often(count: int) -> Any:
    resource = made(DescribeConfigsResource, resource_type=4, resource_name="0", configuration_keys=None)
    return made(DescribeConfigsRequest, resources=[resource] * count, include_synonyms=True, include_documentation=True)


def one_group_often(count: int) -> Any:
    return made(OffsetFetchRequest, groups=[made(OffsetFetchRequestGroup, group_id=GROUP, topics=None)] * count)


def commit(topic: str, partitions: int) -> Any:
    committed = [
        made(OffsetCommitRequestPartition, partition_index=index, committed_offset=index, committed_metadata="")
        for index in range(partitions)
    ]
    return made(
        OffsetCommitRequest, group_id=GROUP, topics=[made(OffsetCommitRequestTopic, name=topic, partitions=committed)]
    )


NAMED: Mapping[str, Callable[[], Attack]] = {
    "zstd bomb, refused (20 x 6 KB that open to 200 MB)": lambda: zstd_bomb(3, 20),
    "zstd bomb, opened (5 x 6 KB that open to 200 MB)": lambda: zstd_bomb(9, 5),
    "Metadata of 1 MiB of empty names": lambda: raw(
        framed(made(MetadataRequest, topics=[made(MetadataRequestTopic, name="")] * (MIB // 2)), 9)
    ),
    "Metadata of 8 MiB of empty names": lambda: raw(
        framed(made(MetadataRequest, topics=[made(MetadataRequestTopic, name="")] * (4 * MIB)), 9)
    ),
    "Produce of 1 MiB of empty topics": lambda: raw(empty_topics(MIB)),
    "Produce of 90 MiB of empty topics": lambda: raw(empty_topics(90 * MIB)),
    "JoinGroup of 1 MiB of empty protocols": lambda: raw(
        framed(
            made(
                JoinGroupRequest,
                group_id="g",
                session_timeout_ms=6000,
                member_id="",
                protocol_type="consumer",
                protocols=[made(JoinGroupRequestProtocol, name="", metadata=b"")] * (MIB // 3),
            ),
            6,
        )
    ),
    "ApiVersions with 1 MiB of tags in its header": lambda: raw(header_tags(MIB)),
    "DescribeConfigs naming a topic 1,000 times": lambda: repeated(one_topic_often(1000), 4, 1),
    "DescribeConfigs naming the broker 200 times": lambda: repeated(one_broker_often(200), 4, 1),
    "OffsetFetch naming a group of 300 offsets 1,000 times": lambda: repeated(one_group_often(1000), 8, 1),
    "FindCoordinator with 175,000 keys": lambda: repeated(
        made(FindCoordinatorRequest, key_type=0, coordinator_keys=[f"{number:x}" for number in range(175_000)]), 4, 1
    ),
    "FindCoordinator with 60,000 keys": lambda: repeated(
        made(FindCoordinatorRequest, key_type=0, coordinator_keys=[f"{number:x}" for number in range(60_000)]), 4, 1
    ),
    "Metadata of 50,000 unknown topics": lambda: repeated(unknown_topics(50_000), 9, 1),
    "Metadata of 3,900 unknown topics on 200 connections": lambda: crowd(unknown_topics(3900), 9, 200),
    "Metadata of 45 unknown topics on 1,000 connections": lambda: crowd(unknown_topics(45), 9, 1000),
    "OffsetCommit of 3,900 partitions on 200 connections": lambda: crowd(commit("wide", 3900), 8, 200),
    "CreateTopics of 1,000 partitions": lambda: repeated(topic_of(1000), 5, 1),
    "the first Produce to 1,000 partitions": lambda: repeated(produce_everywhere(1000), 9, 1),
    "Fetch of 1,000 partitions, 5 times": lambda: repeated(fetch_everywhere(1000), 11, 5),
    "OffsetCommit of 50,000 partitions": lambda: repeated(commit("wide", 50_000), 8, 1),
    "OffsetFetch of those": lambda: repeated(one_group_often(1), 8, 1),
    "DeleteTopics of 1,000 partitions": lambda: repeated(
        made(DeleteTopicsRequest, topic_names=["wide"], timeout_ms=60_000),
        5,
        1,
    ),
    "CreateTopics of 2,500 partitions": lambda: repeated(topic_of(2500, "wider"), 5, 1),
    "CreatePartitions from 2,500 to 5,000": lambda: repeated(topic_grown_to(5000, "wider"), 3, 1),
    "DeleteTopics of 5,000 partitions": lambda: repeated(
        made(DeleteTopicsRequest, topic_names=["wider"], timeout_ms=60_000), 5, 1
    ),
}


# --- generated attacks: every list of every request -------------------------------------------------------------------


def generated() -> Iterator[tuple[str, Callable[[], Attack]]]:
    for key in sorted(TABLE):
        api = APIS[key]
        version = api.versions[-1]
        for path in list_paths(api.request, version):
            name = f"{api.name} v{version}: {'.'.join(field.name for field in path)}"
            count_max = elements_max(TABLE[key].API.elements, 0) // _elements_of_one(path[-1], version) - 100
            send = partial(_sent_stuffed, api.request, version, path, count_max)
            yield f"{name}, the same", partial(send, is_distinct=False)
            if has_distinct(path[-1], version):
                yield f"{name}, distinct", partial(send, is_distinct=True)


def _elements_of_one(field: Field, version: int) -> int:
    """Return the count of one element of the list: itself and the lists in it."""
    inner = () if field.struct is None else field.struct.__fields__
    return 1 + sum(each.is_array and each.is_in(version) for each in inner)


def list_paths(cls: type[Struct], version: int) -> Iterator[tuple[Field, ...]]:
    """Yield the path of fields to each list of a message, the list itself last."""
    for field in cls.__fields__:
        if not field.is_in(version):
            continue
        if field.is_array:
            yield (field,)
        if field.struct is not None:
            for path in list_paths(field.struct, version):
                yield (field, *path)


def _sent_stuffed(
    cls: type[Struct], version: int, path: Sequence[Field], count_max: int, *, is_distinct: bool
) -> Attack:
    def attack(client: Client) -> None:
        client.send(framed(stuffed(cls, version, path, count_max, is_distinct=is_distinct), version))
        client.receive()

    return attack


def stuffed(cls: type[Struct], version: int, path: Sequence[Field], count_max: int, *, is_distinct: bool) -> Any:
    """Return the smallest request whose list at `path` has as many of the smallest elements as fit into 1 MiB.

    `count_max` limits their number. Distinct elements have different names or numbers.
    """
    request = smallest(cls)
    _stuff(request, version, path, count_max, is_distinct=is_distinct)
    return request


def has_distinct(field: Field, version: int) -> bool:
    """Return whether the elements of this list have a name or number that can differ."""
    return _named_field(field, version) is not None


def _stuff(value: Any, version: int, path: Sequence[Field], count_max: int, *, is_distinct: bool) -> None:
    field, *rest = path
    if not rest:
        setattr(value, field.name, _elements(field, version, count_max, is_distinct=is_distinct))
        return
    assert field.struct is not None
    inner = smallest(field.struct)
    _stuff(inner, version, rest, count_max, is_distinct=is_distinct)
    setattr(value, field.name, [inner] if field.is_array else inner)


def _elements(field: Field, version: int, count_max: int, *, is_distinct: bool) -> list[Any]:
    def count(size: int) -> int:
        return min(GENERATED_SIZE // size, count_max)

    if field.struct is None:
        assert field.wire is not None
        if is_distinct:
            return [f"{number:x}" for number in range(count(7))]
        if field.wire.letter:
            size = struct.calcsize(field.wire.letter)
            return [number % (1 << (8 * size - 1)) for number in range(count(size))]
        return [_smallest_value(field)] * count(16 if field.wire.name == "uuid" else 2)
    size = size_min(field.struct, version, is_flexible=True)
    if not is_distinct:
        return [smallest(field.struct)] * count(size)
    name = _named_field(field, version)
    assert name is not None
    elements = []
    for number in range(count(size + 6)):
        element = smallest(field.struct)
        setattr(element, name.name, f"{number:x}" if name.wire and not name.wire.letter else number)
        elements.append(element)
    return elements


def _named_field(field: Field, version: int) -> Field | None:
    """Return the field that identifies an element of a list: its first string or int32; None for lists of numbers."""
    if field.struct is None:
        return field if field.wire is not None and field.wire.name == "string" else None
    for inner in field.struct.__fields__:
        is_single = inner.is_in(version) and not inner.is_array and inner.tag is None
        if is_single and inner.wire is not None and inner.wire.name in ("string", "int32"):
            return inner
    return None


def smallest(cls: type) -> Any:
    """Return the message or struct with the fewest bytes."""
    assert issubclass(cls, Struct)
    values: dict[str, object] = {}
    for field in cls.__fields__:
        if field.default is not REQUIRED:
            continue
        if field.is_array:
            values[field.name] = []
        elif field.struct is not None:
            values[field.name] = smallest(field.struct)
        else:
            values[field.name] = _smallest_value(field)
    return cls(**values)


def made(cls: type, **values: object) -> Any:
    """Return the smallest `cls` with `values`."""
    value = smallest(cls)
    for name, field_value in values.items():
        setattr(value, name, field_value)
    return value


def _smallest_value(field: Field) -> object:
    assert field.wire is not None
    if field.wire.letter:
        return 0
    return {"uuid": ZERO_UUID, "string": "", "bytes": b"", "records": b""}[field.wire.name]


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The result of one attack."""

    name: str
    sent_size: int
    received_size: int
    ending: str
    longest_ms: float
    growth_mib: float
    settled_mib: float | None

    @property
    def is_within_goals(self) -> bool:
        allowed_mib = GROWTH_GOAL_MIB + GROWTH_PER_BYTE_GOAL * self.sent_size / MIB
        return (
            self.longest_ms <= ROUND_TRIP_GOAL_MS
            and self.growth_mib <= allowed_mib
            and (self.settled_mib is None or self.settled_mib <= GROWTH_GOAL_MIB)
        )


def attack_once(
    name: str, make: Callable[[], Attack], broker: BrokerProcess, neighbour: Neighbour, *, settle: bool
) -> Outcome:
    attack = make()
    peak = PeakMemory(broker.pid)
    peak.reset()
    before_mib = resident_mib(broker.pid)
    neighbour.longest_ms()
    client = Client(broker.port)
    try:
        attack(client)
        ending = "response"
    except Closed:
        ending = "closed"
    except TimeoutError:
        ending = "no response"
    finally:
        client.close()
    time.sleep(0.1)
    longest_ms = neighbour.longest_ms()
    growth_mib = peak.mib() - before_mib
    settled_mib = None
    if settle:
        time.sleep(SETTLE_S)
        settled_mib = resident_mib(broker.pid) - before_mib
    return Outcome(name, client.sent_size, client.received_size, ending, longest_ms, growth_mib, settled_mib)


def acl_of_another_user(kind: ResourceType) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name="*",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:another",
        host="*",
        operation=Operation.ALL,
        permission_type=Permission.ALLOW,
    )


@contextmanager
def broker_under_attack(*, with_acls: bool) -> Iterator[tuple[BrokerProcess, Neighbour]]:
    """`with_acls` denies the attacker every topic, group and transaction."""
    overrides = {"auto.create.topics.enable": "false", "log.cleaner.enable": "false"}
    if with_acls:
        overrides |= {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder) / "broker", overrides) as broker:
        client = Client(broker.port)
        for name, partitions in ((TOPIC, 1), ("held", 300)):
            topic = made(CreatableTopic, name=name, num_partitions=partitions, replication_factor=1)
            client.ask(made(CreateTopicsRequest, topics=[topic], timeout_ms=10_000), 5)
        while client.ask(made(FindCoordinatorRequest, key=GROUP), 1).error_code:
            time.sleep(0.1)
        while client.ask(commit("held", 300), 8).topics[0].partitions[0].error_code:
            time.sleep(0.1)
        if with_acls:
            kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
            results = client.ask(CreateAclsRequest(creations=[acl_of_another_user(kind) for kind in kinds]), 3).results
            assert not any(result.error_code for result in results), results
        client.close()
        neighbour = Neighbour(broker.port)
        try:
            yield broker, neighbour
        finally:
            neighbour.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--case", action="append", help="only attacks whose name contains this text")
    parser.add_argument("--list", action="store_true", help="print the names of the attacks")
    parser.add_argument("--no-settle", action="store_true", help="do not wait ten seconds for memory to be given back")
    parser.add_argument("--acls", action="store_true", help="by a client whose requests the ACLs deny")
    options = parser.parse_args(arguments)
    attacks = [*NAMED.items(), *generated()]
    if options.case:
        attacks = [attack for attack in attacks if any(text in attack[0] for text in options.case)]
    if options.list:
        print("\n".join(name for name, _ in attacks))
        return 0
    with broker_under_attack(with_acls=options.acls) as (broker, neighbour):
        neighbour.longest_ms()
        time.sleep(2)
        print(f"without an attack: {neighbour.longest_ms():.1f} ms, {resident_mib(broker.pid):.0f} MiB")
        print(f"{'attack':70} {'sent':>10} {'received':>10} {'ending':>9} {'ms':>7} {'MiB':>7} {'settled':>8}")
        outcomes = []
        for name, make in attacks:
            settle = not options.no_settle and name in NAMED
            outcome = attack_once(name, make, broker, neighbour, settle=settle)
            outcomes.append(outcome)
            settled = "" if outcome.settled_mib is None else f"{outcome.settled_mib:.0f}"
            print(
                f"{name:70} {outcome.sent_size:10,} {outcome.received_size:10,} {outcome.ending:>9} "
                f"{outcome.longest_ms:7.1f} {outcome.growth_mib:7.1f} {settled:>8}"
                f"{'' if outcome.is_within_goals else '  <- beyond the goals'}",
                flush=True,
            )
        beyond = sum(not outcome.is_within_goals for outcome in outcomes)
        print(f"{len(outcomes)} attacks, {beyond} beyond the goals")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
