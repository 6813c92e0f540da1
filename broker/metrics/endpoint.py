"""Where metrics and health are served over HTTP: `/metrics` for Prometheus, `/jolokia` as JSON, `/health/...`.

Owns: the address, the HTTP server and what it measures itself. Must not know any particular metric or check.

Imported only by a broker that is to serve metrics: the libraries behind it cost a quarter of a second and 20 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from broker.loop.slices import SlicedWork
from broker.metrics.health import Health, Verdict
from broker.metrics.http_access import HttpAccess
from broker.metrics.http_connections import BODY_SIZE_MAX, BoundedRunner, whole_body, written
from broker.metrics.jolokia import JolokiaError, JolokiaRequest, request_of_path, requests_of_body, respond
from broker.metrics.prometheus import pieces
from broker.metrics.registry import Registry
from broker.network.network import ListenError
from broker.network.tls import ServerContext
from config.addresses import HostAndPort
from config.broker_properties import METRICS_HTTP_LISTENER
from milena_broker import __version__

BACKLOG_SIZE = 16
SHUTDOWN_TIMEOUT_S = 1.0
UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
CHUNK_SIZE = 16_384
PIECES_PER_TURN = 50
OPEN_METRICS = "application/openmetrics-text"


class MetricsEndpoint:
    """The HTTP server of one broker. It is bound before it serves, so that an address in use is found early."""

    def __init__(
        self,
        address: HostAndPort,
        blocking: Executor,
        *,
        access: HttpAccess,
        tls_context: Callable[[], ServerContext | None],
    ) -> None:
        """Bind the address. `tls_context()` returns the present context, None without TLS. Raises ListenError."""
        self._socket = _bound(address)
        self._blocking = blocking
        self._access = access
        self._tls_context = tls_context
        self._served_context: ServerContext | None = None
        self._listening: asyncio.Task[None] | None = None
        self._registry: Registry
        self._wall_ms: Callable[[], int]
        self._shows_partitions: Callable[[], bool] = lambda: True
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)
        self._runner: BoundedRunner | None = None

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    async def start(
        self,
        registry: Registry,
        health: Health,
        sliced_work: SlicedWork,
        *,
        shows_partitions: Callable[[], bool],
        wall_ms: Callable[[], int],
        add_routes: Callable[[web.Application], None] = lambda _: None,
    ) -> None:
        """Serve; metrics of single partitions only while `shows_partitions()`. `wall_ms()` dates JSON responses.

        `add_routes` adds further resources.
        """
        self._registry = registry
        self._shows_partitions = shows_partitions
        self._wall_ms = wall_ms

        async def live(request: web.Request) -> web.StreamResponse:
            return _health_response(health.live())

        async def ready(request: web.Request) -> web.StreamResponse:
            return _health_response(health.ready())

        async def safe(request: web.Request) -> web.StreamResponse:
            return _health_response(await health.safe(sliced_work.pause))

        application = web.Application(middlewares=[self._access.middleware, whole_body], client_max_size=BODY_SIZE_MAX)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/jolokia{path:(/.*)?}", self._jolokia)
        application.router.add_post("/jolokia{path:/?}", self._jolokia_requests)
        application.router.add_get("/health/live", live)
        application.router.add_get("/health/ready", ready)
        application.router.add_get("/health/safe", safe)
        add_routes(application)
        self._runner = BoundedRunner(application, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await self._runner.setup()
        self._listen()

    async def stop(self) -> None:
        """Give the address back. Harmless before the start."""
        if self._listening is not None:
            self._listening.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()

    def renew_tls(self) -> None:
        """Use the present TLS context for new connections. Harmless before the start."""
        if self._listening is not None and self._tls_context() is not self._served_context:
            before = self._listening
            self._listen()
            before.cancel()

    def _listen(self) -> None:
        """Serve new connections with the present TLS context.

        Each listener has a descriptor of its own for the one bound socket, so that no connection is refused when one
        listener replaces another.
        """
        assert self._runner is not None, "the endpoint is not started"
        context = self._served_context = self._tls_context()
        self._listening = self._runner.listen(self._socket.dup(), context)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        encoder, content_type = choose_encoder(request.headers.get("Accept", ""))
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        is_open_metrics = content_type.startswith(OPEN_METRICS)
        with contextlib.suppress(ConnectionError):
            await _send(
                request,
                response,
                pieces(self._registry, with_partitions=self._shows_partitions(), is_open_metrics=is_open_metrics),
            )
            # Counting open files may take a while. This part ends with the mark of OpenMetrics' end.
            loop = asyncio.get_running_loop()
            await written(request, response, await loop.run_in_executor(self._blocking, encoder, self._process))
            await response.write_eof()
        return response

    async def _jolokia(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path.removeprefix("/jolokia").strip("/")
        try:
            asked: JolokiaRequest | JolokiaError = request_of_path(path, request.query)
        except JolokiaError as error:
            asked = error
        return await self._send_json(request, self._respond(asked))

    async def _jolokia_requests(self, request: web.Request) -> web.StreamResponse:
        try:
            asked, is_array = requests_of_body(await request.read(), request.query)
        except JolokiaError as error:
            asked, is_array = [error], False
        return await self._send_json(request, self._respond_all(asked) if is_array else self._respond(asked[0]))

    def _respond_all(self, requests: Iterable[JolokiaRequest | JolokiaError]) -> Iterator[str]:
        before = "["
        for one in requests:
            yield before
            yield from self._respond(one)
            yield ""  # others are served
            before = ","
        yield "[]" if before == "[" else "]"

    def _respond(self, request: JolokiaRequest | JolokiaError) -> Iterator[str]:
        now_s = self._wall_ms() // 1000
        return respond(self._registry, request, now_s, __version__, with_partitions=self._shows_partitions())

    async def _send_json(self, request: web.Request, text: Iterator[str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-store"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            await _send(request, response, text)
            await response.write_eof()
        return response


async def _send(request: web.Request, response: web.StreamResponse, text: Iterable[str]) -> None:
    """Send a text in chunks of limited size; others are served between its pieces."""
    waiting: list[str] = []
    size = 0
    for piece in text:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK_SIZE or not piece or len(waiting) >= PIECES_PER_TURN:
            if size:
                await written(request, response, "".join(waiting).encode())
            waiting, size = [], 0
            await asyncio.sleep(0)
    if size:
        await written(request, response, "".join(waiting).encode())


def _health_response(verdict: Verdict) -> web.Response:
    return web.json_response(verdict.content, status=HTTPStatus.OK if verdict.is_positive else UNAVAILABLE)


def _bound(address: HostAndPort) -> socket.socket:
    host, port = address
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG_SIZE, dualstack_ipv6=True)
        family = socket.AF_INET
        if host:
            family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG_SIZE)
    except OSError as error:
        raise ListenError(
            f"{METRICS_HTTP_LISTENER.name} cannot listen on {host}:{port}: {error.strerror}; expected a free port of "
            "this machine"
        ) from error
