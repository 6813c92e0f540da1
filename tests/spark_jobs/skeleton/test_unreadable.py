"""Records whose timestamp Spark cannot hold are named."""

from confluent_kafka import Producer

from spark_jobs.skeleton.unreadable import TIMESTAMP_MS_MAX, explained
from tests.spark_jobs.conftest import Topics


def test_the_first_such_record_of_each_partition_is_named(topics: Topics) -> None:
    topic, other = topics.create("late", 3), topics.create("other", 1)
    producer = Producer(topics.client)
    for partition, timestamp in ((0, 1), (0, TIMESTAMP_MS_MAX), (0, TIMESTAMP_MS_MAX + 1), (0, 1 << 62), (2, 1 << 62)):
        producer.produce(topic, b"v", partition=partition, timestamp=timestamp)
        assert producer.flush(30) == 0
    line = explained(
        RuntimeError("java.lang.ArithmeticException: long overflow"), topics.client, lambda: [topic, other]
    )
    assert f"topic {topic}, partition 0, offset 2; topic {topic}, partition 2, offset 0. Start after them" in line
    assert other not in line


def test_other_failures_and_other_topics_are_explained_as_before(topics: Topics) -> None:
    empty = topics.create("empty", 1)
    assert explained(RuntimeError("other"), topics.client, lambda: ["none"]) == "other"
    assert explained(RuntimeError("long overflow"), topics.client, lambda: [empty]) == "long overflow"


def test_a_failure_is_explained_when_no_broker_responds() -> None:
    def read_topics() -> list[str]:
        raise ConnectionError("no broker responded")

    assert explained(RuntimeError("source away"), {}, read_topics) == "source away"
    line = explained(RuntimeError("long overflow"), {}, read_topics)
    assert line.endswith("its record cannot be found: no broker responded")
