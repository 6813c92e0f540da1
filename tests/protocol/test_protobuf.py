"""Fields of Protocol Buffers: each wire type, and bytes that are none."""

from __future__ import annotations

import pytest

from protocol.protobuf import fields, varint


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", []),
        ("0801", [(1, 0, 1)]),
        ("08ac02", [(1, 0, 300)]),
        ("09 0102030405060708", [(1, 1, b"\1\2\3\4\5\6\7\x08")]),
        ("1d 01020304", [(3, 5, b"\1\2\3\4")]),
        ("12 03 616263 0800", [(2, 2, b"abc"), (1, 0, 0)]),
        ("8201 00", [(16, 2, b"")]),
        ("08 ffffffffffffffffff01", [(1, 0, (1 << 64) - 1)]),
    ],
)
def test_fields_are_yielded_in_order(data: str, expected: list[tuple[int, int, object]]) -> None:
    assert list(fields(memoryview(bytes.fromhex(data)))) == expected


@pytest.mark.parametrize(
    "data",
    ["08", "88", "0880", "08 ffffffffffffffffffff01", "09 01", "1d 0102", "12", "12 05 6162", "0b", "0c", "0e", "0f"],
)
def test_damaged_fields_are_refused(data: str) -> None:
    with pytest.raises(ValueError, match=r"cut off|wire type"):
        list(fields(memoryview(bytes.fromhex(data))))


def test_a_number_ends_where_the_next_begins() -> None:
    assert varint(b"\xac\x02\x07", 0) == (300, 2)
    assert varint(b"\xac\x02\x07", 2) == (7, 3)
