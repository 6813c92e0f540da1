"""The check of whole batches of each codec, against a reader of records that shares no code with it.

The twin reads one byte after the other and knows only the format (docs/formats/record-batch.md). The check must accept
what the twin can read, and nothing else, wherever the records are changed.
"""

from random import Random

import pytest

from protocol.records.batch import Record
from protocol.records.compression import CannotOpen, Compression, compress, open_pieces
from protocol.records.plain_records import encode_records, timestamp_deltas
from protocol.records.regularity import are_regular_pieces

pytestmark = pytest.mark.usefixtures("form")

TIME = 1_700_000_000_000
SIZE_MAX = 1 << 20


class DamagedError(Exception):
    """The bytes are not what the format demands."""


class Twin:
    """Reads the records; `times` are their timestamp deltas."""

    def __init__(self, data: bytes) -> None:
        self.rest = list(reversed(data))
        self.times: list[int] = []
        self.has_keys = True

    def byte(self) -> int:
        if not self.rest:
            raise DamagedError
        return self.rest.pop()

    def number(self, bits: int = 32) -> int:
        value = 0
        for index in range((bits + 6) // 7):
            byte = self.byte()
            value += (byte % 128) * 128**index
            if byte < 128:
                break
        else:
            raise DamagedError
        if value >= 2**bits:
            raise DamagedError
        return -(value + 1) // 2 if value % 2 else value // 2

    def field(self, *, may_be_null: bool = True) -> bool:
        size = self.number()
        if size < 0:
            if not may_be_null:
                raise DamagedError
            return False
        if size > len(self.rest):
            raise DamagedError
        del self.rest[len(self.rest) - size :]
        return True

    def record(self, offset_delta: int) -> None:
        size = self.number()
        left = len(self.rest)
        if size < 0:
            raise DamagedError
        self.byte()
        self.times.append(self.number(64))
        if self.number() != offset_delta:
            raise DamagedError
        self.has_keys &= self.field()
        self.field()
        headers = self.number()
        if headers < 0:
            raise DamagedError
        for _ in range(headers):
            self.field(may_be_null=False)
            self.field()
        if left - len(self.rest) != size:
            raise DamagedError


def read(data: bytes, count: int) -> Twin | None:
    """Return what the twin has read; None if the data are not exactly `count` records with consecutive offsets."""
    twin = Twin(data)
    try:
        for offset_delta in range(count):
            twin.record(offset_delta)
    except DamagedError:
        return None
    return None if twin.rest else twin


def some_records(rng: Random) -> tuple[bytes, int]:
    """Return records, and their number, as applications send them: most batches vary in a few ways, some in all."""
    keys = rng.choice(([None], [b"k" * 11], [bytes(size) for size in range(12)], [None, b"", bytes(63), bytes(70)]))
    sizes = rng.choice((range(100, 101), range(40, 70), range(45, 280), range(20), range(8170, 8200)))
    headers = rng.choice(([[]], [[("h", b"1")]], [[], [("h", None)], [("h", bytes(rng.randrange(70)))]]))
    times = rng.choice((range(1), range(60), range(200), range(-70, 70), range(-(10**9), 10**13, 10**9)))
    count = rng.choice((1, 2, 7, 20, 63, 66, 140)) if sizes.start < 1000 else 12
    rows = [
        Record(n, TIME + rng.choice(times), rng.choice(keys), bytes(rng.choice(sizes)), rng.choice(headers))
        for n in range(count)
    ]
    return encode_records(rows, 0, TIME), count


def changed(data: bytes, rng: Random) -> bytes:
    mutated = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(mutated))
        mutated[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, mutated[at] ^ 1, mutated[at] + 2 & 0xFF))
    if rng.random() < 0.1:
        del mutated[rng.randrange(len(mutated)) :]
    return bytes(mutated)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("seed", range(3))
def test_check_accepts_what_a_reader_of_single_records_can_read(codec: Compression, seed: int) -> None:
    rng = Random(f"{codec} {seed}")
    accepted = 0
    for _ in range(20):
        plain, count = some_records(rng)
        for _ in range(6):
            data = changed(plain, rng) if rng.random() < 0.7 else plain
            claimed = count + (rng.choice((-1, 1)) if rng.random() < 0.1 else 0)
            twin = read(data, claimed)
            pieces = list(open_pieces(codec, compress(codec, data), size_max=SIZE_MAX))
            assert are_regular_pieces(pieces, claimed) == (twin is not None)
            assert are_regular_pieces(pieces, claimed, needs_keys=True) == (twin is not None and twin.has_keys)
            if twin is not None:
                accepted += 1
                assert timestamp_deltas(data, claimed) == (min(twin.times), max(twin.times))
    assert 20 < accepted < 115, "some are rejected"


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_changed_compressed_bytes_open_to_what_was_sent_or_are_checked_again(codec: Compression) -> None:
    rng = Random(codec)
    for _ in range(20):
        plain, count = some_records(rng)
        sent = compress(codec, plain)
        for _ in range(10):
            try:
                pieces = list(open_pieces(codec, changed(sent, rng), size_max=SIZE_MAX))
            except CannotOpen:
                continue
            assert are_regular_pieces(pieces, count) == (read(b"".join(pieces), count) is not None)
