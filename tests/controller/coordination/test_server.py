"""The coordination server with foreign clients: sessions over reconnects and restarts, hostile bytes, limits."""

from __future__ import annotations

import logging
import re
import socket
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from controller.coordination import tree_file
from controller.coordination.machine.coordinator import Changes
from controller.coordination.settings import CoordinationSettings
from controller.coordination.tree_file import TreeFile
from tests.support.coordination import EVENT_XID, RawClient, RunningCoordination, buffer, coordination, string
from tests.support.waiting import wait_until

CREATE, EXISTS, GET_DATA, SET_DATA, PING, CHECK, CREATE2, MULTI_READ, CLOSE = 1, 3, 4, 5, 11, 13, 15, 22, -11
AUTH, SET_WATCHES = 100, 101
PING_XID = -2
MARSHALLING_ERROR = -5
Connect = Callable[..., RawClient]
OPEN = struct.pack(">ii", 1, 31) + string("world") + string("anyone")
EPHEMERAL = 1
DEADLINE_S = 30.0
LIMITS = {
    "tick_ms": 20,
    "session_timeout_min_ms": 40,
    "connections_max": 12,
    "sessions_max": 20,
    "watches_max": 10,
    "watched_size_max": 10_000,
    "outstanding_max": 8,
    "outstanding_bytes_max": 100_000,
    "first_request_timeout_ms": 1000,
}

until = partial(wait_until, timeout_s=DEADLINE_S)


@pytest.fixture
def server(memory_path: Path) -> Iterator[RunningCoordination]:
    with coordination(CoordinationSettings(memory_path / "coordination.sqlite", **LIMITS)) as running:
        yield running


@pytest.fixture
def connect(server: RunningCoordination) -> Iterator[Connect]:
    """Return a function that opens a connection, with the arguments of `RawClient`."""
    with ExitStack() as opened:
        yield lambda **arguments: opened.enter_context(closing(RawClient(server.port, **arguments)))


def repeat(call: Callable[[], None]) -> None:
    """Call a function until it raises."""
    while True:
        call()


def create(client: RawClient, path: str, data: bytes = b"", flags: int = 0) -> int:
    """Return the error code."""
    return client.ask(CREATE, string(path) + buffer(data) + OPEN + struct.pack(">i", flags))[-1].error


def read(client: RawClient, path: str, *, watch: bool = False) -> tuple[int, bytes]:
    """Return the error code, and the data."""
    frame = client.ask(GET_DATA, string(path) + struct.pack("?", watch))[-1]
    return frame.error, frame.payload[4 : 4 + struct.unpack_from(">i", frame.payload)[0]] if not frame.error else b""


def is_served(server: RunningCoordination) -> bool:
    client = RawClient(server.port)
    served = client.ask(PING, xid=PING_XID)[-1].error == 0
    client.ask(CLOSE)
    client.close()
    return served


