"""Runs the task of a sink: a consumer of the connector's group, whose records are put into the target.

Owns the order that loses nothing: offsets are committed after the task has confirmed them (`pre_commit`), and before
partitions are given away. The library reports a position that a log does not have, and never moves it by itself: so a
record before the position is one of an earlier assignment, and not the beginning of another log. Must not know targets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, cast

from base.topic_partition import TopicPartition
from spark_jobs.connect.base.api import Offsets, SinkTask
from spark_jobs.connect.base.errors import ConnectError, RetriableError
from spark_jobs.connect.base.records import Headers, SinkRecord
from spark_jobs.connect.base.states import State, StateListener, TargetState, TaskId
from spark_jobs.connect.worker import chain
from spark_jobs.connect.worker.chain import Converters, Step
from spark_jobs.connect.worker.dead_letters import DeadLetters
from spark_jobs.connect.worker.failures import Failure, Failures, Origin
from spark_jobs.connect.worker.subscription import Subscription
from spark_jobs.connect.worker.task import RunningTask, StoppedError
from tools.client import client_library as library

logger = logging.getLogger("org.apache.kafka.connect.runtime.WorkerSinkTask")

BATCH_SIZE: Final = 2_000
POLL_S: Final = 0.2
COMMITTED_S: Final = 10.0
RETRY_S: Final = 3.0
"""How long a sink that raised RetriableError waits, unless it says otherwise."""
WITHOUT_TIMESTAMP: Final = 0

# The group has moved on: the member that has the partitions now commits itself.
_REBALANCED: Final = frozenset({"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_STATE"})
_OFFSET_LOST: Final = "_AUTO_OFFSET_RESET"
"""The log of a partition does not have the position of the consumer."""
_FINAL: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "INVALID_GROUP_ID",
        _OFFSET_LOST,
    }
)
"""Errors of the consumer that do not end by themselves: a user has to act."""

TopicIds = Callable[[Collection[str]], Mapping[str, str]]


class SinkChain:
    """Converts and transforms the records of one task."""

    def __init__(
        self, steps: Sequence[Step], converters: Converters, failures: Failures, dead_letters: DeadLetters | None
    ) -> None:
        self._steps = steps
        self._converters = converters
        self.failures = failures
        self.dead_letters = dead_letters
        self._stage = ""
        self._at: object = None

    def convert(self, message: library.Message, partition: TopicPartition, offset: int) -> SinkRecord | None:
        """Return the record; None if it is dropped.

        Raises ConnectError if it fails for good, StoppedError if the task is to end before it does.
        """
        try:
            if not self.failures.repeats:
                return self._convert(message, partition, offset)
            return self.failures.retried(lambda: self._convert(message, partition, offset))
        except StoppedError:
            raise
        except Exception as error:
            at = type(self._at).__qualname__
            self.failures.handle(Failure(self._stage, at, error, Origin(*partition, offset), message))
            return None

    def close(self) -> None:
        chain.close(self._steps)

    def _convert(self, message: library.Message, origin: TopicPartition, offset: int) -> SinkRecord | None:
        key, value, header = self._converters
        topic, partition = origin
        self._stage, self._at = "KEY_CONVERTER", key
        key_schema, key_data = key.to_data(topic, message.key())
        self._stage, self._at = "VALUE_CONVERTER", value
        value_schema, value_data = value.to_data(topic, message.value())
        headers: Headers = ()
        if stored := message.headers():
            self._stage, self._at = "HEADER_CONVERTER", header
            headers = tuple((name, *header.to_header(topic, name, each)) for name, each in stored)
        kind, timestamp_ms = message.timestamp()
        record: SinkRecord | None = SinkRecord(
            topic,
            partition,
            value_data,
            value_schema,
            key_data,
            key_schema,
            None if kind == WITHOUT_TIMESTAMP else timestamp_ms,
            headers,
            topic,
            partition,
            offset,
            None if self.dead_letters is None else message,
        )
        for step in self._steps:
            self._stage, self._at = "TRANSFORMATION", step.transformation
            if (record := step.apply(record)) is None:
                return None
        return record


class _Context:
    """What a task sees of its worker. Its wishes take effect between two calls of the task."""

    def __init__(self, config: Mapping[str, str], failures: Failures, topic_ids: TopicIds) -> None:
        self.config = config
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.to_seek: dict[TopicPartition, int] = {}
        self.to_pause: set[TopicPartition] = set()
        self.to_resume: set[TopicPartition] = set()
        self.retry_s: float | None = None
        self.wants_commit = False
        self._failures = failures
        self._topic_ids = topic_ids

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.assigned)

    def seek(self, offsets: Offsets) -> None:
        self.to_seek.update(offsets)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return self._topic_ids(topics)

    def pause(self, *partitions: TopicPartition) -> None:
        self.to_pause.update(partitions)
        self.to_resume.difference_update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.to_resume.update(partitions)
        self.to_pause.difference_update(partitions)

    def retry_after(self, timeout_ms: int) -> None:
        self.retry_s = timeout_ms / 1000

    def request_commit(self) -> None:
        self.wants_commit = True

    def report_errant(self, record: SinkRecord, error: Exception) -> None:
        origin = Origin(record.original_topic, record.original_partition, record.offset)
        message = cast(library.Message | None, record.message)
        self._failures.handle(Failure("TASK_PUT", "SinkTask", error, origin, message))


class RunningSinkTask(RunningTask):
    """A sink task in its thread."""

    def __init__(
        self,
        task_id: TaskId,
        listener: StateListener,
        target: TargetState,
        *,
        task: SinkTask,
        config: Mapping[str, str],
        new_chain: Callable[[threading.Event], SinkChain],
        new_consumer: Callable[[], library.Consumer],
        reset_offset: int | None,
        topic_ids: TopicIds,
        subscription: Subscription,
        flush_interval_s: float,
    ) -> None:
        """`reset_offset` is where a partition begins whose log does not have its position; None if the task fails
        then."""
        super().__init__(task_id, listener, target)
        self._task = task
        self._config = config
        self._chain = new_chain(self.stopping)
        self._new_consumer = new_consumer
        self._reset_offset = reset_offset
        self._consumer: library.Consumer | None = None
        self._subscription = subscription
        self._flush_interval_s = flush_interval_s
        self._context = _Context(config, self._chain.failures, topic_ids)
        task.context = self._context
        self._delivered: dict[TopicPartition, int] = {}
        """Behind the last record of each partition that the task has."""
        self._confirmed: dict[TopicPartition, int] = {}
        """Where reading begins again when the task could not write what it had taken."""
        self._next: dict[TopicPartition, int] = {}
        """The offset of the next record, where it is known: after a rebalance the library may return records of an
        earlier assignment."""
        self._unproven: set[TopicPartition] = set()
        """Partitions of which no record has arrived since: one behind a gap may be such a record too."""
        self._lost_positions: set[TopicPartition] = set()
        """Partitions that the consumer does not read until they have a new position."""
        self._committed_s = time.monotonic()
        self._topics: set[str] = set()
        self._kept: list[library.Message] = []
        """What has arrived during a wait, in front of what arrives next."""
        self._is_holding = False
        """Whether the partitions are paused because the task did not take its records yet."""
        self._was_started = False
        self._has_failed = False
        self._failure: Exception | None = None

    def execute(self) -> None:
        try:
            if self._chain.dead_letters is not None:
                self._chain.dead_letters.prepare()
            self._execute()
        except BaseException:
            self._has_failed = True
            raise

    def release(self) -> None:
        """Commit, leave the group and stop the task. A task that has failed commits nothing."""
        try:
            if self._consumer is not None:
                self._consumer.close()  # calls `_revoked`
        finally:
            if self._was_started:
                self._task.stop()
            self._chain.close()

    def _execute(self) -> None:
        self._consumer = self._new_consumer()
        self._was_started = True
        self._task.start(self._config)
        was_paused = self.is_paused
        self.report(State.PAUSED if was_paused else State.RUNNING)
        with suppress(StoppedError):  # the positions are before the records of this step
            while not self.stopping.is_set():
                if self.is_paused != was_paused:
                    was_paused = self.is_paused
                    self._pause_all(was_paused)
                    self.report(State.PAUSED if was_paused else State.RUNNING)
                self._step()

    def _step(self) -> None:
        self._subscribe()
        self._apply_wishes()
        kept, self._kept = self._kept, []
        records, positions = self._convert(kept or self._poll(POLL_S))
        self._put(records, positions)
        is_due = time.monotonic() - self._committed_s >= self._flush_interval_s
        if is_due or self._context.wants_commit:
            self._commit()

    def _subscribe(self) -> None:
        assert self._consumer is not None
        topics = self._subscription.changed(self._consumer, time.monotonic())
        if topics:
            self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        elif topics is not None:
            self._consumer.unsubscribe()

    def _poll(self, timeout_s: float) -> list[library.Message]:
        """Return what has arrived: it waits for the first record only."""
        assert self._consumer is not None
        first = self._consumer.poll(timeout_s)
        if self._failure is not None:
            raise self._failure
        return [] if first is None else [first, *self._consumer.consume(BATCH_SIZE, 0)]

    def _convert(self, messages: Sequence[library.Message]) -> tuple[list[SinkRecord], dict[TopicPartition, int]]:
        """Return the records, and the positions behind them and behind those that are dropped."""
        records: list[SinkRecord] = []
        positions: dict[TopicPartition, int] = {}
        assigned, to_seek = self._context.assigned, self._context.to_seek
        for message in messages:
            partition = message.topic() or "", message.partition() or 0
            if (error := message.error()) is not None:
                self._reported(error, partition)
                continue
            if partition not in assigned or partition in to_seek:
                continue
            if partition[0] not in self._topics:
                self._topics.add(partition[0])
                self._listener.uses_topic(self.id, partition[0])
            offset = message.offset() or 0
            if (expected := self._next.get(partition)) is not None:
                if offset < expected or (partition in self._unproven and self._reads_again(partition, offset)):
                    continue
                self._next[partition] = offset + 1
            if (record := self._chain.convert(message, partition, offset)) is not None:
                records.append(record)
            self._confirmed.setdefault(partition, offset)
            positions[partition] = offset + 1
        return records, positions

    def _reads_again(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a first record behind a gap is left out, and the gap read once more: compaction may have made it."""
        self._unproven.discard(partition)
        if offset == self._next[partition]:
            return False
        self._context.to_seek[partition] = self._next[partition]
        return True

    def _reported(self, error: library.KafkaError, partition: TopicPartition) -> None:
        """Log an error of the consumer. Raises ConnectError for one that does not end by itself."""
        if error.name() == _OFFSET_LOST and self._reset_offset is not None:
            if partition in self._context.assigned:
                self._lost_positions.add(partition)
        elif error.fatal() or error.name() in _FINAL:
            raise ConnectError(f"the consumer cannot go on: {error.str()}")
        logger.warning("task %s: the consumer reports: %s", self.id, error.str())

    def _put(self, records: Sequence[SinkRecord], positions: Mapping[TopicPartition, int]) -> None:
        """Deliver records; again after a while, with nothing else between, if the task asks for that.

        If it is to end before the target has them, the positions stay before them.
        """
        while not self._try_put(records):
            if not self._is_holding:
                self._is_holding = True
                self._pause_all(True)
            retry_s, self._context.retry_s = self._context.retry_s, None
            self._wait_paused(RETRY_S if retry_s is None else retry_s)
            if self.stopping.is_set():
                return
            records = [each for each in records if _origin(each) in self._context.assigned]
        if self._is_holding:
            self._is_holding = False
            self._pause_all(self.is_paused)
        assigned = self._context.assigned
        self._delivered.update({each: offset for each, offset in positions.items() if each in assigned})

    def _try_put(self, records: Sequence[SinkRecord]) -> bool:
        try:
            self._task.put(records)
        except RetriableError as error:
            logger.warning("task %s will get %d records again: %s", self.id, len(records), error)
            return False
        return True

    def _wait_paused(self, timeout_s: float) -> None:
        """Wait, but serve rebalances: the consumer is paused. What it returns nevertheless is kept for later."""
        end_s = time.monotonic() + timeout_s
        while (left_s := end_s - time.monotonic()) > 0 and not self.stopping.is_set():
            self._kept += self._poll(min(left_s, POLL_S))

    def _commit(self) -> None:
        """Commit the offsets that the task confirms; deliver again what it could not write."""
        self._committed_s = time.monotonic()
        self._context.wants_commit = False
        if not self._delivered:
            return
        try:
            confirmed = self._task.pre_commit(dict(self._delivered))
        except Exception:  # of the connector's code
            logger.exception("task %s could not write its records, and gets them again", self.id)
            self._begin_again()
            return
        if self._chain.dead_letters is not None and not self._chain.dead_letters.flush():
            logger.error("task %s: dead letters are not acknowledged, and the offsets not committed", self.id)
            return
        offsets = []
        for partition, offset in confirmed.items():
            if partition not in self._context.assigned:
                logger.warning("task %s confirms %s, which it does not have: ignored", self.id, partition)
            elif offset > self._delivered.get(partition, offset):
                logger.warning("task %s confirms %s up to %d, beyond its records: ignored", self.id, partition, offset)
            else:
                offsets.append(library.TopicPartition(*partition, offset))
        if not offsets:
            return
        assert self._consumer is not None
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except library.KafkaException as error:
            failure: library.KafkaError = error.args[0]
            if failure.name() in _REBALANCED:
                logger.warning("task %s: the group has rebalanced before a commit", self.id)
                return
            logger.error("task %s: the offsets are not committed, and will be later: %s", self.id, failure.str())
            return
        self._confirmed.update({(each.topic, each.partition): each.offset for each in offsets})

    def _begin_again(self) -> None:
        """Deliver the records behind the last commit again."""
        wanted = {each: offset for each, offset in self._confirmed.items() if each not in self._context.to_seek}
        self._context.to_seek.update(wanted)
        self._delivered.clear()

    def _apply_wishes(self) -> None:
        context = self._context
        assert self._consumer is not None
        if self._lost_positions and (starts := self._reset_positions(self._consumer, self._lost_positions)):
            self._begin_anew(self._consumer, starts)
        if self._kept and context.to_seek:
            self._kept = [
                each for each in self._kept if (each.topic() or "", each.partition() or 0) not in context.to_seek
            ]
        for partition, offset in list(context.to_seek.items()):
            if partition not in context.assigned or self._has_sought(partition, offset):
                del context.to_seek[partition]
        self._pause_wanted()
        if wanted := context.to_resume & context.paused:
            context.paused -= wanted
            if not self.is_paused:
                self._consumer.resume([library.TopicPartition(*each) for each in wanted])
        context.to_resume.clear()

    def _pause_wanted(self) -> None:
        context = self._context
        assert self._consumer is not None
        if wanted := context.to_pause & context.assigned:
            context.paused |= wanted
            self._consumer.pause([library.TopicPartition(*each) for each in wanted])
        context.to_pause.clear()

    def _has_sought(self, partition: TopicPartition, offset: int) -> bool:
        """Return False if the consumer does not read the partition yet: it is tried again."""
        assert self._consumer is not None
        try:
            self._consumer.seek(library.TopicPartition(*partition, offset))
        except library.KafkaException as error:
            if error.args[0].name() != "_STATE":
                raise
            return False
        self._delivered[partition] = self._confirmed[partition] = self._next[partition] = offset
        return True

    def _begin_anew(self, consumer: library.Consumer, starts: Offsets) -> None:
        """Continue partitions whose position was lost."""
        for partition, offset in starts.items():
            logger.warning(
                "task %s: the log of %s-%d does not have offset %s: continues at %d",
                self.id, *partition, self._next.get(partition), offset,
            )  # fmt: skip
        self._lost_positions.difference_update(starts)
        self._delivered.update(starts)
        self._confirmed.update(starts)
        self._next.update(starts)
        self._unproven.update(starts)
        self._assign(consumer)  # a partition without a position cannot be sought

    def _assign(self, consumer: library.Consumer) -> None:
        """Read all partitions from their positions on."""
        assigned = self._context.assigned
        consumer.assign(
            [library.TopicPartition(*each, self._next.get(each, library.OFFSET_STORED)) for each in assigned]
        )
        self._pause_wanted()
        held = assigned if self.is_paused or self._is_holding else self._context.paused
        if held:
            consumer.pause([library.TopicPartition(*each) for each in held])

    def _pause_all(self, paused: bool) -> None:
        """Pause all partitions, or let those go on that the task has not paused itself."""
        assert self._consumer is not None
        assigned = self._context.assigned
        which = assigned if paused else assigned - self._context.paused
        partitions = [library.TopicPartition(*each) for each in which]
        (self._consumer.pause if paused else self._consumer.resume)(partitions)

    def _assigned(self, consumer: library.Consumer, partitions: Sequence[library.TopicPartition]) -> None:
        found = [(each.topic, each.partition) for each in partitions]
        self._context.assigned.update(found)
        with self._kept_failure():
            starts = self._starts(consumer, partitions)
            self._task.open(found)
            # A seek right after the assignment replaces the committed offset.
            chosen = {each: self._context.to_seek.pop(each) for each in found if each in self._context.to_seek}
            self._delivered.update(chosen)
            self._confirmed.update(chosen)
            starts |= chosen
            self._next.update(starts)
            self._unproven.update(starts)
            self._assign(consumer)

    def _starts(
        self, consumer: library.Consumer, partitions: Sequence[library.TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the committed offsets, or where partitions without one begin; without a response in time the library
        requests them itself, later."""
        try:
            found = consumer.committed(list(partitions), COMMITTED_S)
        except library.KafkaException as error:
            logger.warning("task %s: the committed offsets are not known: %s", self.id, error.args[0].str())
            return {}
        committed = {(each.topic, each.partition): each.offset for each in found if not each.error}
        new = [partition for partition, offset in committed.items() if offset < 0]
        known = {partition: offset for partition, offset in committed.items() if offset >= 0}
        return {**known, **self._reset_positions(consumer, new)}

    def _reset_positions(
        self, consumer: library.Consumer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return where partitions begin without a position, of those for which the brokers respond in time."""
        if not partitions or self._reset_offset is None:
            return {}
        # -2 and -1 are the beginning and the end of a log, also among the timestamps of ListOffsets.
        wanted = [library.TopicPartition(*each, self._reset_offset) for each in partitions]
        try:
            found = consumer.offsets_for_times(wanted, COMMITTED_S)
        except library.KafkaException as error:
            logger.warning("task %s: the bounds of its logs are not known: %s", self.id, error.args[0].str())
            return {}
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0 and not each.error}

    def _revoked(self, _consumer: library.Consumer, partitions: Sequence[library.TopicPartition]) -> None:
        with self._kept_failure():
            if not self._has_failed:
                self._commit()
        self._close(partitions)

    def _lost(self, _consumer: library.Consumer, partitions: Sequence[library.TopicPartition]) -> None:
        """Another member has these partitions already: a commit would be refused."""
        logger.warning("task %s has lost its membership, and %d partitions", self.id, len(partitions))
        self._close(partitions)

    def _close(self, partitions: Sequence[library.TopicPartition]) -> None:
        found = [(each.topic, each.partition) for each in partitions]
        with self._kept_failure():
            self._task.close(found)
        self._kept = [each for each in self._kept if (each.topic() or "", each.partition() or 0) not in found]
        for each in found:
            self._context.assigned.discard(each)
            self._unproven.discard(each)
            self._lost_positions.discard(each)
            self._context.paused.discard(each)
            self._delivered.pop(each, None)
            self._confirmed.pop(each, None)
            self._next.pop(each, None)
            self._context.to_seek.pop(each, None)

    @contextmanager
    def _kept_failure(self) -> Iterator[None]:
        """Keep an error of a callback, which `_poll` raises: the library would only print it."""
        try:
            yield
        except Exception as error:
            logger.exception("task %s has failed in a rebalance", self.id)
            self._has_failed = True
            if self._failure is None:
                self._failure = error


def _origin(record: SinkRecord) -> TopicPartition:
    return record.original_topic, record.original_partition
