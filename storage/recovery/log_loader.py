"""Loads a partition directory as a stop, clean or not, left it, and repairs what has to be repaired.

Owns the order in which damage is cut and derived state is rebuilt. Must not know what happens to the log afterwards.

After a clean stop only the end of the log is checked: the last segment is walked from its last index entry to its end.
Without the clean-shutdown marker every segment from the recovery point on is scanned. Segments below it were synced and
are not read.

Invariants:
- A second load after a crash during the first one leads to the same log.
- No intact batch below the first bad byte is dropped. Whatever is dropped is reported with path, position and reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from posixpath import basename
from typing import Final
from uuid import UUID

from base.dataclass import dataclass
from config.log_config import LogConfig
from storage.disk import checkpoints, names
from storage.disk.checkpoints import EpochStart, MalformedCheckpointError
from storage.disk.files import DirectoryEntry, Files
from storage.producers.producer_snapshots import ProducerSnapshots
from storage.producers.producer_state import ProducerState
from storage.recovery import leftovers
from storage.recovery.recovery import leader_epochs_in, replay, scan_segment, stored_batches
from storage.segments.leader_epochs import LeaderEpochs
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.offset_index import OffsetIndex
from storage.segments.segment import RELATIVE_OFFSET_MAX, CorruptSegmentError, Segment
from storage.segments.segments import Segments
from storage.segments.time_index import TimeIndex

PRODUCERS_UNKNOWN: Final = "the producer state behind it is unknown"
_LOST_OFFSETS_MAX: Final = RELATIVE_OFFSET_MAX // 2
"""A segment holds at most 2^31 offsets, so a wider gap between two segments is no loss of records."""
_INDEX_ENTRY_SIZES: Final = {names.OFFSET_INDEX: OffsetIndex.ENTRY.size, names.TIME_INDEX: TimeIndex.ENTRY.size}


class LoadProgress:
    """Receives reports of a load, in the thread of the load. This base class ignores them."""

    def on_damage(self, text: str) -> None:
        """Report what was wrong and what was done about it."""

    def on_damaged_batch(self, damage: CorruptSegmentError) -> None:
        """Report a damaged batch. `on_damage` then reports what was done about it."""

    def on_bytes_scanned(self, size: int) -> None: ...

    def on_segments_left(self, count: int) -> None:
        """Report how many segments of the log are still to be scanned."""


@dataclass(slots=True)
class LoadedLog:
    """Everything that a `Log` is built from."""

    segments: Segments
    producer_state: ProducerState
    snapshots: ProducerSnapshots
    leader_epochs: LeaderEpochs
    topic_id: UUID | None
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    was_scanned: bool = False
    """Whether segments were scanned. The scan wrote their indexes, which are above `recovery_point` and not synced."""


class LogLoader:
    """Loads one directory, once."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        is_clean: bool,
        gaps_below: int,
        now_ms: int,
        progress: LoadProgress,
    ) -> None:
        """Checkpointed offsets are 0 if the checkpoint does not name the log; `gaps_below` as in `log_opening.load`."""
        self._files = files
        self._directory = directory
        self._config = config
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._is_clean = is_clean
        self._gaps_below = max(gaps_below, recovery_point)
        self._now_ms = now_ms
        self._progress = progress
        self._name = basename(directory)

    def load(self) -> LoadedLog:
        """Load the log, and repair it where needed. Raises OSError."""
        entries = leftovers.clear(
            self._files, self._directory, lambda base, size: self._segment(base, {names.LOG: size})
        )
        self._warn_unknown_files(entries)
        sizes = _segment_file_sizes(entries)
        self._remove_orphans(sizes)
        segments = [self._segment(base, sizes[base]) for base in sorted(sizes) if names.LOG in sizes[base]]
        snapshots = ProducerSnapshots(
            self._files, self._directory, [base for base in sizes if names.PRODUCER_SNAPSHOT in sizes[base]]
        )
        snapshots.delete_strays({segment.base_offset for segment in segments})
        leader_epochs, are_epochs_lost = self._open_leader_epochs()
        first_to_scan = len(segments) if self._is_clean else _floor(segments, self._recovery_point)
        if are_epochs_lost:
            self._find_leader_epochs(segments[:first_to_scan], leader_epochs)
        elif not self._is_clean and leader_epochs.entries:
            self._find_earlier_leader_epochs(segments[:first_to_scan], leader_epochs)
        if segments:
            without_index = {
                segment.base_offset
                for segment in segments[:first_to_scan]
                if _lacks_index(sizes[segment.base_offset])
                or _has_unfinished_index(segment)
                or (names.TRANSACTION_INDEX in sizes[segment.base_offset] and _has_bad_transaction_index(segment))
            }
            repair = _Repair(
                self._name,
                segments,
                snapshots,
                leader_epochs,
                self._log_start_offset,
                self._progress,
                gaps_below=self._gaps_below,
            )
            self._repair(repair, without_index, first_to_scan)
            segments, log_end_offset, producer_state = repair.segments, repair.log_end_offset, repair.producer_state
            scanned_from = repair.scanned_from
            if repair.has_removed_files:
                # After a power cut, segments that come back must not follow what is appended from now on.
                self._files.sync_directory(self._directory)
        else:
            log_end_offset, producer_state, scanned_from = self._log_start_offset, None, None
        if not segments or log_end_offset < self._log_start_offset:
            segments, log_end_offset, producer_state = self._start_anew(segments), self._log_start_offset, None
        log_start_offset = max(self._log_start_offset, segments[0].base_offset)
        leader_epochs.truncate_from_end(log_end_offset)
        leader_epochs.truncate_from_start(log_start_offset)
        snapshots.delete_outside(log_start_offset, log_end_offset)
        ordered = Segments(segments)
        recovery_point = min(log_end_offset if self._is_clean else self._recovery_point, log_end_offset)
        if log_end_offset < self._recovery_point:
            segments[-1].sync_cut()  # a truncation was interrupted before that
        if scanned_from is not None:
            recovery_point = min(recovery_point, max(scanned_from, log_start_offset))
        if producer_state is None:
            producer_state = state_at(
                log_end_offset,
                self._name,
                ordered,
                snapshots,
                log_start_offset,
                lambda damage: _on_unread_producers(self._progress, damage),
            )
        producer_state.close_transactions_below(log_start_offset)
        return LoadedLog(
            segments=ordered,
            producer_state=producer_state,
            snapshots=snapshots,
            leader_epochs=leader_epochs,
            topic_id=self._read_topic_id(),
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            was_scanned=scanned_from is not None,
        )

    def _segment(self, base_offset: int, sizes: Mapping[str, int]) -> Segment:
        segment = Segment(
            self._files,
            self._directory,
            base_offset,
            now_ms=self._now_ms,
            index_interval_bytes=self._config.index_interval_bytes,
            index_size_max=self._config.segment_index_bytes,
            size=sizes[names.LOG],
            offset_index_size=sizes.get(names.OFFSET_INDEX, 0),
            time_index_size=sizes.get(names.TIME_INDEX, 0),
        )
        if names.TRANSACTION_INDEX not in sizes:
            segment.transaction_index.begin_empty()
        return segment

    def _warn_unknown_files(self, entries: Iterable[DirectoryEntry]) -> None:
        for entry in entries:
            if entry.name not in names.PARTITION_FILES and names.parse_segment_file(entry.name) is None:
                self._progress.on_damage(f"{self._path(entry.name)} does not belong to a log, left alone")

    def _remove_orphans(self, sizes: Mapping[int, Mapping[str, int]]) -> None:
        for base_offset, suffixes in sizes.items():
            for suffix in names.INDEX_SUFFIXES:
                if suffix in suffixes and names.LOG not in suffixes:
                    path = self._path(names.segment_file(base_offset, suffix))
                    self._progress.on_damage(f"{path} has no log file, removed")
                    self._files.unlink_if_exists(path)

    def _open_leader_epochs(self) -> tuple[LeaderEpochs, bool]:
        """Return the epochs, and whether they must be rebuilt from the batches."""
        path = self._path(names.LEADER_EPOCH_CHECKPOINT)
        entries: Sequence[EpochStart] | None = None
        try:
            entries = checkpoints.read_leader_epochs(self._files, path)
        except MalformedCheckpointError as error:
            self._progress.on_damage(f"{error}; read from the batches instead")
        # The file is synced together with the data, so a power cut may have emptied it, even after a clean stop, which
        # syncs only logs with new data. After a clean stop, a file with no entries is trusted.
        are_lost = entries is None or (not entries and not self._is_clean)
        return LeaderEpochs(entries or (), epochs_writer(self._files, self._directory)), are_lost

    def _read_topic_id(self) -> UUID | None:
        """Return the id in partition.metadata. A damaged file is no loss: the cluster's metadata holds the id too."""
        try:
            return checkpoints.read_partition_metadata(self._files, self._path(names.PARTITION_METADATA))
        except MalformedCheckpointError as error:
            self._progress.on_damage(f"{error}; taken from the metadata instead")
            return None

    def _find_leader_epochs(self, segments: Sequence[Segment], leader_epochs: LeaderEpochs) -> None:
        """Rebuild the epochs from segments that will not be scanned; a scan rebuilds those of the others."""
        found = _unwritten_epochs(())
        damage: CorruptSegmentError | None = None
        try:
            leader_epochs_in(segments, found)
        except CorruptSegmentError as error:
            damage = error
            self._progress.on_damaged_batch(damage)
            self._progress.on_damage(f"{damage}; leader epochs behind it are not known")
        leader_epochs.adopt(found.entries)
        if (
            damage is None
            and self._is_clean
            and not leader_epochs.entries
            and any(segment.size for segment in segments)
        ):
            # Batches of old formats carry no epochs. Without the file the next start would read them all again.
            epochs_writer(self._files, self._directory)(())

    def _find_earlier_leader_epochs(self, segments: Sequence[Segment], leader_epochs: LeaderEpochs) -> None:
        """Add the epochs of batches before the first one in the file.

        The file may know a log start that the checkpoint does not: the log starts lower then.
        """
        first = leader_epochs.entries[0]
        earlier = _unwritten_epochs(())
        before = [segment for segment in segments if segment.size and segment.base_offset < first.start_offset]
        if not before or self._log_start_offset >= first.start_offset:
            return
        try:
            if next(stored_batches(before[0], 0, before[0].size)).header is None:
                return  # batches of old formats carry no epochs
            leader_epochs_in(before, earlier)
        except CorruptSegmentError as damage:
            self._progress.on_damaged_batch(damage)
            return
        found = [entry for entry in earlier.entries if entry.start_offset < first.start_offset]
        following = leader_epochs.entries[1:] if found and found[-1].epoch == first.epoch else leader_epochs.entries
        leader_epochs.adopt((*found, *following))

    def _repair(self, repair: "_Repair", without_index: set[int], first_to_scan: int) -> None:
        segments = repair.segments
        for number, segment in enumerate(segments[:first_to_scan]):
            if segment.base_offset in without_index:
                repair.rebuild_indexes(number, lambda: self._files.sync_directory(self._directory))
        if self._is_clean:
            repair.verify_end()
        else:
            repair.scan_from(first_to_scan)

    def _start_anew(self, segments: Iterable[Segment]) -> list[Segment]:
        """Replace all segments by an empty one: a log has a segment, and never ends below its start."""
        for segment in segments:
            self._progress.on_damage(f"{segment.path} ends below the log start {self._log_start_offset}, removed")
            segment.on_disk.remove()
        segment = self._segment(self._log_start_offset, {names.LOG: 0})
        segment.create()
        self._files.sync_directory(self._directory)
        return [segment]

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


