"""Appends to one log that have their offsets and wait for a slow directory (`storage.disk.directory_writer`).

Owns which appends are planned, where the log ends with them, which batches share a write, and when producers have to
wait. Also owns the reservation of a log for another thread, which truncates it. Must not know how batches are
written: the log stores them.

Threads: everything belongs to the thread that owns the log, except `PlannedAppend.store`, which runs in the
directory's threads, and `is_reserved` and `refuse_reserved`, which any thread may read. One write of a log is stored at
a time, and nothing else changes the log's files during it.
"""

from collections.abc import Callable
from typing import Final

from protocol.records.batch import NO_TIMESTAMP
from protocol.records.compression import Buffer
from storage.disk.directory_writer import Action
from storage.disk.shortages import TryLaterError
from storage.log.log_state import LogState
from storage.segments.segment import Segment
from storage.segments.transaction_index import AbortedTransaction

# Batches are joined into one write up to this size. The index has one entry for them: a lookup scans from there.
_JOINED_SIZE_MAX: Final = 64 * 1024


class PlannedAppend:
    """Batches with offsets, already part of their producers' state, on the way into the files of `log`.

    Batches of later appends may `join` it until it has begun: one write then stores them all.
    """

    __slots__ = (
        "_planned",
        "aborted",
        "config",
        "end_offset",
        "has_begun",
        "largest_ms",
        "largest_offset",
        "last_offset",
        "leader_epoch",
        "log",
        "now_ms",
        "offset",
        "records",
        "segment",
        "snapshot",
    )

    def __init__(
        self,
        planned: "PlannedAppends",
        log: LogState,
        end_offset: int,
        offset: int,
        leader_epoch: int,
        now_ms: int,
        snapshot: bytes | None,
    ) -> None:
        self._planned = planned
        self.log = log
        self.records = bytearray()
        self.end_offset = end_offset
        """Where the log ends before these batches; below `offset` if the leader's log has a gap there."""
        self.offset = offset
        self.last_offset = offset
        self.largest_ms = NO_TIMESTAMP
        self.largest_offset = offset
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms
        self.aborted: list[AbortedTransaction] = []
        self.snapshot = snapshot
        """The producers' state before this append, encoded; None unless the append may begin a segment."""
        self.config = log.config
        """The configuration when the append was planned."""
        self.has_begun = False
        self.segment: Segment | None = None
        """The segment that holds the batches; None until they are stored."""

    @property
    def size(self) -> int:
        return len(self.records)

    def join(
        self, records: Buffer, last_offset: int, max_timestamp_ms: int, aborted: AbortedTransaction | None
    ) -> None:
        self.records += records
        self.last_offset = last_offset
        if max_timestamp_ms > self.largest_ms or self.largest_ms == NO_TIMESTAMP:
            self.largest_ms, self.largest_offset = max_timestamp_ms, last_offset
        if aborted is not None:
            self.aborted.append(aborted)

    def begin(self) -> None:
        self.has_begun = True

    def store(self) -> None:
        self.segment = self._planned.store(self)

    def finish(self, error: Exception | None) -> None:
        self._planned.finish(self, error)


