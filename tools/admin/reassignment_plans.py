"""The JSON of kafka-reassign-partitions, and what follows from a plan: moves, throttled replicas, new placements.

Owns these forms and calculations. Must not know brokers, requests or options.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from base.topic_partition import TopicPartition, partition_name
from controller.machine.assignment import assign_replicas
from tools.base.java_names import json_text

ANY_LOG_DIR: Final = "any"
_VERSION: Final = 1

Replicas = Mapping[TopicPartition, Sequence[int]]


class InvalidPlanError(Exception):
    """The JSON is not a valid plan, or a placement is impossible. The text names the problem."""


class Replica(NamedTuple):
    """A replica of a partition."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


class Plan(NamedTuple):
    """The replicas of each partition, and the log directories of those replicas that a plan gives one."""

    replicas: Mapping[TopicPartition, Sequence[int]]
    log_dirs: Mapping[Replica, str]


class Move(NamedTuple):
    """The brokers that a partition is copied from and to."""

    sources: frozenset[int]
    destinations: frozenset[int]


def joined(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of partitions in order, separated by commas."""
    return ",".join(map(partition_name, sorted(partitions)))


def parse_plan(text: str) -> Plan:
    """Return a plan. Raises InvalidPlanError."""
    content = _parsed(text, "reassignment")
    entries = content.get("partitions", [])
    if not isinstance(entries, list):
        raise InvalidPlanError(f"expected a list as partitions, found {json.dumps(entries)}")
    replicas: dict[TopicPartition, list[int]] = {}
    log_dirs: dict[Replica, str] = {}
    duplicates: list[TopicPartition] = []
    for entry in entries:
        topic, index = _field(entry, "topic", str), _field(entry, "partition", int)
        brokers = _field(entry, "replicas", list)
        if not all(isinstance(broker, int) and not isinstance(broker, bool) for broker in brokers):
            raise InvalidPlanError(f"expected broker ids as replicas in {json.dumps(entry)}")
        directories = entry.get("log_dirs") or [ANY_LOG_DIR] * len(brokers)
        if len(directories) != len(brokers):
            raise InvalidPlanError(
                f"Size of replicas list {brokers} is different from size of log dirs list "
                f"[{', '.join(map(str, directories))}] for partition {topic}-{index}"
            )
        if (topic, index) in replicas:
            duplicates.append((topic, index))
        replicas[topic, index] = brokers
        named = zip(brokers, directories, strict=True)
        log_dirs |= {Replica(topic, index, broker): path for broker, path in named if path != ANY_LOG_DIR}
    if duplicates:
        raise InvalidPlanError(f"Partition reassignment contains duplicate topic partitions: {joined(duplicates)}")
    return Plan(replicas, log_dirs)


def require_executable(plan: Plan) -> None:
    """Raise InvalidPlanError for a plan without partitions, or with empty or repeated replicas."""
    if not plan.replicas:
        raise InvalidPlanError("Partition reassignment list cannot be empty")
    for replicas in plan.replicas.values():
        if not replicas:
            raise InvalidPlanError("Partition replica list cannot be empty")
    repeated = {
        partition: [broker for broker in dict.fromkeys(replicas) if replicas.count(broker) > 1]
        for partition, replicas in plan.replicas.items()
    }
    texts = [
        f"{partition_name(partition)} contains multiple entries for {','.join(map(str, brokers))}"
        for partition, brokers in sorted(repeated.items())
        if brokers
    ]
    if texts:
        raise InvalidPlanError(f"Partition replica lists may not contain duplicate entries: {'. '.join(texts)}")


def format_plan(replicas: Replicas) -> str:
    """Return a plan as JSON; each replica may be in any log directory."""
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas[topic, index]),
            "log_dirs": [ANY_LOG_DIR] * len(replicas[topic, index]),
        }
        for topic, index in sorted(replicas)
    ]
    return json_text({"version": _VERSION, "partitions": partitions})


def parse_topics(text: str) -> list[str]:
    """Return the topics of `--topics-to-move-json-file`. Raises InvalidPlanError."""
    content = _parsed(text, "topics to move")
    entries = content.get("topics", [])
    if not isinstance(entries, list):
        raise InvalidPlanError(f"expected a list as topics, found {json.dumps(entries)}")
    topics = [_field(entry, "topic", str) for entry in entries]
    if repeated := _repeated(topics):
        raise InvalidPlanError(f"List of topics to reassign contains duplicate entries: {_java_list(repeated)}")
    return topics


def parse_broker_ids(text: str) -> list[int]:
    """Return the ids of `--broker-list`. Raises InvalidPlanError."""
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidPlanError(f"Invalid broker list '{text}': expected ids as in 0,1,2") from None
    if repeated := _repeated(brokers):
        raise InvalidPlanError(f"Broker list contains duplicate entries: {_java_list(repeated)}")
    return brokers


def require_all_racks_or_none(racks: Mapping[int, str | None]) -> None:
    """Raise InvalidPlanError if only some of the brokers have a rack."""
    if 0 < sum(rack is not None for rack in racks.values()) < len(racks):
        raise InvalidPlanError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )


def propose(
    current: Replicas, racks: Mapping[int, str | None], *, start: int, shift: int
) -> dict[TopicPartition, Sequence[int]]:
    """Return a placement of the partitions of each topic on the brokers in `racks`. Raises InvalidPlanError."""
    require_all_racks_or_none(racks)
    proposed: dict[TopicPartition, Sequence[int]] = {}
    for topic in dict.fromkeys(topic for topic, _ in current):
        indexes = sorted(index for name, index in current if name == topic)
        factor = len(current[topic, indexes[0]])
        if factor > len(racks):
            raise InvalidPlanError(f"Replication factor: {factor} larger than available brokers: {len(racks)}.")
        placed = assign_replicas(racks, len(indexes), factor, start=start % len(racks), shift=shift)
        proposed |= {(topic, index): replicas for index, replicas in placed.items()}
    return proposed


def moves(ongoing: Mapping[TopicPartition, Move], proposed: Replicas, current: Replicas) -> dict[TopicPartition, Move]:
    """Return the moves while a plan is executed: those that are ongoing already, and those of the plan."""
    found = dict(ongoing)
    for partition, replicas in proposed.items():
        sources = found[partition].sources if partition in found else frozenset(current[partition])
        found[partition] = Move(sources, frozenset(replicas) - sources)
    return found


def throttled_replicas(found: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, str]]:
    """Return for each topic the throttled replicas of leaders and of followers, as `partition:broker,...`."""
    topics = dict.fromkeys(topic for topic, _ in found)
    return {
        topic: (
            ",".join(sorted(_pairs((index, move.sources) for (name, index), move in found.items() if name == topic))),
            ",".join(
                sorted(_pairs((index, move.destinations) for (name, index), move in found.items() if name == topic))
            ),
        )
        for topic in topics
    }


def _pairs(brokers_by_partition: Iterable[tuple[int, frozenset[int]]]) -> Iterator[str]:
    return (f"{index}:{broker}" for index, brokers in brokers_by_partition for broker in brokers)


def moving_brokers(found: Mapping[TopicPartition, Move]) -> list[int]:
    return sorted({broker for move in found.values() for broker in (*move.sources, *move.destinations)})


def _parsed(text: str, what: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InvalidPlanError(f"The {what} JSON is invalid: {error}") from None
    if not isinstance(content, dict):
        raise InvalidPlanError(f"The {what} JSON is invalid: expected an object")
    if content.get("version", _VERSION) != _VERSION:
        raise InvalidPlanError(f"Not supported version field value {content['version']}")
    return content


def _field(entry: object, name: str, kind: type) -> Any:
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        what = {str: "a string", int: "a number", list: "a list"}[kind]
        raise InvalidPlanError(f"expected {what} as {name} in {json.dumps(entry)}")
    return value


def _repeated(values: Sequence[Any]) -> list[Any]:
    return [value for value in dict.fromkeys(values) if values.count(value) > 1]


def _java_list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"
