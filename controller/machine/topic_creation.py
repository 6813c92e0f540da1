"""Decide whether a topic can be created or given more partitions, and place their replicas.

Owns the checks and their error messages. Must not know the store or draw random numbers: where an assignment starts is
an argument. Every function raises `KafkaError` for an invalid request and changes nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from uuid import UUID

from base.dataclass import dataclass
from base.pause import Pause
from config.definition import ConfigError
from config.log_config import CompactionLag, validate_topic_overrides
from controller.machine.assignment import assign_replicas
from controller.machine.model import ReplicaAssignment
from controller.machine.settings import ControllerSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic

NAME_LENGTH_MAX = 249
FROM_DEFAULTS = -1

# The limit of KRaft's controller for one request. The topic's node stays far below the 1 MB of a znode.
PARTITIONS_PER_REQUEST_MAX = 10_000

_LEGAL_NAME = r"[a-zA-Z0-9._-]+"


@dataclass(slots=True)
class TopicResult:
    """The result of one topic in a request. On failure the counts are -1 and the id is None."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID | None = None
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def failed(cls, name: str, error: KafkaError) -> "TopicResult":
        return cls(name, error.code, error.message)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that passed every check."""

    partitions: dict[int, ReplicaAssignment]
    overrides: dict[str, str]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


def topic_name_problem(name: str) -> str | None:
    """Return why a topic name is invalid, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not re.fullmatch(_LEGAL_NAME, name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


class TopicNames:
    """Names that are taken. Those of one request lie over the names of all topics, which stay as they are."""

    def __init__(self, names: Iterable[str] = (), over: "TopicNames | None" = None) -> None:
        self._over = over
        self._by_metric_name: dict[str, list[str]] = {}
        for name in names:
            self.add(name)

    def __iter__(self) -> Iterator[str]:
        if self._over is not None:
            yield from self._over
        for names in self._by_metric_name.values():
            yield from names

    def __contains__(self, name: str) -> bool:
        return name in self._alike(name)

    def add(self, name: str) -> None:
        """Add a name, which must not be taken."""
        self._by_metric_name.setdefault(_metric_name(name), []).append(name)

    def remove(self, name: str) -> None:
        """Remove a name that was added here."""
        names = self._by_metric_name[_metric_name(name)]
        names.remove(name)
        if not names:
            del self._by_metric_name[_metric_name(name)]

    def colliding_with(self, name: str) -> list[str]:
        """Return the other names that have the same metric name as `name`."""
        return sorted(other for other in self._alike(name) if other != name)

    def _alike(self, name: str) -> list[str]:
        names = self._by_metric_name.get(_metric_name(name), [])
        return names if self._over is None else [*self._over._alike(name), *names]


def _metric_name(name: str) -> str:
    """Return the name used in metrics, in which periods become underscores."""
    return name.replace(".", "_")


async def repeated(names: Iterable[str], pause: Pause) -> set[str]:
    """Return the names that occur more than once; each of their entries is invalid."""
    seen: set[str] = set()
    twice = set()
    for name in names:
        if name in seen:
            twice.add(name)
        seen.add(name)
        await pause()
    return twice


def plan_topic(
    request: CreatableTopic,
    existing: TopicNames,
    racks: Mapping[int, str | None],
    settings: ControllerSettings,
    *,
    start: int,
    shift: int,
) -> NewTopic:
    """Plan the requested topic.

    `racks` maps all live brokers to their racks; `start` and `shift` place the replicas (see `assign_replicas`).
    """
    _check_name(request.name, existing)
    overrides = _checked_overrides(request, settings.compaction_lag)
    if request.assignments:
        if request.num_partitions != FROM_DEFAULTS or request.replication_factor != FROM_DEFAULTS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        by_partition = _checked_assignment(request)
    else:
        by_partition = _automatic_assignment(request, racks, settings, start, shift)
    partitions = {partition: ReplicaAssignment(it) for partition, it in sorted(by_partition.items())}
    settings.check_new_topic(request, partitions)
    return NewTopic(partitions, overrides)


def plan_partitions(
    request: CreatePartitionsTopic, existing: Mapping[int, ReplicaAssignment], racks: Mapping[int, str | None]
) -> dict[int, ReplicaAssignment]:
    """Plan the partitions to add to a topic that has `existing` ones."""
    added = request.count - len(existing)
    if added < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {len(existing)} partitions, which is higher than the requested {request.count}.",
        )
    if added == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions.")
    if not existing:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic '{request.name}' has no partition to take after.")
    _check_size(added)
    # Topics created by hand may have gaps in their numbers; existing partitions are never assigned again.
    first, next_partition = existing[min(existing)].replicas, max(existing) + 1
    replication_factor = len(first)
    if request.assignments is not None:
        given = [tuple(assignment.broker_ids) for assignment in request.assignments]
        if len(given) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {added} but {len(given)} assignments provided.",
            )
        by_partition = dict(enumerate(given, start=next_partition))
        _check_replicas(by_partition, racks)
        _check_replication_factor_matches(by_partition, replication_factor)
    else:
        _check_replication_factor(replication_factor, racks)
        _check_racks(racks)
        # Continue the round robin where the topic's first partition began it.
        brokers = sorted(racks)
        start = next((index for index, broker in enumerate(brokers) if broker >= first[0]), 0)
        by_partition = assign_replicas(
            racks, added, replication_factor, start=start, shift=start, first_partition=next_partition
        )
    return {partition: ReplicaAssignment(replicas) for partition, replicas in by_partition.items()}


