"""The members of a group of the consumer protocol (KIP-848): what heartbeats and the passing of time do. Pure.

Owns: who is a member, when the group's epoch rises, and each member's steps. Requests and the passing of time go in;
effects come out, which the shell performs. Must not know: how partitions are assigned
(`broker.groups.machine.consumer.refreshing`), futures, timers, logs, wire messages, or where ids come from.

Theory of operation. A change of what members subscribe to raises the group's epoch. Then the targets of all members are
computed for this epoch, in slices of time; heartbeats that wait for them are parked. Each member moves to its target by
its own heartbeats (`reconciliation`), and nobody waits for all. A member that is silent for too long, or does not give
up partitions in time, is removed, and its epoch is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from base.dataclass import dataclass
from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult, Timeouts
from broker.groups.machine.consumer.member import JOINING, LEAVING, LEFT_FOR_A_WHILE, Current, Member, MemberState
from broker.groups.machine.consumer.partitions import NOTHING, Partitions, contains, to_stored
from broker.groups.machine.consumer.reconciliation import reconciled
from broker.groups.machine.consumer.records import SubscriptionValue, TargetValue, encode_key
from broker.groups.machine.consumer.refreshing import Refreshing, Rules
from broker.groups.machine.consumer.topics import Topics
from broker.groups.machine.events import Moment, Respond, StoreChanges, Ticket
from broker.groups.machine.member import NEVER
from broker.groups.machine.offsets import ExpiryRule, expiry_rule
from broker.groups.machine.records import NO_TIMESTAMP
from broker.groups.machine.states import GroupState
from broker.groups.machine.subscription import CONSUMER_PROTOCOL_TYPE
from protocol.errors import ErrorCode, KafkaError

NO_EPOCH: Final = -1


class ConsumerGroupState(Enum):
    """A group's state; the value is the name that clients see."""

    EMPTY = "Empty"
    """No members, perhaps committed offsets."""
    ASSIGNING = "Assigning"
    """The targets are being computed for the group's epoch."""
    RECONCILING = "Reconciling"
    """Some members do not have what they are to have yet."""
    STABLE = "Stable"
    """Every member has what it is to have."""
    DEAD = "Dead"
    """Removed: deleted, expired, converted, or coordinated by another broker now."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The broker's settings for groups of the consumer protocol."""

    rules: Rules
    max_size: int
    timeouts: Callable[[str], Timeouts]
    """By group id: groups may have their own."""


class _Parked(NamedTuple):
    """A request of a member that waits until the targets are computed for an epoch."""

    member_id: str
    ticket: Ticket
    epoch: int
    step: Callable[[Member, Moment], None]


