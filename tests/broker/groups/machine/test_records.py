"""Keys and values of `__consumer_offsets`: against Kafka's own, in every version, and damaged."""

from __future__ import annotations

import base64
import random
import struct
from typing import Any

import pytest

from broker.groups.machine.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetAndMetadata,
    OffsetCommitKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
)
from broker.groups.machine.subscription import subscribed_topics
from protocol.codec import encode
from protocol.errors import Malformed
from tests.broker.groups.golden import RECORDS

PLAIN = [record for record in RECORDS if not record["isControl"]]


def test_records_of_kafka_are_read_as_dumped_and_written_back_unchanged() -> None:
    for record in PLAIN:
        check_against_the_dump(record)


def check_against_the_dump(record: dict[str, Any]) -> None:
    key_bytes = bytes.fromhex(record["keyHex"])
    key, expected = read_key(key_bytes), record["decodedKey"]["data"]
    if isinstance(key, OffsetCommitKey):
        assert (key.group, key.topic, key.partition) == (expected["group"], expected["topic"], expected["partition"])
        assert offset_key(key.group, key.topic, key.partition) == key_bytes
    else:
        assert isinstance(key, GroupMetadataKey)
        assert key.group == expected["group"]
        assert group_key(key.group) == key_bytes
    if record["valueHex"] is None:
        assert record["decodedValue"] == "<DELETE>"
        return
    value_bytes, expected = bytes.fromhex(record["valueHex"]), record["decodedValue"]["data"]
    if isinstance(key, OffsetCommitKey):
        offset = read_offset(value_bytes)
        assert expected == {
            "offset": offset.offset,
            "leaderEpoch": offset.leader_epoch,
            "metadata": offset.metadata,
            "commitTimestamp": offset.commit_timestamp_ms,
        }
        assert offset_value(offset) == value_bytes
    else:
        group = read_group(value_bytes)
        assert expected | {"members": len(expected["members"])} == {
            "protocolType": group.protocol_type,
            "generation": group.generation_id,
            "protocol": group.protocol_name,
            "leader": group.leader_id,
            "currentStateTimestamp": group.state_timestamp_ms,
            "members": len(group.members),
        }
        for member, expected_member in zip(group.members, expected["members"], strict=True):
            compare_member(member, expected_member)
        assert group_value(group) == value_bytes


def compare_member(member: MemberMetadata, expected: dict[str, Any]) -> None:
    assert member.member_id == expected["memberId"]
    assert member.group_instance_id == expected["groupInstanceId"]
    assert (member.client_id, member.client_host) == (expected["clientId"], expected["clientHost"])
    assert member.rebalance_timeout_ms == expected["rebalanceTimeout"]
    assert member.session_timeout_ms == expected["sessionTimeout"]
    assert subscribed_topics(member.subscription) == frozenset(expected["subscription"]["topics"])
    assert len(member.assignment) > 0


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def compact(value: bytes | None) -> bytes:
    return b"\0" if value is None else bytes([len(value) + 1]) + value


OFFSET_VALUES = {
    0: struct.pack(">hq", 0, 42) + text("m") + struct.pack(">q", 1000),
    1: struct.pack(">hq", 1, 42) + text("m") + struct.pack(">qq", 1000, 5000),
    2: struct.pack(">hq", 2, 42) + text("m") + struct.pack(">q", 1000),
    3: struct.pack(">hqi", 3, 42, 7) + text("m") + struct.pack(">q", 1000),
    4: struct.pack(">hqi", 4, 42, 7) + compact(b"m") + struct.pack(">q", 1000) + b"\1\0\x02xy",
}


@pytest.mark.parametrize("version", OFFSET_VALUES)
def test_offsets_are_read_in_every_version(version: int) -> None:
    assert read_offset(OFFSET_VALUES[version]) == OffsetAndMetadata(
        offset=42,
        leader_epoch=7 if version >= 3 else -1,
        metadata="m",
        commit_timestamp_ms=1000,
        expire_timestamp_ms=5000 if version == 1 else -1,
    )


def member(version: int) -> bytes:
    write = text if version < 4 else lambda value: compact(None if value is None else value.encode())
    out = write("m-1")
    if version >= 3:
        out += write("i-1")
    out += write("client") + write("/127.0.0.1")
    if version >= 1:
        out += struct.pack(">i", 60_000)
    out += struct.pack(">i", 10_000)
    for blob in (b"sub", b"assigned"):
        out += compact(blob) if version >= 4 else struct.pack(">i", len(blob)) + blob
    return out + (b"\0" if version >= 4 else b"")


