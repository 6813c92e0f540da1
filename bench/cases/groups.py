"""Cases about consumer groups: commits, rebalances, and the load of a coordinator after a restart.

Every group has real members, which have joined a generation and stay in it while they commit.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from statistics import median
from typing import NamedTuple, Self, TypeVar

from bench import machine
from bench.admin import ask, check_greeting, create_topic, greeting
from bench.case import HIGHER, LOWER, Case
from bench.client import RepeatingStream, closed_loop, connect, receive_frame
from bench.frames import SIZE_FIELD, offset_commit_frame, offset_commit_response_layout, request_frame
from bench.measures import Measure, Values, absolute, times
from bench.processes import MIB, resident_mib
from bench.scale import Scale
from bench.servers import Server
from bench.subject import Subject, closing_all, running
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
)
from protocol.errors import ErrorCode
from protocol.headers import read_response_header
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

JOIN_VERSION = 3
"""The last version in which a member joins without a second request."""
SYNC_VERSION = 3
DESCRIBE_GROUPS_VERSION = 1
OFFSET_FETCH_VERSION = 5
FIND_COORDINATOR_VERSION = 2
ASSIGNOR = "range"
SESSION_TIMEOUT_MS = 300_000
REBALANCE_TIMEOUT_MS = 60_000
MEMBERS = 100
PARTITIONS = 1000
REBALANCES = 5
OLD_COMMITS = 1_000_000
PARTITIONS_A_COMMIT = 100
COORDINATOR_TIMEOUT_S = 120.0
ASK_AGAIN_AFTER_S = 0.01
LOOK_AGAIN_AFTER_S = 0.001
BUFFER_SIZE = MIB
COMING_UP = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Response = TypeVar("Response")

_numbers = count()


class Membership(NamedTuple):
    """The member's id and generation from its join response."""

    member_id: str
    generation_id: int
    leads: bool


