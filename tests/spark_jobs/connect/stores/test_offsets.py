"""Offsets of sources by key, and the store in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.stores.java_map_file import read_map, write_map
from spark_jobs.connect.stores.offsets import ConnectorOffsets, FileOffsets, OffsetTable

PARTITION = {"a": 1, "b": "x"}


def test_a_key_that_a_java_worker_has_written_is_kept_with_its_order_of_fields() -> None:
    table = OffsetTable()
    table.read(b'["c",{"b":"x","a":1}]', b'{"at":5}')
    assert table.offset("c", PARTITION) == {"at": 5}
    assert table.messages("c", [(PARTITION, {"at": 6})]) == [(b'["c",{"b":"x","a":1}]', b'{"at":6}')]


def test_a_new_key_is_written_as_java_does() -> None:
    assert OffsetTable().messages("ü", [(PARTITION, None)]) == [('["ü",{"a":1,"b":"x"}]'.encode(), None)]


def test_a_name_that_is_not_utf_8_is_stored_and_found_again() -> None:
    table = OffsetTable()
    partition = {"file": "\udcff.txt"}
    ((key, value),) = table.messages("c", [(partition, {"at": 5})])
    table.read(key, value)
    assert table.all_of("c") == [(partition, {"at": 5})]


@pytest.mark.parametrize("deletion", [None, b"null"])
def test_a_deleted_offset_is_forgotten(deletion: bytes | None) -> None:
    table = OffsetTable()
    table.read(b'["c",{"a":1}]', b'{"at":5}')
    table.read(b'["c",{"a":2}]', b'{"at":6}')
    table.read(b'["c",{"a":1}]', deletion)
    assert table.offset("c", {"a": 1}) is None
    assert table.all_of("c") == [({"a": 2}, {"at": 6})]
    assert table.all_of("other") == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"5", b"{}"),
        (b'["c"]', b"{}"),
        (b'["c",{},1]', b"{}"),
        (b"[5,{}]", b"{}"),
        (b'["c",[]]', b"{}"),
        (b'["c",{}]', b"5"),
        (b'["c",{}]', b"\xff"),
        (b"[" * 100_000, b"{}"),
    ],
)
def test_a_record_that_is_no_offset_is_refused_and_changes_nothing(key: bytes | None, value: bytes) -> None:
    table = OffsetTable()
    with pytest.raises(ValueError, match="expected"):
        table.read(key, value)
    assert table.entries() == {}


def test_the_file_keeps_the_offsets_of_all_connectors(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    first = FileOffsets(path)
    first.start()
    assert ConnectorOffsets(first, "c").store([({"a": 1}, {"at": 1}), ({"a": 2}, {"at": 2})], 1.0)
    assert first.store("d", [({"a": 1}, {"at": 3})], 1.0)
    assert first.store("c", [({"a": 2}, None)], 1.0)
    second = FileOffsets(path)
    second.start()
    assert second.all_of("c") == [({"a": 1}, {"at": 1})]
    assert ConnectorOffsets(second, "d").offsets([{"a": 1}, {"a": 2}]) == [{"at": 3}, None]
    assert read_map(path) == {b'["c",{"a":1}]': b'{"at":1}', b'["d",{"a":1}]': b'{"at":3}'}


@pytest.mark.parametrize("key", [b"5", b"not json", b'["c",{}'])
def test_a_file_with_a_false_key_is_refused(key: bytes, tmp_path: Path) -> None:
    write_map(tmp_path / "offsets", {key: b"{}"})
    with pytest.raises(ConnectError, match="has an invalid key"):
        FileOffsets(tmp_path / "offsets").start()


def test_a_file_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="cannot be read"):
        FileOffsets(tmp_path).start()
    assert not FileOffsets(tmp_path / "missing" / "offsets").store("c", [({}, {})], 1.0)
