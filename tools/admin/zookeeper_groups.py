"""kafka-consumer-groups --zookeeper: groups of consumers of 0.8, with the lines that Kafka 0.9 to 0.11 printed.

Owns the lines. Must not know options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from controller.tree.paths import Undecodable
from protocol.errors import KafkaError
from tools.admin.group_actions.descriptions import committed_offsets
from tools.admin.group_actions.offset_resets import named_partitions
from tools.client.admin_client import LATEST, AdminClient
from tools.zookeeper import zookeeper_offsets
from tools.zookeeper.znode_trees import Tree, TreeError

FORM: Final = "{:<30} {:<30} {:<10} {:<15} {:<15} {:<15} {}"
COLUMNS: Final = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "OWNER")
UNKNOWN, NO_OWNER = "unknown", "none"


def describe(tree: Tree, admin: AdminClient, groups: Iterable[str]) -> bool:
    """Print the partitions of groups; return True. Raises TreeError, KafkaError."""
    for group in groups:
        for line in _described(tree, admin, group):
            print(line)
    return True


def _described(tree: Tree, admin: AdminClient, group: str) -> Iterator[str]:
    """Yield the lines of a group: a partition's offset is that of the brokers, or else that of ZooKeeper."""
    topics = zookeeper_offsets.topics(tree, group)
    if not topics:
        yield "No topic available for consumer group provided"
    yield FORM.format(*COLUMNS)
    owners = zookeeper_offsets.owners(tree, group)
    try:
        offsets = {**zookeeper_offsets.offsets(tree, group), **committed_offsets(admin, group)}
    except Undecodable as error:
        raise TreeError(str(error)) from error
    for topic in topics:
        try:
            partitions = named_partitions(admin, [topic])
        except KafkaError as error:
            yield f"No broker for topic {topic}: {error.message}"
            continue
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))
        for partition in partitions:
            offset, end = offsets.get(partition), ends[partition]
            yield FORM.format(
                group,
                *partition,
                UNKNOWN if offset is None else offset,
                UNKNOWN if isinstance(end, KafkaError) else end,
                UNKNOWN if offset is None or isinstance(end, KafkaError) else end - offset,
                owners.get(partition, NO_OWNER),
            )


def delete(tree: Tree, groups: Iterable[str]) -> bool:
    """Delete inactive groups, and print a line for each; return whether all were deleted. Raises TreeError."""
    succeeded = True
    for group in groups:
        problem = _deletion_problem(tree, group)
        if problem is None:
            zookeeper_offsets.delete_group(tree, group)
            print(f"Deleted all consumer group information for group {group} in zookeeper.")
        else:
            print(f"Delete for group {group} failed because {problem}.")
            succeeded = False
    return succeeded


def delete_topics(tree: Tree, groups: Sequence[str], topics: Iterable[str]) -> bool:
    """Delete what groups have of topics, or without a group what all inactive ones have. Print a line for each.

    Returns whether all was deleted. Raises TreeError.
    """
    succeeded = True
    for topic in topics:
        for group in groups:
            problem = _deletion_problem(tree, group)
            if problem is None:
                zookeeper_offsets.delete_topic(tree, group, topic)
                print(f"Deleted consumer group information for group {group} topic {topic} in zookeeper.")
            else:
                print(f"Delete for group {group} topic {topic} failed because {problem}.")
                succeeded = False
        if not groups:
            for group in zookeeper_offsets.groups(tree):
                if topic in zookeeper_offsets.topics(tree, group) and _deletion_problem(tree, group) is None:
                    zookeeper_offsets.delete_topic(tree, group, topic)
            what = f"all inactive consumer groups for topic {topic}"
            print(f"Deleted consumer group information for {what} in zookeeper.")
    return succeeded


def _deletion_problem(tree: Tree, group: str) -> str | None:
    if group not in zookeeper_offsets.groups(tree):
        return "group does not exist"
    return "its consumers are still active" if zookeeper_offsets.members(tree, group) else None
