"""Small text files: exact bytes, round trips, and an error that names file and line for whatever is wrong."""

import gc
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from base.topic_partition import TopicPartition
from storage.directories.log_directory import LogDirectory
from storage.disk import checkpoints, meta_properties
from storage.disk.checkpoints import EpochStart, MalformedCheckpointError
from storage.disk.files import OsFiles
from storage.disk.meta_properties import MetaProperties, WrongDirectoryError

FILES = OsFiles()


def test_written_offsets_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    offsets = {("a", 0): 17, ("b.c-d", 12): 0}
    checkpoints.write_offsets(FILES, str(path), offsets)
    assert path.read_bytes() == b"0\n2\na 0 17\nb.c-d 12 0\n"
    assert checkpoints.read_offsets(FILES, str(path)) == offsets
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


def test_written_leader_epochs_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    entries = [EpochStart(10, 0), EpochStart(18, 1)]
    checkpoints.write_leader_epochs(FILES, str(path), entries)
    assert path.read_bytes() == b"0\n2\n10 0\n18 1\n"
    assert checkpoints.read_leader_epochs(FILES, str(path)) == entries
    checkpoints.write_leader_epochs(FILES, str(path), [])
    assert checkpoints.read_leader_epochs(FILES, str(path)) == []


def test_written_topic_id_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(b"version: 0\ntopic_id: krjTCcBgSvyOjmyBm_Pb-g")
    topic_id = checkpoints.read_partition_metadata(FILES, str(path))
    assert topic_id == uuid.UUID("92b8d309-c060-4afc-8e8e-6c819bf3dbfa")
    expected = path.read_bytes()
    checkpoints.write_partition_metadata(FILES, str(path), topic_id)
    assert path.read_bytes() == expected


@pytest.mark.parametrize("content", [None, b""])
def test_missing_and_empty_files_have_no_entries(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)
    assert checkpoints.read_offsets(FILES, str(path)) == {}
    assert checkpoints.read_leader_epochs(FILES, str(path)) is None
    assert checkpoints.read_partition_metadata(FILES, str(path)) is None


MALFORMED_OFFSETS = {
    b"1\n0\n": "line 1",
    b"garbage": "line 1",
    b"0\n": "line 2",
    b"0\nx\n": "line 2",
    b"0\n2\na 0 1\n": "line 2",
    b"0\n1\na 0 1\nb 0 1\n": "line 2",
    b"0\n1\na 0\n": "line 3",
    b"0\n2\na 0 1\na 0 -1\n": "line 4",
    b"0\n1\na x 1\n": "line 3",
    b"0\n1\na 0 %s\n" % (b"9" * 5000): "line 3",
    b"0\n%s\n" % (b"1" * 5000): "line 2",
    "0\n1\na 0 \u0663\n".encode(): "line 3",
    bytes(40): "line 1",
}


@pytest.mark.parametrize(("content", "line"), MALFORMED_OFFSETS.items())
def test_malformed_offsets_are_rejected_with_their_line(tmp_path: Path, content: bytes, line: str) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(MalformedCheckpointError, match=f"replication-offset-checkpoint {line}"):
        checkpoints.read_offsets(FILES, str(path))


SALVAGED = {
    b"0\n3\na 0 1\nb 0 -2\nc 0 3\n": {("a", 0): 1, ("c", 0): 3},
    b"0\n5\na 0 1\nb 0 2\n": {("a", 0): 1, ("b", 0): 2},
    b"0\n2\na 0 1\nb 0 2": {("a", 0): 1},
}


@pytest.mark.parametrize(("content", "expected"), SALVAGED.items())
def test_lines_that_can_be_read_are_used(tmp_path: Path, content: bytes, expected: dict[tuple[str, int], int]) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_bytes(content)
    reported: list[str] = []
    assert checkpoints.read_whole_offsets(FILES, str(path), reported.append) == expected
    (text,) = reported
    assert text.startswith(f"{path} line ")
    assert text.endswith(f"; the {len(expected)} lines that can be read are used")


@pytest.mark.parametrize("content", [b"1\n1\na 0 1\n", bytes(40), b"0", b"0\n", b"0\n1\na 0\n", b"0\nx\na 0 1\n"])
def test_no_line_of_another_format_is_used(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(MalformedCheckpointError):
        checkpoints.read_whole_offsets(FILES, str(path), lambda text: None)


def test_one_damaged_line_leaves_the_log_starts_and_high_watermarks_of_other_logs(tmp_path: Path) -> None:
    directory = LogDirectory(FILES, str(tmp_path))
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / name).write_bytes(b"0\n2\na 0 7\nb 0 x\n")
    reported: list[str] = []
    assert directory.read_log_starts(reported.append) == {("a", 0): 7}
    assert directory.read_high_watermarks(reported.append) == {("a", 0): 7}
    assert len(reported) == 2


