"""Requests to workers of Kafka Connect: which one is asked, and what the console accepts of a hostile one."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
from aiohttp import web

from broker.console.connect import workers
from broker.console.connect.workers import RESPONSE_SIZE_MAX, RETRY_MS, Workers
from broker.console.problem import ProblemError
from tests.broker.console.connect_worker import FakeWorker, fake_worker
from tests.support.processes import closed_port

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Time:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with fake_worker() as started:
        yield started


@pytest.fixture
async def other() -> AsyncIterator[FakeWorker]:
    async with fake_worker() as started:
        yield started


@pytest.fixture
async def time() -> Time:
    return Time()


@pytest.fixture
async def both(worker: FakeWorker, other: FakeWorker, time: Time) -> AsyncIterator[Workers]:
    opened = Workers([worker.url + "/", other.url, other.url], time.monotonic_ms)
    yield opened
    await opened.close()


def whole(found: Any) -> Any:
    if not isinstance(found, dict):
        raise ValueError(found)
    return found


def responding(body: bytes | str, status: int = 200, headers: Mapping[str, str] | None = None) -> Handler:
    async def respond(_request: web.Request) -> web.StreamResponse:
        data = body.encode() if isinstance(body, str) else body
        return web.Response(status=status, body=data, headers=headers, content_type="application/json")

    return respond


async def no_response(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65_536)


async def late(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (endless, "the response has more than 4 MiB"),
        (late, "no response within 0 s"),
        (no_response, "the response is not valid HTTP (ServerDisconnectedError)"),
        (responding("[" * 100_000), "the response is not what Kafka Connect sends"),
        (responding("[" + "[]," * 200_000 + "[]]"), "the response has more than 200000 elements"),
        (responding("1" * 10_000), "the response is not what Kafka Connect sends"),
        (responding(b"\xff"), "the response is not what Kafka Connect sends"),
        (responding(""), "the response is not what Kafka Connect sends"),
        (responding("<html>"), "the response is not what Kafka Connect sends"),
        (responding("[]"), "the response is not what Kafka Connect sends"),
        (
            responding(gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}),
            "the response is not what Kafka Connect sends",
        ),
        (responding("{}", 302, {"Location": "/admin"}), "status 302, expected a response of Kafka Connect"),
        (responding("{}", 401), "status 401, expected a response of Kafka Connect"),
        (responding("{}", 503), "status 503, expected a response of Kafka Connect"),
    ],
)
async def test_another_worker_is_asked_if_one_does_not_respond_as_kafka_connect(
    both: Workers,
    worker: FakeWorker,
    other: FakeWorker,
    hostile: Handler,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if hostile is late:
        monkeypatch.setattr(workers, "READ_TIMEOUT_S", 0.4)  # enough for the other one on a busy machine
    worker.instead = hostile
    found = await both.read("/connectors", whole)
    assert found.worker == other.url
    assert both.unavailable() == [{"worker": worker.url, "reason": reason}]
    assert set(worker.requests) == {"GET /connectors"}, "a redirect is not followed"


@pytest.fixture
def closed() -> Iterator[str]:
    """The address of a worker that does not listen."""
    with closed_port() as port:
        yield f"http://127.0.0.1:{port}"


async def test_a_worker_that_does_not_listen_is_asked_last_for_a_while(
    closed: str, other: FakeWorker, time: Time
) -> None:
    both = Workers([closed, other.url], time.monotonic_ms)
    try:
        assert await both.read("/connectors", whole) == (other.url, {})
        (failed,) = both.unavailable()
        assert failed["worker"] == closed
        assert failed["reason"].startswith("cannot connect: ")
        assert await both.read("/connectors", whole) == (other.url, {})
        time.now_ms += RETRY_MS
        assert both.unavailable() == []
        assert await both.read("/connectors", whole) == (other.url, {})
        assert len(both.unavailable()) == 1, "it was asked again"
    finally:
        await both.close()


async def test_a_worker_that_responds_again_is_available(both: Workers, worker: FakeWorker, other: FakeWorker) -> None:
    worker.instead = other.instead = responding("")
    with pytest.raises(ProblemError) as failed:
        await both.read("/connectors", whole)
    reason = "the response is not what Kafka Connect sends"
    assert failed.value.status == 503
    assert failed.value.message == (
        f"no worker of Kafka Connect responded: {worker.url}: {reason}; {other.url}: {reason}"
    )
    worker.instead = None
    assert (await both.read("/connectors", whole)).worker == worker.url
    assert [each["worker"] for each in both.unavailable()] == [other.url]


@pytest.mark.parametrize(
    ("status", "body", "shown_status", "message"),
    [
        (404, '{"error_code": 404, "message": "Connector a not found"}', 404, "Connector a not found"),
        (409, '{"error_code": 409, "message": "rebalance"}', 409, "rebalance"),
        (500, '{"message": 5}', 502, "no message"),
        (500, "<html>", 502, "no message"),
        (400, '{"message": "' + "x" * 2_000 + '"}', 400, "x" * 1_000),
        (418, "[" * 100_000, 502, "no message"),
    ],
)
async def test_the_error_of_a_worker_is_passed_on(
    both: Workers, worker: FakeWorker, other: FakeWorker, status: int, body: str, shown_status: int, message: str
) -> None:
    worker.instead = responding(body, status)
    for request in (both.read("/connectors/a", whole), both.change("PUT", "/connectors/a/pause")):
        with pytest.raises(ProblemError) as failed:
            await request
        assert failed.value.status == shown_status
        assert failed.value.message == f"{worker.url} responded with status {status}: {message}"
    assert other.requests == []
    assert both.unavailable() == []


@pytest.mark.parametrize("hostile", [no_response, endless, responding("", 302, {"Location": "/"})])
async def test_a_change_that_may_have_been_made_is_not_sent_again(
    both: Workers, worker: FakeWorker, other: FakeWorker, hostile: Handler
) -> None:
    worker.instead = hostile
    with pytest.raises(ProblemError) as failed:
        await both.change("POST", "/connectors/a/restart")
    assert failed.value.status == 504
    assert failed.value.message.endswith("; whether the change was made is unknown")
    assert worker.requests == ["POST /connectors/a/restart"]
    assert other.requests == []


async def test_a_change_goes_to_the_next_worker_if_one_does_not_listen(
    closed: str, other: FakeWorker, time: Time
) -> None:
    other.add("a")
    both = Workers([closed, other.url], time.monotonic_ms)
    try:
        await both.change("PUT", "/connectors/a/pause")
    finally:
        await both.close()
    assert other.requests == ["PUT /connectors/a/pause"]


async def test_requests_carry_what_kafkas_workers_expect(both: Workers, worker: FakeWorker) -> None:
    seen: list[tuple[str | None, ...]] = []

    async def noted(request: web.Request) -> web.StreamResponse:
        seen.append(
            tuple(request.headers.get(name) for name in ("Content-Type", "Accept", "Accept-Encoding", "Cookie"))
        )
        return web.json_response({}, headers={"Set-Cookie": "session=1"})

    worker.instead = noted
    await both.change("POST", "/connectors/a/restart")
    await both.read("/connectors", whole)
    assert seen == [("application/json", "application/json", "identity", None)] * 2


async def test_a_response_of_the_largest_size_is_read(both: Workers, worker: FakeWorker) -> None:
    worker.instead = responding("{}".ljust(RESPONSE_SIZE_MAX))
    assert (await both.read("/connectors", whole)).worker == worker.url
