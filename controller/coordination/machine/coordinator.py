"""The coordination server as a machine: requests of connections in, responses and watch events out, in order.

Owns what each request does, the zxids, and which connection serves which session. Must not know bytes, sockets, files
or clocks. The caller performs `effects` in their order, after what `take_changes` returned is on the disk: so no client
sees what a crash could undo.

Invariants: each transaction has the next zxid, also one that fails, as in ZooKeeper; a watch event comes before the
response to any later request of its connection, and events come in the order of the changes; a session has one
connection at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, cast

from controller.coordination.machine.access import (
    CREDENTIALS_BYTES_MAX,
    ENTRIES_OF_TRANSACTION_MAX,
    IDENTITIES_MAX,
    SCHEMES,
    InvalidAclError,
    NoAuthError,
    Permission,
    allows,
    digest_identity,
    resolved,
    without_hashes,
)
from controller.coordination.machine.messages import (
    CODE_SASL,
    REFUSED_CODES,
    Acl,
    AuthRequest,
    CheckRequest,
    Code,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    DeleteRequest,
    Error,
    Event,
    Flag,
    MultiRequest,
    Operation,
    PathRequest,
    ReadRequest,
    Request,
    Result,
    SetAclRequest,
    SetDataRequest,
    SetWatches2Request,
    SetWatchesRequest,
)
from controller.coordination.machine.sessions import PASSWORD_BYTES, Session, Sessions, StoredSession
from controller.coordination.machine.tree import (
    SYSTEM_NODES,
    BadArgumentsError,
    Change,
    Transaction,
    Tree,
    Znode,
    require_valid,
)
from controller.store.state_store import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreError,
    WatchEvent,
    WatchKind,
)
from controller.store.watches import Watchers

SHOWN_CHARACTERS_MAX: Final = 100
"""Of a client's text in a line of the log. A frame has room for a million."""
_NO_ZXID: Final = -1
_NAME_BYTES: Final = 8
"""What a name of a response takes besides its text, in a frame and in a list."""
_SEQUENTIAL: Final = frozenset({Flag.PERSISTENT_SEQUENTIAL, Flag.EPHEMERAL_SEQUENTIAL})
_EPHEMERAL: Final = frozenset({Flag.EPHEMERAL, Flag.EPHEMERAL_SEQUENTIAL})
_EVENTS: Final = {
    WatchKind.CREATED: Event.CREATED,
    WatchKind.DELETED: Event.DELETED,
    WatchKind.CHANGED: Event.CHANGED,
    WatchKind.CHILDREN: Event.CHILDREN,
}


class UnimplementedError(StoreError):
    """The kind of node is not served."""


_ERRORS: Final[dict[type[StoreError], Error]] = {
    BadArgumentsError: Error.BAD_ARGUMENTS,
    BadVersion: Error.BAD_VERSION,
    InvalidAclError: Error.INVALID_ACL,
    NoAuthError: Error.NO_AUTH,
    NoChildrenForEphemerals: Error.NO_CHILDREN_FOR_EPHEMERALS,
    NoNode: Error.NO_NODE,
    NodeExists: Error.NODE_EXISTS,
    NotEmpty: Error.NOT_EMPTY,
    UnimplementedError: Error.UNIMPLEMENTED,
}


class Now(NamedTuple):
    """The time: of the wall for the times of nodes, monotonic for sessions."""

    wall_ms: int
    monotonic_ms: int


class Limits(NamedTuple):
    sessions_max: int
    watches_max: int
    """Of one connection."""
    watched_size_max: int
    """In characters, of the paths that one connection watches."""
    response_bytes_max: int
    """Of one multiRead."""


class Connected(NamedTuple):
    """The response to a connect request. A session id of 0 means that the session has expired."""

    connection: int
    response: ConnectResponse


class Reply(NamedTuple):
    connection: int
    xid: int
    zxid: int
    error: int
    code: int
    values: Sequence[object]


