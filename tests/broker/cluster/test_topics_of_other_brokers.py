"""Topics that a broker creates while another one is the controller."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from broker.requests.services import Services
from controller.tree import paths
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.cluster.test_control_channels import create, produce
from tests.support.in_process_cluster import running_cluster, until


def leads(broker: Services, topic: str, index: int) -> bool:
    partition = broker.replica_manager.find(topic, index)
    return partition is not None and partition.is_leader


async def test_named_topic_is_created_by_the_broker_that_was_asked(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2), {"num.partitions": "3"}) as cluster:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        response = await cluster.brokers[2].ask(request)
        assert response.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert response.controller_id == 1
        response = await cluster.brokers[2].ask(request)
        assert not response.topics[0].error_code
        assert {partition.leader_id for partition in response.topics[0].partitions} == {1, 2}
        for partition in response.topics[0].partitions:
            # The metadata may name a leader before that broker has received its LeaderAndIsr.
            await until(partial(leads, cluster.services(partition.leader_id), "t", partition.partition_index))
            assert await produce(cluster.brokers[partition.leader_id], "t", partition.partition_index) == ErrorCode.NONE
        assert cluster.tree.entries[paths.config_path(paths.topic_entity("t"))].data == b'{"version":1,"config":{}}'


async def test_broker_without_a_replica_describes_the_settings_of_a_topic(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2)) as cluster:
        topic = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
            configs=[CreatableTopicConfig(name="retention.ms", value="5")],
        )
        await cluster.controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        await until(lambda: "t" in cluster.services(2).metadata_cache.topics)
        resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
        response = await cluster.brokers[2].ask(DescribeConfigsRequest(resources=[resource]))
        assert [row.value for row in response.results[0].configs] == ["5"]


async def test_brokers_that_create_the_same_topic_at_once_get_one(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2, 3)) as cluster:
        asking = [
            cluster.brokers[each].ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])) for each in (1, 2, 3)
        ]
        responses = await asyncio.gather(*asking)
        assert {response.coordinators[0].error_code for response in responses} <= {
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        }
        await until(
            lambda: all(
                cluster.services(each).metadata_cache.has_leaders("__consumer_offsets", 4) for each in (1, 2, 3)
            )
        )
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        found = [await cluster.brokers[each].ask(request) for each in (1, 2, 3)]
        assert len({response.coordinators[0].node_id for response in found}) == 1
        assert not any(response.coordinators[0].error_code for response in found)


async def test_topic_without_enough_brokers_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2), {"default.replication.factor": "3"}) as cluster:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        response = await cluster.brokers[2].ask(request)
        assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "/brokers/topics/t" not in cluster.tree.entries


CHANGES = [
    DeleteTopicsRequest(topics=[], topic_names=["t"], timeout_ms=1000),
    CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)], timeout_ms=1000, validate_only=False
    ),
    ElectLeadersRequest(topic_partitions=None, timeout_ms=1000),
]


@pytest.mark.parametrize("request_", CHANGES, ids=lambda it: type(it).__name__)
async def test_changes_of_topics_are_refused_by_brokers_that_are_not_the_controller(
    tmp_path: Path, request_: object
) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [1])
        version = 5 if isinstance(request_, DeleteTopicsRequest) else None
        response = await cluster.brokers[2].ask(request_, version)
        if isinstance(request_, ElectLeadersRequest):
            assert response.error_code == ErrorCode.NOT_CONTROLLER
        else:
            results = response.responses if isinstance(request_, DeleteTopicsRequest) else response.results
            assert [result.error_code for result in results] == [ErrorCode.NOT_CONTROLLER]
