"""What clients are told of leaders and replicas that are not there, or not for them."""

from dataclasses import replace

import pytest

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from protocol.messages.update_metadata import UpdateMetadataPartitionState
from tests.support.in_process import InProcessBroker

DEAD = 9


async def told(broker: InProcessBroker, topic: str, version: int) -> MetadataResponsePartition:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    response = await broker.ask(request, version)
    assert response.topics[0].error_code == ErrorCode.NONE
    (partition,) = response.topics[0].partitions
    assert isinstance(partition, MetadataResponsePartition)
    return partition


def known(broker: InProcessBroker, topic: str) -> UpdateMetadataPartitionState:
    """What the broker itself was told, to be changed in place."""
    state = broker.services.metadata_cache.topics[topic]
    state.told.clear()
    return state.partitions[0]


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
async def test_a_leader_without_an_address_on_the_clients_listener(
    served: InProcessBroker, name: str, version: int, code: ErrorCode
) -> None:
    await served.create_topic(name)
    cache = served.services.metadata_cache
    known(served, name)
    cache.brokers[0] = replace(cache.brokers[0], endpoints={"INTERNAL": ("10.0.0.1", 9093)})
    partition = await told(served, name, version)
    assert (partition.error_code, partition.leader_id) == (code, -1)


@pytest.mark.parametrize("version", [0, 1, 7, 12])
@pytest.mark.parametrize("leader", [-1, DEAD])
async def test_a_partition_without_a_live_leader(served: InProcessBroker, name: str, version: int, leader: int) -> None:
    await served.create_topic(name)
    known(served, name).leader = leader
    partition = await told(served, name, version)
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


@pytest.mark.parametrize(
    ("version", "code", "replicas"),
    [(0, ErrorCode.REPLICA_NOT_AVAILABLE, [0]), (1, ErrorCode.NONE, [0, DEAD]), (12, ErrorCode.NONE, [0, DEAD])],
)
async def test_dead_replicas_are_hidden_from_clients_that_cannot_cope(
    served: InProcessBroker, name: str, version: int, code: ErrorCode, replicas: list[int]
) -> None:
    await served.create_topic(name)
    state = known(served, name)
    state.replicas, state.isr = [0, DEAD], [0]
    partition = await told(served, name, version)
    assert (partition.error_code, partition.leader_id) == (code, 0)
    assert (partition.replica_nodes, partition.isr_nodes) == (replicas, [0])
