"""kill -9 of the coordinator in each phase of a group: members resume from the stored state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until
from tests.support.wire_client import WireClient

DEADLINE_S = 30
ASK_AGAIN_AFTER_S = 0.02
SESSION_TIMEOUT_MS = 60_000
TOPIC, PARTITIONS = "topic", (0, 1)
NONE = ErrorCode.NONE

until = partial(wait_until, timeout_s=DEADLINE_S)


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {"num.partitions": str(len(PARTITIONS))}) as broker:
        wait_until_coordinating(broker)
        yield broker


def crash(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()
    wait_until_coordinating(broker)


def wait_until_coordinating(broker: BrokerProcess) -> None:
    def is_up() -> bool:
        with WireClient(broker.port) as client:
            return not (
                client.ask(FindCoordinatorRequest(key="g", key_type=0), 2).error_code
                or client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 4).topics[0].error_code
            )

    until(is_up)


def ask(broker: BrokerProcess, request: object, version: int) -> Any:
    """Send a request on its own connection until the group is loaded; return the response."""
    deadline = time.monotonic() + DEADLINE_S
    with WireClient(broker.port) as client:
        while True:
            response = client.ask(request, version)
            if getattr(response, "error_code", NONE) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return response
            assert time.monotonic() < deadline
            time.sleep(ASK_AGAIN_AFTER_S)


def join(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def sync(group: str, member_id: str, generation_id: int, **assignments: bytes) -> SyncGroupRequest:
    shares = [SyncGroupRequestAssignment(member_id=name, assignment=share) for name, share in assignments.items()]
    return SyncGroupRequest(group_id=group, generation_id=generation_id, member_id=member_id, assignments=shares)


def commit(group: str, member_id: str, generation_id: int, offset: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in PARTITIONS
    ]
    return OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )


def heartbeat(broker: BrokerProcess, group: str, member_id: str, generation_id: int) -> ErrorCode:
    request = HeartbeatRequest(group_id=group, generation_id=generation_id, member_id=member_id)
    return ErrorCode(ask(broker, request, 2).error_code)


def offsets(broker: BrokerProcess, group: str) -> list[int]:
    wanted = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(PARTITIONS))]
    (topic,) = ask(broker, OffsetFetchRequest(group_id=group, topics=wanted), 5).topics
    return [partition.committed_offset for partition in topic.partitions]


def stable_member(broker: BrokerProcess, group: str) -> str:
    """Return the id of the only member of a stable group, in generation 1."""
    joined = ask(broker, join(group), 2)
    assert (joined.error_code, joined.generation_id) == (NONE, 1)
    member_id: str = joined.member_id
    assert ask(broker, sync(group, member_id, 1, **{member_id: b"everything"}), 2).assignment == b"everything"
    return member_id


def state(broker: BrokerProcess, group: str) -> tuple[str, int]:
    """Return the group's state and the number of its members."""
    found = ask(broker, DescribeGroupsRequest(groups=[group]), 1).groups[0]
    return found.group_state, len(found.members)


def test_members_of_a_stable_group_continue(crashing: BrokerProcess) -> None:
    member_id = stable_member(crashing, "stable")
    crash(crashing)
    assert heartbeat(crashing, "stable", member_id, 1) is NONE
    response = ask(crashing, commit("stable", member_id, 1, 5), 5)
    assert {partition.error_code for partition in response.topics[0].partitions} == {NONE}
    assert ask(crashing, sync("stable", member_id, 1), 2).assignment == b"everything"
    assert offsets(crashing, "stable") == [5, 5]


def test_a_pending_join_is_retried(crashing: BrokerProcess) -> None:
    group = "joining"
    first = stable_member(crashing, group)
    with WireClient(crashing.port) as parked:
        parked.send(join(group), 2)
        until(lambda: state(crashing, group) == ("PreparingRebalance", 2))
        crash(crashing)
    assert state(crashing, group) == ("Stable", 1)
    assert heartbeat(crashing, group, first, 1) is NONE
    with WireClient(crashing.port) as second:
        second.send(join(group), 2)
        until(lambda: heartbeat(crashing, group, first, 1) is ErrorCode.REBALANCE_IN_PROGRESS)
        joined = ask(crashing, join(group, first), 2)
        assert (joined.error_code, joined.generation_id, len(joined.members)) == (NONE, 2, 2)


def test_a_generation_that_was_not_assigned_yet_is_lost(crashing: BrokerProcess) -> None:
    """Its members learn this from their next responses and rejoin."""
    group = "syncing"
    leader = stable_member(crashing, group)
    with WireClient(crashing.port) as second:
        second.send(join(group), 2)
        until(lambda: state(crashing, group) == ("PreparingRebalance", 2))
        joined = ask(crashing, join(group, leader), 2)
        follower = next(member.member_id for member in joined.members if member.member_id != leader)
    with WireClient(crashing.port) as parked:
        parked.send(sync(group, follower, 2), 2)
        crash(crashing)
    assert state(crashing, group) == ("Stable", 1)
    assert heartbeat(crashing, group, leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert heartbeat(crashing, group, follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(crashing, sync(group, follower, 2), 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    joined = ask(crashing, join(group, leader), 2)
    assert (joined.error_code, joined.generation_id) == (NONE, 2)


def test_a_commit_in_flight_is_stored_completely_or_not_at_all(crashing: BrokerProcess) -> None:
    group = "committing"
    member_id = stable_member(crashing, group)
    acknowledged = 0
    for offset in range(1, 200):
        ask(crashing, commit(group, member_id, 1, offset), 5)
        acknowledged = offset
    with WireClient(crashing.port) as client:
        client.send(commit(group, member_id, 1, 200), 5)
        crash(crashing)
    assert offsets(crashing, group) in ([acknowledged] * 2, [200] * 2)
    assert heartbeat(crashing, group, member_id, 1) is NONE
