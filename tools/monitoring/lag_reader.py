"""Reads what kafka-lag needs of one cluster: groups, committed offsets, end offsets, partitions.

Owns the requests, and the windows of commits. Must not know how results are shown.

Each broker is asked for its own groups and partitions, once in a reading. What fails is left out of the snapshot, which
names it: one broker or group must not hide the others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import KafkaException

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.internal_topics import GROUP_METADATA_TOPIC
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataResponse
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.records.age import age_ms
from tools.admin.group_actions.descriptions import committed_offsets_request, read_offsets
from tools.client.admin_client import EARLIEST, LATEST, AdminClient, raise_for
from tools.monitoring.lag_commits import CommitFollower, Commits
from tools.monitoring.lag_first_unread import NOTHING_WAITS, FirstUnread, Source, Unread
from tools.monitoring.lag_windows import Commit, Ends, Status, Window

T = TypeVar("T")

GROUPS_PER_REQUEST: Final = 100
CONSUMER: Final = "consumer"
"""The type of groups of the consumer protocol (KIP-848)."""
SHARE: Final = "share"
"""The type of share groups (KIP-932), which have no committed offsets."""
PARTITIONS_PER_REQUEST: Final = 20_000


class Part(Enum):
    """What could not be read."""

    CLUSTER = "cluster"
    BROKER = "broker"
    GROUP = "group"
    COMMITS = "commits"


class Problem(NamedTuple):
    """One part that could not be read, and why."""

    part: Part
    text: str


@dataclass(frozen=True)
class PartitionState:
    """One partition of a topic; offsets are None if its leader could not be read."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class PartitionLag:
    """One group's position in one partition."""

    offset: int
    end: int
    lag: int
    lag_ms: int | None
    """None if the timestamp of the first unread record says nothing."""
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
    problems: Sequence[Problem] = ()

    def problem_counts(self) -> Mapping[Part, int]:
        """Return how many problems each part has."""
        return {part: sum(problem.part is part for problem in self.problems) for part in Part}


