"""All logs of a broker, over one or several log directories.

Owns which directory a log lives in, loading and closing, deferred deletion, checkpoints, and what happens when a
directory fails. Must not know replicas, leaders or requests. Has no timer: the broker calls the periodic methods.

A log that is being moved has a copy in another directory, its future log (`storage.log_moves`). The copy is flushed,
checkpointed and closed like a log, and is found by `future` only.

Threads: `get`, `create`, `delete`, what concerns future logs, `run_retention`, `expire_producers` and `release_idle`
belong to the thread that owns the logs; `create` and the last three go over logs in steps, between which others may
have their turn (see `Steps`). `flush_due`, `start_writeback`, `checkpoint_*`, `remove_deleted`, `free_names`,
`mark_future_whole` and `finish_move` wait for the disk and are meant for another one. `open`, `load` and `close` block
until done and use threads of their own for the logs of a directory.

Invariants: a partition has one log and at most one copy of it, in different directories; a directory that failed stays
offline until a restart, its logs answer KAFKA_STORAGE_ERROR and the others go on. A shortage of descriptors or memory
takes no directory offline: what met it is tried again, or raises OutOfResourcesError; a start ends with LoadError.
"""

import contextlib
import logging
import os.path
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from config.broker import BrokerConfig
from config.broker_properties import (
    LOG_SEGMENT_DELETE_DELAY_MS,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
    PRODUCER_ID_EXPIRATION_MS,
)
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from storage import log_moves, meta_properties, names
from storage.checkpoints import TopicPartition
from storage.damaged_batches import DamagedBatches, MetBy
from storage.directory_writer import DirectoryWriter, Start
from storage.files import Files, ShortageError
from storage.log import Log, LogOptions
from storage.log_directory import DirectoryLockedError, ForeignDirectoryError, LogDirectory
from storage.log_loader import LoadProgress
from storage.log_moves import FoundLog, LogContents
from storage.meta_properties import MetaProperties, WrongDirectoryError
from storage.names import DirectoryState, can_have_future
from storage.segment import CorruptSegmentError, Segment
from storage.shortages import OutOfResourcesError, Shortages, TryLaterError

__all__ = [
    "DirectoryLockedError",
    "DuplicateLogError",
    "ForeignDirectoryError",
    "LoadError",
    "LoadStatus",
    "LogManager",
    "LogManagerSettings",
    "LogObserver",
    "NewLog",
    "NoUsableDirectoryError",
    "Steps",
    "WrongDirectoryError",
]

_PROGRESS_INTERVAL_SECONDS: Final = 0.5

_PREFERENCES_MAX: Final = 100_000

_GAPS_ANYWHERE: Final = 2**63 - 1

_SHORTAGE_AT_START: Final = "out of descriptors or memory, which is no error of the disk"

_logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

Steps: TypeAlias = Generator[Callable[[], object] | None, None, _Result]
"""Work on logs in steps. A step that yields a callable waits until that was called in a thread that may wait for a
disk; everything else belongs to the thread that owns the logs, and after a None others may have their turn."""


class NoUsableDirectoryError(Exception):
    """Every log directory has failed. Names them with their errors."""


class LoadError(Exception):
    """The start has run out of descriptors or memory. Names the file."""


class DuplicateLogError(Exception):
    """The same partition lies in two log directories. Names both."""


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
    """How far a load is. `bytes_total` counts what has to be scanned after an unclean stop; 0 after a clean one."""

    logs_done: int
    logs_total: int
    bytes_done: int
    bytes_total: int


class NewLog(NamedTuple):
    """A log to be created; `topic_id` is None if the controller is too old to know it."""

    name: TopicPartition
    topic_id: UUID | None
    config: LogConfig


class _Progress(LoadProgress):
    """Counts for all threads of a load. A lost update shifts a progress line by one batch, nothing else."""

    def __init__(self, damaged_batches: DamagedBatches) -> None:
        self.logs_done = self.logs_total = self.bytes_done = self.bytes_total = 0
        self._damaged_batches = damaged_batches

    def on_damage(self, text: str) -> None:
        _logger.warning(text)

    def on_damaged_batch(self, damage: CorruptSegmentError) -> None:
        self._damaged_batches.add(MetBy.RECOVERY, damage, os.path.dirname(damage.path))

    def on_bytes_scanned(self, size: int) -> None:
        self.bytes_done += size

    @property
    def status(self) -> LoadStatus:
        return LoadStatus(self.logs_done, self.logs_total, self.bytes_done, self.bytes_total)


class _Offsets(NamedTuple):
    """What the root of a log directory says about all its logs."""

    is_clean: bool
    recovery_points: dict[TopicPartition, int] | None  # None when they are not known
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
    gaps_below: int  # see `Log.load`


class _ToRemove(NamedTuple):
    """A partition directory whose files go when it is due; `log` may still be read until then."""

    due_ms: int
    directory: LogDirectory
    path: str
    log: Log | None


