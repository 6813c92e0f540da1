"""Slow clients of the HTTP port: how many connections stay open, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from broker.metrics import http_connections
from tests.support.certificates import Stores
from tests.support.in_process import running_broker

SETTINGS = {"metrics.http.listener": "127.0.0.1:0"}


async def test_connections_above_the_limit_are_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "CONNECTIONS_MAX", 20)
    async with running_broker(tmp_path, SETTINGS) as broker:
        port = broker.metrics_port
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        for _, writer in opened:
            writer.write(b"GET / HT")  # the header never ends
        closed = [asyncio.ensure_future(reader.read(1)) for reader, _ in opened]
        async with asyncio.timeout(20):
            for each in itertools.islice(asyncio.as_completed(closed), 40):
                await each
        assert sum(each.done() for each in closed) == 40
        # The broker serves its clients, and the port serves again as soon as a slow client leaves.
        await broker.create_topic("t")
        opened[0][1].close()
        await opened[0][1].wait_closed()
        for _ in range(200):
            try:
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"http://127.0.0.1:{port}/health/live") as response,
                ):
                    assert response.status == 200
                    break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.02)
        else:
            raise AssertionError("the port does not serve after a slow client has left")
        for each in closed:
            each.cancel()
        for _, writer in opened:
            writer.close()


async def test_connections_without_a_request_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "FIRST_REQUEST_S", 1.0)
    async with running_broker(tmp_path, SETTINGS) as broker:
        slow, slow_writer = await asyncio.open_connection("127.0.0.1", broker.metrics_port)
        slow_writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ")
        quick, quick_writer = await asyncio.open_connection("127.0.0.1", broker.metrics_port)
        quick_writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"200 OK" in await quick.readline()
        assert await asyncio.wait_for(slow.read(), 5) == b""
        await asyncio.sleep(0.2)
        quick_writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await asyncio.wait_for(quick.read(), 5)).count(b"200 OK") == 1
        for writer in (slow_writer, quick_writer):
            writer.close()


async def test_request_that_takes_longer_than_a_header_may_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "FIRST_REQUEST_S", 0.2)

    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.6)
        return web.Response(text="made")

    application = web.Application()
    application.router.add_get("/slow", slow)
    async with served(application) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"made")
        writer.close()


async def test_path_of_many_parts_is_refused_without_a_search() -> None:
    """aiohttp looks for a handler of each beginning of a path."""
    searched: list[str] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        searched.append(request.path)
        return web.Response()

    runner = http_connections.BoundedRunner(web.Application(), shutdown_timeout=1)
    statuses = [
        (await runner._serve(handle, make_mocked_request("GET", path))).status
        for path in ("/a" * 64, "/a" * 65, "/" * 130_000, "/x?" + "/" * 100_000)
    ]
    await runner.cleanup()
    assert statuses == [200, 414, 414, 200]
    assert searched == ["/a" * 64, "/x"]


@contextlib.asynccontextmanager
async def served(application: web.Application) -> AsyncIterator[int]:
    runner = http_connections.BoundedRunner(application, shutdown_timeout=1)
    await runner.setup()
    bound = socket.create_server(("127.0.0.1", 0))
    listening = runner.listen(bound, None)
    try:
        yield bound.getsockname()[1]
    finally:
        listening.cancel()
        await asyncio.wait([listening])
        await runner.cleanup()


async def test_connections_count_before_their_tls_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "CONNECTIONS_MAX", 5)
    monkeypatch.setattr(http_connections, "FIRST_REQUEST_S", 1.0)
    stores = Stores(tmp_path / "stores")
    settings = {
        **SETTINGS,
        "metrics.http.ssl.enable": "true",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.issue("server", "server")),
    }
    client = ssl.create_default_context(cafile=str(stores.ca))
    async with running_broker(tmp_path / "data", settings) as broker, aiohttp.ClientSession() as session:
        silent = [await asyncio.open_connection("127.0.0.1", broker.metrics_port) for _ in range(12)]
        url = f"https://127.0.0.1:{broker.metrics_port}/health/live"
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, ssl=client)
        async with asyncio.timeout(20):
            assert [await reader.read(1) for reader, _ in silent] == [b""] * 12
        async with session.get(url, ssl=client) as response:
            assert response.status == 200
        for _, writer in silent:
            writer.close()


async def test_a_body_that_does_not_arrive_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "BODY_S", 0.2)
    async with running_broker(tmp_path, SETTINGS) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.metrics_port)
        head = b"POST /jolokia HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
        body = b'{"type": "version"}'
        writer.write(head + b"%d\r\n\r\n" % len(body) + body)
        assert b"200 OK" in await reader.readline()
        writer.write(head + b"1000\r\n\r\n" + body)
        rest = await asyncio.wait_for(reader.read(), 5)
        assert b"408 Request Timeout" in rest
        assert rest.endswith(b"no whole body within 0.2 s\n")
        writer.close()


async def test_a_client_that_does_not_read_its_metrics_loses_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "WRITE_TIMEOUT_S", 0.3)
    async with running_broker(tmp_path, SETTINGS) as broker:
        await broker.create_topic("t", 500)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", broker.metrics_port))
        await loop.sock_sendall(client, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
        await asyncio.sleep(1.5)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := await asyncio.wait_for(loop.sock_recv(client, 1 << 20), 5):
                received += piece
        client.close()
        assert received.count(b"HTTP/1.1 200 OK") < 20, "it has waited for all of them"


async def test_requests_that_are_no_http_make_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, SETTINGS) as broker:
        for hostile in (
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.metrics_port)
            writer.write(hostile)
            assert b" 400 " in await asyncio.wait_for(reader.readline(), 5)
            writer.close()
    lines = [record for record in caplog.records if record.name == "milena.http.requests"]
    assert len(lines) == 1
    assert lines[0].getMessage().startswith("refused a request that is no HTTP: ")
    assert "\n" not in lines[0].getMessage()
    assert lines[0].exc_info is None
