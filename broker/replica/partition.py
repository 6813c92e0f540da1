"""One partition on this broker: its leader, its in-sync replicas, and how far it is committed.

Owns: the leadership state sent by the controller, and the advance of the high watermark. Must not know: requests,
waiting operations or other partitions. After an append the manager completes the operations that wait for it.

Events, each of which depends on the state of the partition alone:

============================  ==========================================================================
leader began                  followers' positions are unknown; the epoch begins at the end of the log
same leader, new epoch        the ISR and the replicas change; positions and waiting producers stay
follower began                appends are rejected, operations that wait for the leader fail
replica stopped               as follower, without a leader
follower fetched              the follower has every record below its fetch offset
appended                      the high watermark advances if that is all the ISR needs
============================  ==========================================================================

Invariants: the leader epoch only rises, also over a stop, and an epoch that does not rise changes nothing; the high
watermark never goes back; nothing is appended unless this broker leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from uuid import UUID

from broker.replica.isr import low_watermark, next_high_watermark
from broker.replica.topic_metrics import TopicMetrics
from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from storage.leader_epochs import EpochEnd
from storage.log import AppendOrigin, AppendResult, Log, PreparedAppend

NO_LEADER = -1
NO_EPOCH = -1
HIGH_WATERMARK = -1


class FetchIsolation(Enum):
    """How far a reader may read."""

    LOG_END = auto()
    """For followers, and for tools that read any replica."""
    HIGH_WATERMARK = auto()
    LAST_STABLE_OFFSET = auto()
    """For consumers with read_committed."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """The state of one partition in a LeaderAndIsr request."""

    controller_epoch: int
    leader_id: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    replicas: Sequence[int]


class Partition:
    """A replica hosted here, as leader or follower."""

    __slots__ = (
        "_broker_id",
        "_end_offsets",
        "_is_alone",
        "_start_offsets",
        "is_leader",
        "leader_epoch",
        "leadership",
        "leading_since",
        "log",
        "metrics",
        "partition",
        "topic",
        "version",
    )

    def __init__(
        self, topic: str, partition: int, broker_id: int, log: Log, metrics: TopicMetrics | None = None
    ) -> None:
        """`metrics` are the metrics of the topic; None: the partition gets its own."""
        self.metrics = TopicMetrics() if metrics is None else metrics
        self.topic = topic
        self.partition = partition
        self.log = log
        self.leadership = Leadership(NO_EPOCH, NO_LEADER, NO_EPOCH, (), NO_EPOCH, ())
        self.leader_epoch = NO_EPOCH
        self.is_leader = False
        self.version = 0
        """Rises with every change of leadership, log or configuration, and when the partition is stopped or deleted.

        What is bound to an older version is bound again (`broker.replica.bound_partition`).
        """
        self.leading_since = NO_EPOCH
        """The leader epoch in which this broker became leader; later epochs of the same leader do not change it."""
        self._is_alone = False  # leader without any other replica
        self._broker_id = broker_id
        self._end_offsets: dict[int, int] = {}
        self._start_offsets: dict[int, int] = {}

    @property
    def topic_id(self) -> UUID | None:
        return self.log.topic_id

    def lead(self, leadership: Leadership) -> bool:
        """Lead in a leader epoch above the present one; return whether this broker did not lead before.

        A new leader discards the positions of followers. In a new epoch of the same leader they stay valid: it has lost
        no records, and appends that producers wait for are committed as before.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; the state is unchanged.
        """
        self.log.assign_epoch(leadership.leader_epoch)
        is_new_leader = not self.is_leader
        if is_new_leader:
            self.leading_since = leadership.leader_epoch
        kept = () if is_new_leader else leadership.replicas
        self._end_offsets = {it: self._end_offsets[it] for it in kept if it in self._end_offsets}
        self._start_offsets = {it: self._start_offsets[it] for it in kept if it in self._start_offsets}
        self._apply(leadership)
        self.is_leader = True
        self._is_alone = len(leadership.replicas) == 1
        self.advance_high_watermark()
        return is_new_leader

    def follow(self, leadership: Leadership) -> None:
        """Follow in a leader epoch above the present one."""
        self._apply(leadership)
        self._resign()

    def stop(self) -> None:
        """Neither lead nor follow until a LeaderAndIsr request with a newer leader epoch."""
        self.leadership = replace(self.leadership, leader_id=NO_LEADER)
        self.version += 1
        self._resign()

    def replace_log(self, log: Log) -> None:
        """Serve from `log`, which holds the same records in another log directory."""
        self.log = log
        self.version += 1

    def reconfigure(self, config: LogConfig) -> None:
        """Apply the topic's new effective configuration from the next append on."""
        self.log.reconfigure(config)
        self.version += 1

    def _resign(self) -> None:
        self.is_leader = False
        self.leading_since = NO_EPOCH
        self._is_alone = False

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Check that this broker leads, and that the client's leader epoch is the present one (KIP-320).

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            is_older = current_leader_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return where the records of `epoch` end in the leader's log; see `LeaderEpochs.end_offset_for`."""
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def require_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Check that the replica id of a fetch is assigned to this partition.

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH, so that a replica which was just assigned retries; NOT_LEADER_OR_FOLLOWER
                if the fetch has no leader epoch.
        """
        if replica_id not in self.leadership.replicas or replica_id == self._broker_id:
            knows_epoch = current_leader_epoch != NO_EPOCH
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append(
        self,
        records: memoryview | PreparedAppend,
        needs_isr: bool,
        now_ms: int,
        origin: AppendOrigin,
        may_take_long: bool = True,
    ) -> AppendResult:
        """Append as leader; `needs_isr` is acks=all. The caller then advances the high watermark.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS and what `Log.append_as_leader` raises.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if needs_isr and not self.has_enough_in_sync:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.leadership.isr)} is insufficient to satisfy the min.isr "
                f"requirement of {self.min_in_sync} for partition {self.topic}-{self.partition}",
            )
        return self.log.append_as_leader(records, self.leader_epoch, now_ms, origin, may_take_long)

    @property
    def has_enough_in_sync(self) -> bool:
        leadership = self.leadership
        in_sync = len(leadership.isr)
        return in_sync >= self.log.config.min_insync_replicas or in_sync >= len(leadership.replicas)

    @property
    def min_in_sync(self) -> int:
        """`min.insync.replicas`, but at most the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.leadership.replicas))

    @property
    def is_under_replicated(self) -> bool:
        """Whether this broker leads it and some replica is not in sync."""
        return self.is_leader and len(self.leadership.isr) < len(self.leadership.replicas)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether this broker leads it and fewer replicas are in sync than `min_in_sync`."""
        return self.is_leader and len(self.leadership.isr) < self.min_in_sync

    @property
    def is_at_min_isr(self) -> bool:
        """Whether this broker leads it and exactly `min_in_sync` replicas are in sync."""
        return self.is_leader and len(self.leadership.isr) == self.min_in_sync

    def is_committed(self, end_offset: int) -> bool:
        """Return whether every in-sync replica has all records below `end_offset`, and enough replicas are in sync."""
        return self.log.high_watermark >= end_offset and self.has_enough_in_sync

    def advance_high_watermark(self) -> bool:
        """Commit the records that every in-sync replica has; return whether the high watermark advanced.

        While fewer than `min.insync.replicas` replicas are in sync, nothing is committed (KIP-966).
        """
        log = self.log
        if self._is_alone:  # every append is committed, and this is the hot path
            return log.advance_high_watermark(log.log_end_offset)
        if not self.has_enough_in_sync:
            return False
        self._end_offsets[self._broker_id] = log.log_end_offset
        return log.advance_high_watermark(
            next_high_watermark(self.leadership.isr, self._end_offsets, log.high_watermark)
        )

    def follower_fetched(self, replica_id: int, fetch_offset: int, log_start_offset: int) -> bool:
        """Record that a follower has all records below `fetch_offset`; return whether the high watermark advanced."""
        self._end_offsets[replica_id] = fetch_offset
        self._start_offsets[replica_id] = log_start_offset
        return self.advance_high_watermark()

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to `offset` and return the target; HIGH_WATERMARK stands for the high watermark.

        An offset below the present start changes nothing.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION, OFFSET_OUT_OF_RANGE.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {self.topic}-{self.partition} can not be deleted due to the configured policy",
            )
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if target < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {target} for partition {self.topic}-{self.partition} is not valid",
            )
        log.delete_records_before(target)
        return target

    def low_watermark(self, is_live: Callable[[int], bool]) -> int:
        """Return the lowest log start offset of all live replicas, as their last fetches reported it."""
        self._start_offsets[self._broker_id] = self.log.log_start_offset
        waited_for = (it for it in self.leadership.replicas if it == self._broker_id or is_live(it))
        return low_watermark(waited_for, self._start_offsets)

    def readable_end_offset(self, isolation: FetchIsolation) -> int:
        """Return the offset up to which (exclusive) a reader with this isolation may read."""
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is FetchIsolation.LAST_STABLE_OFFSET:
            return self.log.last_stable_offset
        return self.log.log_end_offset

    def _apply(self, leadership: Leadership) -> None:
        assert leadership.leader_epoch > self.leader_epoch, "the manager refuses what is not newer"
        self.leadership = leadership
        self.leader_epoch = leadership.leader_epoch
        self.version += 1
