"""A state machine in a state that it states to be impossible is a violation, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from broker.replica.partition import Partition as Replica
from broker.transactions.machine.transaction import ONGOING, Transaction
from tests.sim.invariant_checks import EVENTS, INVARIANTS, InvariantChecks
from tests.sim.run import PLAIN
from tests.sim.scripted import Script


@pytest.fixture(scope="module")
def script() -> Iterator[Script]:
    begun = Script()
    with begun.world:
        begun.begin()
        yield begun


@pytest.fixture
def noted(script: Script) -> list[tuple[str, str]]:
    return []


@pytest.fixture
def checks(script: Script, noted: list[tuple[str, str]]) -> InvariantChecks:
    return InvariantChecks(script.cluster, lambda rule, text: noted.append((rule, text)))


def test_broken_state_is_noted_once(
    script: Script, checks: InvariantChecks, noted: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.look()
    assert not noted
    replica = script.replica(PLAIN[0], 1)
    monkeypatch.setattr(replica, "leader_epoch", 99)
    checks.look()
    checks.look()
    assert noted == [(INVARIANTS, "plain-0 on broker 1: The leader epoch is that of the leadership")]


@pytest.mark.parametrize("part", ["fetch_sessions", "purgatory", "context"])
def test_every_kind_of_machine_is_looked_at(
    script: Script, checks: InvariantChecks, noted: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    process = script.cluster.machines[script.controller()].process
    services: Any = process.server._services  # type: ignore[union-attr]
    if part == "fetch_sessions":
        monkeypatch.setattr(services.fetch_sessions, "_slots_max", -1)
    elif part == "purgatory":
        monkeypatch.setitem(services.replica_manager.fetch_purgatory.watched, "key", [])
    else:
        monkeypatch.setattr(services.controller._active_term.context, "shutting_down", {99})
    checks.look()
    assert [rule for rule, _ in noted] == [INVARIANTS]


def test_number_that_falls_is_noted(script: Script, checks: InvariantChecks, noted: list[tuple[str, str]]) -> None:
    replica = script.replica(PLAIN[0], 1)
    with pytest.MonkeyPatch.context() as later:
        later.setattr(replica, "leader_epoch", 99)
        later.setattr(replica, "leadership", replace(replica.leadership, leader_epoch=99))
        checks.look()
        assert not noted
    checks.check(replica)
    assert noted == [(INVARIANTS, "plain-0 on broker 1: The leader epoch never goes back")]


def test_machines_are_checked_after_their_events(
    script: Script, checks: InvariantChecks, noted: list[tuple[str, str]]
) -> None:
    originals = [vars(cls)[name] for cls, _, names in EVENTS for name in names]
    transaction = Transaction.new("id", 7, 1000, 0)
    transaction.pending = transaction.current._replace(state=ONGOING)
    with checks.after_every_event():
        transaction.complete()
        replica = Replica("t", 0, 1, script.replica(PLAIN[0], 1).log)
        replica.leader_epoch = 3
        replica.stop()
    assert [text.partition(":")[0] for _, text in noted] == ["transactional id id", "t-0 on broker 1"]
    assert [vars(cls)[name] for cls, _, names in EVENTS for name in names] == originals
