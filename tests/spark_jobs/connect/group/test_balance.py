"""Who gets which work: members come and go, work appears and disappears, and what is right holds afterwards."""

from __future__ import annotations

import random

import pytest

from spark_jobs.connect.base.states import TaskId
from spark_jobs.connect.group.balance import Balancer, Decision
from spark_jobs.connect.group.protocol import NO_WORK, Work

ROUNDS_MAX = 4


def work(connectors: int, tasks: int = 0, name: str = "c") -> Work:
    """Return connectors with as many tasks each."""
    names = [f"{name}{number}" for number in range(connectors)]
    return Work(frozenset(names), frozenset(TaskId(each, number) for each in names for number in range(tasks)))


class Members:
    """Members that do what they are told, and what they run."""

    def __init__(self, delay_max_ms: int = 0) -> None:
        self.balancer = Balancer(delay_max_ms)
        self.present: dict[str, Work] = {}
        self.now_ms = 0
        self.stopped = 0

    def round(self, configured: Work) -> Decision:
        decision = self.balancer.decide(configured, self.present, self.now_ms)
        for member, (assigned, revoked) in decision.shares.items():
            assert not assigned & self.present[member], "what a member has is not given to it again"
            assert revoked - self.present[member] == NO_WORK, "a member stops only what it has"
            self.present[member] = (self.present[member] | assigned) - revoked
            self.stopped += len(revoked.connectors) + len(revoked.tasks)
        self.assert_nothing_runs_twice()
        return decision

    def settle(self, configured: Work) -> None:
        """Make rounds until nobody gets or stops anything."""
        for _ in range(ROUNDS_MAX):
            before = dict(self.present)
            decision = self.round(configured)
            if self.present == before and not decision.delay_ms:
                return
        raise AssertionError(f"not settled after {ROUNDS_MAX} rounds: {self.present}")

    def assert_nothing_runs_twice(self) -> None:
        items = [item for each in self.present.values() for item in (*each.connectors, *each.tasks)]
        assert len(items) == len(set(items))

    def loads(self) -> list[tuple[int, int]]:
        return sorted((len(each.connectors), len(each.tasks)) for each in self.present.values())

    def all(self) -> Work:
        found = NO_WORK
        for each in self.present.values():
            found = found | each
        return found


def assert_fair(members: Members, configured: Work) -> None:
    assert members.all() == configured
    for loads in zip(*members.loads(), strict=True):
        assert max(loads) - min(loads) <= 1, members.loads()


@pytest.mark.parametrize("seed", range(60))
def test_after_any_history_all_work_runs_once_and_loads_differ_by_one_at_most(seed: int) -> None:
    chance = random.Random(seed)
    members = Members()
    configured = NO_WORK
    count = 0
    for _ in range(12):
        for _ in range(chance.randrange(3)):
            count += 1
            members.present[f"m{chance.randrange(100)}-{count}"] = NO_WORK
        if members.present and chance.random() < 0.4:
            del members.present[chance.choice(sorted(members.present))]
        added = work(chance.randrange(4), chance.randrange(5), f"c{count}-")
        gone = frozenset(name for name in configured.connectors if chance.random() < 0.2)
        kept = Work(configured.connectors - gone, frozenset(t for t in configured.tasks if t.connector not in gone))
        configured = kept | added
        if members.present:
            members.settle(configured)
            assert_fair(members, configured)


def test_one_member_gets_everything_in_one_round() -> None:
    members = Members()
    members.present = {"a": NO_WORK}
    members.round(work(2, 3))
    assert members.present["a"] == work(2, 3)


def test_a_new_member_gets_its_share_and_no_more_than_that_moves() -> None:
    members = Members()
    members.present = {"a": NO_WORK, "b": NO_WORK}
    members.settle(work(6, 2))
    members.present["c"] = NO_WORK
    members.settle(work(6, 2))
    assert members.loads() == [(2, 4), (2, 4), (2, 4)]
    assert members.stopped == 2 + 4


def test_work_that_moves_is_stopped_in_one_round_and_started_in_the_next() -> None:
    members = Members()
    members.present = {"a": NO_WORK}
    members.settle(work(2))
    members.present["b"] = NO_WORK
    members.round(work(2))
    assert members.loads() == [(0, 0), (1, 0)]
    members.round(work(2))
    assert members.loads() == [(1, 0), (1, 0)]


def test_a_balanced_group_moves_nothing_for_new_or_deleted_work() -> None:
    members = Members()
    members.present = {"a": NO_WORK, "b": NO_WORK}
    members.settle(work(4, 2))
    members.settle(work(4, 2) | work(2, 2, "new"))
    assert members.stopped == 0
    members.settle(work(4, 2))
    assert members.stopped == 2 + 4, "only what was deleted is stopped"


def test_work_that_two_members_have_is_stopped_on_one_of_them() -> None:
    members = Members()
    members.present = {"a": work(1, 1), "b": work(1, 1)}
    members.settle(work(1, 1))
    assert members.all() == work(1, 1)
    assert members.loads() == [(0, 0), (1, 1)]


def test_lost_work_waits_for_the_return_of_its_member() -> None:
    members = Members(delay_max_ms=1_000)
    members.present = {"a": NO_WORK, "b": NO_WORK}
    members.settle(work(2, 2))
    lost = members.present.pop("b")
    assert members.round(work(2, 2)).delay_ms == 1_000
    assert not members.all() & lost
    members.now_ms = 400
    assert members.round(work(2, 2)).delay_ms == 600
    members.now_ms = 1_000
    assert members.round(work(2, 2)).delay_ms == 0
    assert_fair(members, work(2, 2))


def test_a_member_that_returns_gets_work_at_the_end_of_the_delay_and_nothing_else_moves() -> None:
    members = Members(delay_max_ms=1_000)
    members.present = {"a": NO_WORK, "b": NO_WORK}
    members.settle(work(2, 2))
    del members.present["b"]
    members.round(work(2, 2))
    members.now_ms = 500
    members.present["again"] = NO_WORK
    assert members.round(work(2, 2)).delay_ms == 500
    members.now_ms = 1_000
    members.round(work(2, 2))
    assert members.loads() == [(1, 2), (1, 2)]
    assert members.stopped == 0


def test_new_work_does_not_wait_with_the_lost() -> None:
    members = Members(delay_max_ms=1_000)
    members.present = {"a": NO_WORK, "b": NO_WORK}
    members.settle(work(2))
    lost = members.present.pop("b")
    members.round(work(2) | work(1, 0, "new"))
    assert members.all() == (work(2) - lost) | work(1, 0, "new")


def test_lost_work_that_was_deleted_is_not_waited_for() -> None:
    members = Members(delay_max_ms=1_000)
    members.present = {"a": NO_WORK, "b": NO_WORK}
    members.settle(work(2))
    lost = members.present.pop("b")
    assert members.round(work(2) - lost).delay_ms == 0


def test_a_second_loss_waits_as_long_as_the_first_had_left() -> None:
    members = Members(delay_max_ms=1_000)
    members.present = {"a": NO_WORK, "b": NO_WORK, "c": NO_WORK}
    members.settle(work(3))
    del members.present["b"]
    members.round(work(3))
    members.now_ms = 900
    del members.present["c"]
    assert members.round(work(3)).delay_ms == 100
    members.now_ms = 1_000
    members.settle(work(3))
    assert_fair(members, work(3))
