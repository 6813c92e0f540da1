"""One segment of a log: a run of batches in a file, with its three indexes.

Owns the files that share one base offset. Must not know the other segments, producers, leader epochs or who may read
how far: `log` decides what is appended, `log_reader` what is served.

Invariants:
- `size` never exceeds what was written; it grows after the bytes are in the page cache and before the index entry.
- Bytes below `size` never change until `truncate_to`. So a reader in another thread needs no lock.
- A failed append leaves `size` and both indexes unchanged, and truncates the file if the disk allows. Otherwise the
  bytes behind `size` are cut off before the next append and before the segment is sealed.
- Descriptors and maps are opened at the first use; `release` may close them at any time.
"""

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from base.file_slice import FileSlice
from protocol.records.batch import MAX_TIMESTAMP
from storage.batches.stored_batch import Extent, extent_at, timestamp_at
from storage.disk.files import Buffer, Files, OpenFile
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.offset_index import OffsetPosition
from storage.segments.segment_files import SegmentFiles
from storage.segments.time_index import NO_TIMESTAMP, TimestampOffset

RELATIVE_OFFSET_MAX: Final = 2**31 - 1

_new_tuple = tuple.__new__  # builds a named tuple in half the time that calling its class takes

_WALK_CHUNK_SIZE: Final = 4096
_BEFORE_ALL_TIMES: Final = (-1 << 63) - 1


# A read that must not wait checks samples, this far apart, if it is at least this large (see `_probe`).
PROBED_READ_SIZE = 256 << 10
PROBE_STEP = 128 << 10


class CleanedSegment(NamedTuple):
    """One new segment, in `.cleaned` files, and the base offsets of those that it replaces."""

    base_offset: int
    replaced: Sequence[int]
    size: int
    offset_index_size: int
    time_index_size: int


class NotInMemoryError(Exception):
    """The bytes are not in the page cache, and the caller does not wait for the disk."""


