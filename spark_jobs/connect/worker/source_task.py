"""Runs the task of a source: polls it, sends its records, and stores its offsets.

Owns the order that loses nothing: an offset is stored after the broker has acknowledged its record and all records that
were polled before it. With exactly-once, records and offsets are in one transaction. Must not know where offsets are
stored.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from spark_jobs.connect.base.api import OffsetReader, SourceTask
from spark_jobs.connect.base.connector_settings import TRANSACTION_BOUNDARY, TRANSACTION_INTERVAL
from spark_jobs.connect.base.errors import ConnectError, RetriableError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.base.states import State, StateListener, TargetState, TaskId
from spark_jobs.connect.worker import chain
from spark_jobs.connect.worker.chain import Converters, Step
from spark_jobs.connect.worker.failures import Failure, Failures
from spark_jobs.connect.worker.task import PAUSED_WAIT_S, RunningTask, StoppedError
from tools.client import client_library as library

logger = logging.getLogger("org.apache.kafka.connect.runtime.WorkerSourceTask")

RETRY_S: Final = 1.0
"""After how long a source that raised RetriableError is polled again."""
FULL_QUEUE_S: Final = 0.1
PURGE_S: Final = 1.0
TRANSACTION_TIMEOUT_S: Final = 60.0
_ABORTED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Why a record is not sent if its transaction is aborted before."""

SourceOffsets = Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
"""Source partitions with their offsets."""


class OffsetWriter(Protocol):
    """Stores the offsets of one connector."""

    def store(self, offsets: SourceOffsets, timeout_s: float) -> bool:
        """Store offsets durably; return False if that takes longer, or fails: they are stored with later ones."""

    def messages(self, offsets: SourceOffsets) -> Iterable[tuple[str, bytes, bytes | None]]:
        """Return topic, key and value of the records that store offsets, for a transaction."""

    def refresh(self) -> None:
        """Read what earlier runs of the task have stored. Raises ConnectError if that takes too long."""


class Outgoing(NamedTuple):
    """A converted record."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int
    timestamp_ms: int


class SourceChain:
    """Transforms and converts the records of one task."""

    def __init__(self, steps: Sequence[Step], converters: Converters, failures: Failures) -> None:
        self._steps = steps
        self._converters = converters
        self.failures = failures
        self._stage = ""
        self._at: object = None

    def convert(self, record: SourceRecord) -> Outgoing | None:
        """Return the record for the broker; None if it is dropped.

        Raises ConnectError if it fails for good, StoppedError if the task is to end before it does.
        """
        try:
            if self.failures.repeats:
                return self.failures.retried(lambda: self._convert(record))
            return self._convert(record)
        except StoppedError:
            raise
        except Exception as error:
            self.failures.handle(Failure(self._stage, type(self._at).__qualname__, error))
            return None

    def close(self) -> None:
        chain.close(self._steps)

    def _convert(self, record: SourceRecord) -> Outgoing | None:
        for step in self._steps:
            self._stage, self._at = "TRANSFORMATION", step.transformation
            if (record := step.apply(record)) is None:
                return None
        key, value, header = self._converters
        topic = record.topic
        headers = None
        if record.headers:
            self._stage, self._at = "HEADER_CONVERTER", header
            headers = [(name, header.from_header(topic, name, schema, it)) for name, schema, it in record.headers]
        self._stage, self._at = "KEY_CONVERTER", key
        key_bytes = key.from_data(topic, record.key_schema, record.key)
        self._stage, self._at = "VALUE_CONVERTER", value
        value_bytes = value.from_data(topic, record.value_schema, record.value)
        partition = -1 if record.partition is None else record.partition
        return Outgoing(topic, key_bytes, value_bytes, headers, partition, record.timestamp_ms or 0)


_Position = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A source partition, and the last offset in it."""


class _Batch:
    """The records of one poll that are not acknowledged yet, and the last offset of each source partition."""

    __slots__ = ("_positions", "pending")

    def __init__(self) -> None:
        self.pending = 0
        # By the identity of the source partition: its owner is kept here, and few tasks make a new one per record.
        self._positions: dict[int, _Position] = {}

    def keep(self, record: SourceRecord) -> None:
        """Note the offset of the next record."""
        key = id(record.source_partition)
        self._positions.pop(key, None)  # an equal partition of another identity may have come in between
        self._positions[key] = (record.source_partition, record.source_offset)

    def merge_into(self, positions: dict[str, _Position]) -> None:
        """Replace the offsets of this batch's source partitions. Raises ConnectError for one that is not JSON."""
        for partition, offset in self._positions.values():
            try:
                key = json.dumps(partition, sort_keys=True)
            except (TypeError, ValueError) as error:
                raise ConnectError(f"the source partition {partition!r:.200} is not a JSON object: {error}") from error
            positions[key] = (partition, offset)


