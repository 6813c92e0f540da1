"""The compiled codec on every version of every message: round trips, its dumb twin, and hostile bytes."""

import re
import tracemalloc
from random import Random

import pytest

from protocol.codec import decode, decoder, encode, encode_element, encoder, source_text
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.schema import message_info
from tests.protocol import interpreter
from tests.protocol.random_messages import MESSAGES, mutated, random_message, versions_of

every_message = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


@every_message
def test_every_version_survives_a_round_trip_and_agrees_with_the_interpreter(cls: type) -> None:
    for version in versions_of(cls):
        for seed in range(20):
            message = random_message(cls, version, Random(seed))
            data = interpreter.write(message, version)
            assert b"".join(encode(message, version)) == data, (version, seed)
            decoded = decode(cls, version, data)
            assert decoded == message, (version, seed)
            assert decoded == interpreter.read(cls, version, data), (version, seed)
            assert decode(cls, version, memoryview(b"...." + data), 4) == message, (version, seed)


@pytest.mark.parametrize("version", versions_of(MetadataResponse))
def test_encoded_elements_are_written_in_place(version: int) -> None:
    for seed in range(20):
        message = random_message(MetadataResponse, version, Random(seed))
        expected = b"".join(encode(message, version))
        message.topics = [
            encode_element(MetadataResponse, topic, version) if index % 2 == seed % 2 else topic
            for index, topic in enumerate(message.topics)
        ]
        assert b"".join(encode(message, version)) == expected


@every_message
def test_every_truncation_is_malformed(cls: type) -> None:
    for version in versions_of(cls):
        data = b"".join(encode(random_message(cls, version, Random(version), list_size_max=1), version))
        read = decoder(cls, version)
        for size in range(len(data)):
            for cut in (data[:size], memoryview(data)[:size]):
                text = ""
                try:  # `pytest.raises` takes longer than the read
                    read(cut)
                except Malformed as malformed:
                    text = str(malformed)
                assert text, (version, size)
                assert not PYTHONS_WORDS.search(text)


@every_message
def test_mutated_messages_are_malformed_or_decoded_like_the_interpreter(cls: type) -> None:
    random = Random(cls.__name__)
    for version in versions_of(cls):
        data = b"".join(encode(random_message(cls, version, random, list_size_max=2), version))
        for _ in range(100):
            mutant = mutated(data, random)
            try:
                message = decode(cls, version, mutant)
            except Malformed:
                with pytest.raises(Malformed):
                    interpreter.read(cls, version, mutant)
            else:
                twin = interpreter.read(cls, version, mutant)
                assert b"".join(encode(message, version)) == interpreter.write(twin, version), (version, mutant)


@every_message
def test_bytes_after_the_end_are_ignored_in_requests_and_rejected_in_responses(cls: type) -> None:
    for version in versions_of(cls):
        message = random_message(cls, version, Random(1))
        data = b"".join(encode(message, version)) + b"\0\0\0"
        if message_info(cls).is_request:
            assert decode(cls, version, data) == message
        else:
            with pytest.raises(Malformed, match="3 bytes too many"):
                decode(cls, version, data)


PYTHONS_WORDS = re.compile("codec|unpack|dimension|out of range|can't")

MALFORMED = [
    # (class, version, bytes, what the text says)
    (MetadataRequest, 0, "ffffffff", "null"),
    (MetadataRequest, 1, "fffffffe", "length -2"),
    (MetadataRequest, 1, "7fffffff0000", r"missing from MetadataRequest\.topics"),
    (MetadataRequest, 12, "ffffffff07000000", r"missing from MetadataRequest\.topics"),
    (MetadataRequest, 12, "ffffffff0f000000", "above the largest length"),
    (MetadataRequest, 12, "80808080808000", "more than 5 bytes"),
    (MetadataRequest, 9, "02000000000000", "name: null"),
    (MetadataRequest, 9, "0203c328000000000000", r"topics\.name is not UTF-8: byte 0xc3 at 0"),
    (HeartbeatRequest, 0, "fffe", "length -2"),
    (HeartbeatRequest, 0, "0005616263", r"missing from HeartbeatRequest\.generation_id on"),
    (HeartbeatRequest, 4, "02610000000002620001", "missing from HeartbeatRequest on"),
    (HeartbeatRequest, 4, "026100000000026200010001", "1 bytes, but 0 are left"),
    (HeartbeatRequest, 4, "0261000000000262000205000500", "tag 5 after tag 5"),
    (HeartbeatRequest, 4, "02610000000081800200" + "61" * 40000, "32769 is more"),
    (SaslHandshakeRequest, 0, "000161"[:-2], "bytes are missing"),
    (ApiVersionsResponse, 3, "00000100000000010003010102", "too many|missing"),
]


