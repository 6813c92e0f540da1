"""Everything that can happen to a controller, as values. They are processed one at a time, in the order they came.

Owns what each event carries. Must not know how it is processed. `statistic` is the name under which Kafka's metrics
count the time an event takes; those without one are not counted there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from controller.model import TopicPartition
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.create_partitions import CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic
from protocol.messages.leader_and_isr import LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaResponse


class Event:
    """Base of all events."""

    __slots__ = ()
    statistic: ClassVar[str] = ""


# -- who is controller ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControllerChanged(Event):
    """The node of the controller came, went or changed, or this broker has just started: elect or follow."""

    statistic: ClassVar[str] = "ControllerChange"


@dataclass(frozen=True, slots=True)
class SessionExpired(Event):
    """The store gave this broker up: it is not controller any more, whatever it believed."""

    statistic: ClassVar[str] = "ControllerChange"


# -- what the store tells ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """A broker registered or went."""

    statistic: ClassVar[str] = "LeaderElection"


@dataclass(frozen=True, slots=True)
class BrokerModified(Event):
    """A broker rewrote its registration: it advertises other listeners."""

    broker_id: int
    statistic: ClassVar[str] = "LeaderElection"


@dataclass(frozen=True, slots=True)
class TopicsChanged(Event):
    """A topic node was created or removed, maybe by hand."""

    statistic: ClassVar[str] = "TopicChange"


@dataclass(frozen=True, slots=True)
class TopicModified(Event):
    """A topic node was rewritten: partitions were added, maybe by hand."""

    topic: str
    statistic: ClassVar[str] = "TopicChange"


@dataclass(frozen=True, slots=True)
class DeletionsChanged(Event):
    """The list of topics to delete changed."""

    statistic: ClassVar[str] = "TopicDeletion"


@dataclass(frozen=True, slots=True)
class IsrChangesNotified(Event):
    """Leaders of an old inter.broker.protocol.version wrote partition states by themselves."""

    statistic: ClassVar[str] = "IsrChange"


@dataclass(frozen=True, slots=True)
class LogDirEventsNotified(Event):
    """Brokers lost log directories."""

    statistic: ClassVar[str] = "LogDirChange"


@dataclass(frozen=True, slots=True)
class ReassignmentNodeChanged(Event):
    """An old tool asks for reassignments through the store."""

    statistic: ClassVar[str] = "PartitionReassignment"


@dataclass(frozen=True, slots=True)
class PreferredElectionNodeChanged(Event):
    """An old tool asks for elections through the store."""

    statistic: ClassVar[str] = "ManualLeaderBalance"


# -- what brokers answer -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered(Event):
    """A broker has taken over leadership states, or says for which it cannot."""

    broker_id: int
    response: LeaderAndIsrResponse
    statistic: ClassVar[str] = "LeaderAndIsrResponseReceived"


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered(Event):
    """`deleted` are the partitions whose replica was to be deleted, not only stopped."""

    broker_id: int
    deleted: frozenset[TopicPartition]
    response: StopReplicaResponse
    statistic: ClassVar[str] = "TopicDeletion"


# -- what is due or configured -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RebalanceDue(Event):
    """Time to see whether leadership is where it is preferred."""

    statistic: ClassVar[str] = "AutoLeaderBalance"


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled(Event):
    """unclean.leader.election.enable was switched on: for one topic, or with None for all that do not override it."""

    topic: str | None
    statistic: ClassVar[str] = "UncleanLeaderElectionEnable"


# -- what clients and brokers ask ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopics(Event):
    topics: Sequence[CreatableTopic]
    validate_only: bool
    statistic: ClassVar[str] = "TopicChange"


@dataclass(frozen=True, slots=True)
class CreatePartitions(Event):
    topics: Sequence[CreatePartitionsTopic]
    validate_only: bool
    statistic: ClassVar[str] = "TopicChange"


@dataclass(frozen=True, slots=True)
class DeleteTopics(Event):
    names: Sequence[str]
    statistic: ClassVar[str] = "TopicDeletion"


class ElectionType(IntEnum):
    """The kinds of ElectLeaders, numbered as in the request."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeaders(Event):
    """`partitions` None means all."""

    election_type: ElectionType
    partitions: Sequence[TopicPartition] | None
    statistic: ClassVar[str] = "ManualLeaderBalance"


@dataclass(frozen=True, slots=True)
class AlterReassignments(Event):
    """Target replicas by partition; None cancels."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    statistic: ClassVar[str] = "PartitionReassignment"


@dataclass(frozen=True, slots=True)
class ListReassignments(Event):
    """`partitions` None means all."""

    partitions: set[TopicPartition] | None
    statistic: ClassVar[str] = "ListPartitionReassignment"


@dataclass(frozen=True, slots=True)
class AlterPartition(Event):
    """A leader reports its in-sync replicas. `version` is the request's."""

    request: AlterPartitionRequest
    version: int
    statistic: ClassVar[str] = "IsrChange"


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Event):
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ControlledShutdown(Event):
    broker_id: int
    broker_epoch: int
    statistic: ClassVar[str] = "ControlledShutdown"
