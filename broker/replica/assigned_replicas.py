"""The replicas that the controller assigns to this broker: creates their logs, has them lead or follow, and stops them.

Owns: the order of these steps, which leader epochs are too old to be applied, and which logs were created in place of
lost ones. Must not know: whether the sender is the present controller (which is checked before a request comes here),
or how a partition is fetched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Protocol
from uuid import UUID

from base.pause import InThread, Pause
from base.topic_partition import TopicPartition
from broker.replica.manager import ReplicaManager
from broker.replica.partition import NO_EPOCH, NO_LEADER, Leadership, Partition, ReplicaRules
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
from storage.manager.log_creation import NewLog
from storage.manager.log_manager import LogManager

logger = logging.getLogger("kafka.server.ReplicaManager")

LeadershipListener = Callable[[Partition], None]


class Replication(Protocol):
    """Fetches partitions from their leaders."""

    def follow(self, partition: Partition, leader_id: int) -> None:
        """Fetch the partition from a live leader, in the partition's present leader epoch."""

    def unfollow(self, key: TopicPartition) -> None:
        """Stop fetching the partition. Has no effect if it is not fetched."""


class AssignedReplicas:
    """Puts into effect which replicas this broker has, and which of them lead."""

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        replication: Replication,
        rules: ReplicaRules | None,
        *,
        topic_config: Callable[[str], LogConfig],
        on_opened: Callable[[Partition], None],
        on_not_opened: Callable[[], None],
    ) -> None:
        """`topic_config(topic)` returns the effective configuration of a topic whose overrides are loaded.

        `on_opened` is called with each partition that is hosted from now on, and `on_not_opened` when a partition could
        not be opened for lack of descriptors or memory, so that it can be retried.
        """
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._replicas = replica_manager
        self._replication = replication
        self._rules = rules
        self._topic_config = topic_config
        self._on_opened = on_opened
        self._on_not_opened = on_not_opened
        self._not_created: dict[TopicPartition, KafkaError] = {}
        self._created_empty: set[TopicPartition] = set()
        """Partitions that exist, whose missing log was replaced by an empty one, and which have not led since."""
        self._leadership_listeners: list[tuple[str, LeadershipListener, LeadershipListener]] = []

    def on_leadership(self, topic: str, gained: LeadershipListener, lost: LeadershipListener) -> None:
        """Call `gained` and `lost` when this broker starts and stops leading a partition of `topic`.

        `gained` is also called in a later epoch of the same leader if another broker may have led in between.
        """
        self._leadership_listeners.append((topic, gained, lost))

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
        self._not_created = await self._log_manager.creation.create(wanted, pause, in_thread, now_ms=now_ms)

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
                partition = self._replicas.find(topic.topic_name, state.partition_index)
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

    async def directory_failed(self, pause: Pause) -> list[TopicPartition]:
        """Stop serving the partitions in failed log directories, and return them.

        The first step takes all of them offline. Operations that wait for one fail with KAFKA_STORAGE_ERROR.
        """
        lost = self._replicas.take_lost_offline()
        for key in lost:
            self._close(*key)
            await pause()
        return lost

    def _set_aside_stray(
        self, name: TopicPartition, topic_id: UUID | None, state: LeaderAndIsrPartitionState, now_ms: int
    ) -> None:
        """Set aside a log of another topic that has the name of a replica of this broker.

        The topic was deleted after this broker had lost the replica, so no StopReplica named it. The log stays, and
        `_apply` refuses the request, if the replica is in service, because the request may be a late one of a deleted
        topic, or if it counts as in sync although it is not new.
        """
        log = self._log_manager.get(*name)
        partition = self._replicas.find(*name)
        if log is None or self._replicas.is_offline(*name) or not _is_of_another_topic(log, topic_id):
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
            self._replicas.take_offline(name)

    def _lacks_log(self, name: TopicPartition, state: LeaderAndIsrPartitionState) -> bool:
        return (
            not self._replicas.is_offline(*name)
            and self._replicas.find(*name) is None
            and self._broker_id in state.replicas
            and self._log_manager.get(*name) is None
        )

    def _apply(
        self, topic: str, topic_id: UUID | None, state: LeaderAndIsrPartitionState, live_leaders: Collection[int]
    ) -> ErrorCode:
        """Apply the state of one partition; return its error code. `topic_id` is None if the controller has no ids."""
        key = (topic, state.partition_index)
        if self._replicas.is_offline(*key):
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._replicas.find(*key)
        try:
            if partition is not None:
                _require_same_topic(partition.log, topic_id)
                if state.leader_epoch <= partition.leader_epoch:
                    return self._learn_topic_id_or_ignore(partition, topic_id, state)
            if self._broker_id not in state.replicas:
                logger.warning("ignoring LeaderAndIsr for %s-%d: its replicas are %s", *key, state.replicas)
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition is None:
                partition = self._open(topic, topic_id, state)
            elif state.partition_epoch < partition.leadership.partition_epoch:
                logger.warning("skipping LeaderAndIsr for %s-%d: its partition epoch is old", *key)
                return ErrorCode.NONE
            elif topic_id is not None and partition.log.topic_id is None:
                # It came into service under a controller without topic ids.
                partition.log.assign_topic_id(topic_id)
                self._replicas.host(partition, topic_id)
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
                    topic_id is not None,
                ),
                live_leaders,
            )
        except KafkaError as error:
            logger.error("cannot serve %s-%d: %s", topic, state.partition_index, error)
            if isinstance(error, TryLaterError):
                self._on_not_opened()
            return error.code
        return ErrorCode.NONE

    def _learn_topic_id_or_ignore(
        self, partition: Partition, topic_id: UUID | None, state: LeaderAndIsrPartitionState
    ) -> ErrorCode:
        """Ignore a state whose leader epoch is not new, except for a topic id that was unknown; return the error code.

        Within its epoch, the leader learns of ISR changes through AlterPartition. A request that repeats the epoch may
        have been sent before such a change. Applied, it would remove an in-sync replica from the ISR, and records that
        this replica does not have would be committed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        is_repeated = state.leader_epoch == partition.leader_epoch
        if is_repeated and partition.topic_id is None and topic_id is not None:
            partition.learn_topic_id(topic_id)
            self._replicas.host(partition, topic_id)  # followers may fetch by the id when the metadata has lost it
            if partition.is_follower:
                self._replication.follow(partition, partition.leadership.leader_id)
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
        metrics = self._replicas.topic_metrics.opened(topic)
        partition = Partition(topic, state.partition_index, self._broker_id, log, metrics, self._rules)
        self._replicas.host(partition, log.topic_id)
        self._on_opened(partition)
        return partition

    def _may_create_empty(self, name: TopicPartition) -> bool:
        """Return whether to create an empty log for an existing replica; False while a log directory is offline."""
        if self._log_manager.directories.has_offline:
            # The log may be in that directory; an empty log in its place would count as the complete replica.
            self._replicas.take_offline(name)
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
            self._replication.unfollow(key)  # first: what it still fetches belongs to an older epoch
            if partition.lead(leadership, self._replicas.monotonic_ms()):
                self._report_lost_records(partition)
                self._announce(partition, gained=True)
        else:
            partition.follow(leadership)
            if was_leader:
                self._announce(partition, gained=False)
            if leadership.leader_id in live_leaders:
                self._forget_lost_records(key)  # the leader has them
                self._replication.follow(partition, leadership.leader_id)
            else:
                self._replication.unfollow(key)
        self._replicas.complete_satisfied(partition)

    def _stop(self, topic: str, state: StopReplicaPartitionState, now_ms: int) -> ErrorCode:
        key = (topic, state.partition_index)
        partition = self._replicas.find(*key)
        # A log is offline as soon as its directory fails, a little earlier than `directory_failed` hears of it.
        if self._replicas.is_offline(*key) or (partition is not None and partition.log.is_offline):
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
        """Remove a partition from the hosted ones, and stop it."""
        partition = self._replicas.remove(topic, partition_index)
        if partition is not None:
            self._end_service(partition)

    def _end_service(self, partition: Partition) -> None:
        """Stop leading or following. What waits for the partition fails, and waits on for its other partitions."""
        was_leader = partition.is_leader
        self._replication.unfollow((partition.topic, partition.partition))
        partition.stop()
        if was_leader:
            self._announce(partition, gained=False)
        self._replicas.complete_satisfied(partition)

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
