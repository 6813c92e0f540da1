"""Committed offsets of consumer groups: how `kafka-consumer-groups` sees the progress of a job.

Spark's own checkpoint is the source of truth. The commits are a copy: a job never starts from them, except with
--from-group. Spark joins no group, so commits are those of a group without members.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.topics import partitions_of

_TIMEOUT_S = 30
_EARLIEST = -2

Offsets = Mapping[str, Mapping[int, int]]  # topic -> partition -> the next offset to read


class GroupOffsets:
    """The committed offsets of one group; connects on first use."""

    def __init__(self, client: Mapping[str, str], group: str) -> None:
        """`client` has the settings of a client (`client_settings`)."""
        self.group = group
        self._settings: dict[str, Any] = {**client, "group.id": group, "enable.auto.commit": False}
        self._client: Consumer | None = None

    def commit(self, offsets: Offsets) -> None:
        """Commit `offsets`. Raises JobError with the broker's reason."""
        positions = [
            TopicPartition(topic, partition, offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        ]
        if not positions:
            return
        try:
            committed = self._consumer().commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            raise JobError(f"group {self.group}: offsets were not committed: {error.args[0].str()}") from error
        for each in committed:
            if each.error is not None:
                place = f"{each.topic}-{each.partition}"
                raise JobError(f"group {self.group}: the offset of {place} was not committed: {each.error.str()}")

    def committed(self, topics: list[str]) -> Offsets:
        """Return the committed offsets of the group; topics and partitions without one are absent. Raises JobError."""
        consumer = self._consumer()
        found: dict[str, dict[int, int]] = {}
        for topic in topics:
            wanted = [TopicPartition(topic, partition) for partition in self._partitions(topic)]
            for position in consumer.committed(wanted, _TIMEOUT_S) if wanted else []:
                if position.error is not None:
                    place = f"{topic}-{position.partition}"
                    raise JobError(f"group {self.group}: the offset of {place} is unknown: {position.error.str()}")
                if position.offset >= 0:
                    found.setdefault(topic, {})[position.partition] = position.offset
        return found

    def or_earliest(self, topics: list[str]) -> Offsets:
        """Return the committed offsets, and -2 (earliest) for each partition without one: Spark needs all."""
        committed = self.committed(topics)
        return {
            topic: {
                partition: committed.get(topic, {}).get(partition, _EARLIEST) for partition in self._partitions(topic)
            }
            for topic in topics
        }

    def _partitions(self, topic: str) -> list[int]:
        return partitions_of(self._consumer(), topic)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _consumer(self) -> Consumer:
        if self._client is None:
            self._client = Consumer(self._settings)
        return self._client


def spark_offsets(source_offset: Any) -> Offsets:
    """Return the offsets that Spark's progress states for a Kafka source, as JSON text or as an object."""
    if not isinstance(source_offset, Mapping):
        return {}
    return {
        topic: {int(partition): int(offset) for partition, offset in partitions.items()}
        for topic, partitions in source_offset.items()
        if isinstance(partitions, Mapping)
    }