def ask_word(port: int, word: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(word)
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()


def test_acknowledged_writes_and_zxids_survive_a_restart(server: RunningCoordination, connect: Connect) -> None:
    client = connect()
    create(client, "/kept", b"x")
    assert create(client, "/kept") == -110
    before = client.ask(PING, xid=PING_XID)[-1].zxid
    server.stop()
    server.start()
    client = connect(session=client.session, password=client.password, last_zxid=before)
    assert read(client, "/kept") == (0, b"x")
    assert client.ask(PING, xid=PING_XID)[-1].zxid == before
    create(client, "/next")
    assert client.ask(PING, xid=PING_XID)[-1].zxid == before + 1
    assert connect().session > client.session


def test_ephemeral_nodes_outlive_connections_and_restarts_but_not_their_session(
    server: RunningCoordination, connect: Connect
) -> None:
    client = connect()
    create(client, "/eph", b"x", EPHEMERAL)
    client.close()
    server.stop()
    server.start()
    again = connect(session=client.session, password=client.password)
    assert again.session == client.session
    assert read(again, "/eph") == (0, b"x")
    again.close()
    short = connect(session=client.session, password=client.password, timeout_ms=40)
    assert short.timeout_ms == 40
    short.close()
    server.stop()
    server.start()
    other = connect()
    until(lambda: read(other, "/eph")[0] == -101)
    expired = connect(session=client.session, password=client.password)
    assert (expired.session, expired.timeout_ms) == (0, 0)
    assert expired.read() is None


def test_session_needs_its_password_and_has_one_connection(connect: Connect) -> None:
    client = connect()
    thief = connect(session=client.session, password=b"x" * 16)
    assert (thief.session, thief.read()) == (0, None)
    moved = connect(session=client.session, password=client.password)
    assert client.read() is None
    assert moved.ask(PING, xid=PING_XID)[-1].error == 0


def test_client_of_another_history_is_refused(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AssertionError, match="closed the connection"):
        connect(last_zxid=1 << 40)
    assert "seen zxid 0x10000000000, and the last one here is 0x0" in caplog.text


def test_four_letter_words(server: RunningCoordination, connect: Connect) -> None:
    client = connect()
    create(client, "/eph", b"abc", EPHEMERAL)
    client.ask(EXISTS, string("/eph") + b"\1")
    assert ask_word(server.port, b"ruok") == "imok"
    assert re.search(r"^Latency min/avg/max: \d+/\d+\.\d{4}/\d+$", ask_word(server.port, b"srvr"), re.MULTILINE)
    assert "Zxid: 0x2\nMode: standalone\nNode count: 5\n" in ask_word(server.port, b"srvr")
    assert "/127.0.0.1:" in ask_word(server.port, b"stat")
    values = dict(line.split("\t") for line in ask_word(server.port, b"mntr").splitlines())
    assert {"zk_min_latency", "zk_avg_latency", "zk_max_latency"} <= values.keys()
    assert values["zk_znode_count"] == "5"
    assert values["zk_ephemerals_count"] == values["zk_watch_count"] == values["zk_global_sessions"] == "1"
    assert ask_word(server.port, b"dump") == "dump is not executed because it is not in the whitelist.\n"


HOSTILE = [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a frame has 1195725856 bytes, expected at most 1024"),
    (struct.pack(">i", -1), "a frame has -1 bytes"),
    (struct.pack(">i", 1_000_000), "a frame has 1000000 bytes, expected at most 1024"),
    (struct.pack(">i", 0), "the frame ends at byte 0, expected 4"),
    (struct.pack(">i", 8) + bytes(8), "the frame ends at byte 8, expected 12"),
    (struct.pack(">i", 28) + bytes(24) + struct.pack(">i", 99), "a field of 99 bytes exceeds the frame by 99"),
    (struct.pack(">i", 28) + bytes(24) + struct.pack(">i", -7), "a field has -7 bytes"),
    (struct.pack(">i", 30) + bytes(30), "bytes follow the last field"),
]


@pytest.mark.parametrize(("sent", "reason"), HOSTILE)
def test_bytes_that_are_no_request_close_their_connection_alone(
    sent: bytes, reason: str, server: RunningCoordination, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    honest = connect()
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(sent)
        assert connection.recv(1) == b""
    assert reason in caplog.text
    assert honest.ask(PING, xid=PING_XID)[-1].error == 0


HOSTILE_IN_A_SESSION = [
    (b"", "the frame ends at byte 0, expected 8"),
    (struct.pack(">ii", 1, GET_DATA) + string("/a")[:5], "a field of 2 bytes exceeds the frame by 1"),
    (struct.pack(">ii", 1, GET_DATA) + buffer(None), "a string is null"),
    (struct.pack(">ii", 1, GET_DATA) + buffer(b"\xff\xff") + b"\0", "a string is not UTF-8"),
    (struct.pack(">ii", 1, 14) + struct.pack(">i?i", CLOSE, False, -1), "an operation of type -11, expected one of"),
    (struct.pack(">iiqi", -8, 101, 0, 1 << 30), "1073741824 elements exceed the frame"),
    (
        struct.pack(">ii", 1, CREATE) + string("/a") + buffer(b"") + struct.pack(">i", 99),
        "99 elements exceed the frame",
    ),
    (struct.pack(">ii", 1, 99), "it sent a request of type 99"),
    (
        struct.pack(">ii", 1, 14) + (struct.pack(">i?i", CHECK, False, -1) + string("/") + bytes(4)) * 2_001,
        "a multi has more than 2000 operations",
    ),
    (struct.pack(">iiqi", -8, 101, 0, 10_001) + string("/a") * 10_001, "a list has 10001 elements, expected at most"),
    (
        struct.pack(">iiq", -8, 101, 0) + (struct.pack(">i", 3_334) + string("/a") * 3_334) * 3,
        "the lists of a request have more than 10000 elements",
    ),
    (
        struct.pack(">ii", 1, 14)
        + (
            struct.pack(">i?i", CREATE, False, -1)
            + (string("/a") + buffer(b"") + struct.pack(">i", 910) + OPEN[4:] * 910 + bytes(4))
        )
        * 11,
        "the lists of a request have more than 10000 elements",
    ),
    (
        struct.pack(">ii", 1, CREATE) + string("/a") + buffer(b"") + struct.pack(">i", 1_001) + OPEN[4:] * 1_001,
        "a list has 1001 elements, expected at most 1000",
    ),
]


@pytest.mark.parametrize(("frame", "reason"), HOSTILE_IN_A_SESSION)
def test_a_frame_that_is_no_request_closes_the_connection_but_not_the_session(
    frame: bytes, reason: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    client.send_frame(frame)
    while client.read() is not None:
        pass
    assert reason in caplog.text
    again = connect(session=client.session, password=client.password)
    assert again.session == client.session


def test_frame_above_the_maximum_is_refused_by_its_length(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    client = connect()
    assert create(client, "/large", bytes(1_000_000)) == 0
    client.send_frame(bytes(0x100000))
    assert client.read() is None
    assert "a frame has 1048576 bytes, expected at most 1048575" in caplog.text


@pytest.mark.parametrize(
    ("code", "body", "error", "name"),
    [
        (19, b"", -6, "request createContainer"),
        (106, b"", -6, "request addWatch"),
        (102, b"", -115, "request sasl"),
        (AUTH, struct.pack(">i", 0) + string("sasl") + buffer(b""), -115, "a login of the scheme 'sasl'"),
        (AUTH, struct.pack(">i", 0) + string("digest") + buffer(bytes(1_001)), -115, "a login with 1001 bytes of cred"),
        (CREATE, string("/c") + buffer(b"") + OPEN + struct.pack(">i", 4), -6, "a node of the kind CONTAINER"),
        (CREATE2, string("/c") + buffer(b"") + OPEN + struct.pack(">i", 5), -6, "a node of the kind PERSISTENT_WITH"),
        (
            CREATE,
            string("/c") + buffer(b"") + struct.pack(">ii", 1, 31) + string("sasl") + string("kafka") + bytes(4),
            -114,
            "an access control list of the scheme 'sasl'",
        ),
    ],
)
def test_what_the_server_lacks_is_refused_by_name(
    code: int, body: bytes, error: int, name: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    assert client.ask(code, body)[-1].error == error
    until(lambda: f"asks for {name}" in caplog.text)


def test_lines_of_the_log_have_the_beginning_of_a_clients_text(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    scheme = "s" * 400_000
    entries = struct.pack(">ii", 1, 31) + string(scheme) + string("x")
    client.ask(CREATE, string("/c") + buffer(b"") + entries + bytes(4))
    client.ask(AUTH, struct.pack(">i", 0) + string(scheme) + buffer(b""))
    assert client.read() is None
    shown = repr("s" * 100)
    until(lambda: f"asks for an access control list of the scheme {shown}, which" in caplog.text)
    until(lambda: f"asks for a login of the scheme {shown}, which" in caplog.text)


def test_half_a_frame_holds_a_connection_only_until_its_session_would_begin(
    server: RunningCoordination, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(struct.pack(">i", 45) + b"half")
        assert connection.recv(1) == b""
    assert "it has not begun a session in time" in caplog.text


def test_connections_and_sessions_are_limited(
    server: RunningCoordination, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    honest = connect()
    create(honest, "/honest", b"x", EPHEMERAL)
    with pytest.raises(AssertionError, match="closed the connection"):
        repeat(lambda: connect().close())  # sessions stay when their connections are closed
    assert "there are 20 sessions, the maximum" in caplog.text
    with ExitStack() as opened:
        for _ in range(3 * LIMITS["connections_max"]):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port), DEADLINE_S))
        until(lambda: "there are 12 connections, the maximum: more are refused" in caplog.text)
        assert read(honest, "/honest") == (0, b"x")


def test_watches_are_limited(server: RunningCoordination, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    client = connect()
    for number in range(LIMITS["watches_max"]):
        assert client.ask(EXISTS, string(f"/{number}") + b"\1")[-1].error == -101
    client.ask(EXISTS, string("/more") + b"\1")
    assert client.read() is None
    assert "it has 10 watches on 20 characters of paths, the maximum" in caplog.text
    assert is_served(server)


def test_watches_on_long_paths_are_limited(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    client = connect()
    for _ in range(2):  # the same watch counts once
        client.ask(EXISTS, string("/" + "a" * 9_000) + b"\1")
    client.ask(EXISTS, string("/" + "b" * 9_000) + b"\1")
    client.ask(EXISTS, string("/c") + b"\1")
    assert client.read() is None
    assert "it has 2 watches on 18002 characters of paths, the maximum" in caplog.text


def test_client_that_reads_no_responses_is_not_read(server: RunningCoordination, connect: Connect) -> None:
    """Its requests fill the sockets, and not the memory of the server."""
    client = connect()
    create(client, "/data", bytes(50_000))
    flood = connect()
    flood._socket.settimeout(1)
    request = struct.pack(">ii", 1, GET_DATA) + string("/data") + b"\0"
    with pytest.raises(TimeoutError):
        repeat(lambda: flood.send_frame(request))
    connection = max(server.server._connections.values(), key=lambda each: each.outstanding)
    assert connection.outstanding <= LIMITS["outstanding_max"]
    assert client.ask(PING, xid=PING_XID)[-1].error == 0


def test_client_whose_events_wait_for_the_disk_is_not_read(
    server: RunningCoordination, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request asks for watches on nodes that are gone, so all of them fire."""
    client, flood = connect(), connect()
    may_write, original = threading.Event(), TreeFile.write

    def write_later(file: TreeFile, changes: Changes) -> None:
        may_write.wait(DEADLINE_S)
        original(file, changes)

    monkeypatch.setattr(tree_file.TreeFile, "write", write_later)
    client.send(CREATE, string("/a") + buffer(b"") + OPEN + bytes(4))
    paths = [string("/" + str(number) * 2_000) for number in range(10, 30)]
    body = struct.pack(">qi", 0, len(paths)) + b"".join(paths) + bytes(8)
    for _ in range(LIMITS["outstanding_max"]):
        flood.send(SET_WATCHES, body, xid=-8)
    for _ in range(10):
        assert ask_word(server.port, b"ruok") == "imok"
    connection = max(server.server._connections.values(), key=lambda each: each.outstanding)
    assert connection.outstanding == 2
    assert LIMITS["outstanding_bytes_max"] <= connection._outstanding_bytes <= 2 * LIMITS["outstanding_bytes_max"]
    may_write.set()
    for _ in range(LIMITS["outstanding_max"]):
        frames = [flood.read() for _ in range(len(paths) + 1)]
        assert [frame and frame.xid for frame in frames] == [EVENT_XID] * len(paths) + [-8]
    assert client.read() is not None
    assert [each._outstanding_bytes for each in server.server._connections.values()] == [0, 0]


def test_large_responses_to_several_reads_are_limited(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    client = connect()
    create(client, "/data", bytes(60_000))
    one = struct.pack(">i?i", GET_DATA, False, -1) + string("/data") + b"\0"
    end = struct.pack(">i?i", -1, True, -1)
    (response,) = client.ask(MULTI_READ, one + end)
    assert response.error == 0
    assert len(response.payload) > 60_000
    (response,) = client.ask(MULTI_READ, one * 2 + end)
    assert (response.error, response.payload) == (MARSHALLING_ERROR, b"")
    assert read(client, "/data") == (0, bytes(60_000)), "the connection stays"
    until(lambda: "asks for more than 100000 bytes in the response to one multiRead" in caplog.text)


def test_nothing_is_acknowledged_that_is_not_on_the_disk(
    server: RunningCoordination, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, reader = connect(), connect()
    create(client, "/kept", b"x")
    original = TreeFile.write

    def fail(file: TreeFile, changes: Changes) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(tree_file.TreeFile, "write", fail)
    client.send(SET_DATA, string("/kept") + buffer(b"y") + struct.pack(">i", -1))
    assert client.read() is None, "the server fails"
    assert reader.read() is None
    assert [str(error) for error in server.failures] == ["database or disk is full"]
    assert "coordination.sqlite cannot be written" in caplog.text
    monkeypatch.setattr(tree_file.TreeFile, "write", original)
    server.stop()
    server.start()
    again = connect(session=client.session, password=client.password)
    assert read(again, "/kept") == (0, b"x")
