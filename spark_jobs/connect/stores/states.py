"""Stores of states: the topic of a group of workers, and the memory of a single one.

| key | value |
|---|---|
| `status-connector-C` | `{"state":..,"trace":..,"worker_id":..,"generation":..}` |
| `status-task-C-N` | the same |
| `status-topic-T:connector-C` | `{"topic":{"name":T,"connector":C,"task":N,"discoverTimestamp":MS}}` |

A worker that has lost a connector to another may report its end late: a state other than that of the present owner is
written only if its generation is not older (`put` with `is_safe`).

Owns the formats. Must not know why a state changes.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from spark_jobs.connect.base.states import Owner, State, TaskId
from spark_jobs.connect.stores.config_state import encoded
from spark_jobs.connect.stores.topic_log import TopicLog

logger = logging.getLogger("org.apache.kafka.connect.storage.KafkaStatusBackingStore")

CONNECTOR: Final = "status-connector-"
TASK: Final = "status-task-"
TOPIC: Final = "status-topic-"
_BETWEEN: Final = ":connector-"


@dataclass(frozen=True)
class Status:
    """A state with the worker that has reported it, in which generation of the group."""

    state: State
    worker_id: str
    generation: int
    trace: str | None = None


class StateStore(Protocol):
    """The states of all connectors and tasks."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def put(self, owner: Owner, status: Status, *, is_safe: bool = False) -> None: ...

    def status(self, owner: Owner) -> Status | None: ...

    def tasks(self, connector: str) -> dict[TaskId, Status]: ...

    def forget(self, connector: str) -> None:
        """Remove all states of a connector that was deleted."""

    def put_topic(self, task: TaskId, topic: str, now_ms: int) -> None: ...

    def topics(self, connector: str) -> list[str]: ...

    def forget_topics(self, connector: str) -> None: ...


class StateTable:
    """States by owner."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[Owner, Status] = {}
        self._topics: dict[str, set[str]] = {}

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Take a stored record. Raises ValueError for one that is not a state."""
        try:
            self._read((key or b"").decode(), None if value is None else json.loads(value))
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise ValueError(f"{value!r:.200} is no state of {key!r:.100}") from error

    def _read(self, name: str, found: Any) -> None:
        if name.startswith(TOPIC):
            self._read_topic(name, found)
        elif (owner := _owner(name)) is not None:
            with self._lock:
                if found is None:
                    self._states.pop(owner, None)
                else:
                    self._states[owner] = Status(
                        State(found["state"]), found["worker_id"], found["generation"], found.get("trace")
                    )

    def _read_topic(self, name: str, found: Any) -> None:
        topic, _, connector = name.removeprefix(TOPIC).rpartition(_BETWEEN)
        with self._lock:
            if found is None:
                self._topics.get(connector, set()).discard(topic)
            else:
                self._topics.setdefault(connector, set()).add(topic)

    def status(self, owner: Owner) -> Status | None:
        with self._lock:
            return self._states.get(owner)

    def tasks(self, connector: str) -> dict[TaskId, Status]:
        with self._lock:
            return {
                owner: status
                for owner, status in self._states.items()
                if isinstance(owner, TaskId) and owner.connector == connector
            }

    def topics(self, connector: str) -> list[str]:
        with self._lock:
            return sorted(self._topics.get(connector, ()))

    def allows(self, owner: Owner, status: Status) -> bool:
        """Whether a worker may report a state although another one may have the connector or task now."""
        present = self.status(owner)
        return present is None or present.worker_id == status.worker_id or present.generation <= status.generation


class _Stored:
    """What both stores have in common: a table, and `_write`, which stores a record and brings it into the table."""

    def __init__(self) -> None:
        self._table = StateTable()

    def _write(self, key: str, value: Any) -> None:
        raise NotImplementedError

    def put(self, owner: Owner, status: Status, *, is_safe: bool = False) -> None:
        if is_safe and not self._table.allows(owner, status):
            return
        if status.state is State.DESTROYED:
            self._write(_key(owner), None)
            return
        value = {
            "state": status.state.value,
            "trace": status.trace,
            "worker_id": status.worker_id,
            "generation": status.generation,
        }
        self._write(_key(owner), value)

    def status(self, owner: Owner) -> Status | None:
        return self._table.status(owner)

    def tasks(self, connector: str) -> dict[TaskId, Status]:
        return self._table.tasks(connector)

    def forget(self, connector: str) -> None:
        for task in self._table.tasks(connector):
            self._write(_key(task), None)
        self._write(_key(connector), None)
        self.forget_topics(connector)

    def put_topic(self, task: TaskId, topic: str, now_ms: int) -> None:
        if topic not in self._table.topics(task.connector):
            found = {"name": topic, "connector": task.connector, "task": task.task, "discoverTimestamp": now_ms}
            self._write(f"{TOPIC}{topic}{_BETWEEN}{task.connector}", {"topic": found})

    def topics(self, connector: str) -> list[str]:
        return self._table.topics(connector)

    def forget_topics(self, connector: str) -> None:
        for topic in self._table.topics(connector):
            self._write(f"{TOPIC}{topic}{_BETWEEN}{connector}", None)


class MemoryStates(_Stored):
    """The states of a worker that is alone."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def _write(self, key: str, value: Any) -> None:
        self._table.read(key.encode(), encoded(value))


class TopicStates(_Stored):
    """The states of a group of workers. They are written without waiting."""

    def __init__(self, new_log: Callable[[Callable[[bytes | None, bytes | None, int], None]], TopicLog]) -> None:
        super().__init__()
        self._log = new_log(lambda key, value, _offset: self._table.read(key, value))

    def start(self) -> None:
        self._log.start()

    def stop(self) -> None:
        self._log.stop()

    def _write(self, key: str, value: Any) -> None:
        self._log.write(key.encode(), encoded(value))


def _key(owner: Owner) -> str:
    return f"{TASK}{owner}" if isinstance(owner, TaskId) else f"{CONNECTOR}{owner}"


def _owner(key: str) -> Owner | None:
    if key.startswith(CONNECTOR):
        return key.removeprefix(CONNECTOR)
    if key.startswith(TASK):
        connector, _, number = key.removeprefix(TASK).rpartition("-")
        return TaskId(connector, int(number))
    return None