class Member:
    """One member on its own connection; the caller decides when it sends and receives."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        self.connection = connect(port)
        self.member_id = ""
        self._group = group
        self._buffer = memoryview(bytearray(BUFFER_SIZE))
        self._topic = topic
        self._joins = 0

    def send_join(self) -> None:
        """Send JoinGroup with new metadata each time, like a cooperative member; otherwise no rebalance begins."""
        self._joins += 1
        subscription = ConsumerProtocolSubscription(topics=[self._topic], user_data=b"%d" % self._joins)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=_versioned(subscription))],
        )
        self.connection.sendall(request_frame(request, JOIN_VERSION))

    def receive_join(self) -> Membership:
        response = self._receive(JoinGroupResponse, JOIN_VERSION)
        _expect(response.error_code, "JoinGroup")
        self.member_id = response.member_id
        return Membership(response.member_id, response.generation_id, response.leader == response.member_id)

    def send_sync(self, generation_id: int, assignments: Sequence[SyncGroupRequestAssignment] = ()) -> None:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=generation_id,
            member_id=self.member_id,
            assignments=list(assignments),
        )
        self.connection.sendall(request_frame(request, SYNC_VERSION))

    def receive_sync(self) -> bytes:
        response = self._receive(SyncGroupResponse, SYNC_VERSION)
        _expect(response.error_code, "SyncGroup")
        return bytes(response.assignment)

    def _receive(self, response_type: type[Response], version: int) -> Response:
        size = receive_frame(self.connection, self._buffer)
        response = self._buffer[SIZE_FIELD:size]
        _, position = read_response_header(_api_key(response_type), version, response)
        return decode(response_type, version, response, position)


class Group:
    """Members that form a group, with all partitions of a topic assigned evenly."""

    def __init__(self, port: int, name: str, members: Sequence[Member], topic: str, partitions: int) -> None:
        self._port = port
        self._name = name
        self._members = members
        self._shares = [
            _versioned(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        TopicPartitions(topic=topic, partitions=list(range(number, partitions, len(members))))
                    ],
                    user_data=None,
                )
            )
            for number in range(len(members))
        ]

    def form(self) -> list[Membership]:
        """Form the first generation with all members.

        If the broker does not wait for more members, the first one forms a generation alone; the others wait until it
        rejoins.
        """
        first, *others = self._members
        first.send_join()
        first.receive_join()
        for member in others:
            member.send_join()
        self._wait_until_all_are_known()
        first.send_join()
        return self._share([member.receive_join() for member in self._members])

    def rebalance(self) -> float:
        """Form the next generation; return the seconds from the last member's join to the last member's assignment."""
        ahead, last = self._members[:-1], self._members[-1]
        for member in ahead:
            member.send_join()
        begin = time.perf_counter()
        last.send_join()
        self._share([member.receive_join() for member in self._members])
        return time.perf_counter() - begin

    def _wait_until_all_are_known(self) -> None:
        """Wait until the coordinator knows all members: connections are served in any order."""
        request = DescribeGroupsRequest(groups=[self._name])
        deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
        while len(ask(self._port, request, DESCRIBE_GROUPS_VERSION, DescribeGroupsResponse).groups[0].members) < len(
            self._members
        ):
            _sleep_until(deadline, f"not all members of {self._name}")

    def _share(self, joined: Sequence[Membership]) -> list[Membership]:
        assignments = [
            SyncGroupRequestAssignment(member_id=one.member_id, assignment=share)
            for one, share in zip(joined, self._shares, strict=True)
        ]
        for member, one in zip(self._members, joined, strict=True):
            member.send_sync(one.generation_id, assignments if one.leads else ())
        assert [member.receive_sync() for member in self._members] == self._shares
        return list(joined)


def commits(subject: Subject, scale: Scale, *, connections: int, in_flight: int) -> Values:
    """Measure commits of one offset per request; each connection is the only member of its group."""
    with subject.topic(connections) as topic, ExitStack() as joined:
        streams = []
        for partition in range(connections):
            name = _new_group(subject.port)
            member = joined.enter_context(_member(subject.port, name, topic))
            (membership,) = Group(subject.port, name, [member], topic, connections).form()
            frames = [
                offset_commit_frame(
                    name,
                    membership.member_id,
                    membership.generation_id,
                    topic,
                    range(partition, partition + 1),
                    slot,
                )
                for slot in range(in_flight)
            ]
            streams.append(_committing(subject.port, topic, frames))
        with closing_all(streams):
            return subject.measured_for_a_time(streams, scale).small_requests()


def rebalances(subject: Subject, scale: Scale) -> Values:
    """Measure the time from the join of the last member to the assignment of the last."""
    partitions, size = scale.count(PARTITIONS), max(2, scale.count(MEMBERS))
    with subject.topic(partitions) as topic, ExitStack() as joined:
        name = _new_group(subject.port)
        members = [joined.enter_context(_member(subject.port, name, topic)) for _ in range(size)]
        group = Group(subject.port, name, members, topic, partitions)
        group.form()
        machine.settle()
        return {"time": median(group.rebalance() for _ in range(REBALANCES)) * 1e3}


def load(server: Server, scale: Scale) -> Values:
    """Measure the restart of a coordinator with a long log: time to an offset, and the waits of other clients."""
    partitions = PARTITIONS_A_COMMIT
    with running(server):
        topic, group = "committed", _new_group(server.port)
        create_topic(server.port, topic, partitions)
        frame = offset_commit_frame(group, "", -1, topic, range(partitions), 0)
        with closing_all([_committing(server.port, topic, [frame])]) as streams:
            closed_loop(streams, requests=scale.count(OLD_COMMITS) // partitions)
    machine.settle()
    begin = time.perf_counter()
    with running(server), _Bystander(server.port) as bystander:
        _wait_for_offset(server.port, group, topic)
        return {
            "ready": time.perf_counter() - begin,
            "longest wait": bystander.longest_wait_s() * 1e3,
            "memory": resident_mib(server.pid),
        }


class _Bystander:
    """Another client: repeats the cheapest request in a thread, and records the longest wait."""

    def __init__(self, port: int) -> None:
        self._connection = connect(port)
        self._longest_s = 0.0
        self._is_over = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        self._connection.close()

    def longest_wait_s(self) -> float:
        return self._longest_s

    def _run(self) -> None:
        question, buffer = greeting(), memoryview(bytearray(BUFFER_SIZE))
        while not self._is_over:
            begin = time.perf_counter()
            self._connection.sendall(question)
            receive_frame(self._connection, buffer)
            check_greeting(buffer)
            self._longest_s = max(self._longest_s, time.perf_counter() - begin)
            time.sleep(LOOK_AGAIN_AFTER_S)


@contextmanager
def _member(port: int, group: str, topic: str) -> Iterator[Member]:
    member = Member(port, group, topic)
    with closing(member.connection):
        yield member


def _committing(port: int, topic: str, frames: Sequence[bytearray]) -> RepeatingStream:
    return RepeatingStream(port, "OffsetCommit", frames, offset_commit_response_layout(topic))


def _new_group(port: int) -> str:
    """Return the id of a new group, after its coordinator is available."""
    group = f"bench-group-{next(_numbers)}"
    request = FindCoordinatorRequest(key=group, key_type=0)
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while ask(port, request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse).error_code:
        _sleep_until(deadline, f"no coordinator of {group}")
    _wait_for_offset(port, group, "nothing")
    return group


def _wait_for_offset(port: int, group: str, topic: str) -> None:
    """Return when the coordinator serves the offsets of the group."""
    request = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while (code := ask(port, request, OFFSET_FETCH_VERSION, OffsetFetchResponse).error_code) in COMING_UP:
        _sleep_until(deadline, f"offsets of {group}")
    _expect(code, "OffsetFetch")


def _sleep_until(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise RuntimeError(f"{what} after {COORDINATOR_TIMEOUT_S} s")
    time.sleep(ASK_AGAIN_AFTER_S)


def _versioned(value: ConsumerProtocolSubscription | ConsumerProtocolAssignment) -> bytes:
    return b"".join([bytes(2), *encode(value, 0)])


def _api_key(response_type: type) -> int:
    return next(key for key, api in APIS.items() if api.response is response_type)


def _expect(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: {ErrorCode(code).name}")


RATE = Measure("rate", "commits/s", HIGHER, times(1.0))
CPU = Measure("CPU", "µs/commit", LOWER, decimals=1)

CASES = (
    Case(
        "commit-16-connections",
        "commits of 16 groups, a connection each",
        (RATE, CPU, Measure("p99", "µs", LOWER)),
        on_running=partial(commits, connections=16, in_flight=1),
    ),
    Case(
        "commit-8-in-flight",
        "commits of one group, 8 in flight",
        (RATE, CPU),
        on_running=partial(commits, connections=1, in_flight=8),
    ),
    Case(
        "rebalance",
        f"rebalance of {MEMBERS} members, {PARTITIONS:,} partitions",
        (Measure("time", "ms", LOWER, absolute(1000)),),
        on_running=rebalances,
    ),
    Case(
        "load-offsets",
        f"restart with {OLD_COMMITS:,} commits in the log",
        (
            Measure("ready", "s", LOWER, decimals=2),
            Measure("longest wait", "ms", LOWER, absolute(50)),
            Measure("memory", "MiB", LOWER),
        ),
        on_new=load,
    ),
)
