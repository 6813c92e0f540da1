"""Reports events of the logs of a broker to the parts that observe them.

Owns the list of observers. Must not know what they do with an event.
"""

from base.topic_partition import TopicPartition
from storage.directories.log_directory import LogDirectory
from storage.log.log import Log


class LogObserver:
    """Receives events of logs in service, in the thread that owns them unless noted. This base class ignores them."""

    def owns_retention_of(self, log: Log) -> bool:
        """Return whether the observer applies retention to this log itself."""
        return False

    def truncated(self, log: Log) -> None:
        """`log`, which may be a copy that is being moved, was truncated, in the thread that did it."""

    def deleted(self, name: TopicPartition) -> None:
        """The log is no longer in service."""

    def moved(self, log: Log, old_directory: LogDirectory) -> None:
        """`log` has replaced the one in `old_directory`."""

    def write_finished(self, log: Log) -> None:
        """An append that waited for a slow directory was stored, or has failed."""

    def log_start_raised(self, log: Log) -> None:
        """The log's start was raised."""

    def went_offline(self, log: Log) -> None:
        """The log went offline. In any thread."""

    def flushed(self, seconds: float) -> None:
        """A flush of a log has taken so long. In any thread."""


class LogObservers(LogObserver):
    """Reports each event to all observers, in the order in which they were added."""

    def __init__(self) -> None:
        self._observers: list[LogObserver] = []

    def add(self, observer: LogObserver) -> None:
        """Report the events from now on to `observer` as well."""
        self._observers.append(observer)

    def owns_retention_of(self, log: Log) -> bool:
        return any(each.owns_retention_of(log) for each in self._observers)

    def truncated(self, log: Log) -> None:
        for each in self._observers:
            each.truncated(log)

    def deleted(self, name: TopicPartition) -> None:
        for each in self._observers:
            each.deleted(name)

    def moved(self, log: Log, old_directory: LogDirectory) -> None:
        for each in self._observers:
            each.moved(log, old_directory)

    def write_finished(self, log: Log) -> None:
        for each in self._observers:
            each.write_finished(log)

    def log_start_raised(self, log: Log) -> None:
        for each in self._observers:
            each.log_start_raised(log)

    def went_offline(self, log: Log) -> None:
        for each in self._observers:
            each.went_offline(log)

    def flushed(self, seconds: float) -> None:
        for each in self._observers:
            each.flushed(seconds)
