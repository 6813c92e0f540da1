"""Truncation of one log: removing its end, or all of it.

Owns the order of steps by which offsets, segments, recovery point, epochs and producers fall together. Must not know
why a log is truncated; `divergence` decides where a follower's log diverges from its leader's.

The truncation waits for the disk. It runs in the thread that owns the log, or in one that the log is reserved for.
"""

from collections.abc import Sequence

from protocol.errors import ErrorCode, KafkaError
from storage.log.divergence import truncation_point
from storage.log.log_appends import LogAppends
from storage.log.log_disposal import LogDisposal
from storage.log.log_durability import LogDurability
from storage.log.log_state import EndGap, LogState
from storage.producers.producer_state import ProducerState
from storage.recovery.log_loader import PRODUCERS_UNKNOWN, state_at
from storage.segments.leader_epochs import EpochEnd
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.segment import CorruptSegmentError, Segment


class LogTruncation:
    """Truncates one log."""

    __slots__ = ("_appends", "_disposal", "_durability", "_planned", "_rolls", "_state")

    def __init__(self, state: LogState, appends: LogAppends, durability: LogDurability, disposal: LogDisposal) -> None:
        self._state = state
        self._appends = appends
        self._planned = appends.planned
        self._rolls = appends.rolls
        self._durability = durability
        self._disposal = disposal

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Remove the batch that holds `offset` and everything after it; return False if the log ends there already.

        High watermark, log start, recovery point, epochs and producer state follow. Before this returns, the
        checkpoints of recovery point and log start are written. Waits for the disk.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        state = self._state
        if offset >= self._appends.next_offset:
            if not self._planned.is_reserved:
                self._planned.refuse_change()
            # An epoch that began here without a record may contradict the new leader's epoch at this offset.
            try:
                state.leader_epochs.truncate_from_end(self._appends.next_offset)
            except OSError as error:
                raise state.storage_error(error) from error
            return False
        self._planned.refuse_any()
        self._disposal.mark_dropped(now_ms)  # frees the names of dropped segments for new ones
        if offset < state.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        try:
            self._truncate(offset)
        except OSError as error:
            raise state.unfinished_error(error) from error
        except (CorruptSegmentError, CorruptIndexError) as error:
            state.take_offline()  # the truncation is half done: the log can be neither appended to nor read
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{state.folder.path} cannot be truncated: {error}"
            ) from error
        return True

    def truncate_to_epoch_end(self, leaders: EpochEnd, *, now_ms: int) -> bool:
        """Truncate to where this log diverges from its leader's; return whether that is final.

        `leaders` is what the leader says about this log's latest epoch. Unless the result is final, the leader has to
        be asked again, for the epoch that is the latest then (see `storage.log.divergence`). Waits for the disk.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        state = self._state
        point = truncation_point(
            leaders, state.leader_epochs, log_end_offset=state.log_end_offset, high_watermark=state.high_watermark
        )
        self.truncate_to(point.offset, now_ms=now_ms)
        return point.is_final

    def _truncate(self, offset: int) -> None:
        # Offsets fall first: concurrent readers must not look for batches that are about to be removed.
        state = self._state
        self._begin_truncation()
        state.log_end_offset = offset
        state.high_watermark = min(state.high_watermark, offset)
        self._drop([segment for segment in state.segments.all() if segment.base_offset > offset])
        active = state.segments.active
        self._rolls.activate(active)
        end_offset = active.truncate_to(offset)
        if end_offset is not None:
            offset = state.log_end_offset = end_offset
            state.high_watermark = min(state.high_watermark, offset)
        state.end_gap = EndGap(_next_offset_or(offset, active), offset)
        state.segment_reader.end = (offset, active, active.size)
        state.segment_reader.forget_positions()
        state.log_start_offset = min(state.log_start_offset, offset)
        active.sync_cut()
        self._durability.lower_recovery_point(offset)
        state.leader_epochs.truncate_from_end(offset)
        state.snapshots.delete_outside(state.log_start_offset, offset)
        state.producer_state = self._producers_at(offset)
        state.producer_state.on_high_watermark(state.high_watermark)
        state.truncation_count += 1
        state.options.on_truncated(state)

    def _producers_at(self, offset: int) -> ProducerState:
        state = self._state
        return state_at(
            offset,
            f"{state.topic}-{state.partition}",
            state.segments,
            state.snapshots,
            state.log_start_offset,
            self._on_unread_producers,
        )

    def _on_unread_producers(self, damage: CorruptSegmentError) -> None:
        state = self._state
        state.count_damage(damage)
        state.options.on_damage(f"{damage}; {PRODUCERS_UNKNOWN}")

    def _begin_truncation(self) -> None:
        with self._durability.without_rise():
            self._state.truncation_count += 1  # odd during a truncation

    def _drop(self, segments: Sequence[Segment]) -> None:
        state = self._state
        if segments:
            state.segments.replace(segments)
            _remove(segments)
            # After a power cut, segments that come back must not follow what is appended from now on.
            state.files.sync_directory(state.folder.path)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Remove all batches; the next one gets `offset`. Waits for the disk.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        state = self._state
        self._planned.refuse_any()
        self._disposal.mark_dropped(now_ms)
        self._begin_truncation()
        try:
            old = state.segments.all()
            _remove(old)
            replacement = self._rolls.new_segment(offset, now_ms)
            state.segments.replace(old, [replacement])
            state.snapshots.delete_outside(offset, offset)
            # Before the recovery point on the disk passes the old segments: no start would read them again.
            state.files.sync_directory(state.folder.path)
            state.log_end_offset = state.log_start_offset = state.high_watermark = offset
            state.end_gap = None
            self._durability.restart_at(offset)
            state.segment_reader.end = (offset, replacement, 0)
            state.segment_reader.forget_positions()
            state.leader_epochs.clear()
            state.producer_state.clear(offset)
            state.truncation_count += 1
            state.options.on_truncated(state)
        except OSError as error:
            raise state.unfinished_error(error) from error


def _next_offset_or(end_offset: int, segment: Segment) -> int:
    """Return where the last batch of a segment ends, `end_offset` if damage hides it."""
    try:
        return segment.next_offset()
    except (CorruptIndexError, CorruptSegmentError):
        return end_offset


def _remove(segments: Sequence[Segment]) -> None:
    """Remove the last segment first: a crash in between leaves a shorter log without a gap."""
    for segment in reversed(segments):
        segment.on_disk.remove()
