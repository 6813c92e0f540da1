"""Which worker of a group gets which connectors and tasks (KIP-415): as few as possible change their worker.

A rebalance has two rounds when work moves. In the first the members that have too much are told what to stop, while
everything else goes on; they join again at once, and in the second round what they have stopped goes to members that
have too little. What was lost with a member waits for its return, for at most the scheduled delay.

Pure: time is an argument. Owns this decision. Must not know how members are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from spark_jobs.connect.base.states import TaskId
from spark_jobs.connect.group.protocol import NO_WORK, Work

T = TypeVar("T", str, TaskId)


class Share(NamedTuple):
    """What one member gets in addition, and what it has to stop."""

    assigned: Work
    revoked: Work


class Decision(NamedTuple):
    shares: Mapping[str, Share]
    delay_ms: int
    """After how long members join again, because work waits for the return of a member; 0 if none waits."""


@dataclass
class Balancer:
    """The memory of a leader from one round to the next."""

    delay_max_ms: int
    previous: Work | None = None
    """All work that the last round has left with members; None before the first round."""
    due_ms: int | None = None
    """When work that waits is given to others."""

    def decide(self, configured: Work, members: Mapping[str, Work], now_ms: int) -> Decision:
        """Return the shares of a round. `members` have their present work, by member id."""
        kept, revoked = _kept(configured, members)
        running = _all(kept.values())
        lost = NO_WORK if self.previous is None else (self.previous & configured) - running
        lost = lost - _all(revoked.values())
        waiting, delay_ms = self._waiting(lost, now_ms)
        unassigned = configured - running - waiting - _all(revoked.values())
        assigned = {
            member: Work(connectors, tasks)
            for member, connectors, tasks in zip(
                kept,
                _fill(unassigned.connectors, [work.connectors for work in kept.values()]),
                _fill(unassigned.tasks, [work.tasks for work in kept.values()]),
                strict=True,
            )
        }
        # Work that nobody has yet is given out first: only then is it clear who has too much.
        moving = NO_WORK
        if not waiting:
            for member, excess in _excess({member: kept[member] | assigned[member] for member in kept}).items():
                movable = excess & kept[member]
                revoked[member] = revoked[member] | movable
                moving = moving | movable
        self.previous = (running | _all(assigned.values()) | waiting) - moving
        return Decision({member: Share(assigned[member], revoked[member]) for member in kept}, delay_ms)

    def _waiting(self, lost: Work, now_ms: int) -> tuple[Work, int]:
        """Return the part of lost work that waits for the return of a member, and for how long."""
        if not lost or not self.delay_max_ms:
            self.due_ms = None
            return NO_WORK, 0
        if self.due_ms is None:
            self.due_ms = now_ms + self.delay_max_ms
        if now_ms >= self.due_ms:
            self.due_ms = None
            return NO_WORK, 0
        return lost, self.due_ms - now_ms


def _kept(configured: Work, members: Mapping[str, Work]) -> tuple[dict[str, Work], dict[str, Work]]:
    """Return what each member keeps, and what it stops: what was deleted, and what another member has too."""
    kept: dict[str, Work] = {}
    revoked: dict[str, Work] = {}
    taken = NO_WORK
    for member in sorted(members):
        kept[member] = (members[member] & configured) - taken
        revoked[member] = members[member] - kept[member]
        taken = taken | kept[member]
    return kept, revoked


def _fill(unassigned: Iterable[T], present: list[frozenset[T]]) -> list[frozenset[T]]:
    """Return for each member what it gets: each item goes to the one that has the fewest."""
    found: list[set[T]] = [set() for _ in present]
    for item in sorted(unassigned):
        if found:
            number = min(range(len(present)), key=lambda each: len(present[each]) + len(found[each]))
            found[number].add(item)
    return [frozenset(each) for each in found]


def _excess(members: Mapping[str, Work]) -> dict[str, Work]:
    """Return what each member has beyond its share: at most one more than those that have the fewest."""
    connectors = _above(dict(zip(members, (work.connectors for work in members.values()), strict=True)))
    tasks = _above(dict(zip(members, (work.tasks for work in members.values()), strict=True)))
    return {member: Work(connectors[member], tasks[member]) for member in members}


def _above(items: Mapping[str, frozenset[T]]) -> dict[str, frozenset[T]]:
    base, larger = divmod(sum(map(len, items.values())), len(items)) if items else (0, 0)
    found: dict[str, frozenset[T]] = {}
    # Those that have most may keep one more, as many as there are.
    for member in sorted(items, key=lambda each: -len(items[each])):
        quota = base + 1 if larger > 0 else base
        larger -= 1
        found[member] = frozenset(sorted(items[member])[quota:])
    return found


def _all(works: Iterable[Work]) -> Work:
    found = NO_WORK
    for work in works:
        found = found | work
    return found
