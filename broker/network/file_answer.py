"""An answer with parts that stay in their files: the kernel sends them from the page cache, uncopied.

Owns the order of its pieces, and a second descriptor of the socket until they are sent. Must not know what they say.

The event loop's own transports write from memory alone, and do not let their descriptor be watched by others. So a
duplicate is watched. It goes as soon as everything is sent: a connection ends with its last descriptor.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable

from storage.files import FileSlice

Buffer = bytes | bytearray | memoryview

# After so many bytes others get their turn, however fast they are taken.
TURN_SIZE_MAX = 1 << 20


class FileAnswer:
    """Pieces on their way to one socket, to which nothing else is written meanwhile."""

    def __init__(self, descriptor: int, pieces: Iterable[Buffer | FileSlice]) -> None:
        """`descriptor` is of a socket that does not block and has nothing waiting. Raises OSError: none are left."""
        self._stream = socket.socket(fileno=os.dup(descriptor))
        self._pieces = deque(pieces)
        self._sent = 0  # of the first piece
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def size_in_memory(self) -> int:
        """Bytes that wait in this process."""
        return sum(len(piece) for piece in self._pieces if type(piece) is not FileSlice)

    @property
    def size_left(self) -> int:
        """Bytes that are not sent, wherever they wait."""
        return sum(map(len, self._pieces)) - self._sent

    def send(self) -> bool:
        """Send what the socket takes in one turn; whether all is sent.

        Raises OSError: the connection has to be closed.
        """
        pieces = self._pieces
        left = TURN_SIZE_MAX
        try:
            while pieces:
                if left <= 0:
                    return False
                size = self._send_some(pieces[0], left)
                left -= size
                self._sent += size
                if self._sent == len(pieces[0]):
                    pieces.popleft()
                    self._sent = 0
        except BlockingIOError:
            return False
        self.discard()
        return True

    def _send_some(self, piece: Buffer | FileSlice, size_max: int) -> int:
        if isinstance(piece, FileSlice):
            return piece.send(self._stream.fileno(), self._sent, size_max)
        # What follows fills the packet up; a header alone would wake its reader for nothing.
        flags = socket.MSG_MORE if len(self._pieces) > 1 else 0
        return self._stream.send(memoryview(piece)[self._sent :], flags)

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back as often as the socket takes more, until all is sent or discarded."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_writer(self._stream, callback)

    def discard(self) -> None:
        """Let go of the files and the socket. Harmless the second time."""
        self._pieces.clear()
        if self._loop is not None:
            self._loop.remove_writer(self._stream)
            self._loop = None
        self._stream.close()
