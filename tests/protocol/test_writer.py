"""What generated writers call off their fast path; `test_codec` holds the writers themselves against an interpreter."""

import pytest

from protocol.codec import encode, encoder
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.reader import TooManyElements
from protocol.schema import Records
from protocol.writer import SHORT_LENGTHS, long_string_length, refuse_loss, uvarint


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_varints_are_written(value: int, data: str) -> None:
    assert uvarint(value).hex() == data


def test_encoded_short_lengths_are_precomputed() -> None:
    assert list(SHORT_LENGTHS) == [uvarint(value) for value in range(128)]


def test_string_above_the_protocol_limit_is_rejected() -> None:
    assert long_string_length(32768) == uvarint(32768)
    with pytest.raises(ValueError, match="a string has 32768 bytes, expected at most 32767"):
        long_string_length(32769)


def test_field_that_a_version_would_lose_is_rejected() -> None:
    with pytest.raises(KafkaError, match="rack_id is 'a', which version 2 cannot carry") as raised:
        refuse_loss("rack_id", 2, "a")
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [8, 9, 12])
def test_a_message_of_too_many_elements_writes_nothing(version: int) -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 5, allow_auto_topic_creation=False)
    write = encoder(MetadataRequest, version)
    out: list[Records] = []
    write(message, out, 6)
    assert out == encode(message, version)
    out = []
    with pytest.raises(TooManyElements):
        write(message, out, 5)
    assert out == []
