"""Many groups on one broker: no member loses its place while its heartbeats are steady."""

import time
from contextlib import ExitStack

import pytest

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.broker import BrokerProcess
from tests.support.wire_client import WireClient

FIND_VERSION, JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 2, 3, 3, 3
COMING_UP = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
TIMEOUT_S = 30
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_INTERVAL_S = 3.0


class Pair:
    """A group of two members, each on its own connection."""

    def __init__(self, name: str, first: WireClient, second: WireClient) -> None:
        self._name = name
        self._members = (first, second)
        alone = self._first_join(first)
        api = second.send(self._join(""), JOIN_VERSION)
        while first.ask(self._heartbeat(alone), HEARTBEAT_VERSION).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            time.sleep(0.001)  # the second member's request is on its way
        again = first.ask(self._join(alone.member_id), JOIN_VERSION)
        self._joined: tuple[JoinGroupResponse, ...] = (again, second.receive(api, JOIN_VERSION))
        assert [each.error_code for each in (alone, *self._joined)] == [0, 0, 0]
        shares = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=each.member_id.encode())
            for each in self._joined
        ]
        for member, joined in zip(self._members, self._joined, strict=True):
            is_leader = joined.leader == joined.member_id
            request = SyncGroupRequest(
                group_id=name,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=shares if is_leader else [],
            )
            assert member.ask(request, SYNC_VERSION).assignment == joined.member_id.encode()

    def _first_join(self, member: WireClient) -> JoinGroupResponse:
        """Join as soon as the broker coordinates the group: it may still have to create the topic of offsets."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            member.ask(FindCoordinatorRequest(key=self._name), FIND_VERSION)
            joined: JoinGroupResponse = member.ask(self._join(""), JOIN_VERSION)
            if joined.error_code not in COMING_UP or time.monotonic() > deadline:
                return joined
            time.sleep(0.05)

    def _join(self, member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    def _heartbeat(self, joined: JoinGroupResponse) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=self._name, generation_id=joined.generation_id, member_id=joined.member_id)

    def heartbeats(self) -> list[int]:
        """Send a heartbeat for each member; return the error codes."""
        sent = [
            member.send(self._heartbeat(joined), HEARTBEAT_VERSION)
            for member, joined in zip(self._members, self._joined, strict=True)
        ]
        return [
            member.receive(api, HEARTBEAT_VERSION).error_code for member, api in zip(self._members, sent, strict=True)
        ]


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize(("groups", "seconds"), [(25, 4), pytest.param(500, 300, marks=pytest.mark.soak)])
def test_members_of_many_groups_keep_their_places(broker: BrokerProcess, groups: int, seconds: int) -> None:
    with ExitStack() as connections:
        clients = [connections.enter_context(WireClient(broker.port)) for _ in range(2 * groups)]
        pairs = []
        ready = time.monotonic()
        for number in range(groups):
            pairs.append(Pair(f"many-{groups}-{number}", *clients[2 * number : 2 * number + 2]))
            if time.monotonic() > ready + HEARTBEAT_INTERVAL_S:  # the others must not time out
                ready = time.monotonic()
                assert not any(error for pair in pairs for error in pair.heartbeats())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            next_round = time.monotonic() + min(HEARTBEAT_INTERVAL_S, seconds / 4)
            assert not any(error for pair in pairs for error in pair.heartbeats())
            time.sleep(max(0.0, next_round - time.monotonic()))
