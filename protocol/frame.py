"""Frames in a byte stream: an int32 length, then that many bytes.

Owns how received bytes are cut into frames, and where the next bytes of a peer are stored. Must not know sockets, or
what a frame contains.

All connections of a listener receive into one shared scratch buffer. A frame that arrives whole is returned as a view
into it and never copied:

    scratch:  [length|frame][length|frame][length|fra     the last frame is incomplete
    settle() copies the rest into a buffer of the connection, sized for that frame:
    own:      [length|fra.......]                         its remaining bytes are received in place

Per-connection buffers of 256 KiB instead would take 1.3 GB for 5,000 idle connections.

Invariants: a view from `next_frame` is valid until `settle` or `vacate`; after either, nothing refers to the scratch
buffer. A view from `sole_frame` is valid until the next receive on any connection of the listener.
"""

from __future__ import annotations

import mmap
import struct

from protocol.errors import Malformed

LENGTH = struct.Struct(">i")
LENGTH_SIZE = LENGTH.size
_unpack_length = LENGTH.unpack_from

SCRATCH_SIZE = 256 << 10
"""Size in bytes of the buffer into which the connections of a listener receive."""

# The sender announces the size of a frame, but memory must follow the bytes received. Buffers of this size or more are
# anonymous mappings, whose pages the kernel allocates when they are written. Growing a buffer instead would copy its
# content, and copying tens of megabytes blocks the event loop for as many milliseconds.
MAPPED_FROM_SIZE = 2 << 20

# Smaller buffers are zeroed when allocated. So they start with this size, or GROWTH times the bytes received if that is
# more, and grow.
GROWN_FROM_SIZE = 16 << 10
GROWTH = 4


def kept(frame: memoryview) -> memoryview:
    """Return `frame` in memory that stays valid after the call that received it.

    A frame larger than the scratch buffer is in a buffer of its own, which is not written again, and is not copied.
    """
    return frame if len(frame) > SCRATCH_SIZE else memoryview(bytearray(frame))


class FrameTooLarge(Malformed):
    """The announced length is negative or above the limit of the listener."""


class FrameReader:
    """Cuts the byte stream of one connection into frames.

    Use: ``received(recv_into(writable()))``, then ``next_frame()`` until it returns None, then ``settle()``.
    """

    __slots__ = ("_end", "_own", "_scratch", "_source", "_start", "size_max")

    def __init__(self, scratch: memoryview, size_max: int) -> None:
        self._own: memoryview | None = None
        self.limit(scratch, size_max)
        self._start = 0
        self._end = 0

    def limit(self, scratch: memoryview, size_max: int) -> None:
        """Accept frames of up to `size_max` bytes from the next one on. `scratch` is the whole buffer of the reader."""
        self.size_max = size_max
        # So a whole frame in it is never too large.
        self._scratch = scratch[: LENGTH_SIZE + size_max] if len(scratch) > LENGTH_SIZE + size_max else scratch
        if self._own is None:
            self._source = self._scratch

    @property
    def kept_size(self) -> int:
        """The number of bytes that wait in the connection's own buffer."""
        return self._end - self._start if self._own is not None else 0

    @property
    def arriving_size(self) -> int:
        """The size of the incomplete frame; 0 if there is none, or if its length has not arrived."""
        left = self.kept_size
        wanted = self._size_wanted(left) if left >= LENGTH_SIZE else 0
        return wanted if wanted > left else 0

    def writable(self) -> memoryview:
        """Return the buffer for the next bytes of the peer; never empty."""
        own = self._own
        if own is None:
            return self._scratch
        if self._end == len(own):
            own = self._grow(own)
        return own[self._end :]

    def received(self, count: int) -> None:
        """Record that `count` bytes were written to the start of the buffer from `writable`."""
        self._end += count

    def sole_frame(self, count: int) -> memoryview | None:
        """Return the frame, without its length, if the `count` bytes just written are exactly one frame.

        This is the usual case, and needs neither `received` nor `settle`. It returns None otherwise, or if bytes are
        kept; then call `received`.
        """
        if self._own is None and count >= LENGTH_SIZE:
            (size,) = _unpack_length(self._scratch)
            if size == count - LENGTH_SIZE:
                return self._scratch[LENGTH_SIZE:count]
        return None

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its length, or None if more bytes are needed.

        Raises:
            FrameTooLarge: the stream cannot be read any further.
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
        """Release the scratch buffer to other connections; `next_frame` may continue before the next receive.

        Unlike `settle` it does not move bytes that are in the connection's own buffer already.
        """
        if self._own is None:
            self.settle()

    def settle(self) -> None:
        """Invalidate the frames returned so far, and move the remaining bytes out of the scratch buffer."""
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
        """Allocate `size` bytes; a mapping gets space for one more read, so that it need not be copied for that."""
        if size < MAPPED_FROM_SIZE:
            return memoryview(bytearray(size))
        return memoryview(mmap.mmap(-1, size + len(self._scratch)))

    def _size_now(self, left: int) -> int:
        """Return the size of a buffer for the first frame, of which `left` bytes have arrived; at least `left`."""
        wanted = self._size_wanted(left)
        if wanted < MAPPED_FROM_SIZE:
            wanted = min(wanted, max(GROWTH * left, GROWN_FROM_SIZE))
        return max(left, wanted)

    def _size_wanted(self, left: int) -> int:
        """Return the size of the first frame with its length, or LENGTH_SIZE if the length is unknown or invalid."""
        if left < LENGTH_SIZE:
            return LENGTH_SIZE
        (size,) = LENGTH.unpack_from(self._source, self._start)
        return LENGTH_SIZE + int(size) if 0 <= size <= self.size_max else LENGTH_SIZE

    def _grow(self, own: memoryview) -> memoryview:
        wanted = self._size_now(self._end - self._start)
        # The first frame is complete and its response pending: allow one more read, then reading pauses.
        larger = self._buffer(wanted if wanted > len(own) else len(own) + len(self._scratch))
        larger[: self._end] = own[: self._end]
        self._own = self._source = larger
        return larger
