"""One session with ZooKeeper: one kazoo client, in a thread of its own.

Owns the client, and the hand-over between its thread and the event loop: whatever the client reports reaches the loop
by `call_soon_threadsafe`, in the order in which it was read from the connection. Must not know what requests mean or
when they are sent again.

kazoo passes responses and watch events through two queues with a thread each. That would lose their order, which is all
that ZooKeeper promises about watches, so `_Handler` passes both on directly. The client serves one session: after its
end kazoo would begin another one by itself, so the client is stopped and never used again.

kazoo fails every request in flight when the connection is lost, and accepts new ones before it is back. A request that
is accepted in between would overtake the failed ones. So the session accepts none before the first `resume`, and none
from the first failure on until the next, which the loop calls when it has processed all failures.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionLoss
from kazoo.protocol import serialization
from kazoo.protocol.states import Callback, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from controller.store.state_store import Check, Create, Delete, Operation, SetData, WatchKind
from controller.zookeeper.connection import ACL_OF_ACCESS, SecureHandler, secure
from controller.zookeeper.security import ZooKeeperSecurity, access_of
from controller.zookeeper.settings import ZooKeeperSettings

logger = logging.getLogger("org.apache.zookeeper.ClientCnxn")

RETRY_PAUSE_SECONDS_MIN = 0.05
RETRY_PAUSE_SECONDS_MAX = 1.0

_EPHEMERAL = 1
_SEQUENTIAL = 2

_KINDS = {
    "CREATED": WatchKind.CREATED,
    "DELETED": WatchKind.DELETED,
    "CHANGED": WatchKind.CHANGED,
    "CHILD": WatchKind.CHILDREN,
}

Outcome = Callable[[Any], None]
"""Called on the event loop with the result of a request, or with its exception."""


class SessionListener(Protocol):
    """What a session reports, on the event loop."""

    def connected(self) -> None:
        """The connection is established, or again."""
        ...

    def connection_lost(self) -> None: ...

    def ended(self) -> None:
        """The session has expired, or the client has failed. Nothing is reported after this."""
        ...

    def changed(self, kind: WatchKind, path: str) -> None:
        """A watched node has changed."""
        ...


class ZooKeeperSession:
    def __init__(self, settings: ZooKeeperSettings, listener: SessionListener) -> None:
        """Create the session in the running event loop. It begins with `start`."""
        self._settings = settings
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._accepting = threading.Lock()
        self._accepts = False
        self._has_ended = False
        self._known_id = 0
        self._reports: deque[Callable[[], None]] = deque()
        self._is_reporting = False
        self._log = _ClientLog(logger)
        handler = _Handler(
            settings.session_timeout_ms / 1000 / (settings.hosts.count(",") + 1), settings.security, self._request_lost
        )
        self._client = KazooClient(
            settings.hosts,
            timeout=settings.session_timeout_ms / 1000,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RETRY_PAUSE_SECONDS_MIN,
                backoff=2,
                max_jitter=0.5,
                max_delay=RETRY_PAUSE_SECONDS_MAX,
                sleep_func=handler.sleep_func,
            ),
            logger=self._log,
        )
        self._connection = secure(self._client, settings.security, self._connected)
        self._client.add_listener(self._state_changed)

    @property
    def session_id(self) -> int:
        """The id that the server gave, known once `connected` was reported."""
        return self._known_id

    @property
    def last_zxid(self) -> int:
        """The newest zxid in a response."""
        return int(self._client.last_zxid)

    @property
    def last_problem(self) -> str:
        """Why the last attempt to connect failed; empty if unknown."""
        return self._log.last_problem

    @property
    def is_login_refused(self) -> bool:
        """Whether the session ended because the server refused its login."""
        return self._connection.is_login_refused

    def start(self) -> None:
        """Begin to connect; return immediately."""
        self._client.start_async()

    async def close(self, timeout_seconds: float) -> None:
        """End the session, and wait until the server has confirmed it; without a connection, do not wait."""
        is_connected = self._client.connected
        self._has_ended = True
        self._reports.clear()
        closed: asyncio.Future[None] = self._loop.create_future()
        self._stop_in_thread(lambda: self._report(lambda: _complete(closed)))
        if is_connected:
            await asyncio.wait([closed], timeout=timeout_seconds)

    def resume(self) -> None:
        """Accept requests again. Call it on `connected`, after the failed requests were put back."""
        with self._accepting:
            self._accepts = True

    # -- requests --------------------------------------------------------------------------------------------------

    # Built here, without the checks of kazoo's own methods: they raise for a path with the name `..`, which the server
    # responds to as to any that does not exist, and for null data, which Kafka distinguishes from empty data.

    def get(self, path: str, watched: bool, done: Outcome) -> bool:
        """Read a node: its data and kazoo's stat. Returns whether the request was accepted, as all below do."""
        return self._send(serialization.GetData(path, self._watch(watched)), done)

    def get_all(self, paths: Sequence[str], done: Outcome) -> bool:
        """Read nodes in one request; the result has one entry each, as of `get` or an exception."""
        return self._send(_MultiRead([serialization.GetData(path, None) for path in paths]), done)

    def exists(self, path: str, watched: bool, done: Outcome) -> bool:
        """Read a node's stat, None if it does not exist."""
        return self._send(serialization.Exists(path, self._watch(watched)), done)

    def children(self, path: str, watched: bool, done: Outcome) -> bool:
        """Read the names of a node's children, and its stat."""
        return self._send(serialization.GetChildren2(path, self._watch(watched)), done)

    def multi(self, operations: Sequence[Operation], done: Outcome) -> bool:
        """Perform the operations as one transaction; the result has one entry each, an exception if all failed."""
        return self._send(serialization.Transaction(list(map(self._serializable, operations))), done)

    def _serializable(self, operation: Operation) -> object:
        match operation:
            case Create(path, data, ephemeral, sequential):
                flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENTIAL if sequential else 0)
                access = access_of(path.removeprefix(self._settings.chroot), is_secure=self._settings.set_acl)
                return serialization.Create(path, data, ACL_OF_ACCESS[access], flags)
            case SetData(path, data, version):
                return serialization.SetData(path, data, version)
            case Delete(path, version):
                return serialization.Delete(path, version)
            case Check(path, version):
                return serialization.CheckVersion(path, version)

    def _watch(self, watched: bool) -> Callable[[WatchedEvent], None] | None:
        return self._changed if watched else None

    def _send(self, request: object, done: Outcome) -> bool:
        # The client's thread may read the response, and an event after it, before `_call` returns.
        outcome = _Outcome(self._request_lost, lambda result: self._report(lambda: done(result)))
        with self._accepting:
            if not self._accepts or self._has_ended:
                return False
            self._client._call(request, outcome)
        return True

    # -- in the client's thread ------------------------------------------------------------------------------------

    def _request_lost(self) -> None:
        with self._accepting:
            self._accepts = False

    def _connected(self) -> None:
        if not self._has_ended:
            self._known_id = int(self._client.client_id[0])
            self._report(self._listener.connected)

    def _state_changed(self, state: str) -> None:
        if self._has_ended:
            return
        if state == KazooState.CONNECTED:
            return  # `_connected` reports it after the login
        if state == KazooState.SUSPENDED:
            self._request_lost()
            self._report(self._listener.connection_lost)
        else:
            self._has_ended = True
            self._stop_in_thread(lambda: None)
            self._report(self._listener.ended)

    def _changed(self, event: WatchedEvent) -> None:
        kind = _KINDS.get(event.type)
        if kind is not None and not self._has_ended:
            self._report(lambda: self._listener.changed(kind, event.path))

    def _report(self, report: Callable[[], None]) -> None:
        """Have the event loop call `report`, after those before it. Callable from any thread."""
        self._reports.append(report)
        if not self._is_reporting:
            self._is_reporting = True
            try:
                self._loop.call_soon_threadsafe(self._call_reports)
            except RuntimeError:
                logger.debug("the event loop is closed")

    def _call_reports(self) -> None:
        self._is_reporting = False
        try:
            while self._reports:
                self._reports.popleft()()
        finally:
            if self._reports:  # one of them failed
                self._loop.call_soon(self._call_reports)

    def _stop_in_thread(self, then: Callable[[], None]) -> None:
        """Stop the client for good: kazoo waits for its thread, which may be in the middle of an attempt to connect."""

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            except Exception as error:
                logger.warning("the client of ZooKeeper session 0x%x did not stop: %s", self._known_id, error)
            finally:
                then()

        threading.Thread(target=stop, name="zookeeper-stop", daemon=True).start()


