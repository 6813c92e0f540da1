"""Asks the state machines of the brokers whether what they state to hold holds, while a run goes on.

Owns the moments: after each event of a partition, a group and a transactional id, but only after some fetches, which
are most of the events; of the rest, and of everything once more, whenever replicas are compared. Owns as well what only
ever rises, which no single state shows. Must not know the invariants of a machine: its `check` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import cycle, repeat
from typing import Any, Final

from broker.groups.machine.group import Group
from broker.groups.runner import GroupRunner
from broker.replica.partition import Partition
from broker.transactions.machine.transaction import Transaction
from protocol.errors import ErrorCode
from tests.sim.cluster import Cluster, Machine
from tests.sim.world import Crashed

Rising = dict[str, tuple[object, int]]
"""Numbers by name, each with the scope in which it must not fall."""

INVARIANTS: Final = "what a state machine states to hold holds"

EVENTS: Final[tuple[tuple[type[Any], int, tuple[str, ...]], ...]] = (
    (Partition, 1, ("follow", "isr_responded", "lead", "replace_log", "stop")),
    (Partition, 3, ("append_fetched", "follower_fetched")),
    (Transaction, 1, ("add_partitions", "complete", "end", "expire", "fail", "finish", "init_producer", "time_out")),
)
"""Machines, after how many of the events they are checked, and the methods that are the events."""


class InvariantChecks:
    """Checks the machines of all brokers of a cluster."""

    def __init__(self, cluster: Cluster, note: Callable[[str, str], None]) -> None:
        self._cluster = cluster
        self._note = note
        self._known: dict[int, tuple[object, Rising]] = {}
        """By the address of a machine: the machine itself, and what must not fall."""
        self._broken: set[str] = set()

    @contextmanager
    def after_every_event(self) -> Iterator[None]:
        """Check machines after their events until the end of the context."""
        patched = [(cls, name, vars(cls)[name], interval) for cls, interval, names in EVENTS for name in names]
        settle = GroupRunner.settle
        try:
            for cls, name, original, interval in patched:
                setattr(cls, name, self._checked(original, interval))
            GroupRunner.settle = self._settled(settle)  # type: ignore[method-assign]
            yield
        finally:
            for cls, name, original, _ in patched:
                setattr(cls, name, original)
            GroupRunner.settle = settle  # type: ignore[method-assign]

    def look(self) -> None:
        """Check everything that the running brokers have."""
        for machine in self._cluster.machines.values():
            if self._cluster.is_running(machine.broker_id):
                for checked in _machines(machine):
                    self.check(checked)

    def check(self, machine: Any) -> None:
        """Note the invariant that does not hold for `machine`, or what has fallen since the last check."""
        try:
            machine.check()
            self._compare(machine)
        except AssertionError as error:
            text = f"{_name(machine)}: {error}"
            if text not in self._broken:
                self._broken.add(text)
                self._note(INVARIANTS, text)

    def _compare(self, machine: Any) -> None:
        now = _rising(machine)
        if now:
            _, before = self._known.get(id(machine), (machine, now))
            self._known[id(machine)] = machine, now
            for name, (scope, number) in now.items():
                scope_before, number_before = before[name]
                assert scope != scope_before or number >= number_before, f"The {name} never goes back"

    def _checked(self, event: Callable[..., Any], interval: int) -> Callable[..., Any]:
        is_due = cycle([True, *repeat(False, interval - 1)])

        @wraps(event)
        def perform(machine: Any, *arguments: Any, **details: Any) -> Any:
            is_alive = True
            try:
                return event(machine, *arguments, **details)
            except Crashed:
                is_alive = False  # the process has died in the middle of the event
                raise
            finally:
                if is_alive and next(is_due):
                    self.check(machine)

        return perform

    def _settled(self, settle: Callable[..., ErrorCode]) -> Callable[..., ErrorCode]:
        @wraps(settle)
        def perform(runner: GroupRunner, group: Any, reason: str) -> ErrorCode:
            code = settle(runner, group, reason)
            self.check(group.machine)
            return code

        return perform


def _rising(machine: Any) -> Rising:
    """Return what must not fall from one event of a machine to the next, as long as its scope is the same."""
    if isinstance(machine, Partition):
        log = machine.log
        incarnation = (id(log), log.truncation_count)
        return {
            "leader epoch": (None, machine.leader_epoch),
            "high watermark": (incarnation, log.high_watermark),
            "log start": (incarnation, log.log_start_offset),
        }
    if isinstance(machine, Transaction):
        return {"producer epoch": (machine.current.producer_id, machine.current.producer_epoch)}
    if isinstance(machine, Group):
        return {"generation": (None, machine.generation_id)}
    return {}


def _machines(machine: Machine) -> Iterator[Any]:
    assert machine.process is not None
    services: Any = machine.process.server._services  # type: ignore[union-attr]
    yield from services.replica_manager.hosted()
    yield from services.replica_manager.purgatories
    yield services.topics.purgatory
    yield services.fetch_sessions
    for partition in services.groups.partitions:
        for group in partition.groups.values():
            yield group.machine
    if services.share._parts is not None:
        for of_group in services.share._parts.partitions._by_group.values():
            for shared in of_group.values():
                yield shared.deliveries
    for partition in services.transactions.partitions:
        yield from partition.transactions.values()
    term = services.controller._active_term
    if term is not None:
        yield term.context


def _name(machine: Any) -> str:
    if isinstance(machine, Partition):
        return f"{machine.topic}-{machine.partition} on broker {machine._broker_id}"
    if isinstance(machine, Group):
        return f"group {machine.group_id}"
    if isinstance(machine, Transaction):
        return f"transactional id {machine.transactional_id}"
    return type(machine).__name__
