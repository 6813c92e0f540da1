"""Connections over real sockets with a scripted dispatcher: order, waiting, back-pressure, bad frames, limits."""

import asyncio
import errno
import itertools
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import cast

import pytest

from base.file_slice import FileSlice
from base.system_calls import SYSTEM_CALLS
from broker.loop.promise import Promise
from broker.network import file_response
from broker.network.channel import Channel, Hold
from broker.network.connection import TURN_REQUESTS_MAX, Buffers, Connection, Outcome, Response
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from broker.network.descriptors import DescriptorBudget
from broker.network.file_response import FileResponse
from broker.network.listener import Listener, ListenerSettings
from broker.network.network import ListenError
from broker.network.os_network import OsNetwork
from broker.network.turn_writes import TurnWrites
from broker.network.unsent_responses import UnsentResponses
from broker.network.writable_sockets import writable_sockets
from protocol.errors import Malformed
from protocol.frame import SCRATCH_SIZE
from storage.disk.files import OsFiles
from tests.support.manual_clock import ManualClock

REQUEST_SIZE_MAX = 1 << 20
CLOCK = ManualClock()


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Script:
    """Responds according to the first byte of a frame.

    e echo, p wait for a promise, k a completed promise, n no response, b malformed, x a bug, h huge response,
    f huge response from `file`, m echo and mute for 100 ms, M the same after a wait.
    """

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.promised: list[Promise[Buffers | None]] = []
        self.file: FileSlice | None = None

    def dispatch(self, frame: memoryview, channel: Channel) -> Response:
        payload = bytes(frame)
        self.served.append(payload)
        match payload[:1]:
            case b"m":
                return Outcome([framed(payload)], 100)
            case b"M":
                muting: Promise[Buffers | Outcome | None] = Promise()
                muting.set_result(Outcome([framed(payload)], 100))
                return muting
            case b"p" | b"k":
                promise: Promise[Buffers | None] = Promise()
                self.promised.append(promise)
                if payload[:1] == b"k":
                    promise.set_result([framed(payload)])
                return promise
            case b"f":
                assert self.file is not None
                head = struct.pack(">i", len(payload) + len(self.file) + 4) + payload
                return [head, cast(memoryview, self.file), b"tail"]
            case b"n":
                return None
            case b"b":
                raise Malformed("scripted")
            case b"x":
                raise ZeroDivisionError("scripted")
            case b"h":
                return [framed(bytes(8 << 20))]
            case _:
                return [framed(payload)]


def new_listener(name: str, limits: ConnectionLimits, **settings: int) -> Listener:
    return Listener(
        name,
        OsNetwork(),
        ListenerSettings(request_size_max=REQUEST_SIZE_MAX, **settings),
        ConnectionQuotas(limits, lambda host: None),
        UnsentResponses(lambda *_: None),
        DescriptorBudget(1 << 20),
        CLOCK,
        on_exceeded=lambda: None,
    )


