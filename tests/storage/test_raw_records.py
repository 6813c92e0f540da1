"""The cleaner's reader of records against the one of the protocol, and records that are written again."""

from random import Random

import pytest

from protocol.errors import Malformed
from protocol.records.batch import HEADER_SIZE, parse_records, read_header
from protocol.records.builder import RecordData, build_batch
from storage.raw_records import encode, raw_records


def make_batch(random: Random) -> bytes:
    sizes = (0, 1, 63, 64, 8191, 8192)

    def text(is_nullable: bool) -> bytes | None:
        return None if is_nullable and random.random() < 0.2 else random.randbytes(random.choice(sizes))

    return build_batch(
        [
            RecordData(
                10**12 + random.choice((-(2**40), -70, -1, 0, 63, 64, 2**40)),
                text(True),
                text(True),
                [("header", text(True)) for _ in range(random.randrange(3))],
            )
            for _ in range(random.randint(1, 200))
        ]
    )


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_protocols_reader(seed: int) -> None:
    content = make_batch(Random(seed))
    header = read_header(content)
    expected = [
        (record.timestamp - header.base_timestamp, record.offset, record.key, record.value is not None)
        for record in parse_records(content[HEADER_SIZE:], header)
    ]
    found = raw_records(content[HEADER_SIZE:])
    assert [(delta, offset, key, has_value) for _, _, _, delta, offset, key, has_value in found] == expected


@pytest.mark.parametrize("shift", [0, 1, -1, 70, 2**41, -(2**41)])
def test_written_again_for_another_base_timestamp(shift: int) -> None:
    content = make_batch(Random(1))
    header = read_header(content)
    plain = content[HEADER_SIZE:]
    kept = raw_records(plain)[::2]
    moved = header._replace(base_timestamp=header.base_timestamp - shift, records_count=len(kept))
    assert list(parse_records(encode(plain, kept, shift), moved)) == list(parse_records(plain, header))[::2]


def test_every_truncation_is_malformed_or_whole_records() -> None:
    plain = build_batch([RecordData(0, b"key", b"value") for _ in range(3)])[HEADER_SIZE:]
    ends = {end for _, _, end, *_ in raw_records(plain)} | {0}
    for size in range(len(plain)):
        if size in ends:
            assert len(raw_records(plain[:size])) == sorted(ends).index(size)
        else:
            with pytest.raises(Malformed):
                raw_records(plain[:size])
