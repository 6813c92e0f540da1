"""Java details: class names of errors, and the order of hash maps."""

import csv
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from tools.base.java_names import (
    exception_class,
    exception_name,
    exception_text,
    hash_map_order,
    hash_set_order,
    json_text,
    string_hash,
    topic_partition_hash,
)

with (Path(__file__).parents[2] / "fixtures" / "error-codes.csv").open(newline="") as file:
    CLASSES = {row["name"]: row["exception_class"] for row in csv.DictReader(file) if row["exception_class"]}


@pytest.mark.parametrize(("name", "class_name"), CLASSES.items())
def test_error_codes_have_exception_classes(name: str, class_name: str) -> None:
    assert exception_class(ErrorCode[name]) == class_name


def test_errors_print_like_exceptions() -> None:
    error = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists.")
    assert exception_text(error) == "org.apache.kafka.common.errors.TopicExistsException: Topic 'a' already exists."


@pytest.mark.parametrize(
    ("keys", "capacity"),
    [
        # Orders in which Kafka's own tools printed topics and configurations.
        (["assigned", "bigt", "orders", "events"], 4),
        (["assigned", "bigt", "orders", "__consumer_offsets", "events", "__transaction_state"], 6),
        (["retention.ms", "max.message.bytes"], 64),
        (["compression.type", "cleanup.policy", "segment.bytes", "max.message.bytes"], 64),
        (
            [
                "compression.type",
                "min.insync.replicas",
                "cleanup.policy",
                "segment.bytes",
                "max.message.bytes",
                "unclean.leader.election.enable",
            ],
            64,
        ),
    ],
)
def test_keys_have_the_order_of_a_hash_map(keys: list[str], capacity: int) -> None:
    assert hash_map_order(sorted(keys), capacity=capacity) == keys


def test_map_grows_with_its_entries() -> None:
    names = [f"topic-{number}" for number in range(40)]
    assert hash_map_order(names) == hash_map_order(names, capacity=64)


def test_exception_name_is_that_of_java() -> None:
    name = "org.apache.kafka.common.errors.KafkaStorageException"
    assert exception_name(ErrorCode.KAFKA_STORAGE_ERROR) == name


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("a", 97), ("Hello", 69609650), ("\U0001f600", 31 * 0xD83D + 0xDE00)]
)
def test_string_hash_equals_that_of_java(text: str, code: int) -> None:
    assert string_hash(text) == code


def test_partitions_in_a_map_have_the_order_of_java() -> None:
    """The order of Kafka's kafka-log-dirs."""
    partitions = [("assigned", 0), ("assigned", 2), ("assigned", 3)]
    assert hash_map_order(partitions, hash_code=topic_partition_hash) == list(reversed(partitions))


def test_partitions_in_a_set_have_the_order_of_java() -> None:
    """The order of sets in the output of Kafka's dump tool; the fixtures of that tool contain more."""
    one_topic = [("topic-0", index) for index in range(12)]
    ordered = hash_set_order([one_topic], hash_code=topic_partition_hash)
    assert ordered == sorted(one_topic, key=lambda partition: SPREAD[partition] % 32)
    three_topics = [[(f"topic-{topic}", index) for index in range(8)] for topic in range(3)]
    ordered = hash_set_order(three_topics, hash_code=topic_partition_hash)
    assert [SPREAD[partition] % 16 for partition in ordered] == sorted(SPREAD[partition] % 16 for partition in ordered)


def _spread(code: int) -> int:
    return (code & 0xFFFFFFFF) ^ (code & 0xFFFFFFFF) >> 16


SPREAD = {
    (topic, index): _spread(topic_partition_hash((topic, index)))
    for topic in ("topic-0", "topic-1", "topic-2")
    for index in range(12)
}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [1, None, True], "a": {}}, '{"b":[1,null,true],"a":{}}'),
        ("simple\0\x1f\n", r'"simple\u0000\u001F\n"'),
        ('\\u001f " / \x7f é \u2028', '"\\\\u001f \\" / \x7f é \u2028"'),
    ],
)
def test_json_is_printed_as_by_java(value: object, text: str) -> None:
    assert json_text(value) == text
