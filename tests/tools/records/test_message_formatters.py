"""The printed form of records."""

import json

import pytest

from broker.groups.machine.records import OffsetAndMetadata, group_key, offset_key, offset_value
from protocol.records import batch
from protocol.records.legacy import build_message_set, read_message_header
from tools.base.command_line import UsageError
from tools.records.deserializers import DeserializationError
from tools.records.message_formatters import ConsumedRecord, TimestampType, message_formatter

RECORD = ConsumedRecord("t", 1, 7, TimestampType.CREATE_TIME, 1795229526193, b"k1", b"v1", [])
DEFAULT = "DefaultMessageFormatter"
EVERYTHING = {
    "print.timestamp": "true",
    "print.partition": "true",
    "print.offset": "true",
    "print.headers": "true",
    "print.key": "true",
}


@pytest.mark.parametrize(
    ("properties", "record", "printed"),
    [
        ({}, RECORD, b"v1\n"),
        (EVERYTHING, RECORD, b"CreateTime:1795229526193\tPartition:1\tOffset:7\tNO_HEADERS\tk1\tv1\n"),
        (
            EVERYTHING,
            RECORD._replace(timestamp_ms=-1, headers=[("a", b"1"), ("b", None)]),
            b"CreateTime:-1\tPartition:1\tOffset:7\ta:1,b:null\tk1\tv1\n",
        ),
        ({"print.timestamp": "true"}, RECORD._replace(timestamp_type=TimestampType.NONE), b"NO_TIMESTAMP\tv1\n"),
        (
            {"print.timestamp": "true"},
            RECORD._replace(timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_ms=5),
            b"LogAppendTime:5\tv1\n",
        ),
        ({"print.key": "true"}, RECORD._replace(key=None, value=None), b"null\tnull\n"),
        ({"print.key": "true", "null.literal": "-"}, RECORD._replace(key=None), b"-\tv1\n"),
        ({"print.key": "true", "print.value": "false"}, RECORD, b"k1\n"),
        ({"print.key": "true", "key.separator": "=>", "line.separator": ";"}, RECORD, b"k1=>v1;"),
        (
            {"print.headers": "true", "headers.separator": "|"},
            RECORD._replace(headers=[("a", b""), ("b", b"2")]),
            b"a:|b:2\tv1\n",
        ),
        ({}, RECORD._replace(value=b"\xff\x00"), b"\xff\x00\n"),
    ],
)
def test_default_formatter_prints_the_selected_parts(
    properties: dict[str, str], record: ConsumedRecord, printed: bytes
) -> None:
    assert message_formatter(DEFAULT, properties).format(record) == printed


@pytest.mark.parametrize(
    ("name", "data", "printed"),
    [
        ("org.apache.kafka.common.serialization.StringDeserializer", b"caf\xc3\xa9", b"caf\xc3\xa9"),
        ("StringDeserializer", b"\xff", b"\xef\xbf\xbd"),
        ("ByteArrayDeserializer", b"\xff", b"\xff"),
        ("IntegerDeserializer", b"\xff\xff\xff\xfe", b"-2"),
        ("LongDeserializer", b"\0\0\0\0\0\0\0\x07", b"7"),
        ("ShortDeserializer", b"\x01\x00", b"256"),
        ("FloatDeserializer", b"\x3d\xcc\xcc\xcd", b"0.1"),
        ("FloatDeserializer", b"\x4f\x00\x00\x00", b"2.1474836E9"),
        ("DoubleDeserializer", b"\x3f\xb9\x99\x99\x99\x99\x99\x9a", b"0.1"),
        ("UUIDDeserializer", b"b2a5c2b3-0e40-4b1f-9f5f-000000000001", b"b2a5c2b3-0e40-4b1f-9f5f-000000000001"),
    ],
)
def test_deserializers_print_values(name: str, data: bytes, printed: bytes) -> None:
    formatter = message_formatter(DEFAULT, {"value.deserializer": name})
    assert formatter.format(RECORD._replace(value=data)) == printed + b"\n"


@pytest.mark.parametrize(("name", "data"), [("IntegerDeserializer", b"123"), ("VoidDeserializer", b"x")])
def test_bytes_of_the_wrong_size_raise_an_error(name: str, data: bytes) -> None:
    with pytest.raises(DeserializationError):
        message_formatter(DEFAULT, {"value.deserializer": name}).format(RECORD._replace(value=data))


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("kafka.tools.DefaultMessageFormatter", b"v1\n"),
        ("org.apache.kafka.tools.consumer.DefaultMessageFormatter", b"v1\n"),
        ("kafka.tools.NoOpMessageFormatter", b""),
        (
            "org.apache.kafka.tools.consumer.LoggingMessageFormatter",
            b"v1\nCreateTime:1795229526193, key:k1, value:v1\n",
        ),
        ("tests.tools.records.test_message_formatters:Upper", b"V1"),
    ],
)
def test_formatters_are_found_by_name(name: str, printed: bytes) -> None:
    assert message_formatter(name, {}).format(RECORD) == printed


