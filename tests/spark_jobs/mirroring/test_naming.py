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
}


@pytest.mark.parametrize(("names", "topic", "expected"), INCLUDED.values(), ids=INCLUDED)
def test_topics_are_chosen_by_pattern_and_blacklist(names: TopicNames, topic: str, expected: bool) -> None:
    assert names.includes(topic) is expected


def test_a_map_comes_before_the_prefix() -> None:
    names = TopicNames(".*", prefix="A.", renamed={"old": "new"})
    assert [names.target(topic) for topic in ("orders", "old")] == ["A.orders", "new"]
