"""What a sink subscribes to, and when it looks again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from protocol.internal_topics import INTERNAL_TOPICS
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.worker.subscription import RETRY_S, Subscription

REFRESH_S = 300.0


class Cluster:
    """A consumer's view of it."""

    def __init__(self, *topics: str) -> None:
        self.topics: tuple[str, ...] | None = topics
        self.listed = 0

    def list_topics(self, *, timeout: float) -> Any:
        self.listed += 1
        if self.topics is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics=dict.fromkeys(self.topics))


def test_named_topics_are_subscribed_to_once_and_never_listed() -> None:
    cluster, subscription = Cluster("a"), Subscription(["a", "b"], "", REFRESH_S)
    assert subscription.changed(cluster, 5.0) == ["a", "b"]  # type: ignore[arg-type]
    assert subscription.changed(cluster, 5.0 + 2 * REFRESH_S) is None  # type: ignore[arg-type]
    assert cluster.listed == 0


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"orders-\d+", ["orders-1", "orders-12"]),
        (r"(?:orders|bills).*", ["bills", "orders-1", "orders-12", "orders-x"]),
        (r"orders-(?!x).*", ["orders-1", "orders-12"]),
        (r"(?i)BILLS", ["bills"]),
        (r"orders", []),
        (r"\p{Lower}+", ["bills"]),
        (r".*", ["bills", "orders-1", "orders-12", "orders-x"]),
    ],
)
def test_the_whole_name_matches_the_expression_as_java_reads_it(pattern: str, expected: list[str]) -> None:
    cluster = Cluster("orders-12", "orders-1", "orders-x", "bills", *INTERNAL_TOPICS)
    assert (Subscription([], pattern, REFRESH_S).changed(cluster, 0.0) or []) == expected  # type: ignore[arg-type]


def test_topics_are_listed_again_after_a_while_and_changes_returned() -> None:
    cluster, subscription = Cluster("a1"), Subscription([], "a.", REFRESH_S)
    consumer: Any = cluster
    assert subscription.changed(consumer, 0.0) == ["a1"]
    cluster.topics = ("a1", "a2", "b1")
    assert subscription.changed(consumer, REFRESH_S - 1) is None
    assert cluster.listed == 1
    assert subscription.changed(consumer, REFRESH_S) == ["a1", "a2"]
    assert subscription.changed(consumer, 2 * REFRESH_S) is None
    cluster.topics = ()
    assert subscription.changed(consumer, 3 * REFRESH_S) == []


def test_brokers_that_do_not_respond_are_asked_again_soon() -> None:
    cluster, subscription = Cluster("a1"), Subscription([], "a.", REFRESH_S)
    consumer: Any = cluster
    cluster.topics = None
    assert subscription.changed(consumer, 0.0) is None
    cluster.topics = ("a1",)
    assert subscription.changed(consumer, RETRY_S / 2) is None
    assert subscription.changed(consumer, RETRY_S) == ["a1"]


def test_an_invalid_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a regular expression"):
        Subscription([], "(", REFRESH_S)
