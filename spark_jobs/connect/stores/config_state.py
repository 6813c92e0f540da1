"""What the records of the topic of configurations add up to (`KafkaConfigBackingStore`).

| key | value | meaning |
|---|---|---|
| `connector-C` | `{"properties": {..}}`, null | the configuration of a connector; null deletes it |
| `task-C-N` | `{"properties": {..}}` | the configuration of a task, valid from the next `commit-C` on |
| `commit-C` | `{"tasks": N}` | tasks 0 to N-1 are complete; without all of them the old ones stay |
| `target-state-C` | `{"state": "PAUSED", "state.v2": "STOPPED"}`, null | the state that a user wants |
| `tasks-fencing-C` | `{"task-count": N}` | N transactional ids of the tasks were fenced |
| `session-key` | `{"key": .., "algorithm": .., "creation-timestamp": ..}` | signs requests between workers |
| `restart-connector-C` | `{"include-tasks": .., "only-failed": ..}` | a restart that a user asked for |
| `logger-cluster-L` | `{"level": ..}` | the level of a logger on all workers |

Owns these records, both ways. Pure: it knows no topic.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from spark_jobs.connect.base.states import TargetState, TaskId

CONNECTOR, TASK, COMMIT, TARGET = "connector-", "task-", "commit-", "target-state-"
FENCING, RESTART, LOGGER = "tasks-fencing-", "restart-connector-", "logger-cluster-"
SESSION_KEY: Final = "session-key"

Config = Mapping[str, str]


class SessionKey(NamedTuple):
    """The key with which workers sign requests to the leader."""

    key: bytes
    algorithm: str
    created_ms: int


class RestartRequest(NamedTuple):
    """A user wants a connector, its tasks or both restarted, all or those that have FAILED."""

    connector: str
    only_failed: bool
    include_tasks: bool


@dataclass(frozen=True)
class Changes:
    """What a record has changed."""

    connector: str | None = None
    tasks_of: str | None = None
    target_of: str | None = None
    session_key: SessionKey | None = None
    restart: RestartRequest | None = None
    logger_level: tuple[str, str] | None = None


NOTHING: Final = Changes()


@dataclass(frozen=True)
class ConfigState:
    """The configurations before an offset of the topic: that of the next record, as workers name it to each other.

    Never changes.
    """

    offset: int = 0
    connectors: Mapping[str, Config] = field(default_factory=dict)
    targets: Mapping[str, TargetState] = field(default_factory=dict)
    tasks: Mapping[str, tuple[Config, ...]] = field(default_factory=dict)
    """Complete sets only."""
    applied: Mapping[str, Config] = field(default_factory=dict)
    """The configuration of each connector that its tasks were made with."""
    announced_tasks: Mapping[str, Mapping[int, Config]] = field(default_factory=dict)
    fenced_tasks: Mapping[str, int] = field(default_factory=dict)
    needs_fencing: frozenset[str] = frozenset()
    inconsistent: frozenset[str] = frozenset()
    """Connectors whose last set of tasks lacks some: it has to be written again."""
    session_key: SessionKey | None = None

    def target(self, connector: str) -> TargetState:
        return self.targets.get(connector, TargetState.STARTED)

    def task_ids(self, connector: str) -> list[TaskId]:
        return [TaskId(connector, number) for number in range(len(self.tasks.get(connector, ())))]

    def task_config(self, task: TaskId) -> Config | None:
        configs = self.tasks.get(task.connector, ())
        return configs[task.task] if task.task < len(configs) else None

    def after(self, key: str, value: Any, offset: int) -> tuple[ConfigState, Changes]:
        """Return the state behind a record, and what it has changed; `offset` is the record's.

        Raises ValueError for an invalid record.
        """
        moved = self.behind(offset)
        for prefix, apply in _RECORDS.items():
            if key.startswith(prefix):
                try:
                    return apply(moved, key[len(prefix) :], value)
                except (TypeError, ValueError, KeyError, AttributeError) as error:
                    raise ValueError(f"{value!r:.200} is no value of {key}") from error
        return moved, NOTHING

    def behind(self, offset: int) -> ConfigState:
        """Return the same state behind a record without meaning."""
        return replace(self, offset=offset + 1)

    def has_tasks(self, connector: str, configs: Sequence[Config]) -> bool:
        """Whether a connector has these tasks, made with its present configuration."""
        return (
            connector not in self.inconsistent
            and list(self.tasks.get(connector, ())) == list(configs)
            and self.applied.get(connector) == self.connectors.get(connector)
        )


def _connector(state: ConfigState, name: str, value: Any) -> tuple[ConfigState, Changes]:
    if value is None:
        # What is known of fencing stays: tasks that go on unseen are fenced if a connector gets this name again.
        lost = replace(
            state,
            connectors=_without(state.connectors, name),
            targets=_without(state.targets, name),
            tasks=_without(state.tasks, name),
            applied=_without(state.applied, name),
            announced_tasks=_without(state.announced_tasks, name),
            inconsistent=state.inconsistent - {name},
        )
        return lost, Changes(connector=name)
    return replace(state, connectors={**state.connectors, name: _properties(value)}), Changes(connector=name)


def _task(state: ConfigState, name: str, value: Any) -> tuple[ConfigState, Changes]:
    connector, _, number = name.rpartition("-")
    announced = {**state.announced_tasks.get(connector, {}), int(number): _properties(value)}
    return replace(state, announced_tasks={**state.announced_tasks, connector: announced}), NOTHING


def _commit(state: ConfigState, connector: str, value: Any) -> tuple[ConfigState, Changes]:
    count = int(value["tasks"])
    if connector not in state.connectors:
        # A connector that was deleted: compaction has removed the record that says so, but its tasks have none.
        return replace(state, announced_tasks=_without(state.announced_tasks, connector)), NOTHING
    announced = state.announced_tasks.get(connector, {})
    # A worker may write again those that have changed only.
    known = {**dict(enumerate(state.tasks.get(connector, ()))), **announced}
    state = replace(state, announced_tasks=_without(state.announced_tasks, connector))
    if any(number not in known for number in range(count)):
        return replace(state, inconsistent=state.inconsistent | {connector}), NOTHING
    return (
        replace(
            state,
            tasks={**state.tasks, connector: tuple(known[number] for number in range(count))},
            applied={**state.applied, connector: state.connectors[connector]},
            inconsistent=state.inconsistent - {connector},
            needs_fencing=state.needs_fencing | {connector},
        ),
        Changes(tasks_of=connector),
    )


def _target(state: ConfigState, connector: str, value: Any) -> tuple[ConfigState, Changes]:
    if value is None:
        return replace(state, targets=_without(state.targets, connector)), NOTHING
    target = TargetState(value.get("state.v2") or value["state"])
    return replace(state, targets={**state.targets, connector: target}), Changes(target_of=connector)


def _fencing(state: ConfigState, connector: str, value: Any) -> tuple[ConfigState, Changes]:
    return (
        replace(
            state,
            fenced_tasks={**state.fenced_tasks, connector: int(value["task-count"])},
            needs_fencing=state.needs_fencing - {connector},
        ),
        NOTHING,
    )


def _session_key(state: ConfigState, _name: str, value: Any) -> tuple[ConfigState, Changes]:
    key = SessionKey(base64.b64decode(value["key"]), str(value["algorithm"]), int(value["creation-timestamp"]))
    return replace(state, session_key=key), Changes(session_key=key)


def _restart(state: ConfigState, connector: str, value: Any) -> tuple[ConfigState, Changes]:
    request = RestartRequest(connector, bool(value["only-failed"]), bool(value["include-tasks"]))
    return state, Changes(restart=request)


def _logger(state: ConfigState, name: str, value: Any) -> tuple[ConfigState, Changes]:
    return state, Changes(logger_level=(name, str(value["level"])))


_RECORDS: Final = {
    CONNECTOR: _connector,
    TASK: _task,
    COMMIT: _commit,
    TARGET: _target,
    FENCING: _fencing,
    SESSION_KEY: _session_key,
    RESTART: _restart,
    LOGGER: _logger,
}


def _properties(value: Any) -> Config:
    found = value["properties"]
    return {str(key): "" if each is None else str(each) for key, each in found.items()}


def _without(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != name}


Record = tuple[str, Any]
"""Key and value, before they become bytes."""


def connector_record(name: str, config: Config | None) -> Record:
    return f"{CONNECTOR}{name}", None if config is None else {"properties": dict(config)}


def task_records(connector: str, configs: Sequence[Config]) -> list[Record]:
    """Return the records of a complete set of tasks."""
    each = [(f"{TASK}{connector}-{number}", {"properties": dict(config)}) for number, config in enumerate(configs)]
    return [*each, (f"{COMMIT}{connector}", {"tasks": len(configs)})]


def target_record(connector: str, target: TargetState | None) -> Record:
    """Workers before Kafka 3.5 know no STOPPED, and pause."""
    if target is None:
        return f"{TARGET}{connector}", None
    old = TargetState.PAUSED if target is TargetState.STOPPED else target
    return f"{TARGET}{connector}", {"state": old.value, "state.v2": target.value}


def fencing_record(connector: str, count: int) -> Record:
    return f"{FENCING}{connector}", {"task-count": count}


def session_key_record(key: SessionKey) -> Record:
    text = base64.b64encode(key.key).decode()
    return SESSION_KEY, {"key": text, "algorithm": key.algorithm, "creation-timestamp": key.created_ms}


def restart_record(request: RestartRequest) -> Record:
    value = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
    return f"{RESTART}{request.connector}", value


def logger_record(name: str, level: str) -> Record:
    return f"{LOGGER}{name}", {"level": level}


def encoded(value: Any) -> bytes | None:
    """Return a value as the topics have it: JSON without a schema, None for a deletion."""
    if value is None:
        return None
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair, as in a file's name that is not UTF-8
        return json.dumps(value, separators=(",", ":")).encode()
