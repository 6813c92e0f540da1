"""The coordination server in the simulation: the real machine and the real store, around a simulated file and sockets.

Owns what `controller.coordination.server` and kazoo do in a cluster: connections, pings, the order of disk and network,
and what a crash leaves. What is done with a request is the `Coordinator`'s, what a lost connection means to a broker is
the `ZooKeeperStore`'s. Must not know what the nodes mean.

Transactions are on the disk some time after they were applied, several at a time, and nobody is told of one before. A
crash loses those that are not on the disk; the one that is being written may be there or not. Observers of the tree
(`on_commit`, `tree`) see what is on the disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from kazoo.exceptions import EXCEPTIONS, ConnectionLoss, NoNodeError, SessionExpiredError
from kazoo.protocol.states import ZnodeStat

from controller.coordination.machine.access import OPEN
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
    Reply,
    new_tree,
)
from controller.coordination.machine.messages import (
    XID_PING,
    CheckRequest,
    Code,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    EmptyRequest,
    Error,
    Event,
    Flag,
    MultiRequest,
    ReadRequest,
    Request,
    Result,
    SetDataRequest,
)
from controller.coordination.machine.sessions import PASSWORD_BYTES, Sessions, StoredSession, Timeouts
from controller.coordination.machine.tree import Znode
from controller.store.state_store import Check, Create, Delete, Operation, SetData, StateStore, WatchKind, parent_path
from controller.zookeeper.session import SessionListener, ZooKeeperSession
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from tests.sim.disk import EPOCH_MS
from tests.sim.network import SimulatedNetwork
from tests.sim.world import ProcessLoop
from tests.sim.zookeeper import HOST, RECONNECT_US_MAX, SimulatedZooKeeper

TICK_MS: Final = 500
WRITE_US_MAX: Final = 4_000
"""How long a write of the file takes at most."""
RETRY_US_MAX: Final = 500_000
"""The longest pause of a client between two attempts to connect."""
OUTLIVES: Final = "a session outlives the restart of its server"
HALTED: Final = "no session whose client lives ends because its server was halted"

_LIMITS: Final = Limits(sessions_max=2000, watches_max=100_000, watched_size_max=16 << 20, response_bytes_max=4 << 20)
_TIMEOUTS: Final = Timeouts(TICK_MS, 1000, 60_000)
_KINDS: Final = {
    Event.CREATED: WatchKind.CREATED,
    Event.DELETED: WatchKind.DELETED,
    Event.CHANGED: WatchKind.CHANGED,
    Event.CHILDREN: WatchKind.CHILDREN,
}


class _Transaction(NamedTuple):
    """What observers learn of a transaction once it is on the disk."""

    operations: Sequence[Operation]
    session_id: int
    nodes: dict[str, Znode | None]
    departed: str = ""
    """The host whose session it ends."""


class _WrittenTree:
    """The nodes on the disk, after one transaction after the other."""

    def __init__(self) -> None:
        self.entries: dict[str, Znode] = {}

    def children(self, path: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.entries if name != "/" and parent_path(name) == path)

    def apply(self, nodes: dict[str, Znode | None]) -> None:
        for path, node in nodes.items():
            if node is None:
                self.entries.pop(path, None)
            else:
                self.entries[path] = node


class _File:
    """What survives a crash of the server."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self.sessions: dict[int, StoredSession] = {}
        self.zxid = self.last_session_id = 0

    def write(self, changes: Changes) -> None:
        for path, node in changes.nodes:
            if node is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = node
        for session_id, session in changes.sessions:
            if session is None:
                self.sessions.pop(session_id, None)
            else:
                self.sessions[session_id] = session
        self.zxid, self.last_session_id = changes.zxid, changes.last_session_id


