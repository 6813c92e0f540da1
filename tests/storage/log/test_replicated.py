"""Fetched batches in pieces: together they are what was fetched, and none is lost that an append has left."""

from __future__ import annotations

import struct

import pytest

from protocol.records.builder import RecordData, build_batch
from storage.log.replicated import end_of_piece, start_of_rest


def batches(*base_offsets: int) -> memoryview:
    records = bytearray()
    for base_offset in base_offsets:
        batch = bytearray(build_batch([RecordData(timestamp=1, key=None, value=b"v")]))
        struct.pack_into(">q", batch, 0, base_offset)
        records += batch
    return memoryview(records)


SIZE = len(batches(0))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.log.replicated.PIECE_BATCHES", 3)


@pytest.mark.parametrize("cut", [0, 1, 11, 12, SIZE - 1])
def test_pieces_end_with_batches_and_the_last_one_with_the_bytes(cut: int) -> None:
    records = batches(*range(7))[: 7 * SIZE - cut]
    assert end_of_piece(records, 0) == 3 * SIZE
    assert end_of_piece(records, 3 * SIZE) == 6 * SIZE
    assert end_of_piece(records, 6 * SIZE) == len(records)


def test_no_bytes_are_one_empty_piece() -> None:
    assert (end_of_piece(memoryview(b""), 0), start_of_rest(memoryview(b""), 0, 5)) == (0, 0)


def test_rest_starts_with_the_first_batch_that_the_log_lacks() -> None:
    records = batches(5, 6, 2**40, 2**40 + 1)
    assert [start_of_rest(records, 0, end) // SIZE for end in (5, 6, 7, 2**40 + 1, 2**40 + 2)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 2**31 - 1])
def test_wrong_length_ends_the_walk(length: int) -> None:
    records = batches(0, 1)
    struct.pack_into(">i", records, 8, length)
    assert end_of_piece(records, 0) > 0
    assert start_of_rest(records, 0, 2) > 0
