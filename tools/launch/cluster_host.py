"""Hosts the coordination server of a cluster whose brokers have a process each, and runs the cluster's commands.

Owns the server, one door to it for each broker, and clients of the brokers. Must not know how processes are started or
end (`milena_broker.testing.process_cluster`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from broker.loop.clock import SystemClock
from controller import paths
from controller.coordination.connection import Connection
from controller.coordination.machine.messages import ConnectRequest, Request
from controller.coordination.server import CoordinationServer
from controller.coordination.settings import CoordinationSettings
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.headers import read_response_header, request_header
from protocol.schema import message_info
from tools.launch.host_commands import CALL_TIMEOUT_S, CommandError, Commands

HOST: Final = "127.0.0.1"
CLIENT_ID: Final = "test"
APPEARANCE_S: Final = 5.0
"""A broker may know a new topic only after a new controller was elected."""
_LENGTH: Final = struct.Struct(">I")
_CORRELATION_ID: Final = 1


class ClusterHost:
    """`order` has the data folder, and how many brokers the cluster has; their ids are 0, 1 and so on."""

    def __init__(self, order: Mapping[str, Any], on_fatal: asyncio.Event) -> None:
        settings = self._settings = CoordinationSettings(Path(order["folder"], "coordination.sqlite"))
        self._server = CoordinationServer(settings, SystemClock(), on_failed=lambda _: on_fatal.set())
        self._doors = [_Door(self._server, settings) for _ in range(order["cluster_size"])]
        self._clients: dict[int, NetworkClient] = {}
        self._commands = Commands(self._clients, APPEARANCE_S)

    async def start(self) -> list[int]:
        """Start the server and return the port for each broker."""
        await self._server.start()
        return [await door.listen() for door in self._doors]

    async def stop(self) -> None:
        for client in self._clients.values():
            client.close()
        await self._server.stop()

    async def run(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run one command and return its result. Raises CommandError and KafkaError."""
        match command:
            case "joined":
                self._clients[arguments["broker_id"]] = NetworkClient(arguments["port"])
                self._prefer_connected()
            case "left":
                self._leave(arguments["broker_id"], is_dead=arguments["is_dead"])
            case "know_each_other":
                connected = {number: client for number, client in self._clients.items() if self._doors[number].is_open}
                await Commands(connected).until_all_know(len(connected))
            case "isolate":
                for number, door in enumerate(self._doors):
                    door.is_open = number not in arguments["broker_ids"]
                self._prefer_connected()
            case _:
                return await self._commands.run(command, arguments)
        return None

    def _prefer_connected(self) -> None:
        """Let commands ask isolated brokers last: they do not know what has changed since."""
        for broker_id, door in enumerate(self._doors):
            if not door.is_open and broker_id in self._clients:
                self._clients[broker_id] = self._clients.pop(broker_id)

    def _leave(self, broker_id: int, *, is_dead: bool) -> None:
        """Use the broker for no commands. If its process is dead, end its session: its timeout need not pass."""
        client = self._clients.pop(broker_id, None)
        if client is not None:
            client.close()
        if is_dead:
            self._server.end_session_of(paths.broker_path(broker_id))


class _Door:
    """A port of the coordination server for one broker. A closed door keeps its broker away."""

    def __init__(self, server: CoordinationServer, settings: CoordinationSettings) -> None:
        self._server = server
        self._settings = settings
        self._is_open = True
        self._connections: set[Connection] = set()

    async def listen(self) -> int:
        """Return the port."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self, self._settings), HOST, 0)
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    @property
    def is_open(self) -> bool:
        return self._is_open

    @is_open.setter
    def is_open(self, is_open: bool) -> None:
        self._is_open = is_open
        for connection in () if is_open else list(self._connections):
            connection.close("the test has isolated its broker")

    def opened(self, connection: Connection) -> bool:
        if not self._is_open or not self._server.opened(connection):
            return False
        self._connections.add(connection)
        return True

    def connect(self, connection: Connection, request: ConnectRequest) -> None:
        self._server.connect(connection, request)

    def request(self, connection: Connection, xid: int, code: int, request: Request | None) -> None:
        self._server.request(connection, xid, code, request)

    def four_letter_word(self, word: str) -> str:
        return self._server.four_letter_word(word)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._server.closed(connection)


class NetworkClient:
    """A client of one broker. It connects when it is needed, and again after a failure."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._in_order = asyncio.Lock()
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: object, version: int | None = None) -> Any:
        """Return the response to `request` in `version` (default: the latest). Raises CommandError."""
        api = APIS[message_info(type(request)).api_key]
        version = api.versions[-1] if version is None else version
        frame = request_header(api.key, version, _CORRELATION_ID, CLIENT_ID) + b"".join(encode(request, version))
        try:
            async with self._in_order, asyncio.timeout(CALL_TIMEOUT_S):
                payload = await self._exchange(frame)
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise CommandError(f"the broker at port {self._port} does not respond: {error!r}") from None
        _, position = read_response_header(api.key, version, payload)
        return decode(api.response, version, payload, position)

    async def _exchange(self, frame: bytes) -> bytes:
        if self._link is None:
            self._link = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._link
        writer.write(_LENGTH.pack(len(frame)) + frame)
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return await reader.readexactly(size)

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(OSError):
                link[1].close()
