"""All partitions of this broker: finds them, and completes the operations that wait for them.

Owns: the partitions by topic and number, those that are offline, and the purgatories. Must not know: wire formats of
produce and fetch, clients, or the controller, whose requests `broker.replica.assigned_replicas` puts into effect.

An append or an advanced high watermark tries the delayed fetches of the partition. An advanced high watermark also
tries its delayed produces. Lost leadership and the removal of a partition complete all operations that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from uuid import UUID

from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.loop.purgatory import DelayedOperation, Postpone, Purgatory
from broker.loop.timer import Timer
from broker.replica.delayed_delete_records import AwaitedDeletion, DelayedDeleteRecords
from broker.replica.delayed_fetch import DelayedFetch
from broker.replica.delayed_produce import AwaitedAppend, DelayedProduce
from broker.replica.fetch_news import FetchNews
from broker.replica.machine.isr import UNKNOWN_BROKER_EPOCH, IsrChange
from broker.replica.partition import NO_EPOCH, Effect, Effects, IsrResponse, Partition
from broker.replica.throttles import Throttles
from broker.replica.topic_metrics import AllTopicMetrics
from broker.replica.truncations import Truncations
from config.log_config import LogConfig
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.manager.log_observers import LogObserver


class ReplicaManager(LogObserver):
    """The partitions that this broker leads or follows."""

    def __init__(
        self,
        log_manager: LogManager,
        timer: Timer,
        fetch_news: FetchNews,
        throttles: Throttles,
        *,
        topic_config: Callable[[str], LogConfig],
        monotonic_ms: Callable[[], int],
        on_isr_change: Callable[[Partition, IsrChange], None],
        produce_purge_interval: int,
        fetch_purge_interval: int,
        delete_records_purge_interval: int = 1,
        postpone: Postpone | None = None,
    ) -> None:
        """`topic_config(topic)` returns the effective configuration of a topic whose overrides are loaded.

        `on_isr_change` is called with each change of the ISR that is to be requested; `isr_responded` takes the
        response.
        """
        self._log_manager = log_manager
        log_manager.observers.add(self)
        self._topic_config = topic_config
        self._on_isr_change = on_isr_change
        self._partitions: dict[TopicPartition, Partition] = {}
        self._topics: dict[UUID, str] = {}
        self._offline: set[TopicPartition] = set()
        self.topic_metrics = AllTopicMetrics()
        self.monotonic_ms = monotonic_ms
        """The time by which followers are caught up."""
        self.truncations = Truncations()
        """Keeps requests of the controller and truncations apart; the control door uses it around each request."""
        self.slow_directories: Collection[str] = log_manager.slow_directories
        """The log directories that are slow; the logs in them may have no room for appends."""
        self.produce_purgatory = Purgatory("Produce", timer, produce_purge_interval)
        self.fetch_purgatory = Purgatory("Fetch", timer, fetch_purge_interval, postpone)
        self.fetch_news = fetch_news
        self.throttles = throttles
        self.delete_records_purgatory = Purgatory("DeleteRecords", timer, delete_records_purge_interval)

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

    # -- hosting -----------------------------------------------------------------------------------------------------

    def host(self, partition: Partition, topic_id: UUID | None) -> None:
        """Find the partition from now on. `topic_id` is None if the controller has no topic ids."""
        self._partitions[partition.topic, partition.partition] = partition
        if topic_id is not None:
            self._topics[topic_id] = partition.topic

    def remove(self, topic: str, partition_index: int) -> Partition | None:
        """Find the partition no longer; return it, None if it is not hosted. The operations that wait for it stay."""
        partition = self._partitions.pop((topic, partition_index), None)
        if partition is not None:
            self.topic_metrics.closed(topic)
            topic_id = partition.log.topic_id
            if topic_id is not None and topic not in self.topic_metrics.by_topic:
                self._topics.pop(topic_id, None)
        return partition

    def take_offline(self, key: TopicPartition) -> None:
        """Note that this broker has a replica that it cannot serve until a restart."""
        self._offline.add(key)

    def take_lost_offline(self) -> list[TopicPartition]:
        """Take all partitions offline whose logs are; return those that were not. They stay hosted."""
        lost = [key for key, partition in self._partitions.items() if partition.log.is_offline]
        lost = [key for key in lost if key not in self._offline]
        self._offline.update(lost)
        return lost

    def complete_satisfied(self, partition: Partition) -> None:
        """Try all operations that wait for a partition, after its state has changed."""
        key = (partition.topic, partition.partition)
        self.fetch_news.notify(key)
        for purgatory in self.purgatories:
            purgatory.check_and_complete(key)

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
            self.complete_satisfied(partition)

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
                self._on_isr_change(partition, effect)
            elif effect is Effect.HIGH_WATERMARK_ADVANCED:
                self.produce_purgatory.check_and_complete(key)
                self.wake_readers(partition)
            elif effect is Effect.LOG_START_REPORTED:
                self.delete_records_purgatory.check_and_complete(key)
            elif effect is Effect.ISR_COMMITTED:
                self.produce_purgatory.check_and_complete(key)

    async def reconfigure(self, pause: Pause, topic: str | None = None) -> None:
        """Apply new effective configurations: to the logs of one topic, after its overrides changed, or to all logs."""
        for partition in self.hosted():
            if topic in (None, partition.topic):
                config = self._topic_config(partition.topic)
                partition.reconfigure(config)
                if partition.is_leader and partition.advance_high_watermark(self.monotonic_ms()):
                    # A lower min.insync.replicas lets the high watermark advance.
                    self.complete_satisfied(partition)
                copy = self._log_manager.future(partition.topic, partition.partition)
                if copy is not None:
                    copy.reconfigure(config)
            await pause()
