"""The topics that the members of a group subscribe to, kept up to date with each subscription. Pure.

Owns: how many subscriptions name each topic, so that a question about one topic visits no member. Must not know:
members, or which topics exist.

Invariant: `names` is the union of the names of all subscriptions and of the matches of their regular expressions.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Sequence

from broker.groups.machine.consumer.records import SubscriptionValue


class SubscribedTopics:
    """The topics of one group."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        """By topic: how often it is named, by subscriptions and by regular expressions that are in use."""
        self._regex_uses: dict[str, int] = {}
        self._matches: dict[str, Sequence[str]] = {}

    @property
    def names(self) -> KeysView[str]:
        """A view: it changes with the subscriptions."""
        return self._uses.keys()

    def add(self, subscription: SubscriptionValue) -> None:
        """Count a subscription."""
        self._count(subscription, 1)

    def remove(self, subscription: SubscriptionValue) -> None:
        """Take back a subscription that was counted."""
        self._count(subscription, -1)

    def set_matches(self, regex: str, topics: Sequence[str]) -> None:
        """Note the topics that a regular expression stands for, whether or not a member uses it."""
        if regex in self._regex_uses:
            _count(self._uses, self._matches.get(regex, ()), -1)
            _count(self._uses, topics, 1)
        if topics:
            self._matches[regex] = topics
        else:
            self._matches.pop(regex, None)

    def _count(self, subscription: SubscriptionValue, change: int) -> None:
        _count(self._uses, subscription.subscribed_topic_names, change)
        regex = subscription.subscribed_topic_regex
        if regex:
            was_in_use = regex in self._regex_uses
            _count(self._regex_uses, (regex,), change)
            if was_in_use is not (regex in self._regex_uses):
                _count(self._uses, self._matches.get(regex, ()), change)


def _count(counts: dict[str, int], names: Iterable[str], change: int) -> None:
    for name in names:
        count = counts.get(name, 0) + change
        if count:
            counts[name] = count
        else:
            del counts[name]
