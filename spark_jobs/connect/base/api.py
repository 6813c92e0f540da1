# ruff: noqa: B027 - the methods that do nothing are those that a plug-in may leave out
"""The interfaces of connectors, as `org.apache.kafka.connect.connector`, `.source` and `.sink` define them.

A connector is a class of its own for each direction. It splits its work into the configurations of tasks; the tasks,
which may run on other workers, copy records. All methods of one task are called by one thread, except `stop` of a
source task, which another thread may call during `poll`. Any method may raise: an error of a connector or a task makes
it FAILED, with the trace in its state, and disturbs no other.

A task of either direction may be a `JobTask` instead: work of another process, which has clients of its own.

    class Numbers(SourceConnector):
        '''Sends the numbers from 0 up to `limit`.'''

        version = "1.0"
        definition = Definition([Setting("topic", Kind.STRING, REQUIRED, Importance.HIGH, "Where to.")])
        task = NumbersTask

Owns what a connector may do and must do. Must not know how it is run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from base.topic_partition import TopicPartition
from spark_jobs.connect.base.data import Schema
from spark_jobs.connect.base.definitions import Definition
from spark_jobs.connect.base.records import SinkRecord, SourceRecord
from spark_jobs.connect.base.states import TaskId

Offsets = Mapping[TopicPartition, int]
"""For each partition the offset of the next record."""


class ConnectorContext(Protocol):
    """What a worker does for a connector."""

    def request_reconfiguration(self) -> None:
        """Ask for new configurations of the tasks: the source has changed. Callable from any thread."""

    def fail(self, error: Exception) -> None:
        """Make the connector FAILED; its tasks continue. Callable from any thread."""


class Connector(ABC):
    """What both directions have in common."""

    version: ClassVar[str] = "unknown"
    definition: ClassVar[Definition] = Definition()
    """The connector's own settings; those that every connector has are not among them."""
    task: ClassVar[type[SourceTask | SinkTask | JobTask]]
    context: ConnectorContext

    def start(self, config: Mapping[str, str]) -> None:
        """Begin to observe the source or target, if the tasks depend on it. Called once, before all others but
        `validate`."""
        self.config = config

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the configuration of each task, at most `max_tasks`. Without an own method: one task with all of the
        connector's settings."""
        return [self.config]

    def validate(self, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """Return errors by setting that `definition` does not find. May connect to the source.

        It is called only with settings that `definition` accepts. The converters of the worker are in `config` if the
        connector names none.
        """
        return {}

    def stop(self) -> None:
        """Release what `start` has opened."""


class SourceConnector(Connector):
    """Splits what a source has into tasks."""

    task: ClassVar[type[SourceTask | JobTask]]

    def exactly_once_support(self, config: Mapping[str, str]) -> bool:
        """Whether tasks continue exactly at their stored offsets, without duplicates or gaps (KIP-618)."""
        return False

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> bool:
        """Whether tasks define transactions through their context (`transaction.boundary=connector`)."""
        return False

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> bool:
        """Check offsets that a user sets, None to forget one (KIP-875). Return whether there was a check. Raises
        ConnectError for those that tasks could not use."""
        return False


class SinkConnector(Connector):
    """Splits the partitions of topics over tasks: each task is a consumer of one group, unless it is a job."""

    task: ClassVar[type[SinkTask | JobTask]]

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self.config] * max_tasks

    def alter_offsets(self, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Check offsets that a user sets, None to forget one (KIP-875). Return whether there was a check. Raises
        ConnectError for those that the target cannot use."""
        return False


class OffsetReader(Protocol):
    """Reads the stored offsets of a source connector."""

    def offset(self, source_partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the last stored offset of one part of the source; None if there is none."""

    def offsets(self, source_partitions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | None]: ...


class Transactions(Protocol):
    """Defines transactions of a task (`transaction.boundary=connector`). Takes effect after the next `poll`."""

    def commit(self) -> None:
        """Commit after the records of the present batch."""

    def abort(self) -> None:
        """Drop the records of the open transaction, with the present batch."""


class SourceTaskContext(Protocol):
    """What a worker does for a source task."""

    @property
    def config(self) -> Mapping[str, str]: ...

    @property
    def offset_reader(self) -> OffsetReader: ...

    @property
    def transactions(self) -> Transactions | None:
        """None unless the task defines transactions."""


class SourceTask(ABC):
    """Reads one part of a source."""

    version: ClassVar[str] = "unknown"
    context: SourceTaskContext

    @abstractmethod
    def start(self, config: Mapping[str, str]) -> None:
        """Open the source, at the stored offsets of the context."""

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord]:
        """Return new records. Without any it waits for a moment, and returns none. Raises RetriableError to be called
        again."""

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        """The broker has acknowledged a record, at a partition and offset; both are None if a transform dropped it."""

    def commit(self) -> None:
        """The offsets of all records so far are stored: the source may forget them."""

    def stop(self) -> None:
        """End a `poll` that waits, and release what `start` has opened. Called once, also after a `start` that has
        failed; acknowledgements may follow."""


