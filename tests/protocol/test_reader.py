"""What generated readers call off their fast path; `test_codec` holds the readers themselves against an interpreter."""

from uuid import UUID, uuid4

import pytest

from protocol.codec import decoder, encode
from protocol.errors import Malformed
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.reader import (
    TooManyElements,
    null,
    read_tag,
    read_uuid,
    read_uvarint,
    refuse_end,
    refuse_null,
    refuse_size,
    skip_tags,
)


def test_uuid_equals_that_of_the_standard_library() -> None:
    for made in (uuid4(), UUID(int=0), UUID(int=(1 << 128) - 1)):
        read = read_uuid(b"." + made.bytes + b".", 1)
        assert (read, hash(read), str(read), read.is_safe) == (made, hash(made), str(made), made.is_safe)


@pytest.mark.parametrize(
    ("data", "value"), [("00", 0), ("7f", 127), ("8001", 128), ("ac02", 300), ("ffffffff07", 2**31 - 1), ("8000", 0)]
)
def test_unsigned_varints_are_read(data: str, value: int) -> None:
    encoded = bytes.fromhex(data)
    assert read_uvarint(b"." + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("data", "text"), [("ffffffff08", "above the largest length"), ("808080808001", "more than 5 bytes")]
)
def test_varints_of_more_than_five_bytes_are_malformed(data: str, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        read_uvarint(bytes.fromhex(data), 0)


def test_truncated_varint_is_malformed() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\x80", 0)


def test_tag_is_read_with_the_position_of_its_value() -> None:
    assert read_tag(bytes.fromhex("0302aabb"), 0, 2) == (3, 2, 4)
    with pytest.raises(Malformed, match="tag 3 after tag 3"):
        read_tag(bytes.fromhex("0302aabb"), 0, 3)
    with pytest.raises(Malformed, match="tag 3 of 3 bytes, but 2 are left"):
        read_tag(bytes.fromhex("0303aabb"), 0, -1)


def test_unknown_tags_are_skipped() -> None:
    assert skip_tags(b"", 0, 0) == 0
    assert skip_tags(bytes.fromhex("02 00 01 aa 05 00"), 1, 2) == 6
    many = bytes.fromhex("8101") + b"".join(bytes((tag % 128 | 0x80, tag // 128, 0)) for tag in range(129))
    assert skip_tags(many, 1, many[0]) == len(many)


def test_negative_lengths_are_null_or_malformed() -> None:
    null("f", -1)
    with pytest.raises(Malformed, match="f: length -2"):
        null("f", -2)
    assert "f: null, which this version does not allow" in str(refuse_null("f", -1))
    assert "f: length -2" in str(refuse_null("f", -2))


def test_errors_name_field_and_number() -> None:
    assert "f: 5 is more than" in str(refuse_size("f", 5))
    assert str(refuse_end("M v1", 3, 5)) == "M v1: 2 bytes too many"
    assert str(refuse_end("M v1", 6, 5)) == "M v1: bytes are missing"


LISTS = {
    "elements": MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 5, allow_auto_topic_creation=False),
    "nothing": MetadataRequest(topics=[], allow_auto_topic_creation=False),
}


@pytest.mark.parametrize(("name", "count"), [("elements", 6), ("nothing", 1)])
@pytest.mark.parametrize("version", [8, 9, 12])
def test_lists_and_their_elements_are_counted(name: str, count: int, version: int) -> None:
    message = LISTS[name]
    encoded = b"".join(encode(message, version))
    read = decoder(MetadataRequest, version)
    assert read(encoded, 0, count) == message
    with pytest.raises(TooManyElements, match=r"MetadataRequest.topics: 1 elements more than are allowed"):
        read(encoded, 0, count - 1)


def test_numbers_in_lists_are_counted() -> None:
    read = decoder(OffsetDeleteRequest, 0)
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(7)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    encoded = b"".join(encode(OffsetDeleteRequest(group_id="g", topics=topics), 0))
    assert read(encoded, 0, 2 + 8).topics == topics
    with pytest.raises(TooManyElements):
        read(encoded, 0, 2 + 7)


def test_tagged_fields_are_counted() -> None:
    encoded = b"".join(encode(LISTS["nothing"], 12))
    assert encoded[-1] == 0
    tags = b"".join(bytes((tag, 0)) for tag in range(9))
    read = decoder(MetadataRequest, 12)
    assert read(encoded[:-1] + bytes((9,)) + tags, 0, 10) == LISTS["nothing"]
    with pytest.raises(TooManyElements):
        read(encoded[:-1] + bytes((9,)) + tags, 0, 9)


def test_a_section_of_too_many_unknown_tags_is_malformed() -> None:
    many = bytes.fromhex("e907") + b"".join(bytes((tag % 128 | 0x80, tag // 128, 0)) for tag in range(1001))
    with pytest.raises(Malformed, match="1001 unknown tagged fields, expected at most 1000"):
        skip_tags(many, 1, many[0])