class _Repair:
    """The segments of one log during its repair. `producer_state` is set if a scan has built it."""

    def __init__(
        self,
        name: str,
        segments: list[Segment],
        snapshots: ProducerSnapshots,
        leader_epochs: LeaderEpochs,
        log_start_offset: int,
        progress: LoadProgress,
        *,
        gaps_below: int,
    ) -> None:
        self.segments = segments
        self.log_end_offset = log_start_offset
        self.producer_state: ProducerState | None = None
        self.scanned_from: int | None = None
        """Base offset of the first segment that `scan_from` has read."""
        self.has_removed_files = False
        self._name = name
        self._snapshots = snapshots
        self._leader_epochs = leader_epochs
        self._log_start_offset = log_start_offset
        self._progress = progress
        self._gaps_below = gaps_below

    def rebuild_indexes(self, number: int, sync_names: Callable[[], None]) -> None:
        """Rebuild the indexes of a sealed segment. Damage is reported and nothing is cut: the segment was synced.

        The indexes are durable when this returns, because no flush syncs below the recovery point. The transaction
        index is durable first: as long as the others have the length of growing indexes, a start rebuilds all three.
        """
        segment = self.segments[number]
        self._progress.on_damage(f"{segment.path}: an index is missing, cut off or garbled, rebuilt")
        producer_state = self._state_at(segment.base_offset)
        scan = scan_segment(segment, producer_state, self._leader_epochs, self._progress.on_bytes_scanned)
        if scan.damage is not None:
            self._progress.on_damaged_batch(scan.damage)
            self._progress.on_damage(str(scan.damage))
        following = self.segments[number + 1 : number + 2]
        if scan.damage is None and following and following[0].base_offset not in self._snapshots.offsets:
            # Else all that is before the next segment would be replayed again for its indexes.
            self._snapshots.write(following[0].base_offset, producer_state.producers.values())
        segment.transaction_index.sync()
        sync_names()
        segment.seal()
        segment.on_disk.sync_indexes()
        sync_names()

    def verify_end(self) -> None:
        """Trust the last segment if its indexes are consistent and its end is whole; else scan it."""
        try:
            self.log_end_offset = _checked_end(self.segments[-1])
        except (CorruptSegmentError, CorruptIndexError) as damage:
            # If the log file is damaged, the scan reports where; this line names the file only.
            what = damage.path if isinstance(damage, CorruptSegmentError) else str(damage)
            self._progress.on_damage(f"{what}: scanned although the stop was clean")
            self.scan_from(len(self.segments) - 1)

    def scan_from(self, first: int) -> None:
        """Scan the segments from `first` on and cut the log at the first bad byte or gap.

        A new segment always begins where the last batch ends. If the segment before it now ends earlier, a power cut
        has removed the end of the older file but kept the newer one; the log ends at that gap.

        Three kinds of gaps do not end the log. Gaps below `gaps_below` come from cleaning, which leaves them only below
        the recovery point, or from another writer. Gaps and damage below the log start come from a deletion that a
        crash interrupted, and no reader reaches them. A gap that is too wide for a segment is the leader's.
        """
        self.scanned_from = self.segments[first].base_offset
        producer_state = self._state_at(self.scanned_from)
        epochs = _unwritten_epochs(self._leader_epochs.entries)
        epochs.truncate_from_end(self.scanned_from)  # the file is not synced beyond; the batches have their epochs
        # They may describe records from before a truncation: a power cut undoes the removal of a file.
        self._snapshots.delete_outside(0, self.scanned_from)
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            self._progress.on_segments_left(len(self.segments) - number)
            if number > first:
                is_gap = 0 != segment.base_offset - self.log_end_offset <= _LOST_OFFSETS_MAX
                if is_gap and segment.base_offset > max(self._gaps_below, self._log_start_offset):
                    self._detach_from(number)
                    break
                self._snapshots.write(segment.base_offset, producer_state.producers.values())
            scan = scan_segment(segment, producer_state, epochs, self._progress.on_bytes_scanned)
            self.log_end_offset = scan.next_offset
            if scan.damage is not None:
                self._progress.on_damaged_batch(scan.damage)
                if not self._is_below_log_start(number):
                    self._cut(number, scan.end_position, scan.damage)
                    break
                self._progress.on_damage(f"{scan.damage}; left alone below the log start {self._log_start_offset}")
            if segment is not self.segments[-1]:
                segment.seal()
        self._progress.on_segments_left(0)
        if self.segments[-1].size:
            # The active segment too: every segment below the recovery point must have its index files, because Kafka
            # rebuilds the indexes of those that have none.
            self.segments[-1].seal()
        self._leader_epochs.adopt(epochs.entries)
        producer_state.map_end_offset = self.log_end_offset
        self.producer_state = producer_state

    def _is_below_log_start(self, number: int) -> bool:
        following = self.segments[number + 1 : number + 2]
        return bool(following) and following[0].base_offset <= self._log_start_offset

    def _cut(self, number: int, position: int, damage: CorruptSegmentError) -> None:
        segment, later = self.segments[number], self.segments[number + 1 :]
        self._progress.on_damage(f"{damage}; cut {segment.size - position} bytes and {len(later)} later segments")
        if position < segment.size:
            segment.cut_damage(position)
        for dropped in reversed(later):
            dropped.on_disk.remove()
            self.has_removed_files = True
        self.segments = self.segments[: number + 1]

    def _detach_from(self, number: int) -> None:
        """End the log before a segment that does not begin at the log's end.

        The log files are kept under another name: they are intact, and if Kafka wrote them, the gap may be its own.
        """
        detached = self.segments[number:]
        self._progress.on_damage(
            f"{detached[0].path}: the segment before ends at {self.log_end_offset}, so records were lost; "
            f"segments from here on, kept as *{names.DETACHED} and not served: {len(detached)}"
        )
        for segment in reversed(detached):
            segment.release()
            segment.on_disk.detach()
            self.has_removed_files = True
        self.segments = self.segments[:number]

    def _state_at(self, offset: int) -> ProducerState:
        ordered, start_offset = Segments(self.segments), self._log_start_offset
        return state_at(
            offset,
            self._name,
            ordered,
            self._snapshots,
            start_offset,
            lambda damage: _on_unread_producers(self._progress, damage),
        )


