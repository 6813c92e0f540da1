"""Creates the logs of a broker: chooses the directory of each, and creates the files of many in one thread.

Owns the directories that clients prefer, and the names of logs that are being created. Must not know why a log is
created.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from base.pause import InThread, Pause
from base.topic_partition import TopicPartition, partition_name
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from storage.directories.log_directories import LogDirectories
from storage.directories.log_directory import LogDirectory
from storage.disk.files import ShortageError
from storage.disk.shortages import TryLaterError
from storage.log import log_opening
from storage.log.log import Log
from storage.log.log_state import LogOptions
from storage.manager.log_table import LogTable

_PREFERENCES_MAX: Final = 100_000


class NewLog(NamedTuple):
    """A log to be created; `topic_id` is None if the controller is too old to know it."""

    name: TopicPartition
    topic_id: UUID | None
    config: LogConfig


class DropCopy(Protocol):
    """Deletes the copy of a log, if there is one. Raises KafkaError: KAFKA_STORAGE_ERROR."""

    def __call__(self, topic: str, partition: int, *, now_ms: int) -> None: ...


class LogCreation:
    """Creates logs. Belongs to the thread that owns the logs, except for `create_files`."""

    def __init__(
        self,
        table: LogTable,
        directories: LogDirectories,
        options_of: Callable[[LogDirectory], LogOptions[Log]],
        is_leaving: Callable[[TopicPartition], bool],
        drop_copy: DropCopy,
    ) -> None:
        """`is_leaving(name)` returns whether the directory of a removed log still uses the name."""
        self._table = table
        self._directories = directories
        self._options_of = options_of
        self._is_leaving = is_leaving
        self._drop_copy = drop_copy
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._creating: set[TopicPartition] = set()  # logs whose files are being created

    def prefer(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """Have `create` place a log in this directory. Does nothing if the log exists."""
        name = (topic, partition)
        if name not in self._table.logs and len(self._preferred) < _PREFERENCES_MAX:
            self._preferred[name] = directory

    def forget_preference(self, name: TopicPartition) -> None:
        self._preferred.pop(name, None)

    async def create(
        self, wanted: Iterable[NewLog], pause: Pause, in_thread: InThread, *, now_ms: int
    ) -> dict[TopicPartition, KafkaError]:
        """Create empty logs; return those that could not be created, each with a KAFKA_STORAGE_ERROR.

        A log that exists stays as it is. A new one goes to the directory that `prefer` named, or else to the live one
        with the fewest logs and copies. A log is also created while directories are offline, one of which may hold it:
        the replica layer decides whether that is right. The caller must run this to its end.
        """
        failed: dict[TopicPartition, KafkaError] = {}
        pending = [new for new in wanted if new.name not in self._table.logs]
        while pending:
            placed: deque[tuple[LogDirectory, NewLog]] = deque()
            try:
                await self._place(pending, placed, failed, pause, now_ms)
                work = partial(self._create_all, list(placed), now_ms)
                pending = []
                for log in await in_thread(work):
                    directory, new = placed.popleft()
                    self._creating.discard(new.name)
                    if log is None:
                        pending.append(new)
                    elif isinstance(log, KafkaError):
                        failed[new.name] = log
                    elif not self._add_created(log, directory):
                        failed[new.name] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline")
                    await pause()
            finally:
                # `placed` is empty unless this ends with an error; a later request may create these logs.
                self._creating.difference_update(new.name for _, new in placed)
        return failed

    def refuse_taken(self, name: TopicPartition) -> None:
        """Raises TryLaterError while another log's directory uses the name."""
        if self._is_leaving(name):
            raise TryLaterError(f"The deleted log of {partition_name(name)} is being written")
        if name in self._creating:
            raise TryLaterError(f"The log of {partition_name(name)} is being created")

    def create_files(self, directory: LogDirectory, path: str, new: NewLog, now_ms: int) -> Log:
        """Create the files of a log. Waits for the disk. Any thread. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        try:
            directory.free_name(new.name)
            if new.name not in self._table.logs:  # a copy has the name of its log
                self._free_cleaner_offset(new.name)
            return log_opening.create(
                self._options_of(directory), path, new.name, new.config, topic_id=new.topic_id, now_ms=now_ms
            )
        except OSError as error:
            raise self._directories.storage_error(directory, error) from error

    def _free_cleaner_offset(self, name: TopicPartition) -> None:
        """Free the cleaner's checkpoints of a name: after a move, that of another directory may have it.

        A directory whose disk fails goes offline. Raises ShortageError.
        """
        for directory in list(self._directories.live):
            try:
                directory.free_cleaner_offset(name)
            except ShortageError:
                raise
            except OSError as error:
                self._directories.fail(directory, error)

    async def _place(
        self,
        wanted: Iterable[NewLog],
        placed: deque[tuple[LogDirectory, NewLog]],
        failed: dict[TopicPartition, KafkaError],
        pause: Pause,
        now_ms: int,
    ) -> None:
        """Add each new log to `placed` with a directory, or to `failed` if it cannot be created now."""
        planned: Counter[str] = Counter()
        for new in wanted:
            directory = self._preferred.pop(new.name, None)
            if directory is None or directory.is_offline:
                directory = min(
                    self._directories.live, key=lambda each: len(each.logs) + planned[each.path], default=None
                )
            try:
                if directory is None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "All log directories are offline")
                self.refuse_taken(new.name)
                # A crash may have left a copy without its log. The names of both would be one in a directory.
                self._drop_copy(*new.name, now_ms=now_ms)
            except KafkaError as error:
                failed[new.name] = error
                continue
            planned[directory.path] += 1
            self._creating.add(new.name)
            placed.append((directory, new))
            await pause()

    def _create_all(self, placed: Sequence[tuple[LogDirectory, NewLog]], now_ms: int) -> list[Log | KafkaError | None]:
        return [self._create_in(directory, new, now_ms) for directory, new in placed]

    def _create_in(self, directory: LogDirectory, new: NewLog, now_ms: int) -> Log | KafkaError | None:
        """Create a log; return None if its directory failed before, so that another can be chosen. Any thread."""
        if directory.is_offline:
            return None
        try:
            return self.create_files(directory, directory.path_of(new.name), new, now_ms)
        except KafkaError as error:
            return error

    def _add_created(self, log: Log, directory: LogDirectory) -> bool:
        """Put a new log in service; return False if its directory is offline."""
        if not directory.is_offline:
            self._table.add(log, directory)
        if directory.is_offline:
            # Another thread may have failed it before `_add` and have listed its logs without this one.
            log.take_offline()
            if self._table.logs.get(log.name) is log:
                del self._table.logs[log.name]
                self._table.forget(log)
            return False
        return True