def size_of(values: Sequence[object]) -> int:
    """Return about how many bytes a response takes for the data, names and identities that it carries."""
    size = 0
    for value in values:
        if isinstance(value, bytes | str):
            size += len(value)
        elif isinstance(value, list):  # of names
            size += _NAME_BYTES * len(value) + sum(map(len, value))
        elif isinstance(value, Result):
            size += size_of(value.values)
        elif type(value) is tuple:  # an access control list; the metadata of a node is a named tuple
            size += sum(_NAME_BYTES + len(entry.id) for entry in value)
    return size


class Notification(NamedTuple):
    """A watch event."""

    connection: int
    event: int
    path: str
    zxid: int


class Close(NamedTuple):
    """Close the connection, after what was sent before. `reason` is empty if its session has ended in order."""

    connection: int
    reason: str


class Refused(NamedTuple):
    """Something for the log: the client asked for what this server does not have, or for too much."""

    connection: int
    text: str


class Expired(NamedTuple):
    """Something for the log: the client of this session was silent for too long."""

    session_id: int
    timeout_ms: int


Effect = Connected | Reply | Notification | Close | Refused | Expired


class Changes(NamedTuple):
    """What to write to the disk before the effects so far are performed."""

    zxid: int
    last_session_id: int
    nodes: list[tuple[str, Znode | None]]
    sessions: list[tuple[int, StoredSession | None]]


class _Connection:
    """A connection of a session: its watches, and who has logged in on it."""

    def __init__(self, number: int, session: Session) -> None:
        self.number = number
        self.session = session
        self.data_watches: set[str] = set()
        self.child_watches: set[str] = set()
        self.watched_size = 0
        """The sum of the lengths of the watched paths."""
        self.identities: dict[str, None] = {}

    @property
    def watch_count(self) -> int:
        return len(self.data_watches) + len(self.child_watches)

    def allows(self, acl: Sequence[Acl], permission: int) -> bool:
        return allows(acl, permission, self.identities)

    def watches(self, watched: set[str], path: str) -> None:
        """Note a watch in `watched`, which is `data_watches` or `child_watches`."""
        if path not in watched:
            watched.add(path)
            self.watched_size += len(path)

    def disarmed(self, event: WatchEvent) -> None:
        """Note that a watch has fired."""
        if event.kind is WatchKind.CHILDREN:
            self._watches_no_more(self.child_watches, event.path)
            return
        self._watches_no_more(self.data_watches, event.path)
        if event.kind is WatchKind.DELETED:
            self._watches_no_more(self.child_watches, event.path)

    def _watches_no_more(self, watched: set[str], path: str) -> None:
        if path in watched:
            watched.remove(path)
            self.watched_size -= len(path)


