"""The file of a standalone worker against those that Java writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.stores.java_map_file import read_map, write_map
from tests.spark_jobs.connect.golden.record_group import recorded

FILES = recorded("files")
ONE = bytes.fromhex(FILES[1]["bytes"])


def entries(file: dict[str, Any]) -> dict[bytes, bytes | None]:
    return {key.encode(): None if value is None else value.encode() for key, value in file["entries"]}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(len(file["entries"])))
def test_a_file_is_equal_to_that_of_java(file: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    write_map(path, entries(file))
    assert path.read_bytes().hex() == file["bytes"]
    assert read_map(path) == entries(file)


def test_a_missing_and_an_empty_file_have_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    assert read_map(path) == {}
    path.touch()
    assert read_map(path) == {}


def test_many_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    many: dict[bytes, bytes | None] = {b"%d" % number: bytes(number) for number in range(1_000)}
    write_map(tmp_path / "offsets", many)
    assert read_map(tmp_path / "offsets") == many


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    for length in range(1, len(ONE)):
        assert_refused(tmp_path, ONE[:length])


def test_a_file_with_more_behind_the_map_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path, ONE + b"x")


def test_another_class_is_not_looked_up(tmp_path: Path) -> None:
    assert_refused(tmp_path, ONE.replace(b"java.util.HashMap", b"java.util.Hashtab"))


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_a_false_number_of_entries_is_refused(count: bytes, tmp_path: Path) -> None:
    position = ONE.index(b"\x77\x08") + 6
    assert_refused(tmp_path, ONE[:position] + count + ONE[position + 4 :])


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_a_false_length_of_a_key_is_refused(length: bytes, tmp_path: Path) -> None:
    position = ONE.index(b'["c"') - 4
    assert_refused(tmp_path, ONE[:position] + length + ONE[position + 4 :])


def assert_refused(folder: Path, content: bytes) -> None:
    path = folder / "offsets"
    path.write_bytes(content)
    with pytest.raises(ConnectError, match="is not a file of offsets of a standalone worker"):
        read_map(path)
