"""Offset and time index against a sorted list, their life from preallocated to cut, and what a check refuses."""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from storage.disk.files import OsFiles
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.offset_index import OffsetIndex, OffsetPosition
from storage.segments.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset

BASE_OFFSET = 1000
SIZE_MAX = 1000


@pytest.fixture
def offset_index(tmp_path: Path) -> OffsetIndex:
    return OffsetIndex(OsFiles(), str(tmp_path / "x.index"), BASE_OFFSET, count=0, size_max=SIZE_MAX)


@pytest.fixture
def time_index(tmp_path: Path) -> TimeIndex:
    return TimeIndex(OsFiles(), str(tmp_path / "x.timeindex"), BASE_OFFSET, count=0, size_max=SIZE_MAX)


@pytest.mark.parametrize("seed", range(5))
def test_offset_lookup_equals_a_sorted_list(offset_index: OffsetIndex, seed: int) -> None:
    random = Random(seed)
    twin: list[OffsetPosition] = []
    offset, position = BASE_OFFSET, 0
    for _ in range(random.randrange(100)):
        offset, position = offset + random.randint(1, 9), position + random.randint(1, 99)
        offset_index.append(offset, position)
        twin.append(OffsetPosition(offset, position))
    for wanted in range(BASE_OFFSET - 2, offset + 3):
        slot = bisect_right(twin, wanted, key=lambda entry: entry.offset)
        assert offset_index.lookup(wanted) == (twin[slot - 1] if slot else OffsetPosition(BASE_OFFSET, 0))
    for wanted in range(position + 3):
        slot = bisect_right(twin, wanted, key=lambda entry: entry.position)
        assert offset_index.lookup_position(wanted) == (twin[slot - 1] if slot else OffsetPosition(BASE_OFFSET, 0))
    assert list(offset_index) == twin
    cut = random.randint(BASE_OFFSET, offset + 1)
    offset_index.truncate_to(cut)
    assert list(offset_index) == [entry for entry in twin if entry.offset < cut]


@pytest.mark.parametrize("seed", range(5))
def test_time_lookup_equals_a_sorted_list(time_index: TimeIndex, seed: int) -> None:
    random = Random(seed)
    twin: list[TimestampOffset] = []
    timestamp_ms, offset = 50, BASE_OFFSET
    for _ in range(random.randrange(80)):
        timestamp_ms, offset = timestamp_ms + random.randint(-3, 5), offset + random.randint(0, 9)
        if timestamp_ms > (twin[-1].timestamp_ms if twin else NO_TIMESTAMP):
            twin.append(TimestampOffset(timestamp_ms, offset))
        time_index.append_if_later(timestamp_ms, offset)
    assert list(time_index) == twin
    for wanted in range(40, 300):
        slot = bisect_right(twin, wanted, key=lambda entry: entry.timestamp_ms)
        assert time_index.lookup(wanted) == (twin[slot - 1] if slot else TimestampOffset(NO_TIMESTAMP, BASE_OFFSET))
    cut = random.randint(BASE_OFFSET, offset + 1)
    time_index.truncate_to(cut)
    assert list(time_index) == [entry for entry in twin if entry.offset < cut]


def test_index_file_is_created_with_the_first_entry_and_truncated_when_sealed(offset_index: OffsetIndex) -> None:
    path = Path(offset_index.path)
    assert offset_index.lookup(BASE_OFFSET + 5) == (BASE_OFFSET, 0)
    assert not path.exists()
    offset_index.append(BASE_OFFSET + 7, 4200)
    assert path.stat().st_size == SIZE_MAX
    offset_index.seal()
    assert path.read_bytes().hex() == "00000007" + "00001068"


def test_sealing_an_empty_index_creates_an_empty_file(time_index: TimeIndex) -> None:
    time_index.seal()
    assert Path(time_index.path).read_bytes() == b""


def test_reopened_sealed_index_accepts_entries(offset_index: OffsetIndex) -> None:
    offset_index.append(BASE_OFFSET + 1, 10)
    offset_index.seal()
    again = OffsetIndex(OsFiles(), offset_index.path, BASE_OFFSET, count=1, size_max=SIZE_MAX)
    assert again.last() == (BASE_OFFSET + 1, 10)
    again.append(BASE_OFFSET + 2, 20)
    assert list(again) == [(BASE_OFFSET + 1, 10), (BASE_OFFSET + 2, 20)]


def test_size_limit_is_rounded_down_to_whole_entries(time_index: TimeIndex) -> None:
    for number in range(SIZE_MAX // 12):
        assert not time_index.is_full
        time_index.append_if_later(number, BASE_OFFSET + number)
    assert time_index.is_full
    assert Path(time_index.path).stat().st_size == SIZE_MAX - SIZE_MAX % 12


def test_old_map_is_readable_after_reset_and_seal(offset_index: OffsetIndex) -> None:
    offset_index.append(BASE_OFFSET + 1, 10)
    entries = iter(offset_index)
    first = next(entries)
    offset_index.reset()
    assert first == (BASE_OFFSET + 1, 10)
    assert list(offset_index) == []


BAD_OFFSET_INDEXES: dict[str, Callable[[OffsetIndex], None]] = {
    "position behind the log": lambda index: index.append(BASE_OFFSET + 1, 500),
    "base offset": lambda index: index.append(BASE_OFFSET, 10),
}


@pytest.mark.parametrize("damage", BAD_OFFSET_INDEXES)
def test_check_rejects_a_damaged_offset_index(offset_index: OffsetIndex, damage: str) -> None:
    BAD_OFFSET_INDEXES[damage](offset_index)
    with pytest.raises(CorruptIndexError, match=r"x\.index"):
        offset_index.check(log_size=500)


def test_zeros_of_a_preallocated_file_do_not_count_as_entries(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(SIZE_MAX))
    with pytest.raises(CorruptIndexError):
        OffsetIndex(OsFiles(), str(path), BASE_OFFSET, count=SIZE_MAX // 8, size_max=SIZE_MAX).check(500)
    with pytest.raises(CorruptIndexError):
        TimeIndex(OsFiles(), str(path), BASE_OFFSET, count=SIZE_MAX // 12, size_max=SIZE_MAX).check()


def test_map_is_readable_after_truncation_and_seal(tmp_path: Path) -> None:
    """Reading a page behind the end of a file would kill the process."""
    index = OffsetIndex(OsFiles(), str(tmp_path / "i"), 0, count=0, size_max=16_384)
    for number in range(1, 1500):
        index.append(number, number)
    seen_by_a_reader = iter(index)
    assert next(seen_by_a_reader).offset == 1
    index.truncate(3)
    index.seal()
    assert len(list(seen_by_a_reader)) == 1498
    assert [entry.offset for entry in index] == [1, 2, 3]
    assert (tmp_path / "i").stat().st_size == index.size
    index.truncate(0)
    index.seal()
    assert (tmp_path / "i").read_bytes() == b""