class CorruptSegmentError(Exception):
    """Bytes of a log file that cannot be a batch, with path, position and reason."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, position, reason)  # unformatted, so that it can be pickled in another process
        self.path = path
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.reason}"


class RebuiltEntries(NamedTuple):
    """What a run of batches adds to the indexes of its segment, and the state of their bookkeeping after it.

    `first_timestamp_ms` is None unless the run begins the segment.
    """

    first_timestamp_ms: int | None
    largest: TimestampOffset
    positions: Sequence[OffsetPosition]
    timestamps: Sequence[TimestampOffset]
    bytes_before_index_entry: int


class Segment:
    """The log file of a segment and its indexes.

    Only the last segment of a log is appended to, by one thread; any thread reads.
    """

    __slots__ = (
        "_age_ms_if_damaged",
        "_age_ms_max",
        "_bytes_since_index_entry",
        "_file",
        "_files",
        "_first_timestamp_ms",
        "_has_tail",
        "_largest",
        "_last_offset_max",
        "_roll_jitter_ms",
        "_size_max",
        "_swept_size",
        "_used",
        "_writeback_position",
        "_young_until_ms",
        "base_offset",
        "created_ms",
        "index_interval_bytes",
        "offset_index",
        "on_disk",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        index_interval_bytes: int,
        index_size_max: int,
        roll_jitter_ms: int = 0,
        size: int = 0,
        offset_index_size: int = 0,
        time_index_size: int = 0,
        stage: str = "",
    ) -> None:
        """The sizes are the present sizes of the files in bytes. Nothing is opened or created here.

        `stage` is the additional suffix of the file names of a segment that is not in service yet.
        """
        self._files = files
        self._file: OpenFile | None = None
        self._used = False  # by anything but an append, which changes `size`
        self._swept_size = size
        self._has_tail = False  # the file may hold bytes behind `size` that a failed append has left
        self._writeback_position = size
        self._first_timestamp_ms: int | None = None
        self._age_ms_if_damaged: int | None = None
        self._largest: TimestampOffset | None = None if size else TimestampOffset(NO_TIMESTAMP, base_offset)
        self._size_max = self._age_ms_max = 0
        self._young_until_ms = _BEFORE_ALL_TIMES  # batches up to this time are not too old; a cache
        self.base_offset = base_offset
        self._bytes_since_index_entry: int
        self._last_offset_max: int
        self._begin_indexes()
        self.size = size
        self.created_ms = now_ms
        self.index_interval_bytes = index_interval_bytes
        self._roll_jitter_ms = roll_jitter_ms
        self.on_disk = on_disk = SegmentFiles(
            files,
            directory,
            base_offset,
            stage,
            index_size_max=index_size_max,
            offset_index_size=offset_index_size,
            time_index_size=time_index_size,
        )
        self.offset_index = on_disk.offset_index
        self.time_index = on_disk.time_index
        self.transaction_index = on_disk.transaction_index

    @property
    def path(self) -> str:
        return self.on_disk.log_path

    def create(self, *, preallocate_size: int = 0) -> None:
        """Create the log file, empty or as a sparse file of `preallocate_size` bytes. Raises OSError."""
        self._file = self.on_disk.create_log(preallocate_size)
        self.transaction_index.begin_empty()

    # Appending

    def append(
        self,
        records: Buffer,
        last_offset: int,
        max_timestamp_ms: int,
        max_timestamp_offset: int,
        now_ms: int,
    ) -> bool:
        """Append one or more whole batches; return False if they need a new segment (see `set_limits`).

        An empty segment accepts any batch whose offsets fit into its index. If this returns False or raises, nothing
        was appended.

        Args:
            last_offset: of the last batch.
            max_timestamp_ms: the greatest timestamp of the batches.
            max_timestamp_offset: the last offset of the batch with that timestamp.

        Raises:
            OSError: the write failed.
            CorruptSegmentError, CorruptIndexError: damage hides the greatest timestamp of the segment.
        """
        position = self.size
        size = len(records)
        end = position + size
        if (
            last_offset > self._last_offset_max or end > self._size_max or max_timestamp_ms > self._young_until_ms
        ) and self._demands_new_segment(last_offset, end, max_timestamp_ms, now_ms):
            if not self._has_tail:
                return False
            self._cut_tail()
            return self.append(records, last_offset, max_timestamp_ms, max_timestamp_offset, now_ms)
        file = self._file or self._open()
        try:
            written = self._files.write(file, records, position)
            if written != size:
                self._files.write_all(file, memoryview(records)[written:], position + written)
            if not position:
                self._first_timestamp_ms = max_timestamp_ms
            if max_timestamp_ms > (self._largest or self.largest())[0]:
                self._largest = _new_tuple(TimestampOffset, (max_timestamp_ms, max_timestamp_offset))
            if self._bytes_since_index_entry > self.index_interval_bytes:
                self._add_index_entries(last_offset, position)
                self._bytes_since_index_entry = 0
        except (OSError, CorruptSegmentError, CorruptIndexError):
            self._undo_append(file, position)
            raise
        self.size = end
        self._bytes_since_index_entry += size
        return True

    def set_roll_jitter(self, roll_jitter_ms: int) -> None:
        """Lower the age at which `append` demands a new segment, so that logs do not roll at the same time."""
        self._roll_jitter_ms = roll_jitter_ms
        self._young_until_ms = _BEFORE_ALL_TIMES

    def set_limits(self, *, size_max: int, age_ms_max: int, index_interval_bytes: int) -> None:
        """Set when `append` demands a new segment, and adds index entries.

        The age is by timestamps, or by the clock if there are none.
        """
        self.index_interval_bytes = index_interval_bytes
        self._size_max = size_max
        self._age_ms_max = age_ms_max
        self._young_until_ms = _BEFORE_ALL_TIMES

    def _demands_new_segment(self, last_offset: int, end: int, max_timestamp_ms: int, now_ms: int) -> bool:
        """Return whether a batch that would end at position `end` does not belong in this segment."""
        if last_offset > self._last_offset_max:
            return True
        return self.size > 0 and (end > self._size_max or self._is_old(max_timestamp_ms, now_ms))

    def _is_old(self, max_timestamp_ms: int, now_ms: int) -> bool:
        age_ms_max = self._age_ms_max - self._roll_jitter_ms
        if self.first_timestamp_ms < 0:
            return now_ms - self.created_ms > age_ms_max
        self._young_until_ms = self.first_timestamp_ms + age_ms_max
        return max_timestamp_ms > self._young_until_ms

    def _begin_indexes(self) -> None:
        """Note that the indexes have room, and that the next batch needs no entry."""
        self._bytes_since_index_entry = 0
        self._last_offset_max = self.base_offset + RELATIVE_OFFSET_MAX  # -1 once an index is full

    def _forget_timestamps(self) -> None:
        """Forget the timestamps; they are read from the file when they are needed."""
        self._largest = None if self.size else TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._age_ms_if_damaged = None
        self._first_timestamp_ms = None
        self._young_until_ms = _BEFORE_ALL_TIMES

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        count = self.offset_index.count
        self.offset_index.append(last_offset, position)
        try:
            self.time_index.append_if_later(*self.largest())
        except (OSError, CorruptIndexError):
            self.offset_index.truncate(count)
            raise
        self._note_full_index()

    def _note_full_index(self) -> None:
        """Demand a new segment if an index is full."""
        if self.offset_index.is_full or self.time_index.is_full:
            self._last_offset_max = -1

    def _undo_append(self, file: OpenFile, position: int) -> None:
        try:
            self._files.truncate(file, position)
        except OSError:
            self._has_tail = True
            self._last_offset_max = -1  # makes the next append cut the tail
        self._forget_timestamps()

    def _cut_tail(self) -> None:
        if self._has_tail:
            self._files.truncate(self._file or self._open(), self.size)
            self._has_tail = False
            self._last_offset_max = self.base_offset + RELATIVE_OFFSET_MAX
            self._note_full_index()

    def append_unindexed(self, records: Buffer) -> None:
        """Append whole batches without index entries; `add_recovered_batch` adds these. Raises OSError."""
        self._files.write_all(self._file or self._open(), records, self.size)
        self.size += len(records)

    def add_recovered_batch(self, extent: Extent, max_timestamp_ms: int) -> None:
        """Add index entries for a batch that is in the file, by the same rule as `append`."""
        if extent.position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.largest().timestamp_ms:
            self._largest = TimestampOffset(max_timestamp_ms, extent.last_offset)
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self._add_index_entries(extent.last_offset, extent.position)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += extent.size

    def bytes_before_index_entry(self) -> int:
        """Return how many bytes of batches may follow before the next index entry, by the rule of `append`."""
        return self.index_interval_bytes - self._bytes_since_index_entry

    def add_recovered_batches(self, rebuilt: RebuiltEntries) -> None:
        """Add the index entries of a run of batches, which the caller computed by the rule of `append`."""
        if rebuilt.first_timestamp_ms is not None:
            self._first_timestamp_ms = rebuilt.first_timestamp_ms
        self._largest = rebuilt.largest
        self._bytes_since_index_entry = self.index_interval_bytes - rebuilt.bytes_before_index_entry
        if rebuilt.positions:
            self.offset_index.extend(rebuilt.positions)
            self.time_index.extend_if_later(rebuilt.timestamps)
            self._note_full_index()

    def reset_indexes(self) -> None:
        """Empty all three indexes, before a rebuild with `add_recovered_batch` or `add_recovered_batches`."""
        self.on_disk.reset_indexes()
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._begin_indexes()

    # Reading

    @property
    def first_timestamp_ms(self) -> int:
        """The greatest timestamp of the first batch; NO_TIMESTAMP if it has none or there is no batch."""
        timestamp_ms = self._first_timestamp_ms
        if timestamp_ms is None:
            size = self.size
            timestamp_ms = self._read_first_timestamp() if size else NO_TIMESTAMP
            if self._first_timestamp_ms is None and self.size == size:  # see `largest`
                self._first_timestamp_ms = timestamp_ms
        return timestamp_ms

    def largest(self) -> TimestampOffset:
        """Return the greatest timestamp and the last offset of its batch; NO_TIMESTAMP if no record has one."""
        largest = self._largest
        if largest is None:
            size = self.size
            largest = self._find_largest()
            # Any thread may call this: the result is not kept if an append or a truncation changed the segment since.
            if self._largest is None and self.size == size:
                self._largest = largest
        return largest

    def age_timestamp_ms(self, on_damage: Callable[[CorruptSegmentError | CorruptIndexError], None]) -> int:
        """Return the time by which retention judges the segment, in ms.

        This is the greatest timestamp, or the modification time of the file if no record has one. If damage hides the
        greatest timestamp, `on_damage` is called once, and the result is the modification time, as in Kafka, or the
        last entry of the time index if that is later. Raises OSError, SegmentGoneError.
        """
        if self._age_ms_if_damaged is not None:
            return self._age_ms_if_damaged
        size = self.size
        try:
            timestamp_ms = self.largest().timestamp_ms
        except (CorruptSegmentError, CorruptIndexError) as damage:
            if self.size != size:  # a truncation in another thread has cut off what was being read
                return self.age_timestamp_ms(on_damage)
            on_damage(damage)
            self._age_ms_if_damaged = max(self.on_disk.modified_ms, self.on_disk.last_indexed_timestamp())
            return self._age_ms_if_damaged
        return timestamp_ms if timestamp_ms >= 0 else self.on_disk.modified_ms

    def find(self, offset: int, *, wait: bool = True, uses_index: bool = True) -> Extent | None:
        """Return the first batch whose last offset is at or above `offset`; None if the segment has none."""
        start = self.lookup(offset).position if uses_index else 0
        for extent in self.walk(start, wait=wait):
            if extent.last_offset >= offset:
                return extent
        return None

    def next_offset(self) -> int:
        """Return the offset after the last batch, the base offset if there is none. Reads what follows the index.

        Raises CorruptIndexError, CorruptSegmentError.
        """
        next_offset = self.base_offset
        for extent in self.walk(self.lookup(RELATIVE_OFFSET_MAX + self.base_offset).position):
            next_offset = extent.last_offset + 1
        return next_offset

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the index entry from which to scan for an offset.

        Raises CorruptIndexError if the log file has no such position.
        """
        found = self.offset_index.lookup(offset)
        if found.position and not 0 < found.position < self.size:
            raise CorruptIndexError(
                f"{self.offset_index.path} sends offset {found.offset} to position {found.position} of {self.size}"
            )
        return found

    def walk(self, position: int, *, wait: bool = True, end: int | None = None) -> Iterator[Extent]:
        """Yield the batches from `position`, which must be the start of one, to the end. Reads only the headers.

        Raises CorruptSegmentError at bytes that are no batch, or at a batch that extends past the end.
        """
        end = self.size if end is None else end
        chunk: bytes | bytearray = b""
        chunk_position = position
        while position < end:
            try:
                extent = extent_at(chunk, position - chunk_position, position)
            except struct.error:
                if position == chunk_position and chunk:
                    raise CorruptSegmentError(self.path, position, f"{end - position} bytes are no batch") from None
                chunk = self._read(position, min(_WALK_CHUNK_SIZE, end - position), wait=wait)
                chunk_position = position
                continue
            except ValueError as error:
                raise CorruptSegmentError(self.path, position, str(error)) from None
            if extent.end > end:
                raise CorruptSegmentError(
                    self.path, position, f"a batch of {extent.size} bytes where {end - position} are left"
                )
            yield extent
            position = extent.end

    def read(self, position: int, size: int, *, wait: bool = True) -> memoryview:
        """Return exactly `size` bytes, which must lie below the segment's size, with one system call.

        Raises NotInMemoryError unless `wait`; CorruptSegmentError if the file has become shorter.
        """
        return memoryview(self._read(position, size, wait=wait))

    def slice(self, position: int, size: int) -> FileSlice:
        """Return the range as a slice of the file, without reading it. Raises NotInMemoryError."""
        file = self._file or self._open()
        self._used = True
        _probe(self._files, file, position, size)
        return FileSlice(self._files, file, position, size)

    def _read(self, position: int, size: int, *, wait: bool) -> bytes | bytearray:
        file = self._file or self._open()
        self._used = True
        if not wait and size < PROBED_READ_SIZE:
            buffer = bytearray(size)
            if self._files.read_cached_into(file, buffer, position) != size:
                raise NotInMemoryError
            return buffer
        if not wait:
            _probe(self._files, file, position, size)
        content = self._files.read(file, size, position)
        if len(content) != size:
            raise CorruptSegmentError(self.path, position, f"the file ends {size - len(content)} bytes too early")
        return content

    def _read_first_timestamp(self) -> int:
        for extent in self.walk(0):
            return self.max_timestamp_of(extent)
        return NO_TIMESTAMP

    def max_timestamp_of(self, extent: Extent) -> int:
        """Return the greatest timestamp of a batch; NO_TIMESTAMP for messages of magic 0, which have none."""
        position = extent.timestamp_position
        if position is None:
            return NO_TIMESTAMP
        return timestamp_at(self._read(position, MAX_TIMESTAMP.size, wait=True), 0)

    def _find_largest(self) -> TimestampOffset:
        # The index has the greatest timestamp up to its last entry. A sealed segment has an entry for its greatest
        # timestamp, so this walks only the tail of the last segment of a log, about index.interval.bytes.
        largest = self.time_index.last()
        for extent in self.walk(self.lookup(largest.offset).position):
            timestamp_ms = self.max_timestamp_of(extent)
            if timestamp_ms > largest.timestamp_ms:
                largest = TimestampOffset(timestamp_ms, extent.last_offset)
        return largest

    # Truncating, sealing, syncing, closing

    def truncate_to(self, offset: int) -> int | None:
        """Remove the batch that holds `offset` and all after it; return its base offset if that is below `offset`."""
        extent = self.find(offset)
        if extent is None:
            return None
        self._cut_file(extent.position)
        self.on_disk.truncate_indexes(offset)
        return extent.base_offset if extent.base_offset < offset else None

    def _cut_file(self, position: int) -> None:
        self.size = position  # first, so that a walk in another thread does not read behind the new end of the file
        self._files.truncate(self._file or self._open(), position)
        self._has_tail = False
        self._forget_timestamps()
        self._begin_indexes()
        self._writeback_position = min(self._writeback_position, position)

    def cut_damage(self, position: int) -> None:
        """Cut the log file durably where a scan found damage. The scan added no index entries for what is behind it."""
        self._cut_file(position)
        self.sync_cut()

    def sync_cut(self) -> None:
        """Make a cut of the log file durable: what it has removed must not return before what is appended next."""
        self._files.sync(self._file or self._open())

    def seal(self) -> None:
        """Cut every file to its final length, because the segment gets no more batches or the log closes.

        If an index file is damaged, both are emptied, and the next start rebuilds them.
        """
        self._cut_tail()
        try:
            # If damage hides the greatest timestamp, the time index ends earlier. A lookup reports the damage.
            with contextlib.suppress(CorruptSegmentError):
                self.time_index.append_if_later(*self.largest())
            self.offset_index.seal()
            self.time_index.seal()
        except CorruptIndexError:
            self.offset_index.reset()
            self.time_index.reset()

    def cut_preallocation(self) -> None:
        self._files.truncate(self._file or self._open(), self.size)

    def sync(self) -> None:
        """Sync the log file and the indexes. Any thread."""
        self._files.sync(self._file or self._open())
        self.on_disk.sync_indexes()

    def start_writeback(self) -> None:
        """Start write-back of what was appended since the last call. Any thread."""
        start, end = self._writeback_position, self.size
        file = self._file  # read once: the thread that owns the log may release it
        if end > start and file is not None:
            self._files.start_writeback(file, start, end - start)
            self._writeback_position = end

    def release(self) -> None:
        """Close the file and the maps; a thread that uses one keeps it open until it is done."""
        self._file = None
        self.on_disk.release_indexes()

    def finish_writeback(self) -> None:
        """Wait for the write-back of what was appended, if the file is open. Any thread."""
        file = self._file
        if file is not None:
            self._files.finish_writeback(file)

    def was_idle(self) -> bool:
        """Return whether the segment was neither read nor appended to since the last call."""
        is_idle = not self._used and self.size == self._swept_size
        self._used = False
        self._swept_size = self.size
        return is_idle

    def preload(self) -> None:
        """Open all files, so that readers in other threads need not open files that are about to be renamed."""
        self._file = self._file or self._open()
        self.on_disk.preload_indexes()
        self._used = True

    def read_from(self, path: str) -> None:
        """Use `path` as the log file, which does not have its final name yet."""
        self._file = self._files.open_for_reading(path)

    def _open(self) -> OpenFile:
        file = self._file = self.on_disk.open_log()
        self._used = True
        return file


