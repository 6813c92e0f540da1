"""A simulated ZooKeeper, and the `StateStore` of each process that is connected to it.

Owns sessions: requests and responses on the way, pings, expiry, connection loss. The nodes are a `MemoryTree`. Must not
know what the nodes mean.

What it promises is what ZooKeeper promises, and no more:
- The operations of one session take effect in the order of the calls, at any time between call and response.
- A watch may be delivered long after the change, but before any response of a read that shows this change: events and
  responses of one session share one ordered way.
- Operations wait for a lost connection. Requests without a response are sent again, in order; a write whose response
  was lost then takes effect a second time, or fails because of its own first execution.
- The server ends a session that it has not heard of for the session timeout, and deletes its ephemeral nodes. The
  client learns of it when it reaches the server again; a paused or separated client does not know.
- While the whole service is unavailable no session ends.
- The server of a host may lag: its sessions read a past state of the tree, which follows in order, and never one from
  before a write of theirs that has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from controller.coordination.memory_store import MemoryTree, stat_of
from controller.store.state_store import (
    Delete,
    Node,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SingleWrites,
    Stat,
    StateStore,
    StoreError,
    StoreUnavailable,
    Watch,
    WatchEvent,
    parent_path,
)
from controller.store.watches import Watches
from controller.zookeeper.settings import ZooKeeperSettings
from tests.sim.disk import EPOCH_MS
from tests.sim.network import SimulatedNetwork
from tests.sim.world import ProcessLoop

T = TypeVar("T")

HOST: Final = "zookeeper"
WATCH_DELAY_US_MAX: Final = 200_000
RECONNECT_US_MAX: Final = 500_000
FIRST_SESSION: Final = 0x1000_0000
NO_SESSION: Final = 0
"""Stands for the session of an operator."""


class SimulatedZooKeeper:
    """The service: nodes, sessions, and whether it is available at all."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.world = network.world
        self.tree = MemoryTree()
        self.is_available = True
        self.on_commit: list[Callable[[Sequence[Operation], int], None]] = []
        """Called after each transaction with its operations and session id."""
        self.on_write: Callable[[str, Sequence[Operation]], None] = lambda host, operations: None
        """Called with the host that sends a write, before it arrives."""
        self.on_session_end: Callable[[str], None] = lambda host: None
        self._on_next_write: dict[str, Callable[[], None]] = {}
        self._sessions: dict[int, _Session] = {}
        self._next_session = FIRST_SESSION
        self._lagging: dict[str, _LaggingServer] = {}
        network.on_mended(self._resume)

    def new_store(self, host: str, loop: ProcessLoop, settings: ZooKeeperSettings) -> StateStore:
        """Return the store of a process on `host`, not open yet."""
        return SimulatedStore(self, host, loop, settings)

    # Faults

    def become_unavailable(self) -> None:
        """Respond to no client until `become_available`."""
        self.is_available = False

    def become_available(self) -> None:
        if self.is_available:
            return
        self.is_available = True
        for session in self._sessions.values():
            session.heard_us = self.world.now_us  # a new leader of the ensemble gives each session its whole timeout
        self._resume()

    def restart(self, down_us: int, *, in_write: bool) -> None:
        """Lose all connections at once, with what is on the way, and respond to nobody for a while.

        Sessions outlive that. In an ensemble no write is lost that another server has, so `in_write` has no effect.
        """
        for session in self._sessions.values():
            session.store.disconnect()
        self.become_unavailable()
        self.world.after(down_us, self.become_available)

    def expire(self, host: str) -> None:
        """End the sessions of a host, as if the server had not heard of it for long."""
        for session in [session for session in self._sessions.values() if session.store.host == host]:
            self.end(session, "expired")

    def lose_connection(self, host: str) -> None:
        """Break the connections of a host. It connects again immediately, and repeats requests without a response."""
        for session in [session for session in self._sessions.values() if session.store.host == host]:
            session.store.disconnect()
            self.world.after(self.world.random.randrange(RECONNECT_US_MAX), session.hear)

    def begin_to_lag(self, host: str, lag_us_max: int) -> None:
        """Let the server that a host is connected to apply each change up to `lag_us_max` late."""
        if host not in self._lagging:
            self._next_session += 1
            server = self._lagging[host] = _LaggingServer(self, host, lag_us_max)
            self.tree.sessions[-self._next_session] = server  # type: ignore[assignment]

    def stop_lagging(self, host: str) -> None:
        server = self._lagging.pop(host, None)
        if server is not None:
            server.catch_up()
            sessions = {number: found for number, found in self.tree.sessions.items() if found is not server}
            self.tree.sessions = sessions | server.sessions

    def seen_by(self, session: _Session) -> MemoryTree | _LaggingServer:
        """Return what a session reads."""
        return self._lagging.get(session.store.host, self.tree)

    def on_next_write(self, host: str, callback: Callable[[], None]) -> None:
        """Call back when a process on a host sends a write, before it arrives; only once."""
        self._on_next_write[host] = callback

    def forget_next_writes(self) -> None:
        """Call back for no write that is still to be sent."""
        self._on_next_write.clear()

    def note_write(self, host: str, operations: Sequence[Operation]) -> None:
        self.on_write(host, operations)
        callback = self._on_next_write.pop(host, None)
        if callback is not None:
            callback()

    def delete_as_operator(self, path: str) -> None:
        """Delete a node by hand, if it exists."""
        if path in self.tree.entries:
            self.tree.apply([Delete(path)], NO_SESSION)
            self._committed([Delete(path)], NO_SESSION)

    # Sessions

    def begin(self, store: SimulatedStore, timeout_us: int) -> _Session:
        self.tree.zxid += 1
        session = _Session(self, self._next_session, store, timeout_us)
        self._next_session += 1
        self._sessions[session.session_id] = session
        server = self._lagging.get(store.host)
        if server is not None:
            server.catch_up()
        (self.tree if server is None else server).sessions[session.session_id] = session
        self.world.note("session begins", store.host, session.session_id)
        session.tick()
        return session

    def end(self, session: _Session, why: str) -> None:
        if session.is_over:
            return
        session.is_over = True
        del self._sessions[session.session_id]
        self.world.note("session ends", session.store.host, session.session_id, why)
        self.on_session_end(session.store.host)
        self.tree.now_ms = EPOCH_MS + self.world.now_us // 1000
        owned = [path for path, entry in self.tree.entries.items() if entry.owner == session.session_id]
        if session.store.host in self._lagging:
            self._lagging[session.store.host].sessions.pop(session.session_id, None)
        self.tree.end_session(session.session_id)
        if owned:
            self._committed([Delete(path) for path in owned], session.session_id)

    def is_reachable(self, host: str) -> bool:
        network = self.network
        return self.is_available and not network.is_cut(host, HOST) and not network.is_cut(HOST, host)

    def apply(self, operations: Sequence[Operation], session: _Session) -> list[Result]:
        self.tree.now_ms = EPOCH_MS + self.world.now_us // 1000
        try:
            results = self.tree.apply(operations, session.session_id)
        finally:
            if session.store.host in self._lagging:
                self._lagging[session.store.host].catch_up()  # it responds once it has applied the write
        self._committed(operations, session.session_id)
        return results

    def _committed(self, operations: Sequence[Operation], session_id: int) -> None:
        for callback in self.on_commit:
            callback(operations, session_id)

    def _resume(self) -> None:
        """Deliver what was kept back on links that work again."""
        for session in list(self._sessions.values()):
            session.store.resume()


