"""All partitions of this broker: finds them, appends and reads through them, and wakes whom that concerns.

Owns: the partitions by topic and number, the produce and fetch purgatories, and which leader epochs are too old to be
applied. Must not know: wire formats of produce and fetch, clients, or which controller is the present one (that is
checked before a request comes here).

Wake-ups: an append or a moved high watermark tries the fetches of that partition; a moved high
watermark tries its produces; lost leadership and removed partitions complete everything that waits on them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from uuid import UUID

from broker.loop.purgatory import Postpone, Purgatory
from broker.loop.slices import Slices
from broker.loop.timer import Timer
from broker.replica.delayed_delete_records import AwaitedDeletion, DelayedDeleteRecords
from broker.replica.delayed_fetch import DelayedFetch
from broker.replica.delayed_produce import AwaitedAppend, DelayedProduce
from broker.replica.fetch_news import FetchNews
from broker.replica.partition import NO_EPOCH, Leadership, Partition
from broker.replica.topic_metrics import AllTopicMetrics
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from protocol.schema import ZERO_UUID
from storage import checkpoints
from storage.log import AppendOrigin, AppendResult, Log, PreparedAppend
from storage.log_manager import LogManager, NewLog, Steps
from storage.shortages import TryLaterError

logger = logging.getLogger("kafka.server.ReplicaManager")

TopicPartition = tuple[str, int]
LeadershipListener = Callable[[Partition], None]


class ReplicaManager:
    """The partitions that this broker leads or follows."""

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        timer: Timer,
        *,
        topic_config: Callable[[str], LogConfig],
        produce_purge_interval: int,
        fetch_purge_interval: int,
        delete_records_purge_interval: int = 1,
        postpone: Postpone | None = None,
        fetch_news: FetchNews | None = None,
    ) -> None:
        """`topic_config(topic)` gives the effective configuration of a topic whose overrides were read before."""
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._topic_config = topic_config
        self._partitions: dict[TopicPartition, Partition] = {}
        self.topic_metrics = AllTopicMetrics()
        self._offline: set[TopicPartition] = set()
        self._not_created: dict[checkpoints.TopicPartition, KafkaError] = {}
        self.on_opened: Callable[[Partition], None] = lambda partition: None
        """Told of each partition that is hosted from now on."""
        self.on_not_opened: Callable[[], None] = lambda: None
        """Told when a partition could not be opened for lack of descriptors or memory: it is worth another try."""
        self.produce_purgatory = Purgatory("Produce", timer, produce_purge_interval)
        self.fetch_purgatory = Purgatory("Fetch", timer, fetch_purge_interval, postpone)
        self.fetch_news = fetch_news or FetchNews(lambda callback: callback())
        self.delete_records_purgatory = Purgatory("DeleteRecords", timer, delete_records_purge_interval)
        self._leadership_listeners: list[tuple[str, LeadershipListener, LeadershipListener]] = []

    @property
    def purgatories(self) -> tuple[Purgatory, ...]:
        return self.produce_purgatory, self.fetch_purgatory, self.delete_records_purgatory

    # -- looking up --------------------------------------------------------------------------------------------------

    def find(self, topic: str, partition: int) -> Partition | None:
        """The partition if a replica of it is hosted here."""
        return self._partitions.get((topic, partition))

    def hosted(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether a replica is here, in a log directory that has failed, until the broker is started again."""
        return (topic, partition) in self._offline

    @property
    def offline_count(self) -> int:
        """How many replicas are in log directories that have failed."""
        return len(self._offline)

    def on_leadership(self, topic: str, gained: LeadershipListener, lost: LeadershipListener) -> None:
        """Tell a coordinator when this broker starts and stops leading partitions of its internal topic."""
        self._leadership_listeners.append((topic, gained, lost))

    # -- producing ---------------------------------------------------------------------------------------------------

    def append(
        self,
        partition: Partition,
        records: memoryview | PreparedAppend,
        *,
        needs_isr: bool,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_take_long: bool = True,
    ) -> AppendResult:
        """Append as leader, advance the high watermark and wake who waits for either.

        Raises what `Partition.append` raises.
        """
        result = partition.append(
            records, needs_isr=needs_isr, now_ms=now_ms, origin=origin, may_take_long=may_take_long
        )
        size = len(records) if isinstance(records, memoryview) else records.size
        partition.metrics.appended(size, result[0], result[1], result[5])
        if partition.advance_high_watermark() and self.produce_purgatory.watched:
            self.produce_purgatory.check_and_complete((partition.topic, partition.partition))
        if self.fetch_purgatory.watched or self.fetch_news.watched:
            self.wake_readers(partition)
        return result

    @property
    def has_slow_directory(self) -> bool:
        """Whether a log of some partition may have no room for now."""
        return self._log_manager.has_slow_directory

    def write_finished(self, log: Log) -> None:
        """An append that waited for a slow log directory was written, or has failed with its log."""
        partition = self.find(log.topic, log.partition)
        if partition is None or partition.log is not log:
            return
        if partition.is_leader and not log.is_offline:
            partition.advance_high_watermark()
        self.produce_purgatory.check_and_complete((log.topic, log.partition))
        self.wake_readers(partition)

    def log_went_offline(self, log: Log) -> None:
        """A log refuses everything from now on: who waits for it gets KAFKA_STORAGE_ERROR."""
        partition = self.find(log.topic, log.partition)
        if partition is not None and partition.log is log:
            self._complete_satisfied(partition)

    def log_start_raised(self, log: Log) -> None:
        """Retention has raised the start of a log, which sessions report to their clients."""
        partition = self.find(log.topic, log.partition)
        if partition is not None and partition.log is log:
            self.fetch_news.tell((log.topic, log.partition))

    def wake_readers(self, partition: Partition) -> None:
        """Who waits for records of this partition may find some."""
        key = (partition.topic, partition.partition)
        self.fetch_news.tell(key)
        self.fetch_purgatory.check_and_complete(key)

    def await_commit(self, appends: list[AwaitedAppend], deadline_ms: int, on_decided: Callable[[], None]) -> None:
        """Call `on_decided` once every append is committed, failed, or `deadline_ms` (monotonic) has passed."""
        operation = DelayedProduce(appends, on_decided)
        self.produce_purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)

    # -- deleting records --------------------------------------------------------------------------------------------

    def delete_records(self, partition: Partition, offset: int) -> AwaitedDeletion:
        """Raise the start of the leader's log, and wake who reads below it. Raises KafkaError."""
        deletion = AwaitedDeletion(partition, partition.delete_records_before(offset))
        key = (partition.topic, partition.partition)
        self.wake_readers(partition)
        self.delete_records_purgatory.check_and_complete(key)
        return deletion

    def await_deletions(
        self,
        deletions: list[AwaitedDeletion],
        is_live: Callable[[int], bool],
        deadline_ms: int,
        on_decided: Callable[[], None],
    ) -> None:
        """Call `on_decided` once all live replicas begin where asked, failed, or `deadline_ms` (monotonic) has passed.

        `is_live` says of a broker whether to wait for it.
        """
        keys = [(one.partition.topic, one.partition.partition) for one in deletions]
        operation = DelayedDeleteRecords(deletions, is_live, on_decided)
        self.delete_records_purgatory.try_complete_else_watch(operation, keys, deadline_ms)

    # -- fetching ----------------------------------------------------------------------------------------------------

    def await_bytes(self, operation: DelayedFetch, deadline_ms: int) -> None:
        """Let a fetch wait until it has its bytes, something changed, or the deadline (monotonic) has passed."""
        self.fetch_purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)

    def await_news(self, operation: DelayedFetch, deadline_ms: int) -> None:
        """As `await_bytes` for a fetch of a session, which is told of its partitions by `fetch_news`."""
        self.fetch_purgatory.try_complete_else_watch(operation, (), deadline_ms)

    # -- what the controller says ------------------------------------------------------------------------------------

    def create_logs(self, request: LeaderAndIsrRequest, now_ms: int) -> Steps[None]:
        """Create the logs of replicas that are new to this broker, before `become_leader_or_follower`.

        A log that cannot be created gets its error there.
        """
        wanted: list[NewLog] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                name = checkpoints.TopicPartition(topic.topic_name, state.partition_index)
                if self._lacks_log(name, state) and (state.is_new or self._may_begin_anew(name)):
                    wanted.append(NewLog(name, _known_id(topic.topic_id), self._topic_config(name.topic)))
                yield None
        self._not_created = yield from self._log_manager.create(wanted, now_ms=now_ms)

    def _lacks_log(self, name: TopicPartition, state: LeaderAndIsrPartitionState) -> bool:
        return (
            name not in self._offline
            and name not in self._partitions
            and self._broker_id in state.replicas
            and self._log_manager.get(*name) is None
        )

    def become_leader_or_follower(self, request: LeaderAndIsrRequest) -> Slices[LeaderAndIsrResponse]:
        """Apply the leadership states of one LeaderAndIsr request; each partition gets its own error code.

        `create_logs` comes first.
        """
        response = LeaderAndIsrResponse(error_code=ErrorCode.NONE, partition_errors=[], topics=[])
        for topic in request.topic_states:
            topic_id = _known_id(topic.topic_id)
            answered = LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=[])
            response.topics.append(answered)
            for state in topic.partition_states:
                code = self._apply(topic.topic_name, topic_id, state)
                answered.partition_errors.append(
                    LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
                yield
        return response

    def stop_replicas(self, request: StopReplicaRequest, now_ms: int) -> Slices[StopReplicaResponse]:
        """Stop (and where asked, delete) replicas; each partition gets its own error code."""
        response = StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=[])
        for topic in request.topic_states:
            for state in topic.partition_states:
                code = self._stop(topic.topic_name, state, now_ms)
                response.partition_errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
                yield
        return response

    def report_unclaimed_logs(self) -> None:
        """Log which logs the controller has not assigned to this broker, once it has assigned everything else.

        As in Kafka with ZooKeeper they stay as they are: a controller that does not know a topic is no proof that its
        records are not wanted. A topic that gets the name again, with an id of its own, is refused, see `_open`.
        """
        for log in self._log_manager.logs():
            if not log.is_offline and (log.topic, log.partition) not in self._partitions:
                logger.warning(
                    "%s, topic id %s, is kept but not served: the metadata assigns no such replica to this broker; "
                    "remove the folder while the broker is stopped if its records are not needed",
                    log.directory,
                    log.topic_id,
                )

    def reconfigure(self, topic: str) -> None:
        """The topic's overrides changed: give its logs the new effective configuration."""
        config = self._topic_config(topic)
        for partition in self.hosted():
            if partition.topic == topic:
                partition.log.reconfigure(config)
                if partition.is_leader and partition.advance_high_watermark():
                    # min.insync.replicas no longer holds it back.
                    self._complete_satisfied(partition)
                copy = self._log_manager.future(topic, partition.partition)
                if copy is not None:
                    copy.reconfigure(config)

    def directory_failed(self) -> list[TopicPartition]:
        """Serve no more what lay in log directories that have failed; return what that takes out of service.

        Whoever waits for such a partition is told KAFKA_STORAGE_ERROR.
        """
        lost = [partition for partition in self.hosted() if partition.log.is_offline]
        for partition in lost:
            self._offline.add((partition.topic, partition.partition))
            self._close(partition.topic, partition.partition)
        return [(partition.topic, partition.partition) for partition in lost]

    def _apply(self, topic: str, topic_id: UUID | None, state: LeaderAndIsrPartitionState) -> ErrorCode:
        """`topic_id` is None if the controller is too old to know it."""
        key = (topic, state.partition_index)
        if key in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._partitions.get(key)
        try:
            if partition is not None:
                _require_same_topic(partition.log, topic_id)
                if state.leader_epoch <= partition.leader_epoch:
                    return _ignore(partition, topic_id, state)
            if self._broker_id not in state.replicas:
                logger.warning("ignoring LeaderAndIsr for %s-%d: its replicas are %s", *key, state.replicas)
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                partition = self._open(topic, topic_id, state)
            elif state.partition_epoch < partition.leadership.partition_epoch:
                logger.warning("skipping LeaderAndIsr for %s-%d: its partition epoch is old", *key)
                return ErrorCode.NONE
            self._lead_or_follow(
                partition,
                Leadership(
                    state.controller_epoch,
                    state.leader,
                    state.leader_epoch,
                    tuple(state.isr),
                    state.partition_epoch,
                    tuple(state.replicas),
                ),
            )
        except KafkaError as error:
            logger.error("cannot serve %s-%d: %s", topic, state.partition_index, error)
            if isinstance(error, TryLaterError):
                self.on_not_opened()
            return error.code
        return ErrorCode.NONE

    def _open(self, topic: str, topic_id: UUID | None, state: LeaderAndIsrPartitionState) -> Partition:
        name = checkpoints.TopicPartition(topic, state.partition_index)
        log = self._log_manager.get(*name)
        if log is None:
            # Not removed: a request may name the partition again.
            raise self._not_created.get(name) or KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {topic}-{state.partition_index} was not created"
            )
        _require_same_topic(log, topic_id)
        if log.topic_id is None and topic_id is not None:
            # Written by a broker of a time before there were ids.
            log.assign_topic_id(topic_id)
        # `reconfigure` goes over hosted partitions only, so a change since the log was created has not reached it.
        config = self._topic_config(topic)
        log.reconfigure(config)
        copy = self._log_manager.future(*name)
        if copy is not None:
            copy.reconfigure(config)
        partition = Partition(topic, state.partition_index, self._broker_id, log, self.topic_metrics.opened(topic))
        self._partitions[name] = partition
        self.on_opened(partition)
        return partition

    def _may_begin_anew(self, name: TopicPartition) -> bool:
        """An existing replica has no log; False while a log directory that may hold it is offline."""
        if self._log_manager.directories.has_offline:
            # An empty log in its place would be taken for the whole truth.
            self._offline.add(name)
            logger.error("cannot serve %s-%d: its log may lie in a log directory that is offline", *name)
            return False
        vanished = self._log_manager.startup.take_vanished(*name)
        known = "" if vanished is None else f"; it was in {vanished[0]}, committed up to offset {vanished[1]}"
        logger.warning("no log directory holds %s-%d, which exists: an empty log is created%s", *name, known)
        return True

    def _lead_or_follow(self, partition: Partition, leadership: Leadership) -> None:
        was_leader = partition.is_leader
        if leadership.leader_id == self._broker_id:
            is_new_leader = partition.lead(leadership)
            if is_new_leader:
                self._announce(partition, gained=True)
        else:
            partition.follow(leadership)
            if was_leader:
                self._announce(partition, gained=False)
        self._complete_satisfied(partition)

    def _complete_satisfied(self, partition: Partition) -> None:
        """The state of a partition has changed in a way that may concern everybody who waits for it."""
        key = (partition.topic, partition.partition)
        self.fetch_news.tell(key)
        for purgatory in self.purgatories:
            purgatory.check_and_complete(key)

    def _stop(self, topic: str, state: StopReplicaPartitionState, now_ms: int) -> ErrorCode:
        key = (topic, state.partition_index)
        if key in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._partitions.get(key)
        if partition is not None and NO_EPOCH < state.leader_epoch < partition.leader_epoch:
            logger.warning(
                "ignoring StopReplica for %s-%d: its leader epoch is %d, the present one %d",
                *key,
                state.leader_epoch,
                partition.leader_epoch,
            )
            return ErrorCode.FENCED_LEADER_EPOCH
        if partition is not None and not state.delete_partition:
            # It stays known by its epochs, so that what was sent before the stop does not start it again.
            self._end_service(partition)
            return ErrorCode.NONE
        self._close(*key)
        if state.delete_partition:
            try:
                self._log_manager.delete(*key, now_ms=now_ms)
            except KafkaError as error:
                logger.error("cannot delete %s-%d: %s", *key, error)
                return error.code
        return ErrorCode.NONE

    def _close(self, topic: str, partition_index: int) -> None:
        """Host a partition no more, and let nobody wait for it."""
        partition = self._partitions.pop((topic, partition_index), None)
        if partition is not None:
            self.topic_metrics.closed(topic)
            self._end_service(partition)

    def _end_service(self, partition: Partition) -> None:
        """Lead or follow no more, and let nobody wait."""
        was_leader = partition.is_leader
        partition.stop()
        if was_leader:
            self._announce(partition, gained=False)
        key = (partition.topic, partition.partition)
        self.fetch_news.tell(key)
        for purgatory in self.purgatories:
            purgatory.force_complete_all(key)

    def _announce(self, partition: Partition, *, gained: bool) -> None:
        for topic, on_gained, on_lost in self._leadership_listeners:
            if topic == partition.topic:
                (on_gained if gained else on_lost)(partition)


