"""Reads of one log, in any thread, while its owner appends, removes segments or truncates.

Owns what a read returns when segments leave the log or are damaged at the same time. Must not know why an upper bound
is what it is; `segment_reader` finds the bytes.
"""

from typing import cast

from base.file_slice import FileSlice
from protocol.errors import ErrorCode, KafkaError
from storage.log.log_state import LogState
from storage.log.segment_reader import FetchedRecords, Wanted
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.segment import CorruptSegmentError, NotInMemoryError
from storage.segments.segment_files import SegmentGoneError
from storage.segments.transaction_index import AbortedTransaction


class LogReader:
    """The reads of one log by offset."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound_offset: int,
        min_one_batch: bool,
        nowait: bool = False,
        with_aborted: bool = False,
    ) -> FetchedRecords[memoryview] | None:
        """Do the same as `read_or_slice`, but return the bytes in memory in any case, and cut no first batch off."""
        wanted = Wanted(offset, max_bytes, upper_bound_offset, min_one_batch, False, not nowait, False, with_aborted)
        return cast("FetchedRecords[memoryview] | None", self.read_or_slice(wanted))

    def read_or_slice(self, wanted: Wanted) -> FetchedRecords[memoryview | FileSlice] | None:
        """Return the bytes from the batch that holds the wanted offset on. Any thread.

        If cleaning has removed that batch, they begin with the next one. They may end with a partial batch, and are
        empty at the end of the log.

        Returns None if the read must not wait and the bytes are not in memory. The caller repeats it in a thread.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE below the log's start or above its end, CORRUPT_MESSAGE,
                KAFKA_STORAGE_ERROR.
        """
        state, offset, nowait = self._state, wanted.offset, not wanted.wait
        while True:
            state.refuse_offline()
            if not state.log_start_offset <= offset <= state.log_end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Received request for offset {offset} for partition {state.topic}-{state.partition}, but we only "
                    f"have log segments from offset {state.log_start_offset} up to {state.log_end_offset}.",
                )
            truncation_count = state.truncation_count
            try:
                fetched = state.segment_reader.read(wanted)
            except NotInMemoryError:
                return None
            except (SegmentGoneError, OSError) as error:
                self._expect_removal(error, offset, truncation_count)
                continue
            except (CorruptIndexError, CorruptSegmentError) as damage:
                if nowait:
                    return None
                if state.was_truncated_since(truncation_count):
                    raise self._gone_error(offset) from damage
                try:
                    return self._read_without_index(wanted, damage)
                except (SegmentGoneError, OSError) as error:
                    self._expect_removal(error, offset, truncation_count)
                    continue
            if state.was_truncated_since(truncation_count):
                raise self._gone_error(offset)
            return fetched

    def _expect_removal(self, error: SegmentGoneError | OSError, offset: int, truncation_count: int) -> None:
        """Return if a segment's files were removed or renamed before the reader opened them; the read is repeated.

        The log's present segments hold the offset, or the log starts above it. The repetition ends, because a segment
        leaves the log before its files are removed. After a truncation the read fails instead: the caller's upper
        bound may now lie above what is committed.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        state = self._state
        if isinstance(error, SegmentGoneError):
            if state.was_truncated_since(truncation_count):
                raise self._gone_error(offset) from error
        elif not state.folder.has_moved(error):
            raise state.storage_error(error) from error

    def _read_without_index(self, wanted: Wanted, damage: Exception) -> FetchedRecords[memoryview | FileSlice]:
        """Repeat a read by scanning the segment: what looked like a damaged log may be a wrong index.

        If the scan succeeds, the index of a sealed segment is emptied, and the next start rebuilds it. The index of
        the active segment stays, because another thread may be appending to it. If the scan meets damage too, the
        index also stays: it leads to the batches behind the damage.

        Raises KafkaError: CORRUPT_MESSAGE; SegmentGoneError; OSError.
        """
        state = self._state
        try:
            fetched = state.segment_reader.read_without_index(wanted)
        except (CorruptSegmentError, CorruptIndexError) as error:
            state.count_damage(error)
            state.report_once(f"{error}; the read fails with CORRUPT_MESSAGE")
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        state.report_once(f"{damage}; read without the index")
        segment = state.segments.floor(wanted.offset)
        if segment is not None and segment is not state.segments.active:
            segment.offset_index.reset()
        return fetched

    def size_between(self, start_offset: int, end_offset: int) -> int | None:
        """Return the bytes from the batch that holds `start_offset` up to the one that holds `end_offset`.

        Returns None if finding out needs the disk or meets an error, which the read of that range will report.
        """
        try:
            return self._state.segment_reader.size_between(start_offset, end_offset)
        except (NotInMemoryError, SegmentGoneError, OSError, CorruptIndexError, CorruptSegmentError):
            return None

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `start_offset` on and below `end_offset`. Any thread.

        To get them together with the records, use `read`.

        Raises KafkaError: CORRUPT_MESSAGE if an index is damaged, KAFKA_STORAGE_ERROR.
        """
        state = self._state
        try:
            return state.segment_reader.aborted_transactions(state.segments.all(), start_offset, end_offset)
        except CorruptIndexError as damage:
            state.report_once(f"{damage}; the read fails with CORRUPT_MESSAGE")
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except OSError as error:
            raise state.storage_error(error) from error

    def _gone_error(self, offset: int) -> KafkaError:
        state = self._state
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of partition {state.topic}-{state.partition} was removed while it was read",
        )
