"""Removes unfinished files from a partition directory after a crash, before a start opens any file there.

Owns the start-up half of the swap protocol: a set of cleaned segments replaces the old ones completely or not at all.
Must not know what is in a segment, except where its batches end.

`LogDisposal.swap_in` renames the files of one cleaned segment after the other, lower offsets first, from `.cleaned` to
`.swap`, and replaces the old segments once no file of the new segment ends in `.cleaned`. So a `.cleaned` file means
that the old segments from its offset on are current. Without one, `.swap` files mean that the new segment is current.
"""

from collections.abc import Callable, Iterable
from typing import Final

from storage.disk import names
from storage.disk.files import DirectoryEntry, Files
from storage.disk.names import SegmentFileName
from storage.segments.segment import Segment

_TO_REMOVE: Final = (names.DELETED, names.CLEANED, names.TEMPORARY)
_HALF_DONE: Final = (*_TO_REMOVE, names.SWAP)


def clear(files: Files, directory: str, open_segment: Callable[[int, int], Segment]) -> list[DirectoryEntry]:
    """Remove or complete everything unfinished; return the remaining entries of the directory.

    `open_segment(base_offset, size)` returns an object for a log file. After a crash at any point the call can be
    repeated.
    """
    entries = files.list_directory(directory)
    if not any(entry.name.endswith(_HALF_DONE) for entry in entries):
        return entries
    cleaned = [name.base_offset for _, name in _staged(entries, names.CLEANED)]
    unfinished = {
        entry.name for entry, name in _staged(entries, names.SWAP) if cleaned and name.base_offset >= min(cleaned)
    }
    kept = []
    # Remove `.swap` files before `.cleaned` ones: the former count as unfinished only while one of the latter exists.
    for entry in sorted(entries, key=lambda entry: entry.name not in unfinished):
        if entry.name in unfinished or entry.name.endswith(_TO_REMOVE):
            files.unlink_if_exists(f"{directory}/{entry.name}")
        else:
            kept.append(entry)
    if not _staged(kept, names.SWAP):
        return sorted(kept)
    _finish_swaps(files, directory, kept, open_segment)
    return files.list_directory(directory)


def _finish_swaps(
    files: Files, directory: str, entries: Iterable[DirectoryEntry], open_segment: Callable[[int, int], Segment]
) -> None:
    swaps = _staged(entries, names.SWAP)
    logs = [(entry, name) for entry, name in swaps if name.suffix == names.LOG]
    # Cleaned segments, also empty ones, follow each other without a gap. Only the end of the last one must be read from
    # its batches.
    ends = [name.base_offset for _, name in logs[1:]]
    for place, (entry, name) in enumerate(logs):
        if place < len(ends):
            end_offset = ends[place]
        else:
            end_offset = _next_offset(open_segment(name.base_offset, entry.size), f"{directory}/{entry.name}")
        for replaced, replaced_name in _staged(entries, ""):
            if name.base_offset <= replaced_name.base_offset < end_offset:
                files.unlink_if_exists(f"{directory}/{replaced.name}")
    for entry, _ in swaps:
        path = f"{directory}/{entry.name}"
        files.rename(path, path.removesuffix(names.SWAP))
    files.sync_directory(directory)


def _next_offset(segment: Segment, path: str) -> int:
    segment.read_from(path)
    next_offset = segment.base_offset + 1
    for extent in segment.walk(0):
        next_offset = extent.last_offset + 1
    return next_offset


def _staged(entries: Iterable[DirectoryEntry], stage: str) -> list[tuple[DirectoryEntry, SegmentFileName]]:
    """Return the entries that are files of segments in `stage`."""
    parsed = ((entry, names.parse_segment_file(entry.name)) for entry in entries)
    return [
        (entry, name)
        for entry, name in parsed
        if name is not None and name.stage == stage and name.suffix in names.SEGMENT_SUFFIXES
    ]
