"""A broker with a console in the test's own process, and its JSON, checked against the console's OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from tests.support.browser import Browser, open_browser
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.parts import skip_when_unavailable


class ConsoleUser:
    """Sends HTTP requests to one console. Each response is validated against the schema of its resource."""

    def __init__(self, broker: InProcessBroker, session: aiohttp.ClientSession) -> None:
        assert broker.metrics_port is not None
        self.broker = broker
        self.address = f"http://127.0.0.1:{broker.metrics_port}"
        self.session = session
        self.document: dict[str, Any] = {}

    async def get(self, path: str, **query: object) -> Any:
        """Return the JSON of a resource, which must succeed."""
        status, body = await self.send("GET", path, query=query)
        assert status == 200, body
        return body

    async def error(self, path: str, **query: object) -> tuple[int, str]:
        """Return status and message of a resource, which must fail."""
        status, body = await self.send("GET", path, query=query)
        assert status >= 400, body
        assert list(body) == ["error"]
        return status, body["error"]

    async def send(
        self, method: str, path: str, body: object = None, *, query: dict[str, object] | None = None
    ) -> tuple[int, Any]:
        params = {name: str(value) for name, value in (query or {}).items()}
        headers = {"X-Requested-With": "milena-console"}
        async with self.session.request(
            method, f"{self.address}/api/v1{path}", params=params, json=body, headers=headers
        ) as response:
            content = await response.json()
        self.validate(method, path, response.status, content)
        return response.status, content

    async def lines(self, path: str, **query: object) -> list[Any]:
        """Return all lines of a long read."""
        params = {name: str(value) for name, value in query.items()}
        async with self.session.get(f"{self.address}/api/v1{path}", params=params) as response:
            assert response.status == 200, await response.text()
            lines = [json.loads(line) async for line in response.content]
        for line in lines:
            self.validate("GET", path, 200, line)
        return lines

    def validate(self, method: str, path: str, status: int, content: object) -> None:
        """Check a response against the OpenAPI document."""
        operation = self._operation(method, path)
        responses = operation["responses"]
        described = responses.get(str(status), responses["default"])
        (media,) = described["content"].values()
        schema = {**media["schema"], "components": self.document["components"]}
        jsonschema.Draft202012Validator(schema).validate(content)

    def _operation(self, method: str, path: str) -> Any:
        parts = f"/api/v1{path}".split("/")
        for template, operations in self.document["paths"].items():
            wanted = template.split("/")
            if len(wanted) == len(parts) and all(
                a == b or a.startswith("{") for a, b in zip(wanted, parts, strict=True)
            ):
                return operations[method.lower()]
        raise AssertionError(f"{method} {path} is not in the OpenAPI document")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A browser for the files of this folder that one worker runs; it ends before the worker's next folder."""
    with skip_when_unavailable(), open_browser() as opened:
        yield opened


@pytest.fixture
def overrides() -> dict[str, str]:
    return {}


@pytest.fixture
async def console(tmp_path: Path, overrides: dict[str, str]) -> AsyncIterator[ConsoleUser]:
    settings = {
        "metrics.http.listener": "127.0.0.1:0",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        **overrides,
    }
    async with running_broker(tmp_path, settings) as broker, aiohttp.ClientSession() as session:
        user = ConsoleUser(broker, session)
        async with session.get(f"{user.address}/api/v1/openapi.json") as response:
            user.document = await response.json()
        yield user
