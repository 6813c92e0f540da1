"""Which records of a log survive a crash of the machine: flushes, write-back and the recovery point.

Owns the recovery point, when a flush is due, and the order of the syncs. Must not know what is appended, nor who waits
for a flush.

Threads: `flush`, `flush_sealed`, `start_writeback` and `finish_writeback` wait for the disk and run in any thread. All
else belongs to the thread that owns the log.

Invariants:
- No append waits for a sync. A crash of the machine loses nothing below `recovery_point`.
- After a failed sync the log is offline. The kernel reports a write-back error once and may drop the dirty pages, so a
  later sync that succeeds proves nothing.
- The recovery point never covers offsets that a concurrent truncation has reassigned.
"""

import contextlib
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import zip_longest
from posixpath import dirname

from storage.disk import names
from storage.disk.directory_writer import Action
from storage.disk.shortages import TryLaterError
from storage.log.log_state import LogState
from storage.segments.segment import Segment
from storage.segments.segment_files import SegmentGoneError


class FlushHeldError(TryLaterError):
    """Flushes are held while a copy in another log directory replaces the log, see `LogDurability.hold_flushes`."""


class LogDurability:
    """Flushes one log. `recovery_point` is for reading."""

    __slots__ = (
        "_directory",
        "_files",
        "_flushed_ms",
        "_flushing",
        "_is_held",
        "_lowering",
        "_metadata_synced_in",
        "_segments",
        "_state",
        "_was_scanned",
        "_when_released",
        "recovery_point",
    )

    def __init__(
        self,
        state: LogState,
        *,
        recovery_point: int,
        was_scanned: bool,
        now_ms: int,
    ) -> None:
        """`was_scanned` says that loading the log wrote indexes that nothing has synced."""
        self._state = state
        self._files = state.files
        self._directory = state.folder
        self._segments = state.segments
        self._flushing = threading.Lock()  # held while files are synced
        self._lowering = threading.Lock()  # held where a truncation begins and where the recovery point rises
        self._flushed_ms = now_ms
        self._was_scanned = was_scanned  # and not flushed since
        self._is_held = False
        self._when_released: list[Action] = []
        self._metadata_synced_in: str | None = None  # the directory name under which the metadata was synced
        self.recovery_point = recovery_point

    # The recovery point

    @property
    def unflushed_count(self) -> int:
        """Offsets that a crash of the machine could lose."""
        return self._state.log_end_offset - self.recovery_point

    @property
    def needs_flush(self) -> bool:
        """Whether flush.messages requires a sync before the last append is acknowledged."""
        state = self._state
        return state.log_end_offset - self.recovery_point >= state.config.flush_messages

    def is_flush_due(self, now_ms: int) -> bool:
        """Return whether flush.ms has passed since the last flush, or the load left indexes that are not synced."""
        return self.unflushed_count > 0 and (
            self._was_scanned or now_ms - self._flushed_ms >= self._state.config.flush_ms
        )

    def without_rise(self) -> AbstractContextManager[object]:
        """Return a context within which no flush raises the recovery point. A truncation begins in it."""
        return self._lowering

    def lower_recovery_point(self, offset: int) -> None:
        """Note that the log was truncated to `offset`."""
        self.recovery_point = min(self.recovery_point, offset)

    def restart_at(self, offset: int) -> None:
        """Note that the log is empty and begins at `offset`."""
        self.recovery_point = offset

    # Flushing

    def flush(self, now_ms: int) -> None:
        """Sync everything appended so far and raise the recovery point. Any thread; flushes run one after the other.

        A flush that waited for another one which covers the same offsets syncs nothing.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR. A failed flush is never repeated, neither here nor by a waiting flush: the
                kernel may have dropped the pages that it could not write, and reports that only once.
            FlushHeldError: flushes are held.
        """
        state = self._state
        truncation_count, end_offset = state.truncation_count, state.log_end_offset
        had_unflushed = self.recovery_point < end_offset
        with self._flushing:
            was_done_by_another = (
                had_unflushed and self.recovery_point >= end_offset and not state.was_truncated_since(truncation_count)
            )
            if state.is_offline or not was_done_by_another:
                self._flush(with_active=True)
        self._flushed_ms = now_ms
        self._was_scanned = False

    def flush_sealed(self) -> None:
        """Sync all segments but the active one, which is left to the kernel. Raises like `flush`. Any thread."""
        with self._flushing:
            try:
                self._flush(with_active=False)
            except TryLaterError:
                self._state.options.on_flush_wanted(
                    self._state
                )  # nothing else would sync these segments before the next roll
                raise

    def _flush(self, *, with_active: bool) -> None:
        state = self._state
        state.refuse_offline()
        truncation_count = state.truncation_count  # read first, so that no truncation comes between it and the end
        end_offset = state.log_end_offset if with_active else self._segments.active.base_offset
        if self._is_held:  # checked after the end was read, see `hold_flushes`
            raise FlushHeldError(f"{self._directory.path} is being moved to another log directory")
        started_s = self._files.monotonic_s()
        try:
            self._sync_files(end_offset)
        except OSError as error:
            if self._directory.has_moved(error):
                self._flush(with_active=with_active)
                return
            raise state.storage_error(error) from error
        # A concurrent append may have consumed the kernel's write-back error. Then the success of this sync proves
        # nothing, but that append has taken the log offline.
        state.refuse_offline()
        with self._lowering:
            # After a concurrent truncation, offsets up to the old end may belong to batches that this sync missed.
            if not state.was_truncated_since(truncation_count):
                self.recovery_point = max(self.recovery_point, end_offset)
        self._state.options.on_flushed(self._files.monotonic_s() - started_s)

    def _sync_files(self, end_offset: int) -> None:
        for segment in self._segments.covering(self.recovery_point, max(end_offset, 1)):
            with contextlib.suppress(SegmentGoneError):
                if segment.size and segment is self._segments.active:
                    segment.on_disk.create_indexes()
                segment.sync()
        self._state.snapshots.sync()
        path = self._directory.path
        self._files.sync_path(f"{path}/{names.LEADER_EPOCH_CHECKPOINT}")
        is_metadata_synced = self._metadata_synced_in == path
        if not is_metadata_synced:
            self._files.sync_path(f"{path}/{names.PARTITION_METADATA}")
        self._files.sync_directory(path)
        if not is_metadata_synced:
            self._files.sync_directory(dirname(path))
            self._metadata_synced_in = path

    # Holding flushes during a move

    def hold_flushes(self) -> None:
        """Make `flush` and `flush_sealed` raise FlushHeldError until `release_flushes`.

        So the recovery point does not pass what the log's copy has synced while the copy replaces the log. A flush in
        progress ends as usual; it covers nothing that is appended after this call.
        """
        self._is_held = True

    def release_flushes(self) -> None:
        """Allow flushes again. Does nothing if they are allowed."""
        self._is_held = False
        due, self._when_released = self._when_released, []
        for action in due:
            action()

    def when_flush_released(self, action: Action) -> None:
        """Call `action` once: now if flushes are allowed, else at `release_flushes`."""
        if self._is_held:
            self._when_released.append(action)
        else:
            action()

    # Write-back

    def start_writeback(self) -> None:
        """Start the kernel's write-back of what was appended to the active segment since the last call. Any thread.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        try:
            self._segments.active.start_writeback()
        except OSError as error:
            raise self._state.storage_error(error) from error

    def release_idle(self) -> Sequence[Segment]:
        """Close the files of segments that were not used since the last call; return those that must stay open.

        These hold records that no sync has covered. Without an open descriptor the kernel would not report a failed
        write-back, and the next sync would succeed. Close them with `finish_writeback` and `release_written`.
        """
        segments, recovery_point = self._segments.all(), self.recovery_point
        waiting = []
        for segment, following in zip_longest(segments, segments[1:]):
            if not segment.was_idle():
                continue
            end_offset = self._state.log_end_offset if following is None else following.base_offset
            if segment.size and end_offset > recovery_point:
                waiting.append(segment)
            else:
                segment.release()
        return waiting

    def finish_writeback(self, segments: Sequence[Segment]) -> None:
        """Wait until the kernel has written these segments. Any thread. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        try:
            for segment in segments:
                segment.finish_writeback()
        except OSError as error:
            raise self._state.storage_error(error) from error

    def release_written(self, segments: Sequence[Segment]) -> None:
        """Close the files of those that were not used since `release_idle` returned them."""
        for segment in segments:
            if segment.was_idle():
                segment.release()