def _check_name(name: str, existing: TopicNames) -> None:
    if (problem := topic_name_problem(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if name in existing:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if colliding := existing.colliding_with(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {', '.join(colliding)}",
        )


def _checked_overrides(request: CreatableTopic, lag: CompactionLag) -> dict[str, str]:
    without_value = [config.name for config in request.configs if config.value is None]
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(without_value)}"
        )
    try:
        return validate_topic_overrides({it.name: it.value for it in request.configs if it.value is not None}, lag)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _automatic_assignment(
    request: CreatableTopic,
    racks: Mapping[int, str | None],
    settings: ControllerSettings,
    start: int,
    shift: int,
) -> dict[int, tuple[int, ...]]:
    count = settings.num_partitions if request.num_partitions == FROM_DEFAULTS else request.num_partitions
    replication_factor = request.replication_factor
    if replication_factor == FROM_DEFAULTS:
        replication_factor = settings.default_replication_factor
    if count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    _check_size(count)
    _check_replication_factor(replication_factor, racks)
    _check_racks(racks)
    return assign_replicas(racks, count, replication_factor, start=start, shift=shift)


def _check_racks(racks: Mapping[int, str | None]) -> None:
    """Refuse to place replicas while only some brokers have a rack: they would not be spread over racks, for good."""
    without = sorted(broker_id for broker_id, rack in racks.items() if rack is None)
    if 0 < len(without) < len(racks):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Not all brokers have rack information for replica rack aware assignment: broker.rack is missing on "
            f"{', '.join(map(str, without))}.",
        )


def _check_size(count: int) -> None:
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {count}, at most {PARTITIONS_PER_REQUEST_MAX}.",
        )


def _check_replication_factor(replication_factor: int, racks: Mapping[int, str | None]) -> None:
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}.",
        )


def _checked_assignment(request: CreatableTopic) -> dict[int, tuple[int, ...]]:
    """Return the requested assignment; of two lists for one partition, the last.

    As in Kafka, its brokers need not be alive. Unlike there, their ids must not be negative: no broker can have such an
    id, so nobody could use the topic, or delete it.
    """
    by_partition = {it.partition_index: tuple(it.broker_ids) for it in request.assignments}
    _check_size(len(by_partition))
    _check_any_replicas(by_partition)
    if len({len(replicas) for replicas in by_partition.values()}) != 1:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions should have the same number of replicas")
    if any(len(set(replicas)) != len(replicas) for replicas in by_partition.values()):
        shown = ", ".join(
            f"{partition} -> ArrayBuffer({', '.join(map(str, replicas))})"
            for partition, replicas in sorted(by_partition.items())
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Duplicate replica assignment found: HashMap({shown})")
    negative = sorted({replica for replicas in by_partition.values() for replica in replicas if replica < 0})
    if negative:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Invalid broker id in replica assignment: {', '.join(map(str, negative))}.",
        )
    if sorted(by_partition) != list(range(len(by_partition))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return by_partition


def _check_any_replicas(by_partition: Mapping[int, Sequence[int]]) -> None:
    for partition, replicas in by_partition.items():
        if not replicas:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Cannot have replication factor of 0 for partition id {partition}.",
            )


def _check_replicas(by_partition: Mapping[int, Sequence[int]], racks: Mapping[int, str | None]) -> None:
    """Require replicas on distinct live brokers for each partition."""
    _check_any_replicas(by_partition)
    for partition, replicas in by_partition.items():
        if len(set(replicas)) != len(replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, replicas))} "
                f"for partition id {partition}.",
            )
    unknown = sorted({replica for replicas in by_partition.values() for replica in replicas} - racks.keys())
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.",
        )


def _check_replication_factor_matches(by_partition: Mapping[int, Sequence[int]], replication_factor: int) -> None:
    odd = {partition: len(it) for partition, it in sorted(by_partition.items()) if len(it) != replication_factor}
    if odd:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{', '.join(map(str, odd))}] have replication factors "
            f"[{', '.join(map(str, odd.values()))}], respectively.",
        )
