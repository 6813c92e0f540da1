"""The log directories of a broker: which are online, and what happens when one fails.

Owns the change of a directory to offline and work on all directories at a time. Must not know which logs are in
service, nor the content of a log directory.

Invariants: a directory that failed stays offline until a restart; its logs are offline, the others are served. A
shortage of descriptors or memory takes no directory offline.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, wait
from posixpath import abspath
from typing import Final, TypeVar

from protocol.errors import ErrorCode, KafkaError
from storage.directories.log_directory import LogDirectory
from storage.disk.files import Files, ShortageError
from storage.disk.shortages import OutOfResourcesError, Shortages

_PROGRESS_INTERVAL_SECONDS: Final = 0.5

_logger = logging.getLogger(__name__)

_Item = TypeVar("_Item")


class LogDirectories:
    """All configured log directories, in the order of log.dirs; iterating yields the offline ones too."""

    def __init__(
        self,
        files: Files,
        paths: Sequence[str],
        shortages: Shortages,
        on_failed: Callable[[LogDirectory, Exception], None],
        new_threads: Callable[[int, str], Executor],
    ) -> None:
        """`on_failed` is called once for each directory that goes offline, in any thread.

        `new_threads(size, name)` returns an executor of that many threads.
        """
        self._directories = [LogDirectory(files, path) for path in paths]
        self._shortages = shortages
        self._on_failed = on_failed
        self._new_threads = new_threads

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    def __getitem__(self, number: int) -> LogDirectory:
        return self._directories[number]

    @property
    def live(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if not directory.is_offline]

    @property
    def has_offline(self) -> bool:
        """Whether logs may exist that cannot be reached."""
        return any(directory.is_offline for directory in self._directories)

    def at(self, path: str) -> LogDirectory | None:
        """Return the configured directory that a client means by `path`."""
        wanted = abspath(path)
        return next((one for one in self._directories if one.absolute_path == wanted), None)

    def unlock(self) -> None:
        """Release the locks without the marker of a clean stop."""
        for directory in self._directories:
            directory.unlock()

    # Failures

    def fail(self, directory: LogDirectory, error: Exception) -> None:
        """Take a directory and its logs offline, once. A shortage is only reported. Any thread."""
        if isinstance(error, ShortageError):
            self._shortages.report(error)
            return
        if directory.is_offline:
            return
        directory.is_offline = True
        _logger.error("Log directory %s is offline until the next start: %s", directory.path, error)
        for log in list(directory.logs.values()):
            log.take_offline()
        self._on_failed(directory, error)

    def storage_error(self, directory: LogDirectory, error: OSError) -> KafkaError:
        """Report `error` (see `fail`) and return the error for the response of a request that met it."""
        self.fail(directory, error)
        if isinstance(error, ShortageError):
            return OutOfResourcesError(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error}")

    # Work on several directories

    def each(self, action: Callable[[LogDirectory], None], directories: Iterable[LogDirectory] | None = None) -> bool:
        """Call `action` for each of `directories`, by default all, that is online.

        An OSError fails that directory, and the others follow. Returns whether there was none.
        """
        has_failed = False
        for directory in self._directories if directories is None else directories:
            if directory.is_offline:
                continue
            try:
                action(directory)
            except OSError as error:
                self.fail(directory, error)
                has_failed = True
        return not has_failed

    def run_in_threads(
        self,
        items: Sequence[_Item],
        directory_of: Callable[[_Item], LogDirectory],
        action: Callable[[_Item], None],
        on_progress: Callable[[], None],
        *,
        threads: int,
    ) -> None:
        """Call `action` for all items, with `threads` threads for each live directory, and wait for the end.

        `on_progress` is called about twice a second. Raises what `action` raises.
        """
        pools = {directory.path: self._new_threads(threads, "log-recovery") for directory in self.live}
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