class LagReader:
    """Reads one cluster again and again, and keeps the windows of commits in between."""

    def __init__(
        self,
        admin: AdminClient,
        follower: CommitFollower | None,
        wanted: re.Pattern[str],
        window_size: int,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Without a `follower` of commits, a changed offset counts as a commit. `wanted` matches the groups to read.

        `now_ms` returns the time in epoch milliseconds.
        """
        self._admin = admin
        self._follower = follower
        self._wanted = wanted
        self._window_size = window_size
        self._now_ms = now_ms
        self._windows: dict[tuple[str, TopicPartition], Window] = {}
        self._ends: dict[TopicPartition, Ends] = {}
        self._first_unread = FirstUnread()

    def read(self) -> ClusterLag:
        """Return the present state. Raises KafkaError, CallTimedOut, UnreachableError: the cluster has no metadata."""
        metadata = self._admin.metadata()
        attempts = _Attempts()
        partitions = _partitions(metadata)
        times = attempts.follow(lambda: self._follow(sum(topic == GROUP_METADATA_TOPIC for topic, _ in partitions)))
        members: dict[str, int] = {}
        committed: dict[str, dict[TopicPartition, int]] = {}
        for broker in metadata.brokers:
            self._read_groups(attempts, broker.node_id, members, committed)
        ends, starts = self._offsets(attempts, partitions, LATEST), self._offsets(attempts, partitions, EARLIEST)
        now_ms = self._now_ms()
        for partition, end in ends.items():
            self._ends.setdefault(partition, Ends()).add(end, now_ms)
        self._forget(partitions.keys(), committed, are_all=not attempts.problems)
        self._note(times, committed, now_ms)
        positions = {
            group: {
                partition: Unread(partition, max(offset, starts.get(partition, 0)), ends[partition])
                for partition, offset in offsets.items()
                if partition in ends
            }
            for group, offsets in committed.items()
        }
        behind = {each for of_group in positions.values() for each in of_group.values() if each.offset < each.end}
        first_times = self._first_unread.read(behind, _sources(metadata), partial(self._fetch, attempts))
        return ClusterLag(
            now_ms,
            len(metadata.brokers),
            {
                partition: PartitionState(
                    state.leader, state.replicas, state.in_sync, starts.get(partition), ends.get(partition)
                )
                for partition, state in partitions.items()
            },
            {
                group: self._lags(group, committed[group], of_group, first_times, now_ms)
                for group, of_group in positions.items()
            },
            members,
            tuple(attempts.problems),
        )

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()

    def _lags(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, Unread],
        first_times: Mapping[tuple[TopicPartition, int], int],
        now_ms: int,
    ) -> dict[TopicPartition, PartitionLag]:
        lags = {}
        for partition, (_, first, end) in positions.items():
            window = self._windows.get((group, partition)) or Window(self._window_size)
            lag = max(end - offsets[partition], 0)
            time_ms = first_times.get((partition, first))
            if time_ms is None:
                lag_ms: int | None = self._ends[partition].lag_ms(first, now_ms)
            else:
                lag_ms = 0 if time_ms == NOTHING_WAITS else age_ms(time_ms, now_ms)
            lags[partition] = PartitionLag(
                offsets[partition],
                end,
                lag,
                lag_ms,
                window.status(now_ms, lag),
                window.completeness,
                tuple(window.commits),
            )
        return lags

    def _note(self, times: Commits, committed: Mapping[str, Mapping[TopicPartition, int]], now_ms: int) -> None:
        """Add the commits since the last call to their windows."""
        for group, offsets in committed.items():
            for partition, offset in offsets.items():
                if partition not in self._ends:
                    continue
                window = self._windows.setdefault((group, partition), Window(self._window_size))
                new = times.get((group, partition), [])
                # Without the record of a commit, a changed offset dates it.
                if not new and (not window.commits or window.commits[-1].offset != offset):
                    new = [(offset, now_ms)]
                for position, time_ms in new:
                    window.add(Commit(position, time_ms, max(self._ends[partition].at(time_ms) - position, 0)))

    def _forget(
        self,
        present: Iterable[TopicPartition],
        committed: Mapping[str, Mapping[TopicPartition, int]],
        *,
        are_all: bool,
    ) -> None:
        """Forget what no longer exists. Groups are known to be deleted only if `are_all` have been read."""
        kept = set(present)
        self._ends = {partition: ends for partition, ends in self._ends.items() if partition in kept}
        self._windows = {
            (group, partition): window
            for (group, partition), window in self._windows.items()
            if partition in kept and (not are_all or partition in committed.get(group, {}))
        }

    def _read_groups(
        self,
        attempts: _Attempts,
        broker_id: int,
        members: dict[str, int],
        committed: dict[str, dict[TopicPartition, int]],
    ) -> None:
        """Add the groups that a broker coordinates: their numbers of members, and their committed offsets."""
        groups = attempts.ask(broker_id, lambda: self._groups(broker_id)) or {}
        members.update(groups)
        names = list(groups)
        for first in range(0, len(names), GROUPS_PER_REQUEST):
            request = committed_offsets_request(names[first : first + GROUPS_PER_REQUEST])
            response = attempts.ask(
                broker_id, partial(self._admin.call_once, request, OffsetFetchResponse, broker_id=broker_id)
            )
            for found in response.groups if response is not None else ():
                if found.error_code:
                    attempts.note_group(found.group_id, found.error_code)
                else:
                    committed[found.group_id] = read_offsets(found)

    def _groups(self, broker_id: int) -> dict[str, int]:
        """Return the number of members of each group with committed offsets that a broker coordinates."""
        listed = self._admin.call_once(ListGroupsRequest(), ListGroupsResponse, broker_id=broker_id)
        raise_for(listed.error_code)
        wanted = [
            each for each in listed.groups if each.group_type.lower() != SHARE and self._wanted.search(each.group_id)
        ]
        newer = [each.group_id for each in wanted if each.group_type.lower() == CONSUMER]
        classic = [each.group_id for each in wanted if each.group_type.lower() != CONSUMER]
        found: dict[str, int] = {}
        if classic:
            described = self._admin.call_once(
                DescribeGroupsRequest(groups=classic), DescribeGroupsResponse, broker_id=broker_id
            )
            found |= {group.group_id: len(group.members) for group in described.groups}
        if newer:
            request = ConsumerGroupDescribeRequest(group_ids=newer, include_authorized_operations=False)
            answered = self._admin.call_once(request, ConsumerGroupDescribeResponse, broker_id=broker_id)
            found |= {group.group_id: len(group.members) for group in answered.groups}
        return found

    def _offsets(
        self, attempts: _Attempts, partitions: Mapping[TopicPartition, PartitionState], timestamp: int
    ) -> dict[TopicPartition, int]:
        led: dict[int, list[TopicPartition]] = {}
        for partition, state in partitions.items():
            if state.leader >= 0:
                led.setdefault(state.leader, []).append(partition)
        found: dict[TopicPartition, int] = {}
        for broker_id, all_led in led.items():
            for first in range(0, len(all_led), PARTITIONS_PER_REQUEST):
                timestamps = dict.fromkeys(all_led[first : first + PARTITIONS_PER_REQUEST], timestamp)
                offsets = attempts.ask(
                    broker_id, partial(self._admin.list_offsets_once, timestamps, broker_id=broker_id)
                )
                found |= {each: offset for each, offset in (offsets or {}).items() if isinstance(offset, int)}
        return found

    def _fetch(self, attempts: _Attempts, broker_id: int, request: FetchRequest) -> FetchResponse | None:
        return attempts.ask(broker_id, partial(self._admin.call_once, request, FetchResponse, broker_id=broker_id))

    def _follow(self, partition_count: int) -> Commits:
        return {} if self._follower is None else self._follower.read(partition_count)


class _Attempts:
    """The requests of one reading. A broker that did not respond is not asked again in it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._silent: set[int] = set()

    def ask(self, broker_id: int, call: Callable[[], T]) -> T | None:
        """Return the result of a call to a broker, None if it failed."""
        if broker_id in self._silent:
            return None
        try:
            return call()
        except (OSError, Malformed) as error:
            self._silent.add(broker_id)
            failure: Exception = error
        except KafkaError as error:
            failure = error
        self.problems.append(Problem(Part.BROKER, f"broker {broker_id}: {failure}"))
        return None

    def follow(self, read: Callable[[], Commits]) -> Commits:
        """Return the commits of the consumer, none if it failed."""
        try:
            return read()
        except KafkaException as error:
            self.problems.append(Problem(Part.COMMITS, f"commits in {GROUP_METADATA_TOPIC}: {error}"))
            return {}

    def note_group(self, group: str, code: int) -> None:
        """Note the error code of a group."""
        self.problems.append(Problem(Part.GROUP, f"group {group}: {ErrorCode(code).name}"))


def _partitions(metadata: MetadataResponse) -> dict[TopicPartition, PartitionState]:
    return {
        (topic.name, it.partition_index): PartitionState(it.leader_id, tuple(it.replica_nodes), tuple(it.isr_nodes))
        for topic in metadata.topics
        if topic.name is not None and not topic.error_code
        for it in topic.partitions
    }


def _sources(metadata: MetadataResponse) -> dict[TopicPartition, Source]:
    return {
        (topic.name, it.partition_index): Source(it.leader_id, topic.topic_id)
        for topic in metadata.topics
        if topic.name is not None
        for it in topic.partitions
    }
