"""Frames on a byte stream: an int32 length, then that many bytes.

Owns: how received bytes are cut into frames, and where the next bytes of a peer are put. Must not know: sockets, or
what a frame says.

All connections of a listener receive into one shared scratch buffer: a frame that arrives whole is handed out as a
view into it and never copied. Only what is left when the bytes end in the middle of a frame moves into a buffer of
the connection's own, sized for that frame, so that the rest of a large frame is received in place. A quarter-megabyte
buffer a connection would cost 1.3 GB for 5,000 idle ones.

Invariants: a view from `next_frame` is valid until `settle` or `vacate`; after either nothing refers to the scratch
buffer. One from `sole_frame` is valid until anything is received, on whichever connection.
"""

from __future__ import annotations

import mmap
import struct

from protocol.errors import Malformed

LENGTH = struct.Struct(">i")
LENGTH_SIZE = LENGTH.size
_unpack_length = LENGTH.unpack_from

SCRATCH_SIZE = 256 << 10
"""Bytes of the buffer that the connections of a listener receive into."""

# A frame is announced by its sender: memory follows the bytes that really came, not the announcement. Buffers from this
# size on are anonymous maps, whose pages the kernel provides as they are written to. To let a buffer grow instead would
# copy what has come, and tens of megabytes hold the event loop for as many milliseconds.
MAPPED_FROM_SIZE = 2 << 20

# Smaller buffers are filled with zeros when they are made, so they have room for this much, or for so many times what
# has come if that is more, and grow.
GROWN_FROM_SIZE = 16 << 10
GROWTH = 4


def kept(frame: memoryview) -> memoryview:
    """Return `frame` in memory that stays valid after the call for which it was handed out.

    One that is larger than the scratch buffer lies in a buffer that is not written to again.
    """
    return frame if len(frame) > SCRATCH_SIZE else memoryview(bytearray(frame))


class FrameTooLarge(Malformed):
    """The announced length is negative or above the limit of the listener."""


class FrameReader:
    """Cuts one connection's byte stream into frames.

    Use: ``received(recv_into(writable()))``, then ``next_frame()`` until None, then ``settle()``.
    """

    __slots__ = ("_end", "_own", "_scratch", "_source", "_start", "size_max")

    def __init__(self, scratch: memoryview, size_max: int) -> None:
        self.size_max = size_max
        if len(scratch) > LENGTH_SIZE + size_max:
            scratch = scratch[: LENGTH_SIZE + size_max]  # what is there whole is then never too large
        self._scratch = scratch
        self._source = scratch
        self._own: memoryview | None = None
        self._start = 0
        self._end = 0

    @property
    def kept_size(self) -> int:
        """Bytes that wait in the connection's own buffer."""
        return self._end - self._start if self._own is not None else 0

    @property
    def arriving_size(self) -> int:
        """What the frame that is cut off takes up; 0 when there is none, or it has not announced it yet."""
        left = self.kept_size
        wanted = self._size_wanted(left) if left >= LENGTH_SIZE else 0
        return wanted if wanted > left else 0

    def writable(self) -> memoryview:
        """Where the next bytes of the peer go; never empty."""
        own = self._own
        if own is None:
            return self._scratch
        if self._end == len(own):
            own = self._grow(own)
        return own[self._end :]

    def received(self, count: int) -> None:
        """`count` bytes were written to the start of what `writable` returned."""
        self._end += count

    def sole_frame(self, count: int) -> memoryview | None:
        """The frame without its length if the `count` bytes just written are one whole frame and nothing was kept.

        That is what most peers send most of the time. Nothing is to be counted or settled then. None otherwise: go on
        with `received`.
        """
        if self._own is None and count >= LENGTH_SIZE:
            (size,) = _unpack_length(self._scratch)
            if size == count - LENGTH_SIZE:
                return self._scratch[LENGTH_SIZE:count]
        return None

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None when more bytes are needed.

        Raises FrameTooLarge; the stream cannot be read any further then.
        """
        start = self._start
        if self._end - start < LENGTH_SIZE:
            return None
        (size,) = LENGTH.unpack_from(self._source, start)
        if not 0 <= size <= self.size_max:
            raise FrameTooLarge(f"frame length {size}, expected 0 to {self.size_max}")
        stop = start + LENGTH_SIZE + size
        if stop > self._end:
            return None
        self._start = stop
        return self._source[start + LENGTH_SIZE : stop]

    def vacate(self) -> None:
        """Leave the scratch buffer to other connections; `next_frame` goes on later, before anything is received.

        Unlike `settle` it moves nothing that is in a buffer of its own already.
        """
        if self._own is None:
            self.settle()

    def settle(self) -> None:
        """Done with the frames handed out: move what is left out of the scratch buffer."""
        left = self._end - self._start
        if left == 0:
            self._own = None
            self._source = self._scratch
        elif self._own is None or self._start > 0:
            self._keep(left)
        else:
            return
        self._start = 0
        self._end = left

    def _keep(self, left: int) -> None:
        own = self._buffer(self._size_now(left))
        own[:left] = self._source[self._start : self._end]
        self._own = self._source = own

    def _buffer(self, size: int) -> memoryview:
        """Room for `size` bytes; a large one has room for one more read, so that it need not be copied for it."""
        if size < MAPPED_FROM_SIZE:
            return memoryview(bytearray(size))
        return memoryview(mmap.mmap(-1, size + len(self._scratch)))

    def _size_now(self, left: int) -> int:
        """Bytes of a buffer for the first frame, of which `left` bytes are here; at least `left`."""
        wanted = self._size_wanted(left)
        if wanted < MAPPED_FROM_SIZE:
            wanted = min(wanted, max(GROWTH * left, GROWN_FROM_SIZE))
        return max(left, wanted)

    def _size_wanted(self, left: int) -> int:
        """Bytes of the first frame that is left, length included, as far as its length is known and legal."""
        if left < LENGTH_SIZE:
            return LENGTH_SIZE
        (size,) = LENGTH.unpack_from(self._source, self._start)
        return LENGTH_SIZE + int(size) if 0 <= size <= self.size_max else LENGTH_SIZE

    def _grow(self, own: memoryview) -> memoryview:
        wanted = self._size_now(self._end - self._start)
        # All of the first frame is here (its answer is awaited): room for one more read, then reading pauses.
        larger = self._buffer(wanted if wanted > len(own) else len(own) + len(self._scratch))
        larger[: self._end] = own[: self._end]
        self._own = self._source = larger
        return larger
