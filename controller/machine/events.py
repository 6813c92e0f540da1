"""The events of a controller, as values. They are processed one at a time, in order of arrival.

Owns what each event carries. Must not know how it is processed. `statistic` is the name under which Kafka's metrics
count the processing time of an event; events without one are not counted.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

from base.dataclass import dataclass
from base.topic_partition import TopicPartition
from controller.machine.model import FeatureChange
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.create_partitions import CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic
from protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


class Event:
    """Base of all events."""

    __slots__ = ()
    statistic: ClassVar[str] = ""
    is_recorded: ClassVar[bool] = True
    """Whether the list of recent events includes it. A query that monitoring repeats would displace all others."""


# -- which broker is controller ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControllerChanged(Event):
    """`/controller` was created, deleted or changed, or this broker has just started: elect or follow."""

    statistic: ClassVar[str] = "ControllerChange"


@dataclass(frozen=True, slots=True)
class SessionExpired(Event):
    """The store expired this broker's session: it is no longer the controller."""

    statistic: ClassVar[str] = "ControllerChange"


# -- changes in the store ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokersChanged(Event):
    """A broker registered, or its registration was deleted."""

    statistic: ClassVar[str] = "LeaderElection"


@dataclass(frozen=True, slots=True)
class BrokerModified(Event):
    """A broker rewrote its registration: it advertises other listeners."""

    broker_id: int
    statistic: ClassVar[str] = "LeaderElection"


@dataclass(frozen=True, slots=True)
class TopicsChanged(Event):
    """A topic node was created or deleted, by a controller or by hand."""

    statistic: ClassVar[str] = "TopicChange"


@dataclass(frozen=True, slots=True)
class TopicModified(Event):
    """A topic node was rewritten: partitions were added, by a controller or by hand."""

    topic: str
    statistic: ClassVar[str] = "TopicChange"


@dataclass(frozen=True, slots=True)
class DeletionsChanged(Event):
    """The list of topics to delete changed."""

    statistic: ClassVar[str] = "TopicDeletion"


@dataclass(frozen=True, slots=True)
class IsrChangesNotified(Event):
    """Leaders with an old inter.broker.protocol.version wrote partition states themselves."""

    statistic: ClassVar[str] = "IsrChange"


@dataclass(frozen=True, slots=True)
class LogDirEventsNotified(Event):
    """Brokers reported offline log directories."""

    statistic: ClassVar[str] = "LogDirChange"


@dataclass(frozen=True, slots=True)
class ReassignmentNodeChanged(Event):
    """An old tool requests reassignments through the store."""

    statistic: ClassVar[str] = "PartitionReassignment"


@dataclass(frozen=True, slots=True)
class PreferredElectionNodeChanged(Event):
    """An old tool requests preferred leader elections through the store."""

    statistic: ClassVar[str] = "ManualLeaderBalance"


# -- responses of brokers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived(Event):
    """A broker applied leadership states, or reports the partitions for which it could not."""

    broker_id: int
    response: LeaderAndIsrResponse
    request: LeaderAndIsrRequest
    statistic: ClassVar[str] = "LeaderAndIsrResponseReceived"


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived(Event):
    """`deleted` are the partitions whose replica was to be deleted, not only stopped."""

    broker_id: int
    deleted: frozenset[TopicPartition]
    response: StopReplicaResponse
    request: StopReplicaRequest
    statistic: ClassVar[str] = "TopicDeletion"


# -- timers and configuration -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaderAndIsrDue(Event):
    """It is time to send the states of partitions again, because a broker could not apply a request as a whole."""

    broker_id: int
    request: LeaderAndIsrRequest
    statistic: ClassVar[str] = "LeaderAndIsrResponseReceived"


@dataclass(frozen=True, slots=True)
class RebalanceDue(Event):
    """The interval of the leader imbalance check has passed."""

    statistic: ClassVar[str] = "AutoLeaderBalance"


@dataclass(frozen=True, slots=True)
class UncleanElectionEnabled(Event):
    """unclean.leader.election.enable was switched on in the cluster's defaults."""

    statistic: ClassVar[str] = "UncleanLeaderElectionEnable"


@dataclass(frozen=True, slots=True)
class TopicUncleanElectionEnabled(Event):
    """unclean.leader.election.enable was switched on for a topic."""

    topic: str
    statistic: ClassVar[str] = "TopicUncleanLeaderElectionEnable"


# -- requests of clients and brokers -------------------------------------------------------------------------------


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
    """The election types of an ElectLeaders request, with its numbers."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectLeaders(Event):
    """`partitions` None means all partitions."""

    election_type: ElectionType
    partitions: Sequence[TopicPartition] | None
    statistic: ClassVar[str] = "ManualLeaderBalance"


@dataclass(frozen=True, slots=True)
class AlterReassignments(Event):
    """Target replicas by partition; None cancels the reassignment."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    statistic: ClassVar[str] = "PartitionReassignment"


@dataclass(frozen=True, slots=True)
class ListReassignments(Event):
    """`partitions` None means all partitions."""

    partitions: set[TopicPartition] | None
    statistic: ClassVar[str] = "ListPartitionReassignment"
    is_recorded: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class AlterPartition(Event):
    """A leader reports its in-sync replicas. `version` is the version of the request."""

    request: AlterPartitionRequest
    version: int
    statistic: ClassVar[str] = "IsrChange"


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Event):
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UpdateFeatures(Event):
    """Finalize features at other levels."""

    changes: Sequence[FeatureChange]
    validate_only: bool
    statistic: ClassVar[str] = "UpdateFeatures"


@dataclass(frozen=True, slots=True)
class ControlledShutdown(Event):
    broker_id: int
    broker_epoch: int
    statistic: ClassVar[str] = "ControlledShutdown"
