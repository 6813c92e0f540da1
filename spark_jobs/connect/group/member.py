"""A worker as a member of its group: it joins, sends heartbeats, and as the leader decides who gets what.

It runs in a thread of its own. What it has to do for its worker it calls on `Events`, in that thread; these return
quickly. A worker that has lost its membership has lost its work too: others may run it already.

Owns membership, and the fact which work is this worker's. Must not know how work is run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.group.balance import Balancer
from spark_jobs.connect.group.protocol import (
    CONFIG_MISMATCH,
    NO_ERROR,
    NO_WORK,
    PROTOCOL_TYPE,
    VERSIONS,
    Assignment,
    MemberState,
    Work,
    decode_assignment,
    decode_state,
    encode_assignment,
    encode_state,
)
from tools.base.command_line import UnreachableError
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.bootstrap import Endpoint
from tools.client.client_security import Security

logger = logging.getLogger("org.apache.kafka.connect.runtime.distributed.WorkerCoordinator")

RETRY_S: Final = 0.2
RECENT_S: Final = 5.0
QUICK_HEARTBEAT_S: Final = 0.25
_UNKNOWN_MEMBER: Final = ""
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID})
_REFUSED: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
    }
)
"""Errors that a user has to mend: they are logged, and joining is tried again later."""
REFUSED_RETRY_S: Final = 5.0
MISMATCHES_MAX: Final = 3
"""So often in a row workers may differ in what they have read, before that is reported."""
MISMATCH_RETRY_S: Final = 1.0


class Round(NamedTuple):
    """The result of a rebalance for this worker."""

    generation: int
    leader_url: str
    is_leader: bool
    config_offset: int
    assigned: Work
    revoked: Work
    protocol: str = ""
    """One of `VERSIONS`; empty for a worker that is alone."""


class Events(Protocol):
    """What a worker does for its membership."""

    def config_offset(self) -> int:
        """Return the offset up to which the topic of configurations was read."""

    def configured(self, config_offset: int) -> tuple[Work, int]:
        """Return all work that exists, and the offset of the topic of configurations that it is of: at least the given
        one, if the topic is so long."""

    def rebalanced(self, found: Round) -> None:
        """Start and stop work. What is `revoked` is to be given to `release` when it has stopped."""

    def lost(self) -> Future[None]:
        """Stop all work: this worker is no member now. The result is set when it has stopped."""


class Settings(NamedTuple):
    """How the member appears in its group. Times are in milliseconds."""

    group_id: str
    url: str
    protocols: Sequence[str]
    """Names of `VERSIONS`, the preferred one first."""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    delay_max_ms: int
    client_id: str


class Member:
    """The membership of one worker."""

    def __init__(self, settings: Settings, bootstrap: Sequence[Endpoint], security: Security, events: Events) -> None:
        self._settings = settings
        self._security = security
        self._events = events
        self._quick = AdminClient(
            bootstrap,
            client_id=settings.client_id,
            timeout_ms=max(1_000, settings.session_timeout_ms // 2),
            request_timeout_ms=max(1_000, settings.session_timeout_ms // 2),
            security=security,
        )
        self._lock = threading.Lock()
        self._owned = NO_WORK
        self._revoking = NO_WORK
        """The part of it that has to stop."""
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._must_join = True
        self._rejoin_s: float | None = None
        self._heard_s = time.monotonic()
        self._joined_s = self._heard_s
        self._balancer = Balancer(settings.delay_max_ms)
        self._thread = threading.Thread(target=self._run, name="group-member", daemon=True)
        self.member_id = _UNKNOWN_MEMBER
        self.generation = -1
        self._coordinator = -1
        self._protocol = settings.protocols[0]
        self._mismatches = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Leave the group."""
        self._stopping.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def rejoin(self, reason: str) -> None:
        """Join again: the configurations have changed. Callable from any thread."""
        logger.info("joining again: %s", reason)
        self._must_join = True
        self._woken.set()

    def release(self, work: Work) -> None:
        """Note that revoked work has stopped; others get it in a round that this asks for. Callable from any thread."""
        with self._lock:
            # A membership that was lost since has nothing to release: it may have got the same work again.
            self._owned = self._owned - (work & self._revoking)
            self._revoking = self._revoking - work
        self.rejoin("revoked work has stopped")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._coordinator = self._quick.coordinator(self._settings.group_id)
                self._must_join = True
                self._stay()
            except (OSError, KafkaError, Malformed, ConnectError, UnreachableError, CallTimedOut) as error:
                if self._stopping.is_set():
                    break
                is_refused = isinstance(error, KafkaError) and error.code in _REFUSED
                (logger.error if is_refused else logger.warning)("the group is not reached: %s", error)
                self._check_session()
                self._stopping.wait(REFUSED_RETRY_S if is_refused else RETRY_S)
            except Exception:  # without a membership, work would never start again
                logger.exception("the membership has failed, and is tried again")
                self._check_session()
                self._stopping.wait(REFUSED_RETRY_S)
        self._leave()
        self._quick.__exit__()

    def _stay(self) -> None:
        """Be a member until the coordinator is lost. Raises the error that says how."""
        patience_ms = self._settings.rebalance_timeout_ms + self._settings.session_timeout_ms
        with AdminClient(
            [self._quick.endpoint(self._coordinator)],
            client_id=self._settings.client_id,
            timeout_ms=patience_ms,
            request_timeout_ms=patience_ms,
            security=self._security,
        ) as patient:
            while not self._stopping.is_set():
                if self._must_join or (self._rejoin_s is not None and time.monotonic() >= self._rejoin_s):
                    self._must_join, self._rejoin_s = False, None
                    self._join(patient)
                    continue
                self._heartbeat()
                self._woken.wait(self._heartbeat_interval_s())
                self._woken.clear()

    def _heartbeat_interval_s(self) -> float:
        """A second round often follows soon: until then, work that moves runs nowhere."""
        interval_s = self._settings.heartbeat_interval_ms / 1000
        is_recent = time.monotonic() - self._joined_s < RECENT_S
        return min(interval_s, QUICK_HEARTBEAT_S) if is_recent else interval_s

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._settings.group_id, generation_id=self.generation, member_id=self.member_id
        )
        response = self._quick.call_once(request, HeartbeatResponse, broker_id=self._coordinator)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
            self._woken.set()
        else:
            self._raise_unless_lost(code)
        self._heard_s = time.monotonic()

    def _join(self, client: AdminClient) -> None:
        self._stop_before_joining()
        response = self._send_join(client)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = self._send_join(client)
        if self._raise_unless_lost(ErrorCode(response.error_code)):
            return
        self.member_id, self.generation = response.member_id, response.generation_id
        self._protocol = response.protocol_name or self._protocol
        is_leader = response.leader == self.member_id
        if not is_leader:
            self._balancer = Balancer(self._settings.delay_max_ms)  # another leader decides, unseen
        assignments = self._decide(response.members) if is_leader else {}
        self._sync(client, assignments, is_leader)

    def _stop_before_joining(self) -> None:
        """In version 0 all members stop before a round: its leader does not know who has what."""
        with self._lock:
            if VERSIONS[self._protocol] > 0 or not self._owned:
                return
            self._owned = self._revoking = NO_WORK
        try:
            self._events.lost().result(self._settings.rebalance_timeout_ms / 1000)
        except TimeoutError:
            logger.error("the connectors and tasks have not stopped within rebalance.timeout.ms")

    def _send_join(self, client: AdminClient) -> JoinGroupResponse:
        settings = self._settings
        state = self._state()
        return client.call(
            JoinGroupRequest(
                group_id=settings.group_id,
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.rebalance_timeout_ms,
                member_id=self.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=encode_state(state, VERSIONS[name]))
                    for name in settings.protocols
                ],
            ),
            JoinGroupResponse,
        )

    def _state(self) -> MemberState:
        offset = self._events.config_offset()
        with self._lock:
            owned = self._owned
        current = Assignment(NO_ERROR, "", "", offset, owned) if owned else None
        return MemberState(self._settings.url, offset, current)

    def _sync(self, client: AdminClient, assignments: Mapping[str, bytes], is_leader: bool) -> None:
        response = client.call(
            SyncGroupRequest(
                group_id=self._settings.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=self._protocol,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member, assignment=content)
                    for member, content in assignments.items()
                ],
            ),
            SyncGroupResponse,
        )
        code = ErrorCode(response.error_code)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
            return
        if self._raise_unless_lost(code):
            return
        self._heard_s = self._joined_s = time.monotonic()
        self._put_into_effect(decode_assignment(bytes(response.assignment)), is_leader)

    def _put_into_effect(self, found: Assignment, is_leader: bool) -> None:
        if found.error == CONFIG_MISMATCH:
            self._catch_up(found)
            return
        self._mismatches = 0
        if found.delay_ms:
            self._rejoin_s = time.monotonic() + found.delay_ms / 1000
        with self._lock:
            revoked, assigned = found.revoked & self._owned, found.assigned
            self._owned = self._owned | assigned
            self._revoking = self._revoking | revoked
        self._events.rebalanced(
            Round(self.generation, found.leader_url, is_leader, found.config_offset, assigned, revoked, self._protocol)
        )

    def _catch_up(self, found: Assignment) -> None:
        """Read the configurations up to where another member has read them, and join again."""
        _, offset = self._events.configured(found.config_offset)
        self._must_join = True
        self._mismatches += 1
        if self._mismatches <= MISMATCHES_MAX:
            return
        logger.error(
            "the workers of the group %s have read configurations up to different offsets, %d here and %d elsewhere: "
            "config.storage.topic must name the same topic on all of them",
            self._settings.group_id, offset, found.config_offset,
        )  # fmt: skip
        self._stopping.wait(MISMATCH_RETRY_S)

    def _decide(self, members: Sequence[JoinGroupResponseMember]) -> dict[str, bytes]:
        """As the leader, return the assignment of each member."""
        states = {member.member_id: decode_state(bytes(member.metadata)) for member in members}
        wanted = max(state.config_offset for state in states.values())
        configured, offset = self._events.configured(wanted)
        version = VERSIONS[self._protocol]
        if offset < wanted:
            shared = Assignment(CONFIG_MISMATCH, self.member_id, self._settings.url, wanted, NO_WORK)
            return dict.fromkeys(states, encode_assignment(shared, version))
        present = {
            member: NO_WORK if state.current is None or version == 0 else state.current.assigned
            for member, state in states.items()
        }
        # In version 0 members do not say what they have: nothing can be missed, nor wait.
        balancer = Balancer(0) if version == 0 else self._balancer
        decision = balancer.decide(configured, present, time.monotonic_ns() // 1_000_000)
        return {
            member: encode_assignment(
                Assignment(
                    NO_ERROR,
                    self.member_id,
                    self._settings.url,
                    offset,
                    share.assigned,
                    share.revoked,
                    decision.delay_ms,
                ),
                version,
            )
            for member, share in decision.shares.items()
        }

    def _raise_unless_lost(self, code: ErrorCode) -> bool:
        """Return False for success, True if the membership is lost, and joining is due. Raises KafkaError otherwise."""
        if code in _LOST:
            self._forget()
            self._must_join = True
            self._woken.set()
            return True
        raise_for(code)
        return False

    def _check_session(self) -> None:
        """Give up the work when others may have it: no heartbeat has succeeded for the session timeout."""
        is_over = time.monotonic() - self._heard_s > self._settings.session_timeout_ms / 1000
        if is_over and self.member_id != _UNKNOWN_MEMBER:
            self._forget()

    def _forget(self) -> None:
        self.member_id, self.generation = _UNKNOWN_MEMBER, -1
        with self._lock:
            had_work, self._owned, self._revoking = bool(self._owned), NO_WORK, NO_WORK
        if had_work:
            logger.warning("this worker is no longer a member of its group: its connectors and tasks stop")
        self._events.lost()

    def _leave(self) -> None:
        if self.member_id == _UNKNOWN_MEMBER:
            return
        request = LeaveGroupRequest(
            group_id=self._settings.group_id,
            members=[MemberIdentity(member_id=self.member_id, reason="the worker stops")],
        )
        try:
            self._quick.call_once(request, LeaveGroupResponse, broker_id=self._coordinator)
        except (OSError, KafkaError, Malformed, UnreachableError) as error:
            logger.warning("the group was not left: %s", error)


def protocols_up_to(name: str) -> list[str]:
    """Return the protocols that a worker supports, the preferred one first, by the value of `connect.protocol`."""
    newest = VERSIONS["default" if name.lower() == "eager" else name.lower()]
    return sorted((each for each, version in VERSIONS.items() if version <= newest), key=lambda each: -VERSIONS[each])
