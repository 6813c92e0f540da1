"""Cleaning one log: keeps the newest record of each key, in new segments that replace the old ones.

Owns the work on files, from reading the dirty part to writing the new segments, whose files end in `.cleaned`. `clean`
is a plain function of a picklable job, because it runs in a separate process: hashing and copying would block the event
loop. It only reads files of the log and ignores appends, truncations and deletions during the pass. Must not know which
log is cleaned next, nor how the new segments replace the old ones: `log_cleaning` does.

A pass reads the segments twice:

              base of a segment    first dirty offset             end_offset
    log       | clean ............ | dirty ...................... | not cleaned ...
    1st walk                       | maps key -> newest record -> |
    2nd walk  | copies the records that no mapped record replaces |

Invariants:
- Offsets, keys, values, headers and timestamps of kept records do not change, nor does their order. An unchanged batch
  is copied byte for byte.
- A batch of up to 100 MiB of plain records is opened whole, a larger one piece by piece (`large_batches`).
- The files and names of new segments are synced when `clean` returns, and removed when it raises. So is all that
  justifies the removal of a record: the newer record of its key, and the marker of the transaction of either.
- Nothing that this module writes replaces a segment: the thread that owns the log renames the files
  (`LogDisposal.swap_in`), because the log may have been truncated since the job was made. A start after a crash removes
  `.cleaned` files.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from protocol.errors import Malformed
from protocol.records.batch import (
    DELETE_HORIZON_BIT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    plain_records,
)
from protocol.records.builder import assemble, rebuild_batch
from protocol.records.compression import OpensTooFar, compress
from protocol.records.control import TransactionMarker
from protocol.records.entries import entry_records
from protocol.records.legacy import build_message_set, read_message_header
from protocol.records.plain_records import INT64_MAX, copy_kept, first_timestamp_delta, read_keys
from storage.batches.stored_batch import Extent, StoredBatch, extent_at, timestamp_at
from storage.batches.validation import SHARED_PLAIN_SIZE_MAX
from storage.cleaning.cleaning_job import CleaningJob, CleaningResult, unstage
from storage.cleaning.compaction import (
    SourceSegment,
    Transactions,
    groups_of,
    must_keep_for_producer,
)
from storage.cleaning.dirty_records import DEAD, LIVE, TOMBSTONE, DirtyRecords
from storage.cleaning.offset_map import ENTRY_SIZE
from storage.disk import names
from storage.disk.files import Files, OsFiles
from storage.producers.producer_state import marker_in
from storage.recovery.recovery import stored_batches
from storage.segments.segment import CleanedSegment, Segment, entries_of_run

_BUFFER_SIZE_MIN: Final = 4096
_TOMBSTONE: Final = bytes([TOMBSTONE])
_DEAD: Final = bytes([DEAD])
_IS_KEPT: Final = bytes.maketrans(bytes([LIVE, DEAD, TOMBSTONE]), bytes([True, False, True]))


def clean(job: CleaningJob, files: Files | None = None) -> CleaningResult:
    """Clean a log once. Raises OSError, CorruptSegmentError, Malformed; then the new files have been removed."""
    return _Pass(job, files or OsFiles()).run()


class Throttle:
    """Sleeps to keep the average rate of a whole job at or below a limit in bytes per second."""

    __slots__ = ("_bytes_per_second_max", "_files", "_started_s", "size")

    def __init__(self, bytes_per_second_max: float, files: Files) -> None:
        self._bytes_per_second_max = bytes_per_second_max
        self._files = files
        self._started_s = files.monotonic_s()
        self.size = 0

    def passed(self, size: int) -> None:
        self.size += size
        ahead = self.size / self._bytes_per_second_max - (self._files.monotonic_s() - self._started_s)
        if ahead > 0.01:
            self._files.sleep(ahead)


class _Pass:
    def __init__(self, job: CleaningJob, files: Files) -> None:
        self._job = job
        self._files = files
        self._throttle = Throttle(job.bytes_per_second_max, files)
        first_dirty = max(job.first_dirty_offset, job.segments[0].base_offset)
        first_mapped = max(source.base_offset for source in job.segments if source.base_offset <= first_dirty)
        # Includes the records before the dirty part that are in its first batch: they may be counted too.
        offset_count = job.segments[-1].next_offset - first_mapped
        self._dirty = DirtyRecords(job.map_memory, job.map_load_factor, offset_count)
        # The number of the next dirty record of the second walk. It begins below 0 if the dirty part begins within a
        # batch.
        self._next_number = 0
        self._result = CleaningResult(end_offset=job.first_dirty_offset)
        # Batches of old formats have no delete horizon. Their tombstones are removed from segments that were modified
        # delete.retention.ms before the last clean segment.
        clean_before = [s.modified_ms for s in job.segments if s.base_offset < job.first_dirty_offset]
        self._legacy_horizon_ms = clean_before[-1] - job.delete_retention_ms if clean_before else 0

    def run(self) -> CleaningResult:
        job, result = self._job, self._result
        unstage(self._files, job.directory)
        started_s = self._files.monotonic_s()
        self._fill_map()
        offsets = self._dirty.offsets
        result.map_utilization = offsets.count / (job.map_memory // ENTRY_SIZE * job.map_load_factor)
        mapped_s = self._files.monotonic_s()
        result.map_seconds = mapped_s - started_s
        try:
            self._copy()
        except BaseException:
            unstage(self._files, job.directory)
            raise
        result.map_probes = offsets.probes
        result.records_without_key = self._dirty.without_key
        result.io_size = self._throttle.size
        result.copy_seconds = self._files.monotonic_s() - mapped_s
        return result

    # First walk: the newest record of each key

    def _fill_map(self) -> None:
        job = self._job
        transactions = Transactions()
        # A transaction that ended before the dirty part would make all data of its producer count as aborted.
        transactions.add_aborted(each for each in job.aborted if each.last_offset >= job.first_dirty_offset)
        for source in job.segments:
            if source.next_offset <= job.first_dirty_offset:
                continue
            for batch in self._batches(source):
                if batch.extent.last_offset < job.first_dirty_offset:
                    continue
                if not self._map(batch, transactions):
                    return
                self._result.end_offset = batch.extent.last_offset + 1
        # Not the end of the last batch: a gap behind it would make the next pass due again and again.
        self._result.end_offset = job.segments[-1].next_offset

    def _map(self, batch: StoredBatch, transactions: Transactions) -> bool:
        """Map the dirty records of a batch; return whether the map had room for all of them."""
        header, dirty = batch.header, self._dirty
        if header is not None and header.is_control:
            transactions.is_marker_useless(header, _marker(batch, header))
            return True
        if header is not None and (transactions.is_data_useless(header) or header.records_count == 0):
            dirty.skip(header.records_count)
            return True
        try:
            keys, tombstones = _keys_in(batch)
        except OpensTooFar:
            return self._map_in_chunks(batch)
        first_dirty = self._job.first_dirty_offset
        known = 0
        if batch.extent.base_offset < first_dirty or header is None:
            known = sum(offset < first_dirty for offset in _offsets_in(batch))
            self._next_number -= known
        if known:
            keys = keys[known:]
            tombstones = [place - known for place in tombstones if place >= known]
        added = dirty.add(keys, tombstones)
        if added == len(keys):
            return True
        if added:
            self._result.end_offset = _offsets_in(batch)[known + added - 1] + 1
        return False

    def _map_in_chunks(self, batch: StoredBatch) -> bool:
        from storage.batches.large_batches import keys_in_chunks  # on demand: few batches are so large

        for keys, tombstones, offsets in keys_in_chunks(batch.view):
            known = sum(offset < self._job.first_dirty_offset for offset in offsets)
            self._next_number -= known
            dirty = keys[known:]
            added = self._dirty.add(dirty, [place - known for place in tombstones if place >= known])
            if added:
                self._result.end_offset = offsets[known + added - 1] + 1
            if added < len(dirty):
                return False
        return True

    # Second walk: copy the records to keep

    def _copy(self) -> None:
        job = self._job
        sources = [source for source in job.segments if source.base_offset < self._result.end_offset]
        transactions = Transactions()
        transactions.add_aborted(job.aborted)
        for source in sources:
            # A newer record must be durable before the older one that it replaces is removed.
            if source.next_offset > job.first_dirty_offset:
                self._sync_log_file(source.base_offset)
        for group in groups_of(sources, job.segment_bytes, job.segment_index_bytes):
            self._result.segments.append(self._clean_group(group, transactions))
        if transactions.has_data_before_marker:
            # So must be the markers that say which records of these transactions count.
            for base_offset in job.later_segments:
                self._sync_log_file(base_offset)
        self._files.sync_directory(job.directory)

    def _sync_log_file(self, base_offset: int) -> None:
        self._files.sync_path(f"{self._job.directory}/{names.segment_file(base_offset, names.LOG)}")

    def _clean_group(self, group: Sequence[SourceSegment], transactions: Transactions) -> CleanedSegment:
        job = self._job
        cleaned = Segment(
            self._files,
            job.directory,
            group[0].base_offset,
            now_ms=job.now_ms,
            index_interval_bytes=job.index_interval_bytes,
            index_size_max=job.segment_index_bytes,
            stage=names.CLEANED,
        )
        cleaned.create()
        transactions.begin_segment()
        buffer_size = max(job.buffer_size, _BUFFER_SIZE_MIN)
        pending = bytearray()
        for source in group:
            for batch in self._batches(source):
                kept = self._kept(batch, source, transactions)
                if kept:
                    self._result.bytes_kept += len(kept)
                    pending += kept
                    if len(pending) >= buffer_size:
                        self._append(cleaned, pending)
                        pending = bytearray()
        self._append(cleaned, pending)
        for aborted in transactions.kept_aborted:
            cleaned.transaction_index.append(aborted)
        cleaned.seal()
        cleaned.sync()
        cleaned.on_disk.set_modified_ms(group[-1].modified_ms)
        return CleanedSegment(
            cleaned.base_offset,
            [source.base_offset for source in group],
            cleaned.size,
            cleaned.offset_index.size,
            cleaned.time_index.size,
        )

    def _append(self, cleaned: Segment, content: bytearray) -> None:
        position = cleaned.size
        cleaned.append_unindexed(content)
        cleaned.add_recovered_batches(entries_of_run(cleaned, _with_timestamps(content, position)))
        cleaned.start_writeback()  # leaves less for the sync, and fewer dirty pages that delay appends to other logs
        self._throttle.passed(len(content))

    def _kept(self, batch: StoredBatch, source: SourceSegment, transactions: Transactions) -> bytes | memoryview:
        """Return what is kept of a batch: all of it, a rebuilt batch, or nothing."""
        header = batch.header
        if header is None:
            return self._kept_legacy(batch, source)
        if header.is_control:
            return self._kept_marker(batch, header, transactions)
        count = header.records_count
        first = self._numbered(batch, count)
        is_useless = transactions.is_data_useless(header)
        self._result.records_read += count
        if is_useless or count == 0:
            return self._emptied(header)
        if header.base_offset >= self._result.end_offset:
            self._result.records_kept += count
            return batch.view
        return self._kept_records(batch, header, self._states(batch, count, first))

    def _numbered(self, batch: StoredBatch, count: int) -> int | None:
        """Return the number of the batch's first record, and count its records; None before the dirty part."""
        if batch.extent.last_offset < self._job.first_dirty_offset:
            return None
        first = self._next_number
        self._next_number += count
        return first

    def _states(self, batch: StoredBatch, count: int, first: int | None) -> bytes:
        """Return one state of `dirty_records` for each record of a batch."""
        if first is None or batch.extent.base_offset < self._job.first_dirty_offset:
            try:
                return self._dirty.look_up(*_keys_in(batch), first)
            except OpensTooFar:
                return self._states_in_chunks(batch, first)
        return self._dirty.states_of(first, count)

    def _states_in_chunks(self, batch: StoredBatch, first: int | None) -> bytes:
        from storage.batches.large_batches import keys_in_chunks

        states = bytearray()
        for keys, tombstones, _ in keys_in_chunks(batch.view):
            states += self._dirty.look_up(keys, tombstones, None if first is None else first + len(states))
        return bytes(states)

    def _kept_records(self, batch: StoredBatch, header: BatchHeader, states: bytes) -> bytes | memoryview:
        job, horizon_ms = self._job, header.delete_horizon_ms
        if horizon_ms is not None and job.now_ms >= horizon_ms:
            states = states.replace(_TOMBSTONE, _DEAD)
        count = len(states) - states.count(DEAD)
        self._result.records_kept += count
        if not count:
            return self._emptied(header)
        if horizon_ms is None and TOMBSTONE in states:
            horizon_ms = job.now_ms + job.delete_retention_ms
        if count == len(states) and horizon_ms == header.delete_horizon_ms:
            return batch.view
        return _rebuilt(batch, header, states.translate(_IS_KEPT), horizon_ms)

    def _emptied(self, header: BatchHeader) -> bytes:
        must_keep = header.producer_id > NO_PRODUCER_ID and must_keep_for_producer(header, self._job.producers)
        return rebuild_batch(header, []) if must_keep else b""

    def _kept_marker(self, batch: StoredBatch, header: BatchHeader, transactions: Transactions) -> bytes | memoryview:
        is_useless = transactions.is_marker_useless(header, _marker(batch, header))
        horizon_ms = header.delete_horizon_ms
        is_past_horizon = horizon_ms is not None and self._job.now_ms >= horizon_ms
        if is_useless and is_past_horizon:
            return self._emptied(header)
        if header.records_count == 0:
            return batch.view if must_keep_for_producer(header, self._job.producers) else b""
        self._result.records_kept += header.records_count
        if not is_useless or horizon_ms is not None:
            return batch.view
        records = list(entry_records(batch.view))
        return rebuild_batch(header, records, delete_horizon_ms=self._job.now_ms + self._job.delete_retention_ms)

    def _kept_legacy(self, batch: StoredBatch, source: SourceSegment) -> bytes | memoryview:
        header = read_message_header(batch.view)
        records = list(entry_records(batch.view))
        first = self._numbered(batch, len(records))
        self._result.records_read += len(records)
        states = self._dirty.look_up(*_keys_in(batch), first)
        if source.modified_ms <= self._legacy_horizon_ms:
            states = states.replace(_TOMBSTONE, _DEAD)
        kept = [record for record, state in zip(records, states, strict=True) if state != DEAD]
        self._result.records_kept += len(kept)
        if len(kept) == len(records):
            return batch.view
        return build_message_set(
            kept, magic=header.magic, compression=header.compression, timestamp_type=header.timestamp_type
        )

    def _batches(self, source: SourceSegment) -> Iterator[StoredBatch]:
        segment = Segment(
            self._files,
            self._job.directory,
            source.base_offset,
            now_ms=self._job.now_ms,
            index_interval_bytes=self._job.index_interval_bytes,
            index_size_max=self._job.segment_index_bytes,
            size=source.size,
        )
        for batch in stored_batches(segment, 0, source.size, chunk_size=max(self._job.buffer_size, _BUFFER_SIZE_MIN)):
            self._result.bytes_read += batch.extent.size
            self._throttle.passed(batch.extent.size)
            header = batch.header
            if header is not None and (header.is_control or header.is_transactional) and not batch.is_crc_valid:
                # A flipped bit of its header or of a marker would decide on the records of other batches.
                raise Malformed(f"the CRC of the batch at offset {header.base_offset} is wrong")
            yield batch


