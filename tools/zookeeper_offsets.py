"""Offsets that consumers of 0.8 keep in ZooKeeper, below /consumers/GROUP/offsets/TOPIC/PARTITION.

Owns how they are found and written, and the owners of partitions. Must not know tools or what is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from controller.paths import consumer_offset_path, decode_consumer_offset, encode_consumer_offset
from controller.state_store import ANY_VERSION
from tools.admin_client import TopicPartition
from tools.znode_trees import Tree, TreeError

GROUPS: Final = "/consumers"


def groups(tree: Tree) -> Sequence[str]:
    """Return the names of all groups."""
    return _children(tree, GROUPS)


def offsets(tree: Tree, group: str) -> dict[TopicPartition, int]:
    """Return the offsets of a group, by topic and partition. Raises TreeError, Undecodable."""
    return {
        (topic, partition): decode_consumer_offset(tree.get(consumer_offset_path(group, topic, partition))[0])
        for topic, partition in _partitions(tree, f"{GROUPS}/{group}/offsets")
    }


def owners(tree: Tree, group: str) -> Mapping[TopicPartition, str]:
    """Return the thread of a consumer that owns a partition, for those that have an owner."""
    folder = f"{GROUPS}/{group}/owners"
    return {
        (topic, partition): (tree.get(f"{folder}/{topic}/{partition}")[0] or b"").decode("utf-8", "replace")
        for topic, partition in _partitions(tree, folder)
    }


def write_offset(tree: Tree, path: str, offset: int) -> None:
    """Set the offset at a path, and create what is missing above it. Raises TreeError."""
    data = encode_consumer_offset(offset)
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        with suppress(TreeError):  # it exists
            tree.create("/" + "/".join(parts[:count]), b"", ephemeral=False, sequential=False)
    try:
        tree.get(path)
    except TreeError:
        tree.create(path, data, ephemeral=False, sequential=False)
    else:
        tree.set(path, data, ANY_VERSION)


def _partitions(tree: Tree, folder: str) -> Iterator[TopicPartition]:
    for topic in _children(tree, folder):
        numbers = [int(name) for name in _children(tree, f"{folder}/{topic}") if name.isdecimal()]
        yield from ((topic, number) for number in sorted(numbers))


def _children(tree: Tree, path: str) -> Sequence[str]:
    try:
        return tree.children(path)
    except TreeError:
        return ()
