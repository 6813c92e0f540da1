"""What planning asks to be done, as values: first what must be persisted, then what is sent.

Owns the vocabulary. Must not know how a node is written or a request encoded. A shell performs effects in this order,
and sends nothing about a change before the store has it.
"""

from dataclasses import dataclass

from controller.model import LeaderAndIsr, PartitionReplica, TopicPartition


@dataclass(frozen=True, slots=True)
class ChangeLeadership:
    """Write the partition's state node, then tell `recipients`, and `new_recipients` that their replica is a new one.

    `expected_version` is the partition epoch that the plan was made from, None when the node is to be created. Another
    version in the store means that somebody else wrote first: read again, plan again.
    """

    partition: TopicPartition
    state: LeaderAndIsr
    expected_version: int | None
    recipients: tuple[int, ...] = ()
    new_recipients: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """Tell brokers to lead or follow `partition` as its leadership now stands, and every broker who leads.

    A broker makes a new replica in any log directory; one that is not new may be in a directory that is lost.
    """

    broker_ids: tuple[int, ...]
    partition: TopicPartition
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class SendMetadata:
    """Tell brokers who lives and how `partitions` stand; without partitions only who lives."""

    broker_ids: tuple[int, ...]
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """Tell the replica's broker to stop it, and to delete its files where `delete` says so."""

    replica: PartitionReplica
    delete: bool


SendEffect = SendLeaderAndIsr | SendMetadata | SendStopReplica
