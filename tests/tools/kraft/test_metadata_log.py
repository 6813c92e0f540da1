"""Snapshots of metadata: their layout, their names, and what is read of a damaged one."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from protocol.errors import Malformed
from protocol.records.batch import batches
from protocol.records.builder import RecordData, build_batch
from tests.tools.kraft.metadata import full_image
from tools.kraft import metadata_log
from tools.kraft.frames import framed
from tools.kraft.image import records_of, replayed
from tools.kraft.metadata_log import SnapshotId, VersionedRecord, is_whole_snapshot, read_records, snapshot
from tools.kraft.metadata_records import NoOpRecord

END = SnapshotId(40, 3)


def test_a_snapshot_reads_as_the_metadata_that_it_was_written_from() -> None:
    image = full_image()
    stored = list(read_records(b"".join(snapshot(records_of(image), END, 1000))))
    assert replayed(record.fields for record in stored if record.fields is not None) == image
    assert is_whole_snapshot(stored)
    assert [record.offset for record in stored] == list(range(len(stored)))
    assert {record.epoch for record in stored} == {3}


def test_a_large_snapshot_has_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "RECORDS_PER_BATCH", 4)
    data = b"".join(snapshot([VersionedRecord(20, 0, NoOpRecord())] * 10, END, 1000))
    headers = [header for _, header in batches(data)]
    assert [(header.base_offset, header.records_count, header.is_control) for header in headers] == [
        (0, 1, True), (1, 4, False), (5, 4, False), (9, 2, False), (11, 1, True),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["00000000000000000040-0000000003.checkpoint"])
def test_names_are_those_of_kafka(name: str) -> None:
    assert metadata_log.snapshot_name(END) == name
    assert metadata_log.parse_snapshot_name(name) == END


@pytest.mark.parametrize(
    "name",
    ["00000000000000000040-0000000003.checkpoint.part", "00000000000000000040.log", "bootstrap.checkpoint",
     "00000000000000000040-0000000003.checkpoint.deleted"],
)  # fmt: skip
def test_other_names_are_no_snapshots(name: str) -> None:
    assert metadata_log.parse_snapshot_name(name) is None


@pytest.mark.parametrize("size", [1, 60, 200, -1])
def test_a_cut_off_snapshot_is_not_whole(size: int) -> None:
    data = b"".join(snapshot(records_of(full_image()), END, 1000))
    assert not is_whole_snapshot(read_records(data[:size]))


def test_reading_ends_at_a_damaged_batch() -> None:
    data = bytearray(b"".join(snapshot(records_of(full_image()), END, 1000)))
    data[-1] ^= 1
    assert not is_whole_snapshot(read_records(bytes(data)))
    assert list(read_records(bytes(data)))[-1].fields is not None


@pytest.mark.parametrize("tail", [bytes(200), b"\xff" * 200])
def test_reading_ends_at_bytes_that_are_no_batch(tail: bytes) -> None:
    data = b"".join(snapshot(records_of(full_image()), END, 1000))
    assert list(read_records(data + tail)) == list(read_records(data))


@pytest.mark.parametrize("seed", range(50))
def test_damage_is_noticed(seed: int) -> None:
    """A record of a batch whose CRC is valid is either decoded or refused."""
    random = Random(seed)
    content = bytearray(framed(3, 1, next(each for each in records_of(full_image()) if each.record_type == 3).fields))
    for _ in range(random.randint(1, 3)):
        content[random.randrange(len(content))] = random.randrange(256)
    with suppress(Malformed):
        list(read_records(build_batch([RecordData(0, None, bytes(content))])))


def test_a_record_of_a_later_kafka_is_refused() -> None:
    unknown = build_batch([RecordData(0, None, framed(99, 0, NoOpRecord()))])
    with pytest.raises(Malformed, match="Unknown metadata id 99"):
        list(read_records(unknown))
