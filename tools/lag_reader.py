"""Reads what kafka-lag needs of one cluster: groups, committed offsets, end offsets, partitions.

Owns the requests, and the windows of commits. Must not know how results are shown.

Groups that have not committed since the start are read from their coordinators.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import KafkaException

from protocol.errors import KafkaError
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tools.admin_client import EARLIEST, LATEST, AdminClient, TopicPartition
from tools.group_descriptions import committed_offsets
from tools.lag_commits import OFFSETS_TOPIC, CommitFollower, Commits
from tools.lag_windows import Commit, Ends, Status, Window

PARTITIONS_PER_REQUEST: Final = 20_000


@dataclass(frozen=True)
class PartitionState:
    """One partition of a topic."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class PartitionLag:
    """One group's position in one partition."""

    offset: int
    end: int
    lag: int
    lag_ms: int
    status: Status
    completeness: float
    commits: tuple[Commit, ...]


@dataclass(frozen=True)
class ClusterLag:
    """Everything at one moment."""

    read_ms: int = 0
    brokers: int = 0
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    groups: Mapping[str, Mapping[TopicPartition, PartitionLag]] = field(default_factory=dict)
    members: Mapping[str, int] = field(default_factory=dict)


class LagReader:
    """Reads one cluster again and again, and keeps the windows of commits in between."""

    def __init__(
        self, admin: AdminClient, follower: CommitFollower | None, wanted: re.Pattern[str], window_size: int
    ) -> None:
        """Without a `follower` of commits, a changed offset counts as a commit. `wanted` matches the groups to read."""
        self._admin = admin
        self._follower = follower
        self._wanted = wanted
        self._window_size = window_size
        self._windows: dict[tuple[str, TopicPartition], Window] = {}
        self._committed: dict[str, dict[TopicPartition, int]] = {}
        self._ends: dict[TopicPartition, Ends] = {}

    def read(self) -> ClusterLag:
        """Return the present state. Raises KafkaError, CallTimedOut."""
        metadata = self._admin.metadata()
        partitions = {
            (topic.name, it.partition_index): PartitionState(it.leader_id, tuple(it.replica_nodes), tuple(it.isr_nodes))
            for topic in metadata.topics
            if topic.name is not None and not topic.error_code
            for it in topic.partitions
        }
        led = [partition for partition, state in partitions.items() if state.leader >= 0]
        committed_times = self._follow(sum(topic == OFFSETS_TOPIC for topic, _ in partitions))
        members = self._members()
        for group in members:
            self._committed[group] = committed_offsets(self._admin, group)
        for gone in self._committed.keys() - members.keys():
            del self._committed[gone]
        ends, starts = self._offsets(led, LATEST), self._offsets(led, EARLIEST)
        now_ms = time.time_ns() // 1_000_000
        for partition, end in ends.items():
            self._ends.setdefault(partition, Ends()).add(end, now_ms)
        self._forget(partitions.keys())
        self._note(committed_times, now_ms)
        return ClusterLag(
            now_ms,
            len(metadata.brokers),
            {
                partition: PartitionState(
                    state.leader, state.replicas, state.in_sync, starts.get(partition, 0), ends.get(partition, 0)
                )
                for partition, state in partitions.items()
            },
            {group: self._lags(group, ends, now_ms) for group in self._committed},
            members,
        )

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()

    def _lags(self, group: str, ends: Mapping[TopicPartition, int], now_ms: int) -> dict[TopicPartition, PartitionLag]:
        lags = {}
        for partition, offset in self._committed[group].items():
            if (end := ends.get(partition)) is None:
                continue
            window = self._windows.get((group, partition)) or Window(self._window_size)
            lag = max(end - offset, 0)
            lags[partition] = PartitionLag(
                offset,
                end,
                lag,
                self._ends[partition].lag_ms(offset, now_ms),
                window.status(now_ms, lag),
                window.completeness,
                tuple(window.commits),
            )
        return lags

    def _note(
        self,
        times: Commits,
        now_ms: int,
    ) -> None:
        """Add the commits since the last call to their windows."""
        for group, offsets in self._committed.items():
            for partition, offset in offsets.items():
                if partition not in self._ends:
                    continue
                window = self._windows.setdefault((group, partition), Window(self._window_size))
                new = times.get((group, partition), [])
                # Without the record of a commit, a changed offset dates it.
                if not new and (not window.commits or window.commits[-1].offset != offset):
                    new = [(offset, now_ms)]
                for committed, time_ms in new:
                    window.add(Commit(committed, time_ms, max(self._ends[partition].at(time_ms) - committed, 0)))

    def _forget(self, present: Iterable[TopicPartition]) -> None:
        kept = set(present)
        self._ends = {partition: ends for partition, ends in self._ends.items() if partition in kept}
        self._windows = {
            key: window
            for key, window in self._windows.items()
            if key[1] in self._committed.get(key[0], {}) and key[1] in kept
        }

    def _members(self) -> dict[str, int]:
        """Return the number of members of each group."""
        found: dict[str, int] = {}
        for broker in self._admin.metadata([]).brokers:
            listed = self._admin.call(ListGroupsRequest(), ListGroupsResponse, broker_id=broker.node_id)
            names = [each.group_id for each in listed.groups if self._wanted.search(each.group_id)]
            if names:
                described = self._admin.call(
                    DescribeGroupsRequest(groups=names), DescribeGroupsResponse, broker_id=broker.node_id
                )
                found.update({group.group_id: len(group.members) for group in described.groups})
        return found

    def _offsets(self, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for first in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            asked = partitions[first : first + PARTITIONS_PER_REQUEST]
            offsets = self._admin.list_offsets(dict.fromkeys(asked, timestamp))
            found |= {partition: offset for partition, offset in offsets.items() if not isinstance(offset, KafkaError)}
        return found

    def _follow(self, partition_count: int) -> Commits:
        """Return the commits since the last call."""
        if self._follower is None:
            return {}
        try:
            return self._follower.read(partition_count)
        except KafkaException:
            return {}  # the next interval tries again