class Coordinator:
    def __init__(self, tree: Tree, sessions: Sessions, zxid: int, limits: Limits) -> None:
        self.tree = tree
        self.sessions = sessions
        self.zxid = zxid
        """Of the last transaction."""
        self.effects: list[Effect] = []
        self._written_zxid = zxid
        self._limits = limits
        self._connections: dict[int, _Connection] = {}
        self._by_session: dict[int, _Connection] = {}
        self._watchers: Watchers[_Connection] = Watchers()
        """Of all connections, so that a change costs no more for those that do not watch its node."""
        self._event_zxid = _NO_ZXID

    @property
    def watch_count(self) -> int:
        return sum(connection.watch_count for connection in self._connections.values())

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def take_changes(self) -> Changes | None:
        """Return what the transactions since the last call have changed, None without a transaction."""
        sessions = self.sessions.take_changed()
        if self.zxid == self._written_zxid and not sessions:
            return None
        self._written_zxid = self.zxid
        return Changes(self.zxid, self.sessions.last_id, self.tree.take_changed(), sessions)

    # -- connections and sessions ----------------------------------------------------------------------------------

    def connect(self, number: int, request: ConnectRequest, new_password: bytes, now: Now) -> None:
        """Serve the first request of connection `number`, whose client begins or continues a session."""
        if request.last_zxid_seen > self.zxid:
            self._close(
                number,
                f"its client has seen zxid {request.last_zxid_seen:#x}, and the last one here is {self.zxid:#x}: it "
                "belongs to another server, or the files of this one are older",
            )
            return
        if request.session_id:
            session = self.sessions.resume(request.session_id, request.password, request.timeout_ms, now.monotonic_ms)
            if session is None:
                response = ConnectResponse(0, 0, bytes(PASSWORD_BYTES), request.read_only)
                self.effects.append(Connected(number, response))
                self._close(number, f"session {request.session_id:#x} has expired, or the password is wrong")
                return
            before = self._by_session.get(session.id)
            if before is not None:
                self._close(before.number, "its session continues on another connection")
                self.disconnected(before.number)
        elif len(self.sessions) >= self._limits.sessions_max:
            self._close(number, f"there are {len(self.sessions)} sessions, the maximum")
            return
        else:
            session = self.sessions.begin(request.timeout_ms, new_password, now.monotonic_ms, now.wall_ms)
            self.zxid += 1
        connection = _Connection(number, session)
        self._connections[number] = self._by_session[session.id] = connection
        self.effects.append(
            Connected(number, ConnectResponse(session.timeout_ms, session.id, session.password, request.read_only))
        )

    def disconnected(self, number: int) -> None:
        """Forget a connection. Its session goes on until it times out."""
        connection = self._connections.pop(number, None)
        if connection is not None:
            del self._by_session[connection.session.id]
            self._watchers.forget(connection, connection.data_watches, connection.child_watches)

    def expire(self, now: Now) -> None:
        """End the sessions whose clients were silent for too long. Call it every tick."""
        for session_id in self.sessions.expired(now.monotonic_ms):
            session = self.sessions.get(session_id)
            assert session is not None
            self.effects.append(Expired(session_id, session.timeout_ms))
            self._expire(session_id, now)

    def end_session_of(self, path: str, now: Now) -> None:
        """End the session that owns a node, if there is one: its client is known to be dead."""
        node = self.tree.nodes.get(path)
        if node is not None and node.owner:
            self._expire(node.owner, now)

    def _expire(self, session_id: int, now: Now) -> None:
        self._end_session(session_id, now)
        connection = self._by_session.get(session_id)
        if connection is not None:
            self._close(connection.number, "its session has expired")
            self.disconnected(connection.number)

    def _end_session(self, session_id: int, now: Now) -> None:
        """Delete the session and its nodes, in one transaction."""
        transaction = self._begin(now, lambda acl, permission: True)
        for path in self.tree.owned_by(session_id):
            self.tree.remove(path, transaction)
        self._commit(transaction)
        self.sessions.end(session_id)

    def _close(self, number: int, reason: str) -> None:
        self.effects.append(Close(number, reason))

    # -- requests --------------------------------------------------------------------------------------------------

    def request(self, number: int, xid: int, code: int, request: Request | None, now: Now) -> None:
        """Serve a request of a connection that was connected; of one that was closed since, ignore it."""
        connection = self._connections.get(number)
        if connection is None:
            return
        self.sessions.touch(connection.session, now.monotonic_ms)
        if request is None:
            self._refuse(connection, xid, code)
            return
        match code:
            case Code.PING:
                self._reply(connection, xid, code)
            case Code.MULTI:
                self._multi(connection, xid, cast("MultiRequest", request), now)
            case Code.MULTI_READ:
                self._multi_read(connection, xid, cast("MultiRequest", request))
            case Code.CREATE | Code.CREATE2 | Code.DELETE | Code.SET_DATA | Code.SET_ACL:
                self._write(connection, xid, code, cast("Operation", request), now)
            case Code.AUTH:
                self._authenticate(connection, xid, cast("AuthRequest", request))
            case Code.SET_WATCHES | Code.SET_WATCHES2:
                self._set_watches(connection, xid, code, cast("SetWatchesRequest | SetWatches2Request", request))
            case Code.CLOSE_SESSION:
                self._close_session(connection, xid, now)
            case _:
                self._read(connection, xid, code, cast("ReadRequest | PathRequest", request))

    def _refuse(self, connection: _Connection, xid: int, code: int) -> None:
        """Refuse a request by its name. After one that ZooKeeper lacks as well, close the connection, as it does."""
        self.effects.append(Refused(connection.number, f"request {REFUSED_CODES.get(code, code)}"))
        if code == CODE_SASL:
            self._refuse_login(connection, xid)
            return
        self.effects.append(Reply(connection.number, xid, _NO_ZXID, Error.UNIMPLEMENTED, code, ()))
        if code not in REFUSED_CODES:
            self._close(connection.number, f"it sent a request of type {code}")
            self.disconnected(connection.number)

    def _reply(
        self, connection: _Connection, xid: int, code: int, values: Sequence[object] = (), error: int = Error.OK
    ) -> None:
        self.effects.append(Reply(connection.number, xid, self.zxid, error, code, values))

    def _authenticate(self, connection: _Connection, xid: int, request: AuthRequest) -> None:
        credentials = request.credentials or b""
        if request.scheme != "digest":
            refused = f"a login of the scheme {_shown(request.scheme)}"
        elif len(credentials) > CREDENTIALS_BYTES_MAX:
            refused = f"a login with {len(credentials)} bytes of credentials, more than {CREDENTIALS_BYTES_MAX}"
        elif len(connection.identities) >= IDENTITIES_MAX:
            refused = f"more than {IDENTITIES_MAX} logins on one connection"
        else:
            connection.identities[digest_identity(credentials)] = None
            self._reply_to_auth(connection, xid, Error.OK)
            return
        self.effects.append(Refused(connection.number, refused))
        self._refuse_login(connection, xid)

    def _refuse_login(self, connection: _Connection, xid: int) -> None:
        self._reply_to_auth(connection, xid, Error.AUTH_FAILED)
        self._close(connection.number, "its login was refused")
        self.disconnected(connection.number)

    def _reply_to_auth(self, connection: _Connection, xid: int, error: Error) -> None:
        self.effects.append(Reply(connection.number, xid, 0, error, Code.AUTH, ()))  # without a zxid, as ZooKeeper

    def _close_session(self, connection: _Connection, xid: int, now: Now) -> None:
        self._end_session(connection.session.id, now)
        self._reply(connection, xid, Code.CLOSE_SESSION)
        self._close(connection.number, "")
        self.disconnected(connection.number)

    # -- reads -----------------------------------------------------------------------------------------------------

    def _read(self, connection: _Connection, xid: int, code: int, request: ReadRequest | PathRequest) -> None:
        try:
            values = self._found(connection, code, request)
        except StoreError as error:
            self._reply(connection, xid, code, error=_ERRORS[type(error)])
        else:
            self._reply(connection, xid, code, values)

    def _found(self, connection: _Connection, code: int, request: ReadRequest | PathRequest) -> tuple[object, ...]:
        path = request.path
        is_watched = isinstance(request, ReadRequest) and request.watch
        if code == Code.SYNC:
            return (path,)
        node = self.tree.nodes.get(path)
        if code == Code.EXISTS:
            if "\0" in path:
                raise BadArgumentsError(path)
            if node is not None and not connection.allows(node.acl, Permission.READ):
                raise NoAuthError(path)
            if is_watched:
                self._watch_data(connection, path)
            if node is None:
                raise NoNode(path)
            return (self.tree.stat(path),)
        if node is None:
            raise NoNode(path)
        if code == Code.GET_ACL:
            if not connection.allows(node.acl, Permission.READ | Permission.ADMIN):
                raise NoAuthError(path)
            acl = node.acl if connection.allows(node.acl, Permission.ADMIN) else without_hashes(node.acl)
            return (acl, self.tree.stat(path))
        if not connection.allows(node.acl, Permission.READ):
            raise NoAuthError(path)
        if code == Code.GET_DATA:
            if is_watched:
                self._watch_data(connection, path)
            return (node.data, self.tree.stat(path))
        if is_watched:
            self._watch_children(connection, path)
        names = self.tree.children(path)
        return (names, self.tree.stat(path)) if code == Code.GET_CHILDREN2 else (names,)

    def _multi_read(self, connection: _Connection, xid: int, request: MultiRequest) -> None:
        """Respond with all results, or with an error if they are too large: each can be read alone."""
        results: list[Result] = []
        size = 0
        for code, operation in request.operations:
            try:
                # A multiRead arms no watches, as in ZooKeeper.
                values = self._found(connection, code, cast("ReadRequest", operation)._replace(watch=False))
            except StoreError as error:
                results.append(Result(-1, _ERRORS[type(error)], ()))
                continue
            results.append(Result(code, Error.OK, values))
            size += size_of(values)
            if size > self._limits.response_bytes_max:
                refused = f"more than {self._limits.response_bytes_max} bytes in the response to one multiRead"
                self.effects.append(Refused(connection.number, refused))
                self._reply(connection, xid, Code.MULTI_READ, error=Error.MARSHALLING_ERROR)
                return
        self._reply(connection, xid, Code.MULTI_READ, results)

    # -- writes ----------------------------------------------------------------------------------------------------

    def _begin(self, now: Now, may: Callable[[Sequence[Acl], int], bool]) -> Transaction:
        self.zxid += 1
        return Transaction(self.zxid, now.wall_ms, may)

    def _commit(self, transaction: Transaction) -> None:
        self.tree.commit(transaction)
        self._event_zxid = transaction.zxid
        for change in transaction.changes:
            self._fire(change)

    def _write(self, connection: _Connection, xid: int, code: int, operation: Operation, now: Now) -> None:
        transaction = self._begin(now, connection.allows)
        try:
            values = self._perform(connection, code, operation, transaction)
        except StoreError as error:
            self.tree.roll_back(transaction)
            self._note_refused(connection, operation, error)
            self._reply(connection, xid, code, error=_ERRORS[type(error)])
        else:
            self._commit(transaction)
            self._reply(connection, xid, code, values)

    def _multi(self, connection: _Connection, xid: int, request: MultiRequest, now: Now) -> None:
        transaction = self._begin(now, connection.allows)
        results: list[Result] = []
        for code, operation in request.operations:
            try:
                values = self._perform(connection, code, operation, transaction)
            except StoreError as error:
                self.tree.roll_back(transaction)
                self._note_refused(connection, operation, error)
                after = len(request.operations) - len(results) - 1
                errors = [Error.OK] * len(results) + [_ERRORS[type(error)]] + [Error.RUNTIME_INCONSISTENCY] * after
                self._reply(connection, xid, Code.MULTI, [Result(-1, error, ()) for error in errors])
                return
            results.append(Result(code, Error.OK, values))
        self._commit(transaction)
        self._reply(connection, xid, Code.MULTI, results)

    def _note_refused(self, connection: _Connection, operation: Operation, error: StoreError) -> None:
        if isinstance(error, UnimplementedError):
            flag = Flag(cast("CreateRequest", operation).flags)
            self.effects.append(Refused(connection.number, f"a node of the kind {flag.name}"))
        elif isinstance(error, InvalidAclError) and error.scheme is not None and error.scheme not in SCHEMES:
            refused = f"an access control list of the scheme {_shown(error.scheme)}"
            self.effects.append(Refused(connection.number, refused))

    def _perform(
        self, connection: _Connection, code: int, operation: Operation | SetAclRequest, within: Transaction
    ) -> tuple[object, ...]:
        path = operation.path
        match operation:
            case CreateRequest():
                created = self._create(connection, operation, within)
                return (created, self.tree.stat(created)) if code == Code.CREATE2 else (created,)
            case DeleteRequest():
                if "/" not in path or "\0" in path or path == "/" or path in SYSTEM_NODES:
                    raise BadArgumentsError(path)
                self.tree.delete(path, operation.version, within)
                return ()
            case SetDataRequest():
                require_valid(path)
                self.tree.set_data(path, operation.data, operation.version, within)
                return (self.tree.stat(path),)
            case SetAclRequest():
                require_valid(path)
                acl = _resolved(path, operation.acl, connection, within)
                self.tree.set_acl(path, acl, operation.version, within)
                return (self.tree.stat(path),)
            case _:
                assert isinstance(operation, CheckRequest)
                require_valid(path)
                self.tree.check(path, operation.version, within)
                return ()

    def _create(self, connection: _Connection, request: CreateRequest, within: Transaction) -> str:
        path, flags = request.path, request.flags
        if not Flag.PERSISTENT <= flags <= Flag.PERSISTENT_SEQUENTIAL_WITH_TTL or "/" not in path or "\0" in path:
            raise BadArgumentsError(path)
        if flags >= Flag.CONTAINER:
            raise UnimplementedError(path)
        acl = _resolved(path, request.acl, connection, within)
        owner = connection.session.id if flags in _EPHEMERAL else 0
        return self.tree.create(path, request.data, acl, owner, flags in _SEQUENTIAL, within)

    # -- watches ---------------------------------------------------------------------------------------------------

    def _watch_data(self, connection: _Connection, path: str) -> None:
        if self._has_room(connection):
            self._watchers.watch_data(path, connection)
            connection.watches(connection.data_watches, path)

    def _watch_children(self, connection: _Connection, path: str) -> None:
        if self._has_room(connection):
            self._watchers.watch_children(path, connection)
            connection.watches(connection.child_watches, path)

    def _has_room(self, connection: _Connection) -> bool:
        limits = self._limits
        if connection.watch_count < limits.watches_max and connection.watched_size < limits.watched_size_max:
            return True
        if connection.number in self._connections:
            has = f"{connection.watch_count} watches on {connection.watched_size} characters of paths"
            self._close(connection.number, f"it has {has}, the maximum")
            self.disconnected(connection.number)
        return False

    def _fire(self, change: Change) -> None:
        for connection, event in self._watchers.disarm(change.event):
            connection.disarmed(event)
            acl = change.parent_acl if event.kind is WatchKind.CHILDREN else change.acl
            if connection.allows(acl, Permission.READ):
                self._notify(connection, event)

    def _notify(self, connection: _Connection, event: WatchEvent) -> None:
        self.effects.append(Notification(connection.number, _EVENTS[event.kind], event.path, self._event_zxid))

    def _set_watches(
        self, connection: _Connection, xid: int, code: int, request: SetWatchesRequest | SetWatches2Request
    ) -> None:
        """Arm the watches of a session again that has a new connection; those whose nodes have changed fire."""
        if isinstance(request, SetWatches2Request) and (request.persistent or request.persistent_recursive):
            self.effects.append(Refused(connection.number, "persistent watches"))
            self._reply(connection, xid, code, error=Error.UNIMPLEMENTED)
            return
        self._event_zxid = _NO_ZXID
        nodes, seen = self.tree.nodes, request.relative_zxid
        for path in request.data or ():
            node = nodes.get(path)
            if node is None:
                self._notify(connection, WatchEvent(WatchKind.DELETED, path))
            elif node.mzxid > seen:
                self._notify(connection, WatchEvent(WatchKind.CHANGED, path))
            else:
                self._watch_data(connection, path)
        for path in request.exist or ():
            if path in nodes:
                self._notify(connection, WatchEvent(WatchKind.CREATED, path))
            else:
                self._watch_data(connection, path)
        for path in request.children or ():
            node = nodes.get(path)
            if node is None:
                self._notify(connection, WatchEvent(WatchKind.DELETED, path))
            elif node.pzxid > seen:
                self._notify(connection, WatchEvent(WatchKind.CHILDREN, path))
            else:
                self._watch_children(connection, path)
        self._reply(connection, xid, code)


def _resolved(
    path: str, entries: Sequence[Acl] | None, connection: _Connection, within: Transaction
) -> tuple[Acl, ...]:
    """Return the access list to store for an operation of a transaction. Raises InvalidAclError."""
    acl = resolved(path, entries, connection.identities)
    if within.count_acl_entries(len(acl)) > ENTRIES_OF_TRANSACTION_MAX:
        raise InvalidAclError(path, None)
    return acl


def _shown(text: str) -> str:
    """Return a client's text for the log, without what exceeds `SHOWN_CHARACTERS_MAX`."""
    return repr(text[:SHOWN_CHARACTERS_MAX])


def new_tree(nodes: Iterable[tuple[str, Znode]]) -> Tree:
    """Return the tree of these nodes; without any, that of a new ZooKeeper."""
    tree = Tree(nodes)
    if len(tree.nodes) == 1:
        tree.add_system_nodes()
    return tree
