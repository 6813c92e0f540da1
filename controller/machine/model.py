"""The values that the controller's modules exchange: partitions, assignments, leadership, brokers.

Owns their derived properties. Must not know znodes, messages or states. All are immutable.
"""

from dataclasses import field, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from base.dataclass import dataclass
from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode

NO_LEADER = -1
LEADER_DURING_DELETE = -2
NO_LEADER_EPOCH = -1
LEADER_EPOCH_DURING_DELETE = -2
NO_BROKER_EPOCH = -1


class PartitionReplica(NamedTuple):
    """The replica of `partition` on one broker."""

    partition: TopicPartition
    broker_id: int

    @property
    def topic(self) -> str:
        return self.partition[0]


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers that hold a partition, the preferred leader first.

    During a reassignment `replicas` holds the target replicas first, then those in `removing`; `adding` holds the
    target replicas that are new.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas without those in `adding`: the assignment after the reassignment is cancelled."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment is complete."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def reassigned_to(self, target: tuple[int, ...]) -> "ReplicaAssignment":
        """Return this assignment with a reassignment to `target`, which replaces one in progress."""
        original = self.original
        return ReplicaAssignment(
            replicas=target + tuple(replica for replica in original if replica not in target),
            adding=tuple(replica for replica in target if replica not in original),
            removing=tuple(replica for replica in original if replica not in target),
        )

    def without(self, broker_id: int) -> "ReplicaAssignment":
        return replace(self, replicas=tuple(replica for replica in self.replicas if replica != broker_id))


class LeaderRecoveryState(IntEnum):
    """RECOVERING after an unclean election, until the new leader reports RECOVERED with AlterPartition (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The leader and the in-sync replicas of a partition; the leader is NO_LEADER if no replica can lead."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED

    def with_leader(self, leader: int, isr: tuple[int, ...] | None = None) -> "LeaderAndIsr":
        """Return the state after an election, which always has a new leader epoch."""
        return replace(self, leader=leader, leader_epoch=self.leader_epoch + 1, isr=self.isr if isr is None else isr)


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition's state in the store, the epoch of the controller that wrote it, and the version of its node."""

    state: LeaderAndIsr
    controller_epoch: int
    partition_epoch: int
    written_zxid: int = field(default=0, compare=False)
    """The transaction that wrote the state, if it was read from the store; 0 if this controller wrote it."""

    def __str__(self) -> str:
        """Return the state as Kafka's state-change log prints it."""
        return (
            f"LeaderAndIsr(leader={self.state.leader}, leaderEpoch={self.state.leader_epoch}, "
            f"isr=List({', '.join(map(str, self.state.isr))}), leaderRecoveryState={self.state.recovery_state.name}, "
            f"partitionEpoch={self.partition_epoch})"
        )


SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""The numbers of the security protocols in requests."""


class Endpoint(NamedTuple):
    """One advertised listener. Its security protocol is one of `SECURITY_PROTOCOL_IDS`."""

    listener: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker as it registered. `epoch` fences requests that were sent before its last registration."""

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = NO_BROKER_EPOCH

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as stored. `topic_id` is None if a broker before 2.8 created the topic."""

    topic_id: UUID | None
    partitions: dict[int, ReplicaAssignment] = field(default_factory=dict)


class FeatureChange(NamedTuple):
    """A request to finalize a feature at another level."""

    feature: str
    level: int
    is_downgrade: bool


class ApiError(NamedTuple):
    """The result for one item of a request. NONE is success; without `message` the code's default text applies."""

    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