class SimulatedCoordination(SimulatedZooKeeper):
    """The service, with the faults of `SimulatedZooKeeper`. One server cannot lag."""

    def __init__(self, network: SimulatedNetwork) -> None:
        super().__init__(network)
        self._written = _WrittenTree()
        self.tree = self._written  # type: ignore[assignment]
        self.note_anomaly: Callable[[str, str], None] = lambda rule, text: None
        self._file = _File()
        self._links: dict[int, _Link] = {}
        self._last_number = 0
        self._hosts: dict[int, str] = {}
        self._generation = 0
        self._coordinator: Coordinator | None = None
        self._uncommitted: list[_Transaction] = []
        self._writing: tuple[Changes, list[_Transaction]] | None = None
        self._is_commit_due = False
        self._dies_in_write_for_us: int | None = None
        """For how long the server is to be down that dies in its next write; None: it does not."""
        self._start_server()

    def new_store(self, host: str, loop: ProcessLoop, settings: ZooKeeperSettings) -> StateStore:
        def session(settings: ZooKeeperSettings, listener: SessionListener) -> ZooKeeperSession:
            return cast(ZooKeeperSession, _Client(self, host, loop, settings, listener))

        return ZooKeeperStore(settings, session)

    # Faults

    def become_available(self) -> None:
        """Continue a process that was halted; start one that has died."""
        self._start_server()
        self._dies_in_write_for_us = None
        if not self.is_available:
            self.is_available = True
            if self.world.random.random() < 0.5:
                self._expire()  # a timer that is due may run before what waits in the sockets is read
        self._resume()

    def restart(self, down_us: int, *, in_write: bool) -> None:
        """Let the server die, with `in_write` while it writes its file the next time, and start again some time later.

        All connections are lost at once.
        """
        if in_write:
            self._dies_in_write_for_us = down_us
        elif self._coordinator is not None:
            self._die(down_us)

    def _die(self, down_us: int) -> None:
        self.world.note("coordination server dies", self._file.zxid)
        self._generation += 1
        self._coordinator = None
        if self._writing is not None and self.world.random.random() < 0.5:
            self._store(*self._writing)  # the disk has it, and nobody knows
        for link in list(self._links.values()):
            link.close_by_server()
        self.world.after(down_us, self._start_server)

    def _start_server(self) -> None:
        if self._coordinator is not None:
            return
        file = self._file
        sessions = Sessions(file.sessions.values(), file.last_session_id, _TIMEOUTS, self._now().monotonic_ms)
        self._coordinator = Coordinator(new_tree(sorted(file.nodes.items())), sessions, file.zxid, _LIMITS)
        self._uncommitted = []
        self._writing = None
        self._is_commit_due = False
        self._dies_in_write_for_us = None
        self._written.apply(cast("dict[str, Znode | None]", self._coordinator.tree.nodes))
        self.world.after(TICK_MS * 1000, self._tick, self._generation)

    def expire(self, host: str) -> None:
        coordinator = self._coordinator
        if coordinator is not None:
            with_host = [number for number, name in self._hosts.items() if name == host]
            for session_id in with_host:
                if coordinator.sessions.get(session_id) is not None:
                    self._ending(lambda session_id=session_id: coordinator._expire(session_id, self._now()))  # type: ignore[misc]

    def lose_connection(self, host: str) -> None:
        for link in [link for link in self._links.values() if link.client.host == host]:
            link.break_off()

    def begin_to_lag(self, host: str, lag_us_max: int) -> None: ...

    def stop_lagging(self, host: str) -> None: ...

    def delete_as_operator(self, path: str) -> None:
        coordinator = self._coordinator
        if coordinator is not None and path in coordinator.tree.nodes:
            transaction = coordinator._begin(self._now(), lambda acl, permission: True)
            coordinator.tree.delete(path, -1, transaction)
            coordinator._commit(transaction)
            self._note([Delete(path)], 0)
            self._commit_soon()

    def _resume(self) -> None:
        for link in list(self._links.values()):
            link.resume()

    # Requests

    @property
    def is_up(self) -> bool:
        return self._coordinator is not None

    def open_link(self, client: _Client) -> _Link:
        self._last_number += 1
        link = self._links[self._last_number] = _Link(self, client, self._last_number)
        return link

    def connect(self, link: _Link, request: ConnectRequest) -> None:
        assert self._coordinator is not None
        password = self.world.random.getrandbits(8 * PASSWORD_BYTES).to_bytes(PASSWORD_BYTES)
        self._coordinator.connect(link.number, request, password, self._now())
        link.wanted_session = request.session_id
        self._commit_soon()

    def request(self, link: _Link, xid: int, code: Code, message: Request, operations: Sequence[Operation]) -> None:
        coordinator = self._coordinator
        assert coordinator is not None
        serve = partial(coordinator.request, link.number, xid, code, message, self._now())
        if code is Code.CLOSE_SESSION:
            self._ending(serve)
            return
        first = len(coordinator.effects)
        serve()
        if operations and any(
            isinstance(effect, Reply)
            and effect.code == Code.MULTI
            and all(not cast(Result, result).error for result in effect.values)
            for effect in coordinator.effects[first:]
        ):
            self._note(operations, link.client.session_id)
        self._commit_soon()

    def gone(self, link: _Link) -> None:
        """Forget a connection that its client has closed."""
        self._links.pop(link.number, None)
        if self._coordinator is not None:
            self._coordinator.disconnected(link.number)

    def _tick(self, generation: int) -> None:
        coordinator = self._coordinator
        if coordinator is None or generation != self._generation:
            return
        self.world.after(TICK_MS * 1000, self._tick, generation)
        if self.is_available:  # else the process is halted
            self._expire()

    def _expire(self) -> None:
        """End the sessions whose clients were silent for too long."""
        coordinator = self._coordinator
        if coordinator is None:
            return
        for session_id in self._ending(lambda: coordinator.expire(self._now())):
            for link in self._links.values():
                if link.client.session_id == session_id and link.holds_requests:
                    self.note_anomaly(HALTED, f"{session_id:#x} of {link.client.host} has ended")

    def _ending(self, end: Callable[[], None]) -> list[int]:
        """Call something that may end sessions; note and return those that it has ended."""
        coordinator = self._coordinator
        assert coordinator is not None
        owned = {number: coordinator.tree.owned_by(number) for number in self._hosts}
        end()
        ended = [session_id for session_id in owned if coordinator.sessions.get(session_id) is None]
        for session_id in ended:
            host = self._hosts.pop(session_id)
            self.world.note("session ends", host, session_id)
            self._note([Delete(path) for path in owned[session_id]], session_id, host)
        self._commit_soon()
        return ended

    def _note(self, operations: Sequence[Operation], session_id: int, departed: str = "") -> None:
        assert self._coordinator is not None
        nodes = self._coordinator.tree.nodes
        paths = [path for operation in operations for path in (operation.path, parent_path(operation.path))]
        self._uncommitted.append(_Transaction(operations, session_id, {it: nodes.get(it) for it in paths}, departed))

    def _now(self) -> Now:
        return Now(EPOCH_MS + self.world.now_us // 1000, self.world.now_us // 1000)

    # The disk, then the network

    def _commit_soon(self) -> None:
        if not self._is_commit_due and self._writing is None:
            self._is_commit_due = True
            self.world.after(0, self._commit, self._generation)

    def _commit(self, generation: int) -> None:
        coordinator = self._coordinator
        if coordinator is None or generation != self._generation:
            return
        self._is_commit_due = False
        changes, effects = coordinator.take_changes(), coordinator.take_effects()
        if changes is None:
            self._perform(effects)
            return
        noted, self._uncommitted = self._uncommitted, []
        self._writing = changes, noted
        if self._dies_in_write_for_us is not None:
            self._die(self._dies_in_write_for_us)
            return
        self.world.after(self.world.below(WRITE_US_MAX), self._has_written, generation, effects)

    def _has_written(self, generation: int, effects: list[Effect]) -> None:
        if generation != self._generation:
            return
        assert self._writing is not None
        self._store(*self._writing)
        self._writing = None
        self._perform(effects)
        if self._coordinator is not None and self._coordinator.effects:
            self._commit_soon()

    def _store(self, changes: Changes, noted: Sequence[_Transaction]) -> None:
        self._file.write(changes)
        for transaction in noted:
            self._written.apply(transaction.nodes)
            if transaction.departed:
                self.on_session_end(transaction.departed)
            if transaction.operations:
                self._committed(transaction.operations, transaction.session_id)

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Expired) or effect.connection not in self._links:
                continue
            link = self._links[effect.connection]
            if isinstance(effect, Close):
                link.close_by_server()
                continue
            if isinstance(effect, Connected):
                self._note_connected(link, effect.response.session_id)
            link.to_client(effect)

    def _note_connected(self, link: _Link, session_id: int) -> None:
        if session_id and session_id not in self._hosts:
            self.world.note("session begins", link.client.host, session_id)
            self._hosts[session_id] = link.client.host
        if not session_id and link.wanted_session in self._file.sessions:
            self.note_anomaly(OUTLIVES, f"{link.wanted_session:#x} of {link.client.host} was refused")


