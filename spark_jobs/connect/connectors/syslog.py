"""A syslog server: messages over UDP and TCP become records.

`poll` itself reads the sockets, so nothing but the kernel's buffers holds messages: while the worker is busy, TCP
senders wait, and UDP messages beyond `udp.buffer.bytes` are lost. Delivery is at-most-once: syslog has no
acknowledgement, and messages that a worker has when it ends are lost.

A TCP stream has frames of RFC 6587, each by its first byte: a digit begins octet counting (`LENGTH MESSAGE`), another
byte a message that ends with a newline. A message beyond `message.max.bytes` is cut and marked `truncated`.

The key is the host of the message, or its sender's address: messages of one host keep their order.

Owns sockets and frames. Must not know the grammar of messages.
"""

from __future__ import annotations

import datetime as dt
import logging
import selectors
import socket
import threading
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from spark_jobs.connect.base.api import SourceConnector, SourceTask
from spark_jobs.connect.base.data import STRING
from spark_jobs.connect.base.definitions import (
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    between,
    invalid,
)
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.connectors.sources import LISTEN_HOST, TOPIC
from spark_jobs.connect.connectors.syslog_messages import MESSAGE_SCHEMA, parse_message

_LOG = logging.getLogger(__name__)
_WAIT_S = 0.5
_BATCH_RECORDS = 2000
_CHUNK_BYTES = 64 << 10
_LENGTH_DIGITS = 9
_ENDS = b"\r\n\0"

Frame = tuple[bytes, bool]
"""A message, and whether it was cut."""


def _zone(name: str) -> dt.tzinfo:
    return dt.UTC if name == "UTC" else zoneinfo.ZoneInfo(name)  # a system may have no time zones