class _Outcome:
    """The result of one request, in place of kazoo's, which would pass it through a queue and a thread."""

    __slots__ = ("_on_lost", "_then")

    def __init__(self, on_lost: Callable[[], None], then: Outcome) -> None:
        """`then` is called with the result by the thread that sets it."""
        self._on_lost = on_lost
        self._then = then

    def set(self, value: object = None) -> None:
        self._then(value)

    def set_exception(self, exception: Exception) -> None:
        if isinstance(exception, ConnectionLoss):
            self._on_lost()
        self.set(exception)


class _MultiRead(serialization.Transaction):  # type: ignore[misc]
    """ZooKeeper's request to read many nodes, which kazoo lacks; since ZooKeeper 3.6."""

    type = 22

    @classmethod
    def deserialize(cls, response: bytes, offset: int) -> list[object]:
        results: list[object] = []
        header, offset = serialization.MultiHeader.deserialize(response, offset)
        while not header.done:
            if header.type == serialization.GetData.type:
                data, offset = serialization.read_buffer(response, offset)
                stat = ZnodeStat._make(serialization.stat_struct.unpack_from(response, offset))
                offset += serialization.stat_struct.size
                results.append((data, stat))
            else:
                (code,) = serialization.int_struct.unpack_from(response, offset)
                offset += serialization.int_struct.size
                results.append(EXCEPTIONS[code]())
            header, offset = serialization.MultiHeader.deserialize(response, offset)
        return results


class _Handler(SecureHandler):
    """kazoo's threads, without the queues for callbacks."""

    def __init__(
        self, connect_timeout_seconds: float, security: ZooKeeperSecurity, on_request_lost: Callable[[], None]
    ) -> None:
        super().__init__(connect_timeout_seconds, security)
        self._on_request_lost = on_request_lost

    def start(self) -> None:
        """Start no thread: there is no queue."""

    def stop(self) -> None: ...

    def async_result(self) -> _Outcome:
        """Return what takes the result of a request of kazoo's own, which nobody waits for."""
        return _Outcome(self._on_request_lost, lambda _: None)

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)


_TRANSITION = "Transition to CONNECTING"
"""The line after each that states why a connection was lost."""


class _ClientLog(logging.LoggerAdapter):  # type: ignore[type-arg]
    """kazoo's log lines: repeated for every attempt to connect, so all but errors of its own are for debugging."""

    def __init__(self, target: logging.Logger) -> None:
        super().__init__(target)
        self.last_problem = ""

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        if level == logging.WARNING and msg != _TRANSITION:
            self.last_problem = str(msg) % args
        super().log(level if level > logging.WARNING else logging.DEBUG, msg, *args, **options)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
