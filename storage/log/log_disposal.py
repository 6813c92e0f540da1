"""How segments leave a log: retention, delayed deletion, and replacement by cleaned segments.

Owns the segments that have left the log and whose files are still in its directory, and when those files go. Must not
know which segments cleaning chooses, nor when retention runs.

A segment that retention removes takes three steps: `expire` raises the log start, `drop_expired` removes the segment
from the log once that start is on the disk, `mark_dropped` renames its files to `*.deleted`. After file.delete.delay.ms
`remove_deleted` unlinks them, so that a reader that began before can finish.

Threads: `read_ages`, `mark_dropped`, `remove_deleted` and `first_file_offset` run in any thread; the rest belongs to
the thread that owns the log.

Invariant: until its files are renamed, a segment is in the log or in `_dropped`, in the order of offsets. So a
checkpoint of log starts that is written at the same time knows the oldest file (`first_file_offset`).
"""

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from posixpath import basename

from protocol.errors import ErrorCode, KafkaError
from storage.disk import names
from storage.log.log_appends import LogAppends
from storage.log.log_state import LogState
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.retention import NO_LIMIT, RetentionPolicy, SegmentFacts, count_to_delete
from storage.segments.segment import CleanedSegment, CorruptSegmentError, Segment
from storage.segments.segment_files import SegmentGoneError


