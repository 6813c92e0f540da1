"""The ordered set of segments against a list."""

from pathlib import Path
from random import Random

import pytest

from storage.batches.stored_batch import Extent
from storage.disk.files import OsFiles
from storage.segments.segment import Segment, entries_of_run
from storage.segments.segments import Segments, slot_above, slot_of

BASES = (5, 10, 30)


def segment(base_offset: int, directory: str = "/nowhere") -> Segment:
    return Segment(OsFiles(), directory, base_offset, now_ms=0, index_interval_bytes=1, index_size_max=100)


@pytest.fixture
def segments() -> Segments:
    return Segments(segment(base_offset) for base_offset in reversed(BASES))


def bases(found: object) -> list[int]:
    return [one.base_offset for one in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize("offset", range(40))
def test_floor_and_slot_above_find_the_neighbours_of_an_offset(segments: Segments, offset: int) -> None:
    expected = max((base_offset for base_offset in BASES if base_offset <= offset), default=None)
    found = segments.floor(offset)
    assert (found and found.base_offset) == expected
    above = slot_above(segments.all(), offset)
    assert bases(segments.all()[above:]) == [base for base in BASES if base > offset]
    assert slot_of(segments.all(), offset) == max(above - 1, 0)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 5, []), (0, 6, [5]), (12, 13, [10]), (12, 31, [10, 30]), (0, 99, [5, 10, 30]), (30, 31, [30]), (10, 10, [])],
)
def test_covering_returns_the_segments_of_an_offset_range(
    segments: Segments, start: int, end: int, expected: list[int]
) -> None:
    assert bases(segments.covering(start, end)) == expected


def test_set_of_segments_does_not_change_for_its_reader(segments: Segments) -> None:
    taken = segments.all()
    segments.add(segment(50))
    segments.replace([taken[0], taken[1]], [segment(5)])
    assert bases(taken) == list(BASES)
    assert bases(segments.all()) == [5, 30, 50]
    assert (segments.first.base_offset, segments.active.base_offset, len(segments)) == (5, 50, 3)


def test_segment_may_be_filled_to_its_last_byte(tmp_path: Path) -> None:
    one = segment(0, str(tmp_path))
    one.create()
    one.set_limits(size_max=100, age_ms_max=1_000, index_interval_bytes=1)
    appended = [one.append(bytes(size), number, 0, number, 0) for number, size in enumerate((60, 41, 40, 1))]
    assert appended == [True, False, True, False]
    assert one.size == 100


def test_size_is_the_sum_of_the_log_files(tmp_path: Path) -> None:
    made = [segment(0, str(tmp_path)), segment(9, str(tmp_path))]
    for number, one in enumerate(made):
        one.create()
        one.append_unindexed(bytes(10 * (number + 1)))
    assert Segments(made).size == 30


@pytest.mark.parametrize("run_size", [1, 2, 7, 100])
def test_index_entries_of_a_run_are_those_of_its_batches(run_size: int, tmp_path: Path) -> None:
    random = Random(run_size)
    batches = []
    position = 0
    for number in range(100):
        size = random.choice((61, 100, 200))
        batches.append((Extent(position, size, 3 * number, 3 * number + 2, 2), random.randrange(1000)))
        position += size
    contents = []
    for name in ("single", "runs"):
        folder = tmp_path / name
        folder.mkdir()
        one = Segment(OsFiles(), str(folder), 0, now_ms=0, index_interval_bytes=250, index_size_max=10_000)
        one.create()
        one.append_unindexed(bytes(position))
        if name == "single":
            for extent, timestamp_ms in batches:
                one.add_recovered_batch(extent, timestamp_ms)
        else:
            for start in range(0, len(batches), run_size):
                one.add_recovered_batches(entries_of_run(one, batches[start : start + run_size]))
        contents.append((one.largest(), one.first_timestamp_ms))
        one.seal()
        one.sync()
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[:2] == contents[2:]
    assert len(contents[1]["00000000000000000000.index"]) >= 20 * 8