def _unwritten_epochs(entries: Iterable[EpochStart]) -> LeaderEpochs:
    """Return epochs that change in memory only: a start after a crash would trust a part of them in the file."""
    return LeaderEpochs(entries, lambda entries: None)


def epochs_writer(files: Files, directory: str) -> Callable[[Sequence[EpochStart]], None]:
    """Return the function that writes the leader epochs of the log in `directory`."""
    path = f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}"
    return lambda entries: checkpoints.write_leader_epochs(files, path, entries)


def state_at(
    offset: int,
    name: str,
    segments: Segments,
    snapshots: ProducerSnapshots,
    log_start_offset: int,
    on_damage: Callable[[CorruptSegmentError], None],
) -> ProducerState:
    """Return the producer state after everything below `offset`: the newest usable snapshot and the batches after it.

    Batches that cannot be read are left out: a damaged segment must not prevent the log from being served.
    """
    producer_state = ProducerState(name)
    loaded = snapshots.load_latest(offset)
    if loaded is None:
        producer_state.clear(min(log_start_offset, offset))
    else:
        producer_state.load(loaded.entries, loaded.offset)
    if producer_state.map_end_offset < offset:
        replay(
            segments.covering(producer_state.map_end_offset, offset),
            producer_state,
            offset,
            on_damage,
        )
    return producer_state


