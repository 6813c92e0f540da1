"""What Kafka's clients make of lz4 frames (lz4_Frame_format.md): a wrong checksum, and which frames they can open.

Owns the byte at the end of a frame's header: the second byte of xxHash-32 over the frame descriptor, which lies between
the magic number and the checksum. Clients before 0.10 included the magic number for messages of magic 0, brokers of
that time expect this, and libraries reject such a frame. Must not know messages: the caller chooses the checksum.
"""

from protocol.errors import Malformed
from protocol.records.compression import Buffer

_MAGIC = b"\x04\x22\x4d\x18"
_MAGIC_SIZE = 4
_FLAGS_POSITION = 4
_DESCRIPTOR_SIZE = 2  # flags and block descriptor
_CONTENT_SIZE_FLAG = 0x08
_CONTENT_SIZE_SIZE = 8
_CONTENT_CHECKSUM_FLAG = 0x04
_BLOCK_CHECKSUM_FLAG = 0x10
_CHECKSUM_SIZE = 4
_INDEPENDENT_BLOCKS_FLAG = 0x20
_BLOCK_SIZE_SIZE = 4
_UNCOMPRESSED_BLOCK_BIT = 1 << 31
_DICTIONARY_ID_FLAG = 0x01
_DICTIONARY_ID_SIZE = 4

BLOCKS_MAX = 1 << 15
"""The most that clients write: batches open to 2 GiB at most, and a block of a full frame to 64 KiB at least."""

_PRIMES = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def with_true_checksum(frame: Buffer) -> bytearray:
    """Return a copy of a frame with the header checksum that lz4 libraries require.

    Raises:
        Malformed: the frame header is cut off.
    """
    position = _checksum_position(frame)
    copy = bytearray(frame)
    copy[position] = _second_byte(_xxhash32_of_few(copy[_MAGIC_SIZE:position]))
    return copy


def with_historic_checksum(frame: Buffer) -> bytearray:
    """Return a copy of one of the broker's own frames (without content size) with the checksum of magic 0 clients."""
    position = _checksum_position(frame)
    copy = bytearray(frame)
    copy[position] = _second_byte(_xxhash32_of_few(copy[:position]))
    return copy


def opens_everywhere(data: Buffer) -> bool:
    """Return whether Kafka's Java classes open the same of `data` as the lz4 libraries do.

    They know one frame without a dictionary, whose blocks do not depend on earlier ones; what follows it they ignore.
    Of damaged data, which nobody can open, the result may be either. False as well for more than `BLOCKS_MAX` blocks.
    """
    if len(data) <= _FLAGS_POSITION or data[:_MAGIC_SIZE] != _MAGIC:
        return False
    flags = data[_FLAGS_POSITION]
    if not flags & _INDEPENDENT_BLOCKS_FLAG or flags & _DICTIONARY_ID_FLAG:
        return False
    position = _MAGIC_SIZE + _DESCRIPTOR_SIZE + 1
    if flags & _CONTENT_SIZE_FLAG:
        position += _CONTENT_SIZE_SIZE
    after_block = _CHECKSUM_SIZE if flags & _BLOCK_CHECKSUM_FLAG else 0
    for _ in range(BLOCKS_MAX + 1):
        size = int.from_bytes(data[position : position + _BLOCK_SIZE_SIZE], "little")
        position += _BLOCK_SIZE_SIZE
        if not size:
            return position + (_CHECKSUM_SIZE if flags & _CONTENT_CHECKSUM_FLAG else 0) == len(data)
        position += (size & ~_UNCOMPRESSED_BLOCK_BIT) + after_block
    return False


def _checksum_position(frame: Buffer) -> int:
    if len(frame) <= _FLAGS_POSITION:
        raise Malformed("lz4: the frame header is cut off")
    flags = frame[_FLAGS_POSITION]
    position = _MAGIC_SIZE + _DESCRIPTOR_SIZE
    if flags & _CONTENT_SIZE_FLAG:
        position += _CONTENT_SIZE_SIZE
    if flags & _DICTIONARY_ID_FLAG:
        position += _DICTIONARY_ID_SIZE
    if len(frame) <= position:
        raise Malformed("lz4: the frame header is cut off")
    return position


def _second_byte(digest: int) -> int:
    return digest >> 8 & 0xFF


def _xxhash32_of_few(data: bytearray) -> int:
    """Return xxHash-32 with seed 0 of less than 16 bytes, the most that a frame descriptor has."""
    assert len(data) < 16
    prime1, prime2, prime3, prime4, prime5 = _PRIMES
    digest = prime5 + len(data)
    words_end = len(data) & ~3
    for position in range(0, words_end, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        digest = _rotate_left(digest + word * prime3, 17) * prime4
    for byte in data[words_end:]:
        digest = _rotate_left(digest + byte * prime5, 11) * prime1
    digest &= _MASK
    digest = (digest ^ digest >> 15) * prime2 & _MASK
    digest = (digest ^ digest >> 13) * prime3 & _MASK
    return digest ^ digest >> 16


def _rotate_left(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
