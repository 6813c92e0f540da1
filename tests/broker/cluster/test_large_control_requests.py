"""Control requests about thousands of partitions: they leave the event loop to other work."""

from __future__ import annotations

import asyncio
import time
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
from tests.support.in_process_cluster import running_cluster

TOPICS = 500
PARTITIONS_PER_TOPIC = 10
LOGS_PER_TOPIC = 2
"""Fewer for LeaderAndIsr, which creates logs."""
STALL_S_MAX = 0.020
CONTROLLER_EPOCH = 1 << 20


class Turns:
    """Measures the longest turn of the event loop, in processor time of its thread.

    Garbage collection must be off: a full collection in a turn would visit all objects of the test process.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            begun_s = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - begun_s)

    async def stop(self) -> float:
        self._task.cancel()
        await asyncio.wait([self._task])
        return self.longest_s


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


async def longest_turn(services: Services, *requests: LeaderAndIsrRequest | UpdateMetadataRequest) -> float:
    longest_s = 0.0
    for request in requests:
        turns = Turns()
        response = await services.control_door.submit(request)
        longest_s = max(longest_s, await turns.stop())
        assert response.error_code == ErrorCode.NONE
    return longest_s


async def test_metadata_of_many_partitions_does_not_stall_the_broker(tmp_path: Path, collector_is_off: None) -> None:
    async with running_cluster(tmp_path, (1,)) as cluster:
        longest_s = await longest_turn(cluster.services(1), update_metadata(1), update_metadata(2))
        assert longest_s < STALL_S_MAX


@pytest.mark.slow
async def test_leadership_of_many_partitions_does_not_stall_the_broker(tmp_path: Path, collector_is_off: None) -> None:
    async with running_cluster(tmp_path, (1,)) as cluster:
        services = cluster.services(1)
        await longest_turn(services, leader_and_isr(0))  # creates the logs
        assert await longest_turn(services, leader_and_isr(1), leader_and_isr(2)) < STALL_S_MAX


@pytest.mark.slow
async def test_large_control_requests_over_the_network_do_not_stall_either_broker(
    tmp_path: Path, collector_is_off: None
) -> None:
    async with running_cluster(tmp_path) as cluster:
        peer = cluster.services(1).peers.connect(2, "test")
        requests = [update_metadata(leader) for leader in (1, 2)]
        turns = Turns()
        for request in requests:
            response = await peer.ask(request, 8, timeout_ms=60_000)
            assert response.error_code == ErrorCode.NONE
        longest_s = await turns.stop()
        assert len(cluster.services(2).metadata_cache.topics) == TOPICS
        assert longest_s < STALL_S_MAX
