"""kazoo's connection with TLS and a login of our own making.

Owns what kazoo lacks: TLS with a context that is already made, a wait that knows bytes which TLS has already decrypted,
a login without a further library, and the report that a connection is ready only after its login. Must not know
requests.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from controller.zookeeper.security import Access, LoginRefused, LoginUnavailable, ZooKeeperSecurity

CONNECTIONS_PER_TIMEOUT = 3

ACL_OF_ACCESS: dict[Access, list[ACL]] = {
    Access.OPEN: OPEN_ACL_UNSAFE,
    Access.READABLE: [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    Access.CREATOR: CREATOR_ALL_ACL,
}


class SecureHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets, with TLS by a given context."""

    def __init__(self, connect_timeout_seconds: float, security: ZooKeeperSecurity) -> None:
        super().__init__()
        self._connect_timeout_seconds = connect_timeout_seconds
        self._tls = security.tls

    def create_connection(self, *args: object, timeout: float, hostname: str | None = None, **options: object) -> Any:
        """Connect within this host's share of the session timeout, so that a silent host leaves time for the others."""
        timeout = min(timeout, self._connect_timeout_seconds)
        connection = super().create_connection(*args, timeout=timeout, hostname=hostname, **options)
        if self._tls is None:
            return connection
        try:
            connection.settimeout(timeout)
            return self._tls.wrap_socket(connection, server_hostname=hostname or "")
        except BaseException:
            connection.close()
            raise

    def select(
        self, readable: Sequence[Any], writable: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets by poll: kazoo's own way creates and closes an epoll descriptor for each wait.

        kazoo waits for one socket alone in the middle of a response, and for that to its first request. A server that
        accepts connections while it starts may never send that one. kazoo would wait as long as the session lasts; in
        a third of this time another connection can be tried.

        A TLS socket may hold decrypted bytes, for which the operating system has nothing more to report.
        """
        decrypted = [socket for socket in readable if _pending(socket)]
        poll = select.poll()
        if timeout is not None and len(readable) == 1:
            timeout = min(timeout, self._connect_timeout_seconds / CONNECTIONS_PER_TIMEOUT)
        if decrypted:
            timeout = 0
        for socket in readable:
            poll.register(socket, select.POLLIN)
        for socket in writable:
            poll.register(socket, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return (
            [socket for socket in readable if socket.fileno() in ready or socket in decrypted],
            [socket for socket in writable if socket.fileno() in ready],
            [],
        )


def _pending(socket: Any) -> bool:
    return hasattr(socket, "pending") and socket.pending() > 0


class SecureConnection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, with logins by `ZooKeeperSecurity.new_login`."""

    def __init__(self, client: KazooClient, security: ZooKeeperSecurity, on_ready: Callable[[], None]) -> None:
        super().__init__(
            client,
            client._conn_retry.copy(),
            logger=client.logger,
            sasl_options=None if security.new_login is None else {},
        )
        self._security = security
        self._on_ready = on_ready
        self.is_login_refused = False
        """Whether the last login failed, which ends the session."""

    def _connect(self, host: str, address: str, port: int) -> Any:
        timeouts = super()._connect(host, address, port)
        self._on_ready()
        return timeouts

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in. A connection that breaks in between is tried again, as any other."""
        assert self._security.new_login is not None
        challenge, request_id = None, 0
        try:
            login = self._security.new_login(host)
            while (token := login.respond(challenge)) is not None:
                request_id += 1
                self._submit(SASL(token), timeout, request_id)
                header, buffer, offset = self._read_header(timeout)
                if header.err:
                    kind = EXCEPTIONS[header.err].__name__ if header.err in EXCEPTIONS else f"error {header.err}"
                    raise LoginRefused(f"ZooKeeper responds with {kind}")
                challenge = SASL.deserialize(buffer, offset)[0] or b""
        except LoginRefused as error:
            self.is_login_refused = True
            raise AuthFailedError(f"ZooKeeper at {host} refuses the login of {self._security.user}: {error}") from error
        except LoginUnavailable as error:
            raise ConnectionDropped(f"no login to ZooKeeper at {host}: {error}") from error


def secure(client: KazooClient, security: ZooKeeperSecurity, on_ready: Callable[[], None]) -> SecureConnection:
    """Give a client that was not started its connection. `on_ready` is called in the client's thread."""
    connection = client._connection = SecureConnection(client, security, on_ready)
    return connection


def new_client(hosts: str, security: ZooKeeperSecurity, *, session_timeout_seconds: float = 10.0) -> KazooClient:
    """Return a client for programs that wait for each response. It begins with its `start`."""
    handler = SecureHandler(session_timeout_seconds, security)
    client = KazooClient(hosts, timeout=session_timeout_seconds, handler=handler)
    secure(client, security, lambda: None)
    return client