def _probe(files: Files, file: OpenFile, position: int, size: int) -> None:
    """Raises NotInMemoryError unless samples of a large range are in memory.

    A read without waiting needs a zeroed buffer, and zeroing a megabyte costs as much as reading it. The kernel
    loads and evicts neighbouring pages together, so samples are representative; if they are not, one read waits
    for the disk.
    """
    sample = bytearray(1)
    for offset in (*range(0, size, PROBE_STEP), size - 1):
        if not files.read_cached_into(file, sample, position + offset):
            raise NotInMemoryError


def entries_of_run(segment: Segment, batches: Iterable[tuple[Extent, int]]) -> RebuiltEntries:
    """Return the index entries of consecutive batches at the end of `segment`, each given with its greatest timestamp.

    They are those that `add_recovered_batch` adds for each batch.
    """
    largest, bytes_left = segment.largest(), segment.bytes_before_index_entry()
    first_timestamp_ms = None
    positions: list[OffsetPosition] = []
    timestamps: list[TimestampOffset] = []
    for extent, max_timestamp_ms in batches:
        if extent.position == 0:
            first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > largest.timestamp_ms:
            largest = TimestampOffset(max_timestamp_ms, extent.last_offset)
        if bytes_left < 0:
            positions.append(OffsetPosition(extent.last_offset, extent.position))
            timestamps.append(largest)
            bytes_left = segment.index_interval_bytes
        bytes_left -= extent.size
    return RebuiltEntries(first_timestamp_ms, largest, positions, timestamps, bytes_left)