class Membership(Refreshing):
    """A group as far as members of the consumer protocol go. `ConsumerGroup` adds those of the classic one."""

    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, settings: ConsumerGroupSettings) -> None:
        super().__init__(group_id, settings.rules)
        self._settings = settings
        self._parked: list[_Parked] = []
        self._responses: list[Respond] = []
        self._replaced: Sequence[bytes] = ()
        """The keys of the records of the group whose place this one takes."""
        self.is_dead = False
        self.wake_at_ms = NEVER

    # Events

    def consumer_heartbeat(self, request: Heartbeat, topics: Topics, ticket: Ticket, moment: Moment) -> None:
        """Join, leave, subscribe, stay alive, or report what the member has; `ticket` gets what it is to do.

        Raises KafkaError, and changes nothing then.
        """
        if request.epoch in (LEAVING, LEFT_FOR_A_WHILE):
            self._leave(request, moment)
            self._respond(ticket, HeartbeatResult(request.member_id, request.epoch))
            return
        before = self._known_or_new(request)
        self._subscribe(request, before)
        member = self.members[request.member_id]
        if request.epoch == JOINING and member.current.epoch != JOINING:
            self._set_current(member.member_id, Current())  # it has nothing, and says so
        self._restart_session(member, moment)
        # Also while the targets are being computed: else the member would learn its own one heartbeat later.
        if self.is_refresh_due(topics) or self.epoch > self.target_epoch:
            self._park(member, ticket, lambda present, now: self._step(present, request, ticket, now))
        else:
            self._step(member, request, ticket, moment)

    def refreshed(self, moment: Moment, failure: str | None = None) -> list[Exception]:
        """Continue after `refresh`: answer the requests that waited for it. `failure` is why there are no targets.

        Returns what the steps of members raised: their requests fail with UNKNOWN_SERVER_ERROR, the others go on.
        """
        waiting, self._parked = self._parked, []
        raised: list[Exception] = []
        for parked in waiting:
            member = self.members.get(parked.member_id)
            if failure is not None:
                text = f"Failed to compute a new target assignment for epoch {self.epoch}: {failure}"
                self._respond(parked.ticket, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text))
            elif member is None:
                self._respond(parked.ticket, _unknown(parked.member_id, self.group_id))
            elif parked.epoch > self.target_epoch:
                self._parked.append(parked)
            else:
                try:
                    parked.step(member, moment)
                except Exception as error:
                    raised.append(error)
                    self._respond(parked.ticket, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return raised

    def _park(self, member: Member, ticket: Ticket, step: Callable[[Member, Moment], None]) -> None:
        """Take a member's step when the targets are computed for the present epoch."""
        self._parked.append(_Parked(member.member_id, ticket, self.epoch, step))

    def stored(self, error: ErrorCode, moment: Moment) -> None:
        """Continue after a `StoreChanges` effect.

        With an error nothing was appended: the changes are undone, and all requests that wait fail; `take_effects` has
        their responses.
        """
        if error:
            self._undo_changes()
            self.resume(moment)
            self._fail_parked(error)
        self._forget_undo()

    def advance(self, moment: Moment) -> None:
        """Remove the members whose time is up, and set `wake_at_ms` to the next deadline."""
        now_ms = moment.monotonic_ms
        for member in [each for each in self.members.values() if each.deadline_ms() <= now_ms]:
            self._remove(member)
        self.wake_at_ms = min((member.deadline_ms() for member in self.members.values()), default=NEVER)

    def resume(self, moment: Moment) -> None:
        """Start the sessions of members that have none, after loading."""
        for member in self.members.values():
            if member.session_deadline_ms == NEVER:
                self._restart_session(member, moment)
                if member.current.state is MemberState.UNREVOKED_PARTITIONS:
                    self._await_revocation(member, moment)

    def expel(self) -> None:
        """Remove all members, so that they join again: records of some are lost."""
        for member in list(self.members.values()):
            self._remove(member)

    def give_way(self) -> None:
        """Fail all parked requests: a classic group takes its place, whose members are asked to join again."""
        waiting, self._parked = self._parked, []
        for parked in waiting:
            is_known = parked.member_id in self.members
            error = (
                KafkaError(ErrorCode.REBALANCE_IN_PROGRESS) if is_known else _unknown(parked.member_id, self.group_id)
            )
            self._respond(parked.ticket, error)
        self._become_dead(ErrorCode.REBALANCE_IN_PROGRESS)

    def resign(self) -> None:
        """Fail all parked requests with NOT_COORDINATOR: another broker coordinates this group now."""
        self._become_dead(ErrorCode.NOT_COORDINATOR)

    def delete(self) -> ErrorCode:
        """Remove the group if it is empty, or return why not."""
        if self.is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.members:
            return ErrorCode.NON_EMPTY_GROUP
        self._become_dead(ErrorCode.UNKNOWN_MEMBER_ID)
        return ErrorCode.NONE

    def _become_dead(self, error: ErrorCode) -> None:
        self._fail_parked(error)
        self.is_dead = True
        self.wake_at_ms = NEVER

    def _fail_parked(self, error: ErrorCode) -> None:
        for parked in self._parked:
            self._respond(parked.ticket, KafkaError(error))
        self._parked.clear()

    # Queries

    def take_effects(self) -> StoreChanges | None:
        """Return the effect of the events since the last call."""
        changes, responses, replaced = self._take_changes(), self._responses, self._replaced
        if not changes and not responses:
            return None
        self._responses, self._replaced = [], ()
        return StoreChanges(changes, responses, replaced)

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.current.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_waited_for(self) -> bool:
        """Whether heartbeats wait for targets. Without any, they are not computed: more members may come or go."""
        return bool(self._parked)

    @property
    def is_in_use(self) -> bool:
        return bool(self.members)

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members. Without offsets it is removed."""
        return not self.members

    def record_keys(self) -> list[bytes]:
        """Return the keys of the group's records."""
        return [encode_key(key) for key in self.tombstones()] if self.epoch > 0 else []

    def expiry_rule(self, now_ms: int, retention_ms: int) -> ExpiryRule | None:
        """Offsets of topics that no member subscribes to expire some time after their commit."""
        subscribed = self._subscribed.names
        return expiry_rule(GroupState.STABLE, self.protocol_type, subscribed, NO_TIMESTAMP, now_ms, retention_ms)

    def commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        moment: Moment,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Check whether a member may commit offsets now; its epoch is in the place of a generation.

        Without members, anybody may who names no epoch. So may a transactional producer that names no member: before
        KIP-447 none could.
        """
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and not self.members:
            return ErrorCode.NONE
        if is_transactional and generation_id < 0 and not member_id and group_instance_id is None:
            return ErrorCode.NONE
        return self._epoch_error(member_id, generation_id)

    def has_consumer(self, member_id: str) -> bool:
        """Return whether this is a member of the consumer protocol."""
        member = self.members.get(member_id)
        return member is not None and not member.is_classic

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return whether offsets may be fetched by somebody who names a member."""
        return ErrorCode.NONE if member_id is None and epoch < 0 else self._epoch_error(member_id or "", epoch)

    def _epoch_error(self, member_id: str, epoch: int) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.current.epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    # Members that come and go

    def _known_or_new(self, request: Heartbeat) -> Member | None:
        """Return the member that sends a heartbeat, or the one that it replaces; None if it is new.

        Raises KafkaError.
        """
        known = self.members.get(request.member_id)
        if known is None and len(self.members) >= self._settings.max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._settings.max_size} members.",
            )
        if request.epoch != JOINING:
            present = self._present(request.member_id, request.instance_id)
            _check_epoch(request, present)
            return present
        if request.instance_id is None:
            return known
        present_static = self.static_member(request.instance_id)
        if (
            present_static is not None
            and present_static.member_id != request.member_id
            and not present_static.is_classic
            and present_static.current.epoch != LEFT_FOR_A_WHILE
        ):
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
                f"because the instance id is owned by {present_static.member_id} member.",
            )
        return present_static

    def _static(self, instance_id: str, member_id: str) -> Member:
        """Return the static member, whose member id a request has to name. Raises KafkaError."""
        present = self.static_member(instance_id)
        if present is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if present.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {present.member_id}.",
            )
        return present

    def _present(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member of a request. Raises KafkaError."""
        if instance_id is not None:
            return self._static(instance_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise _unknown(member_id, self.group_id)
        return member

    def _subscribe(self, request: Heartbeat, before: Member | None) -> None:
        """Create, replace or update a member."""
        old = None if before is None else before.subscription
        new = SubscriptionValue(
            instance_id=request.instance_id or (old.instance_id if old else None),
            rack_id=request.rack_id or (old.rack_id if old else None),
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=_names(request.topic_names, old),
            subscribed_topic_regex=_regex(request.topic_regex, old),
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms
                if request.rebalance_timeout_ms != -1 or old is None
                else old.rebalance_timeout_ms
            ),
            server_assignor=request.server_assignor or (old.server_assignor if old else None),
        )
        if new.subscribed_topic_regex:
            self._visible[new.subscribed_topic_regex] = request.may_see
        self._put_subscription(request.member_id, before, new)

    def _put_subscription(self, member_id: str, before: Member | None, new: SubscriptionValue) -> None:
        """Store a subscription in the place of that of `before`; the epoch rises if it is to other topics."""
        old = None if before is None else before.subscription
        if before is not None and before.member_id != member_id:
            self._replace(before, member_id, new)
        elif old != new:
            self._set_subscription(member_id, new)
        if old is None or _topics(old) != _topics(new):
            self._raise_epoch()

    def _replace(self, before: Member, member_id: str, subscription: SubscriptionValue) -> None:
        """Give what a static member was to have to the member that came back under its instance id."""
        target, current = before.target, before.current
        self._drop_member(before.member_id)
        self._set_subscription(member_id, subscription)
        self._set_target(member_id, TargetValue(topic_partitions=to_stored(target)))
        self._set_current(
            member_id, current._replace(epoch=JOINING, previous_epoch=JOINING, pending_revocation=NOTHING)
        )

    def _leave(self, request: Heartbeat, moment: Moment) -> None:
        member = self._present(request.member_id, request.instance_id)
        if request.epoch == LEFT_FOR_A_WHILE:
            left = member.current._replace(epoch=LEFT_FOR_A_WHILE, pending_revocation=NOTHING)
            self._set_current(member.member_id, left)
        else:
            self._remove(member)

    def _remove(self, member: Member) -> None:
        """Remove a member; the others are to have its partitions."""
        self._drop_member(member.member_id)
        self._raise_epoch()

    # Steps

    def _step(self, member: Member, request: Heartbeat, ticket: Ticket, moment: Moment) -> None:
        """Move a member towards its target, and respond with what it is to have."""
        before = member.current
        try:
            after = self._reconcile(member, request.reported, moment)
        except KafkaError as error:
            self._respond(ticket, error)
            return
        is_news = request.is_full or after.assigned != before.assigned
        interval_ms = self._settings.timeouts(self.group_id).heartbeat_interval_ms
        self._respond(
            ticket, HeartbeatResult(member.member_id, after.epoch, interval_ms, after.assigned if is_news else None)
        )

    def _reconcile(self, member: Member, reported: Partitions | None, moment: Moment) -> Current:
        """Take a member's next step, and return what it has. Raises KafkaError: FENCED_MEMBER_EPOCH."""
        before = member.current
        after = reconciled(before, self.target_epoch, member.target, reported, self.is_free)
        if after != before:
            self._set_current(member.member_id, after)
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self._await_revocation(member, moment)
            else:
                member.rebalance_deadline_ms = NEVER
        return after

    def _await_revocation(self, member: Member, moment: Moment) -> None:
        member.rebalance_deadline_ms = moment.monotonic_ms + max(member.subscription.rebalance_timeout_ms, 0)
        self._wake_at(member.rebalance_deadline_ms)

    def _restart_session(self, member: Member, moment: Moment) -> None:
        classic = member.subscription.classic_member_metadata
        timeout_ms = (
            self._settings.timeouts(self.group_id).session_ms if classic is None else classic.session_timeout_ms
        )
        member.session_deadline_ms = moment.monotonic_ms + timeout_ms
        self._wake_at(member.session_deadline_ms)

    def _wake_at(self, deadline_ms: int) -> None:
        if deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms

    def _respond(self, ticket: Ticket, result: object) -> None:
        self._responses.append(Respond(ticket, result))


def _unknown(member_id: str, group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def _names(given: tuple[str, ...] | None, old: SubscriptionValue | None) -> list[str]:
    if given is not None:
        return sorted(set(given))
    return [] if old is None else old.subscribed_topic_names


def _regex(given: str | None, old: SubscriptionValue | None) -> str | None:
    if given is not None:
        return given
    return None if old is None else old.subscribed_topic_regex


def _topics(subscription: SubscriptionValue) -> tuple[list[str], str | None]:
    return subscription.subscribed_topic_names, subscription.subscribed_topic_regex


def _check_epoch(request: Heartbeat, member: Member) -> None:
    """Raise FENCED_MEMBER_EPOCH unless a member names its epoch, or the one before: a response may have been lost."""
    current = member.current
    if request.epoch == current.epoch:
        return
    is_repeated = (
        request.epoch == current.previous_epoch
        and request.epoch < current.epoch
        and request.reported is not None
        and contains(current.assigned, request.reported)
    )
    if not is_repeated:
        size = "greater" if request.epoch > current.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {size} member epoch ({request.epoch}) than the one known by the group "
            f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
        )