@pytest.mark.parametrize("content", [b"0\n1\n5\n", b"0\n2\n5 0\n4 9\n", b"0\n2\n5 9\n6 9\n", b"0\n1\n5 0 0\n"])
def test_malformed_leader_epochs_are_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "epochs"
    path.write_bytes(content)
    with pytest.raises(MalformedCheckpointError, match="epochs line"):
        checkpoints.read_leader_epochs(FILES, str(path))


def test_no_part_of_a_file_counts_as_a_whole_one(tmp_path: Path) -> None:
    """A power cut may leave any part of a file that was not synced: `1 2` of `1 29` is another offset."""
    path = tmp_path / "epochs"
    checkpoints.write_leader_epochs(FILES, str(path), [EpochStart(0, 0), EpochStart(1, 29)])
    content = path.read_bytes()
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(MalformedCheckpointError, match="epochs line"):
            checkpoints.read_leader_epochs(FILES, str(path))


@pytest.mark.parametrize(
    "content", [b"version: 1\ntopic_id: x", b"version: 0\n", b"version: 0\ntopic_id: short", bytes(9)]
)
def test_malformed_partition_metadata_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(content)
    with pytest.raises(MalformedCheckpointError, match=r"partition\.metadata"):
        checkpoints.read_partition_metadata(FILES, str(path))


def test_meta_properties_are_read_back_and_verified(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.properties")
    assert meta_properties.read(FILES, path) is None
    meta_properties.write(FILES, path, MetaProperties(3, "7ym0r3ycTc-XAnwnQmXzjg"))
    found = meta_properties.read(FILES, path)
    assert found == MetaProperties(3, "7ym0r3ycTc-XAnwnQmXzjg")
    meta_properties.verify(found, path, broker_id=3, cluster_id=None)
    with pytest.raises(WrongDirectoryError, match=r"meta\.properties: broker\.id is 3, expected 4"):
        meta_properties.verify(found, path, broker_id=4, cluster_id=None)
    with pytest.raises(WrongDirectoryError, match=r'cluster\.id is "7ym0r3ycTc-XAnwnQmXzjg", expected "other"'):
        meta_properties.verify(found, path, broker_id=3, cluster_id="other")


@pytest.mark.parametrize(
    ("text", "meta"),
    [
        ("version=0\nbroker.id=1\n", MetaProperties(1, None)),
        ("version=0\nbroker.id=1\ncluster.id=\n", MetaProperties(1, None)),
        ("version=0\ncluster.id=x\n", MetaProperties(None, "x")),
        ("version=0\n", MetaProperties(None, None)),
    ],
)
def test_meta_properties_of_early_releases_match_any_id_that_they_lack(
    tmp_path: Path, text: str, meta: MetaProperties
) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(text)
    found = meta_properties.read(FILES, str(path))
    assert found == meta
    meta_properties.verify(meta, str(path), broker_id=1, cluster_id="x")
    for key, wrong in (("broker_id", 2), ("cluster_id", "y")):
        if getattr(meta, key) is not None:
            with pytest.raises(WrongDirectoryError):
                meta_properties.verify(meta, str(path), **{"broker_id": None, "cluster_id": None, key: wrong})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version=1\nbroker.id=1\ncluster.id=x\n",
        "version=0\nbroker.id=x\ncluster.id=x\n",
        "version=0\nbroker.id=\ncluster.id=x\n",
    ],
)
def test_wrong_meta_properties_are_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(text)
    with pytest.raises(WrongDirectoryError, match=r"meta\.properties"):
        meta_properties.read(FILES, str(path))


def test_logs_may_be_added_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """Another thread may add them in each callback of a garbage collection, which any allocation may start."""
    directory = LogDirectory(FILES, str(tmp_path))
    log: Any = SimpleNamespace(high_watermark=7)
    directory.logs = {("t", number): log for number in range(2_000)}
    added: list[TopicPartition] = []

    def add(phase: str, _: object) -> None:
        added.append(("added", len(added)))
        directory.logs[added[-1]] = log

    threshold = gc.get_threshold()
    gc.callbacks.append(add)
    gc.set_threshold(1)
    try:
        directory.write_high_watermarks()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(add)
    assert added
    offsets = checkpoints.read_offsets(FILES, str(tmp_path / "replication-offset-checkpoint"))
    assert offsets.keys() >= {("t", number) for number in range(2_000)}