class _LaggingServer:
    """A server of the ensemble that applies what others write late. All sessions of one host are connected to it."""

    def __init__(self, service: SimulatedZooKeeper, host: str, lag_us_max: int) -> None:
        self.host = host
        self.watches = self
        """So that the tree notifies this server instead of the sessions."""
        self.entries = dict(service.tree.entries)
        self._service = service
        self._lag_us_max = lag_us_max
        self._behind: deque[tuple[Sequence[WatchEvent], dict[str, Any]]] = deque()
        self._applied = 0
        sessions = service.tree.sessions
        self.sessions: dict[int, Any] = {
            number: session
            for number, session in sessions.items()
            if isinstance(session, _Session) and session.store.host == host
        }
        for number in self.sessions:
            del sessions[number]

    def children(self, path: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.entries if name != "/" and parent_path(name) == path)

    def fire(self, changes: Sequence[WatchEvent]) -> None:
        """Apply the changes of a transaction, and notify the sessions, some time later."""
        entries = self._service.tree.entries
        paths = [path for change in changes for path in (change.path, parent_path(change.path))]
        self._behind.append((changes, {path: entries.get(path) for path in paths}))
        number = self._applied + len(self._behind)
        world = self._service.world
        world.after(world.below(self._lag_us_max), self._apply_until, number)

    def catch_up(self) -> None:
        self._apply_until(self._applied + len(self._behind))

    def _apply_until(self, number: int) -> None:
        while self._applied < number:
            changes, entries = self._behind.popleft()
            self._applied += 1
            for path, entry in entries.items():
                if entry is None:
                    self.entries.pop(path, None)
                else:
                    self.entries[path] = entry
            for session in list(self.sessions.values()):
                if not session.is_over:
                    session.watches.fire(changes)