def _check_zone(name: str, value: Any) -> None:
    try:
        _zone(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise invalid(name, value, "Expected a time zone, such as UTC or Europe/Athens") from None


_SETTINGS: Final = Definition(
    [
        TOPIC,
        Setting("udp.port", Kind.INT, None, Importance.HIGH, "The UDP port; 514 is usual.", between(0, 65535)),
        Setting("tcp.port", Kind.INT, None, Importance.HIGH, "The TCP port; 601 is usual.", between(0, 65535)),
        LISTEN_HOST,
        Setting(
            "message.max.bytes",
            Kind.INT,
            8192,
            Importance.LOW,
            "The length of a message; longer ones are cut.",
            between(480, 1 << 20),
        ),
        Setting("connections.max", Kind.INT, 256, Importance.LOW, "How many TCP senders are connected.", at_least(1)),
        Setting(
            "udp.buffer.bytes",
            Kind.INT,
            4 << 20,
            Importance.LOW,
            "The receive buffer of the kernel, which net.core.rmem_max limits.",
            at_least(1),
        ),
        Setting(
            "rfc3164.timezone",
            Kind.STRING,
            "UTC",
            Importance.MEDIUM,
            "The zone of times that name none.",
            _check_zone,
        ),
    ]
)


def _parse(config: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings. Raises ConfigError."""
    settings = _SETTINGS.parse(config)
    if not _has_port(config):
        raise ConfigError(_NO_PORT)
    return settings


_NO_PORT: Final = "udp.port and tcp.port are missing: expected at least one of them"


def _has_port(config: Mapping[str, str]) -> bool:
    return "udp.port" in config or "tcp.port" in config


class Framer:
    """Splits a TCP stream into messages, with bounded memory."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._content = bytearray()
        self._skip = 0
        """How many bytes of a long counted message are still to come."""
        self._skips_line = False
        """Whether the rest of a long line is still to come."""

    def add(self, content: bytes) -> Iterator[Frame]:
        """Yield the messages that are complete, or too long, with these bytes."""
        self._content += content
        while self._content:
            if self._skip:
                skipped = min(self._skip, len(self._content))
                del self._content[:skipped]
                self._skip -= skipped
            elif self._skips_line:
                end = self._content.find(b"\n")
                del self._content[: end + 1 if end >= 0 else None]
                self._skips_line = end < 0
            elif (frame := self._next()) is None:
                return
            elif frame[0]:
                yield frame

    def end(self) -> Iterator[Frame]:
        """Yield what is left when the sender has closed."""
        if self._content:
            is_counted, end = self._count()
            if message := bytes(self._content[end + 1 :]).rstrip(_ENDS):
                yield message, is_counted

    def _next(self) -> Frame | None:
        """Return the next message, None if it is not complete."""
        is_counted, end = self._count()
        if is_counted:
            return None if end < 0 else self._counted(int(self._content[:end]), end + 1)
        end = self._content.find(b"\n", 0, self._bytes_max + 1)
        if end >= 0:
            return self._taken(end, 1), False
        if len(self._content) <= self._bytes_max:
            return None
        self._skips_line = True
        return self._taken(self._bytes_max, 0), True

    def _count(self) -> tuple[bool, int]:
        """Return whether a count is first, and where it ends; -1 if its end is still to come."""
        digits = 0
        while digits < min(len(self._content), _LENGTH_DIGITS) and 0x30 <= self._content[digits] <= 0x39:
            digits += 1
        if not digits or self._content[0] == 0x30:
            return False, -1
        if digits == len(self._content):
            return True, -1
        return self._content[digits] == 0x20, digits

    def _counted(self, length: int, start: int) -> Frame | None:
        taken = min(length, self._bytes_max)
        if len(self._content) < start + taken:
            return None
        del self._content[:start]
        self._skip = length - taken
        return self._taken(taken, 0), length > taken

    def _taken(self, length: int, end: int) -> bytes:
        message = bytes(self._content[:length])
        del self._content[: length + end]
        return message.rstrip(_ENDS)


class _Connection:
    """A TCP sender."""

    def __init__(self, content: socket.socket, sender: str, bytes_max: int) -> None:
        self.content = content
        self.sender = sender
        self.framer = Framer(bytes_max)


class SyslogSourceTask(SourceTask):
    version = "1.0"

    def __init__(self) -> None:
        self._received = 0
        self._connections: dict[socket.socket, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._in_use = threading.Lock()  # `stop` closes no socket while `poll` reads it
        self._is_stopped = False
        self._udp: socket.socket | None = None
        self._tcp: socket.socket | None = None

    def start(self, config: Mapping[str, str]) -> None:
        settings = _parse(config)
        self._settings = settings
        self._topic: str = settings["topic"]
        self._bytes_max: int = settings["message.max.bytes"]
        self._zone = _zone(settings["rfc3164.timezone"])
        self._source_partition = {"syslog": settings["listen.host"]}
        self._udp = self._listen("udp.port", socket.SOCK_DGRAM)
        self._tcp = self._listen("tcp.port", socket.SOCK_STREAM)
        self.udp_port = self._udp.getsockname()[1] if self._udp else None
        self.tcp_port = self._tcp.getsockname()[1] if self._tcp else None

    def _listen(self, setting: str, kind: socket.SocketKind) -> socket.socket | None:
        host, port = self._settings["listen.host"], self._settings[setting]
        if port is None:
            return None
        listener: socket.socket | None = None
        try:
            family = socket.getaddrinfo(host, port, type=kind)[0][0]
            listener = socket.socket(family, kind)
            if kind is socket.SOCK_STREAM:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            else:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings["udp.buffer.bytes"])
            listener.bind((host, port))
            if kind is socket.SOCK_STREAM:
                listener.listen()
        except OSError as error:
            if listener is not None:
                listener.close()
            raise ConfigError(f"{host}:{port} of listen.host and {setting}: {error.strerror or error}") from error
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        return listener

    def poll(self) -> Sequence[SourceRecord]:
        records: list[SourceRecord] = []
        with self._in_use:
            if self._is_stopped:
                return []
            for key, _ in self._selector.select(_WAIT_S):
                assert isinstance(key.fileobj, socket.socket)
                records += self._read(key.fileobj)
        return records

    def _read(self, ready: socket.socket) -> Iterator[SourceRecord]:
        if ready is self._udp:
            yield from self._read_datagrams(ready)
        elif ready is self._tcp:
            self._accept(ready)
        elif ready in self._connections:
            yield from self._read_stream(self._connections[ready])

    def _read_datagrams(self, udp: socket.socket) -> Iterator[SourceRecord]:
        for _ in range(_BATCH_RECORDS):
            try:
                content, address = udp.recvfrom(self._bytes_max + 1)
            except BlockingIOError:
                return
            except OSError as error:  # of an earlier send; the socket is as before
                _LOG.debug("UDP: %s", error)
                return
            is_truncated = len(content) > self._bytes_max
            if message := content[: self._bytes_max].rstrip(_ENDS):
                yield self._record((message, is_truncated), address[0])

    def _accept(self, tcp: socket.socket) -> None:
        try:
            content, address = tcp.accept()
        except OSError as error:  # the sender has left, or there are too many files
            _LOG.warning("TCP: a connection was not accepted: %s", error)
            return
        if len(self._connections) >= self._settings["connections.max"]:
            _LOG.warning("%s is refused: there are connections.max=%d senders", address[0], len(self._connections))
            content.close()
            return
        content.setblocking(False)
        self._connections[content] = _Connection(content, address[0], self._bytes_max)
        self._selector.register(content, selectors.EVENT_READ)

    def _read_stream(self, connection: _Connection) -> Iterator[SourceRecord]:
        try:
            content = connection.content.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            _LOG.info("%s: %s", connection.sender, error)
            content = b""
        frames = connection.framer.add(content) if content else connection.framer.end()
        for frame in frames:
            yield self._record(frame, connection.sender)
        if not content:
            self._selector.unregister(connection.content)
            connection.content.close()
            del self._connections[connection.content]

    def _record(self, frame: Frame, sender: str) -> SourceRecord:
        message, is_truncated = frame
        now = dt.datetime.now(dt.UTC)
        value = parse_message(message, sender, zone=self._zone, now=now, is_truncated=is_truncated)
        self._received += 1
        return SourceRecord(
            self._source_partition,
            {"received": self._received},
            self._topic,
            value,
            MESSAGE_SCHEMA,
            value["host"] or sender,
            STRING,
        )

    def stop(self) -> None:
        self._is_stopped = True
        with suppress(OSError):  # it is full, or `stop` was called before
            self._wake.send(b"\0")
        with self._in_use:
            self._selector.close()
            for each in (self._wake, self._woken, self._udp, self._tcp, *self._connections):
                if each is not None:
                    each.close()
            self._connections.clear()


class SyslogSourceConnector(SourceConnector):
    """Receives syslog messages."""

    version = "1.0"
    definition: ClassVar[Definition] = _SETTINGS
    task = SyslogSourceTask

    def start(self, config: Mapping[str, str]) -> None:
        _parse(config)
        super().start(config)

    def validate(self, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        return {} if _has_port(config) else {"udp.port": [_NO_PORT]}