class LogDisposal:
    """Removes and replaces the segments of one log."""

    __slots__ = (
        "_appends",
        "_deleted",
        "_directory",
        "_dropped",
        "_files",
        "_marking",
        "_planned",
        "_segments",
        "_state",
    )

    def __init__(self, state: LogState, appends: LogAppends) -> None:
        self._state = state
        self._appends = appends
        self._planned = appends.planned
        self._files = state.files
        self._directory = state.folder
        self._segments = state.segments
        self._deleted: deque[tuple[int, str]] = deque()  # (due in ms, file name), rising
        # Segments that have left the log, with files under their old names, and the path of a snapshot each.
        self._dropped: deque[tuple[Segment, str | None]] = deque()
        self._marking = threading.Lock()  # held from the first rename of `mark_dropped` until its names are synced

    @property
    def first_file_offset(self) -> int:
        """The base offset of the log's oldest file: where a start finds the log to begin by names alone. Any thread."""
        first_offset = self._segments.first.base_offset  # read before `_dropped`, see `drop_expired`
        with contextlib.suppress(IndexError):
            return self._dropped[0][0].base_offset
        return first_offset

    # Retention

    def read_ages(self, now_ms: int) -> None:
        """Read the timestamps that `expire` needs of the sealed segments, so that it waits for no disk. Any thread.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
            TryLaterError: Another thread is truncating the log.
        """
        self._planned.refuse_reserved()
        try:
            # A truncation, or the end of a cleaning pass, may begin now: `expire` reads what is missing.
            with contextlib.suppress(SegmentGoneError):
                self._count_expired(self._segments.all()[:-1], now_ms)
        except OSError as error:
            if not self._directory.has_moved(error):
                raise self._state.storage_error(error) from error

    def expire(self, now_ms: int) -> int:
        """Raise the log start by retention.ms and retention.bytes; return how many segments lie wholly below it now.

        `drop_expired` and `mark_dropped` remove these segments, but only once the new start is on the disk: after a
        crash any of their files may still exist, and only a log start above such a gap makes it harmless.

        The active segment expires only after a new one was rolled. While the directory is slow it does not expire,
        because then the directory's threads alone roll segments.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; CORRUPT_MESSAGE if damage hides a timestamp.
        """
        state = self._state
        self._planned.refuse_change()
        try:
            segments = self._segments.all()
            count = self._count_expired(segments, now_ms)
            if count == len(segments) and state.writer.is_slow:
                count -= 1
            if count and count == len(segments):
                self._appends.roll(now_ms)
        except OSError as error:
            raise state.storage_error(error) from error
        except (CorruptIndexError, CorruptSegmentError) as damage:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        if count:
            start_offset = self._segments.all()[count].base_offset
            if start_offset > state.log_start_offset:
                state.raise_log_start(start_offset)
        return count

    def _count_expired(self, segments: Sequence[Segment], now_ms: int) -> int:
        return count_to_delete(
            self._segment_facts(segments),
            self._retention_policy(),
            total_size=self._segments.size,
            now_ms=now_ms,
            log_start_offset=self._state.log_start_offset,
            high_watermark=self._state.high_watermark,
        )

    def _segment_facts(self, segments: Sequence[Segment]) -> Iterator[SegmentFacts]:
        ends = [*(segment.base_offset for segment in self._segments.all()[1:]), self._state.log_end_offset]
        for segment, end in zip(segments, ends, strict=False):
            if segment is self._segments.active and not segment.size:
                return  # deleting it would create another empty one
            yield SegmentFacts(end, segment.size, segment.age_timestamp_ms(self._on_damaged_age))

    def _on_damaged_age(self, damage: CorruptSegmentError | CorruptIndexError) -> None:
        self._state.count_damage(damage)
        self._state.report_once(f"{damage}; retention goes by the time at which the file was modified")

    def _retention_policy(self) -> RetentionPolicy:
        config = self._state.config
        if "delete" not in config.cleanup_policy:
            return RetentionPolicy(NO_LIMIT, NO_LIMIT)
        return RetentionPolicy(config.retention_ms, config.retention_bytes)

    def drop_expired(self, start_offset: int) -> int:
        """Remove from the log the segments that lie wholly below `start_offset`, not their files; return how many.

        `start_offset` is a log start that is on the disk.
        """
        assert start_offset <= self._state.log_start_offset
        segments = self._segments.all()
        dropped = [segment for segment, following in pairwise(segments) if following.base_offset <= start_offset]
        if dropped:
            # Added here before they leave the log: `first_file_offset` must find them in one of the two.
            self._dropped.extend((segment, self._state.snapshots.forget(segment.base_offset)) for segment in dropped)
            self._segments.replace(dropped)
            self._state.segment_reader.forget_positions()
        return len(dropped)

    # Delayed deletion

    def mark_dropped(self, now_ms: int) -> None:
        """Rename the files of dropped segments to `*.deleted`, oldest first. Waits for the disk. Any thread.

        `remove_deleted` unlinks them once file.delete.delay.ms is over. A call waits for that of another thread: when
        it returns, the names are free, and no other thread is about to rename a file that takes one of them.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        try:
            with self._marking:
                self._mark_dropped(now_ms)
        except OSError as error:
            raise self._state.storage_error(error) from error

    def _mark_dropped(self, now_ms: int) -> None:
        count = 0
        with self._directory.unrenamed():
            while count < len(self._dropped):
                segment, snapshot = self._dropped[count]
                segment.on_disk.relocate(self._directory.path)
                self._mark_deleted(segment, now_ms)
                if snapshot is not None:
                    self._files.unlink_if_exists(snapshot)
                count += 1
        # `first_file_offset` finds them until their names cannot return: then the name of the first file replaces
        # the entry in the checkpoint of log starts. After a shortage all of this is tried again.
        if count:
            self._sync_names()
        for _ in range(count):
            self._dropped.popleft()

    def _sync_names(self) -> None:
        """Sync the directory, also if it is renamed at the same time: a sync must not keep a rename waiting."""
        try:
            self._files.sync_directory(self._directory.path)
        except OSError as error:
            if not self._directory.has_moved(error):
                raise
            self._sync_names()

    def _mark_deleted(self, segment: Segment, now_ms: int) -> None:
        due_ms = now_ms + self._state.config.file_delete_delay_ms
        self._deleted.extend((due_ms, basename(path)) for path in segment.on_disk.mark_deleted())

    def remove_deleted(self, now_ms: int) -> int:
        """Unlink the files whose delay is over; return how many. Any thread. Raises KafkaError: KAFKA_STORAGE_ERROR.

        Two cleaning passes may have deleted segments of one base offset. Then the later file has replaced the earlier
        one under the same name, and only the later delay counts.
        """
        count = 0
        times_named = Counter(name for _, name in list(self._deleted))
        try:
            while self._deleted and self._deleted[0][0] <= now_ms:
                name = self._deleted[0][1]
                if times_named[name] <= 1:
                    self._files.unlink_if_exists(f"{self._directory.path}/{name}")
                    count += 1
                times_named[name] -= 1
                self._deleted.popleft()
        except OSError as error:
            raise self._state.storage_error(error) from error
        return count

    # Cleaned segments

    def swap_in(self, cleaned: CleanedSegment, *, now_ms: int) -> bool:
        """Replace the segments that `cleaned` was made from by it; its files end in `.cleaned`. Offsets do not change.

        Returns False, with nothing changed, if the log no longer holds all of those segments or one is active.

        From the first rename to the last nothing else truncates, trims or cleans the log, because this is one step of
        the thread that owns it. A start after a crash in between decides by the file names
        (`storage.recovery.leftovers`); the file system keeps the order of renames within one directory.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        state = self._state
        self._planned.refuse_change()
        base_offsets = frozenset(cleaned.replaced)
        replaced = [segment for segment in self._segments.all() if segment.base_offset in base_offsets]
        if len(replaced) != len(cleaned.replaced) or self._segments.active in replaced:
            return False
        try:
            segment = Segment(
                self._files,
                self._directory.path,
                cleaned.base_offset,
                now_ms=now_ms,
                index_interval_bytes=state.config.index_interval_bytes,
                index_size_max=state.config.segment_index_bytes,
                size=cleaned.size,
                offset_index_size=cleaned.offset_index_size,
                time_index_size=cleaned.time_index_size,
                stage=names.CLEANED,
            )
            segment.preload()
        except OSError as error:
            raise state.storage_error(error) from error
        try:
            segment.on_disk.restage(names.SWAP)
            self._segments.replace(replaced, [segment])
            self._state.segment_reader.forget_positions()
            for old in replaced:
                self._mark_deleted(old, now_ms)
                if old.base_offset != cleaned.base_offset:
                    self._state.snapshots.delete(old.base_offset)
            segment.on_disk.restage("")
        except OSError as error:
            failure = state.unfinished_error(error)
            state.take_offline()  # the swap is half done: the next start completes or undoes it
            raise failure from error
        return True