@pytest.mark.parametrize(
    "name", ["NoSuchFormatter", "nosuch:Formatter", "tests.tools.records.test_message_formatters:Lower"]
)
def test_unknown_formatter_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="formatter"):
        message_formatter(name, {})


def test_unknown_deserializer_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="Unknown deserializer"):
        message_formatter(DEFAULT, {"key.deserializer": "NoSuchDeserializer"})


class Upper:
    """A plug-in."""

    def __init__(self, properties: dict[str, str]) -> None:
        pass

    def format(self, record: ConsumedRecord) -> bytes:
        return (record.value or b"").upper()


def test_json_formatter_prints_one_object_a_line() -> None:
    formatter = message_formatter("org.example.JsonMessageFormatter", {"parse.json": "true"})
    record = ConsumedRecord("t", 1, 7, TimestampType.CREATE_TIME, 5, b"k\n", b'{"a": 1}', [("h", b"\xff"), ("n", None)])
    line = formatter.format(record)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp": 5,
        "timestampType": "CreateTime",
        "headers": [["h", {"base64": "/w=="}], ["n", None]],
        "key": "k\n",
        "value": {"a": 1},
    }
    unparsed = message_formatter("JsonMessageFormatter", {}).format(record._replace(value=b"[" * 100_000))
    assert json.loads(unparsed)["value"] == "[" * 100_000


def test_formatters_of_internal_topics_select_their_records() -> None:
    offset = ConsumedRecord(
        "__consumer_offsets",
        0,
        0,
        TimestampType.CREATE_TIME,
        5,
        offset_key("g", "t", 3),
        offset_value(OffsetAndMetadata(offset=9, metadata="m", commit_timestamp_ms=4)),
        [],
    )
    group = offset._replace(key=group_key("g"), value=None)
    offsets = message_formatter("kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter", {})
    key, _, payload = offsets.format(offset).decode().partition("::")
    assert json.loads(key)["data"] == {"group": "g", "topic": "t", "partition": 3}
    assert json.loads(payload)["data"]["offset"] == 9
    assert offsets.format(group) == b""
    groups = message_formatter("GroupMetadataMessageFormatter", {})
    assert groups.format(group) == b'{"type":"2","data":{"group":"g"}}::<DELETE>\n'
    assert groups.format(offset) == b""
    damaged = offsets.format(offset._replace(key=b"\0\1\0"))
    assert damaged.startswith(b"Error at offset 0, skipping.")


def test_the_offsets_formatter_of_0_9_prints_the_older_form() -> None:
    value = offset_value(OffsetAndMetadata(offset=9, metadata="", commit_timestamp_ms=4, expire_timestamp_ms=8))
    offset = ConsumedRecord(
        "__consumer_offsets", 0, 0, TimestampType.CREATE_TIME, 5, offset_key("g", "t", 3), value, []
    )
    formatter = message_formatter("kafka.coordinator.GroupMetadataManager$OffsetsMessageFormatter", {})
    assert formatter.format(offset) == (b"[g,t,3]::[OffsetMetadata[9,NO_METADATA],CommitTime 4,ExpirationTime 8]\n")
    assert formatter.format(offset._replace(value=None)) == b"[g,t,3]::NULL\n"
    assert formatter.format(offset._replace(key=group_key("g"))) == b""
    assert formatter.format(offset._replace(key=b"\0\1\0")).startswith(b"Error at offset 0, skipping.")


@pytest.mark.parametrize(
    ("timestamp_type", "magic"),
    [(TimestampType.NONE, 0), (TimestampType.CREATE_TIME, 1), (TimestampType.LOG_APPEND_TIME, 1)],
)
@pytest.mark.parametrize("key", [None, b"k1"])
def test_checksum_formatter_prints_the_crc_of_the_old_message(
    timestamp_type: TimestampType, magic: int, key: bytes | None
) -> None:
    append_time = batch.TimestampType.LOG_APPEND_TIME
    stored = build_message_set(
        [batch.Record(0, 5, key, b"v1", [])],
        magic=magic,
        timestamp_type=append_time
        if timestamp_type is TimestampType.LOG_APPEND_TIME
        else batch.TimestampType.CREATE_TIME,
    )
    record = RECORD._replace(timestamp_type=timestamp_type, timestamp_ms=5, key=key)
    checksum = f"checksum:{read_message_header(stored).crc}\n"
    assert message_formatter("kafka.tools.ChecksumMessageFormatter", {}).format(record) == checksum.encode()
    with_topic = message_formatter("ChecksumMessageFormatter", {"topic": "t"})
    assert with_topic.format(record) == f"t:{checksum}".encode()
