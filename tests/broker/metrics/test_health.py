"""Whether a broker serves, and whether it may be stopped: the reasons against it, and the HTTP responses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from base.pause import never, whole
from broker.cluster.broker_state import BrokerState
from broker.cluster.metadata_cache import BrokerNode, MetadataCache, TopicState
from broker.metrics.health import SHOWN_MAX, Health, Verdict
from broker.metrics.loop_lag import Turns
from broker.replica.partition import Leadership, Partition
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.messages.update_metadata import UpdateMetadataPartitionState
from storage.disk.files import OsFiles
from storage.log import log_opening
from storage.log.log_state import LogOptions
from tests.support.in_process import running_broker
from tests.support.manual_clock import ManualClock

ME, A, B = 1, 2, 3
REPLICAS = (ME, A, B)
ONLY = "without this broker no in-sync replica is alive"
MIN_ISR = "without this broker fewer than min.insync.replicas are in sync"
UNDER_REPLICATED = "a partition that this broker leads is under-replicated"


class Cluster:
    """The partitions hosted by broker `ME`, and what it knows of the cluster."""

    def __init__(self, folder: Path) -> None:
        self.metadata = MetadataCache("id")
        self.metadata.brokers = {each: BrokerNode(each, None, {}) for each in REPLICAS}
        self.state = BrokerState.RUNNING
        self.closed_listeners: list[str] = []
        self.health = Health(ME, self, self.metadata, lambda: self.state, lambda: self.closed_listeners)
        self._folder = folder
        self._hosted: list[Partition] = []

    def hosted(self) -> Iterator[Partition]:
        return iter(self._hosted)

    def add(
        self,
        leader: int,
        isr: tuple[int, ...],
        *,
        replicas: tuple[int, ...] = REPLICAS,
        min_isr: int = 2,
        known_isr: tuple[int, ...] | None = None,
    ) -> str:
        """Host a partition; `known_isr` is its ISR in the metadata. Returns its name."""
        topic = f"t{len(self._hosted)}"
        config = LogConfig.from_overrides(BrokerConfig.from_properties({}), {"min.insync.replicas": str(min_isr)})
        options = LogOptions(OsFiles(), Random(1))
        path = str(self._folder / f"{topic}-0")
        log = log_opening.create(options, path, (topic, 0), config, topic_id=uuid4(), now_ms=0)
        partition = Partition(topic, 0, ME, log)
        leadership = Leadership(1, leader, 0, isr, 0, replicas)
        if leader == ME:
            partition.lead(leadership, 0)
        else:
            partition.follow(leadership)
        self._hosted.append(partition)
        state = UpdateMetadataPartitionState(
            partition_index=0,
            controller_epoch=1,
            leader=leader,
            leader_epoch=0,
            isr=list(isr if known_isr is None else known_isr),
            zk_version=0,
            replicas=list(replicas),
            offline_replicas=[],
        )
        self.metadata.topics[topic] = TopicState(topic, uuid4(), {0: state})
        return f"{topic}-0"

    def reasons(self) -> dict[str, list[str]]:
        """Return the partitions by reason against a stop."""
        verdict = whole(self.health.safe(never))
        reasons: Any = verdict.content["reasons"]
        assert verdict.is_positive == (not reasons) == verdict.content["safe"]
        return {reason["reason"]: reason.get("partitions", []) for reason in reasons}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_broker_without_partitions_may_be_stopped(cluster: Cluster) -> None:
    assert whole(cluster.health.safe(never)) == Verdict(True, {"safe": True, "broker": ME, "reasons": []})


def test_fully_replicated_partitions_allow_the_stop(cluster: Cluster) -> None:
    cluster.add(ME, REPLICAS)
    cluster.add(A, REPLICAS)
    assert cluster.reasons() == {}


def test_leader_at_min_isr_must_not_stop(cluster: Cluster) -> None:
    # It is under-replicated too: the first reason that applies is reported.
    name = cluster.add(ME, (ME, A))
    assert cluster.reasons() == {MIN_ISR: [name]}


def test_follower_at_min_isr_must_not_stop(cluster: Cluster) -> None:
    name = cluster.add(A, (A, ME))
    assert cluster.reasons() == {MIN_ISR: [name]}


def test_follower_takes_the_isr_from_the_metadata(cluster: Cluster) -> None:
    name = cluster.add(A, REPLICAS, known_isr=(ME, A))
    assert cluster.reasons() == {MIN_ISR: [name]}


def test_leader_of_an_under_replicated_partition_must_not_stop(cluster: Cluster) -> None:
    name = cluster.add(ME, (ME, A), min_isr=1)
    assert cluster.reasons() == {UNDER_REPLICATED: [name]}


def test_follower_of_an_under_replicated_partition_may_stop(cluster: Cluster) -> None:
    cluster.add(A, (A, ME), min_isr=1)
    assert cluster.reasons() == {}


def test_only_in_sync_replica_must_not_stop(cluster: Cluster) -> None:
    led = cluster.add(ME, (ME,), min_isr=1)
    single = cluster.add(ME, (ME,), min_isr=1, replicas=(ME,))
    leaderless = cluster.add(-1, (ME,), min_isr=1)
    assert cluster.reasons() == {ONLY: [led, single, leaderless]}


def test_in_sync_replica_of_a_dead_broker_does_not_count(cluster: Cluster) -> None:
    name = cluster.add(ME, (ME, A), replicas=(ME, A), min_isr=1)
    assert cluster.reasons() == {}
    del cluster.metadata.brokers[A]
    assert cluster.reasons() == {ONLY: [name]}


def test_follower_that_is_not_in_sync_may_stop(cluster: Cluster) -> None:
    cluster.add(A, (A, B))
    cluster.add(A, (A,))
    assert cluster.reasons() == {}


def test_broker_that_is_not_ready_must_not_be_stopped(cluster: Cluster) -> None:
    cluster.state = BrokerState.RECOVERY
    assert cluster.reasons() == {"the broker is in the state RECOVERY": []}
    assert cluster.health.ready() == Verdict(
        False, {"status": "DOWN", "reasons": ["the broker is in the state RECOVERY"]}
    )
    cluster.state = BrokerState.RUNNING
    del cluster.metadata.brokers[ME]
    assert cluster.reasons() == {"the cluster's metadata have no broker 1": []}
    assert not cluster.health.ready().is_positive


def test_partitions_are_counted_and_some_are_named(cluster: Cluster) -> None:
    for _ in range(SHOWN_MAX + 5):
        cluster.add(A, (A, ME))
    (reason,) = whole(cluster.health.safe(never)).content["reasons"]  # type: ignore[misc]
    assert reason["count"] == SHOWN_MAX + 5
    assert len(reason["partitions"]) == SHOWN_MAX


async def test_checks_are_served_over_http(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"metrics.http.listener": "127.0.0.1:0"}) as broker:

        async def get(check: str) -> tuple[int, Any]:
            url = f"http://127.0.0.1:{broker.metrics_port}/health/{check}"
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status, await response.json()

        assert await get("live") == (200, {"status": "UP"})
        assert await get("ready") == (200, {"status": "UP", "reasons": []})
        assert await get("safe") == (200, {"safe": True, "broker": 0, "reasons": []})
        await broker.create_topic("single", 2)
        reason = {"reason": ONLY, "count": 2, "partitions": ["single-0", "single-1"]}
        assert await get("safe") == (503, {"safe": False, "broker": 0, "reasons": [reason]})


def test_a_listener_that_accepts_nothing_is_a_reason(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    assert cluster.health.ready().is_positive
    cluster.closed_listeners = ["PLAINTEXT"]
    verdict = cluster.health.ready()
    assert not verdict.is_positive
    assert verdict.content["reasons"] == ["the listener PLAINTEXT accepts no connections"]


def test_broker_without_a_session_is_not_registered(cluster: Cluster) -> None:
    is_registered = True
    health = Health(ME, cluster, cluster.metadata, lambda: cluster.state, is_registered=lambda: is_registered)
    assert health.ready().is_positive
    is_registered = False
    assert health.ready().content["reasons"] == [
        "the session with the metadata store has ended, and with it the registration"
    ]


def test_broker_is_not_alive_after_a_stall_until_the_loop_turns_in_time(cluster: Cluster) -> None:
    clock = ManualClock()
    turns = Turns(clock.monotonic_s())
    health = Health(
        ME, cluster, cluster.metadata, lambda: cluster.state, list, lambda: turns.lag_s(clock.monotonic_s())
    )
    clock.advance(5_000)
    assert health.live().is_positive, "4.9 s late"
    clock.advance(1_100)
    late = Verdict(False, {"status": "DOWN", "reasons": ["the event loop was 6.0 s late; less than 5 s is expected"]})
    assert health.live() == late, "before the loop measures its lag"
    turns.turn(clock.monotonic_s())
    assert health.live() == late
    clock.advance(100)
    turns.turn(clock.monotonic_s())
    assert health.live() == Verdict(True, {"status": "UP"})
