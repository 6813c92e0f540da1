"""The memory of responses that clients do not read fast enough.

Owns: the bound of this memory over all connections, and which fetches wait and which connections are closed when it is
used up. Must not know: sockets or requests. Delays are in milliseconds.

A connection is listed here while its socket is full and its unsent bytes in memory are not few. The more bytes are
listed, the smaller the response that a fetch may get (`allowance`): one slow reader gets all that it requests, a
thousand of them share the rest. Once the memory is used up, fetches wait for room. A reader that has read nothing for
`STUCK_MS` then loses its connection, so that others do not wait forever. It also loses its connection when responses to
other requests, which never wait, have exceeded the bound.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

UNSENT_SIZE_MAX = 128 << 20
STUCK_MS = 3_000
"""How long a reader may read nothing while others wait for room, or while the bound is exceeded."""

# One response may take the free memory divided by this, so that many readers that are slow together all get a part.
SHARES = 16
ALLOWANCE_MIN = 64 << 10

# A response from files has few bytes in memory, mostly its end: closing its connection would free almost nothing.
LISTED_SIZE_MIN = 64 << 10
WAKE_INTERVAL_MS = 1


class SlowReader(Protocol):
    """A connection with unsent bytes whose socket is full."""

    @property
    def unsent_size(self) -> int:
        """Unsent bytes in the memory of this process."""

    @property
    def size_left(self) -> int:
        """Unsent bytes, in memory and in files."""

    def abort(self) -> None:
        """Close the connection immediately. A call of `UnsentResponses.drained` follows."""


class UnsentResponses:
    """All responses of one broker that wait for slow readers."""

    def __init__(
        self, call_later: Callable[[int, Callable[[], None]], object], size_max: int = UNSENT_SIZE_MAX
    ) -> None:
        """`call_later(delay_ms, callback)` calls `callback` once; `size_max` bounds the unsent bytes."""
        self._call_later = call_later
        self._size_max = size_max
        self._sizes: dict[SlowReader, int] = {}
        self._seen: dict[SlowReader, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_watching = False
        self._is_waking = False
        self.size = 0
        """Unsent bytes at the time when their connections were listed; bytes sent since then still count."""
        self.allowance = self._size_max
        """How many bytes the response to a fetch may have now; 0 if the fetch has to wait for room."""
        self.evicted_count = 0

    @property
    def is_full(self) -> bool:
        return self.size >= self._size_max

    @property
    def _is_exceeded(self) -> bool:
        """Whether the bound is exceeded. That can happen because only fetches wait for room."""
        return self.size > self._size_max

    def blocked(self, reader: SlowReader) -> None:
        """List `reader`: its socket is full."""
        size = reader.unsent_size
        if size >= LISTED_SIZE_MIN:
            self._sizes[reader] = size
            self._change(size)
            if self._is_exceeded:
                self._watch()

    def drained(self, reader: SlowReader) -> None:
        """Unlist `reader`: nearly all of its bytes are sent, or it is closed. Has no effect if it is not listed."""
        size = self._sizes.pop(reader, 0)
        if size:
            self._change(-size)
            self._wake()

    def reserve(self, size: int) -> None:
        """Count `size` bytes of a response that is being built, until `release`."""
        self._change(size)

    def release(self, size: int) -> None:
        """Uncount `size` reserved bytes: their response is complete, or was given up."""
        self._change(-size)
        self._wake()

    async def room(self) -> None:
        """Wait until a fetch may build its response."""
        while self.is_full:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self._watch()
            await waiting

    def allowance_with(self, reserved: int) -> int:
        """Return how many bytes a response may have now if `reserved` of them are counted already."""
        return self._allowed(self.size - reserved)

    def _change(self, by: int) -> None:
        self.size += by
        self.allowance = self._allowed(self.size)

    def _allowed(self, others: int) -> int:
        if others == 0:
            return self._size_max
        left = self._size_max - others
        return max(left // SHARES, ALLOWANCE_MIN) if left > 0 else 0

    def _wake(self) -> None:
        """Wake one waiting fetch; the next one later, when that response is built, and listed if its reader is slow.

        Fetches that wake together would all build their responses before the first response is counted.
        """
        if self._is_waking:
            return
        while self._waiting and not self.is_full:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                self._is_waking = True
                self._call_later(WAKE_INTERVAL_MS, self._wake_next)
                return

    def _wake_next(self) -> None:
        self._is_waking = False
        self._wake()

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._seen = {reader: reader.size_left for reader in self._sizes}
            self._call_later(STUCK_MS, self._close_stuck)

    def _close_stuck(self) -> None:
        """Close readers that took nothing since `_watch`, oldest first, until half of the memory is free."""
        self._is_watching = False
        to_free = self.size - self._size_max // 2  # an aborted connection stays listed until it is closed
        for reader, size in self._seen.items():
            if to_free <= 0:
                break
            listed_size = self._sizes.get(reader)
            if listed_size is not None and reader.size_left == size:
                self.evicted_count += 1
                to_free -= listed_size
                reader.abort()
        self._seen = {}
        if self._is_exceeded or any(not waiting.done() for waiting in self._waiting):
            self._watch()
