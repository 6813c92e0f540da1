"""Helpers for the requests of members, for the tests of the group machine."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from broker.groups.machine.events import (
    Effect,
    JoinRequest,
    JoinResult,
    MemberProtocol,
    Moment,
    RespondToJoin,
    RespondToSync,
    StoreGroup,
    SyncRequest,
    SyncResult,
)
from broker.groups.machine.group import Group
from broker.groups.machine.rebalance import GroupSettings
from broker.groups.machine.states import GroupState
from protocol.errors import ErrorCode

T0 = Moment(monotonic_ms=1_000, now_ms=1_700_000_000_000)

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def later(milliseconds: int) -> Moment:
    """Return the moment `milliseconds` after T0."""
    return Moment(T0.monotonic_ms + milliseconds, T0.now_ms + milliseconds)


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def protocols(*names: str, topics: Iterable[str] = ("t",)) -> tuple[MemberProtocol, ...]:
    return tuple(MemberProtocol(name, subscription(*topics)) for name in names)


def join_request(
    name: str,
    *,
    member_id: str = "",
    instance_id: str | None = None,
    offers: tuple[MemberProtocol, ...] | None = None,
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    requires_id: bool = False,
    skips_assignment: bool = True,
    generated_id: str | None = None,
) -> JoinRequest:
    """A join of the client `name`, which will be member `name`-1 unless it has an id."""
    return JoinRequest(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id=name,
        client_host="/127.0.0.1",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=protocol_type,
        protocols=protocols("range") if offers is None else offers,
        generated_member_id=generated_id or f"{name}-1",
        requires_known_member_id=requires_id,
        supports_skipping_assignment=skips_assignment,
    )


def sync_request(member_id: str, generation_id: int, assignments: dict[str, bytes] | None = None) -> SyncRequest:
    """A sync of a dynamic member, without the checks of newer versions."""
    return SyncRequest(member_id, None, generation_id, None, None, assignments or {})


class Harness:
    """One group and its surroundings: time, a log that stores synchronously unless held, and every result by ticket."""

    def __init__(self, *, max_size: int = 100, initial_delay_ms: int = 0) -> None:
        self.settings = GroupSettings(max_size=max_size, initial_rebalance_delay_ms=initial_delay_ms)
        self.group = Group("g", self.settings, T0)
        self.results: dict[object, JoinResult | SyncResult] = {}
        self.effects: list[Effect] = []
        """Everything the machine has caused, in order."""
        self.holds_stores = False
        self.held: list[StoreGroup] = []
        self.now = T0

    def at(self, milliseconds: int) -> None:
        """Let time pass up to so long after the beginning, waking the group whenever it wants to be."""
        target = later(milliseconds)
        while self.group.wake_at_ms <= target.monotonic_ms:
            self.now = later(max(self.group.wake_at_ms, self.now.monotonic_ms) - T0.monotonic_ms)
            self.group.advance(self.now)
            assert self.group.wake_at_ms > self.now.monotonic_ms, "what is due has been done"
            self.settle()
        self.now = target

    def join(self, name: str, *, ticket: object = None, **details: Any) -> JoinResult | None:
        """Return the result, or None while the join is parked. The ticket is `name` unless one is given."""
        ticket = ticket or name
        self.results.pop(ticket, None)
        self.group.join(join_request(name, **details), ticket, self.now)
        self.settle()
        return self.join_result(ticket)

    def join_result(self, ticket: object) -> JoinResult | None:
        result = self.results.get(ticket)
        assert result is None or isinstance(result, JoinResult)
        return result

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        ticket: object = None,
        generation_id: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> SyncResult | None:
        """Return the result, or None while the sync is parked. The ticket is `sync <member id>` unless one is given."""
        ticket = ticket or f"sync {member_id}"
        self.results.pop(ticket, None)
        generation_id = self.group.generation_id if generation_id is None else generation_id
        request = SyncRequest(member_id, instance_id, generation_id, protocol_type, protocol_name, assignments or {})
        self.group.sync(request, ticket, self.now)
        self.settle()
        return self.sync_result(ticket)

    def sync_result(self, ticket: object) -> SyncResult | None:
        result = self.results.get(ticket)
        assert result is None or isinstance(result, SyncResult)
        return result

    def heartbeat(self, member_id: str, generation_id: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation_id = self.group.generation_id if generation_id is None else generation_id
        code = self.group.heartbeat(member_id, instance_id, generation_id, self.now)
        self.settle()
        return code

    def commit(
        self,
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        code = self.group.commit(member_id, instance_id, generation_id, self.now, is_transactional=is_transactional)
        self.settle()
        return code

    def leave(self, member_id: str = "", instance_id: str | None = None) -> ErrorCode:
        code = self.group.leave(member_id, instance_id, self.now)
        self.settle()
        return code

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest held store is done."""
        self.group.stored(self.held.pop(0).outcome, error, self.now)
        self.settle()

    def settle(self) -> None:
        self.group.check()
        while effects := self.group.take_effects():
            for effect in effects:
                self.effects.append(effect)
                if isinstance(effect, RespondToJoin | RespondToSync):
                    assert effect.ticket not in self.results, f"{effect.ticket} was resolved twice"
                    self.results[effect.ticket] = effect.result
                    continue
                self.held.append(effect)
                if not self.holds_stores:
                    self.release()

    @property
    def stores(self) -> list[StoreGroup]:
        return [effect for effect in self.effects if isinstance(effect, StoreGroup)]

    # Helpers to enter each state

    def stabilise(self) -> None:
        """From CompletingRebalance: every member syncs, the leader with its own id as each member's assignment."""
        members = list(self.group.members)
        assert self.group.leader_id is not None
        for member_id in members:
            if member_id != self.group.leader_id:
                self.sync(member_id)
        self.sync(self.group.leader_id, {member_id: member_id.encode() for member_id in members})


def stable_group(*names: str, instance_ids: dict[str, str] | None = None, **settings: Any) -> Harness:
    """A stable group of `<name>-1` members, the first one leading, in generation 2 unless it is alone."""
    harness = completing_group(*names, instance_ids=instance_ids, **settings)
    harness.stabilise()
    assert harness.group.state is GroupState.STABLE
    return harness


def completing_group(*names: str, instance_ids: dict[str, str] | None = None, **settings: Any) -> Harness:
    """As `stable_group`, before the syncs."""
    harness = Harness(**settings)
    instances = instance_ids or {}
    first, *others = names
    harness.join(first, instance_id=instances.get(first))
    for name in others:
        harness.join(name, instance_id=instances.get(name))
    if others:
        harness.join(first, member_id=f"{first}-1", instance_id=instances.get(first))
    assert harness.group.state is GroupState.COMPLETING_REBALANCE
    return harness
