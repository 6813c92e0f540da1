"""Names: every builder's result is taken apart into the same values, and what Kafka refuses is refused."""

import uuid

import pytest

from storage.disk import names
from storage.disk.names import DirectoryState, PartitionDirectoryName, SegmentFileName

ID = uuid.UUID("4f1c0f1e-0d0a-4a7b-9c3e-2b1a0f9e8d7c")


@pytest.mark.parametrize("stage", ["", names.DELETED, names.CLEANED, names.SWAP])
@pytest.mark.parametrize("suffix", [*names.SEGMENT_SUFFIXES, names.PRODUCER_SNAPSHOT])
@pytest.mark.parametrize("base_offset", [0, 42, 2**63 - 1])
def test_segment_file_names_are_built_and_parsed(base_offset: int, suffix: str, stage: str) -> None:
    name = names.segment_file(base_offset, suffix) + stage
    assert names.parse_segment_file(name) == SegmentFileName(base_offset, suffix, stage)


@pytest.mark.parametrize(
    "name",
    [
        "1.log",
        "0000000000000000000.log",
        "00000000000000000000.txt",
        "00000000000000000000.log.tmp",
        "-0000000000000000001.log",
    ],
)
def test_other_names_are_no_segment_files(name: str) -> None:
    assert names.parse_segment_file(name) is None


PARTITION_DIRECTORIES = {
    "orders-0": PartitionDirectoryName("orders", 0, DirectoryState.CURRENT),
    "a-b-c-17": PartitionDirectoryName("a-b-c", 17, DirectoryState.CURRENT),
    "with.dots-3": PartitionDirectoryName("with.dots", 3, DirectoryState.CURRENT),
    f"orders-0.{ID.hex}-delete": PartitionDirectoryName("orders", 0, DirectoryState.DELETE),
    f"orders-0.{ID.hex}-future": PartitionDirectoryName("orders", 0, DirectoryState.FUTURE),
    f"orders-0.{ID.hex}-stray": PartitionDirectoryName("orders", 0, DirectoryState.STRAY),
    "orders": None,
    "orders-": None,
    "-3": None,
    "orders-x": None,
    "lost+found": None,
    "orders-0.0123-delete": None,
}


@pytest.mark.parametrize(("name", "expected"), PARTITION_DIRECTORIES.items())
def test_partition_directory_names_are_parsed(name: str, expected: PartitionDirectoryName | None) -> None:
    assert names.parse_partition_directory(name) == expected


@pytest.mark.parametrize("length", [1, 200, 249])
def test_marked_directory_names_have_at_most_255_characters(length: int) -> None:
    topic = "t" * length
    name = names.marked_partition_directory(topic, 123, DirectoryState.DELETE, ID)
    parsed = names.parse_partition_directory(name)
    assert len(name) <= names.DIRECTORY_NAME_LENGTH_MAX
    assert parsed is not None
    assert topic.startswith(parsed.topic)
    assert (parsed.partition, parsed.state) == (123, DirectoryState.DELETE)