class PlannedAppends:
    """The planned appends of one log.

    `count` and `end_offset` are for reading; `end_offset` is valid while `count` is above 0.
    """

    __slots__ = (
        "_directory",
        "_is_drained",
        "_last",
        "_on_finished",
        "_segment_size",
        "_state",
        "_when_released",
        "_when_stored",
        "_writer",
        "count",
        "end_offset",
        "is_reserved",
        "store",
    )

    def __init__(
        self,
        state: LogState,
        store: Callable[[PlannedAppend], Segment],
        on_finished: Callable[[PlannedAppend, Exception | None], None],
    ) -> None:
        """`store(append)` writes it, in the threads of the directory. `on_finished(append, error)` follows, in the
        owner's thread.
        """
        self._state = state
        self._writer = state.writer
        self._directory = state.folder
        self._on_finished = on_finished
        self.store = store
        self._last: PlannedAppend | None = None
        self._segment_size = 0  # of the segment that will be active when all is stored; valid while `count` is above 0
        self._when_stored: list[Action] = []
        self._is_drained = False
        self._when_released: list[Action] = []
        self.is_reserved = False
        """Whether another thread may change the log; see `reserve`."""
        self.count = 0
        self.end_offset = 0

    # Planning

    def begins_segment(self, size: int, active_size: int) -> bool:
        """Return whether an append of `size` bytes begins a new segment; `active_size` is that of the active one."""
        position = self._segment_size if self.count else active_size
        return position > 0 and position + size > self._state.config.segment_bytes

    def add(
        self,
        records: Buffer,
        offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        aborted: AbortedTransaction | None,
        leader_epoch: int,
        now_ms: int,
        *,
        log_end_offset: int,
        active_size: int,
        snapshot: bytes | None,
    ) -> None:
        """Plan the write of `records`, which are copied.

        `log_end_offset` is the end of what is stored, and `active_size` the size of the active segment. `snapshot` is
        the producers' state before the append, if `begins_segment` said so, else None.
        """
        size = len(records)
        position = 0
        if snapshot is None:
            position = self._segment_size if self.count else active_size
        end_offset = self.end_offset if self.count else log_end_offset
        self._segment_size = position + size
        self.end_offset = last_offset + 1
        last = self._last
        if (
            last is not None
            and not last.has_begun
            and last.leader_epoch == leader_epoch
            and snapshot is None
            and last.size + size <= _JOINED_SIZE_MAX
        ):
            last.join(records, last_offset, max_timestamp_ms, aborted)
            self._writer.grew(size)
            return
        last = self._last = PlannedAppend(self, self._state, end_offset, offset, leader_epoch, now_ms, snapshot)
        last.join(records, last_offset, max_timestamp_ms, aborted)
        self.count += 1
        self._writer.submit(last)

    def finish(self, append: PlannedAppend, error: Exception | None) -> None:
        """Remove an append that is stored, or has failed with `error`; then call what waited for the last one."""
        self.count -= 1
        if not self.count:
            self._last = None
        self._on_finished(append, error)
        if not self.count:
            due, self._when_stored = self._when_stored, []
            for action in due:
                action()

    # Waiting

    @property
    def has_room(self) -> bool:
        """Whether producers may append now. If not, `when_room` says when to ask again."""
        return self._writer.has_room and not self._is_drained

    def when_room(self, action: Action) -> None:
        """Call `action` once, when producers may be able to append again."""
        self._writer.when_room(action)

    def drain(self, action: Action) -> None:
        """Refuse producers until `end_drain`; call `action` once all planned appends are stored or have failed."""
        self._is_drained = True
        self.when_stored(action)

    def when_stored(self, action: Action) -> None:
        """Call `action` once all planned appends are stored or have failed: now, or as soon as they are."""
        if self.count:
            self._when_stored.append(action)
        else:
            action()

    def end_drain(self) -> None:
        if self._is_drained:
            self._is_drained = False
            self._writer.announce_room()

    # Changes of the log between two writes

    @property
    def is_being_stored(self) -> bool:
        """Whether another thread is changing the log; then nothing else may change it."""
        return self.is_reserved or (self.count > 0 and self._writer.is_writing(self._state))

    @property
    def is_pending(self) -> bool:
        """Whether another thread changes the log, or is going to."""
        return self.is_reserved or self.count > 0

    def reserve(self) -> None:
        """Let another thread change the log until `release`.

        Whatever else changes the log waits (`between_writes`) or is refused (`refuse_change`), as during a write of a
        planned append.

        Raises TryLaterError: Appends are planned, or the log is reserved already.
        """
        self.refuse_any()
        self.refuse_change()
        self.is_reserved = True

    def release(self) -> None:
        """End the reservation, and call what waited for its end."""
        self.is_reserved = False
        due, self._when_released = self._when_released, []
        for action in due:
            action()

    def between_writes(self, action: Action) -> None:
        """Call `action`, which may change the log, when no other thread is changing it: now or afterwards."""
        if self.is_reserved:
            self._when_released.append(action)
        else:
            self._writer.run_between(self._state, action)

    def refuse_change(self) -> None:
        """Raises TryLaterError while another thread is changing the log."""
        if self.is_being_stored:
            raise TryLaterError(f"{self._directory.path} is being written")

    def refuse_reserved(self) -> None:
        """Raises TryLaterError while the log belongs to another thread."""
        if self.is_reserved:
            raise TryLaterError(f"{self._directory.path} is being changed")

    def refuse_any(self) -> None:
        """Raises TryLaterError while appends are planned: a change of the log's end would make their offsets wrong."""
        if self.count:
            raise TryLaterError(f"{self.count} appends to {self._directory.path} are not written yet")
