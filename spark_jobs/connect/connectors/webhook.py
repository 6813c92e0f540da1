"""A web server whose requests become records: services that report events by HTTP POST write to a topic.

A request gets 200 only after the broker has acknowledged all of its records, so a sender that repeats requests without
200 loses nothing. Delivery is at-least-once: a sender that has waited too long repeats what is stored already.

| status | cause |
|---|---|
| 200 | all records are stored |
| 400 | the body is not JSON, with `body.format=json` |
| 401 | the secret or the signature is missing or wrong |
| 404, 405, 501 | another path than `path`, GET, another method |
| 411, 413 | no Content-Length, or more than `body.max.bytes` |
| 503 | too many records or connections wait, the worker stops, or the broker has not acknowledged in time |

One connection has one request, and one thread. There is no TLS: for requests from outside put a proxy in front.

Owns the protocol and the waiting requests. Must not know what bodies mean.
"""

from __future__ import annotations

import collections
import hmac
import json
import logging
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

from spark_jobs.connect.base.api import SourceConnector, SourceTask
from spark_jobs.connect.base.data import BYTES, STRING, Schema
from spark_jobs.connect.base.definitions import (
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    between,
    invalid,
    not_empty,
    one_of,
)
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.connectors.sources import LISTEN_HOST, TOPIC

_LOG = logging.getLogger(__name__)
_WAIT_S = 0.5
_END_S = 5.0
_BATCH_RECORDS = 1000
_LENGTH_DIGITS = 10


def _check_path(name: str, value: Any) -> None:
    if not value.startswith("/"):
        raise invalid(name, value, "Expected a path that starts with /")


_SETTINGS: Final = Definition(
    [
        TOPIC,
        Setting("listen.port", Kind.INT, REQUIRED, Importance.HIGH, "The port of the server.", between(0, 65535)),
        LISTEN_HOST,
        Setting("path", Kind.STRING, "/", Importance.MEDIUM, "The path of the requests.", _check_path),
        Setting(
            "body.format",
            Kind.STRING,
            "json",
            Importance.MEDIUM,
            "json: a value, or an array of values that become one record each; text or bytes: one record.",
            one_of("json", "text", "bytes"),
        ),
        Setting("body.max.bytes", Kind.INT, 1 << 20, Importance.LOW, "The size of the largest body.", at_least(1)),
        Setting(
            "secret.header", Kind.STRING, "X-Webhook-Secret", Importance.MEDIUM, "The header with `secret`.", not_empty
        ),
        Setting(
            "secret", Kind.PASSWORD, None, Importance.HIGH, "What requests must have in `secret.header`.", not_empty
        ),
        Setting(
            "hmac.header",
            Kind.STRING,
            "X-Hub-Signature-256",
            Importance.MEDIUM,
            "The header with the signature of the body: hexadecimal, ALGORITHM= may be before it.",
            not_empty,
        ),
        Setting("hmac.secret", Kind.PASSWORD, None, Importance.HIGH, "The key of the signatures.", not_empty),
        Setting(
            "hmac.algorithm",
            Kind.STRING,
            "sha256",
            Importance.LOW,
            "The hash of the signatures.",
            one_of("sha1", "sha256", "sha512"),
        ),
        Setting(
            "queue.max.records",
            Kind.INT,
            1000,
            Importance.LOW,
            "How many records may wait for their acknowledgement; 503 beyond that.",
            at_least(1),
        ),
        Setting(
            "queue.max.bytes",
            Kind.INT,
            16 << 20,
            Importance.LOW,
            "How many bytes of bodies may wait; 503 beyond that.",
            at_least(1),
        ),
        Setting(
            "connections.max", Kind.INT, 64, Importance.LOW, "How many requests are served at a time.", at_least(1)
        ),
        Setting(
            "ack.timeout.ms",
            Kind.INT,
            30_000,
            Importance.LOW,
            "How long a request waits for the acknowledgement of its records.",
            at_least(1),
        ),
        Setting(
            "request.timeout.ms", Kind.INT, 10_000, Importance.LOW, "How long a read or write may take.", at_least(1)
        ),
    ]
)

Value = tuple[Schema | None, Any]


