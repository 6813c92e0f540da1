"""Records of MirrorMaker 2's own topics: as Kafka writes them, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.mirror.formats import Checkpoint, Heartbeat, OffsetSync
from tests.spark_jobs.connect.mirror.recorded import RECORDED

KINDS: dict[str, Any] = {"offset_sync": OffsetSync, "checkpoint": Checkpoint, "heartbeat": Heartbeat}
SYNC = OffsetSync("orders", 3, 10, 20)
CHECKPOINT = Checkpoint("group", "A.orders", 3, 10, 20, "x")
BEAT = Heartbeat("A", "B", 1)


@pytest.mark.parametrize("row", RECORDED["records"], ids=lambda row: row["kind"])
def test_records_are_byte_for_byte_those_of_kafka(row: Any) -> None:
    record = KINDS[row["kind"]](*row["fields"])
    key, value = bytes.fromhex(row["key"]), bytes.fromhex(row["value"])
    assert (record.key(), record.value()) == (key, value)
    assert KINDS[row["kind"]].from_record(key, value) == record
    if "partition" in row:
        assert json.dumps(record.source_partition()) == json.dumps(row["partition"]), "also the order of keys"


@pytest.mark.parametrize("record", [SYNC, CHECKPOINT, BEAT], ids=lambda record: type(record).__name__)
def test_a_record_that_is_cut_anywhere_is_refused(record: Any) -> None:
    key, value = record.key(), record.value()
    for size in range(len(key)):
        with pytest.raises(DataError, match=r"the key of .* has [0-9]+ bytes: expected at least"):
            type(record).from_record(key[:size], value)
    for size in range(len(value)):
        with pytest.raises(DataError, match=r"the value of .* has [0-9]+ bytes: expected at least"):
            type(record).from_record(key, value[:size])


@pytest.mark.parametrize("record", [CHECKPOINT, BEAT], ids=lambda record: type(record).__name__)
def test_another_version_is_refused_by_its_number(record: Any) -> None:
    with pytest.raises(DataError, match="has version 1: expected 0"):
        type(record).from_record(record.key(), b"\0\1" + record.value()[2:])


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (None, SYNC.value(), "the key of an offset sync is null"),
        (SYNC.key(), None, "the value of an offset sync is null"),
        (b"\xff\xff" + SYNC.key()[2:], SYNC.value(), "a string of -1 bytes"),
        (b"\0\1\xff\0\0\0\1", SYNC.value(), "not UTF-8"),
    ],
)
def test_keys_and_values_that_no_mirror_writes_are_refused(key: bytes, value: bytes, text: str) -> None:
    with pytest.raises(DataError, match=text):
        OffsetSync.from_record(key, value)


def test_a_name_that_does_not_fit_its_length_field_is_refused() -> None:
    with pytest.raises(DataError, match="has 32768 bytes: expected at most 32767"):
        OffsetSync("x" * 32768, 0, 0, 0).key()