def _on_unread_producers(progress: LoadProgress, damage: CorruptSegmentError) -> None:
    progress.on_damaged_batch(damage)
    progress.on_damage(f"{damage}; {PRODUCERS_UNKNOWN}")


def _segment_file_sizes(entries: Iterable[DirectoryEntry]) -> dict[int, dict[str, int]]:
    """Return base offset -> suffix -> size for the files in service."""
    sizes: dict[int, dict[str, int]] = {}
    for entry in entries:
        name = names.parse_segment_file(entry.name)
        if name is not None and not name.stage:
            sizes.setdefault(name.base_offset, {})[name.suffix] = entry.size
    return sizes


def _has_bad_transaction_index(segment: Segment) -> bool:
    """Return whether the transaction index is damaged. Unlike the other two, it cannot be checked in use."""
    try:
        segment.transaction_index.entries()
    except CorruptIndexError:
        return True
    return False


def _lacks_index(sizes: Mapping[str, int]) -> bool:
    """Return whether an index is missing or does not consist of whole entries. Its content is checked in use."""
    if sizes[names.LOG] == 0:
        return False
    return any(suffix not in sizes or sizes[suffix] % size for suffix, size in _INDEX_ENTRY_SIZES.items())


def _floor(segments: Sequence[Segment], offset: int) -> int:
    """Return the number of the segment that holds `offset`, or 0."""
    at_or_below = [number for number, segment in enumerate(segments) if segment.base_offset <= offset]
    return at_or_below[-1] if at_or_below else 0


def _has_unfinished_index(segment: Segment) -> bool:
    """Return whether a crash interrupted the rebuild of an index, which then has its full length, see `MappedIndex`."""
    try:
        if segment.offset_index.is_full:
            segment.offset_index.check(segment.size)
        if segment.time_index.is_full:
            segment.time_index.check()
    except CorruptIndexError:
        return True
    return False


def _checked_end(segment: Segment) -> int:
    """Return the offset after the last batch. Raises CorruptIndexError, CorruptSegmentError if files disagree."""
    if segment.size == 0:
        return segment.base_offset
    segment.offset_index.check(segment.size)
    segment.time_index.check()
    segment.transaction_index.entries()
    indexed_offset, position = segment.offset_index.last()
    next_offset = -1
    for extent in segment.walk(position):
        if next_offset < 0 and position and not segment.base_offset <= extent.base_offset <= indexed_offset:
            raise CorruptIndexError(
                f"{segment.offset_index.path} sends {indexed_offset} to offset {extent.base_offset}"
            )
        if extent.last_offset < max(extent.base_offset, next_offset):
            raise CorruptSegmentError(
                segment.path, extent.position, f"offset {extent.last_offset} after {next_offset - 1}"
            )
        next_offset = extent.last_offset + 1
    return next_offset
