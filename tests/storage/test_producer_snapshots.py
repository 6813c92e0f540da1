"""Snapshots: exact bytes, every damage refused, and which of several is used and kept."""

from pathlib import Path

import pytest

from storage.files import OsFiles
from storage.producer_snapshots import CorruptSnapshotError, ProducerSnapshots, decode, encode
from storage.producer_state import BatchMetadata, ProducerEntry

SNAPSHOT = bytes.fromhex(
    "0001ae20a3f70000000100000000000007d000000000000b0000000000000024000000030000018bcfe5b6ebffffffffffffffffffffffff"
)


def entry() -> ProducerEntry:
    made = ProducerEntry(2000, 0)
    made.batches.append(BatchMetadata(11, 36, 3, 1700000020203))
    made.last_timestamp_ms = 1700000020203
    return made


def test_snapshot_has_the_bytes_of_kafkas_format() -> None:
    assert encode([entry()]) == SNAPSHOT
    assert encode([]).hex() == "0001" + "48674bc7" + "00000000"
    (decoded,) = decode(SNAPSHOT, "x")
    assert (decoded.producer_id, decoded.last_sequence, decoded.last_data_offset) == (2000, 11, 36)
    assert encode([decoded]) == SNAPSHOT


@pytest.mark.parametrize("size", range(len(SNAPSHOT)))
def test_truncated_snapshot_is_rejected(size: int) -> None:
    with pytest.raises(CorruptSnapshotError, match="the path"):
        decode(SNAPSHOT[:size], "the path")


@pytest.mark.parametrize("position", range(len(SNAPSHOT)))
def test_snapshot_with_a_flipped_byte_is_rejected(position: int) -> None:
    damaged = bytearray(SNAPSHOT)
    damaged[position] ^= 0x40
    with pytest.raises(CorruptSnapshotError):
        decode(bytes(damaged), "x")


@pytest.fixture
def snapshots(tmp_path: Path) -> ProducerSnapshots:
    made = ProducerSnapshots(OsFiles(), str(tmp_path), ())
    for offset in (10, 20, 30):
        made.write(offset, [entry()])
    return made


def test_newest_readable_snapshot_is_loaded_and_unreadable_ones_are_deleted(
    snapshots: ProducerSnapshots, tmp_path: Path
) -> None:
    (tmp_path / f"{30:020d}.snapshot").write_bytes(b"garbage")
    (tmp_path / f"{20:020d}.snapshot").unlink()
    loaded = snapshots.load_latest(100)
    assert loaded is not None
    assert loaded.offset == 10
    assert snapshots.offsets == [10]
    assert [path.name for path in tmp_path.iterdir()] == [f"{10:020d}.snapshot"]


def test_snapshot_above_the_requested_offset_is_kept(snapshots: ProducerSnapshots) -> None:
    loaded = snapshots.load_latest(29)
    assert loaded is not None
    assert loaded.offset == 20
    assert snapshots.load_latest(9) is None
    assert snapshots.offsets == [10, 20, 30]


KEPT = {
    (0, 30): [10, 20, 30],
    (10, 29): [20],
    (30, 30): [],
}


@pytest.mark.parametrize(("bounds", "left"), KEPT.items())
def test_snapshots_outside_a_log_are_deleted(
    snapshots: ProducerSnapshots, bounds: tuple[int, int], left: list[int]
) -> None:
    snapshots.delete_outside(*bounds)
    assert snapshots.offsets == left


@pytest.mark.parametrize(
    ("base_offsets", "left"), [({0, 10}, [10, 30]), ({0, 20, 40}, [20]), ({0, 10, 20, 30}, [10, 20, 30])]
)
def test_stray_snapshots_are_deleted_except_that_of_a_clean_stop(
    snapshots: ProducerSnapshots, base_offsets: set[int], left: list[int]
) -> None:
    snapshots.delete_strays(base_offsets)
    assert snapshots.offsets == left
