"""Committed offsets of consumer groups: how `kafka-consumer-groups` sees the progress of a job.

Spark's own checkpoint is the source of truth. The commits are a copy: a job never starts from them, except with
--from-group. Spark joins no group, so commits are those of a group without members.
"""

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

_LOG = logging.getLogger(__name__)
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
        """Commit `offsets`; a failure is logged, because the next batch commits again."""
        positions = [
            TopicPartition(topic, partition, offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        ]
        if not positions:
            return
        try:
            self._consumer().commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            _LOG.warning("group %s: offsets were not committed: %s", self.group, error.args[0].str())

    def committed(self, topics: list[str]) -> Offsets:
        """Return the committed offsets of the group; topics and partitions without one are absent."""
        consumer = self._consumer()
        found: dict[str, dict[int, int]] = {}
        for topic in topics:
            wanted = [TopicPartition(topic, partition) for partition in self._partitions(topic)]
            for position in consumer.committed(wanted, _TIMEOUT_S) if wanted else []:
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
        return sorted(self._consumer().list_topics(topic, _TIMEOUT_S).topics[topic].partitions)

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
