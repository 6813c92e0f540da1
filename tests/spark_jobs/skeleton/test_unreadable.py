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
    line = explained(RuntimeError("java.lang.ArithmeticException: long overflow"), topics.client, [topic, other])
    assert f"topic {topic}, partition 0, offset 2; topic {topic}, partition 2, offset 0. Start after them" in line
    assert other not in line


def test_other_failures_and_other_topics_are_explained_as_before(topics: Topics) -> None:
    assert explained(RuntimeError("other"), topics.client, ["none"]) == "other"
    assert explained(RuntimeError("long overflow"), topics.client, [topics.create("empty", 1)]) == "long overflow"
