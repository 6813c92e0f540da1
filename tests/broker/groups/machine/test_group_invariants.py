"""Random histories of a group: whatever clients do and whenever writes end, what must hold holds after every step."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.groups.machine import rebalance, roster
from broker.groups.machine.events import JoinResult, RespondToJoin, RespondToSync, StoreGroup, SyncRequest
from broker.groups.machine.group import Group
from broker.groups.machine.member import NEVER, Member
from broker.groups.machine.rebalance import GroupSettings
from broker.groups.machine.records import group_value, read_group
from broker.groups.machine.states import GroupState
from protocol.errors import ErrorCode
from tests.broker.groups.support import completing_group, join_request, later, protocols, stable_group
from tests.support.invariants import broken, stated

STEPS = 250
OFFERS = (*3 * (protocols("range"),), protocols("range", "sticky"), protocols("sticky", "range"), protocols("x"))
FORGETTING = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
"""Codes upon which a client joins as a new member."""


class Client:
    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.is_leader = False
        self.known: list[str] = []
        self.must_join = True
        self.must_sync = False

    def next(self, history: History) -> Callable[[Client], None]:
        if self.must_join:
            return history.join
        if self.must_sync:
            return history.sync
        return history.random.choice((history.heartbeat, history.heartbeat, history.commit))


class History:
    """One group, a few clients that misbehave, and a log that may fail."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        settings = GroupSettings(max_size=4, initial_rebalance_delay_ms=self.random.choice((0, 300)))
        self.settings = settings
        self.group = Group("g", settings, later(0))
        self.clients = [Client(f"c{n}", f"i{n}" if n % 3 == 0 else None) for n in range(6)]
        self.waiting: dict[int, tuple[str, Client]] = {}
        self.held: list[StoreGroup] = []
        self.stored: list[StoreGroup] = []
        self.ticket = 0

    def step(self) -> None:
        client = self.random.choice(self.clients)
        generation_id = self.group.generation_id
        roll = self.random.random()
        if roll < 0.6:
            self.behave(client)
        elif roll < 0.8:
            self.finish_store()
        elif roll < 0.93:
            self.pass_time()
        else:
            self.random.choice((self.join, self.sync, self.heartbeat, self.commit, self.leave, self.restart))(client)
        self.settle()
        assert self.group.generation_id >= generation_id
        self.check()

    def behave(self, client: Client) -> None:
        """What a good client would do next: nothing while it waits."""
        if client not in [waiting for _, waiting in self.waiting.values()]:
            client.next(self)(client)

    def join(self, client: Client) -> None:
        request = join_request(
            client.name,
            member_id=client.member_id,
            instance_id=client.instance_id,
            offers=self.random.choice(OFFERS),
            session_ms=self.random.choice((200, 1000)),
            rebalance_ms=self.random.choice((500, 2000)),
            requires_id=self.random.random() < 0.5,
            skips_assignment=self.random.random() < 0.5,
            generated_id=f"{client.name}.{self.ticket}",
        )
        self.group.join(request, self.wait("join", client), later(self.now_ms))

    def sync(self, client: Client) -> None:
        assignments = {each: f"{client.generation_id} {each}".encode() for each in client.known}
        request = SyncRequest(
            client.member_id,
            client.instance_id,
            client.generation_id,
            None,
            None,
            assignments if client.is_leader else {},
        )
        self.group.sync(request, self.wait("sync", client), later(self.now_ms))

    def heartbeat(self, client: Client) -> None:
        code = self.group.heartbeat(client.member_id, client.instance_id, client.generation_id, later(self.now_ms))
        client.must_join = bool(code)
        if code in FORGETTING:
            client.member_id = ""

    def commit(self, client: Client) -> None:
        code = self.group.commit(client.member_id, client.instance_id, client.generation_id, later(self.now_ms))
        client.must_join = bool(code)
        if not code and client.generation_id >= 0:
            assert client.member_id in self.group.members
            assert client.generation_id == self.group.generation_id

    def leave(self, client: Client) -> None:
        self.group.leave(client.member_id, client.instance_id, later(self.now_ms))

    def pass_time(self) -> None:
        self.now_ms += self.random.choice((1, 20, 150))
        if self.group.wake_at_ms <= later(self.now_ms).monotonic_ms:
            self.group.advance(later(self.now_ms))
            assert self.group.wake_at_ms > later(self.now_ms).monotonic_ms

    def finish_store(self) -> None:
        if self.held:
            effect = self.held.pop(0)
            error = ErrorCode.NONE if self.random.random() < 0.9 else ErrorCode.NOT_COORDINATOR
            if not error:
                self.stored.append(effect)
            self.group.stored(effect.outcome, error, later(self.now_ms))

    def restart(self, client: Client) -> None:
        client.member_id, client.must_join = "", True

    def wait(self, kind: str, client: Client) -> int:
        self.ticket += 1
        self.waiting[self.ticket] = (kind, client)
        return self.ticket

    def settle(self) -> None:
        for effect in self.group.take_effects():
            if isinstance(effect, StoreGroup):
                self.held.append(effect)
                continue
            assert isinstance(effect.ticket, int)
            kind, client = self.waiting.pop(effect.ticket)  # a second result would raise KeyError
            if isinstance(effect, RespondToJoin):
                assert kind == "join"
                self.joined(client, effect.result)
            else:
                assert isinstance(effect, RespondToSync)
                assert kind == "sync"
                client.must_sync = False
                client.must_join = bool(effect.result.error)
                if effect.result.error in FORGETTING:
                    client.member_id = ""
                if not effect.result.error and effect.result.assignment:
                    generation, member_id = effect.result.assignment.decode().split()
                    assert int(generation) <= self.group.generation_id
                    assert member_id.split(".")[0] == client.name

    def joined(self, client: Client, result: JoinResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        elif not result.error:
            client.must_join, client.must_sync = False, True
            assert result.protocol_name in {"range", "sticky", "x"}
            client.member_id, client.generation_id = result.member_id, result.generation_id
            client.is_leader = result.leader_id == result.member_id
            client.known = [each.member_id for each in result.members]
        elif result.error in FORGETTING:
            client.member_id = ""

    def check(self) -> None:
        group = self.group
        group.check()
        members = list(group.members.values())
        if group.state is not GroupState.PREPARING_REBALANCE:
            assert sum(member.group_instance_id is None for member in members) <= group._settings.max_size
        parked = [t for m in members for t in (m.join_ticket, m.sync_ticket) if t is not None]
        assert sorted(parked, key=str) == sorted(self.waiting, key=str)


@pytest.mark.parametrize("seed", range(60))
def test_invariants_hold_in_a_random_history(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.group.resign()
    history.settle()
    assert not history.waiting, "a request waits for ever"


@pytest.mark.parametrize("seed", range(10))
def test_any_stored_generation_can_be_loaded_and_continued(seed: int) -> None:
    history = History(seed)
    while not history.stored or not history.stored[-1].value.members:
        history.step()
    value = read_group(group_value(history.stored[-1].value))
    history.group = Group.restored("g", value, history.settings, later(history.now_ms))
    history.group.resume(later(history.now_ms))
    history.waiting.clear()
    history.held.clear()
    for _ in range(STEPS):
        history.step()


def test_histories_reach_every_state() -> None:
    """What the tests above rely on: the random clients are good enough to reach every state, and often."""
    steps = dict.fromkeys(GroupState, 0)
    for seed in range(10):
        history = History(seed)
        for _ in range(STEPS):
            history.step()
            steps[history.group.state] += 1
    assert steps[GroupState.EMPTY] > 0
    assert steps[GroupState.COMPLETING_REBALANCE] > STEPS // 2
    assert steps[GroupState.STABLE] > STEPS


def a_group() -> Group:
    """Return a stable group of a, its leader, and the static member s; p has got an id and not joined yet."""
    harness = stable_group("a", "s", instance_ids={"s": "i"})
    harness.join("p", requires_id=True)
    return harness.group


def first(group: Group) -> Member:
    return next(iter(group.members.values()))


BREAKS: dict[str, Callable[[Group], object]] = {
    "Each member is listed under its member id": lambda group: setattr(first(group), "member_id", "b-1"),
    "Each static member is found by its instance id": lambda group: group._roster._static_member_ids.clear(),
    "`_supporters[name]` is the number of members that list protocol `name`": lambda group: (
        group._roster._supporters.update(["range"])
    ),
    "`parked_count` is the number of parked joins": lambda group: setattr(group._roster, "parked_count", 1),
    "At least one protocol is listed by all members": lambda group: group._roster.update(
        first(group), protocols("other"), 0, 0
    ),
    "The leader is a member, unless the group has no members": lambda group: setattr(group._roster, "leader_id", "p-1"),
    "A join is parked only in PreparingRebalance, or in Stable while the id of a static member is stored": (
        lambda group: group._roster.park(first(group), "ticket")
    ),
    "A sync is parked only in CompletingRebalance": lambda group: setattr(first(group), "sync_ticket", "ticket"),
    "An Empty or Dead group has no members": lambda group: setattr(group, "state", GroupState.EMPTY),
    "The join phase has a deadline in PreparingRebalance and in no other state": lambda group: setattr(
        group, "_join_deadline_ms", group.wake_at_ms
    ),
    "Whoever has not synced is a member, and the group CompletingRebalance or Stable": lambda group: (
        group._awaiting_sync.add(Member("p-1", None, "p", "/", 0, 0, ()))
    ),
    "A pending member id is not that of a member": lambda group: group._pending_members.update({"a-1": NEVER}),
    "`wake_at_ms` is not later than any deadline": lambda group: setattr(first(group), "session_deadline_ms", 0),
}


def test_every_stated_invariant_is_checked() -> None:
    assert list(BREAKS) == stated(roster) + stated(rebalance)


@pytest.mark.parametrize("invariant", BREAKS)
def test_broken_invariant_is_named(invariant: str) -> None:
    group = a_group()
    assert broken(group.check) is None
    BREAKS[invariant](group)
    assert broken(group.check) == invariant


@pytest.mark.parametrize("state", [GroupState.EMPTY, GroupState.DEAD])
def test_member_of_a_group_without_members_is_noticed(state: GroupState) -> None:
    group = a_group()
    group.state = state
    assert broken(group.check) == "An Empty or Dead group has no members"


def test_member_that_waits_for_no_state_is_noticed() -> None:
    group = completing_group("a").group
    group._awaiting_sync = {first(group)}
    assert broken(group.check) is None
    group.state = GroupState.PREPARING_REBALANCE
    group._join_deadline_ms = group.wake_at_ms
    assert broken(group.check) == "Whoever has not synced is a member, and the group CompletingRebalance or Stable"
