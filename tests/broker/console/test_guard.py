"""Which requests reach the console: by address, Host, origin and body; and the headers of its responses."""

from __future__ import annotations

import json

import aiohttp
import pytest

from tests.broker.console.conftest import ConsoleUser

CROSS_SITE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}


async def status_of(console: ConsoleUser, path: str, headers: dict[str, str], method: str = "GET") -> int:
    async with console.session.request(method, console.address + path, headers=headers) as response:
        await response.read()
        return response.status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8080"}, 200),
        ({"Host": "[::1]:9404"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        (CROSS_SITE, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
    ],
)
async def test_requests_of_other_sites_are_refused(console: ConsoleUser, headers: dict[str, str], status: int) -> None:
    assert await status_of(console, "/api/v1/overview", headers) == status


async def test_a_link_on_another_site_may_open_the_page(console: ConsoleUser) -> None:
    navigation = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert await status_of(console, "/", navigation) == 200
    assert await status_of(console, "/", CROSS_SITE) == 403
    assert await status_of(console, "/console/app.js", CROSS_SITE) == 403


async def test_metrics_and_health_do_not_depend_on_the_host(console: ConsoleUser) -> None:
    for path in ("/metrics", "/health/live"):
        assert await status_of(console, path, {"Host": "prometheus.example"}) == 200


@pytest.mark.parametrize("overrides", [{"console.hosts": "kafka.example"}])
async def test_configured_host_names_are_accepted(console: ConsoleUser) -> None:
    assert await status_of(console, "/", {"Host": "KAFKA.example:9404"}) == 200
    assert await status_of(console, "/", {"Host": "other.example:9404"}) == 421


@pytest.mark.parametrize("overrides", [{"console.clients": "none"}])
async def test_the_console_can_be_switched_off(console: ConsoleUser) -> None:
    assert await status_of(console, "/", {}) == 404
    assert await status_of(console, "/api/v1/overview", {}) == 404
    assert await status_of(console, "/metrics", {}) == 200


async def test_headers_forbid_scripts_of_others(console: ConsoleUser) -> None:
    for path in ("/", "/console/app.js", "/api/v1/overview", "/api/v1/none", "/none"):
        async with console.session.get(console.address + path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "Access-Control-Allow-Origin" not in response.headers
            assert "aiohttp" not in f"{response.headers} {await response.text()}"


@pytest.mark.parametrize("overrides", [{"console.write.enable": "true"}])
async def test_changes_need_what_a_form_cannot_send(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    body = json.dumps({"partition": 0, "key": None, "value": "x", "headers": [], "encoding": "text"})
    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        async with console.session.post(
            f"{console.address}/api/v1/topics/t/records", data=body, headers={"Content-Type": content_type}
        ) as response:
            assert response.status == 415
    assert await status_of(console, "/api/v1/groups/g/delete", {}, "POST") == 415


async def test_files_are_compressed_and_sent_once(console: ConsoleUser) -> None:
    sizes = {}
    for encoding in ("gzip", "identity"):
        headers = {"Accept-Encoding": encoding}
        async with console.session.get(console.address + "/console/app.js", headers=headers) as response:
            assert response.headers.get("Content-Encoding", "identity") == encoding
            sizes[encoding], tag = int(response.headers["Content-Length"]), response.headers["ETag"]
    assert sizes["gzip"] < sizes["identity"] / 2
    assert await status_of(console, "/console/app.js", {"If-None-Match": tag}) == 304


async def test_hostile_paths_and_queries_get_an_error(console: ConsoleUser) -> None:
    for path in ("/console/../http.py", "/console/%2e%2e/http.py", "/console/none.js"):
        async with console.session.get(aiohttp.client.URL(console.address + path, encoded=True)) as response:
            assert response.status == 404
    for path, query in (("/topics", "search=a&search=b"), ("/topics", "x=1"), ("/topics/%00", ""), ("/nothing", "")):
        url = aiohttp.client.URL(f"{console.address}/api/v1{path}?{query}", encoded=True)
        async with console.session.get(url) as response:
            assert response.status in (400, 404)
            assert list(await response.json()) == ["error"]
