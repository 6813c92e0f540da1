"""Subscriptions and assignments of consumers, in every version, whole and cut anywhere."""

import struct

import pytest

from protocol.consumer_protocol import TopicPartitions, read_assignment, read_subscription
from protocol.errors import Malformed

OWNED = b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\1"
SUBSCRIPTION_FIELDS = (
    b"\0\0\0\2\0\1t\0\1u" + b"\0\0\0\2xy",
    OWNED,
    b"\0\0\0\7",
    b"\0\1r",
)
ASSIGNMENT = OWNED + b"\xff\xff\xff\xff"


def subscription(version: int) -> bytes:
    return struct.pack(">h", version) + b"".join(SUBSCRIPTION_FIELDS[: version + 1])


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_clients_are_decoded(version: int) -> None:
    read_version, read = read_subscription(subscription(version))
    assert read_version == version
    assert (read.topics, read.user_data) == (["t", "u"], b"xy")
    assert [(owned.topic, owned.partitions) for owned in read.owned_partitions] == ([("t", [0, 1])] * (version > 0))
    assert read.generation_id == (7 if version > 1 else -1)
    assert read.rack_id == ("r" if version > 2 else None)


@pytest.mark.parametrize("version", range(4))
def test_assignments_of_clients_are_decoded(version: int) -> None:
    read_version, read = read_assignment(struct.pack(">h", version) + ASSIGNMENT)
    assert read_version == version
    assert read.assigned_partitions == [TopicPartitions(topic="t", partitions=[0, 1])]
    assert read.user_data is None


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\xff\xff" + ASSIGNMENT, b"\0\4" + ASSIGNMENT, b"\0\0" + ASSIGNMENT + b"x"]
)
def test_malformed_assignments_are_rejected(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_assignment(data)


def test_truncated_metadata_is_malformed() -> None:
    whole = subscription(3)
    for end in range(len(whole)):
        with pytest.raises(Malformed):
            read_subscription(whole[:end])
