"""Connectors, their tasks and offsets, and the changes that Kafka Connect makes to them on request.

Owns what the page of connectors contains, and which requests of Kafka Connect's REST interface make it up. The values
of a connector's configuration may be secrets, so only the name of its class is shown. Must not know HTTP.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple, TypedDict
from urllib.parse import quote

from broker.console.connect.workers import Answer, UnavailableWorker, Workers
from broker.console.console import Console
from broker.console.problem import ProblemError, not_found
from broker.security.acls import CLUSTER_NAME, Operation, ResourceType

VALID_MS: Final = 2_000
"""How long the state of all connectors is used again: workers get one request in this time, for all pages."""
REMEMBERED_AS: Final = "connectors"
TEXT_SIZE_MAX: Final = 1_000
TRACE_SIZE_MAX: Final = 20_000
PROBLEM_SIZE_MAX: Final = 300
OFFSET_SIZE_MAX: Final = 2_000
TASK_MAX: Final = (1 << 31) - 1
CAUSE: Final = "Caused by: "
FAILED: Final = "FAILED"

Action = Literal["restart", "restart-all", "restart-failed", "pause", "resume", "stop"]


class Done(TypedDict):
    """What a worker has accepted."""

    done: str


class _Request(NamedTuple):
    method: str
    path: str


ACTIONS: Final[Mapping[Action, _Request]] = {
    "restart": _Request("POST", "restart"),
    "restart-all": _Request("POST", "restart?includeTasks=true&onlyFailed=false"),
    "restart-failed": _Request("POST", "restart?includeTasks=true&onlyFailed=true"),
    "pause": _Request("PUT", "pause"),
    "resume": _Request("PUT", "resume"),
    "stop": _Request("PUT", "stop"),
}


class ConnectorTask(TypedDict):
    """A task; `problem` is the line of its trace that names the error. Both are empty unless it has failed."""

    id: int
    state: str
    worker: str
    problem: str
    trace: str


class Connector(TypedDict):
    """A connector with its tasks; `worker` runs the connector itself."""

    name: str
    type: str
    connector_class: str
    state: str
    worker: str
    problem: str
    trace: str
    tasks: list[ConnectorTask]


class ConnectorRow(TypedDict):
    """A connector in the list. `tasks` counts its tasks by state; `problem` is the first error of those that failed."""

    name: str
    type: str
    connector_class: str
    state: str
    worker: str
    tasks: dict[str, int]
    problem: str


class ConnectorPage(TypedDict):
    """A page of connectors, those with failures first. `worker` responded; `unavailable` ones did not."""

    worker: str
    unavailable: list[UnavailableWorker]
    total: int
    failed_connectors: int
    failed_tasks: int
    connectors: list[ConnectorRow]


class ConnectorDetail(TypedDict):
    """One connector. `worker` responded; `unavailable` ones did not."""

    worker: str
    unavailable: list[UnavailableWorker]
    connector: Connector


class ConnectorOffset(TypedDict):
    """How far a connector has come in one partition of its source or topic. Both are JSON texts."""

    partition: str
    offset: str


class ConnectorOffsets(TypedDict):
    """A page of the offsets of a connector."""

    total: int
    offsets: list[ConnectorOffset]


async def connectors(console: Console, *, search: str, offset: int, limit: int) -> ConnectorPage:
    """Return a page of the connectors whose names contain `search`. Raises ProblemError."""
    workers = _workers(console, Operation.DESCRIBE)
    found = await _all_connectors(console, workers)
    rows = [_row(each) for each in found.value.values()]
    matching = [each for each in rows if search.lower() in each["name"].lower()]
    matching.sort(key=lambda row: (not row["problem"] and FAILED not in (row["state"], *row["tasks"]), row["name"]))
    return ConnectorPage(
        worker=found.worker,
        unavailable=workers.unavailable(),
        total=len(matching),
        failed_connectors=sum(each["state"] == FAILED for each in rows),
        failed_tasks=sum(each["tasks"].get(FAILED, 0) for each in rows),
        connectors=matching[offset : offset + limit],
    )


async def connector(console: Console, *, connector: str) -> ConnectorDetail:
    """Return one connector. Raises ProblemError."""
    workers = _workers(console, Operation.DESCRIBE)
    found = await _all_connectors(console, workers)
    if connector not in found.value:
        raise not_found(f"connector {connector!r} does not exist")
    return ConnectorDetail(worker=found.worker, unavailable=workers.unavailable(), connector=found.value[connector])


async def connector_offsets(console: Console, *, connector: str, offset: int, limit: int) -> ConnectorOffsets:
    """Return a page of the offsets of a connector, in the order of Kafka Connect. Raises ProblemError."""

    def shaped(found: Any) -> ConnectorOffsets:
        entries = _list(_object(found).get("offsets"))
        return ConnectorOffsets(
            total=len(entries), offsets=[_offset(each) for each in entries[offset : offset + limit]]
        )

    return (await _workers(console, Operation.DESCRIBE).read(f"{_path(connector)}/offsets", shaped)).value


async def act_on_connector(console: Console, *, connector: str, action: Action) -> Done:
    """Restart, pause, resume or stop a connector. Raises ProblemError."""
    method, path = ACTIONS[action]
    await _change(console, method, f"{_path(connector)}/{path}")
    return Done(done=f"Kafka Connect accepted {action} for connector {connector}")


async def restart_connector_task(console: Console, *, connector: str, task: int) -> Done:
    """Restart one task. Raises ProblemError."""
    await _change(console, "POST", f"{_path(connector)}/tasks/{task}/restart")
    return Done(done=f"Kafka Connect accepted the restart of task {task} of connector {connector}")


async def _change(console: Console, method: str, path: str) -> None:
    try:
        await _workers(console, Operation.ALTER).change(method, path)
    finally:
        console.forget(REMEMBERED_AS)


def _workers(console: Console, operation: Operation) -> Workers:
    """Return the workers, if the console's principal may do this to the cluster: Kafka Connect has no ACLs.

    Raises ProblemError.
    """
    may = console.client.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    if console.services.authorizer.is_active and not may:
        raise ProblemError(
            HTTPStatus.FORBIDDEN, f"{console.client.principal} needs the operation {operation.name} on the cluster"
        )
    assert console.connect is not None  # else no resource of it is served
    return console.connect


async def _all_connectors(console: Console, workers: Workers) -> Answer[dict[str, Connector]]:
    def shaped(found: Any) -> dict[str, Connector]:
        return {name: _connector(name, _object(each)) for name, each in _object(found).items()}

    path = "/connectors?expand=status&expand=info"
    return await console.remembered(REMEMBERED_AS, VALID_MS, lambda: workers.read(path, shaped))


def _path(name: str) -> str:
    """Return the path of a connector. Raises ProblemError for a name that servers take for a part of the path."""
    if name in (".", ".."):
        raise not_found(f"connector {name!r} does not exist")
    return f"/connectors/{quote(name, safe='')}"


# Shapes. Each raises ValueError for what Kafka Connect does not send.


def _connector(name: str, found: Mapping[str, Any]) -> Connector:
    status, info = _object(found.get("status")), _object(found.get("info"))
    own = _object(status.get("connector"))
    trace = _text(own.get("trace"))
    tasks = [_task(_object(each)) for each in _list(status.get("tasks"))]
    return Connector(
        name=name,
        type=_short(status.get("type")),
        connector_class=_short(_object(info.get("config")).get("connector.class")),
        state=_short(own.get("state")),
        worker=_short(own.get("worker_id")),
        problem=_problem(trace),
        trace=trace[:TRACE_SIZE_MAX],
        tasks=sorted(tasks, key=lambda task: task["id"]),
    )


def _task(found: Mapping[str, Any]) -> ConnectorTask:
    number, trace = found.get("id"), _text(found.get("trace"))
    if type(number) is not int or not 0 <= number <= TASK_MAX:
        raise ValueError(number)
    return ConnectorTask(
        id=number,
        state=_short(found.get("state")),
        worker=_short(found.get("worker_id")),
        problem=_problem(trace),
        trace=trace[:TRACE_SIZE_MAX],
    )


def _row(one: Connector) -> ConnectorRow:
    problems = [one["problem"], *(f"task {task['id']}: {task['problem']}" for task in one["tasks"] if task["problem"])]
    return ConnectorRow(
        name=one["name"],
        type=one["type"],
        connector_class=one["connector_class"],
        state=one["state"],
        worker=one["worker"],
        tasks=dict(Counter(task["state"] for task in one["tasks"])),
        problem=next(filter(None, problems), ""),
    )


def _offset(found: Any) -> ConnectorOffset:
    partition, offset = (
        json.dumps(_object(found).get(name), ensure_ascii=False)[:OFFSET_SIZE_MAX] for name in ("partition", "offset")
    )
    return ConnectorOffset(partition=partition, offset=offset)


def _problem(trace: str) -> str:
    """Return the line of a trace that names the error: Java's last cause, Python's last line."""
    lines = [each for each in trace.splitlines() if each.strip()]
    causes = [each.removeprefix(CAUSE) for each in lines if each.startswith(CAUSE)]
    if not lines:
        return ""
    is_python = lines[0].startswith("Traceback ")
    return (causes[-1] if causes else lines[-1 if is_python else 0])[:PROBLEM_SIZE_MAX]


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(value)
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str | None):
        raise ValueError(value)
    return value or ""


def _short(value: Any) -> str:
    return _text(value)[:TEXT_SIZE_MAX]
