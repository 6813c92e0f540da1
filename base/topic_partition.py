"""The name of a partition, under which every package keeps what it knows of it.

Owns this pair. Must not know what is true of the partition.
"""

from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""The name of the topic, and the number of the partition.

A plain tuple, because requests build one for each partition that they name: a named tuple costs several times as much.
"""


def partition_name(partition: TopicPartition) -> str:
    """Return the name as messages and directories have it, `<topic>-<number>`."""
    topic, number = partition
    return f"{topic}-{number}"
