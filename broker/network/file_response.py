"""An answer with parts that stay in their files: the kernel sends them from the page cache, uncopied.

Owns the order of its pieces. Must not know what they say, or when the socket takes more.

The event loop's own transports write from memory alone, so this writes around them, to a descriptor that stays theirs.

What the kernel sends from a file it does not copy: the socket holds on to pages of the cache. What its buffer was set
to bounds memory, so for these answers it may be more. Then the reader goes on while the broker sleeps: with 100 KB,
Kafka's default, both sides have to wake up for every 100 to 200 KB, which took a fifth of the CPU time of 1 MB.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from storage.files import FileSlice

Buffer = bytes | bytearray | memoryview

# What a socket may hold of files, at least.
SEND_BUFFER_SIZE = 256 << 10

# After so many bytes others get their turn, however fast they are taken.
TURN_SIZE_MAX = 1 << 20


class FileResponse:
    """Pieces on their way to one socket, to which nothing else is written meanwhile."""

    def __init__(self, descriptor: int, pieces: Iterable[Buffer | FileSlice], send_buffer_size: int) -> None:
        """`descriptor` is of a socket that does not block and has nothing waiting, and open until `discard`.

        `send_buffer_size` is what its buffer was set to, and is again afterwards; -1: the kernel decides.
        """
        self._descriptor = descriptor
        self._pieces = deque(pieces)
        self._sent = 0  # of the first piece
        self._send_buffer_size = send_buffer_size
        self._is_buffer_raised = False

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
        if 0 <= self._send_buffer_size < SEND_BUFFER_SIZE and not self._is_buffer_raised:
            self._set_buffer_size(SEND_BUFFER_SIZE)
            self._is_buffer_raised = True
        try:
            while pieces:
                if left <= 0:
                    return False
                # A socket that took less than it got is asked once more: meanwhile its reader has mostly made room, and
                # to be woken up for that costs more.
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
            return piece.send(self._descriptor, self._sent, size_max)
        # What follows fills the packet up; a header alone would wake its reader for nothing.
        flags = socket.MSG_MORE if len(self._pieces) > 1 else 0
        with _Lent(self._descriptor) as stream:
            return stream.send(memoryview(piece)[self._sent :], flags)

    def discard(self) -> None:
        """Let go of the files and the socket. Harmless the second time."""
        self._pieces.clear()
        if self._is_buffer_raised:
            self._is_buffer_raised = False
            with suppress(OSError):  # then it is of no use to anybody
                self._set_buffer_size(self._send_buffer_size)

    def _set_buffer_size(self, size: int) -> None:
        with _Lent(self._descriptor) as stream:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


class _Lent(socket.socket):
    """A descriptor that stays its owner's, as a socket for as long as a `with` takes."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)  # to send, any family will do

    def __exit__(self, *_: object) -> None:
        self.detach()