def group_bytes(version: int) -> bytes:
    write = text if version < 4 else lambda value: compact(None if value is None else value.encode())
    out = struct.pack(">h", version) + write("consumer") + struct.pack(">i", 9) + write("range") + write("m-1")
    if version >= 2:
        out += struct.pack(">q", 1234)
    out += struct.pack(">i", 1) if version < 4 else b"\2"
    return out + member(version) + (b"\0" if version >= 4 else b"")


@pytest.mark.parametrize("version", range(5))
def test_groups_are_read_in_every_version(version: int) -> None:
    expected = GroupMetadataValue(
        protocol_type="consumer",
        generation_id=9,
        protocol_name="range",
        leader_id="m-1",
        state_timestamp_ms=1234 if version >= 2 else -1,
        members=[
            MemberMetadata(
                member_id="m-1",
                group_instance_id="i-1" if version >= 3 else None,
                client_id="client",
                client_host="/127.0.0.1",
                rebalance_timeout_ms=60_000 if version >= 1 else -1,
                session_timeout_ms=10_000,
                subscription=b"sub",
                assignment=b"assigned",
            )
        ],
    )
    assert read_group(group_bytes(version)) == expected


def test_an_offset_with_an_expiry_is_written_in_the_only_version_that_has_one() -> None:
    value = OffsetAndMetadata(
        offset=42, leader_epoch=7, metadata="m", commit_timestamp_ms=1000, expire_timestamp_ms=5000
    )
    assert offset_value(value) == OFFSET_VALUES[1]


@pytest.mark.parametrize("seed", range(20))
def test_handwritten_encoder_equals_the_codec(seed: int) -> None:
    random_ = random.Random(seed)
    group, topic, metadata = ("".join(random_.choices("aé漢🙂", k=random_.randrange(40))) for _ in range(3))
    key = OffsetCommitKey(group=group, topic=topic, partition=random_.randrange(1 << 31))
    value = OffsetAndMetadata(
        offset=random_.randrange(-1, 1 << 63),
        leader_epoch=random_.randrange(-1, 1 << 31),
        metadata=metadata,
        commit_timestamp_ms=random_.randrange(-1, 1 << 63),
    )
    assert offset_key(group, topic, key.partition) == b"\x00\x01" + b"".join(encode(key, 1))
    assert offset_value(value) == b"\x00\x03" + b"".join(encode(value, 3))


def test_keys_of_both_old_versions_name_an_offset() -> None:
    body = text("g") + text("t") + struct.pack(">i", 3)
    for version in (0, 1):
        assert read_key(struct.pack(">h", version) + body) == OffsetCommitKey(group="g", topic="t", partition=3)


@pytest.mark.parametrize("version", [9, 17, 32767])
def test_keys_of_later_releases_are_not_decoded(version: int) -> None:
    assert read_key(struct.pack(">h", version) + b"anything") is None


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_key, b""),
        (read_key, b"\0"),
        (read_key, struct.pack(">h", -1)),
        (read_key, struct.pack(">h", 2) + text("g") + b"\0"),
        (read_offset, b""),
        (read_offset, struct.pack(">h", 5) + OFFSET_VALUES[3][2:]),
        (read_offset, struct.pack(">h", -1) + OFFSET_VALUES[3][2:]),
        (read_group, struct.pack(">h", 5) + group_bytes(3)[2:]),
    ],
)
def test_damaged_records_are_malformed(read: Any, data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data)


@pytest.mark.parametrize("version", range(5))
def test_every_truncation_is_malformed(version: int) -> None:
    for whole, read in ((OFFSET_VALUES[version], read_offset), (group_bytes(version), read_group)):
        for size in range(len(whole)):
            with pytest.raises(Malformed):
                read(whole[:size])


@pytest.mark.parametrize(
    ("data", "topics"),
    [
        (base64.b64decode("AAAAAAABAAR3aXJlAAAAAA=="), {"wire"}),
        (base64.b64decode("AAEAAAABAAR3aXJl/////wAAAAA="), {"wire"}),
        (base64.b64decode("AAMAAAABAAR3aXJlAAAABP////8AAAAA////////"), {"wire"}),
        (struct.pack(">hi", 0, 0), set()),
        (struct.pack(">hi", 0, 2) + text("a") + text("b"), {"a", "b"}),
        (b"", None),
        (b"\0", None),
        (struct.pack(">hi", -1, 0), None),
        (struct.pack(">hi", 0, -1), None),
        (struct.pack(">hi", 0, 2_000_000_000), None),
        (struct.pack(">hi", 0, 1) + b"\0\x05abc", None),
        (struct.pack(">hi", 0, 1) + b"\xff\xffabcd", None),
        (struct.pack(">hi", 0, 1) + b"\0\x02\xff\xfe", None),
    ],
)
def test_topics_of_a_subscription_are_read(data: bytes, topics: set[str] | None) -> None:
    assert subscribed_topics(data) == topics
