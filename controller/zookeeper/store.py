"""The metadata store of a cluster: `StateStore` over ZooKeeper.

Owns the order of the requests, and what happens to them when the connection is lost: they wait and are sent again, in
their order, when it is back; when the session is over instead, they fail. Must not know what the nodes mean, or how a
connection is kept (`session`).

Invariants: requests are sent in the order of the calls, at most `max_in_flight_requests` at a time; one that cannot be
sent fails alone. After a lost connection first every watch is armed again, then the requests whose responses were lost
are repeated, then the others follow; so a watch fires before its session reads the change. A write that is repeated and
rejected is recognized if its first sending was applied (`second_execution`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    MarshallingError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import ZnodeStat

from controller.store.state_store import (
    DATA_SIZE_MAX,
    BadVersion,
    Check,
    Create,
    DataTooLarge,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SessionExpired,
    SetData,
    SingleWrites,
    Stat,
    StoreError,
    StoreUnavailable,
    Watch,
    WatchKind,
)
from controller.zookeeper.armed_watches import ArmedWatches
from controller.zookeeper.second_execution import paths_to_read, results_if_applied
from controller.zookeeper.session import SessionListener, ZooKeeperSession
from controller.zookeeper.settings import ZooKeeperSettings

logger = logging.getLogger("kafka.zookeeper.ZooKeeperClient")

T = TypeVar("T")

CLOSE_TIMEOUT_SECONDS = 5.0

CONNECTION_ATTEMPTS = 3
"""A server that accepts a connection while it starts may never respond on it, so one attempt has a part of the time."""
ATTEMPT_SECONDS_MIN = 2.0

READS_PER_REQUEST = 100
"""How many nodes one request reads. Only watches need a request for each node."""
PATH_BYTES_PER_REQUEST = 500_000
"""How long the paths in one request are together, which keeps it below `REQUEST_SIZE_MAX`. A path alone is shorter."""
READS_PER_TURN = 500
"""How many reads are queued before other work on the event loop gets its turn."""

# ZooKeeper closes the connection of a request above its jute.maxbuffer, 0xfffff by default. Sent again and again, such
# a request would keep all others away.
REQUEST_SIZE_MAX = 0xFFFFF
_OPERATION_OVERHEAD_BYTES = 64
"""At least what an operation takes besides its path and data: header, lengths, version or access control list."""

_ERRORS: dict[type[KazooException], type[StoreError]] = {
    BadVersionError: BadVersion,
    NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    NodeExistsError: NodeExists,
    NoNodeError: NoNode,
    NotEmptyError: NotEmpty,
}


class _Request:
    """One request. `send(session, done)` hands it to a session; `finish(result)` gets its result or exception."""

    __slots__ = ("finish", "is_repeated", "is_result_needed", "send", "sent_s", "zxid_before")

    def __init__(
        self,
        send: Callable[[ZooKeeperSession, Callable[[Any], None]], bool],
        finish: Callable[[Any], None],
        *,
        is_result_needed: bool = True,
    ) -> None:
        self.send = send
        self.finish = finish
        self.is_result_needed = is_result_needed
        """False for the reads that arm watches again, which the next connection repeats."""
        self.zxid_before = 0
        """A zxid that the server had reached before the first sending."""
        self.is_repeated = False
        self.sent_s = 0.0
        """When it was sent, in the time of the event loop."""


class _Reads:
    """The nodes that one call reads, in whatever requests."""

    def __init__(self, paths: Sequence[str], watches: ArmedWatches, watch: Watch | None) -> None:
        self.paths = paths
        self.is_watched = watch is not None
        self.complete: asyncio.Future[list[Node | None]] = asyncio.get_running_loop().create_future()
        self._nodes: list[Node | None] = [None] * len(paths)
        self._missing = len(paths)
        self._watches = watches
        self._watch = watch

    def finish(self, index: int, result: Any) -> None:
        self._missing -= 1
        path = self.paths[index]
        if isinstance(result, Exception):
            if not isinstance(result, NoNodeError):
                _fail(self.complete, _translated(result, path))
        else:
            data, stat = result
            self._nodes[index] = Node(data, _stat(stat))
            if self._watch is not None:
                self._watches.arm_data(path, self._watch, stat.mzxid)
        if not self._missing:
            _complete(self.complete, self._nodes)


class ZooKeeperStore(SingleWrites):
    """`StateStore` over ZooKeeper."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        new_session: Callable[[ZooKeeperSettings, SessionListener], ZooKeeperSession] = ZooKeeperSession,
    ) -> None:
        self._settings = settings
        self._new_session = new_session
        self._session: ZooKeeperSession | None = None
        self._has_expired = False
        self._opening: asyncio.Future[None] | None = None
        self._waiting: deque[_Request] = deque()
        self._in_flight: dict[_Request, None] = {}
        self._lost: list[_Request] = []
        self._watches = ArmedWatches()
        self._reads_together = True
        """Whether the server reads many nodes in one request, as ZooKeeper does since 3.6."""
        self._on_expired: list[Callable[[], None]] = []

    # -- the session -----------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        assert self._session is not None, "the store is not open"
        return self._session.session_id

    async def open(self) -> None:
        """Start a session, and create the chroot if it is missing.

        Raises:
            StoreUnavailable: no connection within `connection_timeout_ms`.
        """
        await self.close()
        loop, problem = asyncio.get_running_loop(), ""
        total_seconds = self._settings.connection_timeout_ms / 1000
        deadline = loop.time() + total_seconds
        try:
            while (left_seconds := deadline - loop.time()) > 0:
                session = self._session = self._new_session(self._settings, self)
                attempt_seconds = max(total_seconds / CONNECTION_ATTEMPTS, ATTEMPT_SECONDS_MIN)
                if await self._is_connected_within(min(attempt_seconds, left_seconds), session):
                    await self._create_chroot()
                    return
                problem = session.last_problem or problem
                await self.close()
            raise StoreUnavailable(self._not_connected(problem))
        except BaseException:
            await self.close()
            raise

    async def _is_connected_within(self, timeout_seconds: float, session: ZooKeeperSession) -> bool:
        self._has_expired = False
        opening = self._opening = asyncio.get_running_loop().create_future()
        session.start()
        try:
            await asyncio.wait_for(opening, timeout_seconds)
        except TimeoutError:
            return False
        return True

    def _not_connected(self, problem: str) -> str:
        return (
            f"no connection to ZooKeeper at {self._settings.hosts} (zookeeper.connect) within "
            f"{self._settings.connection_timeout_ms} ms (zookeeper.connection.timeout.ms)"
            f"{': ' if problem else ''}{problem}"
        )

    async def _create_chroot(self) -> None:
        names = self._settings.chroot.split("/")[1:]
        for depth in range(1, len(names) + 1):
            with suppress(NodeExists):
                await self._multi([Create("/" + "/".join(names[:depth]))])

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        self._fail_all(StoreUnavailable(f"the session with ZooKeeper at {self._settings.hosts} is closed"))
        if not self._has_expired:
            await session.close(CLOSE_TIMEOUT_SECONDS)

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        self._on_expired.append(callback)

    # -- SessionListener -------------------------------------------------------------------------------------------

    def connected(self) -> None:
        if self._session is None:
            return
        self._settings.events.connected(is_logged_in=self._settings.security.new_login is not None)
        self._session.resume()
        if self._opening is not None:
            if not self._opening.done():
                self._opening.set_result(None)
            self._opening = None
        else:
            logger.info("connected to ZooKeeper at %s again", self._settings.hosts)
        self._waiting.extendleft(reversed(self._lost))
        self._lost.clear()
        self._waiting.extendleft(self._reads_to_arm_again())
        self._send_waiting()

    def connection_lost(self) -> None:
        self._settings.events.lost()
        logger.warning(
            "lost the connection to ZooKeeper at %s: requests wait until it is back or the session has expired (%s)",
            self._settings.hosts,
            "" if self._session is None else self._session.last_problem,
        )

    def ended(self) -> None:
        if self._session is None:
            return
        self._settings.events.ended(is_login_refused=self._session.is_login_refused)
        if self._session.is_login_refused:
            logger.error("the session 0x%x ends: %s", self._session.session_id, self._session.last_problem)
        else:
            logger.warning("the session 0x%x with ZooKeeper has expired", self._session.session_id)
        self._has_expired = True
        if self._opening is not None:
            session = self._session
            is_refused = session.is_login_refused
            _fail(self._opening, StoreUnavailable(session.last_problem) if is_refused else self._expired())
        self._fail_all(self._expired())
        for callback in list(self._on_expired):
            callback()

    def changed(self, kind: WatchKind, path: str) -> None:
        self._watches.fire(kind, self._without_chroot(path))

    def _expired(self) -> SessionExpired:
        return SessionExpired(f"the session with ZooKeeper at {self._settings.hosts} has expired")

    def _fail_all(self, error: StoreUnavailable) -> None:
        failed = [*self._lost, *self._in_flight, *self._waiting]
        for requests in (self._lost, self._in_flight, self._waiting):
            requests.clear()
        self._watches.clear()
        for request in failed:
            request.finish(error)

    def _reads_to_arm_again(self) -> list[_Request]:
        """Return reads that arm every watch again, and fire those whose nodes have changed."""
        watches = self._watches
        data = [
            _Request(
                partial(_exists, self._with_chroot(path), True),
                partial(_read_again, lambda stat: stat and stat.mzxid, partial(watches.data_read_again, path)),
                is_result_needed=False,
            )
            for path in watches.paths_of_data()
        ]
        children = [
            _Request(
                partial(_children, self._with_chroot(path), True),
                partial(_read_again, lambda found: found[1].pzxid, partial(watches.children_read_again, path)),
                is_result_needed=False,
            )
            for path in watches.paths_of_children()
        ]
        return data + children

    # -- requests --------------------------------------------------------------------------------------------------

    def _submit(self, request: _Request) -> None:
        """Send the request after those before it. Raises StoreUnavailable if there is no session."""
        if self._has_expired:
            raise self._expired()
        if self._session is None:
            raise StoreUnavailable(f"the session with ZooKeeper at {self._settings.hosts} is closed")
        self._waiting.append(request)
        self._send_waiting()

    def _send_waiting(self) -> None:
        session = self._session
        if session is None or self._has_expired:
            return
        while self._waiting and len(self._in_flight) < self._settings.max_in_flight_requests:
            request = self._waiting[0]
            if not request.is_repeated:
                request.zxid_before = session.last_zxid
            try:
                is_accepted = request.send(session, partial(self._done, request))
            except Exception as error:
                logger.exception("a request to ZooKeeper fails: it cannot be sent")
                self._waiting.popleft()
                request.finish(error)
                continue
            if not is_accepted:
                return
            self._waiting.popleft()
            request.sent_s = asyncio.get_running_loop().time()
            self._in_flight[request] = None

    def _done(self, request: _Request, result: object) -> None:
        """Process the result of a request, or its exception; those of one session come in order."""
        if request not in self._in_flight:
            return
        if isinstance(result, SessionExpiredError):
            return  # `ended` fails all requests
        del self._in_flight[request]
        if isinstance(result, ConnectionLoss):
            request.is_repeated = True
            if request.is_result_needed:
                self._lost.append(request)
            return
        self._settings.events.responded(asyncio.get_running_loop().time() - request.sent_s)
        request.finish(result)
        self._send_waiting()

    async def _ask(
        self, send: Callable[[ZooKeeperSession, Callable[[Any], None]], bool], then: Callable[[Any], T]
    ) -> T:
        """Send one request; return `then(result)`, called when the response arrives, before that of the next one."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._submit(_Request(send, partial(_settle, future, then)))
        return await future

    # -- reads -----------------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        (node,) = await self.get_many([path], watch)
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        if not paths:
            return []
        reads = _Reads(paths, self._watches, watch)
        if watch is None and len(paths) > 1 and self._reads_together:
            first = 0
            for some in _divided([self._with_chroot(path) for path in paths]):
                self._submit(_Request(partial(_get_all, some), partial(self._finish_reads, reads, first, len(some))))
                first += len(some)
        else:
            for index in range(len(paths)):
                self._submit(self._read(reads, index))
                if not (index + 1) % READS_PER_TURN:
                    await asyncio.sleep(0)
        return await reads.complete

    def _read(self, reads: _Reads, index: int) -> _Request:
        send = partial(_get, self._with_chroot(reads.paths[index]), reads.is_watched)
        return _Request(send, partial(reads.finish, index))

    def _finish_reads(self, reads: _Reads, first: int, count: int, results: Any) -> None:
        """Process the response to a request that reads many nodes."""
        if isinstance(results, StoreUnavailable):
            _fail(reads.complete, results)
        elif isinstance(results, Exception):
            logger.info("ZooKeeper cannot read %d nodes in one request (%r): they are read one by one", count, results)
            if not isinstance(results, MarshallingError):  # else it was only too much data for one response
                self._reads_together = False
            self._waiting.extendleft(self._read(reads, index) for index in reversed(range(first, first + count)))
        else:
            for index, result in enumerate(results, first):
                reads.finish(index, result)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def then(result: Any) -> Stat | None:
            if isinstance(result, BadArgumentsError):
                return None  # no node can have this path: the server arms no watch
            if isinstance(result, Exception):
                raise _translated(result, path)
            if watch is not None:
                self._watches.arm_data(path, watch, result and result.mzxid)
            return None if result is None else _stat(result)

        return await self._ask(partial(_exists, self._with_chroot(path), watch is not None), then)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def then(result: Any) -> list[str]:
            if isinstance(result, Exception):
                raise _translated(result, path)
            names, stat = result
            if watch is not None:
                self._watches.arm_children(path, watch, stat.pzxid)
            return sorted(names)

        return await self._ask(partial(_children, self._with_chroot(path), watch is not None), then)

    # -- writes ----------------------------------------------------------------------------------------------------

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        _check_size(operations)
        try:
            results = await self._multi([self._moved(operation) for operation in operations])
        except StoreError as error:
            error.path = operations[error.index].path
            error.args = (error.path,)
            raise
        return [self._without_chroot(result) if isinstance(result, str) else result for result in results]

    async def _multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Perform operations whose paths contain the chroot."""
        if not operations:
            return []
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()

        def finish(results: Any) -> None:
            try:
                _complete(future, _multi_results(operations, results))
            except (BadVersion, NodeExists, NoNode) as error:
                if request.is_repeated:
                    self._settle_repeated(request, operations, future, error)
                else:
                    _fail(future, error)
            except (StoreError, StoreUnavailable) as error:
                _fail(future, error)

        request = _Request(lambda session, done: session.multi(operations, done), finish)
        self._submit(request)
        return await future

    def _settle_repeated(
        self,
        request: _Request,
        operations: Sequence[Operation],
        future: asyncio.Future[list[Result]],
        error: StoreError,
    ) -> None:
        """Complete a rejected second execution: with the results of the first one if that was applied, else `error`."""
        paths = paths_to_read(operations)
        nodes: dict[str, Node | None] = {}

        def finish(path: str, result: Any) -> None:
            if isinstance(result, Exception) and not isinstance(result, NoNodeError):
                _fail(future, _translated(result, self._without_chroot(path)))
                return
            nodes[path] = None if isinstance(result, Exception) else Node(result[0], _stat(result[1]))
            if len(nodes) == len(paths):
                results = results_if_applied(
                    operations, nodes, session_id=self.session_id, zxid_before=request.zxid_before
                )
                if results is None:
                    _fail(future, error)
                else:
                    _complete(future, results)

        if not paths:
            _fail(future, error)
        # Before what waits: a later write of this session may change the nodes.
        reads = [_Request(partial(_get, path, False), partial(finish, path)) for path in paths]
        self._waiting.extendleft(reversed(reads))

    # -- the chroot ------------------------------------------------------------------------------------------------

    def _with_chroot(self, path: str) -> str:
        chroot = self._settings.chroot
        return (chroot if path == "/" else chroot + path) or "/"

    def _without_chroot(self, path: str) -> str:
        return path.removeprefix(self._settings.chroot) or "/"

    def _moved(self, operation: Operation) -> Operation:
        path = self._with_chroot(operation.path)
        match operation:
            case Create(_, data, ephemeral, sequential):
                return Create(path, data, ephemeral, sequential)
            case SetData(_, data, version):
                return SetData(path, data, version)
            case Delete(_, version):
                return Delete(path, version)
            case Check(_, version):
                return Check(path, version)


