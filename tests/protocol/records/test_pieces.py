"""The cursor against its dumb twin, a joined buffer; wherever the pieces are cut."""

import random
from collections.abc import Iterator

import pytest

from protocol.errors import Malformed
from protocol.records.compression import CannotOpen
from protocol.records.pieces import PieceReader
from protocol.records.plain_records import varint


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    """The data in pieces of random size, some of them empty."""
    pieces = []
    while data:
        size = rng.choice((0, 1, 1, 2, 5, 40))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("seed", range(20))
def test_reader_returns_the_bytes_of_the_joined_pieces(seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(500)
    reader = PieceReader(cut(data, rng))
    position = 0
    while position < len(data) - 60:
        size = rng.randrange(50)
        match rng.randrange(4):
            case 0:
                assert reader.take(size) == data[position : position + size]
            case 1:
                reader.skip(size)
            case 2:
                assert reader.ensure(size)
                assert reader.data[reader.position : reader.position + size] == data[position : position + size]
                size = 0
            case 3:
                value, end = varint(data, position, len(data), 32)
                if end > len(data):
                    with pytest.raises(Malformed, match="more than 32 bits"):
                        reader.varint()
                    return
                assert reader.varint() == value
                size = end - position
        position += size
        assert reader.offset == position
        assert not reader.is_at_end()
    assert reader.drain() == len(data) - position
    assert reader.is_at_end()


def test_read_beyond_the_end_raises_index_error() -> None:
    for read in (lambda r: r.take(4), lambda r: r.skip(4), lambda r: r.varint()):
        with pytest.raises(IndexError):
            read(PieceReader([b"\x80", b"", b"\x80\x80"]))
    assert not PieceReader([b"abc"]).ensure(4)
    assert PieceReader([]).is_at_end()


def test_damaged_stream_raises_another_error_than_its_end() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"\x80"
        raise CannotOpen("damaged")

    for read in (lambda r: r.take(4), lambda r: r.skip(4), lambda r: r.varint(), lambda r: r.drain()):
        with pytest.raises(CannotOpen):
            read(PieceReader(pieces()))