def _known_id(topic_id: UUID) -> UUID | None:
    """None if the controller is too old to know it."""
    return None if topic_id == ZERO_UUID else topic_id


def _require_same_topic(log: Log, topic_id: UUID | None) -> None:
    """Raises KafkaError: INCONSISTENT_TOPIC_ID, when the log belongs to another topic of the same name."""
    if topic_id is not None and log.topic_id is not None and log.topic_id != topic_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{log.directory} belongs to the topic id {log.topic_id}, expected {topic_id}",
        )


def _ignore(partition: Partition, topic_id: UUID | None, state: LeaderAndIsrPartitionState) -> ErrorCode:
    """A state whose leader epoch is not new changes nothing, but it may name the topic's id for the first time.

    The leader learns of changes of the ISR by AlterPartition, within its epoch. A request that repeats the epoch may
    have been sent before such a change: applied, it would take an in-sync replica back out of the ISR, and records that
    this replica does not have would be committed. Raises KafkaError: KAFKA_STORAGE_ERROR.
    """
    is_repeated = state.leader_epoch == partition.leader_epoch
    if is_repeated and partition.topic_id is None and topic_id is not None:
        partition.log.assign_topic_id(topic_id)
        return ErrorCode.NONE
    logger.log(
        logging.DEBUG if is_repeated else logging.WARNING,
        "ignoring LeaderAndIsr for %s-%d: its leader epoch is %d, the present one %d",
        partition.topic,
        partition.partition,
        state.leader_epoch,
        partition.leader_epoch,
    )
    return ErrorCode.STALE_CONTROLLER_EPOCH
