"""The coordination server in a thread of the test process, and a client that knows nothing but the protocol's bytes."""

from __future__ import annotations

import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from broker.loop.clock import SystemClock
from controller.coordination.server import CoordinationServer
from controller.coordination.settings import CoordinationSettings
from tests.support.loop_thread import LoopThread, loop_thread
from tests.support.supervisor import memory_folder

TIMEOUT_S = 10.0
EVENT_XID = -1


class RunningCoordination:
    """A server that can be stopped and started again on its file and port."""

    def __init__(self, thread: LoopThread, settings: CoordinationSettings) -> None:
        self._thread = thread
        self.settings = settings
        self.failures: list[BaseException] = []
        self.server = CoordinationServer(settings, SystemClock(), on_failed=self.failures.append)
        self.port = 0
        self.is_running = False

    def start(self) -> Self:
        settings = CoordinationSettings(
            **{name: getattr(self.settings, name) for name in self.settings.__slots__ if name != "port"},  # type: ignore[attr-defined]
            port=self.port,
        )
        self.server = CoordinationServer(settings, SystemClock(), on_failed=self.failures.append)
        self._thread.run(self.server.start())
        self.port = self.server.port
        self.is_running = True
        return self

    def stop(self) -> None:
        self._thread.run(self.server.stop())
        self.is_running = False

    def resume(self) -> None:
        """It is not a process, and is never halted."""

    kill = stop
    """As of a process; what was acknowledged is on the disk in either case."""

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return f"127.0.0.1:{self.port}"


@contextmanager
def coordination(settings: CoordinationSettings) -> Iterator[RunningCoordination]:
    with loop_thread() as thread:
        running = RunningCoordination(thread, settings).start()
        try:
            yield running
        finally:
            if running.is_running:
                running.stop()


@contextmanager
def coordination_in_memory() -> Iterator[RunningCoordination]:
    """Run a server whose file is in memory if possible: its transactions are synced."""
    with (
        tempfile.TemporaryDirectory(dir=memory_folder()) as folder,
        coordination(CoordinationSettings(Path(folder) / "coordination.sqlite")) as running,
    ):
        yield running


class Frame(NamedTuple):
    """A response, or an event with xid -1. `payload` follows the header."""

    xid: int
    zxid: int
    error: int
    payload: bytes


def string(value: str) -> bytes:
    return buffer(value.encode())


def buffer(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


class RawClient:
    """A connection with a session, which it begins, or continues with `session` and `password`."""

    def __init__(
        self,
        port: int,
        *,
        timeout_ms: int = 30_000,
        session: int = 0,
        password: bytes = bytes(16),
        last_zxid: int = 0,
        read_only: bytes = b"\0",
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._xid = 0
        request = struct.pack(">iqiq", 0, last_zxid, timeout_ms, session) + buffer(password) + read_only
        try:
            self.send_frame(request)
            response = self.read_frame()
        except (BrokenPipeError, ConnectionResetError):  # the server refuses a connection before it reads
            response = None
        if response is None:
            self.close()
            raise AssertionError("the server has closed the connection")
        self.timeout_ms, self.session, _ = struct.unpack_from(">iqi", response, 4)
        self.password = response[20:36]
        self.connected = response

    def send_frame(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def read_frame(self) -> bytes | None:
        """Return the next frame, None at the end of the connection."""
        try:
            head = self._file.read(4)
            return self._file.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None
        except ConnectionResetError:
            return None

    def read(self) -> Frame | None:
        frame = self.read_frame()
        return None if frame is None else Frame(*struct.unpack_from(">iqi", frame), frame[16:])

    def send(self, code: int, body: bytes = b"", xid: int | None = None) -> None:
        self._xid += 1
        self.send_frame(struct.pack(">ii", self._xid if xid is None else xid, code) + body)

    def ask(self, code: int, body: bytes = b"", xid: int | None = None) -> list[Frame]:
        """Return the events before the response, and the response unless the server closes the connection."""
        self.send(code, body, xid)
        frames = []
        while (frame := self.read()) is not None:
            frames.append(frame)
            if frame.xid != EVENT_XID:
                break
        return frames

    def close(self) -> None:
        self._file.close()
        self._socket.close()