def _divided(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the paths that one request reads, then those that the next one reads."""
    first = size = 0
    for index, path in enumerate(paths):
        length = len(path.encode())
        if index > first and (index - first == READS_PER_REQUEST or size + length > PATH_BYTES_PER_REQUEST):
            yield paths[first:index]
            first, size = index, 0
        size += length
    yield paths[first:]


def _get(path: str, watched: bool, session: ZooKeeperSession, done: Callable[[Any], None]) -> bool:
    return session.get(path, watched, done)


def _get_all(paths: Sequence[str], session: ZooKeeperSession, done: Callable[[Any], None]) -> bool:
    return session.get_all(paths, done)


def _exists(path: str, watched: bool, session: ZooKeeperSession, done: Callable[[Any], None]) -> bool:
    return session.exists(path, watched, done)


def _children(path: str, watched: bool, session: ZooKeeperSession, done: Callable[[Any], None]) -> bool:
    return session.children(path, watched, done)


def _read_again(zxid_of: Callable[[Any], int | None], compare: Callable[[int | None], None], result: Any) -> None:
    """Compare a watched node with what was read before; a failed read says nothing."""
    if isinstance(result, NoNodeError):
        compare(None)
    elif not isinstance(result, Exception):
        compare(zxid_of(result))


def _settle(future: asyncio.Future[T], then: Callable[[Any], T], result: Any) -> None:
    try:
        value = then(result)
    except (StoreError, StoreUnavailable) as error:
        _fail(future, error)
    else:
        _complete(future, value)


def _complete(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _multi_results(operations: Sequence[Operation], results: Any) -> list[Result]:
    if isinstance(results, Exception):
        raise _translated(results, operations[0].path)
    for index, result in enumerate(results):
        # The other operations of a failed transaction are rolled back, or were not tried.
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            raise _translated(result, operations[index].path, index)
    return [_result(operation, result) for operation, result in zip(operations, results, strict=True)]


def _result(operation: Operation, result: Any) -> Result:
    if isinstance(operation, Create):
        return str(result)
    return _stat(result) if isinstance(operation, SetData) else None


def _translated(error: Exception, path: str, index: int = 0) -> StoreError | StoreUnavailable:
    if isinstance(error, StoreUnavailable):
        return error
    known = _ERRORS.get(type(error))
    return StoreUnavailable(f"ZooKeeper refuses {path}: {error!r}") if known is None else known(path, index)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.ephemeralOwner)


def _check_size(operations: Sequence[Operation]) -> None:
    """Raise DataTooLarge for a node or a transaction that ZooKeeper does not accept."""
    total = 0
    for index, operation in enumerate(operations):
        data = operation.data if isinstance(operation, Create | SetData) else None
        size = 0 if data is None else len(data)
        total += size + len(operation.path) + _OPERATION_OVERHEAD_BYTES
        if size > DATA_SIZE_MAX or total > REQUEST_SIZE_MAX:
            raise DataTooLarge(operation.path, index)
