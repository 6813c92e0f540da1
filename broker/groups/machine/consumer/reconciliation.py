"""The steps of one member from what it has to what it is to have. Pure.

Owns: these steps. Must not know: members other than through the question whether somebody has a partition.

Theory of operation. A member that has to give partitions up is told so and stays at its epoch until it no longer
reports them. Then it moves to the epoch of the target and gets the partitions that nobody has; for the others it waits.
So a partition is given to a member only after the one before has given it up, and no member waits for another one to
join again.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from broker.groups.machine.consumer.member import Current, MemberState
from broker.groups.machine.consumer.partitions import Partitions, common, each, joined, partitions, without
from protocol.errors import ErrorCode, KafkaError

IsFree = Callable[[UUID, int], bool]


def reconciled(
    current: Current, target_epoch: int, target: Partitions, reported: Partitions | None, is_free: IsFree
) -> Current:
    """Return what a member has after its next step; `current` itself if it has to wait.

    `reported` is what it says that it has, None if it says nothing. Raises KafkaError: FENCED_MEMBER_EPOCH for a member
    in a state that is not known here.
    """
    match current.state:
        case MemberState.STABLE:
            if current.epoch == target_epoch:
                return current
            return _next(current, current.epoch, target_epoch, target, reported, is_free)
        case MemberState.UNREVOKED_PARTITIONS:
            if _has_any(reported, current.pending_revocation):
                return current
            return _next(current, current.epoch + 1, target_epoch, target, reported, is_free)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(current, current.epoch, target_epoch, target, reported, is_free)
        case MemberState.UNKNOWN:
            if reported is None or reported:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _next(current, target_epoch, target_epoch, target, reported, is_free)


def _next(
    current: Current, epoch: int, target_epoch: int, target: Partitions, reported: Partitions | None, is_free: IsFree
) -> Current:
    """Return the next step of a member that has given up what it was asked to; it is at `epoch` until it moves on."""
    kept = common(current.assigned, target)
    revoked = without(current.assigned, kept)
    if revoked and _has_any(reported, revoked):
        return current.at(epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
        )
    wanted = without(target, kept)
    given = partitions((topic_id, [number]) for topic_id, number in each(wanted) if is_free(topic_id, number))
    has_to_wait = given != wanted
    return current.at(target_epoch)._replace(
        state=MemberState.UNRELEASED_PARTITIONS if has_to_wait else MemberState.STABLE,
        assigned=joined(kept, given),
        pending_revocation=partitions(()),
    )


def _has_any(reported: Partitions | None, revoked: Partitions) -> bool:
    """Return whether a member may have some of these partitions: it does unless it says otherwise."""
    return reported is None or bool(common(reported, revoked))
