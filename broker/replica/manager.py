"""All partitions of this broker: finds them, changes their leadership and completes delayed operations.

Owns: the partitions by topic and number, the purgatories, and which leader epochs are too old to be applied. Must not
know: wire formats of produce and fetch, clients, or which controller is the present one (which is checked before a
request comes here).

An append or an advanced high watermark tries the delayed fetches of the partition. An advanced high watermark also
tries its delayed produces. Lost leadership and the removal of a partition complete all operations that wait for it.

Two ports lead out of here: `on_isr_change` requests a change of the ISR from the controller, and `replication` fetches
the partitions that this broker follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Protocol
from uuid import UUID

from base.pause import InThread, Pause
from base.topic_partition import TopicPartition
from broker.loop.purgatory import DelayedOperation, Postpone, Purgatory
from broker.loop.timer import Timer
from broker.replica.delayed_delete_records import AwaitedDeletion, DelayedDeleteRecords
from broker.replica.delayed_fetch import DelayedFetch
from broker.replica.delayed_produce import AwaitedAppend, DelayedProduce
from broker.replica.fetch_news import FetchNews
from broker.replica.machine.isr import UNKNOWN_BROKER_EPOCH, IsrChange
from broker.replica.partition import (
    NO_EPOCH,
    NO_LEADER,
    Effect,
    Effects,
    IsrResponse,
    Leadership,
    Partition,
    ReplicaRules,
)
from broker.replica.topic_metrics import AllTopicMetrics
from broker.replica.truncations import Truncations
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
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.schema import ZERO_UUID
from storage.disk.shortages import TryLaterError
from storage.log.log import Log
from storage.manager.log_manager import LogManager, NewLog

logger = logging.getLogger("kafka.server.ReplicaManager")

LeadershipListener = Callable[[Partition], None]


class Replication(Protocol):
    """Fetches partitions from their leaders."""

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Fetch the partition from a live leader, in the partition's present leader epoch."""

    def unfollow(self, key: TopicPartition) -> None:
        """Stop fetching the partition. Has no effect if it is not fetched."""


