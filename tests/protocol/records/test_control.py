import pytest

from protocol.errors import Malformed
from protocol.records.batch import Record, read_header, records
from protocol.records.control import ControlType, TransactionMarker, build_marker, read_marker


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
def test_later_versions_and_unknown_types(key: bytes, value: bytes | None, expected: TransactionMarker | None) -> None:
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
def test_what_is_too_short_or_has_a_negative_version_is_malformed(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(Malformed):
        read_marker(Record(0, 0, key, value, []))