@pytest.mark.parametrize(("cls", "version", "data", "text"), MALFORMED)
def test_malformed_error_names_the_damage(cls: type, version: int, data: str, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        decode(cls, version, bytes.fromhex(data))


def test_unknown_tags_are_skipped() -> None:
    data = bytes.fromhex("0261 00000000 0262 00 02 05 01 ff ac02 00")
    assert decode(HeartbeatRequest, 4, data) == HeartbeatRequest(group_id="a", generation_id=0, member_id="b")


@pytest.mark.parametrize("count", [10, 10_000, 0x7FFF_FFFE])
def test_a_hostile_count_allocates_nothing(count: int) -> None:
    data = (count + 1).to_bytes(5, "big")[1:] + bytes(8)
    read = decoder(MetadataRequest, 5)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_records_are_views_that_stay_writable() -> None:
    records = bytes(range(256)) * 10
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    frame = bytearray(b"".join(encode(request, 9)))
    view = decode(ProduceRequest, 9, memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert not view.readonly
    view[0] = 99
    assert frame.count(bytes([99]) + records[1:]) == 1
    assert decode(ProduceRequest, 9, bytes(frame)).topic_data[0].partition_data[0].records.readonly


def _fetch_response(*records: bytes) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, high_watermark=9, records=r) for i, r in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_large_records_are_encoded_by_reference() -> None:
    large = bytes(5000)
    buffers = encode(_fetch_response(large), 12)
    assert len(buffers) == 3
    assert buffers[1] is large
    assert len(encode(_fetch_response(large, large), 12)) == 5


def test_small_records_are_joined_with_their_surroundings() -> None:
    assert len(encode(_fetch_response(bytes(100), bytes(200)), 12)) == 1


def test_an_empty_message_is_one_empty_buffer() -> None:
    assert encode(ListGroupsRequest(), 0) == [b""]


def test_encoders_append_to_existing_pieces() -> None:
    out: list[bytes | bytearray | memoryview] = [b"header"]
    encoder(ListGroupsRequest, 0)(ListGroupsRequest(), out)
    encoder(SaslHandshakeRequest, 1)(SaslHandshakeRequest(mechanism="PLAIN"), out)
    assert b"".join(out) == b"header\0\x05PLAIN"


def test_request_field_unknown_to_the_version_is_rejected() -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[],
        group_instance_id="static-1",
    )
    encode(request, 5)
    with pytest.raises(KafkaError, match=r"JoinGroupRequest.group_instance_id is 'static-1'") as caught:
        encode(request, 4)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_an_ignorable_request_field_and_any_response_field_are_dropped_in_old_versions() -> None:
    assert encode(MetadataRequest(topics=[], allow_auto_topic_creation=True), 0)
    response = _fetch_response(b"abc")
    response.session_id = 17
    assert decode(FetchResponse, 0, b"".join(encode(response, 0))).session_id == 0


def test_encoding_a_too_long_string_raises_value_error() -> None:
    with pytest.raises(ValueError, match="40000 bytes"):
        encode(HeartbeatRequest(group_id="x" * 40_000, generation_id=0, member_id=""), 4)


def test_undeclared_versions_and_classes_are_rejected() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest has no version 5, only 0 to 4"):
        decoder(HeartbeatRequest, 5)
    with pytest.raises(TypeError, match="PartitionData is not a message"):
        encoder(PartitionData, 0)
    with pytest.raises(TypeError, match="int is not a message"):
        encode(5, 0)


def test_functions_are_compiled_once() -> None:
    assert decoder(HeartbeatRequest, 3) is decoder(HeartbeatRequest, 3)
    assert encoder(HeartbeatRequest, 3) is encoder(HeartbeatRequest, 3)


def test_source_of_a_codec_is_available() -> None:
    reader, writer = source_text(HeartbeatRequest, 4)
    assert "o0.group_instance_id" in reader
    assert "o0.group_instance_id" in writer
