"""What shows of Java: class names of errors, and the order of hash maps."""

import csv
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from tools.java_names import exception_class, exception_text, hash_map_order

with (Path(__file__).parents[1] / "fixtures" / "error-codes.csv").open(newline="") as file:
    CLASSES = {row["name"]: row["exception_class"] for row in csv.DictReader(file) if row["exception_class"]}


@pytest.mark.parametrize(("name", "class_name"), CLASSES.items())
def test_exception_classes(name: str, class_name: str) -> None:
    assert exception_class(ErrorCode[name]) == class_name


def test_exception_text() -> None:
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
def test_hash_map_order(keys: list[str], capacity: int) -> None:
    assert hash_map_order(sorted(keys), capacity=capacity) == keys


def test_map_grows_with_its_entries() -> None:
    names = [f"topic-{number}" for number in range(40)]
    assert hash_map_order(names) == hash_map_order(names, capacity=64)