class _Link:
    """A connection of a client with the server. Each direction is in order; messages wait while the link is cut."""

    def __init__(self, server: SimulatedCoordination, client: _Client, number: int) -> None:
        self.client = client
        self.number = number
        self.wanted_session = 0
        self._server = server
        self._is_closed_by_server = False
        self._is_closed_by_client = False
        self._last_us = [0, 0]
        self._kept: deque[tuple[bool, Callable[[], None]]] = deque()

    def to_server(self, step: Callable[[], None]) -> None:
        self._travel(False, step)

    def to_client(self, effect: Effect) -> None:
        self._travel(True, lambda: self.client.receive(self, effect))

    @property
    def holds_requests(self) -> bool:
        """Whether something waits for the server in its socket, which is not cut."""
        return self._server.is_reachable(self.client.host) and not all(is_to_client for is_to_client, _ in self._kept)

    def close_by_server(self) -> None:
        """Close it at the server; the client learns of it after what was sent before."""
        self._is_closed_by_server = True
        self._server._links.pop(self.number, None)
        self._travel(True, lambda: self.client.lose(self))

    def close_by_client(self) -> None:
        self._is_closed_by_client = True
        self._travel(False, lambda: self._server.gone(self))

    def break_off(self) -> None:
        """Lose what is on the way in both directions."""
        self._is_closed_by_server = self._is_closed_by_client = True
        self._server.gone(self)
        self.client.lose(self)

    def resume(self) -> None:
        if self._server.is_reachable(self.client.host):
            kept, self._kept = self._kept, deque()
            for is_to_client, step in kept:
                self._arrive(is_to_client, step)

    def _travel(self, is_to_client: bool, step: Callable[[], None]) -> None:
        world, network = self._server.world, self._server.network
        ends = (HOST, self.client.host) if is_to_client else (self.client.host, HOST)
        due_us = max(self._last_us[is_to_client] + 1, world.now_us + network.delay_us(*ends))
        self._last_us[is_to_client] = due_us
        world.after(due_us - world.now_us, self._deliver, is_to_client, step)

    def _deliver(self, is_to_client: bool, step: Callable[[], None]) -> None:
        if self._kept or not self._server.is_reachable(self.client.host):
            self._kept.append((is_to_client, step))
        else:
            self._arrive(is_to_client, step)

    def _arrive(self, is_to_client: bool, step: Callable[[], None]) -> None:
        if not (self._is_closed_by_client if is_to_client else self._is_closed_by_server):
            step()


