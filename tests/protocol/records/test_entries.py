import pytest

from protocol.errors import Malformed
from protocol.records.batch import Record
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.entries import entries, entry_records
from protocol.records.legacy import build_message_set
from tests.support.entries import entry_crc_is_valid

SIZE_MAX = 1 << 20


def old(magic: int, *offsets: int, compression: Compression = Compression.NONE) -> bytes:
    return build_message_set(
        [Record(offset, 10 if magic else -1, None, b"%d" % offset, []) for offset in offsets],
        magic=magic,
        compression=compression,
    )


MIXED = (
    old(0, 0, 1)
    + old(0, 2, 3, compression=Compression.SNAPPY)
    + old(1, 4)
    + old(1, 5, 6, compression=Compression.GZIP)
    + build_batch([RecordData(10, None, b"7"), RecordData(10, None, b"8")], base_offset=7)
    + old(1, 9)
)


def test_mixed_formats_are_read() -> None:
    read = list(entries(MIXED))
    assert [(entry.header.magic, entry.header.last_offset) for entry in read] == [
        (0, 0),
        (0, 1),
        (0, 3),
        (1, 4),
        (1, 6),
        (2, 8),
        (1, 9),
    ]
    assert [entry.position for entry in read[1:]] == [entry.end for entry in read[:-1]]
    assert read[-1].end == len(MIXED)
    assert all(entry_crc_is_valid(MIXED, entry) for entry in read)
    opened = [record for entry in read for record in entry_records(MIXED, entry.position, size_max=SIZE_MAX)]
    assert [(record.offset, record.value) for record in opened] == [(n, b"%d" % n) for n in range(10)]


def test_a_partial_last_entry_ends_the_iteration() -> None:
    ends = [entry.end for entry in entries(MIXED)]
    for size in range(len(MIXED)):
        assert [entry.end for entry in entries(MIXED[:size])] == [end for end in ends if end <= size]


@pytest.mark.parametrize("magic", [3, 255])
def test_another_magic_is_malformed(magic: int) -> None:
    data = bytearray(MIXED)
    data[16] = magic
    with pytest.raises(Malformed):
        list(entries(data))


def test_too_small_entry_size_is_malformed() -> None:
    for length in 0, -12, -(2**31), 4:
        data = bytearray(MIXED)
        data[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(Malformed):
            list(entries(data))


def test_wrong_crc_is_detected_in_every_format() -> None:
    for index in range(len(list(entries(MIXED)))):
        data = bytearray(MIXED)
        data[list(entries(MIXED))[index].end - 1] ^= 1
        assert [entry_crc_is_valid(data, entry) for entry in entries(data)].index(False) == index


@pytest.mark.parametrize("size", [0, 10, 16, 17, 20, 60])
def test_records_of_an_incomplete_entry_are_malformed(size: int) -> None:
    for data in old(0, 0), old(1, 0), build_batch([RecordData(10, None, b"7")]):
        with pytest.raises(Malformed):
            list(entry_records(data[: min(size, len(data) - 1)], size_max=SIZE_MAX))
