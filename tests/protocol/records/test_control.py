import pytest

from protocol.errors import Malformed
from protocol.records.batch import HEADER_SIZE, Record, read_header, records
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType, TransactionMarker, build_marker, read_marker, read_usual_marker


@pytest.mark.parametrize("control_type", list(ControlType))
def test_a_marker_is_a_control_batch_of_one_record(control_type: ControlType) -> None:
    marker = TransactionMarker(control_type, 17)
    batch = build_marker(marker, producer_id=2000, producer_epoch=3, now_ms=1_000, leader_epoch=5)
    header = read_header(batch)
    assert len(batch) == 78
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2000, 3, -1)
    assert (header.records_count, header.max_timestamp, header.partition_leader_epoch) == (1, 1_000, 5)
    (record,) = records(batch, size_max=100)
    assert record.key == bytes([0, 0, 0, control_type])
    assert record.value == bytes([0, 0, 0, 0, 0, 17])
    assert read_marker(record) == marker


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\0\0\0\0", b"\0\0\0\0\0\1", TransactionMarker(ControlType.ABORT, 1)),
        (b"\0\1\0\1more", b"\0\1\0\0\0\1more", TransactionMarker(ControlType.COMMIT, 1)),
        (b"\0\0\0\2", None, None),
        (b"\0\0\xff\xff", b"", None),
    ],
)
def test_later_versions_are_read_and_unknown_types_are_none(
    key: bytes, value: bytes | None, expected: TransactionMarker | None
) -> None:
    assert read_marker(Record(0, 0, key, value, [])) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\1"),
        (b"\0\0\0", b"\0\0\0\0\0\1"),
        (b"\0\0\0\0", None),
        (b"\0\0\0\0", b"\0\0\0\0\0"),
        (b"\xff\xff\0\0", b"\0\0\0\0\0\1"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\1"),
    ],
)
def test_short_key_or_negative_version_is_malformed(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(Malformed):
        read_marker(Record(0, 0, key, value, []))


@pytest.mark.parametrize("control_type", list(ControlType))
@pytest.mark.parametrize("epoch", [0, 5, 2**31 - 1, -1])
def test_fast_path_reads_markers_as_brokers_write_them(control_type: ControlType, epoch: int) -> None:
    marker = TransactionMarker(control_type, epoch)
    batch = b"before" + build_marker(marker, producer_id=1, producer_epoch=2, now_ms=3)
    assert read_usual_marker(batch, 6, read_header(batch, 6)) == marker
    assert read_usual_marker(batch[:-1], 6, read_header(batch, 6)) is None


def test_fast_path_agrees_with_the_full_path() -> None:
    """Every byte of the record in turn is every other one."""
    batch = build_marker(TransactionMarker(ControlType.COMMIT, 7), producer_id=1, producer_epoch=2, now_ms=3)
    found = 0
    for at in range(HEADER_SIZE, len(batch)):
        for byte in range(0x100):
            changed = batch[:at] + bytes([byte]) + batch[at + 1 :]
            usual = read_usual_marker(changed, 0, read_header(changed))
            if usual is not None:
                found += 1
                assert usual == read_marker(next(records(changed, size_max=100)))
    assert found == len(batch[HEADER_SIZE:]) + 4 * 0xFF + 1, "the epoch may be any, the type one of two"


def test_fast_path_returns_none_for_unusual_markers() -> None:
    for key, value, headers in (
        (b"\0\0\0\1more", b"\0\0\0\0\0\1", ()),
        (b"\0\0\0\1", b"\0\0\0\0\0\1more", ()),
        (b"\0\0\0\1", b"\0\0\0\0\0\1", [("h", None)]),
        (b"\0\0\0\2", b"\0\0\0\0\0\1", ()),
    ):
        batch = build_batch([RecordData(0, key, value, headers)], is_control=True)
        assert read_usual_marker(batch, 0, read_header(batch)) is None
