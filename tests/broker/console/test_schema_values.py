"""Which schemas of a page's records are fetched from the registry, and how often."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from broker.console.console import Console
from broker.console.records.pieces import Found
from broker.console.records.registry_values import SCHEMAS_MAX, Opened, Unopened, schema_values
from broker.console.records.schemas import RETRY_MS, NoSchemaError, SchemaRegistry
from protocol.records.batch import Record
from tests.support.manual_clock import ManualClock

STRING = {"schema": '"string"', "schemaType": "AVRO"}


def value(schema_id: int) -> bytes:
    """A string in Confluent's wire format."""
    return b"\0" + schema_id.to_bytes(4) + b"\x04hi"


async def test_a_page_asks_for_a_bounded_number_of_schemas() -> None:
    asked: list[int] = []

    async def schema(schema_id: int) -> dict[str, Any]:
        asked.append(schema_id)
        return STRING

    async def run(work: Any) -> Any:
        return work()

    parts: Any = SimpleNamespace(
        services=SimpleNamespace(cpu_pool=SimpleNamespace(run=run)), schemas=SimpleNamespace(schema=schema)
    )
    found: list[Any] = [
        SimpleNamespace(record=Record(number, 0, None, value(number), [])) for number in range(SCHEMAS_MAX + 1)
    ]
    values = await schema_values(cast(Console, parts), cast("list[Found]", found))
    assert asked == list(range(SCHEMAS_MAX))
    assert isinstance(values.opened(value(SCHEMAS_MAX - 1)), Opened)
    refused = values.opened(value(SCHEMAS_MAX))
    assert isinstance(refused, Unopened)
    assert refused.problem == f"the records have {SCHEMAS_MAX + 1} schemas, {SCHEMAS_MAX} at most are used"


class RegistryServer:
    """A registry that responds as a test says, and the client with a clock of the test."""

    def __init__(self) -> None:
        self.body: Any = STRING
        self.status = 200
        self.is_closing = False
        self.asked: list[str] = []
        self.clock = ManualClock()
        application = web.Application()
        application.router.add_get("/{path:.*}", self._respond)
        self._runner = web.AppRunner(application)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port = self._runner.addresses[0][1]
        self.registry = SchemaRegistry(f"http://127.0.0.1:{port}", self.clock.monotonic_ms)

    async def stop(self) -> None:
        await self.registry.close()
        await self._runner.cleanup()

    async def problem_of(self, schema_id: int) -> str:
        with pytest.raises(NoSchemaError) as raised:
            await self.registry.schema(schema_id)
        return str(raised.value)

    async def _respond(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.is_closing:
            assert request.transport is not None
            request.transport.abort()
        if isinstance(self.body, str):
            return web.Response(text=self.body, status=self.status, content_type="text/html")
        return web.json_response(self.body, status=self.status)


@pytest.fixture
async def server() -> AsyncIterator[RegistryServer]:
    started = RegistryServer()
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


@pytest.mark.parametrize(
    ("is_closing", "problem"),
    [
        (True, "the response of the registry is not valid HTTP (ServerDisconnectedError)"),
        (False, "the response of the registry to /schemas/ids/1 is no JSON"),
    ],
)
async def test_a_registry_that_failed_is_asked_again_only_after_a_while(
    server: RegistryServer, is_closing: bool, problem: str
) -> None:
    server.is_closing, server.body = is_closing, "<html>please log in</html>"
    assert await server.problem_of(1) == problem
    asked = list(server.asked)
    server.clock.advance(RETRY_MS - 1)
    assert [await server.problem_of(each) for each in (1, 2, 3)] == [problem] * 3
    assert server.asked == asked
    server.is_closing, server.body = False, STRING
    server.clock.advance(1)
    assert [await server.registry.schema(each) for each in (1, 2)] == [STRING, STRING]


async def test_a_request_that_succeeds_ends_the_wait_after_a_failure(server: RegistryServer) -> None:
    server.body = "<html>please log in</html>"
    await server.problem_of(1)
    server.body = ["t-value"]
    assert await server.registry.get("/subjects") == ["t-value"]
    server.body = STRING
    assert await server.registry.schema(1) == STRING


async def test_a_schema_that_was_missing_is_asked_for_again_after_a_while(server: RegistryServer) -> None:
    server.status, server.body = 404, {"error_code": 40403}
    assert [await server.problem_of(1) for _ in range(2)] == ["the registry has no schema 1"] * 2
    assert len(server.asked) == 1
    server.status, server.body = 200, STRING
    server.clock.advance(RETRY_MS)
    assert await server.registry.schema(1) == STRING
    server.clock.advance(RETRY_MS)
    assert await server.registry.schema(1) == STRING
    assert len(server.asked) == 2, "a schema never changes"
