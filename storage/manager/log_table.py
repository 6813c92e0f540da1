"""Which logs of a broker are in service, and in which log directory each of them is.

Owns these tables only. Their owner is `LogManager`; its parts share them.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

from base.topic_partition import TopicPartition
from protocol.errors import KafkaError
from storage.directories.log_directory import LogDirectory
from storage.disk.shortages import TryLaterError
from storage.log.log import Log

_logger = logging.getLogger(__name__)


class LogTable:
    """The logs in service. A log that is being moved has a copy of the same name in another directory."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.copies: dict[TopicPartition, Log] = {}
        self.home: dict[Log, LogDirectory] = {}

    def add(self, log: Log, directory: LogDirectory) -> None:
        """Put a log, or a copy that is being moved, in service."""
        self.home[log] = directory
        directory.logs[log.name] = log
        # Last, because other threads list the logs and look up their directories.
        (self.copies if log.is_future else self.logs)[log.name] = log

    def forget(self, log: Log) -> LogDirectory:
        """Forget the directory of a log that the caller has removed from the others; return it."""
        directory = self.home.pop(log)
        directory.forget(log.name)
        return directory

    def logs_and_copies(self) -> list[Log]:
        return [*self.logs.values(), *self.copies.values()]

    def each_online(self, action: Callable[[Log], int | None], logs: Iterable[Log]) -> Iterator[int]:
        """Call `action` for each log that is online; yield its result. No log keeps the others waiting by its failure.

        A log that raises a KafkaError has reported its error itself.
        """
        for log in logs:
            if log.is_offline:
                continue
            try:
                yield action(log) or 0
            except TryLaterError:
                continue  # the next call tries again
            except KafkaError as error:
                if log in self.home:  # not deleted during `action`
                    _logger.error("%s-%d: %s", log.topic, log.partition, error)
            except Exception:  # a bug of ours
                _logger.exception("%s-%d failed unexpectedly; the work goes on with the next log", *log.name)
