"""One reading of a cluster: failed parts are omitted and named, the rest is complete."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaException

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.records.builder import RecordData, build_batch
from tools.base.command_line import UnreachableError
from tools.client.admin_client import EARLIEST, CallTimedOut
from tools.monitoring.lag import _watch, burrow, metrics_text, read_cluster
from tools.monitoring.lag_commits import Commits
from tools.monitoring.lag_reader import ClusterLag, LagReader, Part
from tools.monitoring.lag_windows import Status

NOW_MS = 1_795_228_739_867


class FakeAdmin:
    """A cluster of brokers 1 and 2: broker N leads partition N-1 of topic t, and coordinates group gN."""

    def __init__(self) -> None:
        self.silent: set[int] = set()
        self.failed_groups: dict[str, ErrorCode] = {}
        self.calls: list[int] = []
        self.fetched: list[int] = []
        self.ends: dict[TopicPartition, int] = {("t", 0): 10, ("t", 1): 10}
        self.committed: dict[str, int] = {"g1": 3, "g2": 4}
        self.times_ms: dict[int, int] = {}
        """The times of the records that can be read, by offset."""

    def metadata(self) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=index + 1, replica_nodes=[index + 1], isr_nodes=[index + 1]
            )
            for index in range(2)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=each, host="h", port=each) for each in (1, 2)],
            topics=[MetadataResponseTopic(name="t", partitions=partitions)],
        )

    def call_once(self, request: object, response: type[object], *, broker_id: int) -> object:
        self._reach(broker_id)
        match request:
            case ListGroupsRequest():
                return ListGroupsResponse(
                    groups=[
                        ListedGroup(group_id=f"g{broker_id}", protocol_type="consumer"),
                        ListedGroup(group_id=f"share-{broker_id}", protocol_type="share", group_type="share"),
                    ]
                )
            case DescribeGroupsRequest():
                return DescribeGroupsResponse(groups=[DescribedGroup(group_id=each) for each in request.groups])
            case OffsetFetchRequest():
                return OffsetFetchResponse(groups=[self._offsets(each.group_id) for each in request.groups])
            case FetchRequest():
                return self._records(request)
        raise AssertionError(request)

    def list_offsets_once(
        self, timestamps: Mapping[TopicPartition, int], *, broker_id: int
    ) -> dict[TopicPartition, int | KafkaError]:
        self._reach(broker_id)
        return {each: 0 if time == EARLIEST else self.ends[each] for each, time in timestamps.items()}

    def _reach(self, broker_id: int) -> None:
        self.calls.append(broker_id)
        if broker_id in self.silent:
            raise TimeoutError("timed out")

    def _records(self, request: FetchRequest) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        self.fetched.append(wanted.fetch_offset)
        time_ms = self.times_ms.get(wanted.fetch_offset)
        data = (
            b"" if time_ms is None else build_batch([RecordData(time_ms, None, b"v")], base_offset=wanted.fetch_offset)
        )
        part = PartitionData(partition_index=wanted.partition, records=data)
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[part])])

    def _offsets(self, group: str) -> OffsetFetchResponseGroup:
        if group in self.failed_groups:
            return OffsetFetchResponseGroup(group_id=group, error_code=self.failed_groups[group])
        partitions = [OffsetFetchResponsePartitions(partition_index=0, committed_offset=self.committed[group])]
        return OffsetFetchResponseGroup(
            group_id=group, topics=[OffsetFetchResponseTopics(name="t", partitions=partitions)]
        )


class FakeFollower:
    """Returns scripted commits."""

    def __init__(self, commits: Commits | KafkaException) -> None:
        self.commits = commits

    def read(self, partition_count: int) -> Commits:
        if isinstance(self.commits, KafkaException):
            raise self.commits
        return self.commits

    def close(self) -> None: ...


def reader(admin: FakeAdmin, follower: FakeFollower | None = None, now_ms: int = 1000) -> LagReader:
    return LagReader(admin, follower, re.compile(""), 10, now_ms=lambda: now_ms)  # type: ignore[arg-type]


def parts(found: ClusterLag) -> list[Part]:
    return [problem.part for problem in found.problems]


def test_a_reading_without_problems_has_all_groups_with_offsets_and_all_partitions() -> None:
    found = reader(FakeAdmin()).read()
    assert {group: lags["t", 0].lag for group, lags in found.groups.items()} == {"g1": 7, "g2": 6}
    assert [found.partitions["t", index].end for index in range(2)] == [10, 10]
    assert found.problems == ()


def test_a_silent_broker_is_named_and_hides_no_other() -> None:
    admin = FakeAdmin()
    admin.silent = {2}
    found = reader(admin).read()
    assert found.groups.keys() == {"g1"}
    assert (found.partitions["t", 0].end, found.partitions["t", 1].end) == (10, None)
    assert [problem.text for problem in found.problems] == ["broker 2: timed out"]
    assert admin.calls.count(2) == 1, "a silent broker is asked once in a reading"
    text = metrics_text({"c": found})
    assert 'kafka_lag_read_errors{cluster="c",part="broker"} 1\n' in text
    assert 'kafka_lag_read_errors{cluster="c",part="group"} 0\n' in text
    assert 'kafka_topic_partition_current_offset{cluster="c",topic="t",partition="1"}' not in text


def test_a_group_that_fails_is_named_and_hides_no_other() -> None:
    admin = FakeAdmin()
    admin.failed_groups = {"g1": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    found = reader(admin).read()
    assert found.groups.keys() == {"g2"}
    assert [problem.text for problem in found.problems] == ["group g1: GROUP_AUTHORIZATION_FAILED"]


def test_commits_that_cannot_be_read_hide_nothing() -> None:
    found = reader(FakeAdmin(), FakeFollower(KafkaException("no"))).read()
    assert found.groups.keys() == {"g1", "g2"}
    assert parts(found) == [Part.COMMITS]


def test_windows_survive_a_reading_without_their_broker() -> None:
    admin = FakeAdmin()
    reading = reader(admin)
    reading.read()
    admin.silent = {1}
    reading.read()
    admin.silent = set()
    admin.committed["g1"] = 2
    assert reading.read().groups["g1"]["t", 0].commits[0].offset == 3


def test_the_lag_of_a_commit_is_that_at_its_time() -> None:
    """The end rose from 10 to 110 in one second, and the group committed 4 offsets each 100 ms."""
    admin = FakeAdmin()
    now_ms = 0
    follower = FakeFollower({})
    reading = LagReader(admin, follower, re.compile(""), 10, now_ms=lambda: now_ms)  # type: ignore[arg-type]
    reading.read()
    now_ms, admin.ends["t", 0], admin.committed["g1"] = 1000, 110, 43
    follower.commits = {("g1", ("t", 0)): [(3 + 4 * step, 100 * step) for step in range(1, 11)]}
    lag = reading.read().groups["g1"]["t", 0]
    assert [commit.lag for commit in lag.commits] == [7 + 6 * step for step in range(1, 11)]
    assert lag.status is Status.WARN


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), CallTimedOut("late"), UnreachableError("gone")]
)
def test_a_cluster_that_cannot_be_read_has_a_gauge_and_no_figures(error: Exception) -> None:
    admin = FakeAdmin()

    def metadata() -> MetadataResponse:
        raise error

    admin.metadata = metadata  # type: ignore[method-assign]
    snapshots = {"dead": read_cluster(reader(admin)), "alive": reader(FakeAdmin()).read()}
    text = metrics_text(snapshots)
    assert 'kafka_lag_read_errors{cluster="dead",part="cluster"} 1\n' in text
    assert 'kafka_brokers{cluster="dead"}' not in text
    assert 'kafka_brokers{cluster="alive"} 2\n' in text
    assert burrow(snapshots, ["v3", "kafka"])[1]["clusters"] == ["alive"]
    assert burrow(snapshots, ["v3", "kafka", "dead", "consumer"])[0] == 404


def test_a_cluster_is_read_while_another_does_not_respond() -> None:
    snapshots: dict[str, ClusterLag] = {}
    stopped, hangs, was_read = threading.Event(), threading.Event(), threading.Event()
    hanging, alive = FakeAdmin(), FakeAdmin()

    def hang() -> MetadataResponse:
        hangs.wait(30)
        raise CallTimedOut("late")

    def read() -> MetadataResponse:
        was_read.set()
        stopped.set()
        return FakeAdmin().metadata()

    hanging.metadata, alive.metadata = hang, read  # type: ignore[method-assign]
    threads = [
        threading.Thread(target=_watch, args=(name, reader(admin), snapshots, stopped, 0.01))
        for name, admin in (("hanging", hanging), ("alive", alive))
    ]
    for thread in threads:
        thread.start()
    assert was_read.wait(30)
    threads[1].join(30)
    assert snapshots.keys() == {"alive"}
    hangs.set()
    threads[0].join(30)
    assert not any(thread.is_alive() for thread in threads)


def test_the_age_of_a_lag_is_that_of_the_first_unread_record() -> None:
    """Records that are older than the tool have their own age, and a group that stands still is read once."""
    admin = FakeAdmin()
    admin.times_ms = {3: NOW_MS - 600}
    reading = reader(admin, now_ms=NOW_MS)
    found = reading.read()
    assert (found.groups["g1"]["t", 0].lag_ms, found.groups["g2"]["t", 0].lag_ms) == (600, 0)
    assert admin.fetched == [3, 4]
    assert reading.read().groups["g1"]["t", 0].lag_ms == 600
    assert admin.fetched == [3, 4, 4]
    admin.committed["g1"] = 10
    assert reading.read().groups["g1"]["t", 0].lag_ms == 0


@pytest.mark.parametrize("time_ms", [-1, -5, 0, NOW_MS // 1000, NOW_MS * 10**3, NOW_MS * 10**6, (1 << 63) - 1])
def test_a_lag_has_no_age_where_the_timestamp_says_nothing(time_ms: int) -> None:
    admin = FakeAdmin()
    admin.times_ms = {3: time_ms}
    snapshot = reader(admin, now_ms=NOW_MS).read()
    found = snapshot.groups["g1"]["t", 0]
    assert (found.lag, found.lag_ms) == (7, None)
    text = metrics_text({"c": snapshot})
    assert 'kafka_consumergroup_lag{cluster="c",consumergroup="g1",topic="t",partition="0"} 7' in text
    assert 'kafka_consumergroup_lag_seconds{cluster="c",consumergroup="g1"' not in text
