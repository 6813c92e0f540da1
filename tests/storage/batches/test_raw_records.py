"""The cleaner's reader of records against the one of the protocol, and records that are written again."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from protocol.errors import Malformed
from protocol.records.batch import HEADER_SIZE, parse_records, read_header
from protocol.records.builder import RecordData, build_batch
from storage.batches.raw_records import boundaries, read_keys, rebase, timestamp_delta


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
def test_reader_returns_the_same_keys_as_that_of_the_protocol(seed: int) -> None:
    content = make_batch(Random(seed))
    header = read_header(content)
    plain = content[HEADER_SIZE:]
    expected = list(parse_records([plain], header))
    found = read_keys(plain, header.records_count)
    assert found.keys == [record.key for record in expected]
    assert found.tombstones == [number for number, record in enumerate(expected) if record.value is None]
    bounds = boundaries(plain, header.records_count)
    assert len(bounds) == len(expected) + 1
    deltas = [timestamp_delta(plain[start:end]) for start, end in pairwise(bounds)]
    assert deltas == [record.timestamp - header.base_timestamp for record in expected]


@pytest.mark.parametrize("shift", [0, 1, -1, 70, 2**41, -(2**41)])
def test_rebased_records_keep_their_content_and_timestamps(shift: int) -> None:
    content = make_batch(Random(1))
    header = read_header(content)
    plain = content[HEADER_SIZE:]
    kept = [plain[start:end] for start, end in pairwise(boundaries(plain, header.records_count))][::2]
    moved = header._replace(base_timestamp=header.base_timestamp - shift, records_count=len(kept))
    rebased = rebase(kept, shift)
    expected = list(parse_records([plain], header))[::2]
    assert list(parse_records([rebased.content], moved)) == expected
    assert rebased.timestamp_delta_max == max(record.timestamp for record in expected) - header.base_timestamp


@pytest.mark.parametrize("read", [read_keys, boundaries])
def test_truncated_records_and_wrong_counts_are_malformed(read: Callable[[bytes, int], object]) -> None:
    plain = build_batch([RecordData(0, b"key", b"value") for _ in range(3)])[HEADER_SIZE:]
    read(plain, 3)
    for size in range(len(plain)):
        with pytest.raises(Malformed):
            read(plain[:size], 3)
    for count in (0, 1, 2, 4):
        with pytest.raises(Malformed):
            read(plain, count)
