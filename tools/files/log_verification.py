"""kafka-dump-log --verify: checks every batch in the segments of log directories.

A broker serves stored batches without checking them, as Kafka does, and only consumers compare their CRCs. This check
finds damage before a consumer does. It reads the files of a stopped or a running broker and changes none of them. The
active segment of a running broker is checked up to its end at that moment.

Owns the choice of files, the checks, and their text. Must not know the tool's options.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from storage.disk.files import OsFiles
from storage.disk.names import LOG, OFFSET_INDEX, DirectoryState, parse_partition_directory, parse_segment_file
from storage.recovery.recovery import CHUNK_SIZE, check_batch, stored_batches
from storage.segments.segment import CorruptSegmentError, Segment
from tools.files.segment_files import DumpError, beside, offset_index_entries

_STEP_SIZE: Final = 16 * CHUNK_SIZE

OnProgress = Callable[[], None]


class Stretch(NamedTuple):
    """A batch of a segment, or bytes in which none was found."""

    path: str
    position: int
    end: int
    offset: int
    """Of the batch, or the next expected one."""
    next_offset: int
    is_batch: bool
    damage: str | None

    @property
    def size(self) -> int:
        return self.end - self.position


class DamagedBatch(NamedTuple):
    """`offset` is that of the batch, or the next expected one if no batch can be identified."""

    path: str
    position: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"file: {self.path} position: {self.position} offset: {self.offset} reason: {self.reason}"


def log_files(directory: str) -> list[tuple[str, int]]:
    """Return path and size of each segment's log in a log directory or a partition's folder, ordered by offset.

    Excludes folders that a broker will delete. Raises DumpError.
    """
    found = []
    folders = []
    try:
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if entry.is_dir():
                name = parse_partition_directory(entry.name)
                if name is not None and name.state is not DirectoryState.DELETE:
                    folders.append(entry.path)
            elif (segment := parse_segment_file(entry.name)) and (segment.suffix, segment.stage) == (LOG, ""):
                found.append((entry.path, entry.stat().st_size))
    except OSError as error:
        raise DumpError(f"{directory}: {error.strerror}") from None
    for folder in folders:
        found += log_files(folder)
    return found


class Verification:
    """Checks files one after the other, and counts files, batches and bytes."""

    def __init__(self) -> None:
        self.files_count = self.batches_count = self.bytes_count = self.damaged_count = 0

    def damaged_batches(self, path: str, on_progress: OnProgress) -> Iterator[DamagedBatch]:
        """Yield the damaged batches of one file. Raises DumpError if it cannot be read."""
        self.files_count += 1
        reported = 0
        for stretch in stretches_of(path):
            self.batches_count += stretch.is_batch
            self.bytes_count += stretch.size
            if stretch.damage is not None:
                self.damaged_count += 1
                unchecked = "" if stretch.is_batch else f"; {stretch.size} bytes are not checked"
                yield DamagedBatch(path, stretch.position, stretch.offset, stretch.damage + unchecked)
            if stretch.end - reported >= _STEP_SIZE:
                reported = stretch.end
                on_progress()

    def summary(self) -> str:
        """Return what was checked and how much of it is damaged."""
        return (
            f"Verified {self.batches_count} batches in {self.files_count} files, {self.bytes_count} bytes: "
            f"{self.damaged_count} damaged"
        )


def stretches_of(path: str) -> Iterator[Stretch]:
    """Yield all of one segment's log. Raises DumpError if it cannot be read."""
    try:
        segment, size = _opened(path)
        position, next_offset = 0, segment.base_offset
        while position < size:
            try:
                for batch in stored_batches(segment, position, size):
                    extent, reason = batch.extent, None
                    try:
                        check_batch(segment, batch, next_offset)
                    except CorruptSegmentError as damage:
                        reason = damage.reason
                    else:
                        next_offset = extent.last_offset + 1
                    position = extent.end
                    yield Stretch(
                        path, extent.position, extent.end, extent.base_offset, extent.last_offset + 1, True, reason
                    )
            except CorruptSegmentError as damage:
                # Only the index may contain the position of the next batch.
                position = _next_indexed_position(path, damage.position, size)
                yield Stretch(path, damage.position, position, next_offset, next_offset, False, damage.reason)
    except OSError as error:
        raise DumpError(f"{path}: {error.strerror}") from None


def _opened(path: str) -> tuple[Segment, int]:
    name = parse_segment_file(os.path.basename(path))
    assert name is not None
    size = os.stat(path).st_size
    segment = Segment(
        OsFiles(),
        os.path.dirname(path),
        name.base_offset,
        now_ms=0,
        index_interval_bytes=0,
        index_size_max=0,
        size=size,
    )
    segment.read_from(path)
    return segment, size


def _next_indexed_position(path: str, position: int, size: int) -> int:
    """Return the next batch position after `position` in the index; the end of the file without an entry."""
    try:
        entries = offset_index_entries(beside(path, OFFSET_INDEX))
    except DumpError:
        return size
    return min((entry.position for entry in entries if position < entry.position < size), default=size)


@contextmanager
def progress(size: int) -> Iterator[Callable[[str, int], None]]:
    """Return a function that shows the current file and the checked part of `size` bytes, only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda path, bytes_done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size)
        yield lambda path, bytes_done: bar.update(task, description=path, completed=bytes_done)
