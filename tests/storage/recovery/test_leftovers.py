"""What a start makes of the files of an interrupted swap: either the old segments or the new one."""

from pathlib import Path

import pytest

from storage.disk import names
from storage.recovery import leftovers
from storage.segments.segment import Segment
from tests.storage.builders import NOW_MS, QuickFiles, batch

OLD = b"old"


def file_name(base_offset: int, stage: str = "", suffix: str = names.LOG) -> str:
    return names.segment_file(base_offset, suffix) + stage


def batch_at(base_offset: int) -> bytes:
    content = bytearray(batch(1))
    content[:8] = base_offset.to_bytes(8)
    return bytes(content)


SWAP, CLEANED, DELETED = names.SWAP, names.CLEANED, names.DELETED
CASES: dict[str, tuple[dict[str, bytes], dict[str, bytes]]] = {
    "one .cleaned file is left": (
        {file_name(0): OLD, file_name(0, SWAP): b"new", file_name(0, CLEANED, names.TIME_INDEX): b""},
        {file_name(0): OLD},
    ),
    "a finished group before an unfinished one": (
        {
            **{file_name(base): OLD for base in (0, 1, 2)},
            file_name(0, SWAP): batch_at(1),
            file_name(2, CLEANED): b"",
            file_name(2, SWAP, names.OFFSET_INDEX): b"",
        },
        {file_name(0): batch_at(1), file_name(2): OLD},
    ),
    "old files in all stages of their removal": (
        {
            file_name(0, DELETED): OLD,
            file_name(1): OLD,
            file_name(2, "", names.OFFSET_INDEX): OLD,
            file_name(5): OLD,
            file_name(0, SWAP): batch_at(4),
        },
        {file_name(0): batch_at(4), file_name(5): OLD},
    ),
    "aborted transactions that are gone with their data": (
        {file_name(0): OLD, file_name(0, "", names.TRANSACTION_INDEX): OLD, file_name(0, SWAP): batch_at(0)},
        {file_name(0): batch_at(0)},
    ),
    "a group that has kept nothing": (
        {
            **{file_name(base): OLD for base in (0, 1, 2, 3)},
            file_name(0, SWAP): b"",
            file_name(2, SWAP): batch_at(3),
        },
        {file_name(0): b"", file_name(2): batch_at(3)},
    ),
    "the renaming to the final names was under way": (
        {file_name(0): batch_at(0), file_name(0, SWAP, names.OFFSET_INDEX): b"", file_name(1): OLD},
        {file_name(0): batch_at(0), file_name(0, "", names.OFFSET_INDEX): b"", file_name(1): OLD},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_interrupted_swap_is_completed_or_undone(tmp_path: Path, case: str) -> None:
    before, after = CASES[case]
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    files = QuickFiles()

    def open_segment(base_offset: int, size: int) -> Segment:
        return Segment(
            files,
            str(tmp_path),
            base_offset,
            now_ms=NOW_MS,
            index_interval_bytes=4096,
            index_size_max=4096,
            size=size,
        )

    for _ in range(2):
        leftovers.clear(files, str(tmp_path), open_segment)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == after
