"""The effects that a plan requests, as values: first what must be persisted, then what is sent.

Owns the vocabulary. Must not know how a node is written or a request encoded. The shell performs effects in this order
and sends nothing about a change before the store holds it.
"""

from base.dataclass import dataclass
from base.topic_partition import TopicPartition
from controller.machine.model import LeaderAndIsr, PartitionReplica


@dataclass(frozen=True, slots=True)
class ChangeLeadership:
    """Write the partition's state node, then send LeaderAndIsr to `recipients`, and to `new_recipients` with `is_new`.

    `expected_version` is the partition epoch that the plan is based on, or None if the node is to be created. If the
    store holds another version, another writer was first: the shell reads again and plans again.
    """

    partition: TopicPartition
    state: LeaderAndIsr
    expected_version: int | None
    recipients: tuple[int, ...] = ()
    new_recipients: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """Send `partition`'s leadership to `broker_ids`, and UpdateMetadata for it to every broker.

    A broker creates a new replica in any log directory; one that is not new may be in a log directory that is offline.
    """

    broker_ids: tuple[int, ...]
    partition: TopicPartition
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class SendMetadata:
    """Send the live brokers and the states of `partitions`; without partitions, only the live brokers.

    With `is_full`, `partitions` are all of the cluster, and the brokers forget those that are not named.
    """

    broker_ids: tuple[int, ...]
    partitions: tuple[TopicPartition, ...] = ()
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """Ask the replica's broker to stop it and, if `delete` is set, to delete its files."""

    replica: PartitionReplica
    delete: bool


SendEffect = SendLeaderAndIsr | SendMetadata | SendStopReplica
