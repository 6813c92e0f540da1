"""Which log is cleaned next, and how cleaned segments replace the old ones.

Owns the first dirty offsets and their checkpoint, the logs that are being cleaned, and those that cannot be cleaned.
Must not know where a pass runs: the caller gets a job from `pick`, runs `cleaner.clean` on it in a separate process,
and passes the result to `make_durable` and `finish`, or the error to `fail`.

Threads: `read_ages`, `make_durable`, `write_checkpoints` and `give_back` wait for the disk; call them in another thread
than the one that owns the logs. All else belongs to the thread that owns the logs.

Invariants:
- At most one pass cleans a log at a time, and none while the log is moved to another log directory.
- The result of a pass is discarded if its log was truncated, moved, deleted or shortened during the pass; the log stays
  as it was.
- A damaged log does not stop the cleaning of the others.
- `pick` and `take` touch no file of a log that another thread is truncating: a missing file would look like a failed
  disk.
- A gap that cleaning leaves between two segments is always below the recovery point on the disk.
"""

import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

from base.dataclass import dataclass
from base.pause import InThread, Pause
from base.topic_partition import TopicPartition, partition_name
from config.broker import BrokerConfig
from config.broker_properties import (
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
    LOG_CLEANER_IO_BUFFER_SIZE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_CLEANER_THREADS,
)
from protocol.errors import KafkaError, Malformed
from protocol.records.batch import NO_TIMESTAMP
from storage.batches.damaged_batches import MetBy
from storage.cleaning.cleaning_job import MAP_MEMORY_MAX, CleaningJob, CleaningResult, unstage
from storage.cleaning.cleaning_metrics import CleanerMetrics, CleaningFigures, Uncleanable
from storage.cleaning.compaction import (
    ActiveProducer,
    CleanableLog,
    CompactionLimits,
    DirtySegment,
    SourceSegment,
    cleanable_part,
)
from storage.directories.log_directory import LogDirectory
from storage.disk.files import Files, ShortageError
from storage.disk.shortages import OutOfResourcesError
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.manager.log_observers import LogObserver
from storage.producers.producer_state import NONE, ProducerEntry
from storage.segments.mapped_index import CorruptIndexError
from storage.segments.segment import CleanedSegment, CorruptSegmentError
from storage.segments.segment_files import SegmentGoneError

_logger = logging.getLogger(__name__)

_new_tuple = tuple.__new__  # builds a named tuple in half the time that calling its class takes

T = TypeVar("T")

_UNCLEANABLE = (CorruptSegmentError, CorruptIndexError, Malformed)