class _Request:
    """The records of one request, until they are acknowledged."""

    __slots__ = ("done", "is_stored", "number", "remaining", "size", "values")

    def __init__(self, number: int, values: list[Value], size: int) -> None:
        self.number = number
        self.values = values
        self.size = size
        self.remaining = len(values)
        self.is_stored = False
        self.done = threading.Event()


class _Waiting:
    """The requests that wait: first for `poll`, then for acknowledgements. Used by several threads."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._is_refusing = False
        self._new: collections.deque[_Request] = collections.deque()
        self._all: dict[int, _Request] = {}
        self._count = 0
        self._records = 0
        self._bytes = 0

    def add(self, values: list[Value], size: int) -> _Request | None:
        """Return the new request; None if there is no room, or no task."""
        with self._changed:
            has_room = self._records + len(values) <= self._records_max and self._bytes + size <= self._bytes_max
            if self._is_refusing or not (has_room or not self._all):  # alone it may be larger
                return None
            self._count += 1
            request = _Request(self._count, values, size)
            self._new.append(request)
            self._all[request.number] = request
            self._records += len(values)
            self._bytes += size
            self._changed.notify_all()
            return request

    def take(self) -> list[_Request]:
        """Return new requests, after a moment none."""
        taken: list[_Request] = []
        with self._changed:
            self._changed.wait_for(lambda: self._new or self._is_refusing, _WAIT_S)
            count = 0
            while self._new and count < _BATCH_RECORDS:
                taken.append(self._new.popleft())
                count += len(taken[-1].values)
        return taken

    def acknowledge(self, number: int) -> None:
        """One record of a request is stored."""
        with self._changed:
            request = self._all.get(number)
            if request is None:
                return  # it has waited too long
            request.remaining -= 1
            if not request.remaining:
                request.is_stored = True
                self._end(request)

    def give_up(self, request: _Request) -> None:
        """The sender waits no longer. A request that no `poll` has returned is dropped: it will be repeated."""
        with self._changed:
            if request.number in self._all:
                self._end(request)
            if request in self._new:
                self._new.remove(request)

    def refuse_new(self) -> None:
        """Release the requests that no `poll` has returned, without success, and all that come."""
        with self._changed:
            self._is_refusing = True
            while self._new:
                self._end(self._new.popleft())
            self._changed.notify_all()

    def release_all(self) -> None:
        """Release all requests, without success."""
        with self._changed:
            for request in list(self._all.values()):
                self._end(request)

    def wait_until_empty(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._all, timeout_s)

    def _end(self, request: _Request) -> None:
        del self._all[request.number]
        self._records -= len(request.values)
        self._bytes -= request.size
        request.done.set()
        self._changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    """Serves one request."""

    server: _Server
    server_version = "milena-connect"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.settings["request.timeout.ms"] / 1000)

    def do_POST(self) -> None:
        status = self._status()
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "POST")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # as the base class has it
        _LOG.debug("%s: %s", self.address_string(), format % arguments)

    def _status(self) -> HTTPStatus:
        settings = self.server.settings
        if self.path.partition("?")[0] != settings["path"]:
            return HTTPStatus.NOT_FOUND
        if not self._has_secret():
            return HTTPStatus.UNAUTHORIZED
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or self.headers.get("Transfer-Encoding"):
            return HTTPStatus.LENGTH_REQUIRED
        if len(length) > _LENGTH_DIGITS or int(length) > settings["body.max.bytes"]:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return HTTPStatus.BAD_REQUEST
        if not self._is_signed(body):
            return HTTPStatus.UNAUTHORIZED
        try:
            values = _values(settings["body.format"], body)
        except (ValueError, RecursionError):
            return HTTPStatus.BAD_REQUEST
        return self._stored(values, len(body)) if values else HTTPStatus.OK

    def _stored(self, values: list[Value], size: int) -> HTTPStatus:
        waiting = self.server.waiting
        if (request := waiting.add(values, size)) is None:
            return HTTPStatus.SERVICE_UNAVAILABLE
        if not request.done.wait(self.server.settings["ack.timeout.ms"] / 1000):
            waiting.give_up(request)
        return HTTPStatus.OK if request.is_stored else HTTPStatus.SERVICE_UNAVAILABLE

    def _has_secret(self) -> bool:
        secret = self.server.settings["secret"]
        given = self.headers.get(self.server.settings["secret.header"], "")
        return secret is None or hmac.compare_digest(given.encode(), secret.encode())

    def _is_signed(self, body: bytes) -> bool:
        settings = self.server.settings
        if settings["hmac.secret"] is None:
            return True
        expected = hmac.new(settings["hmac.secret"].encode(), body, settings["hmac.algorithm"]).hexdigest()
        given = self.headers.get(settings["hmac.header"], "").removeprefix(f"{settings['hmac.algorithm']}=")
        return hmac.compare_digest(given.strip().lower().encode(), expected.encode())


def _values(body_format: str, body: bytes) -> list[Value]:
    """Return schema and value of each record. Raises ValueError or RecursionError for a malformed body."""
    if body_format == "bytes":
        return [(BYTES, body)]
    if body_format == "text":
        return [(STRING, body.decode())]
    value = json.loads(body)
    return [(None, item) for item in (value if isinstance(value, list) else [value])]


class _Server(ThreadingHTTPServer):
    """Gives each connection a thread, up to a number of them."""

    daemon_threads = False  # so that closing waits for them
    request_queue_size = 128

    def __init__(self, settings: Mapping[str, Any], waiting: _Waiting) -> None:
        self.settings = settings
        self.waiting = waiting
        self._free = threading.BoundedSemaphore(settings["connections.max"])
        self._connections: set[socket.socket] = set()
        self._connections_change = threading.Lock()
        super().__init__((settings["listen.host"], settings["listen.port"]), _Handler)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.socket.getsockname()[:2]  # the base class would ask the DNS

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            request.setblocking(False)
            request.send(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
            self.shutdown_request(request)
            return
        with self._connections_change:
            self._connections.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._connections_change:
                self._connections.discard(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.debug("%s: the connection failed", client_address, exc_info=True)

    def end(self) -> None:
        """Return when no thread of the server runs. Waiting requests must be released before."""
        self.shutdown()
        with self._connections_change:
            for each in self._connections:
                with suppress(OSError):  # the sender may have closed it
                    each.shutdown(socket.SHUT_RD)  # ends a read
        self.server_close()


class WebhookSourceTask(SourceTask):
    version = "1.0"

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._ending = threading.Lock()
        self._polled_by: int | None = None

    def start(self, config: Mapping[str, str]) -> None:
        settings = _SETTINGS.parse(config)
        self._topic: str = settings["topic"]
        self._waiting = _Waiting(settings["queue.max.records"], settings["queue.max.bytes"])
        try:
            self._server = _Server(settings, self._waiting)
        except OSError as error:
            address = f"{settings['listen.host']}:{settings['listen.port']}"
            raise ConfigError(f"{address} of listen.host and listen.port: {error.strerror or error}") from error
        self.port = self._server.server_port
        self._source_partition = {"webhook": f"{settings['listen.host']}:{settings['listen.port']}{settings['path']}"}
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="webhook", daemon=True)
        self._thread.start()

    def poll(self) -> Sequence[SourceRecord]:
        self._polled_by = threading.get_ident()
        return [
            SourceRecord(self._source_partition, {"request": request.number}, self._topic, value, schema)
            for request in self._waiting.take()
            for schema, value in request.values
        ]

    def commit_record(self, record: SourceRecord, partition: int | None, offset: int | None) -> None:
        self._waiting.acknowledge(record.source_offset["request"])

    def stop(self) -> None:
        """Let acknowledgements of polled records arrive for a moment, if it is another thread that polls."""
        if self._server is None:
            return
        self._waiting.refuse_new()
        if threading.get_ident() != self._polled_by:
            self._waiting.wait_until_empty(_END_S)
        self._waiting.release_all()
        with self._ending:
            if self._thread.is_alive():
                self._server.end()
                self._thread.join()


class WebhookSourceConnector(SourceConnector):
    """Receives HTTP requests."""

    version = "1.0"
    definition: ClassVar[Definition] = _SETTINGS
    task = WebhookSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        self.definition.parse(config)
        super().start(config)
