"""All logs of a broker, over one or several log directories.

Owns which directory a log lives in, loading and closing, deferred deletion, checkpoints, and what happens when a
directory fails. Must not know replicas, leaders or requests. Has no timer: the broker calls the periodic methods.

Threads: `get`, `get_or_create`, `delete`, `run_retention`, `expire_producers` and `release_idle` belong to the thread
that owns the logs; the last three go over all logs in steps, between which others may have their turn. `flush_due`,
`start_writeback`, `checkpoint_*` and `remove_deleted` wait for the disk and are meant for another one. `open`, `load`
and `close` block until done and use threads of their own for the logs of a directory.

Invariants: a partition has one log; a directory that failed stays offline until a restart, its logs answer
KAFKA_STORAGE_ERROR and the others go on.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from config.broker import BrokerConfig
from config.broker_properties import (
    LOG_SEGMENT_DELETE_DELAY_MS,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
    PRODUCER_ID_EXPIRATION_MS,
)
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from storage import meta_properties, names
from storage.checkpoints import MalformedCheckpointError, TopicPartition
from storage.files import Files
from storage.log import Log, LogOptions
from storage.log_directory import DirectoryLockedError, ForeignDirectoryError, LogDirectory
from storage.log_loader import LoadProgress
from storage.meta_properties import MetaProperties, WrongDirectoryError
from storage.names import DirectoryState

__all__ = [
    "DirectoryLockedError",
    "DuplicateLogError",
    "ForeignDirectoryError",
    "LoadStatus",
    "LogManager",
    "LogManagerSettings",
    "NoUsableDirectoryError",
    "WrongDirectoryError",
]

_PROGRESS_INTERVAL_SECONDS: Final = 0.5

_NOT_SERVED: Final = {
    DirectoryState.FUTURE: "a copy that was not finished",
    DirectoryState.STRAY: "a replica that no metadata knows",
}

_logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")


class NoUsableDirectoryError(Exception):
    """Every log directory has failed. Names them with their errors."""


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


class _Progress(LoadProgress):
    """Counts for all threads of a load. A lost update shifts a progress line by one batch, nothing else."""

    def __init__(self) -> None:
        self.logs_done = self.logs_total = self.bytes_done = self.bytes_total = 0

    def on_damage(self, text: str) -> None:
        _logger.warning(text)

    def on_bytes_scanned(self, size: int) -> None:
        self.bytes_done += size

    @property
    def status(self) -> LoadStatus:
        return LoadStatus(self.logs_done, self.logs_total, self.bytes_done, self.bytes_total)


class _LogToLoad(NamedTuple):
    directory: LogDirectory
    path: str
    name: TopicPartition
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    is_clean: bool


class LogManager:
    """See the module. `on_directory_failed(path, error)` may be called from any thread, once for each directory."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        settings: LogManagerSettings,
        files: Files,
        *,
        random: Random,
        on_directory_failed: Callable[[str, Exception], None] = lambda path, error: None,
    ) -> None:
        self._files = files
        self._random = random
        self._on_directory_failed = on_directory_failed
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._to_remove: list[tuple[int, LogDirectory, str]] = []  # (due, directory, path of a partition directory)
        self._flush_wanted: dict[Log, None] = {}
        self.settings = settings
        self.directories = [LogDirectory(files, path) for path in log_dirs]
        self._options = {directory.path: self._options_for(directory) for directory in self.directories}

    # Start

    def open(self) -> MetaProperties | None:
        """Locks all directories and says whose they are; None when all are new.

        A directory that cannot be used is skipped with an error. Raises DirectoryLockedError, WrongDirectoryError when
        they do not belong together, NoUsableDirectoryError.
        """
        errors = []
        for directory in self.directories:
            try:
                directory.open()
                directory.read_meta()
            except OSError as error:
                errors.append(f"{directory.path}: {error}")
                self.fail_directory(directory, error)
        if not self.live_directories:
            raise NoUsableDirectoryError(f"None of the log directories can be used: {'; '.join(errors)}")
        found: MetaProperties | None = None
        for directory in self.live_directories:
            meta = directory.read_meta()
            if meta is None:
                continue
            if found is not None:
                meta_properties.verify(
                    meta, directory.meta_path, broker_id=found.broker_id, cluster_id=found.cluster_id
                )
            found = found or meta
        return found

    def claim(self, meta: MetaProperties) -> None:
        """Says whose the directories are from now on. Raises WrongDirectoryError where that was said differently."""
        for directory in self.live_directories:
            found = directory.read_meta()
            if found is None:
                directory.write_meta(meta)
            else:
                meta_properties.verify(found, directory.meta_path, broker_id=meta.broker_id, cluster_id=meta.cluster_id)

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        *,
        now_ms: int,
        on_progress: Callable[[LoadStatus], None] = lambda status: None,
    ) -> None:
        """Opens every log, repairing those that an unclean stop has left. `on_progress` is called now and then.

        Raises ForeignDirectoryError, DuplicateLogError, NoUsableDirectoryError. A directory with an I/O error goes
        offline and the others are loaded.
        """
        progress = _Progress()
        to_load = [item for directory in self.live_directories for item in self._list_logs(directory, now_ms)]
        _refuse_duplicates(to_load)
        progress.logs_total = len(to_load)
        progress.bytes_total = sum(self._bytes_to_scan(item) for item in to_load if not item.is_clean)
        self._for_each_directory(
            to_load,
            lambda item: item.directory,
            lambda item: self._load_log(item, config_of(item.name.topic), now_ms, progress),
            lambda: on_progress(progress.status),
        )
        if not self.live_directories:
            raise NoUsableDirectoryError("None of the log directories could be loaded")

    def _list_logs(self, directory: LogDirectory, now_ms: int) -> Iterator[_LogToLoad]:
        try:
            found = directory.partition_directories()
            is_clean = directory.take_clean_marker()
            recovery_points = directory.read_recovery_points(_logger.warning)
            log_starts = directory.read_log_starts(_logger.warning)
            high_watermarks = directory.read_high_watermarks()
        except (OSError, MalformedCheckpointError) as error:
            self.fail_directory(directory, error)
            return
        if found and not is_clean:
            _logger.info("%s was not closed cleanly: its logs are scanned from their recovery points", directory.path)
        for path, parsed in found:
            if parsed.state in _NOT_SERVED:
                _logger.warning("%s is left alone: it is %s", path, _NOT_SERVED[parsed.state])
            elif parsed.state is DirectoryState.DELETE:
                self._to_remove.append((now_ms + self.settings.file_delete_delay_ms, directory, path))
            else:
                name = TopicPartition(parsed.topic, parsed.partition)
                yield _LogToLoad(
                    directory,
                    path,
                    name,
                    log_starts.get(name, 0),
                    recovery_points.get(name, 0),
                    high_watermarks.get(name, 0),
                    is_clean,
                )

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
                now_ms=now_ms,
                progress=progress,
            )
        except (OSError, MalformedCheckpointError) as error:
            self.fail_directory(item.directory, error)
            return
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
        return self._directory_of.get(TopicPartition(topic, partition))

    @property
    def live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    def get_or_create(
        self, topic: str, partition: int, *, topic_id: UUID | None, config: LogConfig, now_ms: int
    ) -> Log:
        """A new log goes to the live directory with the fewest. Raises KafkaError KAFKA_STORAGE_ERROR.

        Also when directories are offline and the log may lie in one of them is a new one made: whether that is right
        is for the replica layer to know.
        """
        name = TopicPartition(topic, partition)
        log = self._logs.get(name)
        if log is not None:
            return log
        directory = min(self.live_directories, key=lambda candidate: len(candidate.logs), default=None)
        if directory is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "All log directories are offline")
        try:
            log = Log.create(
                self._options[directory.path],
                directory.path_of(name),
                name,
                config,
                topic_id=topic_id,
                now_ms=now_ms,
            )
        except OSError as error:
            self.fail_directory(directory, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error}") from error
        self._add(log, directory)
        return log

    def delete(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Takes a log away. Its name is free at once, its files go when `file.delete.delay.ms` is over.

        Nothing when there is none. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        name = TopicPartition(topic, partition)
        log = self._logs.pop(name, None)
        if log is None:
            return
        directory = self._directory_of.pop(name)
        del directory.logs[name]
        self._flush_wanted.pop(log, None)
        if log.is_offline:
            return
        log.take_offline()
        marked_name = names.marked_partition_directory(topic, partition, DirectoryState.DELETE, uuid.uuid4())
        try:
            path = directory.rename_for_deletion(log, marked_name)
        except OSError as error:
            self.fail_directory(directory, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error}") from error
        self._to_remove.append((now_ms + log.config.file_delete_delay_ms, directory, path))

    def _add(self, log: Log, directory: LogDirectory) -> None:
        self._logs[log.name] = log
        self._directory_of[log.name] = directory
        directory.logs[log.name] = log

    # Periodic work

    def run_retention(self, now_ms: int) -> Iterator[int]:
        """Applies retention to every log, one a step; yields how many segments went."""
        return self._each_online(lambda log: log.delete_expired_segments(now_ms))

    def expire_producers(self, now_ms: int) -> Iterator[int]:
        """Forgets idle producers of every log, one a step; yields how many."""
        expiration_ms = self.settings.producer_id_expiration_ms
        return self._each_online(lambda log: log.expire_producers(now_ms, expiration_ms))

    def release_idle(self) -> Iterator[int]:
        """Gives back descriptors and maps of logs that nobody has used since the last time, one a step."""
        return self._each_online(Log.release_idle)

    def flush_due(self, now_ms: int) -> int:
        """Syncs logs that have rolled and those whose flush.ms is over; returns how many."""
        wanted, self._flush_wanted = self._flush_wanted, {}
        due = [log for log in self.logs() if log in wanted or log.is_flush_due(now_ms)]
        return len(list(self._each_online(lambda log: log.flush(now_ms), due)))

    def start_writeback(self) -> int:
        """Lets the kernel begin to write what was appended since the last call; returns how many bytes."""
        return sum(self._each_online(lambda log: log.start_writeback()))

    def remove_deleted(self, now_ms: int) -> int:
        """Removes the files and directories whose delay is over; returns how many."""
        count = sum(self._each_online(lambda log: log.remove_deleted(now_ms)))
        due = [item for item in self._to_remove if item[0] <= now_ms]
        for item in due:
            self._to_remove.remove(item)
            _, directory, path = item
            if directory.is_offline:
                continue
            try:
                directory.remove_partition_directory(path)
                count += 1
            except OSError as error:
                self.fail_directory(directory, error)
        return count

    def checkpoint_recovery_points(self) -> None:
        self._each_directory(LogDirectory.write_recovery_points)

    def checkpoint_log_starts(self) -> None:
        self._each_directory(LogDirectory.write_log_starts)

    def checkpoint_high_watermarks(self) -> None:
        self._each_directory(LogDirectory.write_high_watermarks)

    def _each_online(self, action: Callable[[Log], int | None], logs: Iterable[Log] | None = None) -> Iterator[int]:
        """A log that fails has told so already, through its directory."""
        for log in self.logs() if logs is None else logs:
            if log.is_offline:
                continue
            try:
                yield action(log) or 0
            except KafkaError as error:
                _logger.error("%s-%d: %s", log.topic, log.partition, error)

    def _each_directory(self, action: Callable[[LogDirectory], None]) -> None:
        for directory in self.live_directories:
            try:
                action(directory)
            except OSError as error:
                self.fail_directory(directory, error)

    # Stop and failure

    def close(self, now_ms: int) -> None:
        """A clean stop: every log closed, checkpoints written, then the marker, and the locks given back."""
        self._for_each_directory(
            [log for log in self.logs() if not log.is_offline],
            lambda log: self._directory_of[log.name],
            lambda log: self._close_log(log, now_ms),
            lambda: None,
        )
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()
        self._each_directory(LogDirectory.write_clean_marker)
        self.unlock()

    def unlock(self) -> None:
        """Leaves the directories without saying that the stop was clean."""
        for directory in self.directories:
            directory.unlock()

    def _close_log(self, log: Log, now_ms: int) -> None:
        try:
            log.close(now_ms)
        except KafkaError as error:
            _logger.error("%s-%d: %s", log.topic, log.partition, error)

    def fail_directory(self, directory: LogDirectory, error: Exception) -> None:
        """Takes a directory out of service, once. Any thread."""
        if directory.is_offline:
            return
        directory.is_offline = True
        _logger.error("Log directory %s is offline until the next start: %s", directory.path, error)
        for log in list(directory.logs.values()):
            log.take_offline()
        self._on_directory_failed(directory.path, error)

    def _want_flush(self, log: Log) -> None:
        self._flush_wanted[log] = None

    def _options_for(self, directory: LogDirectory) -> LogOptions:
        return LogOptions(
            self._files,
            self._random,
            on_io_error=lambda error: self.fail_directory(directory, error),
            on_damage=_logger.warning,
            on_flush_wanted=self._want_flush,
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


def _refuse_duplicates(items: Iterable[_LogToLoad]) -> None:
    paths: dict[TopicPartition, str] = {}
    for item in items:
        if item.name in paths:
            raise DuplicateLogError(
                f"{item.name.topic}-{item.name.partition} lies in {paths[item.name]} and in {item.path}: "
                f"a partition must be in one log directory only"
            )
        paths[item.name] = item.path
