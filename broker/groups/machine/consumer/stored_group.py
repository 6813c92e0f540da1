"""What is stored of one group of the consumer protocol, and how it changes: record by record.

Every change is a record, which is applied at once and appended in the same step. What cannot be appended is undone. So
a group that is loaded from its records is the group that was.

Owns: the state of a group, its records, and who has which partition. Must not know: why something changes
(`broker.groups.machine.consumer.group`), or the log.

Invariants, which `check` tests:
* A partition is owned by one member: it is assigned to it, or it was told to give it up and may not have done so yet.
* Each static member is found by its instance id.
* `_subscribed` has the topics that members subscribe to.
* The epoch of the targets is not above that of the group, and that of no member above that of the targets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from broker.groups.machine.consumer.member import Current, Member
from broker.groups.machine.consumer.partitions import each, from_stored, to_stored
from broker.groups.machine.consumer.records import (
    Change,
    CurrentKey,
    CurrentValue,
    GroupEpochKey,
    GroupEpochValue,
    Key,
    RegexKey,
    RegexValue,
    StoredTopic,
    SubscriptionKey,
    SubscriptionValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    TopicsKey,
    TopicsValue,
    Value,
)
from broker.groups.machine.consumer.subscribed_topics import SubscribedTopics
from broker.groups.machine.consumer.topics import Topic
from broker.groups.machine.share.records import ShareStatesKey

_ORDER: Final[Mapping[type[Key], int]] = MappingProxyType(
    {
        kind: number
        for number, kind in enumerate(
            (
                GroupEpochKey,
                TopicsKey,
                SubscriptionKey,
                RegexKey,
                TargetEpochKey,
                TargetKey,
                CurrentKey,
                ShareStatesKey,
            )
        )
    }
)
"""The order in which records are applied when a group is loaded: what a member has follows the member."""


class StoredGroup:
    """The state of one group, for reading. `ConsumerGroup` changes it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        """Rises whenever the partitions have to be assigned anew."""
        self.target_epoch = 0
        """The epoch for which the targets of the members were computed."""
        self.members: dict[str, Member] = {}
        self.topics: dict[str, Topic] = {}
        """The subscribed topics that existed when the epoch was raised last."""
        self.regexes: dict[str, RegexValue] = {}
        """What each regular expression stood for when it was looked up last."""
        self._subscribed = SubscribedTopics()
        self._static_ids: dict[str, str] = {}
        """Member ids by instance id."""
        self._owners: dict[tuple[UUID, int], str] = {}
        self._changes: list[Change] = []
        self._undo: list[Change] = []
        self._undo_count = 0

    def load(self, records: Iterable[Change]) -> None:
        """Apply the last record of each key, in any order."""
        for key, value in sorted(records, key=lambda record: _ORDER[type(record.key)]):
            self._apply(key, value)

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self._static_ids.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        return (topic_id, partition) not in self._owners

    def subscribed_names(self, subscription: SubscriptionValue) -> frozenset[str]:
        """Return the names of all topics that a member subscribes to, by name or by its regular expression."""
        names = frozenset(subscription.subscribed_topic_names)
        regex = subscription.subscribed_topic_regex
        return names if not regex or regex not in self.regexes else names.union(self.regexes[regex].topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether any member subscribes to a topic."""
        return topic in self._subscribed.names

    # Changes

    def _set_epoch(self, epoch: int) -> None:
        self._change(GroupEpochKey(group_id=self.group_id), GroupEpochValue(epoch=epoch))

    def _set_topics(self, topics: Mapping[str, Topic]) -> None:
        stored = [
            StoredTopic(topic_id=topic.topic_id, topic_name=name, num_partitions=topic.partition_count)
            for name, topic in topics.items()
        ]
        self._change(TopicsKey(group_id=self.group_id), TopicsValue(topics=stored))

    def _set_regex(self, regex: str, value: RegexValue | None) -> None:
        self._change(RegexKey(group_id=self.group_id, regular_expression=regex), value)

    def _set_subscription(self, member_id: str, value: SubscriptionValue) -> None:
        self._change(SubscriptionKey(group_id=self.group_id, member_id=member_id), value)

    def _set_target(self, member_id: str, value: TargetValue) -> None:
        self._change(TargetKey(group_id=self.group_id, member_id=member_id), value)

    def _set_target_epoch(self, epoch: int) -> None:
        self._change(TargetEpochKey(group_id=self.group_id), TargetEpochValue(assignment_epoch=epoch))

    def _set_current(self, member_id: str, current: Current) -> None:
        self._change(CurrentKey(group_id=self.group_id, member_id=member_id), current.to_stored())

    def _drop_member(self, member_id: str) -> None:
        for key in (CurrentKey, TargetKey, SubscriptionKey):
            self._change(key(group_id=self.group_id, member_id=member_id), None)

    def tombstones(self) -> list[Key]:
        """Return the keys of all records of the group."""
        group_id, keys = self.group_id, list[Key]()
        for kind in (CurrentKey, TargetKey):
            keys += [kind(group_id=group_id, member_id=member_id) for member_id in self.members]
        keys.append(TargetEpochKey(group_id=group_id))
        keys += [SubscriptionKey(group_id=group_id, member_id=member_id) for member_id in self.members]
        keys += [RegexKey(group_id=group_id, regular_expression=regex) for regex in self.regexes]
        return [*keys, TopicsKey(group_id=group_id), GroupEpochKey(group_id=group_id)]

    def records(self) -> list[Change]:
        """Return the records of the whole group as it is."""
        return [Change(key, value) for key in reversed(self.tombstones()) if (value := self._value(key)) is not None]

    def _change(self, key: Key, value: Value | None) -> None:
        self._undo.append(Change(key, self._value(key)))
        self._changes.append(Change(key, value))
        self._apply(key, value)

    def _take_changes(self) -> list[Change]:
        """Return the records since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _forget_undo(self) -> None:
        self._undo.clear()

    def _undo_changes(self) -> None:
        """Take back what was changed since the last append that succeeded."""
        for key, value in reversed(self._undo):
            self._apply(key, value)
        self._undo.clear()
        self._undo_count += 1

    # Records

    def _value(self, key: Key) -> Value | None:
        """Return the present value of a key, as it is stored."""
        match key:
            case GroupEpochKey():
                return GroupEpochValue(epoch=self.epoch)
            case TargetEpochKey():
                return TargetEpochValue(assignment_epoch=self.target_epoch)
            case TopicsKey():
                return TopicsValue(
                    topics=[
                        StoredTopic(topic_id=topic_id, topic_name=name, num_partitions=count)
                        for name, (topic_id, count) in self.topics.items()
                    ]
                )
            case RegexKey():
                return self.regexes.get(key.regular_expression)
            case SubscriptionKey() | TargetKey() | CurrentKey():
                return self._value_of_member(key)
        return None

    def _value_of_member(self, key: SubscriptionKey | TargetKey | CurrentKey) -> Value | None:
        member = self.members.get(key.member_id)
        if member is None:
            return None
        match key:
            case SubscriptionKey():
                return member.subscription
            case TargetKey():
                return TargetValue(topic_partitions=to_stored(member.target))
            case CurrentKey():
                return member.current.to_stored()

    def _apply(self, key: Key, value: Value | None) -> None:
        match key:
            case GroupEpochKey():
                self.epoch = value.epoch if isinstance(value, GroupEpochValue) else 0
            case TargetEpochKey():
                self.target_epoch = value.assignment_epoch if isinstance(value, TargetEpochValue) else 0
            case TopicsKey():
                stored = value.topics if isinstance(value, TopicsValue) else []
                self.topics = {each.topic_name: Topic(each.topic_id, each.num_partitions) for each in stored}
            case RegexKey() if isinstance(value, RegexValue):
                self.regexes[key.regular_expression] = value
                self._subscribed.set_matches(key.regular_expression, value.topics)
            case RegexKey():
                self.regexes.pop(key.regular_expression, None)
                self._subscribed.set_matches(key.regular_expression, ())
            case SubscriptionKey():
                self._apply_subscription(key.member_id, value if isinstance(value, SubscriptionValue) else None)
            case TargetKey():
                if (member := self.members.get(key.member_id)) is not None:
                    member.target = from_stored(value.topic_partitions if isinstance(value, TargetValue) else ())
            case CurrentKey():
                if (member := self.members.get(key.member_id)) is not None:
                    self._apply_current(
                        member, Current.from_stored(value) if isinstance(value, CurrentValue) else Current()
                    )

    def _apply_subscription(self, member_id: str, value: SubscriptionValue | None) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._subscribed.remove(member.subscription)
        if member is not None and member.instance_id is not None and self._static_ids[member.instance_id] == member_id:
            del self._static_ids[member.instance_id]
        if value is None:
            if member is not None:
                self._apply_current(member, Current())
                del self.members[member_id]
            return
        self._subscribed.add(value)
        if member is None:
            self.members[member_id] = Member(member_id, value)
        else:
            member.subscription = value
        if value.instance_id is not None:
            self._static_ids[value.instance_id] = member_id

    def _apply_current(self, member: Member, current: Current) -> None:
        owners, member_id = self._owners, member.member_id
        for place in each(member.current.owned):
            if owners.get(place) == member_id:
                del owners[place]
        member.current = current
        for place in each(current.owned):
            owners[place] = member_id

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold between two events."""
        members = self.members.values()
        owned = Counter(place for member in members for place in each(member.current.owned))
        assert all(count == 1 for count in owned.values()), "A partition is owned by one member"
        owners = {place: member.member_id for member in members for place in each(member.current.owned)}
        assert self._owners == owners, "`_owners` has the owner of each partition"
        static_ids = {it.instance_id: it.member_id for it in members if it.instance_id is not None}
        assert self._static_ids == static_ids, "Each static member is found by its instance id"
        subscribed = {name for it in members for name in self.subscribed_names(it.subscription)}
        assert self._subscribed.names == subscribed, "`_subscribed` has the topics that members subscribe to"
        assert self.target_epoch <= self.epoch, "The epoch of the targets is not above that of the group"
        assert all(it.current.epoch <= self.target_epoch for it in members), (
            "No member's epoch is above that of the targets"
        )
