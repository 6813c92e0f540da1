"""All logs of a broker, over one or several log directories.

Owns which logs are in service, deletion, moves between directories, periodic work, and the clean stop. Must not know
replicas, leaders or requests. Has no timer: the broker calls the periodic methods. Its parts have their own modules:
`startup` finds and loads logs, `creation` creates them, `removals` removes their files, `move_markers` marks for a
start which of two logs is the current one, and `directories` handles failures of log directories.

A log that is being moved has a copy in another directory, its future log (`storage.manager.log_moves`). The copy is
flushed, checkpointed and closed like a log, but only `future` returns it.

Threads:
- The thread that owns the logs calls `get`, `creation`, `delete`, the methods of future logs, `run_retention`,
  `expire_producers` and `release_idle`. The coroutines among them let other work run at each `pause` that they are
  given, and have what waits for the disk run `in_thread`.
- Another thread calls what waits for the disk: `flush_due`, `start_writeback`, `checkpoint_*`, `remove_deleted`,
  `free_names` and `move_markers`.
- `close` blocks until done and uses threads of its own for the logs of each directory.

Invariants:
- A partition has one log and at most one copy of it, in different directories.
- The logs of a failed directory reject requests with KAFKA_STORAGE_ERROR; the others are served.
- A shortage of descriptors or memory takes no directory offline. The work is repeated, or raises OutOfResourcesError.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from random import Random
from uuid import UUID

from base.pause import InThread, Pause
from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode, KafkaError
from storage.batches.damaged_batches import DamagedBatches
from storage.directories.log_directories import LogDirectories
from storage.directories.log_directory import LogDirectory
from storage.disk import names
from storage.disk.directory_writer import DirectoryWriter, Start
from storage.disk.files import Files, ShortageError
from storage.disk.names import DirectoryState, can_have_future
from storage.disk.shortages import Shortages
from storage.log.log import Log
from storage.log.log_state import LogOptions
from storage.manager.log_creation import LogCreation, NewLog
from storage.manager.log_moves import MoveMarkers
from storage.manager.log_observers import LogObservers
from storage.manager.log_startup import LogManagerSettings, LogStartup
from storage.manager.log_table import LogTable
from storage.manager.removals import Removals
from storage.segments.segment import Segment

_logger = logging.getLogger(__name__)


class LogManager:
    """See the module."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        settings: LogManagerSettings,
        files: Files,
        *,
        random: Random,
        new_threads: Callable[[int, str], Executor],
        on_directory_failed: Callable[[str, Exception], None],
        files_beside: Collection[str] = (),
    ) -> None:
        """`on_directory_failed(path, error)` is called once for each directory that fails, in any thread.

        `new_threads(size, name)` returns an executor of that many threads. `files_beside` names files that other parts
        of the broker keep in the log directories.
        """
        self._files = files
        self._random = random
        self._on_directory_failed = on_directory_failed
        self._table = LogTable()
        self._flush_wanted: dict[Log, None] = {}
        self.settings = settings
        self.shortages = Shortages(files.monotonic_s)
        self.observers = LogObservers()
        self.damaged_batches = DamagedBatches()
        self.directories = LogDirectories(files, log_dirs, self.shortages, self._directory_failed, new_threads)
        self.slow_directories: set[str] = set()
        """The paths of the log directories that are slow; their writers change it, in any thread."""
        self.writers = {
            path: DirectoryWriter(
                path,
                now_s=files.monotonic_s,
                undelayed_s=files.undelayed_s,
                sleep=files.sleep,
                on_shortage=self.shortages.report,
                slow_paths=self.slow_directories,
            )
            for path in log_dirs
        }
        self._options = {directory.path: self._options_for(directory) for directory in self.directories}
        self.removals = Removals(self._table, self.directories, self.marked_name)
        self.creation = LogCreation(
            self._table, self.directories, self.options_of, self.removals.is_leaving, self.drop_future
        )
        self.move_markers = MoveMarkers(self._table, self.directories, files)
        self.startup = LogStartup(self, self._table, self.removals, self.directories, files, files_beside)

    def reconfigure(self, settings: LogManagerSettings) -> None:
        """Apply changed settings from now on."""
        self.settings = settings

    # Logs

    def get(self, topic: str, partition: int) -> Log | None:
        return self._table.logs.get((topic, partition))

    def logs(self) -> Iterable[Log]:
        """Return a new list of the logs in service, which stays as it is when logs are created or deleted."""
        return list(self._table.logs.values())

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Return the directory of the log, not of its copy."""
        log = self._table.logs.get((topic, partition))
        return None if log is None else self._table.home[log]

    def write_in_threads(self, start: Callable[[str], Start]) -> None:
        """Write slow directories in a thread of their own; `start(path)` returns the port to it."""
        for path, writer in self.writers.items():
            writer.use(start(path))

    def write_directly(self) -> None:
        """Stop using those threads. Only after `when_written`."""
        for writer in self.writers.values():
            writer.stop_using()

    def when_written(self, action: Callable[[], None]) -> None:
        """Call `action` once: now if no write is pending in any directory, else after the last one."""

        def check() -> None:
            busy = next((writer for writer in self.writers.values() if not writer.is_idle), None)
            if busy is None:
                action()
            else:
                busy.when_idle(check)

        check()

    def delete(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Delete a log and its copy, if they exist. Its files are removed after file.delete.delay.ms.

        The name may be used again when this returns, unless a write of the log is pending. Raises KafkaError:
        KAFKA_STORAGE_ERROR, also if one of both is offline: its files would be back after the next start.
        """
        name = (topic, partition)
        holders = [logs for logs in (self._table.copies, self._table.logs) if name in logs]
        for logs in holders:
            logs[name].refuse_offline()
        self.creation.forget_preference(name)
        try:
            for logs in holders:
                self._remove(logs.pop(name), now_ms)
        finally:
            self._report_if_gone(name)

    def set_aside(self, topic: str, partition: int, *, now_ms: int) -> None:
        """End the use of a log of another topic of this name; delete its copy. Its directory is kept, as `-stray`.

        The name may be used again when this returns, unless a write of the log is pending. Raises KafkaError:
        KAFKA_STORAGE_ERROR.
        """
        name = (topic, partition)
        self._table.logs[name].refuse_offline()
        self.drop_future(topic, partition, now_ms=now_ms)
        try:
            self._remove(self._table.logs.pop(name), now_ms, DirectoryState.STRAY)
        finally:
            self._report_if_gone(name)

    def _report_if_gone(self, name: TopicPartition) -> None:
        """Tell the observers that no log of a name is left, also if its files could not be removed."""
        if name not in self._table.logs:
            self.observers.deleted(name)

    def _remove(self, log: Log, now_ms: int, state: DirectoryState = DirectoryState.DELETE) -> None:
        self.removals.remove(log, self._forget(log), now_ms, state)

    def _forget(self, log: Log) -> LogDirectory:
        self._flush_wanted.pop(log, None)
        return self._table.forget(log)

    # Future logs

    def future(self, topic: str, partition: int) -> Log | None:
        """Return the copy of a log that is being moved; None if there is no move."""
        return self._table.copies.get((topic, partition))

    def future_directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Return the directory to which a log is being moved; None if there is no move."""
        copy = self._table.copies.get((topic, partition))
        return None if copy is None else self._table.home[copy]

    def create_future(self, log: Log, directory: LogDirectory, *, now_ms: int) -> Log:
        """Create an empty copy of `log` in another directory.

        Fails while a directory is offline, because it may hold an earlier copy.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION if the topic name is too long, KAFKA_STORAGE_ERROR.
        """
        assert log.name not in self._table.copies
        assert self._table.home[log] is not directory
        if self.directories.has_offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create a copy of {log.topic}-{log.partition} because log directories are offline",
            )
        if not can_have_future(log.topic, log.partition):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        self.creation.refuse_taken(log.name)
        path = f"{directory.path}/{self.marked_name(log.name, DirectoryState.FUTURE)}"
        copy = self.creation.create_files(directory, path, NewLog(log.name, log.topic_id, log.config), now_ms)
        self._table.add(copy, directory)
        return copy

    def drop_future(self, topic: str, partition: int, *, now_ms: int) -> None:
        """Cancel a move and delete its copy, if there is one. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        copy = self._table.copies.pop((topic, partition), None)
        if copy is not None:
            self._remove(copy, now_ms)

    def put_future_in_service(self, topic: str, partition: int, *, now_ms: int) -> Log:
        """Replace a log by its copy, which is marked and holds the whole log; return the copy.

        The old log's files are removed after file.delete.delay.ms; until then its readers can finish. A failure of its
        directory is reported and does not stop the replacement.

        Raises KafkaError: KAFKA_STORAGE_ERROR if the copy's directory has failed; then the old log stays in service.
        """
        name = (topic, partition)
        log, copy = self._table.logs[name], self._table.copies[name]
        copy.rename(self._table.home[copy].path_of(name))
        self._table.logs[name] = self._table.copies.pop(name)
        directory = self._forget(log)
        path = f"{directory.path}/{self.marked_name(name, DirectoryState.DELETE)}"
        try:
            log.rename(path)
        except KafkaError as error:
            _logger.error("%s-%d: %s", topic, partition, error)
        else:
            self.removals.later(directory, path, due_ms=now_ms + log.config.file_delete_delay_ms, log=log)
        self.observers.moved(copy, directory)
        return copy

    # Periodic work

    async def run_retention(
        self, now_ms: int, pause: Pause, in_thread: InThread, logs: Iterable[Log] | None = None
    ) -> int:
        """Apply retention to `logs`, except those that are being moved; return how many segments were removed.

        By default to all logs, except those whose retention the observer applies. The new log starts are on the disk
        before a file is removed. While a planned append of a log is being stored, work on that log waits.
        """
        if logs is None:
            logs = [log for log in self.logs() if not self.observers.owns_retention_of(log)]
        logs = self._not_moved(logs)

        def prepare(log: Log) -> None:
            log.disposal.mark_dropped(now_ms)  # what the last pass could not mark, or dropped after a write
            log.disposal.read_ages(now_ms)

        await in_thread(lambda: _exhaust(self._table.each_online(prepare, logs)))
        expired: dict[Log, int] = {}

        def expire(log: Log) -> None:
            if sum(self._table.each_online(lambda each: each.disposal.expire(now_ms), self._not_moved([log]))):
                expired[log] = log.log_start_offset

        for log in logs:
            log.planned.between_writes(partial(expire, log))
            await pause()
        on_disk = dict(expired)  # logs that expire after this line wait for the next pass
        if not on_disk:
            return 0
        concerned = {self._table.home[log].path: self._table.home[log] for log in on_disk if log in self._table.home}
        if not await in_thread(lambda: self.directories.each(LogDirectory.write_log_starts, list(concerned.values()))):
            return 0
        dropped: list[int] = []

        def drop(log: Log) -> None:
            dropped.extend(
                self._table.each_online(lambda each: each.disposal.drop_expired(on_disk[each]), self._not_moved([log]))
            )

        for log in on_disk:
            log.planned.between_writes(partial(drop, log))
            await pause()
        await in_thread(
            lambda: _exhaust(self._table.each_online(lambda log: log.disposal.mark_dropped(now_ms), on_disk))
        )
        return sum(dropped)

    def _not_moved(self, logs: Iterable[Log]) -> list[Log]:
        """Return those that are in service and are not being moved: a copy follows what its log holds."""
        return [log for log in logs if self._table.logs.get(log.name) is log and log.name not in self._table.copies]

    def expire_producers(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forget producers that have been idle for `expiration_ms`, one log a step; yield how many."""
        return self._table.each_online(lambda log: log.expire_producers(now_ms, expiration_ms), self.logs())

    async def release_idle(self, pause: Pause, in_thread: InThread) -> None:
        """Close the files and maps of segments that were not used since the last call."""
        waiting: dict[Log, Sequence[Segment]] = {}
        for log in self._table.logs_and_copies():
            if not log.planned.is_pending and (segments := log.durability.release_idle()):
                waiting[log] = segments
            await pause()
        written: list[Log] = []

        def finish_writeback(log: Log) -> None:
            log.durability.finish_writeback(waiting[log])
            written.append(log)  # not reached after a shortage: the next call tries again

        if waiting:
            await in_thread(lambda: _exhaust(self._table.each_online(finish_writeback, waiting)))
        for log in written:
            if not log.is_offline and not log.planned.is_pending:
                log.durability.release_written(waiting[log])
            await pause()

    def flush_due(self, now_ms: int) -> int:
        """Flush logs that are due, and the sealed segments of logs that have rolled; return how many logs."""
        wanted, self._flush_wanted = self._flush_wanted, {}
        logs = self._table.logs_and_copies()
        due = [log for log in logs if log.durability.is_flush_due(now_ms)]
        rolled = [log for log in logs if log in wanted and log not in due]
        flushed = [
            *self._table.each_online(lambda log: log.durability.flush(now_ms), due),
            *self._table.each_online(lambda log: log.durability.flush_sealed(), rolled),
        ]
        return len(flushed)

    def start_writeback(self) -> None:
        """Start write-back of what was appended to each log's active segment since the last call."""
        _exhaust(self._table.each_online(lambda log: log.durability.start_writeback(), self._table.logs_and_copies()))

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files and directories whose delay is over; return how many."""
        logs = self._table.logs_and_copies()
        count = sum(self._table.each_online(lambda log: log.disposal.remove_deleted(now_ms), logs))
        return count + self.removals.remove_due(now_ms)

    def free_names(self) -> None:
        """Remove deleted logs from the checkpoints. A creation under such a name would have to do it first."""
        self.directories.each(LogDirectory.free_names)

    def checkpoint_recovery_points(self) -> None:
        self.directories.each(LogDirectory.write_recovery_points)

    def checkpoint_log_starts(self) -> None:
        self.directories.each(LogDirectory.write_log_starts)

    def checkpoint_high_watermarks(self) -> None:
        self.directories.each(LogDirectory.write_high_watermarks)

    # Stop and failure

    def close(self, now_ms: int) -> None:
        """Stop cleanly: close every log, write the checkpoints and the clean-shutdown marker, release the locks.

        Only after `when_written`: a log with pending writes is not closed, and its directory gets no marker.
        """
        home = self._table.home.copy()  # in one step: the thread that owns the logs may still add or remove some
        unclean = {directory for log, directory in home.items() if log.is_offline}
        self.directories.run_in_threads(
            [log for log in home if not log.is_offline],
            lambda log: home[log],
            lambda log: self._close_log(log, home[log], now_ms, unclean),
            lambda: None,
            threads=self.settings.recovery_threads_per_directory,
        )

        def checkpoint(directory: LogDirectory) -> None:
            directory.write_recovery_points()
            directory.write_log_starts()
            directory.write_high_watermarks()
            if directory not in unclean:
                directory.write_clean_marker()

        self.directories.each(checkpoint)
        self.directories.unlock()

    def _close_log(self, log: Log, directory: LogDirectory, now_ms: int, unclean: set[LogDirectory]) -> None:
        """Close a log. If that fails, add its directory to `unclean`, so that the next start checks the log's end."""
        try:
            log.close(now_ms)
        except KafkaError as error:
            unclean.add(directory)
            _logger.error("%s-%d: %s", log.topic, log.partition, error)

    def _directory_failed(self, directory: LogDirectory, error: Exception) -> None:
        for log in list(directory.logs.values()):
            if self._table.copies.get(log.name) is log:
                del self._table.copies[log.name]
        self._on_directory_failed(directory.path, error)

    def _want_flush(self, log: Log) -> None:
        self._flush_wanted[log] = None

    def _truncated(self, log: Log) -> None:
        directory = self._table.home.get(log)
        try:
            if directory is not None and not directory.is_offline:
                # Both offsets may have fallen. By the old recovery point, a start would treat later appends as
                # synced; by the old log start, it would delete them.
                directory.write_recovery_points()
                directory.write_log_starts()
        except ShortageError:
            raise  # the truncation is not complete without the checkpoints
        except OSError as error:
            assert directory is not None
            self.directories.fail(directory, error)
        finally:
            self.observers.truncated(log)

    def _log_start_raised(self, log: Log) -> None:
        if self._table.logs.get(log.name) is log:  # a copy is changed by another thread
            self.observers.log_start_raised(log)

    def _log_offline(self, log: Log) -> None:
        if self._table.logs.get(log.name) is log:
            self.observers.went_offline(log)

    def options_of(self, directory: LogDirectory) -> LogOptions[Log]:
        """Return what all logs of a directory share."""
        return self._options[directory.path]

    def marked_name(self, name: TopicPartition, state: DirectoryState) -> str:
        """Return a unique name for the directory of a log in `state`."""
        unique_id = UUID(int=self._random.getrandbits(128), version=4)
        return names.marked_partition_directory(*name, state, unique_id)

    def _options_for(self, directory: LogDirectory) -> LogOptions[Log]:
        return LogOptions(
            self._files,
            self._random,
            on_io_error=lambda error: self.directories.fail(directory, error),
            on_shortage=self.shortages.report,
            on_damage=_logger.warning,
            damaged_batches=self.damaged_batches,
            on_flush_wanted=self._want_flush,
            on_truncated=self._truncated,
            on_flushed=self.observers.flushed,
            on_log_start_raised=self._log_start_raised,
            on_offline=self._log_offline,
            on_write_finished=self.observers.write_finished,
            writer=self.writers[directory.path],
        )


def _exhaust(steps: Iterable[object]) -> None:
    for _ in steps:
        pass
