"""Bound partitions: what the names in a client's requests stand for, resolved once instead of once per request.

Owns which partition a topic and an index stand for until that changes, and the one way to append to it as a leader.
Must not know requests, responses, or how the partition works.

A client names the same few partitions again and again. Each connection therefore has a dictionary from
(topic, partition) to `BoundPartition`, and a fetch session, which may outlive a connection, has one in each of its
partitions. What belongs to one client and changes rarely belongs here.

Each partition has a version of its own (`Partition.version`), which rises with its leadership, its configuration, its
log and its deletion. A bound partition of an older version is bound again before it is used. There is no version of the
whole broker: one election must not unbind the partitions of every connection. What changes often is read when a
request is served: the in-sync replicas, the high watermark, the offline state, and transactions.
"""

from __future__ import annotations

from base.topic_partition import TopicPartition
from broker.loop.waits import Converting
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from config.topic_properties import LONG_MAX
from storage.batches.validation import NO_CONVERSION, AppendOrigin, PreparedAppend
from storage.log.log_appends import AppendResult

BOUND_MAX = 500
"""The most partitions that one connection keeps bound. A client that names more has them bound again."""

Bound = dict[TopicPartition, "BoundPartition"]
"""The bound partitions of one client.

Only partitions that are hosted here are bound, so that no client can fill it with names. The binding of a partition
that is deleted later stays, and keeps its log in memory, until the client names it again or names too many others.
"""


class BoundPartition:
    """One partition as the requests of one client use it."""

    __slots__ = ("_manager", "key", "log", "may_need_flush", "metrics", "partition", "version")

    def __init__(self, partition: Partition, manager: ReplicaManager) -> None:
        self._manager = manager
        self.partition = partition
        self.version = partition.version
        self.key = partition.topic, partition.partition
        self.log = partition.log
        self.metrics = partition.metrics
        self.may_need_flush = partition.log.config.flush_messages < LONG_MAX
        """Whether `LogDurability.needs_flush` can be true under the present configuration."""

    def append(
        self,
        records: memoryview | PreparedAppend,
        *,
        needs_isr: bool,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        may_take_long: bool = True,
    ) -> AppendResult:
        """Append as leader, advance the high watermark and complete the operations that wait for either.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS and what `LogAppends.append_as_leader` raises.
        """
        result = self.append_unread(records, needs_isr, now_ms, origin, may_take_long)
        self._manager.wake_readers(self.partition)
        return result

    def append_unread(
        self,
        records: memoryview | PreparedAppend,
        needs_isr: bool,
        now_ms: int,
        origin: AppendOrigin,
        may_take_long: bool,
        converting: Converting | None = None,
    ) -> AppendResult:
        """Do the same as `append`, but leave waiting readers to the caller, who wakes them once per request.

        `converting` records what it takes to open or convert the records.
        """
        partition = self.partition
        if not partition.is_leader or (needs_isr and not partition.has_enough_in_sync):
            raise partition.append_refusal()
        log = self.log
        result = log.appends.append_as_leader(records, partition.leader_epoch, now_ms, origin, may_take_long)
        self.metrics.appended(len(records), result)
        if (conversion := result.conversion) is not NO_CONVERSION and converting is not None:
            converting.count_conversion(conversion.duration_s, conversion.temporary_size)
        manager = self._manager
        if partition.is_alone:
            is_advanced = log.advance_high_watermark(log.log_end_offset)  # every append is committed
        else:
            is_advanced = partition.advance_high_watermark(manager.monotonic_ms())
        if is_advanced and manager.produce_purgatory.watched:
            manager.produce_purgatory.check_and_complete(self.key)
        return result


def bind(bound: Bound, manager: ReplicaManager, topic: str, partition: int) -> BoundPartition | None:
    """Return what a topic and an index stand for now, and keep it in `bound`; None if no replica is hosted here."""
    key = topic, partition
    found = bound.get(key)
    if found is not None and found.version == found.partition.version:
        return found
    hosted = manager.find(topic, partition)
    if hosted is None:
        bound.pop(key, None)
        return None
    if found is None and len(bound) >= BOUND_MAX:
        bound.clear()
    found = bound[key] = BoundPartition(hosted, manager)
    return found