class _Context:
    """What a task sees of its worker."""

    def __init__(self, config: Mapping[str, str], reader: OffsetReader, transactions: TaskTransactions | None) -> None:
        self.config = config
        self.offset_reader = reader
        self.transactions = transactions


class TaskTransactions:
    """The transactions that a task defines (`transaction.boundary=connector`)."""

    def __init__(self) -> None:
        self.wants_commit = False
        self.wants_abort = False

    def commit(self) -> None:
        self.wants_commit = True

    def abort(self) -> None:
        self.wants_abort = True


class RunningSourceTask(RunningTask):
    """A source task in its thread."""

    def __init__(
        self,
        task_id: TaskId,
        listener: StateListener,
        target: TargetState,
        *,
        task: SourceTask,
        config: Mapping[str, str],
        new_chain: Callable[[threading.Event], SourceChain],
        producer: library.Producer,
        reader: OffsetReader,
        writer: OffsetWriter,
        prepare_topic: Callable[[str], None],
        flush_interval_s: float,
        flush_timeout_s: float,
        transactions: TaskTransactions | None = None,
    ) -> None:
        """`prepare_topic` is called once before the first record for a topic is sent."""
        super().__init__(task_id, listener, target)
        self._task = task
        self._config = config
        self._chain = new_chain(self.stopping)
        self._producer = producer
        self._writer = writer
        self._prepare_topic = prepare_topic
        self._flush_interval_s = flush_interval_s
        self._flush_timeout_s = flush_timeout_s
        self._topics: set[str] = set()
        self._failure: str | None = None
        self._has_commit_record = type(task).commit_record is not SourceTask.commit_record
        self._stop_lock = threading.Lock()
        self._was_initialized, self._was_started, self._was_stopped = False, False, False
        task.context = _Context(config, reader, transactions)

    def execute(self) -> None:
        try:
            self._copy_all()
            if not self.is_abandoned:
                self._finish()
        except BaseException:
            if not self.is_abandoned:
                self._give_up()
            raise

    def _copy_all(self) -> None:
        self._begin()
        self._writer.refresh()
        self._was_initialized = True
        self._task.start(self._config)
        self._was_started = True
        was_paused = self.is_paused
        self.report(State.PAUSED if was_paused else State.RUNNING)
        while not self.stopping.is_set():
            if self.is_paused != was_paused:
                was_paused = self.is_paused
                self.report(State.PAUSED if was_paused else State.RUNNING)
            if was_paused:
                self.wait(PAUSED_WAIT_S)
            else:
                self._copy()
            self._producer.poll(0)
            self._raise_failure()
            self._store_if_due()

    def release(self) -> None:
        try:
            if self._was_initialized:
                self._stop_once()
        finally:
            self._chain.close()
            self._producer.purge()
            self._producer.flush(PURGE_S)  # what waits for an acknowledgement keeps the producer alive

    def abandon(self) -> None:
        """Send nothing more either: a later run of the task sends it again, and newer records behind it."""
        super().abandon()
        self._producer.purge()

    def _interrupt(self) -> None:
        if not self._was_started:
            return  # `start` is not to be disturbed: the task's own thread stops it afterwards
        try:
            self._stop_once()
        except Exception:  # of the connector's code
            logger.exception("task %s could not be stopped", self.id)

    def _stop_once(self) -> None:
        """Call `stop` of the task, or wait for the thread that does."""
        with self._stop_lock:
            if not self._was_stopped:
                self._was_stopped = True
                self._task.stop()

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _send(self, records: Sequence[SourceRecord]) -> None:
        """Send the records of one poll, perhaps none."""

    @abstractmethod
    def _store_if_due(self) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    @abstractmethod
    def _give_up(self) -> None:
        """Settle what was sent before a failure. Raises nothing."""

    def _copy(self) -> None:
        try:
            records = self._task.poll()
        except RetriableError as error:
            logger.warning("task %s will be polled again: %s", self.id, error)
            self.wait(RETRY_S)
            return
        if not self.is_abandoned:
            self._send(records or ())

    def _produce(self, record: SourceRecord, on_delivery: Callable[..., None]) -> bool:
        """Send a record; return False if it is dropped. Raises StoppedError."""
        if self.is_abandoned:
            raise StoppedError
        converted = self._chain.convert(record)
        if converted is None:
            return False
        topic, key, value, headers, partition, timestamp_ms = converted
        if topic not in self._topics:
            self._prepare_topic(topic)
            self._topics.add(topic)
            self._listener.uses_topic(self.id, topic)
        try:
            self._enqueue(
                topic, value, key, partition, on_delivery=on_delivery, timestamp=timestamp_ms, headers=headers
            )
        except library.KafkaException as error:  # the record is too large, for example
            self._refused(f"a record for topic {topic} cannot be sent: {error.args[0].str()}")
            return False
        return True

    def _enqueue(self, *record: Any, **options: Any) -> None:
        """Give a record to the producer; wait while its queue is full. Raises StoppedError."""
        while True:
            try:
                self._producer.produce(*record, **options)
            except BufferError:
                self._producer.poll(FULL_QUEUE_S)
                self._raise_failure()
                if self.stopping.is_set():
                    raise StoppedError from None
            else:
                return

    def _refused(self, reason: str) -> None:
        """The producer does not accept a record. Raises ConnectError unless that is tolerated."""
        raise ConnectError(reason)

    def _confirm(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        """Tell the task of an acknowledgement. Its errors are logged: the record has arrived."""
        if self._has_commit_record:
            try:
                self._task.commit_record(record, partition, offset)
            except Exception:
                logger.exception("commit_record of task %s has failed", self.id)

    def _confirm_offsets(self) -> None:
        """Tell the task that offsets are stored. Its errors are logged."""
        try:
            self._task.commit()
        except Exception:
            logger.exception("commit of task %s has failed", self.id)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ConnectError(self._failure)


class AtLeastOnceSourceTask(RunningSourceTask):
    """Stores offsets from time to time, behind acknowledged records."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._batches: deque[_Batch] = deque()
        self._acknowledged: dict[str, _Position] = {}
        self._stored_s = time.monotonic()

    def _begin(self) -> None: ...

    def _send(self, records: Sequence[SourceRecord]) -> None:
        if not records:
            return
        batch = _Batch()
        self._batches.append(batch)

        def delivered(error: Any, message: library.Message) -> None:
            self._delivered(batch, None, error, message)

        for record in records:
            on_delivery = self._with_record(batch, record) if self._has_commit_record else delivered
            batch.pending += 1
            try:
                was_sent = self._produce(record, on_delivery)
            except StoppedError:
                batch.pending -= 1  # offsets before this record may be stored, those from here on are not known
                return
            if not was_sent:
                batch.pending -= 1
                self._confirm(record, None, None)
            batch.keep(record)
        self._forget_acknowledged()

    def _with_record(self, batch: _Batch, record: SourceRecord) -> Callable[..., None]:
        return lambda error, message: self._delivered(batch, record, error, message)

    def _delivered(self, batch: _Batch, record: SourceRecord | None, error: Any, message: library.Message) -> None:
        """Called for each record, by the thread of the task, while it polls the producer."""
        if error is not None:
            # The batch stays pending: neither its offsets nor later ones are stored. This is never tolerated: the
            # broker refuses all records of a request together, not only the one that it does not accept.
            self._failure = f"a record for topic {message.topic()} was not acknowledged: {error.str()}"
            return
        batch.pending -= 1
        if record is not None:
            self._confirm(record, message.partition(), message.offset())

    def _refused(self, reason: str) -> None:
        self._chain.failures.handle(Failure("KAFKA_PRODUCE", type(self._producer).__qualname__, ConnectError(reason)))

    def _forget_acknowledged(self) -> None:
        """Keep the offsets of batches whose records, and all before them, are acknowledged."""
        while self._batches and not self._batches[0].pending:
            self._batches.popleft().merge_into(self._acknowledged)

    def _store_if_due(self) -> None:
        if time.monotonic() - self._stored_s >= self._flush_interval_s:
            self._store()

    def _store(self) -> None:
        self._stored_s = time.monotonic()
        self._forget_acknowledged()
        offsets = list(self._acknowledged.values())
        if offsets and not self._writer.store(offsets, self._flush_timeout_s):
            return
        self._acknowledged.clear()
        self._confirm_offsets()

    def _finish(self) -> None:
        self._producer.flush(self._flush_timeout_s)
        self._raise_failure()
        self._store()

    def _give_up(self) -> None:
        """Store the offsets of acknowledged records: the next run need not send them again."""
        try:
            self._producer.flush(self._flush_timeout_s)
            if not self.is_abandoned:
                self._store()
        except Exception:
            logger.exception("the offsets of task %s are not stored", self.id)


class ExactlyOnceSourceTask(RunningSourceTask):
    """Sends records and their offsets in transactions (KIP-618). The transactional id fences earlier runs."""

    def __init__(
        self, *arguments: Any, settings: Mapping[str, Any], is_current: Callable[[], bool], **options: Any
    ) -> None:
        """`settings` are the connector's, parsed. `is_current` tells whether the task is still to run."""
        super().__init__(*arguments, **options)
        self._is_current = is_current
        self._boundary = settings[TRANSACTION_BOUNDARY].lower()
        interval_ms = settings[TRANSACTION_INTERVAL]
        self._interval_s = self._flush_interval_s if interval_ms is None else interval_ms / 1000
        self._transactions: TaskTransactions | None = options.get("transactions")
        self._positions: dict[str, _Position] = {}
        self._sent: list[tuple[SourceRecord, list[tuple[int, int]]]] = []
        """The records of the open transaction with their places in the broker, if the task wants to know them."""
        self._is_open = False
        self._is_cut = False
        self._began_s = 0.0

    def _begin(self) -> None:
        """Fence earlier runs. A later run may have fenced this one before: then it would come back.

        Raises ConnectError.
        """
        self._producer.init_transactions(TRANSACTION_TIMEOUT_S)
        if not self._is_current():
            raise ConnectError(f"the task {self.id} has another configuration since, or belongs to another worker")

    def _send(self, records: Sequence[SourceRecord]) -> None:
        if records and not self._is_open:
            self._open()
        batch = _Batch()
        for record in records:
            place: list[tuple[int, int]] = []
            try:
                self._produce(record, self._with_place(place))
            except StoppedError:
                self._is_cut = True
                return
            if self._has_commit_record:
                self._sent.append((record, place))
            batch.keep(record)
        batch.merge_into(self._positions)
        self._end_batch()

    def _with_place(self, place: list[tuple[int, int]]) -> Callable[..., None]:
        if not self._has_commit_record:
            return self._delivered
        return lambda error, message: self._delivered(error, message, place)

    def _delivered(self, error: Any, message: library.Message, place: list[tuple[int, int]] | None = None) -> None:
        """Called for each record, by the thread of the task, while it polls the producer."""
        if error is not None and error.name() in _ABORTED:
            return
        if error is not None:
            self._failure = f"a record for topic {message.topic()} was not acknowledged: {error.str()}"
        elif place is not None:
            place.append((message.partition() or 0, message.offset() or 0))

    def _end_batch(self) -> None:
        """Put into effect what the task, or the boundary 'poll', wants after the records of one poll."""
        wishes = self._transactions
        if self._is_open and wishes is not None and wishes.wants_abort:
            self._abort()
        elif self._is_open and (self._boundary == "poll" or (wishes is not None and wishes.wants_commit)):
            self._commit()
        if wishes is not None:
            wishes.wants_commit = wishes.wants_abort = False

    def _store_if_due(self) -> None:
        if self._boundary == "interval" and self._is_open and time.monotonic() - self._began_s >= self._interval_s:
            self._commit()

    def _open(self) -> None:
        self._producer.begin_transaction()
        self._is_open, self._began_s = True, time.monotonic()

    def _commit(self) -> None:
        for topic, key, value in self._writer.messages(list(self._positions.values())):
            self._enqueue(topic, value, key, on_delivery=self._delivered)
        try:
            self._producer.commit_transaction(TRANSACTION_TIMEOUT_S)
        except library.KafkaException as error:
            raise ConnectError(f"the transaction cannot be committed: {error.args[0].str()}") from error
        self._raise_failure()
        self._is_open = False
        self._positions.clear()
        sent, self._sent = self._sent, []
        for record, place in sent:
            self._confirm(record, *(place[0] if place else (None, None)))
        self._confirm_offsets()

    def _abort(self) -> None:
        """Drop the records of the open transaction, and store that they were read."""
        self._producer.abort_transaction(TRANSACTION_TIMEOUT_S)
        self._is_open = False
        self._sent.clear()
        self._open()
        self._commit()

    def _finish(self) -> None:
        """Commit what is complete: a poll that was sent whole, unless the connector defines the boundaries."""
        if self._is_open and self._boundary != "connector" and not self._is_cut:
            self._commit()
        elif self._is_open:
            self._producer.abort_transaction(TRANSACTION_TIMEOUT_S)

    def _give_up(self) -> None:
        """Abort the open transaction: readers of committed records do not wait for its timeout."""
        if not self._is_open:
            return
        try:
            self._producer.abort_transaction(self._flush_timeout_s)
        except Exception as error:  # a later run may have fenced this one
            logger.warning("the transaction of task %s is not aborted: %s", self.id, error)
