"""What is known of the positions of groups: which checkpoint is new, and which positions the target lacks. Pure.

Owns the rules of Kafka 3.9. Must not know topics, clients or how positions are translated.
"""

from __future__ import annotations

from collections.abc import Mapping

from base.topic_partition import TopicPartition
from spark_jobs.connect.mirror.cluster import Position
from spark_jobs.connect.mirror.formats import Checkpoint


class Checkpoints:
    """The last checkpoint of each group and partition; partitions are named as at the target."""

    def __init__(self) -> None:
        self._last: dict[str, dict[TopicPartition, Checkpoint]] = {}

    def add(self, checkpoint: Checkpoint) -> None:
        self._last.setdefault(checkpoint.group, {})[checkpoint.topic, checkpoint.partition] = checkpoint

    def clear(self) -> None:
        self._last.clear()

    def is_new(self, checkpoint: Checkpoint) -> bool:
        """Whether to write a checkpoint: the first one, one that advances, and one after the group itself went back.

        A translation may get less exact with time; that alone must not take a group back.
        """
        last = self._last.get(checkpoint.group, {}).get((checkpoint.topic, checkpoint.partition))
        return (
            last is None
            or checkpoint.upstream_offset < last.upstream_offset
            or checkpoint.downstream_offset > last.downstream_offset
        )

    def missing_positions(
        self, group: str, committed: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, Position]:
        """Return the positions that are ahead of those that a group has committed at the target."""
        return {
            partition: Position(last.downstream_offset, last.metadata)
            for partition, last in self._last.get(group, {}).items()
            if partition not in committed or committed[partition].offset < last.downstream_offset
        }
