"""A worker of Kafka Connect with connectors in memory, for tests of the console's page of connectors.

Its responses have the shapes and statuses of Kafka Connect 3.9. Owns that worker. Must not know the console.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from aiohttp import web

JAVA_TRACE = (
    "org.apache.kafka.connect.errors.ConnectException: Exiting WorkerSinkTask due to unrecoverable exception.\n"
    "\tat org.apache.kafka.connect.runtime.WorkerSinkTask.deliverMessages(WorkerSinkTask.java:633)\n"
    "Caused by: java.sql.SQLException: table <b>orders</b> is missing\n"
    "\t... 10 more\n"
)
PYTHON_TRACE = 'Traceback (most recent call last):\n  File "sink.py", line 7, in put\nValueError: 17 is no date\n'
PASSWORD = "connector-password"


def described(
    name: str, kind: str, state: str, tasks: list[tuple[str, str | None]], *, trace: str | None = None
) -> dict[str, Any]:
    """Return a connector as `GET /connectors?expand=status&expand=info` describes it; `tasks` are states and traces."""

    def owned(owned_state: str, owned_trace: str | None) -> dict[str, Any]:
        found = {"state": owned_state, "worker_id": "10.0.0.7:8083"}
        return found if owned_trace is None else {**found, "trace": owned_trace}

    return {
        "status": {
            "name": name,
            "connector": owned(state, trace),
            "tasks": [{"id": at, **owned(*task)} for at, task in enumerate(tasks)],
            "type": kind,
        },
        "info": {
            "name": name,
            "config": {"connector.class": f"org.example.{kind.title()}Connector", "connection.password": PASSWORD},
            "tasks": [{"connector": name, "task": at} for at, _ in enumerate(tasks)],
            "type": kind,
        },
    }


class FakeWorker:
    """The worker; `instead` handles its requests if it is set. `requests` are those that it has received."""

    def __init__(self) -> None:
        self.url = ""
        self.connectors: dict[str, dict[str, Any]] = {}
        self.offsets: dict[str, list[dict[str, Any]]] = {}
        self.requests: list[str] = []
        self.instead: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None

    def add(self, name: str, kind: str = "sink", state: str = "RUNNING", *tasks: tuple[str, str | None]) -> None:
        self.connectors[name] = described(name, kind, state, list(tasks))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.raw_path}")
        if self.instead is not None:
            return await self.instead(request)
        parts = [unquote(each) for each in request.raw_path.partition("?")[0].strip("/").split("/")]
        match request.method, parts:
            case "GET", ["connectors"]:
                return web.json_response(self.connectors)
            case "GET", ["connectors", name, "offsets"] if name in self.connectors:
                return web.json_response({"offsets": self.offsets.get(name, [])})
            case "PUT", ["connectors", name, "pause" | "resume" | "stop" as action] if name in self.connectors:
                states = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED"}
                self.connectors[name]["status"]["connector"]["state"] = states[action]
                return web.Response(status=204 if action == "stop" else 202)
            case "POST", ["connectors", name, "restart"] if name in self.connectors:
                return web.Response(status=202 if request.query else 204)
            case "POST", ["connectors", name, "tasks", _, "restart"] if name in self.connectors:
                return web.Response(status=204)
        message = f"Connector {parts[1]} not found"
        return web.json_response({"error_code": 404, "message": message}, status=404)


@asynccontextmanager
async def fake_worker() -> AsyncIterator[FakeWorker]:
    """Run a worker at a free port of 127.0.0.1."""
    worker = FakeWorker()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", worker.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        worker.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield worker
    finally:
        await runner.cleanup()