LAST_MS, LAST_MS_MAX = 30_000, 3_600_000
"""For how long a log comes last after a pass that ended with its worker, twice as long each time, and at most."""
_ENDS_REPORTED = 3
"""A log counts as uncleanable once so many passes in a row have ended with their worker."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The settings of the cleaner. Its `threads` share memory and bandwidth."""

    threads: int = 1
    dedupe_buffer_size: int = 134_217_728
    load_factor: float = 0.9
    io_buffer_size: int = 524_288
    bytes_per_second_max: float = float("inf")

    @classmethod
    def of(cls, config: BrokerConfig) -> "CleanerSettings":
        return cls(
            threads=config[LOG_CLEANER_THREADS],
            dedupe_buffer_size=config[LOG_CLEANER_DEDUPE_BUFFER_SIZE],
            load_factor=config[LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
            io_buffer_size=config[LOG_CLEANER_IO_BUFFER_SIZE],
            bytes_per_second_max=config[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
        )


class Cleaning(NamedTuple):
    """A pass in progress."""

    log: Log
    directory: LogDirectory
    job: CleaningJob
    truncation_count: int
    worker: int


class _WorkerEnds(NamedTuple):
    """How many passes over a log in a row have ended with their worker, and until when it comes after all others."""

    passes: int
    last_until_ms: int


_NO_ENDS = _WorkerEnds(0, 0)


class LogCleaning(LogObserver):
    """Chooses the logs to clean, and takes over what a pass has cleaned."""

    def __init__(self, log_manager: LogManager, files: Files, settings: CleanerSettings) -> None:
        self._log_manager = log_manager
        self._files = files
        self._first_dirty: dict[TopicPartition, int] = {}
        self._in_progress: set[TopicPartition] = set()
        self._unwritten: set[str] = set()
        self._writing = threading.Lock()
        self._figures = CleaningFigures()
        self.settings = settings
        self.uncleanable: set[TopicPartition] = set()
        self._worker_ends: dict[TopicPartition, _WorkerEnds] = {}
        """Of logs whose last passes have ended with their worker."""
        self._checkpoint_listeners: list[Callable[[], object]] = []
        log_manager.observers.add(self)

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Apply changed settings to the next passes; those in progress keep theirs."""
        self.settings = settings

    def when_checkpoint_wanted(self, listener: Callable[[], object]) -> None:
        """Call `listener` whenever `write_checkpoints` should run soon, not only after the next pass. Any thread."""
        self._checkpoint_listeners.append(listener)

    def load(self) -> None:
        """Apply the first dirty offsets of all checkpoints; once, after the logs are loaded.

        Those of logs that were deleted and created again since are not in the checkpoints any more.
        """
        for directory in self._log_manager.directories.live:
            for name, offset in directory.cleaner_offsets.items():
                log = self._log_manager.get(*name)
                # If a log was moved just before the stop, only the checkpoint of its old directory may contain it.
                is_its_own = self._log_manager.directory_of(*name) is directory
                if log is None or not (is_its_own or name not in self._first_dirty):
                    continue
                if offset > log.log_end_offset:
                    _logger.warning(
                        "%s-%d ends at %d: its first dirty offset %d is reset to the log start %d",
                        *name,
                        log.log_end_offset,
                        offset,
                        log.log_start_offset,
                    )
                else:
                    self._first_dirty[name] = offset

    def read_ages(self) -> None:
        """Read the timestamps that `pick` needs, so that `pick` does not wait for the disk. Any thread.

        Ignores errors: `pick` meets them again and handles them.
        """
        for log in self._log_manager.logs():
            if self._may_be_cleaned(log):
                with contextlib.suppress(OSError, SegmentGoneError, *_UNCLEANABLE):
                    for segment in log.segments.all()[:-1]:
                        segment.largest()
                        _ = segment.first_timestamp_ms

    def pick(self, now_ms: int, worker: int = 0) -> Cleaning | None:
        """Return a pass over the log to clean next, or None if no log is due.

        Overdue logs come first, then those with the greatest share of dirty bytes; but those whose passes have ended
        with their worker come last for a while, so that they do not keep others from being cleaned. `worker` is the
        caller's number, for the metrics.
        """
        parts = [
            (part.is_overdue, part.dirty_ratio, log, part)
            for log in self._log_manager.logs()
            if self._may_be_cleaned(log)
            and (part := self._read(log, partial(self.cleanable_part_of, log, now_ms))) is not None
        ]
        self._figures.picked(
            worker,
            dirtiest_ratio=max((ratio for _, ratio, _, _ in parts), default=0.0),
            delay_ms_max=max((part.overdue_ms for _, _, _, part in parts), default=0),
            now_ms=now_ms,
        )
        due = [candidate for candidate in parts if candidate[3].is_due(candidate[2].config.min_cleanable_dirty_ratio)]
        due.sort(
            key=lambda each: (now_ms >= self._worker_ends.get(each[2].name, _NO_ENDS).last_until_ms, *each[:2]),
            reverse=True,
        )
        for _, _, log, part in due:
            directory = self._log_manager.directory_of(log.topic, log.partition)
            if directory is None or log.is_offline:
                continue  # reading another log has taken the directory or this log offline
            cleaning = self._begin(log, directory, part, now_ms, worker)
            if cleaning is not None:
                return cleaning
        return None

    def take(self, log: Log, now_ms: int) -> Cleaning | None:
        """Return a pass over one log, however few of its bytes are dirty; None if it has nothing to clean.

        Also None while `is_in_progress`, and while another thread is truncating the log.
        """
        directory = self._log_manager.directory_of(log.topic, log.partition)
        if directory is None or not self._may_be_cleaned(log):
            return None
        part = self._read(log, partial(self.cleanable_part_of, log, now_ms))
        if part is None or not part.cleanable_bytes:
            return None
        return self._begin(log, directory, part, now_ms, 0)

    def _begin(
        self, log: Log, directory: LogDirectory, part: CleanableLog, now_ms: int, worker: int
    ) -> Cleaning | None:
        job = self._read(log, partial(self._job, log, part, now_ms))
        if job is None:
            return None
        self._in_progress.add(log.name)
        return Cleaning(log, directory, job, log.truncation_count, worker)

    def is_in_progress(self, log: Log) -> bool:
        """Return whether a pass over a log has not ended."""
        return log.name in self._in_progress

    def is_wanted(self, cleaning: Cleaning) -> bool:
        """Return whether the result of a pass can still be used: its log and its segments have not changed."""
        present = {segment.base_offset for segment in cleaning.log.segments.all()}
        return self._may_change(cleaning) and all(source.base_offset in present for source in cleaning.job.segments)

    def _may_change(self, cleaning: Cleaning) -> bool:
        """Return whether segments of a pass may be put into service, as far as that depends on the log as a whole."""
        log = cleaning.log
        return (
            self._is_in_service(log)
            and not self._is_being_moved(log)
            and log.truncation_count == cleaning.truncation_count
            and "compact" in log.config.cleanup_policy
        )

    def make_durable(self, cleaning: Cleaning) -> None:
        """Raise the recovery point on the disk to the end of the segments that a pass has read. Call before `finish`.

        A cleaned segment may end before the base offset of the next one. Above the recovery point, recovery would treat
        such a gap as records lost in a power cut. Waits for the disk; any thread.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
            OutOfResourcesError: the checkpoint met a shortage of descriptors or memory.
        """
        log = cleaning.log
        if log.is_offline:
            return
        if log.durability.recovery_point < cleaning.job.segments[-1].next_offset:
            log.durability.flush_sealed()
        try:
            cleaning.directory.write_recovery_points()
        except OSError as error:
            self._log_manager.directories.fail(cleaning.directory, error)
            if isinstance(error, ShortageError):
                # The directory stays online, so without this error the caller would call `finish`.
                raise OutOfResourcesError(error) from error

    async def finish(
        self,
        cleaning: Cleaning,
        result: CleaningResult,
        *,
        now_ms: int,
        between_writes: Callable[[Log, Callable[[], bool]], Awaitable[bool]],
        pause: Pause,
    ) -> bool:
        """Replace the old segments by the cleaned ones. Return False if the log has changed too much for that.

        `between_writes` calls a function while no append to the log is being written. Pauses after each segment that
        is replaced, from the log's start on. If the log changes in between, the later ones stay as they were, and the
        next pass cleans all again.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        log = cleaning.log
        is_wanted = self.is_wanted(cleaning)
        for each in result.segments:
            is_wanted = is_wanted and await between_writes(log, partial(self._swap_in, cleaning, each, now_ms))
            await pause()
        if not is_wanted or not self._may_change(cleaning):
            self.give_back(cleaning)
            return False
        self._in_progress.discard(log.name)
        self._worker_ends.pop(log.name, None)
        self._first_dirty[log.name] = result.end_offset
        self._unwritten.add(cleaning.directory.path)
        self._figures.cleaned(cleaning.worker, result)
        _log_result(cleaning, result)
        return True

    def _swap_in(self, cleaning: Cleaning, cleaned: CleanedSegment, now_ms: int) -> bool:
        return self._may_change(cleaning) and cleaning.log.disposal.swap_in(cleaned, now_ms=now_ms)

    def give_back(self, cleaning: Cleaning) -> None:
        """Make the log of a stopped pass available to `pick` again. Nothing may still read or write its files."""
        try:
            unstage(self._files, cleaning.job.directory)
        except OSError as error:
            self._log_manager.directories.fail(cleaning.directory, error)
        self._in_progress.discard(cleaning.log.name)

    def worker_ended(self, cleaning: Cleaning, now_ms: int) -> None:
        """Note that a pass has ended with its worker, perhaps by what ends every one: the log needs too much memory."""
        name = cleaning.log.name
        passes = self._worker_ends.get(name, _NO_ENDS).passes
        pause_ms = min(LAST_MS << min(passes, 10), LAST_MS_MAX)
        self._worker_ends[name] = _WorkerEnds(passes + 1, now_ms + pause_ms)

    def fail(self, cleaning: Cleaning, error: Exception) -> None:
        """Handle the error that ended a pass.

        An error of the disk takes the directory offline. Damaged data excludes the log from cleaning. After a shortage
        of descriptors or memory the log is due again once the caller has called `give_back`. Any error is ignored if
        the result is no longer wanted.
        """
        log = cleaning.log
        if isinstance(error, ShortageError):
            self._log_manager.shortages.report(error)
            return
        self._in_progress.discard(log.name)
        if not self.is_wanted(cleaning):
            return  # its files were removed on purpose
        if isinstance(error, OSError):
            self._log_manager.directories.fail(cleaning.directory, error)
            return
        self._count_damage(log, error)
        level = logging.ERROR if not isinstance(error, _UNCLEANABLE) else logging.WARNING
        _logger.log(level, "%s-%d cannot be cleaned until the next start: %s", log.topic, log.partition, error)
        self.uncleanable.add(log.name)

    async def delete_expired(self, now_ms: int, pause: Pause, in_thread: InThread) -> int:
        """Delete expired segments of the compacted logs that no pass is reading; return their number.

        Segments below the log start are deleted always, older ones only if cleanup.policy also contains delete.
        """
        logs = [
            log for log in self._log_manager.logs() if self.owns_retention_of(log) and log.name not in self._in_progress
        ]
        return await self._log_manager.run_retention(now_ms, pause, in_thread, logs)

    # Changes of logs

    def owns_retention_of(self, log: Log) -> bool:
        return "compact" in log.config.cleanup_policy

    def truncated(self, log: Log) -> None:
        first_dirty = self._first_dirty.get(log.name)
        if not self._is_in_service(log) or first_dirty is None:
            return  # not in service: for example a copy that is being moved to another directory
        if first_dirty > log.segments.active.base_offset:
            self._first_dirty[log.name] = log.segments.active.base_offset
            self._want_checkpoint(log)
            # The checkpoint must be lowered before new records reach the old offset: after a crash they would count as
            # clean.
            self._report_wanted_checkpoint()

    def moved(self, log: Log, old_directory: LogDirectory) -> None:
        """Move the checkpoint of a log, which is kept in the log's directory."""
        self._unwritten.update((old_directory.path, str(log.directory.parent)))
        self._report_wanted_checkpoint()

    def _report_wanted_checkpoint(self) -> None:
        for listener in self._checkpoint_listeners:
            listener()

    def deleted(self, name: TopicPartition) -> None:
        self._first_dirty.pop(name, None)
        self.uncleanable.discard(name)
        self._worker_ends.pop(name, None)
        self._unwritten.update(directory.path for directory in self._log_manager.directories.live)
        self._report_wanted_checkpoint()

    def _want_checkpoint(self, log: Log) -> None:
        directory = self._log_manager.directory_of(log.topic, log.partition)
        if directory is not None:
            self._unwritten.add(directory.path)

    def write_checkpoints(self) -> None:
        """Write the checkpoints of the directories that changed since the last call. Any thread; calls run in turn."""
        with self._writing:
            paths = set()
            while self._unwritten:  # popped one by one, because the thread that owns the logs may add to it
                paths.add(self._unwritten.pop())
            for directory in self._log_manager.directories.live:
                if directory.path in paths:
                    self._write_checkpoint(directory)

    def _write_checkpoint(self, directory: LogDirectory) -> None:
        def offsets() -> dict[TopicPartition, int]:
            return {
                name: offset
                for name, offset in self._first_dirty.copy().items()  # in one step, see `_LogCheckpoint.write`
                if (log := directory.logs.get(name)) is not None and not log.is_future
            }

        try:
            directory.write_cleaner_offsets(offsets)
        except OSError as error:
            self._unwritten.add(directory.path)
            self._log_manager.directories.fail(directory, error)

    # For metrics

    def metrics(self, now_ms: int) -> CleanerMetrics:
        return self._figures.at(now_ms)

    def uncleanable_in(self, directory: LogDirectory, now_ms: int) -> Uncleanable:
        """Return the number and the readable cleanable bytes of the uncleanable logs of a log directory."""
        logs = [
            log
            for name, log in directory.logs.items()
            if name in self.uncleanable or self._worker_ends.get(name, _NO_ENDS).passes >= _ENDS_REPORTED
        ]
        count_of_bytes = 0
        for log in logs:
            with contextlib.suppress(OSError, SegmentGoneError, *_UNCLEANABLE):
                count_of_bytes += self.cleanable_part_of(log, now_ms).cleanable_bytes
        return Uncleanable(len(logs), count_of_bytes)

    def _read(self, log: Log, read: Callable[[], T]) -> T | None:
        """Return the result of `read`. If it fails, exclude the log from cleaning and return None."""
        try:
            return read()
        except OSError as error:
            directory = self._log_manager.directory_of(log.topic, log.partition)
            if directory is not None:
                self._log_manager.directories.fail(directory, error)
        except (KafkaError, *_UNCLEANABLE) as error:
            self._count_damage(log, error)
            _logger.warning("%s cannot be cleaned until the next start: %s", partition_name(log.name), error)
            self.uncleanable.add(log.name)
        return None

    def _count_damage(self, log: Log, error: Exception) -> None:
        if isinstance(error, CorruptSegmentError | Malformed):
            self._log_manager.damaged_batches.add(MetBy.CLEANING, error, str(log.directory))

    def cleanable_part_of(self, log: Log, now_ms: int) -> CleanableLog:
        """Return which segments of a log can be cleaned. Raises OSError, CorruptIndexError, CorruptSegmentError."""
        config = log.config
        *sealed, active = log.segments.all()
        segments = [
            DirtySegment(segment.base_offset, segment.size, segment.first_timestamp_ms, segment.largest().timestamp_ms)
            for segment in sealed
        ]
        segments.append(DirtySegment(active.base_offset, active.size, NO_TIMESTAMP, NO_TIMESTAMP))  # it is never clean
        limits = CompactionLimits(log.last_stable_offset, config.min_compaction_lag_ms, config.max_compaction_lag_ms)
        return cleanable_part(segments, self._first_dirty.get(log.name), log.log_start_offset, limits, now_ms)

    def _may_be_cleaned(self, log: Log) -> bool:
        return (
            "compact" in log.config.cleanup_policy
            and not log.is_offline
            and log.name not in self._in_progress
            and log.name not in self.uncleanable
            and not self._is_being_moved(log)
            and not log.planned.is_reserved  # for a truncation, which removes its files in another thread
        )

    def _is_in_service(self, log: Log) -> bool:
        return self._log_manager.get(log.topic, log.partition) is log and not log.is_offline

    def _is_being_moved(self, log: Log) -> bool:
        # The copy would keep records that a pass removes, although they would be below the first dirty offset.
        return self._log_manager.future(log.topic, log.partition) is not None

    def _job(self, log: Log, part: CleanableLog, now_ms: int) -> CleaningJob:
        config, settings = log.config, self.settings
        segments = log.segments.all()
        sources = [
            SourceSegment(
                segment.base_offset,
                following.base_offset,
                segment.size,
                segment.offset_index.size,
                segment.time_index.size,
                segment.on_disk.modified_ms,
            )
            for segment, following in pairwise(segments)
            if following.base_offset <= part.first_uncleanable_offset
        ]
        threads = max(settings.threads, 1)
        return CleaningJob(
            directory=str(log.directory),
            segments=sources,
            later_segments=[
                segment.base_offset
                for segment in segments
                if sources[-1].next_offset <= segment.base_offset < log.high_watermark
            ],
            first_dirty_offset=part.first_dirty_offset,
            # From the base of the first segment on, not from the log start: markers must not be removed before the
            # aborted data below the log start.
            aborted=log.reader.aborted_transactions(segments[0].base_offset, part.first_uncleanable_offset),
            producers=_active_producers(log, part.first_uncleanable_offset),
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            map_memory=min(settings.dedupe_buffer_size // threads, MAP_MEMORY_MAX),
            map_load_factor=settings.load_factor,
            bytes_per_second_max=settings.bytes_per_second_max / threads,
            buffer_size=settings.io_buffer_size // threads // 2,
        )


def _active_producers(log: Log, end_offset: int) -> dict[int, ActiveProducer]:
    """Return what a pass up to `end_offset` has to keep of each producer: nothing if its last data comes later."""
    high_watermark = log.high_watermark
    found = {}
    for producer_id, entry in log.producer_state.producers.items():  # on the event loop, and there may be 100,000
        last_offset = entry.batches[-1].last_offset if entry.batches else NONE
        if last_offset >= high_watermark:
            last_offset = _last_committed_data_offset(entry, high_watermark)
        if last_offset < end_offset:
            found[producer_id] = _new_tuple(ActiveProducer, (last_offset, entry.epoch))
    return found


def _last_committed_data_offset(entry: ProducerEntry, high_watermark: int) -> int:
    """Return the last offset of the producer's last batch below the high watermark: a truncation may remove later ones.

    Of a producer with five later batches it returns that of the last batch.
    """
    committed = (batch.last_offset for batch in reversed(entry.batches) if batch.last_offset < high_watermark)
    return next(committed, entry.last_data_offset)


def _log_result(cleaning: Cleaning, result: CleaningResult) -> None:
    removed = 100.0 * (1 - result.bytes_kept / result.bytes_read) if result.bytes_read else 0.0
    _logger.info(
        "%s-%d cleaned from %d to %d: %d of %d records and %d of %d bytes kept (%.1f %% less), map %.0f %% full, "
        "%.1f s for the map, %.1f s to copy",
        cleaning.log.topic,
        cleaning.log.partition,
        cleaning.job.first_dirty_offset,
        result.end_offset,
        result.records_kept,
        result.records_read,
        result.bytes_kept,
        result.bytes_read,
        removed,
        100 * result.map_utilization,
        result.map_seconds,
        result.copy_seconds,
    )
    if result.records_without_key:
        _logger.warning(
            "%s-%d: dropped %d invalid messages, which have no key",
            cleaning.log.topic,
            cleaning.log.partition,
            result.records_without_key,
        )
