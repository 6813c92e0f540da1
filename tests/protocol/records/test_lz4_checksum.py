import lz4.frame
import pytest

from protocol.errors import Malformed
from protocol.records.compression import Compression
from protocol.records.entries import entries
from protocol.records.lz4_checksum import with_historic_checksum, with_true_checksum

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
