"""The HTTP server of tools that watch a cluster: GET requests, with responses from the tool's memory.

Owns the socket, its threads and their limits. Must not know paths.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple, Self
from urllib.parse import unquote

from config.addresses import HostAndPort, host_and_port_problem
from tools.base.command_line import UsageError

REQUEST_TIMEOUT_S: Final = 10
CLIENTS_MAX: Final = 50
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Response(NamedTuple):
    """What a path returns."""

    status: int
    text: str
    content_type: str


class MetricsServer:
    """Serves `respond(path)` in threads, from `with` on; `path` has the decoded parts between the slashes."""

    def __init__(self, address: str, respond: Callable[[Sequence[str]], Response]) -> None:
        """Bind `address`, which is host:port. Raises UsageError, OSError."""
        if (problem := host_and_port_problem(address)) is not None:
            raise UsageError(f"Cannot parse argument '{address}' of option listen: {problem}")
        host, port = HostAndPort.parse(address)
        self._server = _Server((host, port), respond)

    @property
    def address(self) -> str:
        """The address with its real port."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], respond: Callable[[Sequence[str]], Response]) -> None:
        self.respond = respond
        self.free = threading.Semaphore(CLIENTS_MAX)
        super().__init__(address, _Handler)

    def process_request(self, request: object, client_address: object) -> None:
        """Close what comes above the limit: each connection has a thread."""
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)  # type: ignore[arg-type]
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self.free.release()


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        path = [unquote(part) for part in self.path.partition("?")[0].split("/") if part]
        status, text, content_type = self.server.respond(path)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log no requests."""
