"""The index of aborted transactions: exact bytes, truncation, and what is refused."""

from pathlib import Path

import pytest

from storage.files import OsFiles
from storage.mapped_index import CorruptIndexError
from storage.transaction_index import AbortedTransaction, TransactionIndex, parse

FIRST = AbortedTransaction(3, 41, 44, 45)
SECOND = AbortedTransaction(1004, 43, 60, 50)
BYTES = bytes.fromhex("00000000000000000003" + "0000000000000029" + "000000000000002c" + "000000000000002d")


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    return TransactionIndex(OsFiles(), str(tmp_path / "x.txnindex"))


def test_the_file_appears_with_the_first_entry(index: TransactionIndex) -> None:
    assert index.entries() == ()
    index.truncate_to(0)
    assert not Path(index.path).exists()
    index.append(FIRST)
    assert Path(index.path).read_bytes() == BYTES
    index.append(SECOND)
    index.release()
    assert index.entries() == (FIRST, SECOND)


@pytest.mark.parametrize(("offset", "left"), [(61, 2), (60, 1), (44, 0), (45, 1)])
def test_truncation_goes_by_the_marker(index: TransactionIndex, offset: int, left: int) -> None:
    index.append(FIRST)
    index.append(SECOND)
    index.truncate_to(offset)
    assert index.entries() == (FIRST, SECOND)[:left]
    index.release()
    assert index.entries() == (FIRST, SECOND)[:left]


def test_markers_must_rise(index: TransactionIndex) -> None:
    index.append(SECOND)
    with pytest.raises(CorruptIndexError):
        index.append(FIRST)


@pytest.mark.parametrize(
    "content", [BYTES[:-1], BYTES + b"x", BYTES + BYTES, b"\x00\x01" + BYTES[2:], bytes(34)[:-1] + b"\x01" + bytes(33)]
)
def test_damage_is_refused_with_the_path(content: bytes) -> None:
    with pytest.raises(CorruptIndexError, match="the path"):
        parse(content, "the path")
