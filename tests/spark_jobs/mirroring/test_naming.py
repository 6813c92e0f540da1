"""Names of topics at the target."""

import pytest

from spark_jobs.mirroring.naming import TopicNames

INCLUDED = {
    "all": (TopicNames(".*"), "orders", True),
    "internal": (TopicNames(".*"), "__consumer_offsets", False),
    "not matching": (TopicNames("a|b"), "abc", False),
    "matching": (TopicNames("a|b"), "b", True),
    "with another beginning": (TopicNames("a|b"), "x.a", False),
    "blacklisted": (TopicNames(".*", "secret.*|x"), "secrets", False),
    "longer than the blacklist": (TopicNames(".*", "secret"), "secrets", True),
    "a copy that comes back": (TopicNames(".*", prefix="A."), "B.A.orders", False),
    "a copy of another cluster": (TopicNames(".*", prefix="A."), "B.orders", True),
    "with the prefix in a word": (TopicNames(".*", prefix="A."), "DATA.orders", True),
    "with the prefix at the source": (TopicNames(".*", prefix="A."), "A.orders", True),
}


@pytest.mark.parametrize(("names", "topic", "expected"), INCLUDED.values(), ids=INCLUDED)
def test_topics_are_chosen_by_pattern_and_blacklist(names: TopicNames, topic: str, expected: bool) -> None:
    assert names.includes(topic) is expected


def test_a_map_comes_before_the_prefix() -> None:
    names = TopicNames(".*", prefix="A.", renamed={"old": "new"})
    assert [names.target(topic) for topic in ("orders", "old")] == ["A.orders", "new"]


def test_mirrors_in_both_directions_make_no_endless_names() -> None:
    topics = {"A": {"orders"}, "B": {"orders"}}
    to = {"A": TopicNames(".*", prefix="B."), "B": TopicNames(".*", prefix="A.")}
    for _ in range(5):
        for target, source in (("B", "A"), ("A", "B")):
            names = to[target]
            topics[target] |= {names.target(topic) for topic in topics[source] if names.includes(topic)}
    assert topics == {"A": {"orders", "B.orders", "B.A.orders"}, "B": {"orders", "A.orders", "A.B.orders"}}
