"""Small responses that wait for the end of a turn of the event loop, and then leave one after the other.

A write wakes its client. If that sleeps on another processor, the wake-up costs several microseconds, more than the
rest of the write. The writes at the end of a turn follow each other closely, so most of them find the processor of
their clients awake, and the responses share two readings of the clock. With 16 clients that have one request in flight
each, this saves 5 to 16 % of the CPU time of a request, by the kind of request.

A client that is served alone would only wait. So responses wait only after those of two connections have followed each
other at once, until `ALONE_MAX` turns have had one response each. Responses that were awaited have a `TurnWrites` of
their own: a consumer that waits for records, and the producer that wakes it, are not two clients served together.

Owns which connections have responses that wait, and when they are sent. Must not know what is sent, or how.

Invariant: a response waits for the present turn of the event loop at most, and not for work that is known to be long:
`flush` is called before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.network.connection import Connection

TOGETHER_S: Final = 0.000_2
"""Responses of two connections within this time belong to one turn, as far as that can be known cheaply."""
ALONE_MAX: Final = 16
AGE_MAX_S: Final = 0.001
"""How old the first response may be when another one is added: then all are sent."""


class TurnWrites:
    """The connections of one listener that have a response of one kind to send in this turn."""

    __slots__ = ("_alone_count", "_connections", "_first_s", "_last", "_last_s", "_monotonic_s", "is_worthwhile")

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._connections: list[Connection] = []
        self._first_s = 0.0
        """When the first of them was added."""
        self._last: Connection | None = None
        self._last_s = 0.0
        self._alone_count = 0
        self.is_worthwhile = False
        """Whether responses had better wait: those of several connections come together."""

    def note(self, connection: Connection, now_s: float) -> None:
        """Note that a request was done at `now_s` (monotonic seconds), and its response, if any, written at once."""
        if self._last is not connection:
            self._last = connection
            if now_s - self._last_s < TOGETHER_S:
                self.is_worthwhile = True
                self._alone_count = 0
        self._last_s = now_s

    def add(self, connection: Connection) -> None:
        """Write what waits, and note the completed requests as sent: at the end of this turn, or now."""
        connections = self._connections
        connections.append(connection)
        if len(connections) == 1:
            self._first_s = self._monotonic_s()
            asyncio.get_running_loop().call_soon(self.flush)
        elif self._monotonic_s() - self._first_s > AGE_MAX_S:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        connections = self._connections
        if not connections:
            return
        self._connections = []
        sending_since_s = self._monotonic_s()
        for connection in connections:
            connection.write_waiting()
        now_s = self._monotonic_s()
        for connection in connections:
            connection.channel.sent(now_s, sending_since_s)
        if len(connections) > 1:
            self._alone_count = 0
        else:
            self._alone_count += 1
            self.is_worthwhile = self._alone_count < ALONE_MAX
