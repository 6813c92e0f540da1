"""The index of aborted transactions: exact bytes, truncation, and what is refused."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from storage.disk.files import OsFiles
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.transaction_index import NO_FIRST_OFFSET, AbortedTransaction, TransactionIndex, _Entries, parse

FIRST = AbortedTransaction(3, 41, 44, 45)
SECOND = AbortedTransaction(1004, 43, 60, 50)
BYTES = bytes.fromhex("00000000000000000003" + "0000000000000029" + "000000000000002c" + "000000000000002d")


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    return TransactionIndex(OsFiles(), str(tmp_path / "x.txnindex"))


def test_file_is_created_with_the_first_entry(index: TransactionIndex) -> None:
    assert index.entries() == ()
    index.truncate_to(0)
    assert not Path(index.path).exists()
    index.append(FIRST)
    assert Path(index.path).read_bytes() == BYTES
    index.append(SECOND)
    index.release()
    assert index.entries() == (FIRST, SECOND)


@pytest.mark.parametrize(("offset", "left"), [(61, 2), (60, 1), (44, 0), (45, 1)])
def test_truncation_removes_entries_by_their_marker(index: TransactionIndex, offset: int, left: int) -> None:
    index.append(FIRST)
    index.append(SECOND)
    index.truncate_to(offset)
    assert index.entries() == (FIRST, SECOND)[:left]
    index.release()
    assert index.entries() == (FIRST, SECOND)[:left]


def test_markers_must_increase(index: TransactionIndex) -> None:
    index.append(SECOND)
    with pytest.raises(CorruptIndexError):
        index.append(FIRST)


@pytest.mark.parametrize(
    "content", [BYTES[:-1], BYTES + b"x", BYTES + BYTES, b"\x00\x01" + BYTES[2:], bytes(34)[:-1] + b"\x01" + bytes(33)]
)
def test_damaged_index_is_rejected_with_its_path(content: bytes) -> None:
    with pytest.raises(CorruptIndexError, match="the path"):
        parse(content, "the path")


def test_search_returns_the_same_entries_as_a_scan(index: TransactionIndex) -> None:
    random = Random(3)
    entries: list[AbortedTransaction] = []
    open_offsets = [random.randrange(50) for _ in range(6)]
    for last_offset in range(100, 3100, 2):
        first_offset = open_offsets.pop(random.randrange(len(open_offsets)))
        open_offsets.append(last_offset - random.randrange(200 if random.random() < 0.1 else 3))
        entries.append(AbortedTransaction(random.randrange(9), max(first_offset, 0), last_offset, 0))
        index.append(entries[-1])
    assert index.lowest_first_offset == min(entry.first_offset for entry in entries)
    for cut_offset in (4000, 1500, 200, 0):
        index.truncate_to(cut_offset)
        entries = [entry for entry in entries if entry.last_offset < cut_offset]
        for _ in range(300):
            start_offset = random.randrange(3300)
            end_offset = start_offset + random.randrange(1, 400)
            expected = [
                entry for entry in entries if entry.last_offset >= start_offset and entry.first_offset < end_offset
            ]
            assert index.overlapping(start_offset, end_offset) == expected
    assert index.lowest_first_offset == NO_FIRST_OFFSET


def test_cost_of_a_search_does_not_grow_with_the_entries(
    index: TransactionIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while one long transaction holds the last stable offset below all the others."""
    index.append(AbortedTransaction(1, 0, 3, 2))
    for number in range(5, 20_005, 2):
        index.append(AbortedTransaction(2, number, number + 1, 4))
    index.append(AbortedTransaction(3, 4, 20_006, 20_007))
    visited = 0
    original = _Entries._gather

    def count(entries: _Entries, level: int, blocks: range, first: int, end_offset: int, found: Any) -> None:
        nonlocal visited
        visited += len(blocks)
        original(entries, level, blocks, first, end_offset, found)

    monkeypatch.setattr(_Entries, "_gather", count)
    assert [entry.first_offset for entry in index.overlapping(4, 5)] == [4]
    assert visited < 200


def test_new_index_ignores_an_existing_file_of_its_name(index: TransactionIndex) -> None:
    Path(index.path).write_bytes(b"garbage" * 20)
    index.begin_empty()
    index.append(FIRST)
    assert Path(index.path).read_bytes() == BYTES