class NoReplication:
    """`Replication` of a broker without others."""

    def follow(self, partition: Partition, leader_id: int) -> None: ...

    def unfollow(self, key: TopicPartition) -> None: ...


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
        rules: ReplicaRules | None = None,
        monotonic_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`topic_config(topic)` returns the effective configuration of a topic whose overrides are loaded."""
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._topic_config = topic_config
        self._partitions: dict[TopicPartition, Partition] = {}
        self._topics: dict[UUID, str] = {}
        self.topic_metrics = AllTopicMetrics()
        self._rules = rules
        self.monotonic_ms = monotonic_ms
        """The time by which followers are caught up."""
        self.on_isr_change: Callable[[Partition, IsrChange], None] = lambda partition, change: None
        """Called with each change of the ISR that is to be requested; `isr_responded` takes the response."""
        self.replication: Replication = NoReplication()
        self.truncations = Truncations()
        """Keeps requests of the controller and truncations apart; the control door uses it around each request."""
        self._offline: set[TopicPartition] = set()
        self._not_created: dict[TopicPartition, KafkaError] = {}
        self._created_empty: set[TopicPartition] = set()
        """Partitions that exist, whose missing log was replaced by an empty one, and which have not led since."""
        self.on_opened: Callable[[Partition], None] = lambda partition: None
        """Called with each partition that is hosted from now on."""
        self.on_not_opened: Callable[[], None] = lambda: None
        """Called when a partition could not be opened for lack of descriptors or memory, so that it can be retried."""
        self.slow_directories: Collection[str] = log_manager.slow_directories
        """The log directories that are slow; the logs in them may have no room for appends."""
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
        """Return the partition if a replica of it is hosted here, else None."""
        return self._partitions.get((topic, partition))

    def leading_since(self, key: TopicPartition) -> int:
        """Return `Partition.leading_since`, -1 if this broker does not lead the partition."""
        partition = self._partitions.get(key)
        return NO_EPOCH if partition is None else partition.leading_since

    def topic_of(self, topic_id: UUID) -> str | None:
        """Return the topic with this id if a replica of it is hosted here.

        LeaderAndIsr precedes UpdateMetadata. So a follower may ask for a topic that the metadata does not have yet.
        """
        return self._topics.get(topic_id)

    def hosted(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def is_offline(self, topic: str, partition: int) -> bool:
        """Return whether this broker has a replica in a failed log directory. It stays offline until a restart."""
        return (topic, partition) in self._offline

    @property
    def offline_count(self) -> int:
        """How many replicas are in log directories that have failed."""
        return len(self._offline)

    def on_leadership(self, topic: str, gained: LeadershipListener, lost: LeadershipListener) -> None:
        """Call `gained` and `lost` when this broker starts and stops leading a partition of `topic`.

        `gained` is also called in a later epoch of the same leader if another broker may have led in between.
        """
        self._leadership_listeners.append((topic, gained, lost))

    # -- producing ---------------------------------------------------------------------------------------------------

    def write_finished(self, log: Log) -> None:
        """Complete waiting operations: an append to a slow log directory was written, or failed with its log."""
        partition = self.find(log.topic, log.partition)
        if partition is None or partition.log is not log:
            return
        if partition.is_leader and not log.is_offline:
            partition.advance_high_watermark(self.monotonic_ms())
        self.produce_purgatory.check_and_complete((log.topic, log.partition))
        self.wake_readers(partition)

    def log_went_offline(self, log: Log) -> None:
        """Fail the operations that wait for a log that went offline, with KAFKA_STORAGE_ERROR."""
        partition = self.find(log.topic, log.partition)
        if partition is not None and partition.log is log:
            self._complete_satisfied(partition)

    def log_start_raised(self, log: Log) -> None:
        """Notify fetch sessions, which report a log start offset that retention has raised."""
        partition = self.find(log.topic, log.partition)
        if partition is not None and partition.log is log:
            self.fetch_news.notify((log.topic, log.partition))

    def wake_readers(self, partition: Partition) -> None:
        """Try the fetches that wait for records of this partition."""
        key = (partition.topic, partition.partition)
        self.fetch_news.notify(key)
        self.fetch_purgatory.check_and_complete(key)

    def await_commit(
        self, appends: list[AwaitedAppend], deadline_ms: int, on_decided: Callable[[], None]
    ) -> DelayedOperation:
        """Call `on_decided` once every append is committed, failed, or `deadline_ms` (monotonic) has passed.

        Return what `produce_purgatory` abandons if the caller no longer waits.
        """
        operation = DelayedProduce(appends, on_decided)
        self.produce_purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)
        return operation

    # -- deleting records --------------------------------------------------------------------------------------------

    def delete_records(self, partition: Partition, offset: int) -> AwaitedDeletion:
        """Raise the leader's log start offset and complete the fetches below it. Raises KafkaError."""
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
    ) -> DelayedOperation:
        """Call `on_decided` once each deletion is complete or failed, or `deadline_ms` (monotonic) has passed.

        A deletion is complete when the log start offset of all live replicas is raised. `is_live(broker_id)` returns
        whether to wait for a broker. Return what `delete_records_purgatory` abandons if the caller no longer waits.
        """
        keys = [(one.partition.topic, one.partition.partition) for one in deletions]
        operation = DelayedDeleteRecords(deletions, is_live, on_decided)
        self.delete_records_purgatory.try_complete_else_watch(operation, keys, deadline_ms)
        return operation

    # -- fetching ----------------------------------------------------------------------------------------------------

    def await_bytes(self, operation: DelayedFetch, deadline_ms: int) -> None:
        """Park a fetch until enough bytes are available, a partition changes or the deadline (monotonic ms) passes."""
        self.fetch_purgatory.try_complete_else_watch(operation, operation.keys, deadline_ms)

    def await_news(self, operation: DelayedFetch, deadline_ms: int) -> None:
        """Park a fetch of a session, which `fetch_news` notifies of events of its partitions. See `await_bytes`."""
        self.fetch_purgatory.try_complete_else_watch(operation, (), deadline_ms)

    # -- followers and the ISR ---------------------------------------------------------------------------------------

    def follower_fetched(
        self,
        partition: Partition,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
    ) -> None:
        """Note how far a follower is, and complete the operations that waited for it.

        Raises what `Partition.follower_fetched` raises.
        """
        effects = partition.follower_fetched(
            replica_id, fetch_offset, log_start_offset, self.monotonic_ms(), broker_epoch
        )
        if effects:
            self._put_into_effect(partition, effects)

    def append_fetched(
        self,
        partition: Partition,
        records: memoryview,
        *,
        leader_epoch: int,
        leader_high_watermark: int,
        leader_log_start_offset: int,
        now_ms: int,
    ) -> None:
        """Do the same as `Partition.append_fetched`, and notify readers."""
        partition.append_fetched(
            records,
            leader_epoch=leader_epoch,
            leader_high_watermark=leader_high_watermark,
            leader_log_start_offset=leader_log_start_offset,
            now_ms=now_ms,
        )
        partition.metrics.replication_bytes_in += len(records)
        self.wake_readers(partition)

    async def check_in_sync(self, pause: Pause) -> None:
        """Have lagging followers leave the ISR. To be called every half of `replica.lag.time.max.ms`."""
        for partition in self.hosted():
            self._put_into_effect(partition, partition.time_passed(self.monotonic_ms()))
            await pause()

    async def brokers_left(self, pause: Pause) -> None:
        """Complete what has only waited for brokers that are no longer alive.

        Those are commits, for followers that were about to join the ISR, and deletions of records, for all replicas.
        """
        for partition in self.hosted():
            if partition.is_leader:
                if partition.advance_high_watermark(self.monotonic_ms()):
                    self._put_into_effect(partition, (Effect.HIGH_WATERMARK_ADVANCED,))
                self.delete_records_purgatory.check_and_complete((partition.topic, partition.partition))
            await pause()

    def isr_responded(self, partition: Partition, change: IsrChange, response: IsrResponse) -> Effects:
        """Apply the controller's response to a change of the ISR; return the effects, which are in effect already."""
        effects = partition.isr_responded(change, response, self.monotonic_ms())
        self._put_into_effect(partition, effects)
        return effects

    def _put_into_effect(self, partition: Partition, effects: Effects) -> None:
        key = (partition.topic, partition.partition)
        for effect in effects:
            if isinstance(effect, IsrChange):
                self.on_isr_change(partition, effect)
            elif effect is Effect.HIGH_WATERMARK_ADVANCED:
                self.produce_purgatory.check_and_complete(key)
                self.wake_readers(partition)
            elif effect is Effect.LOG_START_REPORTED:
                self.delete_records_purgatory.check_and_complete(key)
            elif effect is Effect.ISR_COMMITTED:
                self.produce_purgatory.check_and_complete(key)

    # -- requests of the controller ----------------------------------------------------------------------------------

    async def create_logs(self, request: LeaderAndIsrRequest, now_ms: int, pause: Pause, in_thread: InThread) -> None:
        """Create the logs of replicas that are new to this broker, before `become_leader_or_follower`.

        A log of an earlier topic of the same name is set aside. `become_leader_or_follower` reports the error of a log
        that cannot be created.
        """
        wanted: list[NewLog] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                name = (topic.topic_name, state.partition_index)
                if state.is_new:
                    self._forget_lost_records(name)  # of an earlier topic of this name, or of an earlier replica
                self._set_aside_stray(name, _known_id(topic.topic_id), state, now_ms)
                if self._lacks_log(name, state) and (state.is_new or self._may_create_empty(name)):
                    wanted.append(NewLog(name, _known_id(topic.topic_id), self._topic_config(name[0])))
                await pause()
        self._not_created = await self._log_manager.create(wanted, pause, in_thread, now_ms=now_ms)

    def _set_aside_stray(
        self, name: TopicPartition, topic_id: UUID | None, state: LeaderAndIsrPartitionState, now_ms: int
    ) -> None:
        """Set aside a log of another topic that has the name of a replica of this broker.

        The topic was deleted after this broker had lost the replica, so no StopReplica named it. The log stays, and
        `_apply` refuses the request, if the replica is in service, because the request may be a late one of a deleted
        topic, or if it counts as in sync although it is not new.
        """
        log = self._log_manager.get(*name)
        partition = self._partitions.get(name)
        if log is None or name in self._offline or not _is_of_another_topic(log, topic_id):
            return
        if partition is not None and partition.leadership.leader_id != NO_LEADER:
            return
        if self._broker_id not in state.replicas or (self._broker_id in state.isr and not state.is_new):
            return
        self._close(*name)
        self._forget_lost_records(name)
        try:
            self._log_manager.set_aside(*name, now_ms=now_ms)
        except KafkaError as error:
            logger.error("cannot set %s aside: %s", log.directory, error)
            self._offline.add(name)

    def _lacks_log(self, name: TopicPartition, state: LeaderAndIsrPartitionState) -> bool:
        return (
            name not in self._offline
            and name not in self._partitions
            and self._broker_id in state.replicas
            and self._log_manager.get(*name) is None
        )

    async def become_leader_or_follower(self, request: LeaderAndIsrRequest, pause: Pause) -> LeaderAndIsrResponse:
        """Apply the leadership states of one LeaderAndIsr request; each partition gets its own error code.

        Call `create_logs` first.
        """
        response = LeaderAndIsrResponse(error_code=ErrorCode.NONE, partition_errors=[], topics=[])
        live_leaders = {leader.broker_id for leader in request.live_leaders}
        for topic in request.topic_states:
            topic_id = _known_id(topic.topic_id)
            errors = LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=[])
            response.topics.append(errors)
            for state in topic.partition_states:
                code = self._apply(topic.topic_name, topic_id, state, live_leaders)
                errors.partition_errors.append(
                    LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
                await pause()
        return response

    async def stop_replicas(self, request: StopReplicaRequest, now_ms: int, pause: Pause) -> StopReplicaResponse:
        """Stop replicas, and delete those that the request marks; each partition gets its own error code."""
        response = StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=[])
        for topic in request.topic_states:
            for state in topic.partition_states:
                code = self._stop(topic.topic_name, state, now_ms)
                response.partition_errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
                await pause()
        return response

    async def stop_dropped_replicas(self, request: UpdateMetadataRequest, pause: Pause) -> None:
        """Stop the replicas that a later leader epoch than theirs assigns to other brokers, and those of another topic.

        Their logs are kept. While this broker was not registered, no StopReplica was sent to it, and LeaderAndIsr
        requests name the replicas of a broker only. Kafka does not check this, so such a replica leads on in its epoch
        until a restart.
        """
        for topic in request.topic_states:
            topic_id = _known_id(topic.topic_id)
            for state in topic.partition_states:
                partition = self._partitions.get((topic.topic_name, state.partition_index))
                if partition is None or partition.leadership.leader_id == NO_LEADER:
                    await pause()
                    continue
                is_dropped = state.leader_epoch > partition.leader_epoch and self._broker_id not in state.replicas
                if is_dropped or _is_of_another_topic(partition.log, topic_id):
                    logger.info(
                        "stopping %s-%d: in leader epoch %d of topic id %s its replicas are %s",
                        topic.topic_name,
                        state.partition_index,
                        state.leader_epoch,
                        topic_id,
                        state.replicas,
                    )
                    self._end_service(partition)
                await pause()

    def report_unclaimed_logs(self, is_assigned: Callable[[str, int], bool]) -> None:
        """Log a warning for each log of a partition that is not assigned to this broker.

        Call this after the controller has sent metadata. As in Kafka with ZooKeeper, these logs are kept: a
        controller that does not know a topic does not prove that its records are not wanted. A new topic of the same
        name sets them aside (see `_set_aside_stray`).
        """
        for log in self._log_manager.logs():
            if not log.is_offline and not is_assigned(log.topic, log.partition):
                logger.warning(
                    "%s, topic id %s, is kept but not served: the metadata assigns no such replica to this broker; "
                    "remove the folder while the broker is stopped if its records are not needed",
                    log.directory,
                    log.topic_id,
                )

    async def reconfigure(self, pause: Pause, topic: str | None = None) -> None:
        """Apply new effective configurations: to the logs of one topic, after its overrides changed, or to all logs."""
        for partition in self.hosted():
            if topic in (None, partition.topic):
                config = self._topic_config(partition.topic)
                partition.reconfigure(config)
                if partition.is_leader and partition.advance_high_watermark(self.monotonic_ms()):
                    # A lower min.insync.replicas lets the high watermark advance.
                    self._complete_satisfied(partition)
                copy = self._log_manager.future(partition.topic, partition.partition)
                if copy is not None:
                    copy.reconfigure(config)
            await pause()

    async def directory_failed(self, pause: Pause) -> list[TopicPartition]:
        """Stop serving the partitions in failed log directories, and return them.

        The first step takes all of them offline. Operations that wait for one fail with KAFKA_STORAGE_ERROR.
        """
        hosted = ((key, partition) for key, partition in self._partitions.items() if partition.log.is_offline)
        lost = [key for key, _ in hosted if key not in self._offline]
        self._offline.update(lost)
        for key in lost:
            self._close(*key)
            await pause()
        return lost

    def _apply(
        self, topic: str, topic_id: UUID | None, state: LeaderAndIsrPartitionState, live_leaders: Collection[int]
    ) -> ErrorCode:
        """Apply the state of one partition; return its error code. `topic_id` is None if the controller has no ids."""
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
                    bool(state.adding_replicas or state.removing_replicas),
                    tuple(state.adding_replicas),
                ),
                live_leaders,
            )
        except KafkaError as error:
            logger.error("cannot serve %s-%d: %s", topic, state.partition_index, error)
            if isinstance(error, TryLaterError):
                self.on_not_opened()
            return error.code
        return ErrorCode.NONE

    def _open(self, topic: str, topic_id: UUID | None, state: LeaderAndIsrPartitionState) -> Partition:
        name = (topic, state.partition_index)
        log = self._log_manager.get(*name)
        if log is None:
            # Keep the entry: the request may name the partition twice.
            raise self._not_created.get(name) or KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {topic}-{state.partition_index} was not created"
            )
        _require_same_topic(log, topic_id)
        if log.topic_id is None and topic_id is not None:
            # The log was written by a broker without topic ids.
            log.assign_topic_id(topic_id)
        # `reconfigure` covers only hosted partitions, so the log lacks any change made since its creation.
        config = self._topic_config(topic)
        log.reconfigure(config)
        copy = self._log_manager.future(*name)
        if copy is not None:
            copy.reconfigure(config)
        metrics = self.topic_metrics.opened(topic)
        partition = Partition(topic, state.partition_index, self._broker_id, log, metrics, self._rules)
        self._partitions[name] = partition
        if topic_id is not None:
            self._topics[topic_id] = topic
        self.on_opened(partition)
        return partition

    def _may_create_empty(self, name: TopicPartition) -> bool:
        """Return whether to create an empty log for an existing replica; False while a log directory is offline."""
        if self._log_manager.directories.has_offline:
            # The log may be in that directory; an empty log in its place would count as the complete replica.
            self._offline.add(name)
            logger.error("cannot serve %s-%d: its log may lie in a log directory that is offline", *name)
            return False
        logger.warning("no log directory holds %s-%d, which exists: an empty log is created", *name)
        self._created_empty.add(name)
        return True

    def _report_lost_records(self, partition: Partition) -> None:
        """Log an error if a partition is led without records that were committed.

        The leader's log is the partition's from now on: the in-sync replicas have lost these records.
        """
        key, end_offset = (partition.topic, partition.partition), partition.log.log_end_offset
        was_created_empty, lost = self._forget_lost_records(key)
        if lost is not None and lost[1] > end_offset:
            logger.error(
                "%s-%d is led from offset %d on, but its log in %s was committed up to offset %d: "
                "the records in between are lost",
                *key,
                end_offset,
                *lost,
            )
        elif lost is None and was_created_empty:
            logger.error("%s-%d is led with an empty log: all records that it had are lost", *key)

    def _forget_lost_records(self, key: TopicPartition) -> tuple[bool, tuple[str, int] | None]:
        """Return whether the log was created empty, and what `LogStartup.take_lost` returns; only once."""
        was_created_empty = key in self._created_empty
        self._created_empty.discard(key)
        return was_created_empty, self._log_manager.startup.take_lost(*key)

    def _lead_or_follow(self, partition: Partition, leadership: Leadership, live_leaders: Collection[int]) -> None:
        was_leader = partition.is_leader
        key = (partition.topic, partition.partition)
        if leadership.leader_id == self._broker_id:
            self.replication.unfollow(key)  # first: what it still fetches belongs to an older epoch
            if partition.lead(leadership, self.monotonic_ms()):
                self._report_lost_records(partition)
                self._announce(partition, gained=True)
        else:
            partition.follow(leadership)
            if was_leader:
                self._announce(partition, gained=False)
            if leadership.leader_id in live_leaders:
                self._forget_lost_records(key)  # the leader has them
                self.replication.follow(partition, leadership.leader_id)
            else:
                self.replication.unfollow(key)
        self._complete_satisfied(partition)

    def _complete_satisfied(self, partition: Partition) -> None:
        """Try all operations that wait for a partition, after its state has changed."""
        key = (partition.topic, partition.partition)
        self.fetch_news.notify(key)
        for purgatory in self.purgatories:
            purgatory.check_and_complete(key)

    def _stop(self, topic: str, state: StopReplicaPartitionState, now_ms: int) -> ErrorCode:
        key = (topic, state.partition_index)
        partition = self._partitions.get(key)
        # A log is offline as soon as its directory fails, a little earlier than `directory_failed` hears of it.
        if key in self._offline or (partition is not None and partition.log.is_offline):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition is not None and NO_EPOCH < state.leader_epoch < partition.leader_epoch:
            logger.warning(
                "ignoring StopReplica for %s-%d: its leader epoch is %d, the present one %d",
                *key,
                state.leader_epoch,
                partition.leader_epoch,
            )
            return ErrorCode.FENCED_LEADER_EPOCH
        if partition is not None and not state.delete_partition:
            # Keep the partition for its epochs, so that a request sent before the stop does not start it again.
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
        """Remove a partition from the hosted ones, and complete all operations that wait for it."""
        partition = self._partitions.pop((topic, partition_index), None)
        if partition is not None:
            self.topic_metrics.closed(topic)
            if partition.topic_id is not None and topic not in self.topic_metrics.by_topic:
                self._topics.pop(partition.topic_id, None)
            self._end_service(partition)

    def _end_service(self, partition: Partition) -> None:
        """Stop leading or following, and complete all operations that wait for the partition."""
        was_leader = partition.is_leader
        self.replication.unfollow((partition.topic, partition.partition))
        partition.stop()
        if was_leader:
            self._announce(partition, gained=False)
        key = (partition.topic, partition.partition)
        self.fetch_news.notify(key)
        for purgatory in self.purgatories:
            purgatory.force_complete_all(key)

    def _announce(self, partition: Partition, *, gained: bool) -> None:
        for topic, on_gained, on_lost in self._leadership_listeners:
            if topic == partition.topic:
                (on_gained if gained else on_lost)(partition)


def _known_id(topic_id: UUID) -> UUID | None:
    """Return the topic id, or None if the controller has no topic ids."""
    return None if topic_id == ZERO_UUID else topic_id


def _is_of_another_topic(log: Log, topic_id: UUID | None) -> bool:
    """Return whether the log belongs to another topic of the same name."""
    return topic_id is not None and log.topic_id is not None and log.topic_id != topic_id


def _require_same_topic(log: Log, topic_id: UUID | None) -> None:
    """Raise KafkaError(INCONSISTENT_TOPIC_ID) if the log belongs to another topic of the same name."""
    if _is_of_another_topic(log, topic_id):
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{log.directory} belongs to the topic id {log.topic_id}, expected {topic_id}",
        )


def _ignore(partition: Partition, topic_id: UUID | None, state: LeaderAndIsrPartitionState) -> ErrorCode:
    """Ignore a state whose leader epoch is not new, except for a topic id that was unknown; return the error code.

    Within its epoch, the leader learns of ISR changes through AlterPartition. A request that repeats the epoch may have
    been sent before such a change. Applied, it would remove an in-sync replica from the ISR, and records that this
    replica does not have would be committed.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
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
