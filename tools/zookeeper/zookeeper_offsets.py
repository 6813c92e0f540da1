"""Groups of consumers of 0.8, which are in ZooKeeper: offsets below /consumers/GROUP/offsets/TOPIC/PARTITION, members
below /consumers/GROUP/ids, and the owners of partitions below /consumers/GROUP/owners/TOPIC/PARTITION.

Owns how they are found, written and deleted. Must not know tools or what is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from base.topic_partition import TopicPartition
from controller.store.state_store import Create, Delete, SetData
from controller.tree.paths import consumer_offset_path, decode_consumer_offset, encode_consumer_offset
from tools.zookeeper.znode_trees import Tree, TreeError, paths_below

GROUPS: Final = "/consumers"
_BY_TOPIC: Final = ("offsets", "owners")


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


def topics(tree: Tree, group: str) -> Sequence[str]:
    """Return the topics that a group has offsets or owners of."""
    return sorted({topic for kind in _BY_TOPIC for topic in _children(tree, f"{GROUPS}/{group}/{kind}")})


def members(tree: Tree, group: str) -> Sequence[str]:
    """Return the ids of the consumers that run."""
    return _children(tree, f"{GROUPS}/{group}/ids")


def delete_group(tree: Tree, group: str) -> None:
    """Delete all of a group. Raises TreeError."""
    _delete_all(tree, f"{GROUPS}/{group}")


def delete_topic(tree: Tree, group: str, topic: str) -> None:
    """Delete what a group has of a topic; without another topic, all of the group. Raises TreeError."""
    if list(topics(tree, group)) == [topic]:
        delete_group(tree, group)
        return
    for kind in _BY_TOPIC:
        if topic in _children(tree, f"{GROUPS}/{group}/{kind}"):
            _delete_all(tree, f"{GROUPS}/{group}/{kind}/{topic}")


def write_offset(tree: Tree, path: str, offset: int) -> None:
    """Set the offset at a path, and create what is missing above it. Raises TreeError."""
    data = encode_consumer_offset(offset)
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        with suppress(TreeError):  # it exists
            tree.create(Create("/" + "/".join(parts[:count]), b""))
    try:
        tree.get(path)
    except TreeError:
        tree.create(Create(path, data))
    else:
        tree.apply([SetData(path, data)])


def _partitions(tree: Tree, folder: str) -> Iterator[TopicPartition]:
    for topic in _children(tree, folder):
        numbers = [int(name) for name in _children(tree, f"{folder}/{topic}") if name.isdecimal()]
        yield from ((topic, number) for number in sorted(numbers))


def _delete_all(tree: Tree, path: str) -> None:
    for below in reversed(list(paths_below(tree, path))):
        tree.apply([Delete(below)])


def _children(tree: Tree, path: str) -> Sequence[str]:
    try:
        return tree.children(path)
    except TreeError:
        return ()