class LogObserver:
    """Who keeps something about logs by their names. As it stands it keeps nothing. Called by the owning thread."""

    def owns_retention_of(self, log: Log) -> bool:
        """Whether the observer applies retention to this log, because it knows when the segments may go."""
        return False

    def truncated(self, log: Log) -> None: ...

    def deleted(self, name: TopicPartition) -> None: ...


class LogManager:
    """See the module. `on_directory_failed(path, error)` may be called from any thread, once for each directory.

    `observer` may be replaced at any time. `files_beside` names files that others keep in the log directories.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        settings: LogManagerSettings,
        files: Files,
        *,
        random: Random,
        on_directory_failed: Callable[[str, Exception], None] = lambda path, error: None,
        files_beside: Collection[str] = (),
    ) -> None:
        self._files = files
        self._random = random
        self._on_directory_failed = on_directory_failed
        self._files_beside = files_beside
        self._logs: dict[TopicPartition, Log] = {}
        self._future_logs: dict[TopicPartition, Log] = {}
        self._home: dict[Log, LogDirectory] = {}
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._to_remove: list[_ToRemove] = []
        self._flush_wanted: dict[Log, None] = {}
        self._first_dirty_found: dict[str, dict[TopicPartition, int]] = {}
        self._vanished: dict[TopicPartition, tuple[str, int]] = {}
        self.settings = settings
        self.shortages = Shortages()
        self.observer = LogObserver()
        self.damaged_batches = DamagedBatches()
        self.on_flushed: Callable[[float], object] = lambda seconds: None
        """Told in any thread how long each flush of a log took."""
        self.on_write_finished: Callable[[Log], object] = lambda log: None
        """Told of each append that waited for a slow directory, when it was written or has failed."""
        self.on_log_start_raised: Callable[[Log], object] = lambda log: None
        """Told when the start of a log in service was raised, in the thread that owns it."""
        self.on_log_offline: Callable[[Log], object] = lambda log: None
        """Told in any thread when a log in service refuses everything from now on."""
        self._marking = threading.Lock()  # held while markers of moves are written or removed
        self._creating: set[TopicPartition] = set()  # logs whose files are being made
        self._leaving: set[TopicPartition] = set()  # deleted logs whose directory still has its name
        self._logs_to_load: Counter[str] = Counter()  # logs by directory while they are loaded, none before and after
        self.directories = [LogDirectory(files, path) for path in log_dirs]
        self.writers = {path: DirectoryWriter(path, on_shortage=self.shortages.report) for path in log_dirs}
        self._options = {directory.path: self._options_for(directory) for directory in self.directories}

    # Start

    def open(self) -> MetaProperties | None:
        """Locks all directories and says whose they are; None when all are new.

        A directory that cannot be used is skipped with an error. Raises DirectoryLockedError, WrongDirectoryError when
        they do not belong together, NoUsableDirectoryError, LoadError.
        """
        errors = []
        metas: dict[LogDirectory, MetaProperties | None] = {}
        for directory in self.directories:
            try:
                directory.open()
                metas[directory] = directory.read_meta()
            except OSError as error:
                errors.append(f"{directory.path}: {error}")
                self._fail_at_start(directory, error)
        if not self.live_directories:
            raise NoUsableDirectoryError(f"None of the log directories can be used: {'; '.join(errors)}")
        found: MetaProperties | None = None
        for directory, meta in metas.items():
            if meta is None:
                continue
            if found is not None:
                meta_properties.verify(
                    meta, directory.meta_path, broker_id=found.broker_id, cluster_id=found.cluster_id
                )
            found = found or meta
        return found

    def claim(self, meta: MetaProperties) -> None:
        """Says whose the directories are from now on. Raises WrongDirectoryError where that was said differently.

        A directory with an I/O error goes offline. Raises LoadError.
        """
        for directory in self.live_directories:
            try:
                found = directory.read_meta()
                if found is None:
                    directory.write_meta(meta)
            except OSError as error:
                self._fail_at_start(directory, error)
                continue
            if found is not None:
                meta_properties.verify(found, directory.meta_path, broker_id=meta.broker_id, cluster_id=meta.cluster_id)

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        *,
        now_ms: int,
        on_progress: Callable[[LoadStatus], None] = lambda status: None,
    ) -> None:
        """Opens every log, repairing those that an unclean stop has left. `on_progress` is called now and then.

        Raises ForeignDirectoryError, DuplicateLogError, NoUsableDirectoryError, LoadError. A directory with an I/O
        error goes offline and the others are loaded.
        """
        progress = _Progress(self.damaged_batches)
        to_load, unclean = self._find_logs(now_ms)
        progress.logs_total = len(to_load)
        self._logs_to_load = Counter(item.directory.path for item in to_load)
        progress.bytes_total = sum(self._bytes_to_scan(item) for item in to_load if not item.is_clean)
        self._for_each_directory(
            to_load,
            lambda item: item.directory,
            lambda item: self._load_log(item, config_of(item.name.topic), now_ms, progress),
            lambda: on_progress(progress.status),
        )
        self._logs_to_load.clear()
        # From here on a log that the file does not name has not been synced, which a missing file would not prove.
        for directory in dict.fromkeys([*unclean, *_shorter_than_checkpointed(to_load)]):
            if not directory.is_offline:
                try:
                    directory.write_recovery_points()
                except OSError as error:
                    self._fail_at_start(directory, error)
        if not self.live_directories:
            raise NoUsableDirectoryError("None of the log directories could be loaded")

    def remaining_logs_in(self, directory: LogDirectory) -> int:
        """How many logs of a directory a load has still before it; 0 when none is under way. Any thread."""
        return max(self._logs_to_load[directory.path] - len(directory.logs), 0)

    def take_vanished(self, topic: str, partition: int) -> tuple[str, int] | None:
        """A log that was in none of the directories although the checkpoint of one knows it; to be asked once.

        Returns that directory, and the high watermark that the log had there.
        """
        return self._vanished.pop(TopicPartition(topic, partition), None)

    def take_first_dirty(self) -> list[tuple[LogDirectory, dict[TopicPartition, int]]]:
        """What the cleaner's checkpoint of each live directory said when the logs were loaded; to be asked once."""
        found, self._first_dirty_found = self._first_dirty_found, {}
        return [(directory, found.get(directory.path, {})) for directory in self.live_directories]

    def _find_logs(self, now_ms: int) -> tuple[list[_LogToLoad], list[LogDirectory]]:
        """What is to be loaded, after moves that a crash has cut off were finished; which directories were not closed.

        Raises DuplicateLogError.
        """
        found: list[FoundLog] = []
        offsets: dict[str, _Offsets] = {}
        for directory in self.live_directories:
            try:
                listed = list(self._list_logs(directory, now_ms))
                for path in directory.strangers():
                    if os.path.basename(path) not in self._files_beside:
                        _logger.warning("%s does not belong to a log directory, left alone", path)
                is_clean = directory.take_clean_marker()
                cleaner_offsets = directory.read_cleaner_offsets(_logger.warning)
                offsets[directory.path] = _Offsets(
                    is_clean,
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
        directories = {directory.path: directory for directory in self.live_directories}
        recovery_points = {path: each.recovery_points or {} for path, each in offsets.items()}

        def contents_of(one: FoundLog) -> LogContents | None:
            return self._contents_of(one, recovery_points[one.directory].get(one.name, 0))

        settled = log_moves.settle(found, directories, self._marker_of, contents_of)
        served = settled.served
        for one in settled.promoted:
            _logger.warning("%s holds the whole log and takes its place", one.path)
            served.extend(self._renamed(one, names.partition_directory(*one.name)))
        for one in settled.retired:
            _logger.warning("%s is removed: another directory holds the log since a move", one.path)
            for renamed in self._renamed(one, _marked(one.name, DirectoryState.DELETE)):
                self._remove_later(directories[one.directory], renamed.path, now_ms)
        _refuse_duplicates(served)
        self._first_dirty_found = {path: each.first_dirty for path, each in offsets.items()}
        present = {one.name for one in found}
        self._vanished = {
            name: (path, high_watermark)
            for path, each in offsets.items()
            for name, high_watermark in each.high_watermarks.items()
            if name not in present
        }
        # A log that was moved just before the stop may be known to its old directory alone.
        cleaned: dict[TopicPartition, int] = {}
        for each in offsets.values():
            for name, first_dirty in each.first_dirty.items():
                cleaned[name] = max(first_dirty, cleaned.get(name, 0))
        # While it is unknown which logs were cleaned, a gap in any log may be the cleaner's.
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
                _logger.warning("%s is left alone: it is a replica that no metadata knows", path)
            elif parsed.state is DirectoryState.DELETE:
                self._remove_later(directory, path, now_ms)
            else:
                yield FoundLog(directory.path, path, TopicPartition(parsed.topic, parsed.partition), parsed.state)

    def _marker_of(self, found: FoundLog) -> str | None:
        try:
            return log_moves.read_marker(self._files, found.path)
        except OSError as error:
            self._fail_at_start(self._directory_with(found.directory), error)
            return None

    def _contents_of(self, found: FoundLog, recovery_point: int) -> LogContents | None:
        """None when the log directory has failed at that."""
        try:
            return log_moves.read_contents(self._files, found.path, recovery_point)
        except OSError as error:
            self._fail_at_start(self._directory_with(found.directory), error)
            return None

    def _renamed(self, found: FoundLog, name: str) -> list[FoundLog]:
        """The same under another name, durably; nothing when its log directory has failed at that."""
        directory = self._directory_with(found.directory)
        try:
            path = directory.rename_partition_directory(found.path, name)
            directory.sync()
        except OSError as error:
            self._fail_at_start(directory, error)
            return []
        return [found._replace(path=path, state=DirectoryState.CURRENT)]

    def _live_paths(self) -> set[str]:
        return {directory.path for directory in self.live_directories}

    def _directory_with(self, path: str) -> LogDirectory:
        return next(one for one in self.directories if one.path == path)

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
            # Without recovery points a gap may be old and below what was synced, so it proves no loss.
            _GAPS_ANYWHERE if recovery_points is None else gaps_below,
        )

    def _remove_later(self, directory: LogDirectory, path: str, now_ms: int) -> None:
        self._to_remove.append(_ToRemove(now_ms + self.settings.file_delete_delay_ms, directory, path, None))

    def _bytes_to_scan(self, item: _LogToLoad) -> int:
        try:
            entries = self._files.list_directory(item.path)
        except OSError:
            return 0  # loading it will find the same error
        parsed = ((names.parse_segment_file(entry.name), entry.size) for entry in entries)
        logs = [(name.base_offset, size) for name, size in parsed if name is not None and name.suffix == names.LOG]
        first = max((base for base, _ in logs if base <= item.recovery_point), default=0)
        return sum(size for base, size in logs if base >= first)

    def _load_log(self, item: _LogToLoad, config: LogConfig, now_ms: int, progress: _Progress) -> None:
        if item.directory.is_offline:
            return
        try:
            log = Log.load(
                self._options[item.directory.path],
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
            # Without this log its partition would be taken for one that has vanished, and get an empty one.
            raise LoadError(f"{_SHORTAGE_AT_START}: {error}") from error
        except KafkaError:
            return  # the log has reported it, and its directory is offline
        # A producer that had been forgotten before the stop must not come back with a snapshot that still knew it.
        log.expire_producers(now_ms, self.settings.producer_id_expiration_ms)
        self._add(log, item.directory)
        progress.logs_done += 1

    # Logs

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get(TopicPartition(topic, partition))

    def logs(self) -> Iterable[Log]:
        """A list of its own: logs may come and go meanwhile."""
        return list(self._logs.values())

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Where the log lies, not its copy."""
        log = self._logs.get(TopicPartition(topic, partition))
        return None if log is None else self._home[log]

    def directory_at(self, path: str) -> LogDirectory | None:
        """The configured directory that a client means by `path`."""
        wanted = os.path.abspath(path)
        return next((one for one in self.directories if os.path.abspath(one.path) == wanted), None)

    @property
    def has_offline_directory(self) -> bool:
        """Whether some logs may be there and out of reach."""
        return any(directory.is_offline for directory in self.directories)

    @property
    def live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    def create(self, wanted: Iterable[NewLog], *, now_ms: int) -> Steps[dict[TopicPartition, KafkaError]]:
        """Creates empty logs; returns which could not be created, with a KAFKA_STORAGE_ERROR each.

        A log that exists stays as it is. A new one goes where `prefer` said, or else to the live directory with the
        fewest, copies counted. Also when directories are offline and the log may lie in one of them is a new one made:
        whether that is right is for the replica layer to know. The steps must be run to their end.
        """
        failed: dict[TopicPartition, KafkaError] = {}
        pending = [new for new in wanted if new.name not in self._logs]
        while pending:
            placed: deque[tuple[LogDirectory, NewLog]] = deque()
            created: list[Log | KafkaError | None] = []
            try:
                yield from self._place(pending, placed, failed)
                yield lambda: created.extend([self._create_in(*each, now_ms) for each in placed])  # noqa: B023
                pending = []
                for log in created:
                    directory, new = placed.popleft()
                    self._creating.discard(new.name)
                    if log is None:
                        pending.append(new)
                    elif isinstance(log, KafkaError):
                        failed[new.name] = log
                    elif not self._add_created(log, directory):
                        failed[new.name] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline")
                    yield None
            finally:
                # Empty unless an error ended the steps; a later request may create these logs.
                self._creating.difference_update(new.name for _, new in placed)
        return failed

    def _add_created(self, log: Log, directory: LogDirectory) -> bool:
        """Puts a new log in service; False if its directory is offline."""
        if not directory.is_offline:
            self._add(log, directory)
        if directory.is_offline:
            # Another thread may have failed it before `_add` and have listed its logs without this one.
            log.take_offline()
            if self._logs.get(log.name) is log:
                del self._logs[log.name]
                self._forget(log)
            return False
        return True

    def _place(
        self,
        wanted: Iterable[NewLog],
        placed: deque[tuple[LogDirectory, NewLog]],
        failed: dict[TopicPartition, KafkaError],
    ) -> Steps[None]:
        """Adds each new log to `placed` with a directory, or to `failed` if none can have it now."""
        planned: Counter[str] = Counter()
        for new in wanted:
            directory = self._preferred.pop(new.name, None)
            if directory is None or directory.is_offline:
                directory = min(
                    self.live_directories, key=lambda each: len(each.logs) + planned[each.path], default=None
                )
            try:
                if directory is None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "All log directories are offline")
                self._refuse_taken(new.name)
            except KafkaError as error:
                failed[new.name] = error
                continue
            planned[directory.path] += 1
            self._creating.add(new.name)
            placed.append((directory, new))
            yield None

    def _create_in(self, directory: LogDirectory, new: NewLog, now_ms: int) -> Log | KafkaError | None:
        """The log, made in a directory; None if that has failed before, and another may be chosen. Any thread."""
        if directory.is_offline:
            return None
        try:
            return self._create_files(directory, directory.path_of(new.name), new, now_ms)
        except KafkaError as error:
            return error

    def write_in_threads(self, start: Callable[[str], Start]) -> None:
        """Lets slow directories be written by a thread of their own; `start(path)` gives the port to it."""
        for path, writer in self.writers.items():
            writer.use(start(path))

    def write_directly(self) -> None:
        """Uses no threads any more. Only after `when_written`."""
        for writer in self.writers.values():
            writer.stop_using()

    @property
    def has_slow_directory(self) -> bool:
        for writer in self.writers.values():  # noqa: SIM110 - asked for each Produce; `any` needs a generator
            if writer.is_slow:
                return True
        return False

    def when_written(self, action: Callable[[], None]) -> None:
        """Calls `action` once, when nothing waits to be written in any directory; at once where nothing does."""

        def check() -> None:
            busy = next((writer for writer in self.writers.values() if not writer.is_idle), None)
            if busy is None:
                action()
            else:
                busy.when_idle(check)

        check()

    def prefer(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """A log that is not there yet is to be made in this directory. Nothing when it is there."""
        name = TopicPartition(topic, partition)
        if name not in self._logs and len(self._preferred) < _PREFERENCES_MAX:
            self._preferred[name] = directory

    def _refuse_taken(self, name: TopicPartition) -> None:
        """Raises TryLaterError while the directory of another log has the name."""
        if name in self._leaving:
            raise TryLaterError(f"The deleted log of {name.topic}-{name.partition} is being written")
        if name in self._creating:
            raise TryLaterError(f"The log of {name.topic}-{name.partition} is being created")

    def _create_files(self, directory: LogDirectory, path: str, new: NewLog, now_ms: int) -> Log:
        """Waits for the disk. Any thread. Raises KafkaError KAFKA_STORAGE_ERROR."""
        try:
            directory.free_name(new.name)
            return Log.create(
                self._options[directory.path], path, new.name, new.config, topic_id=new.topic_id, now_ms=now_ms
            )
        except OSError as error:
            raise self._storage_error(directory, error) from error

    def delete(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Takes a log away, and its copy. Its name is free at once, its files go after `file.delete.delay.ms`.

        Nothing when there is none. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        name = TopicPartition(topic, partition)
        self._preferred.pop(name, None)
        for logs in (self._future_logs, self._logs):
            log = logs.pop(name, None)
            if log is not None:
                self._delete(log, now_ms)
        self.observer.deleted(name)

    def _delete(self, log: Log, now_ms: int) -> None:
        directory = self._forget(log)
        if log.is_offline:
            return
        if log.planned.is_being_stored:
            log.is_offline = True  # nothing more is written
            self._leaving.add(log.name)
            log.planned.between_writes(lambda: self._remove_files_later(log, directory, now_ms))
        else:
            self._remove_files(log, directory, now_ms)

    def _remove_files_later(self, log: Log, directory: LogDirectory, now_ms: int) -> None:
        with contextlib.suppress(KafkaError):  # reported, and nobody waits for the answer any more
            self._remove_files(log, directory, now_ms)

    def _remove_files(self, log: Log, directory: LogDirectory, now_ms: int) -> None:
        self._leaving.discard(log.name)
        try:
            log.retire()
            path = directory.rename_partition_directory(str(log.directory), _marked(log.name, DirectoryState.DELETE))
        except OSError as error:
            if isinstance(error, ShortageError):
                # Its name is not free yet, so its files go as soon as they can.
                self._to_remove.append(_ToRemove(now_ms, directory, str(log.directory), None))
            raise self._storage_error(directory, error) from error
        self._to_remove.append(_ToRemove(now_ms + log.config.file_delete_delay_ms, directory, path, None))

    def _add(self, log: Log, directory: LogDirectory) -> None:
        (self._future_logs if log.is_future else self._logs)[log.name] = log
        self._home[log] = directory
        directory.logs[log.name] = log

    def _forget(self, log: Log) -> LogDirectory:
        directory = self._home.pop(log)
        directory.forget(log.name)
        self._flush_wanted.pop(log, None)
        return directory

    # Future logs

    def future(self, topic: str, partition: int) -> Log | None:
        """The copy of a log that is being moved."""
        return self._future_logs.get(TopicPartition(topic, partition))

    def future_directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Where a log is being moved to."""
        copy = self._future_logs.get(TopicPartition(topic, partition))
        return None if copy is None else self._home[copy]

    def create_future(self, log: Log, directory: LogDirectory, *, now_ms: int) -> Log:
        """An empty copy of `log` in another directory. Raises KafkaError INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR.

        Not while a directory is offline: it may hold a copy that nobody sees.
        """
        assert log.name not in self._future_logs
        assert self._home[log] is not directory
        if self.has_offline_directory:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create a copy of {log.topic}-{log.partition} because log directories are offline",
            )
        if not can_have_future(log.topic, log.partition):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        self._refuse_taken(log.name)
        path = f"{directory.path}/{_marked(log.name, DirectoryState.FUTURE)}"
        copy = self._create_files(directory, path, NewLog(log.name, log.topic_id, log.config), now_ms)
        self._add(copy, directory)
        return copy

    def drop_future(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Gives a move up. Nothing when there is none. Raises KafkaError KAFKA_STORAGE_ERROR."""
        copy = self._future_logs.pop(TopicPartition(topic, partition), None)
        if copy is not None:
            self._delete(copy, now_ms)

    def put_future_in_service(self, topic: str, partition: int, *, now_ms: int) -> Log:
        """Puts the copy, which has its marker and holds everything, in the place of the log, and returns it.

        The old log's files go after `file.delete.delay.ms`; until then who reads it may go on. Raises KafkaError
        KAFKA_STORAGE_ERROR when the copy's directory has failed; then the old log stays. A failure of the old one's
        directory is told in the usual way.
        """
        name = TopicPartition(topic, partition)
        log, copy = self._logs[name], self._future_logs[name]
        copy.rename(self._home[copy].path_of(name))
        self._logs[name] = self._future_logs.pop(name)
        directory = self._forget(log)
        path = f"{directory.path}/{_marked(name, DirectoryState.DELETE)}"
        try:
            log.rename(path)
        except KafkaError as error:
            _logger.error("%s-%d: %s", topic, partition, error)
        else:
            self._to_remove.append(_ToRemove(now_ms + log.config.file_delete_delay_ms, directory, path, log))
        return copy

    def finish_move(self, log: Log, old_directory: LogDirectory, *, now_ms: int) -> None:
        """Makes durable that `log` has taken the place of the one in `old_directory`. Waits for the disk."""
        with self._marking:
            directory = self._home.get(log)
            if directory is None:
                return  # deleted, or moved again
            # With what it knows only from the old log, see `Log.take_over_state`.
            is_flushed = any(True for _ in self._each_online(lambda each: each.durability.flush(now_ms), [log]))
            if not is_flushed:
                return  # the marker stays, and the next move or the next start finishes this one
            if self._each_directory(LogDirectory.sync, [directory, old_directory]) and not old_directory.is_offline:
                # Otherwise the old log may still have its name there, and the next start must know which is the log.
                self._each_directory(lambda one: log_moves.remove_marker(self._files, str(log.directory)), [directory])

    def mark_future_whole(self, copy: Log, log: Log, *, now_ms: int) -> None:
        """Writes the marker that the copy may replace the log. Waits for the disk. Raises KafkaError.

        Finishes the log's previous move first: if a crash left two logs that each name the other's directory as the
        old one, the next start could not decide between them by their markers.
        """
        with self._marking:
            self._finish_previous_move(log, now_ms)
            directory = self._home[copy]
            try:
                log_moves.write_marker(self._files, str(copy.directory), self._home[log].path)
            except OSError as error:
                raise self._storage_error(directory, error) from error

    def _finish_previous_move(self, log: Log, now_ms: int) -> None:
        """`finish_move` for a log whose marker is still there. Raises KafkaError if the marker has to stay."""
        directory = self._home[log]
        try:
            source = log_moves.read_marker(self._files, str(log.directory))
        except OSError as error:
            raise self._storage_error(directory, error) from error
        old_directory = next((one for one in self.directories if one.path == source), None)
        if old_directory is None:
            return  # no marker, or one that names a directory which is not configured, so no copy goes there
        if old_directory.is_offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The previous move of {log.topic}-{log.partition} is not finished: {old_directory.path} is offline",
            )
        log.durability.flush(now_ms)
        for one in (directory, old_directory):
            try:
                one.sync()
            except OSError as error:
                raise self._storage_error(one, error) from error
        try:
            log_moves.remove_marker(self._files, str(log.directory))
        except OSError as error:
            raise self._storage_error(directory, error) from error

    # Periodic work

    def run_retention(self, now_ms: int, logs: Iterable[Log] | None = None) -> Steps[int]:
        """Applies retention to these logs, except those that are being moved; returns how many segments went.

        Without `logs` to all, except those of which the observer does that. The new log starts are on the disk before a
        file goes. Nothing is done to a log while a planned append to it is being stored, but when that is over.
        """
        if logs is None:
            logs = [log for log in self.logs() if not self.observer.owns_retention_of(log)]
        logs = self._not_moved(logs)

        def prepare(log: Log) -> None:
            log.disposal.mark_dropped(now_ms)  # what the pass before could not, or dropped only when a write had ended
            log.disposal.read_ages(now_ms)

        yield lambda: _exhaust(self._each_online(prepare, logs))
        expired: dict[Log, int] = {}

        def expire(log: Log) -> None:
            if sum(self._each_online(lambda each: each.disposal.expire(now_ms), self._not_moved([log]))):
                expired[log] = log.log_start_offset

        for log in logs:
            log.planned.between_writes(partial(expire, log))
            yield None
        on_disk = dict(expired)  # what expires later than now waits for the next time
        if not on_disk:
            return 0
        concerned = {self._home[log].path: self._home[log] for log in on_disk if log in self._home}
        was_written: list[bool] = []
        yield lambda: was_written.append(self._each_directory(LogDirectory.write_log_starts, list(concerned.values())))
        if not all(was_written):
            return 0
        dropped: list[int] = []

        def drop(log: Log) -> None:
            dropped.extend(
                self._each_online(lambda each: each.disposal.drop_expired(on_disk[each]), self._not_moved([log]))
            )

        for log in on_disk:
            log.planned.between_writes(partial(drop, log))
            yield None
        yield lambda: _exhaust(self._each_online(lambda log: log.disposal.mark_dropped(now_ms), on_disk))
        return sum(dropped)

    def _not_moved(self, logs: Iterable[Log]) -> list[Log]:
        """Without those that are gone or have a copy in another directory, which follows what they hold."""
        return [log for log in logs if self._logs.get(log.name) is log and log.name not in self._future_logs]

    def expire_producers(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forgets producers of every log that have been idle for so long, one log a step; yields how many."""
        return self._each_online(lambda log: log.expire_producers(now_ms, expiration_ms), self.logs())

    def release_idle(self) -> Steps[None]:
        """Gives back descriptors and maps of segments that nobody has used since the last time."""
        waiting: dict[Log, Sequence[Segment]] = {}
        for log in self._logs_and_copies():
            if not log.planned.count and (segments := log.durability.release_idle()):
                waiting[log] = segments
            yield None
        written: list[Log] = []

        def finish_writeback(log: Log) -> None:
            log.durability.finish_writeback(waiting[log])
            written.append(log)  # and not after a shortage: then its turn comes again

        if waiting:
            yield lambda: _exhaust(self._each_online(finish_writeback, waiting))
        for log in written:
            if not log.is_offline and not log.planned.count:
                log.durability.release_written(waiting[log])
            yield None

    def flush_due(self, now_ms: int) -> int:
        """Syncs the sealed segments of logs that have rolled, and whole logs that are due; returns how many."""
        wanted, self._flush_wanted = self._flush_wanted, {}
        logs = self._logs_and_copies()
        due = [log for log in logs if log.durability.is_flush_due(now_ms)]
        rolled = [log for log in logs if log in wanted and log not in due]
        flushed = [
            *self._each_online(lambda log: log.durability.flush(now_ms), due),
            *self._each_online(lambda log: log.durability.flush_sealed(), rolled),
        ]
        return len(flushed)

    def start_writeback(self) -> None:
        """Lets the kernel begin to write what was appended to each log's active segment since the last call."""
        _exhaust(self._each_online(lambda log: log.durability.start_writeback(), self._logs_and_copies()))

    def remove_deleted(self, now_ms: int) -> int:
        """Removes the files and directories whose delay is over; returns how many."""
        count = sum(self._each_online(lambda log: log.disposal.remove_deleted(now_ms), self._logs_and_copies()))
        due = [item for item in self._to_remove if item.due_ms <= now_ms]
        for item in due:
            if item.log is not None:
                item.log.take_offline()
            try:
                if not item.directory.is_offline:
                    item.directory.remove_partition_directory(item.path)
                    count += 1
            except OSError as error:
                self.fail_directory(item.directory, error)
                if isinstance(error, ShortageError):
                    continue  # still due
            self._to_remove.remove(item)
        return count

    def free_names(self) -> None:
        """Makes the names of deleted logs free for new ones; a creation that comes earlier has to wait for the disk."""
        self._each_directory(LogDirectory.free_names)

    def checkpoint_recovery_points(self) -> None:
        self._each_directory(LogDirectory.write_recovery_points)

    def checkpoint_log_starts(self) -> None:
        self._each_directory(LogDirectory.write_log_starts)

    def checkpoint_high_watermarks(self) -> None:
        self._each_directory(LogDirectory.write_high_watermarks)

    def _logs_and_copies(self) -> list[Log]:
        return [*self._logs.values(), *self._future_logs.values()]

    def _each_online(self, action: Callable[[Log], int | None], logs: Iterable[Log]) -> Iterator[int]:
        """A log that fails has reported it already, through its directory or as a shortage."""
        for log in logs:
            if log.is_offline:
                continue
            try:
                yield action(log) or 0
            except TryLaterError:
                continue  # its turn comes again
            except KafkaError as error:
                if log in self._home:  # and not deleted meanwhile
                    _logger.error("%s-%d: %s", log.topic, log.partition, error)

    def _each_directory(
        self, action: Callable[[LogDirectory], None], directories: Collection[LogDirectory] | None = None
    ) -> bool:
        """Whether it failed in none of those that are online."""
        has_failed = False
        for directory in self.directories if directories is None else directories:
            if directory.is_offline:
                continue
            try:
                action(directory)
            except OSError as error:
                self.fail_directory(directory, error)
                has_failed = True
        return not has_failed

    # Stop and failure

    def close(self, now_ms: int) -> None:
        """A clean stop: every log closed, checkpoints written, then the marker, and the locks given back.

        Not before `when_written`; a log that still waits is not closed, and its directory not marked as clean.
        """
        unclean = {self._home[log] for log in self._logs_and_copies() if log.is_offline}
        self._for_each_directory(
            [log for log in self._logs_and_copies() if not log.is_offline],
            lambda log: self._home[log],
            lambda log: self._close_log(log, now_ms, unclean),
            lambda: None,
        )

        def checkpoint(directory: LogDirectory) -> None:
            directory.write_recovery_points()
            directory.write_log_starts()
            directory.write_high_watermarks()
            if directory not in unclean:
                directory.write_clean_marker()

        self._each_directory(checkpoint)
        self.unlock()

    def unlock(self) -> None:
        """Leaves the directories without saying that the stop was clean."""
        for directory in self.directories:
            directory.unlock()

    def _close_log(self, log: Log, now_ms: int, unclean: set[LogDirectory]) -> None:
        """Adds to `unclean` the directory of a log whose end the next start has to look at."""
        try:
            log.close(now_ms)
        except KafkaError as error:
            unclean.add(self._home[log])
            _logger.error("%s-%d: %s", log.topic, log.partition, error)

    def _storage_error(self, directory: LogDirectory, error: OSError) -> KafkaError:
        """What a request is answered that met `error`, which is reported."""
        self.fail_directory(directory, error)
        if isinstance(error, ShortageError):
            return OutOfResourcesError(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error}")

    def _fail_at_start(self, directory: LogDirectory, error: Exception) -> None:
        """`fail_directory` where nothing is tried again. Raises LoadError for a shortage: half a start helps nobody."""
        if isinstance(error, ShortageError):
            raise LoadError(f"{_SHORTAGE_AT_START}: {error}") from error
        self.fail_directory(directory, error)

    def fail_directory(self, directory: LogDirectory, error: Exception) -> None:
        """Takes a directory out of service, once; a shortage is only reported. Any thread."""
        if isinstance(error, ShortageError):
            self.shortages.report(error)
            return
        if directory.is_offline:
            return
        directory.is_offline = True
        _logger.error("Log directory %s is offline until the next start: %s", directory.path, error)
        for log in list(directory.logs.values()):
            log.take_offline()
            if self._future_logs.get(log.name) is log:
                del self._future_logs[log.name]
        self._on_directory_failed(directory.path, error)

    def _want_flush(self, log: Log) -> None:
        self._flush_wanted[log] = None

    def _truncated(self, log: Log) -> None:
        directory = self._home.get(log)
        try:
            if directory is not None and not directory.is_offline:
                # Both may have fallen. By the old recovery point, what is appended next would count as synced; below
                # the old log start, it would be removed as deleted.
                directory.write_recovery_points()
                directory.write_log_starts()
        except ShortageError:
            raise  # the truncation is not finished without it
        except OSError as error:
            assert directory is not None
            self.fail_directory(directory, error)
        finally:
            self.observer.truncated(log)

    def _log_start_raised(self, log: Log) -> None:
        if self._logs.get(log.name) is log:  # not of a copy, which another thread changes
            self.on_log_start_raised(log)

    def _log_offline(self, log: Log) -> None:
        if self._logs.get(log.name) is log:
            self.on_log_offline(log)

    def _write_finished(self, log: Log) -> None:
        self.on_write_finished(log)

    def _flushed(self, seconds: float) -> None:
        self.on_flushed(seconds)

    def _options_for(self, directory: LogDirectory) -> LogOptions:
        return LogOptions(
            self._files,
            self._random,
            on_io_error=lambda error: self.fail_directory(directory, error),
            on_shortage=self.shortages.report,
            on_damage=_logger.warning,
            damaged_batches=self.damaged_batches,
            on_flush_wanted=self._want_flush,
            on_truncated=self._truncated,
            on_flushed=self._flushed,
            on_log_start_raised=self._log_start_raised,
            on_offline=self._log_offline,
            on_write_finished=self._write_finished,
            writer=self.writers[directory.path],
        )

    def _for_each_directory(
        self,
        items: Sequence[_Item],
        directory_of: Callable[[_Item], LogDirectory],
        action: Callable[[_Item], None],
        on_progress: Callable[[], None],
    ) -> None:
        """Runs the action over all items, with the configured number of threads for each directory."""
        pools = {
            directory.path: ThreadPoolExecutor(self.settings.recovery_threads_per_directory, "log-recovery")
            for directory in self.live_directories
        }
        try:
            futures = [
                pools[directory_of(item).path].submit(action, item)
                for item in items
                if directory_of(item).path in pools
            ]
            while wait(futures, _PROGRESS_INTERVAL_SECONDS).not_done:
                on_progress()
            on_progress()
            for future in futures:
                future.result()
        finally:
            for pool in pools.values():
                pool.shutdown(cancel_futures=True)


def _exhaust(steps: Iterable[object]) -> None:
    for _ in steps:
        pass


def _marked(name: TopicPartition, state: DirectoryState) -> str:
    return names.marked_partition_directory(name.topic, name.partition, state, uuid.uuid4())


def _shorter_than_checkpointed(loaded: Iterable[_LogToLoad]) -> list[LogDirectory]:
    """Where a log has lost what its checkpoint calls synced: that must not be said of what is appended next."""
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
                f"{item.name.topic}-{item.name.partition} lies in {paths[item.name]} and in {item.path}: "
                f"a partition must be in one log directory only"
            )
        paths[item.name] = item.path