class _Asked(NamedTuple):
    """A request without a response."""

    xid: int
    done: Callable[[Any], None]
    decode: Callable[[Sequence[Any]], Any]


class _Client:
    """One session as its client keeps it: what `ZooKeeperSession` does with kazoo."""

    last_problem = ""
    is_login_refused = False

    def __init__(
        self,
        server: SimulatedCoordination,
        host: str,
        loop: ProcessLoop,
        settings: ZooKeeperSettings,
        listener: SessionListener,
    ) -> None:
        self.host = host
        self.session_id = 0
        self.last_zxid = 0
        self._server = server
        self._loop = loop
        self._listener = listener
        self._timeout_us = settings.session_timeout_ms * 1000
        self._password = bytes(PASSWORD_BYTES)
        self._link: _Link | None = None
        self._is_connected = False
        self._accepts = False
        self._has_ended = False
        self._heard_us = 0
        self._last_xid = 0
        self._asked: deque[_Asked] = deque()
        self._closed: asyncio.Future[None] | None = None

    def start(self) -> None:
        self._connect()

    def resume(self) -> None:
        self._accepts = True

    async def close(self, timeout_seconds: float) -> None:
        self._has_ended = True
        if self._link is not None and self._is_connected:
            self._closed = self._loop.create_future()
            self._to_server(self._last_xid + 1, Code.CLOSE_SESSION, EmptyRequest())
            await asyncio.wait([self._closed], timeout=timeout_seconds)
        elif self._link is not None:
            self._link.close_by_client()

    # Requests

    def get(self, path: str, watched: bool, done: Callable[[Any], None]) -> bool:
        return self._ask(Code.GET_DATA, ReadRequest(path, watched), done, _node)

    def get_all(self, paths: Sequence[str], done: Callable[[Any], None]) -> bool:
        reads = MultiRequest([(Code.GET_DATA, ReadRequest(path, False)) for path in paths])
        return self._ask(Code.MULTI_READ, reads, done, lambda results: [_read(result) for result in results])

    def exists(self, path: str, watched: bool, done: Callable[[Any], None]) -> bool:
        def found(result: Any) -> None:
            done(None if isinstance(result, NoNodeError) else result)

        return self._ask(Code.EXISTS, ReadRequest(path, watched), found, lambda values: ZnodeStat(*values[0]))

    def children(self, path: str, watched: bool, done: Callable[[Any], None]) -> bool:
        return self._ask(Code.GET_CHILDREN2, ReadRequest(path, watched), done, _node)

    def multi(self, operations: Sequence[Operation], done: Callable[[Any], None]) -> bool:
        if self._accepts and not self._has_ended:
            self._server.note_write(self.host, operations)
        request = MultiRequest([_of_protocol(operation) for operation in operations])
        return self._ask(
            Code.MULTI, request, done, lambda results: [_result_of(result) for result in results], operations
        )

    def _ask(
        self,
        code: Code,
        message: Request,
        done: Callable[[Any], None],
        decode: Callable[[Sequence[Any]], Any],
        operations: Sequence[Operation] = (),
    ) -> bool:
        if not self._accepts or self._has_ended:
            return False
        self._last_xid += 1
        self._asked.append(_Asked(self._last_xid, done, decode))
        self._to_server(self._last_xid, code, message, operations)
        return True

    def _to_server(self, xid: int, code: Code, message: Request, operations: Sequence[Operation] = ()) -> None:
        link = self._link
        assert link is not None
        link.to_server(lambda: self._server.request(link, xid, code, message, operations))

    # The connection

    def _connect(self) -> None:
        if self._has_ended or self._loop.is_killed or self._link is not None:
            return
        server = self._server
        if not self._loop.is_live or not server.is_up or not server.is_reachable(self.host):
            server.world.after(1_000 + server.world.below(RETRY_US_MAX), self._connect)
            return
        link = self._link = server.open_link(self)
        self._heard_us = server.world.now_us
        request = ConnectRequest(
            0, self.last_zxid, self._timeout_us // 1000, self.session_id, self._password, read_only=False
        )
        link.to_server(lambda: server.connect(link, request))
        self._keep_alive(link)

    def _keep_alive(self, link: _Link) -> None:
        """Ping the server; give the connection up if nothing was heard of it for long."""
        if self._loop.is_killed:
            link.close_by_client()
        if link is not self._link or self._has_ended or self._loop.is_killed:
            return
        world = self._server.world
        if not self._loop.is_live:
            self._heard_us = world.now_us  # what has arrived waits in the socket of the halted process
        elif world.now_us - self._heard_us > self._timeout_us * 2 // 3:
            link.close_by_client()
            self.lose(link)
            return
        elif self._is_connected:
            self._to_server(XID_PING, Code.PING, EmptyRequest())
        world.after(self._timeout_us // 4, self._keep_alive, link)

    def receive(self, link: _Link, effect: Effect) -> None:
        self._loop.call_soon(self._receive, link, effect)

    def lose(self, link: _Link) -> None:
        self._loop.call_soon(self._lose, link)

    def _receive(self, link: _Link, effect: Effect) -> None:
        if link is not self._link:
            return
        self._heard_us = self._server.world.now_us
        if self._has_ended:
            if isinstance(effect, Reply) and effect.code == Code.CLOSE_SESSION:
                self._has_closed()
            return
        if isinstance(effect, Connected):
            response = effect.response
            if not response.session_id:
                self._end()
                return
            self.session_id, self._password = response.session_id, response.password
            self._is_connected = True
            self._listener.connected()
        elif isinstance(effect, Notification):
            self._listener.changed(_KINDS[Event(effect.event)], effect.path)
        elif isinstance(effect, Reply) and effect.xid != XID_PING:
            asked = self._asked.popleft()
            assert asked.xid == effect.xid, "responses come in the order of the requests"
            self.last_zxid = max(self.last_zxid, effect.zxid)
            asked.done(EXCEPTIONS[effect.error]() if effect.error else asked.decode(effect.values))

    def _lose(self, link: _Link) -> None:
        if link is not self._link:
            return
        self._link = None
        self._is_connected = self._accepts = False
        self._has_closed()
        if self._has_ended:
            return
        asked, self._asked = self._asked, deque()
        for request in asked:
            request.done(ConnectionLoss())
        self._listener.connection_lost()
        world = self._server.world
        world.after(world.below(RECONNECT_US_MAX), self._connect)

    def _has_closed(self) -> None:
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _end(self) -> None:
        self._has_ended = True
        self._accepts = False
        asked, self._asked = self._asked, deque()
        for request in asked:
            request.done(SessionExpiredError())
        self._listener.ended()


def _of_protocol(operation: Operation) -> tuple[int, Any]:
    match operation:
        case Create(path, data, ephemeral, sequential):
            flags = (Flag.EPHEMERAL if ephemeral else 0) | (Flag.PERSISTENT_SEQUENTIAL if sequential else 0)
            return Code.CREATE, CreateRequest(path, data, list(OPEN), flags)
        case SetData(path, data, version):
            return Code.SET_DATA, SetDataRequest(path, data, version)
        case Delete(path, version):
            return Code.DELETE, DeleteRequest(path, version)
        case Check(path, version):
            return Code.CHECK, CheckRequest(path, version)


def _node(values: Sequence[Any]) -> tuple[Any, ZnodeStat]:
    """Return the data or the names of the children of a node, and what kazoo says of it."""
    return values[0], ZnodeStat(*values[1])


def _read(result: Result) -> Any:
    return EXCEPTIONS[result.error]() if result.error else _node(result.values)


def _result_of(result: Result) -> Any:
    if result.code == -1:
        return EXCEPTIONS[result.error]()  # code 0 stands for one that was rolled back
    if result.error != Error.OK:
        return EXCEPTIONS[result.error]()
    if result.code == Code.CREATE:
        return result.values[0]
    return ZnodeStat(*cast("Any", result.values[0])) if result.code == Code.SET_DATA else True
