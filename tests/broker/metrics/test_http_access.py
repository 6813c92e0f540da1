"""The HTTP port with TLS and with users, as a monitoring system reads it."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from pathlib import Path

import aiohttp
import pytest

from broker.environment import environment_of_this_machine
from broker.metrics.http_access import LINES_MAX, PATH_SHOWN_MAX, HttpAccess
from broker.server import Server
from broker.settings.listener_security import open_listeners
from config.broker import BrokerConfig
from config.definition import ConfigErrors
from tests.support.certificates import Stores
from tests.support.in_process import running_broker

LISTENER = {"metrics.http.listener": "127.0.0.1:0"}
USERS = {"metrics.http.users": "prometheus:first secret, console:se:cond"}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "is_admitted"),
    [
        (basic("prometheus", "secret"), True),
        (basic("prometheus", "wrong"), False),
        (basic("prometheus", ""), False),
        (basic("nobody", "secret"), False),
        (basic("müller", "gehéim"), True),
        ("Basic !!!", False),
        ("Basic", False),
        ("Bearer prometheus:secret", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_user_with_its_password_is_admitted(authorization: str | None, is_admitted: bool) -> None:
    assert HttpAccess({"prometheus": "secret", "müller": "gehéim"}).admits(authorization) is is_admitted


def test_without_users_everyone_is_admitted() -> None:
    assert HttpAccess({}).admits(None)


@pytest.mark.parametrize("path", ["/metrics", "/health/live", "/health/ready", "/health/safe", "/nonsense"])
async def test_every_path_needs_a_user(tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running_broker(tmp_path, {**LISTENER, **USERS}) as broker, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{broker.metrics_port}{path}"
        async with session.get(url) as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"].startswith("Basic ")
        async with session.get(url, headers={"Authorization": basic("console", "se:cond")}) as response:
            assert response.status == (404 if path == "/nonsense" else 200)
    assert f"HTTP request for {path} from 127.0.0.1 is denied" in caplog.text
    assert "first secret" not in caplog.text


async def test_tls_with_the_stores_of_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stores = Stores(tmp_path / "stores")
    pem = stores.issue("server", "server")
    settings = {
        **LISTENER,
        "metrics.http.ssl.enable": "true",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores.ca),
        "listener.name.metrics_http.ssl.client.auth": "required",
    }
    own = ssl.create_default_context(cafile=str(stores.ca))
    anonymous = ssl.create_default_context(cafile=str(stores.ca))
    own.load_cert_chain(stores.issue("client", "client"))
    async with running_broker(tmp_path / "data", settings) as broker, aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{broker.metrics_port}/health/live"
        async with session.get(url, ssl=own) as response:
            assert response.status == 200
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, ssl=anonymous)
        with pytest.raises(aiohttp.ClientError):
            await session.get(url.replace("https", "http"))
    assert re.search(r"Failed authentication with 127\.0\.0\.1:\d+ on metrics_http \(TLS handshake failed", caplog.text)


async def test_tls_uses_a_changed_store_for_new_connections(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "stores")
    settings = {
        **LISTENER,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path / "data"),
        "metrics.http.ssl.enable": "true",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores.issue("server", "server")),
    }

    async def certificate(port: int | None) -> str:
        assert port is not None
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

    config = BrokerConfig.from_properties(settings)
    server = Server(config, environment_of_this_machine())
    try:
        await server.start()
        before = await certificate(server.metrics_port)
        stores.issue("server", "server")
        await server._reload_stores()
        assert await certificate(server.metrics_port) != before
    finally:
        await server.stop()


@pytest.mark.parametrize("text", ["prometheus", ":secret", "prometheus:", "a:b,", "a:b,a:c"])
def test_invalid_users_stop_the_start_and_are_not_shown(text: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        BrokerConfig.from_properties({"metrics.http.users": text})
    assert "metrics.http.users" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        ({}, False),
        ({"metrics.http.listener": "127.0.0.1:7071"}, False),
        ({"metrics.http.listener": "[::1]:7071"}, False),
        ({"metrics.http.listener": ":7071"}, True),
        ({"metrics.http.listener": ":7071", **USERS}, False),
    ],
)
def test_an_open_port_is_named_with_the_setting_that_closes_it(settings: dict[str, str], is_open: bool) -> None:
    lines = [line for line in open_listeners(BrokerConfig.from_properties(settings)) if "metrics.http" in line]
    assert len(lines) == is_open
    assert all("set metrics.http.listener=127.0.0.1:7071" in line for line in lines)


async def test_refusals_fill_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kafka.authorizer.logger")
    async with running_broker(tmp_path, {**LISTENER, **USERS}) as broker, aiohttp.ClientSession() as session:
        for _ in range(3 * LINES_MAX):
            async with session.get(f"http://127.0.0.1:{broker.metrics_port}/{'a' * 5000}") as response:
                assert response.status == 401
    lines = [record.getMessage() for record in caplog.records if "is denied" in record.getMessage()]
    assert len(lines) == LINES_MAX
    assert max(map(len, lines)) < PATH_SHOWN_MAX + 200
