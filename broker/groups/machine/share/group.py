"""One share group (KIP-932): members come and go, and several may have the same partition. Pure.

It is kept like a group of the consumer protocol, with two differences: a member has what it is to have at once, because
nobody has to give it up; and a partition is assigned as soon as it has a state in `__share_group_state`, which the
shell initializes.

Owns: what is different. Must not know: what is delivered to the members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from broker.groups.machine.consumer.member import Current, Member, MemberState
from broker.groups.machine.consumer.membership import ConsumerGroupSettings, ConsumerGroupState, Membership
from broker.groups.machine.consumer.partitions import Partitions
from broker.groups.machine.consumer.records import Change, Key, Value, encode_key
from broker.groups.machine.consumer.topics import Topic, Topics
from broker.groups.machine.events import JoinRequest, JoinResult, Moment, StoreChanges, SyncRequest, SyncResult, Ticket
from broker.groups.machine.offsets import ExpiryRule
from broker.groups.machine.share.records import ShareKey, ShareStatesKey, ShareStatesValue, TopicStates
from broker.groups.machine.share.stored_form import from_stored, key_to_stored, to_stored
from broker.groups.machine.subscription import SHARE_PROTOCOL_TYPE
from protocol.errors import ErrorCode


class ShareGroup(Membership):
    """One group. Every public method but queries is one event; afterwards call `take_effects`, and see `wake_at_ms`."""

    protocol_type = SHARE_PROTOCOL_TYPE

    def __init__(self, group_id: str, settings: ConsumerGroupSettings) -> None:
        super().__init__(group_id, settings)
        self.initialized: Mapping[UUID, TopicStates] = {}
        """The partitions with a state, by topic id."""
        self._looked_after: tuple[object, object, object] = (None, None, None)

    @classmethod
    def restored(cls, group_id: str, records: Iterable[Change], settings: ConsumerGroupSettings) -> ShareGroup:
        """Restore a group from its records. Sessions start with `resume`."""
        group = cls(group_id, settings)
        group.load(from_stored(records))
        return group

    # Events

    def states_initialized(self, topic_id: UUID, name: str, count: int) -> None:
        """Note that the partitions of a topic below `count` have states; they may be assigned now."""
        states = TopicStates(topic_id=topic_id, topic_name=name, partitions=list(range(count)))
        self._set_initialized({**self.initialized, topic_id: states})
        self._raise_epoch()

    def states_deleted(self, topic_ids: Iterable[UUID]) -> None:
        """Note that topics have no states any more."""
        gone = set(topic_ids)
        self._set_initialized({topic_id: each for topic_id, each in self.initialized.items() if topic_id not in gone})

    def join(self, request: JoinRequest, ticket: Ticket, moment: Moment) -> None:
        """Refuse a member of the classic protocol."""
        self._respond(ticket, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))

    def sync(self, request: SyncRequest, ticket: Ticket, moment: Moment) -> None:
        """Refuse a member of the classic protocol."""
        self._respond(ticket, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, moment: Moment) -> ErrorCode:
        """Refuse a member of the classic protocol."""
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, member_id: str, group_instance_id: str | None, moment: Moment) -> ErrorCode:
        """Refuse a member of the classic protocol."""
        return ErrorCode.UNKNOWN_MEMBER_ID

    def take_effects(self) -> StoreChanges | None:
        """Return the effect of the events since the last call."""
        effect = super().take_effects()
        return None if effect is None else effect._replace(changes=to_stored(effect.changes))

    # Queries

    def has_states(self, topic: Topic) -> bool:
        """Return whether all partitions of a topic have a state."""
        return self._initialized_count(topic.topic_id) >= topic.partition_count

    def missing_states(self) -> dict[str, Topic]:
        """Return the subscribed topics of which not all partitions have a state."""
        if not self.members:
            return {}  # nothing keeps `topics` up to date
        return {name: topic for name, topic in self.topics.items() if not self.has_states(topic)}

    def outlived_states(self, topics: Topics) -> list[UUID]:
        """Return the ids of topics that were deleted, but have states."""
        return [
            topic_id
            for topic_id, each in self.initialized.items()
            if (topic := topics.find(each.topic_name)) is None or topic.topic_id != topic_id
        ]

    def is_looked_after(self, topics: Topics) -> bool:
        """Return whether nothing has changed since the last call that could call for other states."""
        seen, self._looked_after = self._looked_after, (self.topics, self.initialized, topics.stamp)
        return all(before is now for before, now in zip(seen, self._looked_after, strict=True))

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        return ConsumerGroupState.STABLE if self.members else ConsumerGroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether nothing is lost with the group. Its progress in `__share_group_state` goes if it is deleted."""
        return not self.members and not self.initialized

    def record_keys(self) -> list[bytes]:
        """Return the keys of the group's records."""
        keys = [key_to_stored(key) for key in self.tombstones()]
        return [encode_key(key) for key in keys if key is not None]

    def expiry_rule(self, now_ms: int, retention_ms: int) -> ExpiryRule | None:
        """A share group has no offsets."""
        return None

    def commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        moment: Moment,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Nobody may commit offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """It has no offsets to fetch."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    # Steps

    def _reconcile(self, member: Member, reported: Partitions | None, moment: Moment) -> Current:
        """Give a member what it is to have, and return that."""
        before = member.current
        after = Current(self.target_epoch, before.epoch, MemberState.STABLE, member.target)
        if before.epoch == after.epoch and before.assigned == after.assigned:
            return before
        self._set_current(member.member_id, after)
        return after

    def _partition_counts(self) -> dict[UUID, int]:
        return {topic.topic_id: self._initialized_count(topic.topic_id) for topic in self.topics.values()}

    def _initialized_count(self, topic_id: UUID) -> int:
        states = self.initialized.get(topic_id)
        return 0 if states is None else len(states.partitions)

    # Records

    def _set_initialized(self, initialized: Mapping[UUID, TopicStates]) -> None:
        value = ShareStatesValue(
            initializing_topics=[], initialized_topics=list(initialized.values()), deleting_topics=[]
        )
        self._change(ShareStatesKey(group_id=self.group_id), value)

    def tombstones(self) -> list[Key]:
        """Return the keys of all records of the group."""
        return [ShareStatesKey(group_id=self.group_id), *super().tombstones()]

    def _value(self, key: Key) -> Value | None:
        if not isinstance(key, ShareStatesKey):
            return super()._value(key)
        return ShareStatesValue(
            initializing_topics=[], initialized_topics=list(self.initialized.values()), deleting_topics=[]
        )

    def _apply(self, key: Key, value: Value | None) -> None:
        if not isinstance(key, ShareStatesKey):
            super()._apply(key, value)
            return
        found = value.initialized_topics if isinstance(value, ShareStatesValue) else []
        self.initialized = {each.topic_id: each for each in found}

    def _apply_current(self, member: Member, current: Current) -> None:
        member.current = current

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold between two events."""
        assert self.target_epoch <= self.epoch, "The epoch of the targets is not above that of the group"
        assert all(it.current.epoch <= self.target_epoch for it in self.members.values()), (
            "No member's epoch is above that of the targets"
        )


def are_of_share_group(records: Iterable[Change]) -> bool:
    """Whether a group was stored as a share group."""
    return any(isinstance(change.key, ShareKey) for change in records)
