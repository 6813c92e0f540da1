"""The computation of what the members of a group are to have, in slices of time. Pure.

Owns: what members subscribe to, as topics come and go, and when the targets have to be computed. Must not know:
requests, or the steps of members to their targets.

Members may come, go and subscribe to something else between two slices. The targets then hold for the members that were
there at the beginning, and are computed once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from base.pause import Pause, through
from broker.groups.machine.consumer.assignors import Assignor, Subscriber, Targets
from broker.groups.machine.consumer.events import Visible
from broker.groups.machine.consumer.partitions import NOTHING, to_stored
from broker.groups.machine.consumer.records import RegexValue, TargetValue
from broker.groups.machine.consumer.stored_group import StoredGroup
from broker.groups.machine.consumer.topics import Topic, Topics

Matcher = Callable[[str], Callable[[str], bool]]
"""Returns the test of names by a regular expression that is known to be valid."""
_NEVER_SEEN = object()


class Rules(NamedTuple):
    """What all groups of a broker share."""

    assignors: Mapping[str, Assignor]
    """By name; the first is used where members do not choose."""
    matcher: Matcher

    @property
    def default_assignor(self) -> str:
        return next(iter(self.assignors))


class Refreshing(StoredGroup):
    """A group as far as its targets go. `ConsumerGroup` adds the requests of members."""

    def __init__(self, group_id: str, rules: Rules) -> None:
        super().__init__(group_id)
        self._rules = rules
        self._is_refreshing = False
        self._seen: object = _NEVER_SEEN
        """The stamp of the topics that `topics` and `regexes` are of."""
        self._visible: dict[str, Visible] = {}
        """By regular expression: the topics that the last member with it may see. Unknown until its first heartbeat at
        this coordinator."""
        self._postponed: set[str] = set()
        """The regular expressions that were not looked up for that reason."""
        self.rebalance_count = 0

    def is_refresh_due(self, topics: Topics) -> bool:
        """Whether `refresh` has to run."""
        is_news = (
            self.epoch > self.target_epoch
            or self._seen is not topics.stamp
            or not self._visible.keys().isdisjoint(self._postponed)  # looks at the postponed ones, mostly none
        )
        return is_news and not self._is_refreshing and bool(self.members)

    async def refresh(self, topics: Topics, pause: Pause) -> None:
        """Look at the topics, and compute the targets if members or topics have changed.

        Raises what an assignor raises; the targets stay as they were then.
        """
        self._is_refreshing = True
        undo_count = self._undo_count
        try:
            found = await self._look_up(topics, pause)
            self._update_regexes(found)
            epoch = self.epoch
            subscribed = await self._existing(topics, pause)
            if self.epoch != epoch:
                return  # members came or changed meanwhile, so it is due again
            self._update_topics(topics, subscribed)
            if self.epoch == self.target_epoch:
                return
            epoch, subscribers = self.epoch, await self._subscribers(pause)
            targets = await self._assignor().assign(subscribers, self._partition_counts(), pause)
            await self._put_targets(subscribers, targets, pause)
            if self._undo_count == undo_count:  # else some targets could not be stored
                self._set_target_epoch(epoch)
        finally:
            self._is_refreshing = False

    def _undo_changes(self) -> None:
        super()._undo_changes()
        self._seen = _NEVER_SEEN  # what was noted of the topics may have been undone

    def _raise_epoch(self) -> None:
        self._set_epoch(self.epoch + 1)
        self.rebalance_count += 1

    async def _look_up(self, topics: Topics, pause: Pause) -> dict[str, list[str]]:
        """Return what each regular expression stands for that has to be looked up."""
        wanted = {member.subscription.subscribed_topic_regex for member in self.members.values()} - {None, ""}
        if self._seen is topics.stamp:
            wanted -= self.regexes.keys() - self._postponed
        found: dict[str, list[str]] = {}
        for regex in sorted(filter(None, wanted)):
            matches, may_see = self._rules.matcher(regex), self._visible.get(regex)
            if may_see is None:
                self._postponed.add(regex)
                continue
            self._postponed.discard(regex)
            found[regex] = sorted(
                [name async for name in through(topics.names(), pause) if matches(name) and may_see(name)]
            )
        return found

    def _update_regexes(self, found: Mapping[str, list[str]]) -> None:
        """Note what the regular expressions stand for."""
        in_use = {member.subscription.subscribed_topic_regex for member in self.members.values()}
        for regex in [regex for regex in self.regexes if regex not in in_use]:
            self._set_regex(regex, None)
            self._visible.pop(regex, None)
            self._postponed.discard(regex)
        for regex, names in found.items():
            if regex in in_use and (regex not in self.regexes or self.regexes[regex].topics != names):
                self._set_regex(regex, RegexValue(topics=names, version=0, timestamp=0))

    async def _existing(self, topics: Topics, pause: Pause) -> dict[str, Topic]:
        """Return the topics that members subscribe to."""
        found: dict[str, Topic] = {}
        names: set[frozenset[str]] = set()
        async for member in through(list(self.members.values()), pause):
            of_member = self.subscribed_names(member.subscription)
            if of_member in names:
                continue
            names.add(of_member)
            async for name in through(of_member, pause):
                if name not in found and (topic := topics.find(name)) is not None:
                    found[name] = topic
        return found

    def _update_topics(self, topics: Topics, subscribed: dict[str, Topic]) -> None:
        """Note the topics that are subscribed to; raise the epoch if they have changed."""
        if subscribed != self.topics:
            self._set_topics(subscribed)
            if self.epoch == self.target_epoch:  # else the change of a member has raised it already
                self._raise_epoch()
        self._seen = topics.stamp

    def _partition_counts(self) -> dict[UUID, int]:
        """Return how many partitions of each subscribed topic may be assigned."""
        return {topic.topic_id: topic.partition_count for topic in self.topics.values()}

    async def _subscribers(self, pause: Pause) -> dict[str, Subscriber]:
        ids: dict[frozenset[str], frozenset[UUID]] = {}
        found, topics = {}, self.topics
        async for member_id, member in through(list(self.members.items()), pause):
            names = self.subscribed_names(member.subscription)
            if names not in ids:
                ids[names] = frozenset(
                    [topics[name].topic_id async for name in through(names, pause) if name in topics]
                )
            found[member_id] = Subscriber(ids[names], member.instance_id, member.subscription.rack_id, member.target)
        return found

    def assignor_name(self) -> str:
        """Return the name of the assignor that most members wish for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.subscription.server_assignor
            if name is not None and name in self._rules.assignors:
                votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name], default=self._rules.default_assignor)

    def _assignor(self) -> Assignor:
        return self._rules.assignors[self.assignor_name()]

    async def _put_targets(self, subscribers: Mapping[str, Subscriber], targets: Targets, pause: Pause) -> None:
        async for member_id in through(subscribers, pause):
            member, target = self.members.get(member_id), targets.get(member_id, NOTHING)
            if member is not None and member.target != target:
                self._set_target(member_id, TargetValue(topic_partitions=to_stored(target)))
