"""A connection that the server has closed, and whose client does not read what was written before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from controller.coordination.connection import Connection
from controller.coordination.machine.messages import ConnectRequest, Request
from controller.coordination.settings import CoordinationSettings

DEADLINE_S = 20.0
SETTINGS = CoordinationSettings(Path("unused"), close_timeout_ms=1)


class UnreadTransport:
    """Keeps what is written: closed, it stays open until it is aborted."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False
        self.aborted = asyncio.Event()

    def get_extra_info(self, name: str) -> tuple[str, int]:
        assert name == "peername"
        return "127.0.0.1", 1

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.aborted.set()


class NoRequests:
    """Serves four-letter words alone."""

    def __init__(self) -> None:
        self.closed_count = 0

    def opened(self, connection: Connection) -> bool:
        return True

    def connect(self, connection: Connection, request: ConnectRequest) -> None:
        raise AssertionError("no session begins")

    def request(self, connection: Connection, xid: int, code: int, request: Request | None) -> None:
        raise AssertionError("there is no session")

    def four_letter_word(self, word: str) -> str:
        return f"response to {word}"

    def closed(self, connection: Connection) -> None:
        self.closed_count += 1


def _closed_after_a_word() -> tuple[Connection, UnreadTransport]:
    """Return a connection that has responded to a four-letter word, and was closed therefore."""
    transport, requests = UnreadTransport(), NoRequests()
    connection = Connection(requests, SETTINGS)
    connection.connection_made(cast(asyncio.Transport, transport))
    connection.data_received(b"ruok")
    assert transport.written == b"response to ruok"
    assert transport.is_closed
    assert requests.closed_count == 1, "it counts no longer"
    assert not transport.aborted.is_set()
    return connection, transport


async def test_closed_connection_whose_client_does_not_read_is_aborted() -> None:
    connection, transport = _closed_after_a_word()
    async with asyncio.timeout(DEADLINE_S):
        await transport.aborted.wait()
    connection.connection_lost(None)


async def test_connection_that_has_gone_is_not_aborted() -> None:
    connection, transport = _closed_after_a_word()
    connection.connection_lost(None)
    assert connection._abort_timer is not None
    assert connection._abort_timer.cancelled()
    assert not transport.aborted.is_set()
