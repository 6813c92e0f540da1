"""The memory that answers take up which their clients do not read fast enough.

Owns: how much there may be of it over all connections, and who has to wait or go when there is too much. Must not know:
sockets or requests. The time is an argument, in milliseconds of a clock that only rises.

A connection is listed here while more waits in it than its socket takes; what is little is nobody's concern. The more
is listed, the smaller the answers that a fetch may still make (`allowance`), so that one slow reader gets what it asks
for and a thousand of them share the rest. Once nothing is left, fetches wait for room; a reader that has not taken
a byte for a while then loses its connection rather than keep others waiting for ever. It also loses it when responses
to other requests, which never wait, have exceeded the bound.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

UNSENT_SIZE_MAX = 128 << 20
STUCK_MS = 3_000
"""How long a reader may take nothing while others wait for room, or the bound is exceeded."""

# One answer may take this part of what is left: many readers that are slow in the same moment all get something.
SHARES = 16
ALLOWANCE_MIN = 64 << 10

# What waits with a reader of files is mostly the end of its answer: to close it would free nothing.
LISTED_SIZE_MIN = 64 << 10
WAKE_INTERVAL_MS = 1


class SlowReader(Protocol):
    """A connection with more to send than its socket takes."""

    @property
    def unsent_size(self) -> int:
        """Bytes that wait in this process."""

    @property
    def size_left(self) -> int:
        """Bytes that are not sent, in this process or in files."""

    def abort(self) -> None:
        """Close at once. `UnsentResponses.drained` follows."""


class UnsentResponses:
    """All answers of one broker that wait for slow readers."""

    def __init__(
        self, call_later: Callable[[int, Callable[[], None]], object], size_max: int = UNSENT_SIZE_MAX
    ) -> None:
        """`call_later(delay_ms, callback)` is how it comes back to readers that may be stuck."""
        self._call_later = call_later
        self._size_max = size_max
        self._sizes: dict[SlowReader, int] = {}
        self._seen: dict[SlowReader, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_watching = False
        self._is_waking = False
        self.size = 0
        """Bytes that waited when their connections were listed; what was sent since is still counted."""
        self.allowance = self._size_max
        """How many bytes an answer to a fetch may have now; 0 when it has to wait for room."""
        self.evicted_count = 0

    @property
    def is_full(self) -> bool:
        return self.size >= self._size_max

    @property
    def _is_exceeded(self) -> bool:
        """Only fetches wait for room: other responses may take more than there is."""
        return self.size > self._size_max

    def blocked(self, reader: SlowReader) -> None:
        """`reader` takes no more for now."""
        size = reader.unsent_size
        if size >= LISTED_SIZE_MIN:
            self._sizes[reader] = size
            self._change(size)
            if self._is_exceeded:
                self._watch()

    def drained(self, reader: SlowReader) -> None:
        """`reader` has taken nearly all, or is gone. Harmless for one that is not listed."""
        size = self._sizes.pop(reader, 0)
        if size:
            self._change(-size)
            self._wake()

    def reserve(self, size: int) -> None:
        """Count `size` bytes of an answer in the making until `release`."""
        self._change(size)

    def release(self, size: int) -> None:
        """The answer with `size` reserved bytes is made, or will not be."""
        self._change(-size)
        self._wake()

    async def room(self) -> None:
        """Return when an answer may be made."""
        while self.is_full:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self._watch()
            await waiting

    def _change(self, by: int) -> None:
        self.size += by
        left = self._size_max - self.size
        if self.size == 0:
            self.allowance = self._size_max
        else:
            self.allowance = max(left // SHARES, ALLOWANCE_MIN) if left > 0 else 0

    def _wake(self) -> None:
        """Let one go on; the next one when that answer is made, and listed if it does not drain.

        All at once would make their answers before the first of them counts.
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
        """Those that took nothing since they were looked at last, longest first, until half of the memory is free."""
        self._is_watching = False
        to_free = self.size - self._size_max // 2  # an aborted connection is off the list only when it is gone
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