@pytest.fixture(params=[False, True], ids=["written at once", "written after the turn"], autouse=True)
def waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether small responses wait for the end of the turn."""
    does_wait: bool = request.param
    monkeypatch.setattr(TurnWrites, "is_worthwhile", property(lambda _: does_wait, lambda *_: None))
    return does_wait


@asynccontextmanager
async def listening(
    script: Script, limits: ConnectionLimits | None = None, **settings: int
) -> AsyncIterator[tuple[Listener, int]]:
    listener = new_listener("TEST", limits or ConnectionLimits(), **settings)
    port = listener.bind("127.0.0.1", 0)
    listener.start(script)
    try:
        yield listener, port
    finally:
        listener.stop_accepting()
        listener.close_connections()
        await until(lambda: listener.connection_count == 0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)


async def test_pipelined_requests_get_responses_in_order_around_a_delayed_one() -> None:
    script = Script()
    async with listening(script) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"e1") + framed(b"p2") + framed(b"e3") + framed(b"n4") + framed(b"e5"))
        assert await read_frame(reader) == b"e1"
        await until(lambda: len(script.promised) == 1)
        writer.write(framed(b"e6"))
        await writer.drain()
        assert script.served == [b"e1", b"p2"], "requests behind one that waits are not worked on"
        script.promised[0].set_result([framed(b"done")])
        assert [await read_frame(reader) for _ in range(4)] == [b"done", b"e3", b"e5", b"e6"]
        writer.close()


@pytest.mark.parametrize("muting", [b"m1", b"M1"])
@pytest.mark.parametrize("pipelined", [True, False])
async def test_muted_connection_gets_its_response_at_once_and_is_served_later(muting: bytes, pipelined: bool) -> None:
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        other_reader, other = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(muting) + (framed(b"e2") if pipelined else b""))
        assert await read_frame(reader) == muting
        if not pipelined:
            writer.write(framed(b"e2"))
        other.write(framed(b"other"))
        assert await read_frame(other_reader) == b"other"
        assert script.served == [muting, b"other"]
        (connection,) = (it for it in listener.connections() if it.channel.holds)
        assert connection.channel.holds == Hold.THROTTLED
        CLOCK.advance(100)
        assert await read_frame(reader) == b"e2"
        writer.close()
        other.close()


async def test_muted_connection_can_close() -> None:
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"m"))
        await read_frame(reader)
        writer.transport.abort()
        listener.close_connections()
        await until(lambda: listener.connection_count == 0)
        CLOCK.advance(100)
        await until(lambda: listener.muted.count == 0)


async def test_a_waiting_connection_keeps_others_served() -> None:
    script = Script()
    async with listening(script) as (_, port):
        _, waiting = await asyncio.open_connection("127.0.0.1", port)
        waiting.write(framed(b"p"))
        await until(lambda: len(script.promised) == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"e"))
        assert await read_frame(reader) == b"e"
        waiting.close()
        await until(script.promised[0].cancelled)
        writer.close()


async def test_promised_response_is_sent_within_the_call_or_the_turn_that_completes_it(waits: bool) -> None:
    script = Script()
    async with listening(script) as (_, port):
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(framed(b"p1"))
            await until(lambda: len(script.promised) == 1)
            script.promised[0].set_result([framed(b"kept")])
            if waits:
                await asyncio.sleep(0)
            client.setblocking(False)
            assert client.recv(100) == framed(b"kept")


async def test_completed_response_is_sent_before_the_listener_closes_its_connections() -> None:
    script = Script()
    async with listening(script) as (listener, port):
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(framed(b"p1"))
            await until(lambda: len(script.promised) == 1)
            script.promised[0].set_result([framed(b"kept")])
            listener.close_connections()
            await until(lambda: listener.connection_count == 0)
            assert client.recv(100) == framed(b"kept")
            assert client.recv(100) == b""


@pytest.mark.parametrize("later", [[bytes(20_000)], [bytes(20_000), b"tail"], [b"small"]], ids=len)
async def test_responses_of_one_turn_are_sent_in_order(later: Buffers) -> None:
    async with listening(Script()) as (listener, port):
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            await until(lambda: listener.connection_count == 1)
            (connection,) = listener._connections
            await until(lambda: connection.is_connected)
            connection._respond([b"first"], listener.turn_writes)
            connection._respond(later, listener.turn_writes)
            expected = b"first" + b"".join(later)
            with client.makefile("rb") as received:
                assert await asyncio.to_thread(received.read, len(expected)) == expected


async def test_client_that_sends_nothing_more_gets_its_response() -> None:
    async with listening(Script()) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"e1"))
        writer.write_eof()
        assert await read_frame(reader) == b"e1"
        assert await reader.read() == b""
        writer.close()


async def test_connection_accepted_while_the_listener_closes_is_closed() -> None:
    for turns in range(6):
        async with listening(Script()) as (listener, port):
            with socket.create_connection(("127.0.0.1", port), 10) as client:
                for _ in range(turns):
                    await asyncio.sleep(0)
                was_taken = listener.connection_count
                listener.stop_accepting()
                listener.close_connections()
                await until(lambda: listener.connection_count == 0)
                if was_taken:
                    assert client.recv(1) == b""


async def test_promised_responses_are_sent_in_the_order_of_their_requests() -> None:
    script = Script()
    async with listening(script) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for rounds in range(1, 3):
            writer.write(b"".join(map(framed, (b"e1", b"k2", b"e3", b"k4", b"k5", b"p6", b"e7", b"n8", b"e9"))))
            assert [await read_frame(reader) for _ in range(5)] == [b"e1", b"k2", b"e3", b"k4", b"k5"]
            await until(lambda: len(script.promised) == 4 * rounds)  # noqa: B023 - called before the next round
            assert script.served[-1] == b"p6"
            script.promised[-1].set_result([framed(b"kept")])
            assert [await read_frame(reader) for _ in range(3)] == [b"kept", b"e7", b"e9"]
        writer.close()


async def test_failed_promise_closes_its_connection_and_a_lost_client_cancels_its_promise() -> None:
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        _, leaving = await asyncio.open_connection("127.0.0.1", port)
        leaving.write(framed(b"p1"))
        await until(lambda: len(script.promised) == 1)
        leaving.close()
        await until(script.promised[0].cancelled)
        writer.write(framed(b"p2"))
        await until(lambda: len(script.promised) == 2)
        script.promised[1].set_exception(Malformed("scripted"))
        assert await reader.read() == b""
        await until(lambda: listener.connection_count == 0)
        writer.close()


async def test_cancelled_response_closes_its_connection() -> None:
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"p"))
        await until(lambda: len(script.promised) > 0)
        script.promised[0].set_cancelled()
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        await until(lambda: listener.connection_count == 0)
        writer.close()


FILE_SIZE = 8 << 20


@pytest.fixture(params=[True, False])
def with_and_without_epoll(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.network.writable_sockets.SYSTEM_CALLS", SYSTEM_CALLS._replace(has_epoll=request.param))


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """What is in the file `content`."""
    content = Random(1).randbytes(FILE_SIZE)
    (tmp_path / "content").write_bytes(content)
    return content


def slice_of(path: Path, size: int = FILE_SIZE) -> FileSlice:
    files = OsFiles()
    return FileSlice(files, files.open_for_reading(str(path)), 0, size)


def descriptors_of(path: Path) -> int:
    """How many descriptors this process has of a file, or of one that had its name."""
    links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if os.path.lexists(entry)]
    return sum(link.removesuffix(" (deleted)") == str(path) for link in links)


@pytest.mark.usefixtures("with_and_without_epoll")
async def test_file_parts_arrive_in_order_at_slow_readers(tmp_path: Path, content: bytes) -> None:
    script = Script()
    script.file = slice_of(tmp_path / "content")
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(framed(b"e1") + framed(b"f2") + framed(b"e3") + framed(b"f4") + framed(b"p5"))
        await until(lambda: script.served == [b"e1", b"f2"])
        for _ in range(50):
            await asyncio.sleep(0)
        assert script.served == [b"e1", b"f2"], "who does not read is not served"
        (connection,) = listener.connections()
        assert connection.unsent_size == len(b"tail"), "the file takes no memory"
        assert await read_frame(reader) == b"e1"
        assert await read_frame(reader) == b"f2" + content + b"tail"
        assert await read_frame(reader) == b"e3"
        assert await read_frame(reader) == b"f4" + content + b"tail"
        await until(lambda: len(script.promised) == 1)
        assert connection.was_active_since_sweep()
        script.file = None
        script.promised[0].set_result([framed(b"5")])
        assert await read_frame(reader) == b"5"
        assert descriptors_of(tmp_path / "content") == 0
        writer.close()


async def test_file_parts_use_no_extra_descriptor(tmp_path: Path, content: bytes) -> None:
    script = Script()
    script.file = slice_of(tmp_path / "content")
    async with listening(script) as (listener, port):
        readers = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 16) for _ in range(3)]
        assert listener.writable_sockets  # one descriptor for all connections of the listener, on first use
        before = len(os.listdir("/proc/self/fd"))
        for _, writer in readers:
            writer.write(framed(b"f1"))
        await until(lambda: len(script.served) == len(readers))
        assert len(os.listdir("/proc/self/fd")) == before
        for reader, writer in readers:
            assert await read_frame(reader) == b"f1" + content + b"tail"
            writer.close()


@pytest.mark.usefixtures("with_and_without_epoll")
async def test_reused_descriptor_is_watched_again(tmp_path: Path, content: bytes) -> None:
    script = Script()
    script.file = slice_of(tmp_path / "content")
    async with listening(script) as (listener, port):
        descriptors = set()
        for number in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
            writer.write(framed(b"f1"))
            await until(lambda: listener.connection_count == 1)
            descriptors |= {connection._descriptor for connection in listener.connections()}
            if number % 2:
                assert await read_frame(reader) == b"f1" + content + b"tail"
            else:
                await reader.readexactly(FILE_SIZE // 2)
            writer.transport.abort()
            await until(lambda: listener.connection_count == 0)
        assert len(descriptors) < 4


@pytest.mark.usefixtures("with_and_without_epoll")
async def test_bug_in_a_file_response_closes_only_its_connection(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script()
    script.file = slice_of(tmp_path / "content")
    resume = Connection.resume_writing

    def failing(connection: Connection) -> None:
        if connection.channel.client_port == bad_port:
            raise ZeroDivisionError("scripted")
        resume(connection)

    monkeypatch.setattr(Connection, "resume_writing", failing)
    async with listening(script) as (listener, port):
        pairs = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 16) for _ in range(4)]
        bad_port = pairs[0][1].get_extra_info("sockname")[1]
        for _, writer in pairs:
            writer.write(framed(b"f1"))
        responses = await asyncio.gather(*(read_frame(reader) for reader, _ in pairs))
        assert set(responses) == {b"f1" + content + b"tail"}
        await until(lambda: listener.connection_count == 3)
        assert "scripted" in caplog.text
        for _, writer in pairs:
            writer.close()


@pytest.mark.usefixtures("with_and_without_epoll")
async def test_closed_listener_watches_no_descriptor() -> None:
    sockets = writable_sockets(asyncio.get_running_loop())
    receiving, sending = socket.socketpair()
    with receiving, sending:
        called: list[int] = []
        sockets.call_when_writable(sending.fileno(), lambda: called.append(1))
        sockets.close()
        sockets.close()
        with pytest.raises(OSError, match="closed"):
            sockets.call_when_writable(sending.fileno(), lambda: called.append(2))
        sockets.forget(sending.fileno())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not called


async def test_progress_of_a_slow_reader_of_a_file_is_counted(tmp_path: Path, content: bytes) -> None:
    script = Script()
    script.file = slice_of(tmp_path / "content")
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(framed(b"f1"))
        await until(lambda: script.served == [b"f1"])
        (connection,) = listener.connections()
        left = connection.size_left
        await reader.readexactly(FILE_SIZE // 2)
        await until(lambda: connection.size_left <= left - FILE_SIZE // 4)
        assert connection.unsent_size == len(b"tail")
        writer.close()


async def test_truncated_file_closes_the_connection_also_without_sendfile(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "_may_write_directly", lambda *_: False)
    script = Script()
    script.file = slice_of(tmp_path / "content")
    os.truncate(tmp_path / "content", FILE_SIZE // 2)
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"f1") + framed(b"e2"))
        assert await reader.read() == b""
        await until(lambda: listener.connection_count == 0)
        writer.close()


@pytest.mark.parametrize(
    ("request_", "error"),
    [(b"f", OSError(errno.ENOSPC, "scripted")), (b"p", OSError(errno.ENOSPC, "scripted")), (b"p", RuntimeError("bug"))],
)
async def test_failure_to_watch_a_socket_closes_only_its_connection(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch, error: Exception, request_: bytes
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(writable_sockets(asyncio.get_running_loop())), "call_when_writable", fail)
    script = Script()
    piece = slice_of(tmp_path / "content")
    script.file = piece if request_ == b"f" else None
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(framed(request_) + framed(b"e"))
        if request_ == b"p":
            await until(lambda: len(script.promised) == 1)
            script.promised[0].set_result([struct.pack(">i", FILE_SIZE), cast(memoryview, piece)])
        received = await reader.read()
        assert len(received) < FILE_SIZE
        assert not received.endswith(framed(b"e")), "nothing follows what is not whole"
        await until(lambda: listener.connection_count == 0)
        writer.close()


def test_fast_reader_gets_at_most_one_turn(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_response, "TURN_SIZE_MAX", 10_000)
    receiving, sending = socket.socketpair()
    with receiving, sending:
        sending.setblocking(False)
        response = FileResponse(sending.fileno(), [b"head", slice_of(tmp_path / "content")], -1)
        assert not response.send()
        assert len(receiving.recv(1 << 20)) == 10_000
        assert response.size_left == FILE_SIZE + len(b"head") - 10_000
        response.discard()


@pytest.mark.parametrize(("configured", "is_raised"), [(50_000, True), (1 << 20, False), (-1, False)])
def test_socket_buffers_more_of_a_file_than_of_memory(
    tmp_path: Path, content: bytes, configured: int, is_raised: bool
) -> None:
    receiving, sending = socket.socketpair()
    with receiving, sending:
        sending.setblocking(False)
        if configured != -1:
            sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, configured)
        before = sending.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        response = FileResponse(sending.fileno(), [b"head", slice_of(tmp_path / "content")], configured)
        assert not response.send()
        meanwhile = sending.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert (meanwhile > before) == is_raised
        response.discard()
        response.discard()
        assert sending.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before


async def test_delayed_response_may_be_sent_from_a_file(tmp_path: Path, content: bytes) -> None:
    script = Script()
    async with listening(script) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"p1") + framed(b"e2"))
        await until(lambda: len(script.promised) == 1)
        piece = cast(memoryview, slice_of(tmp_path / "content"))
        script.promised[0].set_result([struct.pack(">i", FILE_SIZE), piece])
        assert await read_frame(reader) == content
        assert await read_frame(reader) == b"e2"
        writer.close()


@pytest.mark.usefixtures("with_and_without_epoll")
@pytest.mark.parametrize("end", ["client leaves", "file is cut", "listener closes"])
async def test_unfinished_file_response_leaves_no_open_descriptor(tmp_path: Path, content: bytes, end: str) -> None:
    script = Script()
    path = tmp_path / "content"
    script.file = slice_of(path)
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(framed(b"f1") + framed(b"e2"))
        await until(lambda: script.served == [b"f1"])
        script.file = None
        assert descriptors_of(path) == 1
        match end:
            case "client leaves":
                writer.transport.abort()
            case "file is cut":
                os.truncate(path, FILE_SIZE // 2)
                received = await reader.read(-1)
                assert received[6:] == content[: len(received) - 6]
                assert len(received) < FILE_SIZE
            case "listener closes":
                listener.close_connections()
        await until(lambda: listener.connection_count == 0)
        assert descriptors_of(path) == 0
        assert script.served == [b"f1"]
        writer.close()


async def test_closing_connection_first_sends_its_file_parts(tmp_path: Path, content: bytes) -> None:
    script = Script()
    script.file = slice_of(tmp_path / "content")
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writer.write(framed(b"f1") + framed(b"e2"))
        await until(lambda: script.served == [b"f1"])
        (connection,) = listener.connections()
        connection.close()
        assert await read_frame(reader) == b"f1" + content + b"tail"
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    "hostile",
    [
        struct.pack(">i", -1),
        struct.pack(">i", REQUEST_SIZE_MAX + 1),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # a TLS hello
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        framed(b"b"),
    ],
    ids=["negative length", "oversized length", "TLS hello", "HTTP", "malformed request"],
)
async def test_malformed_bytes_close_only_their_connection(hostile: bytes) -> None:
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bad_reader, bad_writer = await asyncio.open_connection("127.0.0.1", port)
        bad_writer.write(framed(b"e-before") + hostile)
        assert await read_frame(bad_reader) == b"e-before", "requests before the bad frame get their responses"
        async with asyncio.timeout(10):
            assert await bad_reader.read() == b""
        writer.write(framed(b"e"))
        assert await read_frame(reader) == b"e"
        await until(lambda: listener.connection_count == 1)
        bad_writer.close()
        writer.close()


@pytest.mark.parametrize("occasion", ["arrival", "response", "release"])
async def test_bug_closes_only_its_connection(occasion: str, caplog: pytest.LogCaptureFixture) -> None:
    """The caller that releases a connection continues, also if it releases all connections."""
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if occasion == "arrival":
            writer.write(framed(b"e1") + framed(b"x2") + framed(b"e3"))
        else:
            writer.write(framed(b"e1") + framed(b"p") + framed(b"x2") + framed(b"e3"))
            await until(lambda: len(script.promised) == 1)
            (connection,) = listener.connections()
            if occasion == "release":
                connection.hold(Hold.REQUEST_MEMORY)
            script.promised[0].set_result(None)
            if occasion == "release":
                await asyncio.sleep(0)
                connection.release(Hold.REQUEST_MEMORY)
        assert await read_frame(reader) == b"e1"
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        await until(lambda: listener.connection_count == 0)
        assert script.served[-1] == b"x2"
        assert "ZeroDivisionError: scripted" in caplog.text
        writer.close()


async def test_disconnect_within_a_frame_releases_the_connection() -> None:
    script = Script()
    async with listening(script) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", 1000) + b"only this")
        await until(lambda: listener.connection_count == 1)
        writer.close()
        await until(lambda: listener.connection_count == 0)
        assert script.served == []


async def test_a_slow_reader_stops_being_served_until_it_reads() -> None:
    script = Script()
    async with listening(script) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(20):
            writer.write(framed(b"h%d" % number))
        await writer.drain()
        await until(lambda: len(script.served) >= 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(script.served) < 20, "responses to a client that does not read do not accumulate"
        for _ in range(20):
            assert len(await read_frame(reader)) == 8 << 20
        assert len(script.served) == 20
        writer.close()


async def test_connection_with_thousands_of_requests_does_not_starve_others() -> None:
    script = Script()
    count = 20 * TURN_REQUESTS_MAX
    async with listening(script) as (_, port):
        greedy_reader, greedy = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        greedy.write(b"".join(framed(b"e%06d" % number) for number in range(count)))
        await until(lambda: len(script.served) > 0)
        writer.write(framed(b"e other"))
        assert await read_frame(reader) == b"e other"
        assert script.served.index(b"e other") < count // 2
        assert [await read_frame(greedy_reader) for _ in range(count)] == [b"e%06d" % number for number in range(count)]
        greedy.close()
        writer.close()


async def requests_in_a_row(monkeypatch: pytest.MonkeyPatch, turn_requests_max: int) -> int:
    """How many requests of a greedy connection are served at the most between two of one that asks again and again."""
    monkeypatch.setattr("broker.network.connection.TURN_REQUESTS_MAX", turn_requests_max)
    script = Script()
    async with listening(script) as (_, port):
        greedy_reader, greedy = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        draining = asyncio.create_task(greedy_reader.read())
        greedy.write(framed(b"e") * 40_000)
        asked = 0
        while len(script.served) - asked < 40_000:
            writer.write(framed(b"other"))
            assert await read_frame(reader) == b"other"
            asked += 1
        greedy.close()
        writer.close()
        await draining
    return max(sum(1 for _ in group) for payload, group in itertools.groupby(script.served) if payload == b"e")


async def test_requests_served_in_a_row_are_limited_by_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await requests_in_a_row(monkeypatch, TURN_REQUESTS_MAX) <= 5 * TURN_REQUESTS_MAX
    # The twin without turns: whatever arrived together is served together.
    assert await requests_in_a_row(monkeypatch, 1 << 30) > 10 * TURN_REQUESTS_MAX


async def test_connection_is_not_read_ahead_of_its_served_requests() -> None:
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = b"".join(framed(b"e%06d" % number) for number in range(100_000))
        writer.write(sent)
        kept_size_max = 0
        for _ in range(100_000):
            assert (await read_frame(reader))[:1] == b"e"
            (connection,) = listener.connections()
            kept_size_max = max(kept_size_max, connection._reader.kept_size)
        assert kept_size_max <= SCRATCH_SIZE
        writer.close()


async def test_connections_of_one_address_are_limited() -> None:
    async with listening(Script(), ConnectionLimits(per_ip_max=1)) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        refused, refused_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(10):
            assert await refused.read() == b"", "closed without a response"
        writer.write(framed(b"e"))
        assert await read_frame(reader) == b"e"
        assert listener.connection_count == 1
        refused_writer.close()
        writer.close()


async def test_idle_connections_are_closed() -> None:
    async with listening(Script(), connection_idle_ms_max=20) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        assert listener.expired_count == 1


def test_address_in_use_is_named_in_the_error() -> None:
    first = new_listener("FIRST", ConnectionLimits())
    second = new_listener("SECOND", ConnectionLimits())
    port = first.bind("127.0.0.1", 0)
    try:
        with pytest.raises(ListenError, match=rf"SECOND cannot listen on 127\.0\.0\.1:{port}"):
            second.bind("127.0.0.1", port)
    finally:
        first.stop_accepting()


async def test_new_connection_waits_without_descriptors_and_others_continue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("broker.network.listener.ACCEPT_RETRY_MS", 20)
    async with listening(Script()) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"e"))
        assert await read_frame(reader) == b"e"
        (port_without,) = listener._ports
        with monkeypatch.context() as used_up:
            used_up.setattr(port_without, "_bound", NoDescriptors(port_without._bound))
            listener._accept(port_without)
            writer.write(framed(b"e"))
            assert await read_frame(reader) == b"e"
        assert "refused a connection in the backlog: Too many open files" in caplog.text
        assert listener.refused_count == 1
        later, later_writer = await asyncio.open_connection("127.0.0.1", port)
        later_writer.write(framed(b"e"))
        assert await read_frame(later) == b"e"
        later_writer.close()
        writer.close()


class NoDescriptors:
    """A listening socket of a process that has no descriptors left."""

    def __init__(self, bound: socket.socket) -> None:
        self._bound = bound

    def fileno(self) -> int:
        return self._bound.fileno()

    def accept(self) -> None:
        raise OSError(errno.EMFILE, "Too many open files")


async def test_opened_and_closed_connections_are_counted_once() -> None:
    async with listening(Script()) as (listener, port):
        for number in range(60):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            if number % 3 == 0:
                reset = struct.pack("ii", 1, 0)  # a close with a reset, perhaps before it was accepted
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"e"))
        assert await read_frame(reader) == b"e", "those before it were accepted before it"
        await until(lambda: listener.connection_count == 1)
        assert listener._quotas.count == 1
        writer.close()
