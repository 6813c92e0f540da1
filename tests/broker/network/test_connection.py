"""Connections over real sockets with a scripted dispatcher: order, waiting, back-pressure, bad frames, limits."""

import asyncio
import errno
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from broker.network.connection import TURN_REQUESTS_MAX, Buffers
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from broker.network.listener import SCRATCH_SIZE, Listener, ListenError, ListenerSettings
from broker.network.unsent_answers import UnsentAnswers
from broker.request_context import Peer
from protocol.errors import Malformed

REQUEST_SIZE_MAX = 1 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Script:
    """Answers by the first byte of a frame: e echo, w wait, n no answer, b bad, x a bug, h huge answer."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.waiting: list[asyncio.Future[Buffers | None]] = []

    def dispatch(self, frame: memoryview, peer: Peer) -> Buffers | asyncio.Future[Buffers | None] | None:
        payload = bytes(frame)
        self.served.append(payload)
        match payload[:1]:
            case b"w":
                future: asyncio.Future[Buffers | None] = asyncio.get_running_loop().create_future()
                self.waiting.append(future)
                return future
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
        ListenerSettings(request_size_max=REQUEST_SIZE_MAX, **settings),
        ConnectionQuotas(limits),
        UnsentAnswers(lambda *_: None),
    )


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


async def test_pipelined_requests_are_answered_in_order_around_one_that_waits() -> None:
    script = Script()
    async with listening(script) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"e1") + framed(b"w2") + framed(b"e3") + framed(b"n4") + framed(b"e5"))
        assert await read_frame(reader) == b"e1"
        await until(lambda: len(script.waiting) == 1)
        writer.write(framed(b"e6"))
        await writer.drain()
        assert script.served == [b"e1", b"w2"], "requests behind one that waits are not worked on"
        script.waiting[0].set_result([framed(b"done")])
        assert [await read_frame(reader) for _ in range(4)] == [b"done", b"e3", b"e5", b"e6"]
        writer.close()


async def test_a_waiting_connection_keeps_others_served() -> None:
    script = Script()
    async with listening(script) as (_, port):
        _, waiting = await asyncio.open_connection("127.0.0.1", port)
        waiting.write(framed(b"w"))
        await until(lambda: len(script.waiting) == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"e"))
        assert await read_frame(reader) == b"e"
        waiting.close()
        await until(script.waiting[0].cancelled)
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
async def test_bad_bytes_close_their_own_connection_only(hostile: bytes) -> None:
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        bad_reader, bad_writer = await asyncio.open_connection("127.0.0.1", port)
        bad_writer.write(framed(b"e-before") + hostile)
        assert await read_frame(bad_reader) == b"e-before", "what was served before the bad frame is answered"
        async with asyncio.timeout(10):
            assert await bad_reader.read() == b""
        writer.write(framed(b"e"))
        assert await read_frame(reader) == b"e"
        await until(lambda: listener.connection_count == 1)
        bad_writer.close()
        writer.close()


@pytest.mark.parametrize("occasion", ["arrival", "answer", "release"])
async def test_a_bug_closes_its_own_connection_only(occasion: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever lets the connection go on, be it the end of a hold for all of them, goes on too."""
    script = Script()
    async with listening(script) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if occasion == "arrival":
            writer.write(framed(b"e1") + framed(b"x2") + framed(b"e3"))
        else:
            writer.write(framed(b"e1") + framed(b"w") + framed(b"x2") + framed(b"e3"))
            await until(lambda: len(script.waiting) == 1)
            (connection,) = listener.connections()
            if occasion == "release":
                connection.hold()
            script.waiting[0].set_result(None)
            if occasion == "release":
                await asyncio.sleep(0)
                connection.release()
        assert await read_frame(reader) == b"e1"
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        await until(lambda: listener.connection_count == 0)
        assert script.served[-1] == b"x2"
        assert "ZeroDivisionError: scripted" in caplog.text
        writer.close()


async def test_a_client_that_leaves_in_the_middle_of_a_frame_frees_its_connection() -> None:
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
        assert len(script.served) < 20, "answers to somebody who does not read are not piled up"
        for _ in range(20):
            assert len(await read_frame(reader)) == 8 << 20
        assert len(script.served) == 20
        writer.close()


async def test_one_that_sends_thousands_of_requests_leaves_turns_to_the_others() -> None:
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


async def test_turns_bound_what_one_connection_gets_served_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await requests_in_a_row(monkeypatch, TURN_REQUESTS_MAX) <= 5 * TURN_REQUESTS_MAX
    # The twin without turns: whatever arrived together is served together.
    assert await requests_in_a_row(monkeypatch, 1 << 30) > 10 * TURN_REQUESTS_MAX


async def test_whoever_sends_faster_than_served_is_not_read_ahead() -> None:
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
            assert await refused.read() == b"", "closed without an answer"
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


def test_an_address_in_use_names_itself() -> None:
    first = new_listener("FIRST", ConnectionLimits())
    second = new_listener("SECOND", ConnectionLimits())
    port = first.bind("127.0.0.1", 0)
    try:
        with pytest.raises(ListenError, match=rf"SECOND cannot listen on 127\.0\.0\.1:{port}"):
            second.bind("127.0.0.1", port)
    finally:
        first.stop_accepting()


async def test_without_descriptors_a_connection_waits_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("broker.network.listener.ACCEPT_RETRY_MS", 20)
    async with listening(Script()) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"e"))
        assert await read_frame(reader) == b"e"
        bound = listener._sockets[0]
        with monkeypatch.context() as used_up:
            used_up.setattr(listener, "_sockets", [NoDescriptors(bound)])
            listener._accept(listener._sockets[0])
            writer.write(framed(b"e"))
            assert await read_frame(reader) == b"e"
        assert "cannot accept connections now" in caplog.text
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


async def test_connections_that_come_and_go_are_counted_once_each() -> None:
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
