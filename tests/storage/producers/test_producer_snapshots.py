"""Snapshots: exact bytes, every damage refused, and which of several is used and kept."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from storage.disk.files import OsFiles
from storage.log.log import Log
from storage.producers.producer_snapshots import CorruptSnapshotError, ProducerSnapshots, decode, encode
from storage.producers.producer_state import BatchMetadata, ProducerEntry
from storage.recovery.recovery import RECALL_SIZE_MAX, batches_before
from storage.segments.segment import Segment
from tests.storage.builders import NOW_MS, append, batch, create_log, load_log
from tests.support.lines import counted_lines

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


def test_a_snapshot_of_many_is_forgotten_in_as_few_steps(tmp_path: Path) -> None:
    lines = []
    for count in (100, 1_000):
        made = ProducerSnapshots(OsFiles(), str(tmp_path), range(count))
        with counted_lines() as counted:
            assert all(made.forget(offset) for offset in range(count - 1, -1, -1))
        assert (made.offsets, made.forget(7)) == ([], None)
        lines.append(counted.count)
    assert lines[1] < 11 * lines[0]


def numbered(sequence: int, size: int = 10) -> memoryview:
    return batch(1, size=size, producer_id=7, sequence=sequence)


def loaded_from_snapshot(directory: Path, how: str, between: int = 0) -> Log:
    """A log with the batches 0 to 3 of a producer whose state was read from a snapshot; `between` batches follow 2."""
    log = create_log(directory)
    for sequence in range(4):
        append(log, numbered(sequence))
        for _ in range(between if sequence == 2 else 0):
            append(log, batch(1, size=100_000))
    if how == "clean stop":
        log.close(NOW_MS)
        return load_log(directory, is_clean=True)
    log.appends.roll(NOW_MS)
    append(log, numbered(4))
    if how == "kill after a roll":
        return load_log(directory, recovery_point=log.log_end_offset - 1)
    append(log, numbered(5))
    log.truncation.truncate_to(log.log_end_offset - 1, now_ms=NOW_MS)
    return log


@pytest.mark.parametrize("how", ["clean stop", "kill after a roll", "truncation after a roll"])
def test_batches_that_the_snapshot_does_not_name_are_recognized(tmp_path: Path, how: str) -> None:
    """A snapshot names the last batch of a producer. Five may be in flight, and be sent again."""
    log = loaded_from_snapshot(tmp_path, how)
    end = log.log_end_offset
    results = [append(log, numbered(sequence)) for sequence in range(4)]
    assert [(it.first_offset, it.is_duplicate) for it in results] == [(sequence, True) for sequence in range(4)]
    assert log.log_end_offset == end
    assert append(log, numbered(end)).first_offset == end


def test_batches_before_the_snapshot_are_searched_once_and_not_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = loaded_from_snapshot(tmp_path, "clean stop", between=RECALL_SIZE_MAX // 100_000 + 2)
    searches: list[ProducerEntry] = []

    def noted(segments: Sequence[Segment], entry: ProducerEntry) -> list[BatchMetadata]:
        searches.append(entry)
        return batches_before(segments, entry)

    monkeypatch.setattr("storage.log.log_appends.batches_before", noted)
    for sequence in (1, 1, 2):
        with pytest.raises(KafkaError) as refused:
            append(log, numbered(sequence))
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(searches) == 1


@pytest.mark.parametrize(("sequence", "epoch"), [(9, 0), (1, 1)], ids=["a gap", "another epoch"])
def test_nothing_is_searched_for_batches_that_repeat_none(tmp_path: Path, sequence: int, epoch: int) -> None:
    log = loaded_from_snapshot(tmp_path, "clean stop")
    with pytest.raises(KafkaError):
        append(log, batch(1, producer_id=7, sequence=sequence, producer_epoch=epoch))
    assert log.producer_state.producers[7].lacks_batches
