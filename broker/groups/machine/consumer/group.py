"""One group of the consumer protocol (KIP-848), whose members may also be of the classic protocol. Pure.

A group is converted while its members are replaced one by one by members of the other protocol. A member of the classic
protocol joins, syncs and sends heartbeats as ever; it gets its assignment from the coordinator, as if another member
led the group, and is asked to join again whenever it has to do something. Its epoch is its generation.

Owns: the requests of members of the classic protocol. Must not know: those of the others (`membership`), or how a group
is converted (`conversion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.groups.machine.consumer.member import JOINING, Current, Member, MemberState
from broker.groups.machine.consumer.membership import ConsumerGroupSettings, Membership
from broker.groups.machine.consumer.partitions import Partitions, each, partitions, without
from broker.groups.machine.consumer.records import (
    Change,
    ClassicMember,
    ClassicProtocol,
    SubscriptionValue,
    TargetValue,
)
from broker.groups.machine.events import JoinRequest, JoinResult, Moment, SyncRequest, SyncResult, Ticket
from broker.groups.machine.member import NEVER
from broker.groups.machine.member import Member as ClassicGroupMember
from protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    assignment_bytes,
    read_subscription,
)
from protocol.errors import ErrorCode, KafkaError, Malformed


class ConsumerGroup(Membership):
    """One group. Every public method but queries is one event; afterwards call `take_effects`, and see `wake_at_ms`."""

    @classmethod
    def restored(cls, group_id: str, records: Iterable[Change], settings: ConsumerGroupSettings) -> ConsumerGroup:
        """Restore a group from its records. Sessions start with `resume`."""
        group = cls(group_id, settings)
        group.load(records)
        return group

    # Requests of members of the classic protocol

    def join(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """Add or update a member of the classic protocol; `ticket` is resolved when its partitions are known."""
        try:
            member = self._join(request)
        except KafkaError as error:
            named = request.member_id or request.generated_member_id
            member_id = named if error.code is ErrorCode.MEMBER_ID_REQUIRED else request.member_id
            self._respond(ticket, JoinResult(error.code, member_id))
            return
        self._restart_session(member, moment)
        if self.epoch > self.target_epoch:
            self._park(member, ticket, lambda present, now: self._respond_to_join(present, request, ticket, now))
        else:
            self._respond_to_join(member, request, ticket, moment)

    def sync(self, request: SyncRequest, ticket: Ticket, moment: Moment) -> None:
        """Return the assignment of a member of the classic protocol."""
        try:
            member = self._classic(request.member_id, request.group_instance_id, request.generation_id)
            self._check_protocol(member, request)
            self._check_up_to_date(member, moment)
        except KafkaError as error:
            self._respond(ticket, SyncResult(error.code))
            return
        member.sync_deadline_ms = NEVER
        self._restart_session(member, moment)
        name, content = member.classic.supported_protocols[0].name, self.assignment_of(member)
        self._respond(ticket, SyncResult(ErrorCode.NONE, PROTOCOL_TYPE, name, content))

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, moment: Moment) -> ErrorCode:
        """Keep a member of the classic protocol alive. REBALANCE_IN_PROGRESS asks it to join again."""
        try:
            member = self._classic(member_id, group_instance_id, generation_id)
        except KafkaError as error:
            return error.code
        self._restart_session(member, moment)
        has_news = member.current.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(member)
        is_to_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if member.current.epoch < self.epoch or is_to_revoke or has_news:
            self._await_join(member, moment)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, member_id: str, group_instance_id: str | None, moment: Moment) -> ErrorCode:
        """Remove a member of the classic protocol. An administrator may name a static member by its instance id."""
        static = self.static_member(group_instance_id)
        try:
            member = static if static is not None and not member_id else self._present(member_id, group_instance_id)
        except KafkaError as error:
            return error.code
        if member_id and not member.is_classic:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(member)
        return ErrorCode.NONE

    @property
    def is_classic(self) -> bool:
        """Whether all members are of the classic protocol."""
        return bool(self.members) and all(member.is_classic for member in self.members.values())

    def assignment_of(self, member: Member) -> bytes:
        """Return the assignment of a member of the classic protocol, as its client reads it."""
        version, _ = read_subscription(member.classic.supported_protocols[0].metadata)
        named = self._with_names(member.current.assigned)
        return assignment_bytes(version, ConsumerProtocolAssignment(assigned_partitions=named, user_data=None))

    # Conversion

    def begin(self, epoch: int, replaced: Sequence[bytes]) -> None:
        """Take the place of a classic group, whose records have these keys."""
        self._replaced = replaced
        self._set_epoch(epoch)
        self._set_target_epoch(epoch)

    def adopt(self, member_id: str, subscription: SubscriptionValue, target: TargetValue, current: Current) -> None:
        """Add a member of the classic group."""
        self._set_subscription(member_id, subscription)
        self._set_target(member_id, target)
        self._set_current(member_id, current)

    # Joins

    def _join(self, request: JoinRequest) -> Member:
        """Create or update the member of a request. Raises KafkaError."""
        member_id = request.member_id or request.generated_member_id
        if len(self.members) >= self._settings.max_size and member_id not in self.members:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not self._supports(request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        subscription = _subscription(request)
        if request.group_instance_id is not None and request.member_id:
            before: Member | None = self._static(request.group_instance_id, request.member_id)
        elif request.group_instance_id is not None:
            before = self.static_member(request.group_instance_id)
        elif not request.member_id and request.requires_known_member_id:
            raise KafkaError(ErrorCode.MEMBER_ID_REQUIRED)
        else:
            before = self.members.get(member_id)
        self._put_subscription(member_id, before, subscription_value(request, subscription))
        return self.members[member_id]

    def _supports(self, request: JoinRequest) -> bool:
        """Whether a member shares a protocol with all others of the classic protocol."""
        if request.protocol_type != PROTOCOL_TYPE or not request.protocols:
            return False
        others = [
            {protocol.name for protocol in member.classic.supported_protocols}
            for member in self.members.values()
            if member.is_classic
        ]
        return any(all(protocol.name in names for names in others) for protocol in request.protocols)

    def _respond_to_join(self, member: Member, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        if not member.is_classic:  # while this join was parked, it has joined with the consumer protocol
            self._respond(ticket, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
            return
        try:
            after = self._reconcile(member, self._with_ids(_subscription(request)), moment)
        except KafkaError as error:
            self._respond(ticket, JoinResult(error.code, member.member_id))
            return
        member.join_deadline_ms = NEVER
        member.sync_deadline_ms = moment.monotonic_ms + max(member.subscription.rebalance_timeout_ms, 0)
        self._wake_at(member.sync_deadline_ms)
        name = member.classic.supported_protocols[0].name
        self._respond(ticket, JoinResult(ErrorCode.NONE, member.member_id, after.epoch, PROTOCOL_TYPE, name))

    # Checks

    def _classic(self, member_id: str, instance_id: str | None, generation_id: int) -> Member:
        """Return a member of the classic protocol. Raises KafkaError."""
        member = self._present(member_id, instance_id)
        if not member.is_classic or member.current.epoch == JOINING:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation_id != member.current.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _check_protocol(self, member: Member, request: SyncRequest) -> None:
        if request.protocol_type not in (None, PROTOCOL_TYPE):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, member.classic.supported_protocols[0].name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _check_up_to_date(self, member: Member, moment: Moment) -> None:
        """Raise REBALANCE_IN_PROGRESS for a member that has to join again first."""
        if self.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(member, moment)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _await_join(self, member: Member, moment: Moment) -> None:
        if member.join_deadline_ms == NEVER:
            member.join_deadline_ms = moment.monotonic_ms + max(member.subscription.rebalance_timeout_ms, 0)
            self._wake_at(member.join_deadline_ms)

    def _waits_for_others(self, member: Member) -> bool:
        """Whether other members still have partitions that a member is to have."""
        missing = without(member.target, member.current.assigned)
        return any(not self.is_free(topic_id, number) for topic_id, number in each(missing))

    # Names and ids of topics

    def _with_ids(self, subscription: ConsumerProtocolSubscription) -> Partitions:
        """Return what a member says that it has."""
        return partitions(
            (topic.topic_id, owned.partitions)
            for owned in subscription.owned_partitions
            if (topic := self.topics.get(owned.topic)) is not None
        )

    def _with_names(self, assigned: Partitions) -> list[TopicPartitions]:
        names = {topic.topic_id: name for name, topic in self.topics.items()}
        return [
            TopicPartitions(topic=names[topic_id], partitions=sorted(numbers))
            for topic_id, numbers in assigned.items()
            if topic_id in names
        ]


def subscription_value(
    joined: JoinRequest | ClassicGroupMember, subscription: ConsumerProtocolSubscription
) -> SubscriptionValue:
    """Return what is stored of a member of the classic protocol, and of what it subscribes to."""
    return SubscriptionValue(
        instance_id=joined.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=joined.client_id,
        client_host=joined.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        rebalance_timeout_ms=joined.rebalance_timeout_ms,
        classic_member_metadata=ClassicMember(
            session_timeout_ms=joined.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in joined.protocols
            ],
        ),
    )


def _subscription(request: JoinRequest) -> ConsumerProtocolSubscription:
    """Return what a member subscribes to: under all its protocols the same. Raises KafkaError if one is malformed."""
    try:
        subscriptions = [read_subscription(protocol.metadata)[1] for protocol in request.protocols]
    except Malformed as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
    return subscriptions[0]