def _with_timestamps(content: bytearray, start: int) -> Iterator[tuple[Extent, int]]:
    """Yield the extent and the greatest timestamp of each batch in `content`, which is at `start` of a log file."""
    index = 0
    while index < len(content):
        extent = extent_at(content, index, start + index)
        timestamp_position = extent.timestamp_position
        yield extent, NO_TIMESTAMP if timestamp_position is None else timestamp_at(content, timestamp_position - start)
        index += extent.size


def _rebuilt(batch: StoredBatch, header: BatchHeader, is_kept: bytes, horizon_ms: int | None) -> bytes:
    """Return the batch with only the kept records.

    The base timestamp is the delete horizon, or without a horizon the timestamp of the first kept record.
    """
    try:
        plain = _plain(batch, header)
    except OpensTooFar:
        from storage.batches.large_batches import rebuild

        return rebuild(batch.view, header, is_kept, horizon_ms)
    base_timestamp = header.base_timestamp + first_timestamp_delta(plain, is_kept)
    attributes = header.attributes
    if horizon_ms is not None:
        base_timestamp = horizon_ms
        attributes |= DELETE_HORIZON_BIT
    base_delta = base_timestamp - header.base_timestamp
    if max(abs(base_timestamp), abs(base_delta)) > INT64_MAX:
        raise Malformed(f"base timestamp {base_timestamp} in place of {header.base_timestamp} is out of range")
    content, largest_delta = copy_kept(plain, is_kept, base_delta)
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = header.base_timestamp + largest_delta
        if max_timestamp > INT64_MAX:
            raise Malformed(f"timestamp {max_timestamp} is out of range")
    return assemble(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            records_count=is_kept.count(True),
        ),
        compress(header.compression, content),
    )


def _keys_in(batch: StoredBatch) -> tuple[list[bytes | None], list[int]]:
    """Return the keys of a batch, None for a record without one, and the places of the records without a value."""
    if batch.header is not None:
        return read_keys(_plain(batch, batch.header), batch.header.records_count)
    records = list(entry_records(batch.view))
    return (
        [record.key for record in records],
        [place for place, record in enumerate(records) if record.value is None],
    )


def _offsets_in(batch: StoredBatch) -> list[int]:
    return [record.offset for record in entry_records(batch.view)]


def _plain(batch: StoredBatch, header: BatchHeader) -> bytes:
    """Return the uncompressed records.

    Raises:
        OpensTooFar: they are too large to be held.
        Malformed: the CRC is wrong: a rebuilt batch would hide that.
    """
    if not batch.is_crc_valid:
        raise Malformed(f"the CRC of the batch at offset {header.base_offset} is wrong")
    return plain_records(batch.view, 0, header, size_max=SHARED_PLAIN_SIZE_MAX)


def _marker(batch: StoredBatch, header: BatchHeader) -> TransactionMarker | None:
    return marker_in(batch.view, header)
