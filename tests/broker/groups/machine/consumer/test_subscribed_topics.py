"""The counted topics of a group are the union of what its members subscribe to."""

from __future__ import annotations

from random import Random

from broker.groups.machine.consumer.records import SubscriptionValue
from broker.groups.machine.consumer.subscribed_topics import SubscribedTopics

TOPICS = ("t", "u", "v", "w")
REGEXES = (None, "", "a.*", "b.*")


def test_names_are_the_union_after_each_change() -> None:
    rng = Random(1)
    topics, present, matches = SubscribedTopics(), list[SubscriptionValue](), dict[str, list[str]]()
    for _ in range(2000):
        change = rng.randrange(3)
        some = rng.choices(TOPICS, k=rng.randrange(4))  # a client may name a topic twice
        if change == 0:
            regex = rng.choice(REGEXES)
            present.append(
                SubscriptionValue(
                    client_id="c", client_host="h", subscribed_topic_names=some, subscribed_topic_regex=regex
                )
            )
            topics.add(present[-1])
        elif change == 1 and present:
            topics.remove(present.pop(rng.randrange(len(present))))
        elif change == 2:
            looked_up = rng.choice(("a.*", "b.*"))
            matches[looked_up] = some
            topics.set_matches(looked_up, some)
        expected = {name for each in present for name in each.subscribed_topic_names}
        expected |= {name for each in present for name in matches.get(each.subscribed_topic_regex or "", ())}
        assert topics.names == expected