class SinkTaskContext(Protocol):
    """What a worker does for a sink task."""

    @property
    def config(self) -> Mapping[str, str]: ...

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that the task has now."""

    def seek(self, offsets: Offsets) -> None:
        """Continue at these offsets from the next `put` on."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of topics, of those that the brokers name: a topic that was deleted and created again has
        another one."""

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these partitions until `resume`."""

    def resume(self, *partitions: TopicPartition) -> None: ...

    def retry_after(self, timeout_ms: int) -> None:
        """Wait so long after a RetriableError, before the same records are delivered again."""

    def request_commit(self) -> None:
        """Commit offsets soon, not only after `offset.flush.interval.ms`."""

    def report_errant(self, record: SinkRecord, error: Exception) -> None:
        """Handle a record that the target refuses as `errors.*` says. Raises ConnectError if it is not tolerated."""


class SinkTask(ABC):
    """Writes records of some partitions to a target."""

    version: ClassVar[str] = "unknown"
    context: SinkTaskContext

    @abstractmethod
    def start(self, config: Mapping[str, str]) -> None:
        """Open the target."""

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """The task has got partitions; `context.seek` may choose where to begin."""

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take records; an empty list now and then, so that a task can act by time. Raises RetriableError to be called
        again with the same records."""

    def flush(self, offsets: Offsets) -> None:
        """Write what was taken, up to these offsets. After an error the records behind the last commit are delivered
        again."""

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Return the offsets that may be committed, after `offsets` were delivered: none if the target has them."""
        self.flush(offsets)
        return offsets

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """The task loses partitions, after a last `pre_commit`."""

    def stop(self) -> None:
        """Release what `start` has opened."""


class JobTaskContext(NamedTuple):
    """What a job gets from its worker."""

    task_id: TaskId
    client: Mapping[str, str]
    """The settings of the job's clients under Java's names, with what the connector overrides."""
    worker: Mapping[str, str]
    """The settings of the worker."""


class JobTask(ABC):
    """Work that another process does: it reads and writes topics itself, without converters, transforms and offsets of
    the worker.

    A task that is paused is stopped, and started again later. A worker that is killed must leave no process behind.
    """

    version: ClassVar[str] = "unknown"
    context: JobTaskContext

    @abstractmethod
    def start(self, config: Mapping[str, str]) -> None:
        """Start the work. The converters of the worker are in `config` if the connector names none."""

    @abstractmethod
    def check(self) -> None:
        """Return while the work goes on. Raises ConnectError, with its cause, when it has ended."""

    @abstractmethod
    def stop(self, timeout_s: float) -> None:
        """End the work, if it goes on, within the time: nothing of it runs afterwards."""


class Converter(ABC):
    """Turns values into bytes for a topic and back (`org.apache.kafka.connect.storage.Converter`)."""

    definition: ClassVar[Definition] = Definition()

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """Take the settings, without their prefix. Raises ConfigError."""

    @abstractmethod
    def from_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the bytes of a value. Raises DataError."""

    @abstractmethod
    def to_data(self, topic: str, stored: bytes | None) -> tuple[Schema | None, Any]:
        """Return schema and value of bytes. Raises DataError."""


class HeaderConverter(ABC):
    """Turns values of headers into bytes and back."""

    definition: ClassVar[Definition] = Definition()

    def configure(self, config: Mapping[str, str]) -> None: ...

    @abstractmethod
    def from_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None: ...

    @abstractmethod
    def to_header(self, topic: str, name: str, stored: bytes | None) -> tuple[Schema | None, Any]: ...


class Transformation(ABC):
    """Changes or drops single records (`org.apache.kafka.connect.transforms.Transformation`)."""

    definition: ClassVar[Definition] = Definition()

    def configure(self, config: Mapping[str, str]) -> None:
        """Take the settings, without their prefix. Raises ConfigError."""

    @abstractmethod
    def apply(self, record: Any) -> Any:
        """Return the record, a changed one, or None to drop it. Raises DataError."""

    def close(self) -> None: ...


class Predicate(ABC):
    """Chooses the records that a transform applies to (KIP-585)."""

    definition: ClassVar[Definition] = Definition()

    def configure(self, config: Mapping[str, str]) -> None: ...

    @abstractmethod
    def test(self, record: Any) -> bool: ...

    def close(self) -> None: ...
