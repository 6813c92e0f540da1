"""A cursor over plain bytes that come in pieces, for example from a decompressor.

Owns the position across pieces: a caller reads `data` from `position` as far as that reaches, stores the position where
it stopped, and calls a method to read what continues in the next piece. Must not know what the bytes mean.

Invariants: `position` never exceeds the size of `data`; only the current piece is kept, and what `take` or `ensure` has
joined; CannotOpen of the iterator is passed on.
"""

from collections.abc import Callable, Iterable, Iterator

from protocol.errors import Malformed


class PieceReader:
    """Reads pieces from the first byte to the last. Methods raise IndexError at the end of the bytes."""

    __slots__ = ("_passed", "_pieces", "data", "position")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._passed = 0
        self.data = next(self._pieces, b"")
        self.position = 0

    @property
    def offset(self) -> int:
        """The number of bytes read so far."""
        return self._passed + self.position

    def is_at_end(self) -> bool:
        while self.position == len(self.data):
            if not self._next_piece():
                return True
        return False

    def varint(self, bits: int = 32) -> int:
        """Read a zigzag varint.

        Raises:
            Malformed: it has more than `bits` bits.
        """
        value = 0
        for shift in range(0, bits, 7):
            if self.is_at_end():
                raise IndexError
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            value = 1 << bits
        if value >> bits:
            raise Malformed(f"varint of more than {bits} bits")
        return value >> 1 ^ -(value & 1)

    def chunks(self, count: int) -> Iterator[bytes]:
        """Yield the next `count` bytes as they lie in the pieces."""
        while count:
            if self.is_at_end():
                raise IndexError
            chunk = self.data[self.position : self.position + count]
            self.position += len(chunk)
            count -= len(chunk)
            yield chunk

    def take(self, count: int) -> bytes:
        return b"".join(self.chunks(count))

    def skip(self, count: int) -> None:
        while count:
            if self.is_at_end():
                raise IndexError
            step = min(count, len(self.data) - self.position)
            self.position += step
            count -= step

    def drain(self) -> int:
        """Skip the remaining bytes; return their number."""
        start = self.offset
        while not self.is_at_end():
            self.position = len(self.data)
        return self.offset - start

    def ensure(self, count: int) -> bool:
        """Join pieces until `data` holds the next `count` bytes; return False if there are fewer."""
        while len(self.data) - self.position < count:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._passed += self.position
            self.data = self.data[self.position :] + piece
            self.position = 0
        return True

    def _next_piece(self) -> bool:
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._passed += len(self.data)
        self.data = piece
        self.position = 0
        return True


class Chunks:
    """A field of `size` bytes that is too large to be joined.

    Iterating reads it from a PieceReader: only once, and in the order of the fields.
    """

    __slots__ = ("_chunks", "_is_null", "size")

    def __init__(self, size: int, chunks: Iterator[bytes], is_null: Callable[[], bool]) -> None:
        self.size = size
        self._chunks = chunks
        self._is_null = is_null

    def is_null(self) -> bool:
        """Return whether the field is null rather than empty. Call it once everything before the field was read."""
        return self._is_null()

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks
