"""Finds offsets of one log by time, as ListOffsets requests them.

Owns what is searched and what a search returns while segments leave the log or the log is truncated. Must not know
requests, or which offsets a client may see: the caller passes the bound.

Threads: lookups run in any thread, at the same time as appends, except `legacy_offsets_before`, which belongs to the
thread that owns the log.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from storage.log.log_state import LogState
from storage.log.segment_reader import FoundOffset
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.segment import CorruptSegmentError
from storage.segments.segment_files import SegmentGoneError


class TimestampedOffset(NamedTuple):
    """A record found by time, with the epoch of the leader that wrote it (-1 if unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class LogLookups:
    """The lookups of one log."""

    __slots__ = ("_reader", "_segments", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._reader = state.segment_reader
        self._segments = state.segments

    def offset_for_timestamp(self, timestamp_ms: int, *, upper_bound_offset: int) -> TimestampedOffset | None:
        """Return the first record with a timestamp at or after the given one; None if it is not below the bound.

        Any thread. Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        return self._found(
            lambda: self._reader.first_at_or_after(timestamp_ms, self._state.log_start_offset), upper_bound_offset
        )

    def max_timestamp(self, *, upper_bound_offset: int) -> TimestampedOffset | None:
        """Return the first record with the greatest timestamp; None if it is not below the bound.

        Any thread. Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        return self._found(self._reader.with_max_timestamp, upper_bound_offset)

    def _found(self, look_up: Callable[[], FoundOffset | None], upper_bound_offset: int) -> TimestampedOffset | None:
        self._state.refuse_offline()
        truncation_count = self._state.truncation_count
        try:
            found = look_up()
        except SegmentGoneError:
            # Retention or cleaning removed the segment during the lookup: search the present segments instead.
            return (
                None if self._state.was_truncated_since(truncation_count) else self._found(look_up, upper_bound_offset)
            )
        except (CorruptIndexError, CorruptSegmentError) as damage:
            if self._state.was_truncated_since(truncation_count):
                return None
            self._state.count_damage(damage)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except OSError as error:
            if self._state.folder.has_moved(error):
                return self._found(look_up, upper_bound_offset)
            raise self._state.storage_error(error) from error
        if found is None or found.offset >= upper_bound_offset:
            return None
        return TimestampedOffset(found.timestamp_ms, found.offset, self._state.leader_epochs.epoch_at(found.offset))

    def legacy_offsets_before(self, timestamp_ms: int, max_count: int, *, now_ms: int) -> list[int]:
        """Return at most `max_count` base offsets of segments not younger than the timestamp, newest first.

        This is what ListOffsets version 0 returns. -1 means from the log's end, -2 the log's start. A segment is as old
        as its file; the log's end has the age 0. Segments whose files a truncation has removed are left out.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        aged: list[tuple[int, int]] = []
        try:
            for segment in self._segments.all():
                with contextlib.suppress(SegmentGoneError):
                    aged.append((max(segment.base_offset, self._state.log_start_offset), segment.on_disk.modified_ms))
        except OSError as error:
            raise self._state.storage_error(error) from error
        if self._segments.active.size:
            aged.append((self._state.log_end_offset, now_ms))
        if timestamp_ms == -2:
            aged = aged[:1]
        elif timestamp_ms != -1:
            while aged and aged[-1][1] > timestamp_ms:
                aged.pop()
        return [offset for offset, _ in reversed(aged)][:max_count]