class _LateWatches(Watches):
    """The watches of one session: they fire at the server immediately, and reach the client later."""

    def __init__(self, session: _Session) -> None:
        super().__init__()
        self._session = session
        self._wrapped: dict[Watch, Watch] = {}

    def watch_data(self, path: str, watch: Watch) -> None:
        super().watch_data(path, self._late(watch))

    def watch_children(self, path: str, watch: Watch) -> None:
        super().watch_children(path, self._late(watch))

    def _late(self, watch: Watch) -> Watch:
        return self._wrapped.setdefault(watch, partial(self._session.fired, watch))


class _Session:
    """What the server knows of one client."""

    def __init__(self, server: SimulatedZooKeeper, session_id: int, store: SimulatedStore, timeout_us: int) -> None:
        self.server = server
        self.session_id = session_id
        self.store = store
        self.timeout_us = timeout_us
        self.heard_us = server.world.now_us
        self.is_over = False
        self.watches = _LateWatches(self)
        self._events: list[tuple[Watch, WatchEvent]] = []

    def fired(self, watch: Watch, event: WatchEvent) -> None:
        """Deliver a watch later, but before the next response."""
        self._events.append((watch, event))
        world = self.server.world
        # Most are quick: the square of a uniform number.
        world.after(round(world.random.random() ** 2 * WATCH_DELAY_US_MAX), self.send_events)

    def send_events(self) -> None:
        events, self._events = self._events, []
        for watch, event in events:
            self.store.receive_event(self, watch, event)

    def hear(self) -> bool:
        """Receive a ping of the client, if it lives and the link works."""
        server, store = self.server, self.store
        if not server.is_reachable(store.host) or not store.loop.is_live:
            return False
        if self.is_over:
            store.loop.call_soon(store.learn_of_expiry, self)
        else:
            self.heard_us = server.world.now_us
            store.connect_again(self)
        return True

    def tick(self) -> None:
        """Hear a ping, or not; end the session after its timeout."""
        server, store = self.server, self.store
        has_heard = self.hear()
        if self.is_over:
            if has_heard or not store.uses(self):
                return
        elif not has_heard:
            silent_us = server.world.now_us - self.heard_us
            if silent_us > self.timeout_us * 2 // 3:
                store.disconnect()
            if silent_us > self.timeout_us and server.is_available:
                server.end(self, "timeout")
        server.world.after(self.timeout_us // 4, self.tick)


class _Request:
    """One operation on its way: it is performed at the server, perhaps twice, and gets one response."""

    __slots__ = ("perform", "response")

    def __init__(self, perform: Callable[[_Session], Any], response: asyncio.Future[Any]) -> None:
        self.perform = perform
        self.response = response


class SimulatedStore(SingleWrites):
    """`StateStore`: one session at a time of one process."""

    def __init__(self, server: SimulatedZooKeeper, host: str, loop: ProcessLoop, settings: ZooKeeperSettings) -> None:
        self.server = server
        self.host = host
        self.loop = loop
        self._timeout_us = settings.session_timeout_ms * 1000
        self._connection_timeout_s = settings.connection_timeout_ms / 1000
        self._session: _Session | None = None
        self._is_closed = True
        self._knows_expiry = False
        self._unanswered: deque[_Request] = deque()
        self._connection = 0  # its number; messages of an earlier one are lost
        self._is_connected = False
        self._kept: deque[tuple[int | None, Callable[[], None]]] = deque()  # messages on a link that is cut
        self._last_us = {"request": 0, "response": 0}
        self._on_expired: list[Callable[[], None]] = []

    @property
    def session_id(self) -> int:
        return 0 if self._session is None else self._session.session_id

    async def open(self) -> None:
        deadline_s = self.loop.time() + self._connection_timeout_s
        while True:
            await asyncio.sleep(0.001)
            if self.server.is_reachable(self.host):
                break
            if self.loop.time() > deadline_s:
                raise StoreUnavailable(f"no connection to {HOST} within {self._connection_timeout_s} s")
            await asyncio.sleep(0.1)
        self._kept.clear()  # of an earlier session
        self._session = self.server.begin(self, self._timeout_us)
        self._connection += 1
        self._is_connected = True
        self._is_closed = self._knows_expiry = False

    async def close(self) -> None:
        session, self._session = self._session, None
        self._is_closed = True
        self._fail_unanswered(StoreUnavailable("the store is closed"))
        await asyncio.sleep(0.001)
        if session is not None and self.server.is_reachable(self.host):
            self.server.end(session, "closed")

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    # Operations

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        (node,) = await self.get_many([path], watch)
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        def perform(session: _Session) -> list[Node | None]:
            entries = self.server.seen_by(session).entries
            found = {path: entries[path] for path in paths if path in entries}
            if watch is not None:
                for path in found:
                    session.watches.watch_data(path, watch)
            return [Node(found[path].data, stat_of(found[path])) if path in found else None for path in paths]

        return await self._ask(perform)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def perform(session: _Session) -> Stat | None:
            if watch is not None:
                session.watches.watch_data(path, watch)
            entry = self.server.seen_by(session).entries.get(path)
            return None if entry is None else stat_of(entry)

        return await self._ask(perform)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def perform(session: _Session) -> list[str]:
            tree = self.server.seen_by(session)
            if path not in tree.entries:
                raise NoNode(path)
            if watch is not None:
                session.watches.watch_children(path, watch)
            return tree.children(path)

        return await self._ask(perform)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self.server.note_write(self.host, operations)
        return await self._ask(lambda session: self.server.apply(operations, session))

    async def _ask(self, perform: Callable[[_Session], T]) -> T:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if self._knows_expiry:
            raise SessionExpired("the session has expired")
        request = _Request(perform, self.loop.create_future())
        self._unanswered.append(request)
        if self._is_connected:
            self._send(request)
        response: T = await request.response
        return response

    # The way to the server and back

    def _send(self, request: _Request) -> None:
        session = self._session
        assert session is not None
        self._travel("request", self._connection, lambda: self._arrive(session, request))

    def _travel(self, direction: str, connection: int | None, step: Callable[[], None]) -> None:
        """Run `step` after the delay of the network, in order, unless that connection is lost before."""
        world = self.server.world
        source, target = (self.host, HOST) if direction == "request" else (HOST, self.host)
        due_us = max(self._last_us[direction] + 1, world.now_us + self.server.network.delay_us(source, target))
        self._last_us[direction] = due_us
        world.after(due_us - world.now_us, lambda: self._deliver(connection, step))

    def _deliver(self, connection: int | None, step: Callable[[], None]) -> None:
        if connection not in (None, self._connection):
            return
        if self._kept or not self.server.is_reachable(self.host):
            self._kept.append((connection, step))
        else:
            step()

    def resume(self) -> None:
        """Deliver what waits for a link, if it works again."""
        if self.server.is_reachable(self.host):
            kept, self._kept = self._kept, deque()
            for connection, step in kept:
                if connection in (None, self._connection):
                    step()

    def _arrive(self, session: _Session, request: _Request) -> None:
        """Perform a request at the server, and send the response."""
        connection = self._connection
        if session.is_over:
            self._travel("response", connection, lambda: self.loop.call_soon(self.learn_of_expiry, session))
            return
        session.heard_us = self.server.world.now_us
        response: Callable[[], None]
        try:
            result = request.perform(session)
            response = partial(_respond, request, result, None)
        except StoreError as error:
            response = partial(_respond, request, None, error)
        session.send_events()

        def receive() -> None:
            # The process may be paused: it sees the response later, as one that waits in its socket.
            if request in self._unanswered:
                self._unanswered.remove(request)
                self.loop.call_soon(response)

        self._travel("response", connection, receive)

    def receive_event(self, session: _Session, watch: Watch, event: WatchEvent) -> None:
        """Deliver a watch event. Events outlive a connection: the client names its watches to the server again."""

        def call() -> None:
            if self._session is session and not self._knows_expiry:
                watch(event)

        self._travel("response", None, lambda: self.loop.call_soon(call))

    def disconnect(self) -> None:
        """Lose the connection: what is on the way is lost, watch events excepted."""
        self._is_connected = False
        self._connection += 1

    def connect_again(self, session: _Session) -> None:
        """Repeat the requests without a response, if the connection was lost."""
        if self._is_connected or self._session is not session:
            return
        self._is_connected = True
        for request in self._unanswered:
            self._send(request)

    # The end of a session

    def uses(self, session: _Session) -> bool:
        return self._session is session and not self.loop.is_killed

    def learn_of_expiry(self, session: _Session) -> None:
        if self._session is not session or self._knows_expiry:
            return
        self._knows_expiry = True
        self._fail_unanswered(SessionExpired("the session has expired"))
        for callback in self._on_expired:
            callback()

    def _fail_unanswered(self, error: StoreUnavailable) -> None:
        unanswered, self._unanswered = self._unanswered, deque()
        for request in unanswered:
            _respond(request, None, error)


def _respond(request: _Request, result: Any, error: Exception | None) -> None:
    if request.response.done():
        return
    if error is not None:
        request.response.set_exception(error)
    else:
        request.response.set_result(result)
