"""The memory that requests take up while they arrive (`queued.max.request.bytes`), and connections that keep to it.

Owns: who holds how much, and who waits for some. Must not know what a request says.

A request that arrives whole is served out of the buffer that all connections share and takes nothing. One that is cut
off takes what its length announces, at once and in one piece, so that whoever has begun can also finish; while any
memory is left, the next request is admitted, even if it needs more than is left. A connection that gets none is not
read until others have finished.
"""

from __future__ import annotations

from collections import OrderedDict

from broker.network.channel import Channel, Hold
from broker.network.connection import Connection, Dispatcher, Registry
from broker.network.unsent_responses import UnsentResponses
from protocol.frame import FrameReader


class RequestMemory:
    """All requests of one broker that are arriving."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._size_left = size_max
        self._taken: dict[AccountedConnection, int] = {}
        self._waiting: OrderedDict[AccountedConnection, None] = OrderedDict()

    @property
    def size_left(self) -> int:
        """Below 0 by less than one request."""
        return self._size_left

    def take(self, connection: AccountedConnection, size: int) -> bool:
        """Whether `connection` may receive a request of `size` bytes; if not it is released when it may.

        Asked again about the same request it says the same; another size is another request.
        """
        if self._taken.get(connection) == size:
            return True
        self.give_back(connection)
        if self._size_left <= 0:
            self._waiting[connection] = None
            return False
        self._taken[connection] = size
        self._size_left -= size
        return True

    def give_back(self, connection: AccountedConnection) -> None:
        """The request is served. Harmless when nothing was taken."""
        size = self._taken.pop(connection, 0)
        if not size:
            return
        self._size_left += size
        while self._waiting and self._size_left > 0:
            waiting, _ = self._waiting.popitem(last=False)
            self.take(waiting, waiting.arriving_size)
            waiting.release(Hold.REQUEST_MEMORY)

    def forget(self, connection: AccountedConnection) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
        self.give_back(connection)


class AccountedConnection(Connection):
    """A connection whose large requests come out of a `RequestMemory`."""

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
        if not self.arriving_size:
            self._memory.give_back(self)
        elif not self._memory.take(self, self.arriving_size):
            self.hold(Hold.REQUEST_MEMORY)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._memory.forget(self)
