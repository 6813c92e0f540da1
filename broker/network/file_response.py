"""A response with parts of files, which the kernel sends from the page cache without a copy.

Owns the order of its pieces. Must not know their content, or when the socket is writable again.

The event loop's transports write from memory only. So this class writes to the socket directly, through a descriptor
that the transport still owns.

The configured size of a socket's send buffer bounds memory. Bytes of a file take no memory of their own, as the socket
refers to pages of the cache. So the buffer may be larger for these responses, and the client can read while the broker
sleeps. With 100 KB, Kafka's default, both sides wake up for every 100 to 200 KB: a fifth of the CPU time of 1 MB.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from base.file_slice import FileSlice
from base.system_calls import SYSTEM_CALLS

Buffer = bytes | bytearray | memoryview

# The least send buffer, in bytes, of a socket that sends a file.
SEND_BUFFER_SIZE = 256 << 10

# After this many bytes other connections are served, however fast the client reads.
TURN_SIZE_MAX = 1 << 20


class FileResponse:
    """The pieces of one response to one socket. Nothing else may be written to the socket until all are sent."""

    def __init__(self, descriptor: int, pieces: Iterable[Buffer | FileSlice], send_buffer_size: int) -> None:
        """`descriptor` is of a non-blocking socket without unsent bytes, and stays open until `discard`.

        `send_buffer_size` is its configured `SO_SNDBUF` in bytes, which is restored at the end; -1 if the kernel
        chooses it.
        """
        self._descriptor = descriptor
        self._pieces = deque(pieces)
        self._sent = 0  # of the first piece
        self._send_buffer_size = send_buffer_size
        self._is_buffer_raised = False

    @property
    def size_in_memory(self) -> int:
        """Unsent bytes in the memory of this process."""
        return sum(len(piece) for piece in self._pieces if type(piece) is not FileSlice)

    @property
    def size_left(self) -> int:
        """Unsent bytes, in memory and in files."""
        return sum(map(len, self._pieces)) - self._sent

    def send(self) -> bool:
        """Send as many bytes as the socket accepts in one turn; return whether all are sent.

        Raises:
            OSError: The connection has to be closed.
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
                # Try again even after a partial send: by then the client has usually read some bytes, and a second call
                # costs less than a wake-up.
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
        # MSG_MORE lets the next piece fill the packet; a packet with only a header would wake the client too early.
        flags = SYSTEM_CALLS.more_flag if len(self._pieces) > 1 else 0
        with _Lent(self._descriptor) as stream:
            return stream.send(memoryview(piece)[self._sent :], flags)

    def discard(self) -> None:
        """Release the files and restore the socket's buffer size. A second call has no effect."""
        self._pieces.clear()
        if self._is_buffer_raised:
            self._is_buffer_raised = False
            with suppress(OSError):  # the socket is broken, so its buffer size does not matter
                self._set_buffer_size(self._send_buffer_size)

    def _set_buffer_size(self, size: int) -> None:
        with _Lent(self._descriptor) as stream:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


class _Lent(socket.socket):
    """A socket object for a borrowed descriptor: the end of the `with` block detaches it without closing it."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)  # the family does not matter for sends

    def __exit__(self, *_: object) -> None:
        self.detach()
