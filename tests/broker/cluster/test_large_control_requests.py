"""Control requests about thousands of partitions: they leave the event loop to other work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from broker.requests.services import Services
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.in_process_cluster import InProcessCluster, running_cluster
from tests.support.loop_thread import LoopThread, Turns, loop_thread

TOPICS = 500
PARTITIONS_PER_TOPIC = 40
LOGS_PER_TOPIC = 4
"""Fewer for LeaderAndIsr, which creates logs."""
STALL_S_MAX = 0.020
CONTROLLER_EPOCH = 1 << 20


def update_metadata(leader: int) -> UpdateMetadataRequest:
    topics = [
        UpdateMetadataTopicState(
            topic_name=f"t{number}",
            topic_id=UUID(int=number + 1),
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=1,
                    leader=leader,
                    leader_epoch=leader,
                    isr=[1, 2],
                    zk_version=0,
                    replicas=[1, 2],
                )
                for index in range(PARTITIONS_PER_TOPIC)
            ],
        )
        for number in range(TOPICS)
    ]
    endpoint = UpdateMetadataEndpoint(port=1, host="h", listener="PLAINTEXT", security_protocol=0)
    return UpdateMetadataRequest(
        controller_id=7,
        controller_epoch=CONTROLLER_EPOCH,
        topic_states=topics,
        live_brokers=[UpdateMetadataBroker(id=each, endpoints=[endpoint]) for each in (1, 2)],
    )


def leader_and_isr(leader_epoch: int) -> LeaderAndIsrRequest:
    topics = [
        LeaderAndIsrTopicState(
            topic_name=f"t{number}",
            topic_id=UUID(int=number + 1),
            partition_states=[
                LeaderAndIsrPartitionState(
                    partition_index=index,
                    controller_epoch=1,
                    leader=1,
                    leader_epoch=leader_epoch,
                    isr=[1],
                    partition_epoch=leader_epoch,
                    replicas=[1],
                    is_new=True,
                )
                for index in range(LOGS_PER_TOPIC)
            ],
        )
        for number in range(TOPICS)
    ]
    return LeaderAndIsrRequest(
        controller_id=7,
        controller_epoch=CONTROLLER_EPOCH,
        topic_states=topics,
        live_leaders=[LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=1)],
    )


@contextmanager
def measured_cluster(folder: Path, *broker_ids: int) -> Iterator[tuple[LoopThread, InProcessCluster, Turns]]:
    turns = Turns()
    with (
        turns.measured(),
        loop_thread(asyncio.SelectorEventLoop) as thread,
        thread.entered(running_cluster(folder, broker_ids)) as cluster,
    ):
        yield thread, cluster, turns


async def submit(services: Services, request: LeaderAndIsrRequest | UpdateMetadataRequest) -> None:
    response = await services.control_door.submit(request)
    assert response.error_code == ErrorCode.NONE


async def send_to_peer(services: Services, *requests: UpdateMetadataRequest) -> None:
    peer = services.peers.connect(2, "test")
    for request in requests:
        response = await peer.ask(request, 8, timeout_ms=60_000)
        assert response.error_code == ErrorCode.NONE


def test_metadata_of_many_partitions_does_not_stall_the_broker(tmp_path: Path, collector_is_off: None) -> None:
    with measured_cluster(tmp_path, 1) as (thread, cluster, turns):
        turns.reset()
        for leader in (1, 2):
            thread.run(submit(cluster.services(1), update_metadata(leader)))
        assert 0 < turns.longest_s < STALL_S_MAX


@pytest.mark.slow
def test_leadership_of_many_partitions_does_not_stall_the_broker(tmp_path: Path, collector_is_off: None) -> None:
    with measured_cluster(tmp_path, 1) as (thread, cluster, turns):
        thread.run(submit(cluster.services(1), leader_and_isr(0)))  # creates the logs
        turns.reset()
        for leader_epoch in (1, 2):
            thread.run(submit(cluster.services(1), leader_and_isr(leader_epoch)))
        assert 0 < turns.longest_s < STALL_S_MAX


@pytest.mark.slow
def test_large_control_requests_over_the_network_do_not_stall_either_broker(
    tmp_path: Path, collector_is_off: None
) -> None:
    with measured_cluster(tmp_path, 1, 2) as (thread, cluster, turns):
        turns.reset()
        thread.run(send_to_peer(cluster.services(1), update_metadata(1), update_metadata(2)))
        assert len(cluster.services(2).metadata_cache.topics) == TOPICS
        assert 0 < turns.longest_s < STALL_S_MAX
