"""Choose a leader: four pure functions, one for each reason to elect.

`assignment` is in order of preference, `isr` holds the in-sync replicas, `live` the replicas that can lead now. Each
function returns None if no replica qualifies. Must not know why it is called or what happens with the result.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Choice(NamedTuple):
    """A leader, and whether electing it may lose records that the previous leader acknowledged."""

    leader: int
    is_unclean: bool


def leader_when_offline(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], *, unclean_allowed: bool
) -> Choice | None:
    """Return the first live in-sync replica; if there is none and `unclean_allowed`, the first live one."""
    for replica in assignment:
        if replica in live and replica in isr:
            return Choice(replica, is_unclean=False)
    if unclean_allowed:
        for replica in assignment:
            if replica in live:
                return Choice(replica, is_unclean=True)
    return None


def leader_when_reassigned(target: Sequence[int], isr: Collection[int], live: Collection[int]) -> int | None:
    """Return the first replica of the reassignment's `target` that is live and in sync."""
    return next((replica for replica in target if replica in live and replica in isr), None)


def preferred_leader(assignment: Sequence[int], isr: Collection[int], live: Collection[int]) -> int | None:
    """Return the head of the assignment if it is live and in sync."""
    head = assignment[0] if assignment else None
    return head if head in live and head in isr else None


def leader_when_shutting_down(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], shutting_down: Collection[int]
) -> int | None:
    """Return the first live in-sync replica that is not shutting down. `live` includes those that are."""
    return next(
        (replica for replica in assignment if replica in live and replica in isr and replica not in shutting_down),
        None,
    )
