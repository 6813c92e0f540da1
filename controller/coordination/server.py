"""The coordination server on the event loop: sockets, the file, and time around the machine.

Owns the order of disk and network: a response is sent when everything that it can know of is on the disk. Requests
that arrive while a transaction is being written share the next one, so one sync serves them all. Must not know what a
request does (`machine.coordinator`).

If the file cannot be written, the server fails: what its memory has more than the disk was told to nobody.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from base.clock import Clock
from controller.coordination.connection import Connection
from controller.coordination.four_letter_words import Latency, ServerState, response
from controller.coordination.machine import jute
from controller.coordination.machine.coordinator import (
    Changes,
    Close,
    Connected,
    Coordinator,
    Effect,
    Expired,
    Limits,
    Notification,
    Now,
    Refused,
    Reply,
    new_tree,
    size_of,
)
from controller.coordination.machine.messages import ConnectRequest, Request
from controller.coordination.machine.sessions import PASSWORD_BYTES, Sessions, Timeouts
from controller.coordination.settings import CoordinationSettings
from controller.coordination.tree_file import TreeFile

logger = logging.getLogger("org.apache.zookeeper.server.ZooKeeperServer")

_EVENT_BYTES = 32
"""Of an event besides its path."""


class CoordinationServer:
    """`on_failed(error)` is called once if the server cannot go on; it is stopped then, but for `stop`."""

    def __init__(
        self, settings: CoordinationSettings, clock: Clock, *, on_failed: Callable[[BaseException], None]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_failed = on_failed
        self._executor: ThreadPoolExecutor | None = None
        self._file: TreeFile | None = None
        self._coordinator: Coordinator | None = None
        self._listener: asyncio.Server | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._connections: dict[int, Connection] = {}
        self._numbers: dict[Connection, int] = {}
        self._last_number = 0
        self._held_effects = 0
        """How many of the machine's effects are counted by their connections."""
        self._is_commit_due = False
        self._writing: asyncio.Future[None] | None = None
        self._is_full = False
        self._latency = Latency()
        self._received = 0
        self._sent = 0

    @property
    def port(self) -> int:
        assert self._listener is not None, "the server was not started"
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Read the file and listen.

        Raises:
            DamagedFileError, StoreUnavailable, sqlite3.Error: the file cannot be used.
            OSError: the port cannot be bound.
        """
        loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="coordination-file")
        try:
            file = self._file = await loop.run_in_executor(self._executor, TreeFile, self._settings.file_path)
            nodes, stored = await loop.run_in_executor(self._executor, lambda: (file.nodes(), file.sessions()))
            settings = self._settings
            timeouts = Timeouts(settings.tick_ms, settings.session_timeout_min_ms, settings.session_timeout_max_ms)
            sessions = Sessions(stored, file.last_session_id, timeouts, self._clock.monotonic_ms())
            limits = Limits(
                settings.sessions_max, settings.watches_max, settings.watched_size_max, settings.outstanding_bytes_max
            )
            self._coordinator = Coordinator(new_tree(nodes), sessions, file.zxid, limits)
            self._listener = await loop.create_server(
                lambda: Connection(self, settings), settings.host, settings.port, backlog=settings.connections_max
            )
        except BaseException:
            await self.stop()
            raise
        self._schedule_tick()

    async def stop(self) -> None:
        """Close all connections and the file. Sessions stay, and can be continued after the next start."""
        self._disconnect_all()
        if self._writing is not None:
            with suppress(Exception):
                await asyncio.shield(self._writing)
        file, self._file = self._file, None
        executor, self._executor = self._executor, None
        if executor is not None:
            if file is not None:
                await asyncio.get_running_loop().run_in_executor(executor, file.close)
            executor.shutdown(wait=False)

    def _disconnect_all(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections.values()):
            connection.close("")

    # -- Requests --------------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        if len(self._connections) >= self._settings.connections_max:
            if not self._is_full:
                self._is_full = True
                logger.warning("there are %d connections, the maximum: more are refused", len(self._connections))
            return False
        self._last_number += 1
        self._connections[self._last_number] = connection
        self._numbers[connection] = self._last_number
        return True

    def closed(self, connection: Connection) -> None:
        number = self._numbers.pop(connection, None)
        if number is None:
            return
        del self._connections[number]
        self._is_full = False
        if self._coordinator is not None:
            self._coordinator.disconnected(number)

    def connect(self, connection: Connection, request: ConnectRequest) -> None:
        assert self._coordinator is not None
        self._received += 1
        password = secrets.token_bytes(PASSWORD_BYTES)
        self._coordinator.connect(self._numbers[connection], request, password, self._now())
        self._served()

    def request(self, connection: Connection, xid: int, code: int, request: Request | None) -> None:
        assert self._coordinator is not None
        self._received += 1
        self._coordinator.request(self._numbers[connection], xid, code, request, self._now())
        self._served()

    def _served(self) -> None:
        """Have connections count what the machine has for them since the last call, and commit soon."""
        assert self._coordinator is not None
        effects = self._coordinator.effects
        for effect in effects[self._held_effects :]:
            if isinstance(effect, Reply | Notification) and effect.connection in self._connections:
                self._connections[effect.connection].hold(_size(effect))
        self._held_effects = len(effects)
        self._commit_soon()

    def end_session_of(self, path: str) -> None:
        """End the session that owns a node, if there is one, as if its timeout had passed: its client is known to be
        dead.
        """
        if self._coordinator is not None:
            self._coordinator.end_session_of(path, self._now())
            self._served()

    def four_letter_word(self, word: str) -> str:
        return response(word, self._state)

    def _state(self) -> ServerState:
        assert self._coordinator is not None
        nodes = self._coordinator.tree.nodes
        return ServerState(
            connections=len(self._connections),
            clients=[f"/{it.peer}[1](queued={it.outstanding})" for it in self._connections.values()],
            latency=self._latency,
            received=self._received,
            sent=self._sent,
            outstanding=sum(connection.outstanding for connection in self._connections.values()),
            zxid=self._coordinator.zxid,
            nodes=len(nodes),
            ephemerals=sum(1 for node in nodes.values() if node.owner),
            watches=self._coordinator.watch_count,
            sessions=len(self._coordinator.sessions),
            data_bytes=sum(len(path) + len(node.data or b"") for path, node in nodes.items()),
        )

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.monotonic_ms())

    # -- time ------------------------------------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        self._tick = asyncio.get_running_loop().call_later(self._settings.tick_ms / 1000, self._expire)

    def _expire(self) -> None:
        assert self._coordinator is not None
        self._schedule_tick()
        self._coordinator.expire(self._now())
        if self._coordinator.effects:
            self._served()

    # -- the disk, then the network --------------------------------------------------------------------------------

    def _commit_soon(self) -> None:
        """Commit after the requests that have arrived in this turn of the event loop."""
        if not self._is_commit_due and self._writing is None:
            self._is_commit_due = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        self._is_commit_due = False
        coordinator, file, executor = self._coordinator, self._file, self._executor
        if coordinator is None or file is None or executor is None:
            return
        changes, effects = coordinator.take_changes(), coordinator.take_effects()
        self._held_effects = 0
        if changes is None:
            self._perform(effects)
            return
        self._writing = asyncio.ensure_future(self._write(file, executor, changes, effects))

    async def _write(
        self, file: TreeFile, executor: ThreadPoolExecutor, changes: Changes, effects: list[Effect]
    ) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(executor, file.write, changes)
        except Exception as error:
            logger.exception("the coordination server stops: %s cannot be written", self._settings.file_path)
            self._disconnect_all()
            self._coordinator = None
            self._on_failed(error)
            return
        finally:
            self._writing = None
        self._perform(effects)
        if self._coordinator is not None and self._coordinator.effects:
            self._commit_soon()

    def _perform(self, effects: list[Effect]) -> None:
        resumed: dict[Connection, None] = {}
        for effect in effects:
            if isinstance(effect, Expired):
                logger.warning("session %#x has expired: silent for %d ms", effect.session_id, effect.timeout_ms)
                continue
            connection = self._connections.get(effect.connection)
            if connection is None:
                continue
            resumed[connection] = None
            self._sent += 1
            match effect:
                case Reply(_, xid, zxid, error, code, values):
                    frame = jute.encode_response(xid, zxid, error, code, values)
                    self._latency.add(connection.respond(frame, _size(effect)))
                case Notification(_, event, path, zxid):
                    connection.send(jute.encode_event(event, path, zxid), _size(effect))
                case Connected(_, connected):
                    self._latency.add(connection.respond(jute.encode_connected(connected), 0))
                case Close(_, reason):
                    connection.close(reason)
                case Refused(_, text):
                    connection.log_refused(text)
        for connection in resumed:
            connection.resume()


def _size(effect: Reply | Notification) -> int:
    """Return about how many bytes a response or an event has because of the data that it carries."""
    return size_of(effect.values) if isinstance(effect, Reply) else size_of((effect.path,)) + _EVENT_BYTES
