"""Reads the commits of groups from `__consumer_offsets`, so that their times are known and consumers need not run.

Owns the consumer of that topic. Must not know lag.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as LibraryPartition

from base.topic_partition import TopicPartition
from broker.groups.machine.records import OffsetCommitKey, read_key, read_offset
from protocol.errors import Malformed
from protocol.internal_topics import GROUP_METADATA_TOPIC

BATCH_SIZE: Final = 10_000
POLL_S: Final = 0.2

Commits = Mapping[tuple[str, TopicPartition], list[tuple[int, int]]]
"""Offset and time (epoch ms) of the commits of a group for a partition, oldest first."""


class CommitFollower:
    """Reads the commits that are made from its first read on."""

    def __init__(
        self,
        consumer: Consumer,
        wanted: re.Pattern[str],
        kept: int,
        *,
        time_s: float,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            consumer: a consumer without a subscription; the follower closes it.
            wanted: matches the groups to follow.
            kept: commits to return of each group and partition; the newest are kept.
            time_s: the longest time of one read.
            is_stopped: ends a read early.
            clock: monotonic seconds.
        """
        self._consumer = consumer
        self._wanted = wanted
        self._kept = kept
        self._time_s = time_s
        self._is_stopped = is_stopped
        self._clock = clock
        self._assigned = 0

    def read(self, partition_count: int) -> Commits:
        """Return the commits since the last call, from the `partition_count` partitions of the topic.

        It returns when none has come for `POLL_S`, or after `time_s`: in a busy cluster commits never pause. The next
        call returns the rest. Raises KafkaException.
        """
        found: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = {}
        deadline_s = self._clock() + self._time_s
        if partition_count != self._assigned:
            self._consumer.assign(
                [LibraryPartition(GROUP_METADATA_TOPIC, number, -1) for number in range(partition_count)]
            )
            self._assigned = partition_count
        while not self._is_stopped() and self._clock() < deadline_s:
            messages = self._consumer.consume(BATCH_SIZE, timeout=POLL_S)
            if not messages:
                break
            for message in messages:
                if message.error() is None and message.key() is not None and message.value() is not None:
                    self._add(found, message.key(), message.value())
        return found

    def close(self) -> None:
        self._consumer.close()

    def _add(
        self, found: dict[tuple[str, TopicPartition], list[tuple[int, int]]], key_bytes: bytes, value_bytes: bytes
    ) -> None:
        try:
            key = read_key(key_bytes)
            if isinstance(key, OffsetCommitKey) and self._wanted.search(key.group):
                value = read_offset(value_bytes)
                commits = found.setdefault((key.group, (key.topic, key.partition)), [])
                commits.append((value.offset, value.commit_timestamp_ms))
                del commits[: -self._kept]
        except Malformed:
            return  # a record of a newer protocol
