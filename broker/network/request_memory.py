"""The memory of requests while they arrive (`queued.max.request.bytes`), and the connections that observe its limit.

Owns: how much memory each connection holds, and which connections wait for some. Must not know what a request means.

A request that arrives whole is served from the receive buffer that all connections share and is not counted. A request
that arrives in parts takes its whole announced length in one step, so that a connection that has begun can finish.
While any memory is left, the next request is admitted, even if it needs more than is left. A connection that gets none
is not read until others have finished. What a client sends before it has logged in is not counted: its size has a limit
of its own, and clients without a login must not use up the memory of the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from broker.network.channel import Authentication, Channel, Hold
from broker.network.connection import Connection, Dispatcher, Registry
from broker.network.unsent_responses import UnsentResponses
from protocol.frame import FrameReader


class RequestMemory:
    """The memory of all arriving requests that share one limit."""

    def __init__(self, size_max: int, monotonic_s: Callable[[], float]) -> None:
        self.size_max = size_max
        self._monotonic_s = monotonic_s
        self._depleted_s = 0.0
        self._depleted_since_s: float | None = None
        self._size_left = size_max
        self._taken: dict[AccountedConnection, int] = {}
        self._waiting: OrderedDict[AccountedConnection, None] = OrderedDict()

    @property
    def size_left(self) -> int:
        """Free bytes; negative by less than one request when the last admitted request exceeds the limit."""
        return self._size_left

    @property
    def depleted_s(self) -> float:
        """For how long a connection waited for bytes, in seconds since the start."""
        since_s = self._depleted_since_s
        return self._depleted_s if since_s is None else self._depleted_s + self._monotonic_s() - since_s

    def take(self, connection: AccountedConnection, size: int) -> bool:
        """Reserve `size` bytes for the request that `connection` receives; return whether that succeeded.

        If not, the connection waits, and is released from `Hold.REQUEST_MEMORY` once it has its bytes. Another call for
        the same request returns the same; another size means another request.
        """
        if self._taken.get(connection) == size:
            return True
        self.give_back(connection)
        if self._size_left <= 0:
            self._waiting[connection] = None
            if self._depleted_since_s is None:
                self._depleted_since_s = self._monotonic_s()
            return False
        self._taken[connection] = size
        self._size_left -= size
        return True

    def give_back(self, connection: AccountedConnection) -> None:
        """Release the bytes of `connection`: its request is served. Has no effect if it holds none."""
        size = self._taken.pop(connection, 0)
        if not size:
            return
        self._size_left += size
        while self._waiting and self._size_left > 0:
            waiting, _ = self._waiting.popitem(last=False)
            self.take(waiting, waiting.arriving_size)
            waiting.release(Hold.REQUEST_MEMORY)
        self._end_of_waiting()

    def forget(self, connection: AccountedConnection) -> None:
        """Release the bytes and the place in the queue of a closed connection."""
        self._waiting.pop(connection, None)
        self.give_back(connection)
        self._end_of_waiting()

    def _end_of_waiting(self) -> None:
        if self._depleted_since_s is not None and not self._waiting:
            self._depleted_s += self._monotonic_s() - self._depleted_since_s
            self._depleted_since_s = None


class AccountedConnection(Connection):
    """A connection that reserves the memory of its large requests in a `RequestMemory`."""

    __slots__ = ("_memory",)

    def __init__(
        self,
        registry: Registry,
        dispatcher: Dispatcher,
        reader: FrameReader,
        unsent: UnsentResponses,
        channel: Channel,
        memory: RequestMemory,
    ) -> None:
        super().__init__(registry, dispatcher, reader, unsent, channel)
        self._memory = memory

    @property
    def arriving_size(self) -> int:
        return self._reader.arriving_size

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        if not self.arriving_size or self.channel.authentication is Authentication.PENDING:
            self._memory.give_back(self)
        elif not self._memory.take(self, self.arriving_size):
            self.hold(Hold.REQUEST_MEMORY)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._memory.forget(self)
