"""The console's resources of connectors: what they show of a Kafka Connect cluster, and what they change there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from tests.broker.console.conftest import ConsoleUser
from tests.broker.console.connect_worker import JAVA_TRACE, PASSWORD, PYTHON_TRACE, FakeWorker, described, fake_worker
from tests.support.in_process import running_broker

WRITING = {"console.write.enable": "true"}


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with fake_worker() as started:
        started.add("orders", "sink", "RUNNING", ("RUNNING", None), ("FAILED", JAVA_TRACE))
        started.add("files", "source", "PAUSED", ("PAUSED", None))
        started.add("a/b c", "source", "RUNNING")
        started.offsets["orders"] = [
            {"partition": {"kafka_topic": "t", "kafka_partition": each}, "offset": {"kafka_offset": 10 * each}}
            for each in range(3)
        ]
        yield started


@pytest.fixture
def settings() -> dict[str, str]:
    return {}


@pytest.fixture
async def console(tmp_path: Path, worker: FakeWorker, settings: dict[str, str]) -> AsyncIterator[ConsoleUser]:
    given = {"metrics.http.listener": "127.0.0.1:0", "console.connect.url": worker.url, **settings}
    async with running_broker(tmp_path, given) as broker, aiohttp.ClientSession() as session:
        user = ConsoleUser(broker, session)
        async with session.get(f"{user.address}/api/v1/openapi.json") as response:
            user.document = await response.json()
        yield user


async def test_connectors_are_listed_with_failures_first(console: ConsoleUser, worker: FakeWorker) -> None:
    page = await console.get("/connectors")
    assert page["worker"] == worker.url
    assert (page["total"], page["failed_connectors"], page["failed_tasks"]) == (3, 0, 1)
    assert [each["name"] for each in page["connectors"]] == ["orders", "a/b c", "files"]
    assert page["connectors"][0] == {
        "name": "orders",
        "type": "sink",
        "connector_class": "org.example.SinkConnector",
        "state": "RUNNING",
        "worker": "10.0.0.7:8083",
        "tasks": {"RUNNING": 1, "FAILED": 1},
        "problem": "task 1: java.sql.SQLException: table <b>orders</b> is missing",
    }
    page = await console.get("/connectors", search="FILE")
    assert [each["name"] for each in page["connectors"]] == ["files"]
    page = await console.get("/connectors", offset=1, limit=1)
    assert (page["total"], [each["name"] for each in page["connectors"]]) == (3, ["a/b c"])
    assert worker.requests == ["GET /connectors?expand=status&expand=info"], "one request serves several pages"


async def test_a_connector_has_tasks_traces_and_offsets_but_no_configuration(
    console: ConsoleUser, worker: FakeWorker
) -> None:
    worker.connectors["orders"] = described(
        "orders", "sink", "FAILED", [("FAILED", JAVA_TRACE), ("RUNNING", None)], trace=PYTHON_TRACE
    )
    found = await console.get("/connectors/orders")
    assert PASSWORD not in json.dumps(found)
    connector = found["connector"]
    assert (connector["state"], connector["problem"]) == ("FAILED", "ValueError: 17 is no date")
    assert connector["trace"] == PYTHON_TRACE
    assert [(each["id"], each["state"], each["trace"]) for each in connector["tasks"]] == [
        (0, "FAILED", JAVA_TRACE),
        (1, "RUNNING", ""),
    ]
    offsets = await console.get("/connectors/orders/offsets", offset=1, limit=1)
    assert offsets == {
        "total": 3,
        "offsets": [{"partition": '{"kafka_topic": "t", "kafka_partition": 1}', "offset": '{"kafka_offset": 10}'}],
    }


@pytest.mark.parametrize("settings", [WRITING])
async def test_changes_are_requests_of_the_rest_interface(console: ConsoleUser, worker: FakeWorker) -> None:
    for path in (
        "orders/restart",
        "orders/restart-all",
        "orders/restart-failed",
        "orders/tasks/1/restart",
        "a%2Fb%20c/pause",
        "orders/resume",
        "orders/stop",
    ):
        url = URL(f"{console.address}/api/v1/connectors/{path}", encoded=True)
        async with console.session.post(url, headers={"X-Requested-With": "milena-console"}) as response:
            assert response.status == 200, await response.text()
    assert worker.requests == [
        "POST /connectors/orders/restart",
        "POST /connectors/orders/restart?includeTasks=true&onlyFailed=false",
        "POST /connectors/orders/restart?includeTasks=true&onlyFailed=true",
        "POST /connectors/orders/tasks/1/restart",
        "PUT /connectors/a%2Fb%20c/pause",
        "PUT /connectors/orders/resume",
        "PUT /connectors/orders/stop",
    ]


@pytest.mark.parametrize("settings", [WRITING])
async def test_a_change_is_shown_at_once(console: ConsoleUser) -> None:
    assert (await console.get("/connectors/orders"))["connector"]["state"] == "RUNNING"
    assert await console.send("POST", "/connectors/orders/pause") == (
        200,
        {"done": "Kafka Connect accepted pause for connector orders"},
    )
    assert (await console.get("/connectors/orders"))["connector"]["state"] == "PAUSED"


@pytest.mark.parametrize("settings", [WRITING])
async def test_changes_that_are_wrong_get_one_sentence(console: ConsoleUser, worker: FakeWorker) -> None:
    actions = "restart, restart-all, restart-failed, pause, resume, stop"
    for path, status, message in (
        ("none/pause", 404, f"{worker.url} responded with status 404: Connector none not found"),
        ("orders/delete", 400, f"action='delete': expected one of {actions}"),
        ("orders/tasks/x/restart", 400, "task='x': expected a number from 0 to 2147483647"),
        ("%2E%2E/pause", 404, ""),
    ):
        url = URL(f"{console.address}/api/v1/connectors/{path}", encoded=True)
        async with console.session.post(url, headers={"X-Requested-With": "milena-console"}) as response:
            assert response.status == status
            assert (await response.json())["error"].startswith(message)
    async with console.session.post(f"{console.address}/api/v1/connectors/orders/stop") as response:
        assert response.status == 400, "a form of another site cannot send the header of the console"
    assert worker.requests == ["PUT /connectors/none/pause"]
    assert await console.error("/connectors/none") == (404, "connector 'none' does not exist")


async def test_connectors_are_read_only_by_default(console: ConsoleUser, worker: FakeWorker) -> None:
    for path in ("/connectors/orders/stop", "/connectors/orders/tasks/0/restart"):
        status, problem = await console.send("POST", path)
        assert (status, problem) == (403, {"error": "the console is read-only: console.write.enable is false"})
    assert worker.requests == []


@pytest.mark.parametrize(
    "settings",
    [{**WRITING, "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:a"}],
)
async def test_an_authorizer_has_to_allow_the_consoles_principal(console: ConsoleUser, worker: FakeWorker) -> None:
    for path in ("/connectors", "/connectors/orders", "/connectors/orders/offsets"):
        assert await console.error(path) == (403, "User:ANONYMOUS needs the operation DESCRIBE on the cluster")
    status, problem = await console.send("POST", "/connectors/orders/stop")
    assert (status, problem) == (403, {"error": "User:ANONYMOUS needs the operation ALTER on the cluster"})
    assert worker.requests == []


@pytest.mark.parametrize(
    "body",
    [
        {"a": {}},
        {"a": None},
        {"a": {"status": {"connector": "x", "tasks": [], "type": "sink"}, "info": {"config": {}}}},
        {"a": {"status": {"connector": {"state": 1}, "tasks": [], "type": "sink"}, "info": {"config": {}}}},
        {"a": {"status": {"connector": {}, "tasks": {}, "type": "sink"}, "info": {"config": {}}}},
        {"a": {"status": {"connector": {}, "tasks": [{"id": "0"}], "type": "sink"}, "info": {"config": {}}}},
        {"a": {"status": {"connector": {}, "tasks": [{"id": True}], "type": "sink"}, "info": {"config": {}}}},
        {"a": {"status": {"connector": {}, "tasks": [{"id": 1 << 31}], "type": "sink"}, "info": {"config": {}}}},
    ],
)
async def test_shapes_that_kafka_connect_does_not_send_are_rejected(
    console: ConsoleUser, worker: FakeWorker, body: Any
) -> None:
    worker.connectors = body
    reason = f"no worker of Kafka Connect responded: {worker.url}: the response is not what Kafka Connect sends"
    assert await console.error("/connectors") == (503, reason)


async def test_long_texts_are_cut(console: ConsoleUser, worker: FakeWorker) -> None:
    worker.connectors = {"a": described("a", "x" * 5_000, "y" * 5_000, [("FAILED", "z" * 50_000)])}
    worker.offsets["a"] = [{"partition": {"k": "p" * 5_000}, "offset": None}]
    connector = (await console.get("/connectors/a"))["connector"]
    assert (len(connector["type"]), len(connector["state"])) == (1_000, 1_000)
    assert (len(connector["tasks"][0]["trace"]), len(connector["tasks"][0]["problem"])) == (20_000, 300)
    (offset,) = (await console.get("/connectors/a/offsets"))["offsets"]
    assert (len(offset["partition"]), offset["offset"]) == (2_000, "null")


async def test_a_page_that_many_show_costs_a_worker_one_request(console: ConsoleUser, worker: FakeWorker) -> None:
    is_asked, is_free = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.StreamResponse:
        is_asked.set()
        await is_free.wait()
        return web.json_response(worker.connectors)

    worker.instead = slow
    pages = [asyncio.ensure_future(console.get("/connectors")) for _ in range(5)]
    await is_asked.wait()
    is_free.set()
    assert {page["total"] for page in await asyncio.gather(*pages)} == {3}
    assert len(worker.requests) == 1


@pytest.mark.parametrize("settings", [{"console.connect.url": ""}])
async def test_without_workers_there_are_no_connectors(console: ConsoleUser) -> None:
    assert not [path for path in console.document["paths"] if "connectors" in path]
    async with console.session.get(f"{console.address}/api/v1/connectors") as response:
        assert response.status == 404
    async with console.session.get(console.address) as response:
        assert 'data-optional=""' in await response.text()


async def test_with_workers_the_page_has_their_entry(console: ConsoleUser) -> None:
    async with console.session.get(console.address) as response:
        assert 'data-optional="connect"' in await response.text()
