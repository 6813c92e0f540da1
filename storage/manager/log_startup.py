"""The start of the logs: checks the log directories, finds their logs, and loads them in parallel.

Owns the order of a start: lock the directories, check that they belong to this broker, complete moves that a crash
interrupted, reject two logs of one partition, load. Must not know what happens to a log once it is loaded.

Threads: `open`, `claim` and `load` block until done. `load` uses threads of its own for the logs of each directory.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from posixpath import basename, dirname
from threading import Lock, get_ident
from typing import Final, NamedTuple, Protocol

from base.dataclass import dataclass
from base.topic_partition import TopicPartition, partition_name
from config.broker import BrokerConfig
from config.broker_properties import (
    LOG_SEGMENT_DELETE_DELAY_MS,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
    PRODUCER_ID_EXPIRATION_MS,
)
from config.log_config import LogConfig
from protocol.errors import KafkaError
from storage.batches.damaged_batches import DamagedBatches, MetBy
from storage.directories.log_directories import LogDirectories
from storage.directories.log_directory import LogDirectory
from storage.disk import meta_properties, names
from storage.disk.files import Files, ShortageError
from storage.disk.meta_properties import MetaProperties
from storage.disk.names import DirectoryState
from storage.disk.shortages import OutOfResourcesError
from storage.log import log_opening
from storage.log.log import Log
from storage.log.log_state import LogOptions
from storage.manager import log_moves
from storage.manager.log_moves import FoundLog, LogContents
from storage.manager.log_table import LogTable
from storage.manager.removals import Removals
from storage.recovery.log_loader import LoadProgress
from storage.segments.segment import CorruptSegmentError

_GAPS_ANYWHERE: Final = 2**63 - 1

_SHORTAGE_AT_START: Final = "out of descriptors or memory, which is no error of the disk"

_logger = logging.getLogger(__name__)


class NoUsableDirectoryError(Exception):
    """Every log directory has failed. Names them with their errors."""


class LoadError(Exception):
    """The start ran out of descriptors or memory. Names the file."""


class DuplicateLogError(Exception):
    """Two log directories hold the same partition. Names both."""


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    recovery_threads_per_directory: int = 1
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = 86_400_000

    @classmethod
    def of(cls, config: BrokerConfig) -> "LogManagerSettings":
        return cls(
            recovery_threads_per_directory=config[NUM_RECOVERY_THREADS_PER_DATA_DIR],
            file_delete_delay_ms=config[LOG_SEGMENT_DELETE_DELAY_MS],
            producer_id_expiration_ms=config[PRODUCER_ID_EXPIRATION_MS],
        )


class LoadStatus(NamedTuple):
    """The progress of a load. `bytes_total` is what has to be scanned after an unclean stop; 0 after a clean one."""

    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int


class _SegmentsLeft:
    """How many segments each thread of a load is still to scan in its present log. Any thread."""

    def __init__(self, directories: Iterable[str], threads: int) -> None:
        self._counts: Mapping[str, dict[int, int]] = {path: dict.fromkeys(range(threads), 0) for path in directories}
        self._numbers: Mapping[str, dict[int, int]] = {path: {} for path in self._counts}  # by thread
        self._present: dict[int, tuple[dict[int, int], int]] = {}  # counts and number, by thread
        self._lock = Lock()

    def begin(self, directory: str) -> None:
        """Record that the calling thread loads a log of `directory`."""
        thread, numbers = get_ident(), self._numbers[directory]
        with self._lock:
            self._present[thread] = self._counts[directory], numbers.setdefault(thread, len(numbers))
        self.set(0)

    def set(self, count: int) -> None:
        """Set the count of the calling thread."""
        counts, number = self._present[get_ident()]
        counts[number] = count

    def of(self, directory: str) -> Mapping[int, int]:
        """Return the counts of the threads of `directory`, by their numbers."""
        return self._counts.get(directory, {})


class _Progress(LoadProgress):
    """Counts for all threads of a load, without a lock: a lost update only makes a progress line wrong by a batch."""

    def __init__(self, damaged_batches: DamagedBatches, segments_left: _SegmentsLeft) -> None:
        self.logs_done = self.logs_total = self.bytes_done = self.bytes_total = 0
        self._damaged_batches = damaged_batches
        self._segments_left = segments_left

    def on_damage(self, text: str) -> None:
        _logger.warning(text)

    def on_damaged_batch(self, damage: CorruptSegmentError) -> None:
        self._damaged_batches.add(MetBy.RECOVERY, damage, dirname(damage.path))

    def on_bytes_scanned(self, size: int) -> None:
        self.bytes_done += size

    def on_segments_left(self, count: int) -> None:
        self._segments_left.set(count)

    @property
    def status(self) -> LoadStatus:
        return LoadStatus(self.logs_done, self.logs_total, self.bytes_done, self.bytes_total)


class _Offsets(NamedTuple):
    """The content of the checkpoints of a log directory."""

    is_clean: bool
    is_own: bool
    """Whether only this program has written since the last clean stop."""
    recovery_points: dict[TopicPartition, int] | None  # None without a usable checkpoint
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    first_dirty: dict[TopicPartition, int]
    knows_cleaned: bool
    """Whether `first_dirty` names every log that was ever cleaned."""


class _LogToLoad(NamedTuple):
    directory: LogDirectory
    path: str
    name: TopicPartition
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    is_clean: bool
    gaps_below: int  # see `log_opening.load`


class StartedLogs(Protocol):
    """The owner of the logs that a start loads."""

    settings: LogManagerSettings
    damaged_batches: DamagedBatches

    def options_of(self, directory: LogDirectory) -> LogOptions[Log]: ...

    def marked_name(self, name: TopicPartition, state: DirectoryState) -> str: ...


class LogStartup:
    """One start of all logs: `open`, `claim`, `load`, in this order."""

    def __init__(
        self,
        logs: StartedLogs,
        table: LogTable,
        removals: Removals,
        directories: LogDirectories,
        files: Files,
        files_beside: Collection[str],
    ) -> None:
        """`files_beside` names files that others keep in the log directories."""
        self._logs = logs
        self._table = table
        self._removals = removals
        self._directories = directories
        self._files = files
        self._files_beside = files_beside
        self._lost: dict[TopicPartition, tuple[str, int]] = {}
        self._logs_to_load: Counter[str] = Counter()  # by directory during `load`, empty before and after
        self._segments_left = _SegmentsLeft((), 0)  # with threads during `load` only

    def open(self) -> MetaProperties | None:
        """Lock all directories; return the broker and cluster that they belong to, or None if all are new.

        A directory that cannot be used goes offline with an error in the log.

        Raises:
            DirectoryLockedError: another broker uses a directory.
            WrongDirectoryError: two directories belong to different brokers or clusters.
            NoUsableDirectoryError: all directories failed.
            LoadError: descriptors or memory ran out.
        """
        errors = []
        metas: dict[LogDirectory, MetaProperties | None] = {}
        for directory in self._directories:
            try:
                directory.open()
                metas[directory] = directory.read_meta()
            except OSError as error:
                errors.append(f"{directory.path}: {error}")
                self._fail_at_start(directory, error)
        if not self._directories.live:
            raise NoUsableDirectoryError(f"None of the log directories can be used: {'; '.join(errors)}")
        owner: MetaProperties | None = None
        for directory, meta in metas.items():
            if owner is None or meta is None:
                owner = owner or meta
                continue
            meta_properties.verify(meta, directory.meta_path, broker_id=owner.broker_id, cluster_id=owner.cluster_id)
            broker_id = meta.broker_id if owner.broker_id is None else owner.broker_id
            owner = MetaProperties(broker_id, owner.cluster_id or meta.cluster_id)
        return owner

    def has_partitions(self) -> bool:
        """Return whether a directory holds partitions, or cannot be read."""
        try:
            return any(directory.partition_directories() for directory in self._directories.live)
        except OSError:
            return True

    def claim(self, meta: MetaProperties) -> None:
        """Record in each new directory that it belongs to `meta`, and what the file of an early release lacks.

        A directory with an I/O error goes offline. Raises WrongDirectoryError if a directory belongs to another broker
        or cluster; LoadError.
        """
        for directory in self._directories.live:
            try:
                found = directory.read_meta()
                if found is not None:
                    meta_properties.verify(
                        found, directory.meta_path, broker_id=meta.broker_id, cluster_id=meta.cluster_id
                    )
                if found is None or not found.is_complete:
                    directory.write_meta(meta)
            except OSError as error:
                self._fail_at_start(directory, error)

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        *,
        now_ms: int,
        on_progress: Callable[[LoadStatus], None] = lambda status: None,
    ) -> None:
        """Load every log, and repair those that an unclean stop left. `on_progress` is called about twice a second.

        A directory with an I/O error goes offline, and the others are loaded.

        Raises:
            ForeignDirectoryError: a directory is no partition's.
            DuplicateLogError: two directories hold the same partition.
            NoUsableDirectoryError: all directories failed.
            LoadError: descriptors or memory ran out.
        """
        threads = self._logs.settings.recovery_threads_per_directory
        self._segments_left = _SegmentsLeft(self._live_paths(), threads)
        progress = _Progress(self._logs.damaged_batches, self._segments_left)
        to_load, unclean = self._find_logs(now_ms)
        progress.logs_total = len(to_load)
        self._logs_to_load = Counter(item.directory.path for item in to_load)
        progress.bytes_total = sum(self._bytes_to_scan(item) for item in to_load if not item.is_clean)
        self._directories.run_in_threads(
            to_load,
            lambda item: item.directory,
            lambda item: self._load_log(item, config_of(item.name[0]), now_ms, progress),
            lambda: on_progress(progress.status),
            threads=threads,
        )
        self._logs_to_load.clear()
        self._segments_left = _SegmentsLeft((), 0)
        # From now on, a log that the checkpoint does not name was never synced. A missing checkpoint proves nothing.
        for directory in dict.fromkeys([*unclean, *_shorter_than_checkpointed(to_load)]):
            if not directory.is_offline:
                try:
                    directory.write_recovery_points()
                    if not directory.has_writer_marker():
                        directory.write_writer_marker()
                except OSError as error:
                    self._fail_at_start(directory, error)
        if not self._directories.live:
            raise NoUsableDirectoryError("None of the log directories could be loaded")

    def remaining_logs_in(self, directory: LogDirectory) -> int:
        """Return how many logs of a directory are still to be loaded; 0 outside of `load`. Any thread."""
        return max(self._logs_to_load[directory.path] - len(directory.logs), 0)

    def remaining_segments_in(self, directory: LogDirectory) -> Mapping[int, int]:
        """Return how many segments each thread of a directory is still to scan in its present log, by thread number.

        Empty outside of `load`. Any thread.
        """
        return self._segments_left.of(directory.path)

    def take_lost(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Return the log directory and the checkpointed high watermark of a log that had lost records at the load.

        Such a log ends below its high watermark, or a checkpoint names it but no directory holds it. None for another
        log, and at a second call.
        """
        return self._lost.pop((topic, partition), None)

    def _find_logs(self, now_ms: int) -> tuple[list[_LogToLoad], list[LogDirectory]]:
        """Settle moves that a crash interrupted; return the logs to load and the directories not closed cleanly.

        Raises DuplicateLogError.
        """
        found: list[FoundLog] = []
        offsets: dict[str, _Offsets] = {}
        for directory in self._directories.live:
            try:
                listed = list(self._list_logs(directory, now_ms))
                for path in directory.unknown_files():
                    if basename(path) not in self._files_beside:
                        _logger.warning("%s is not a file of a log directory; it is not changed", path)
                is_own = directory.has_writer_marker() or not listed
                is_clean = directory.remove_clean_marker()
                cleaner_offsets = directory.read_cleaner_offsets(_logger.warning)
                offsets[directory.path] = _Offsets(
                    is_clean,
                    is_own,
                    directory.read_recovery_points(_logger.warning),
                    directory.read_log_starts(_logger.warning),
                    directory.read_high_watermarks(_logger.warning),
                    cleaner_offsets or {},
                    knows_cleaned=cleaner_offsets is not None,
                )
            except OSError as error:
                self._fail_at_start(directory, error)
                continue
            found.extend(listed)
            if listed and not is_clean:
                _logger.info(
                    "%s was not closed cleanly: its logs are scanned from their recovery points", directory.path
                )
        directories = {directory.path: directory for directory in self._directories.live}
        recovery_points = {path: each.recovery_points or {} for path, each in offsets.items()}

        def contents_of(one: FoundLog) -> LogContents | None:
            return self._contents_of(one, recovery_points[one.directory].get(one.name, 0))

        settled = log_moves.settle(found, directories, self._marker_of, contents_of)
        served = settled.served
        for one in settled.promoted:
            _logger.warning("%s is a complete copy and replaces its log", one.path)
            served.extend(self._renamed(one, names.partition_directory(*one.name)))
        for one in settled.retired:
            _logger.warning("%s is removed: another directory holds the log since a move", one.path)
            for renamed in self._renamed(one, self._logs.marked_name(one.name, DirectoryState.DELETE)):
                self._remove_later(directories[one.directory], renamed.path, now_ms)
        _refuse_duplicates(served)
        present = {one.name for one in found}
        self._lost = {
            name: (path, high_watermark)
            for path, each in offsets.items()
            for name, high_watermark in each.high_watermarks.items()
            if name not in present
        }
        # If a log was moved just before the stop, only the checkpoint of its old directory may name it.
        cleaned: dict[TopicPartition, int] = {}
        for each in offsets.values():
            for name, first_dirty in each.first_dirty.items():
                cleaned[name] = max(first_dirty, cleaned.get(name, 0))
        # Without a cleaner checkpoint, a gap in any log may come from cleaning.
        unlisted = 0 if all(each.knows_cleaned for each in offsets.values()) else _GAPS_ANYWHERE
        to_load = [
            self._to_load(
                directories[one.directory],
                one,
                offsets[one.directory],
                gaps_below=max(cleaned.get(one.name, 0), unlisted),
            )
            for one in served
        ]
        return to_load, [
            directories[path] for path, each in offsets.items() if not each.is_clean and path in directories
        ]

    def _list_logs(self, directory: LogDirectory, now_ms: int) -> Iterator[FoundLog]:
        for path, parsed in directory.partition_directories():
            if parsed.state is DirectoryState.STRAY:
                _logger.warning("%s is left as it is: the metadata does not know this replica", path)
            elif parsed.state is DirectoryState.DELETE:
                self._remove_later(directory, path, now_ms)
            else:
                yield FoundLog(directory.path, path, (parsed.topic, parsed.partition), parsed.state)

    def _marker_of(self, found: FoundLog) -> str | None:
        try:
            return log_moves.read_marker(self._files, found.path)
        except OSError as error:
            self._fail_at_start(self._directory_with(found.directory), error)
            return None

    def _contents_of(self, found: FoundLog, recovery_point: int) -> LogContents | None:
        """Return how far a log reaches; None if its directory failed at that."""
        try:
            return log_moves.read_contents(self._files, found.path, recovery_point)
        except OSError as error:
            self._fail_at_start(self._directory_with(found.directory), error)
            return None

    def _renamed(self, found: FoundLog, name: str) -> list[FoundLog]:
        """Rename a partition directory durably; return it, or nothing if its log directory failed."""
        directory = self._directory_with(found.directory)
        try:
            path = directory.rename_partition_directory(found.path, name)
            directory.sync()
        except OSError as error:
            self._fail_at_start(directory, error)
            return []
        return [found._replace(path=path, state=DirectoryState.CURRENT)]

    def _live_paths(self) -> set[str]:
        return {directory.path for directory in self._directories.live}

    def _directory_with(self, path: str) -> LogDirectory:
        return next(one for one in self._directories if one.path == path)

    def _to_load(self, directory: LogDirectory, found: FoundLog, offsets: _Offsets, *, gaps_below: int) -> _LogToLoad:
        recovery_points = offsets.recovery_points
        return _LogToLoad(
            directory,
            found.path,
            found.name,
            offsets.log_starts.get(found.name, 0),
            0 if recovery_points is None else recovery_points.get(found.name, 0),
            offsets.high_watermarks.get(found.name, 0),
            offsets.is_clean,
            # Without recovery points a gap may lie below what was synced, so it does not prove that records were lost.
            # Nor does a gap that another program has left.
            gaps_below if offsets.is_own and recovery_points is not None else _GAPS_ANYWHERE,
        )

    def _remove_later(self, directory: LogDirectory, path: str, now_ms: int) -> None:
        self._removals.later(directory, path, due_ms=now_ms + self._logs.settings.file_delete_delay_ms)

    def _bytes_to_scan(self, item: _LogToLoad) -> int:
        try:
            entries = self._files.list_directory(item.path)
        except OSError:
            return 0  # loading the log will meet and report the same error
        parsed = ((names.parse_segment_file(entry.name), entry.size) for entry in entries)
        logs = [(name.base_offset, size) for name, size in parsed if name is not None and name.suffix == names.LOG]
        first = max((base for base, _ in logs if base <= item.recovery_point), default=0)
        return sum(size for base, size in logs if base >= first)

    def _load_log(self, item: _LogToLoad, config: LogConfig, now_ms: int, progress: _Progress) -> None:
        if item.directory.is_offline:
            return
        self._segments_left.begin(item.directory.path)
        try:
            log = log_opening.load(
                self._logs.options_of(item.directory),
                item.path,
                item.name,
                config,
                log_start_offset=item.log_start_offset,
                recovery_point=item.recovery_point,
                high_watermark=item.high_watermark,
                is_clean=item.is_clean,
                gaps_below=item.gaps_below,
                now_ms=now_ms,
                progress=progress,
            )
            if item.gaps_below == _GAPS_ANYWHERE and not item.is_clean:
                log.durability.flush(now_ms)  # so that the next start finds the accepted gaps below the recovery point
            if log.is_future or log_moves.read_marker(self._files, item.path) in self._live_paths():
                log_moves.remove_marker(self._files, item.path)
        except OSError as error:
            self._fail_at_start(item.directory, error)
            return
        except OutOfResourcesError as error:
            # Without this log the partition would seem to have vanished, and would get a new, empty log.
            raise LoadError(f"{_SHORTAGE_AT_START}: {error}") from error
        except KafkaError:
            return  # the log has reported the error, and its directory is offline
        if log.log_end_offset < item.high_watermark and not log.is_future:
            _logger.warning(
                "%s ends at offset %d, but was committed up to offset %d: records were lost",
                item.path,
                log.log_end_offset,
                item.high_watermark,
            )
            self._lost[item.name] = item.directory.path, item.high_watermark
        # A snapshot may still hold a producer that expired before the stop: it must not come back.
        log.expire_producers(now_ms, self._logs.settings.producer_id_expiration_ms)
        self._table.add(log, item.directory)
        progress.logs_done += 1

    def _fail_at_start(self, directory: LogDirectory, error: Exception) -> None:
        """Take a directory offline, unless it was a shortage.

        Raises LoadError for a shortage: a start repeats nothing, and a broker with some of its logs is of no use.
        """
        if isinstance(error, ShortageError):
            raise LoadError(f"{_SHORTAGE_AT_START}: {error}") from error
        self._directories.fail(directory, error)


def _shorter_than_checkpointed(loaded: Iterable[_LogToLoad]) -> list[LogDirectory]:
    """Return the directories with a log that ends below its checkpointed recovery point.

    Their checkpoints must be rewritten: otherwise later appends would count as synced.
    """
    return list(
        dict.fromkeys(
            item.directory
            for item in loaded
            if (log := item.directory.logs.get(item.name)) is not None
            and log.durability.recovery_point < item.recovery_point
        )
    )


def _refuse_duplicates(items: Iterable[FoundLog]) -> None:
    paths: dict[TopicPartition, str] = {}
    for item in items:
        if item.state is DirectoryState.FUTURE:
            continue
        if item.name in paths:
            raise DuplicateLogError(
                f"{partition_name(item.name)} lies in {paths[item.name]} and in {item.path}: "
                f"a partition must be in one log directory only"
            )
        paths[item.name] = item.path
