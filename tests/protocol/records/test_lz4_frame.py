import random

import lz4.frame
import pytest

from protocol.errors import Malformed
from protocol.records.compression import Compression
from protocol.records.entries import entries
from protocol.records.lz4_frame import BLOCKS_MAX, opens_everywhere, with_historic_checksum, with_true_checksum

from .golden import golden_logs

PLAIN = b"some text " * 30
VALUE_POSITION_OF_MAGIC_0 = 26  # of a wrapper, whose key is null


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("block_linked", [False, True])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_true_checksum_equals_that_of_the_library(*, store_size: bool, block_linked: bool, block_size: int) -> None:
    frame = lz4.frame.compress(PLAIN, store_size=store_size, block_linked=block_linked, block_size=block_size)
    position = 14 if store_size else 6
    for wrong in 0, 0x55, 0xFF:
        spoiled = bytearray(frame)
        spoiled[position] = wrong
        assert with_true_checksum(spoiled) == frame


def test_historic_checksum_equals_that_of_kafka_for_magic_0() -> None:
    frames = [
        log.data[entry.position + VALUE_POSITION_OF_MAGIC_0 : entry.end]
        for log in golden_logs()
        if log.magic == 0
        for entry in entries(log.data)
        if entry.header.compression is Compression.LZ4
    ]
    assert frames
    for frame in frames:
        with pytest.raises(RuntimeError):
            lz4.frame.decompress(frame)
        true = with_true_checksum(frame)
        assert lz4.frame.decompress(true)
        assert true != frame
        assert with_historic_checksum(true) == frame


@pytest.mark.parametrize("size", range(15))
def test_incomplete_header_is_malformed(size: int) -> None:
    frame = lz4.frame.compress(PLAIN, store_size=True)
    with pytest.raises(Malformed):
        with_true_checksum(frame[:size])


@pytest.mark.parametrize("block_linked", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("size", [1, 100_000, 300_000])
def test_java_opens_one_frame_of_independent_blocks(
    *, block_linked: bool, content_checksum: bool, block_checksum: bool, store_size: bool, size: int
) -> None:
    frame = lz4.frame.compress(
        random.Random(size).randbytes(size // 2) + bytes(size - size // 2),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=block_linked,
        content_checksum=content_checksum,
        block_checksum=block_checksum,
        store_size=store_size,
    )
    # The library links no blocks if there is one only.
    assert opens_everywhere(frame) is (size == 1 or not block_linked)
    assert not opens_everywhere(frame + frame), "Java ignores what follows the first frame"


@pytest.mark.parametrize("size", range(20))
def test_no_part_of_a_frame_opens_everywhere(size: int) -> None:
    frame = lz4.frame.compress(b"some text", block_linked=False)
    assert opens_everywhere(frame[:size]) is (size >= len(frame))


def test_java_opens_no_dictionaries_and_no_skippable_frames() -> None:
    frame = lz4.frame.compress(PLAIN, block_linked=False)
    with_dictionary = bytearray(frame)
    with_dictionary[4] |= 1
    assert not opens_everywhere(with_dictionary)
    assert not opens_everywhere(b"\x50\x2a\x4d\x18\0\0\0\0" + frame)


@pytest.mark.parametrize(("blocks", "expected"), [(BLOCKS_MAX, True), (BLOCKS_MAX + 1, False)])
def test_the_look_at_a_frame_ends_after_a_number_of_blocks(blocks: int, *, expected: bool) -> None:
    header = lz4.frame.compress(b"", block_linked=False)[:7]
    assert opens_everywhere(header + b"\x01\0\0\x80x" * blocks + bytes(4)) is expected
