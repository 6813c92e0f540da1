"""Requests of one broker to the controller on another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.cluster.controller_link import ALTER_PARTITION_WITH_EPOCHS
from broker.network.outgoing import PeerUnavailable
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.messages.controlled_shutdown import ControlledShutdownRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataRequest
from tests.broker.cluster.test_control_channels import create
from tests.support.in_process import LISTENER
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until


async def test_producer_ids_come_in_blocks_from_the_controller(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        blocks = [await cluster.services(each).controller_link.allocate_producer_ids() for each in (1, 2, 1, 2)]
        assert [len(block) for block in blocks] == [1000] * 4
        assert len({producer_id for block in blocks for producer_id in block}) == 4000
        assert await cluster.services(2).producer_ids.next_id() not in set().union(*blocks)


async def change_isr(cluster: InProcessCluster, broker_id: int, leader_epoch: int) -> ErrorCode:
    """Report the ISR of t-0 that it has already; return the code of the partition."""
    services = cluster.services(broker_id)
    state = services.metadata_cache.topics["t"].partitions[0]
    partition = PartitionData(
        partition_index=0,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=each) for each in state.isr],
        partition_epoch=state.zk_version,
    )
    topic = TopicData(topic_id=services.metadata_cache.topics["t"].topic_id, partitions=[partition])
    epoch = cluster.controller.services.controller._active_term.context.live_brokers[broker_id].epoch  # type: ignore[union-attr]
    request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=[topic])
    response = await services.controller_link.alter_partition(request)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def test_leader_reports_its_in_sync_replicas(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [2])
        await until(lambda: cluster.services(2).metadata_cache.has_leaders("t", 1))
        assert await change_isr(cluster, 2, 0) == ErrorCode.NONE
        assert await change_isr(cluster, 2, 1) == ErrorCode.NOT_CONTROLLER


async def test_controlled_shutdown_moves_leadership_to_the_other_replicas(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [2, 1])
        await create(cluster, "u", [2])
        await until(lambda: cluster.services(2).metadata_cache.has_leaders("u", 1))
        # A partition with one replica is not moved, and not reported either.
        assert await cluster.services(2).controller_link.controlled_shutdown() == []
        await until(lambda: cluster.services(1).metadata_cache.leader_of("t", 0) == 1)
        assert cluster.services(1).metadata_cache.leader_of("u", 0) == 2


async def test_request_reaches_the_next_controller_after_the_present_one_stops(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2, 3)) as cluster:
        link = cluster.services(3).controller_link
        first = await link.allocate_producer_ids()
        await cluster.stop(1)
        await until(lambda: any(one.services.controller.is_active for one in cluster.brokers.values()))
        second = None
        for _ in range(200):
            try:
                second = await link.allocate_producer_ids()
                break
            except (KafkaError, PeerUnavailable):
                await asyncio.sleep(0.02)
        assert second is not None
        assert not set(first) & set(second)


async def test_request_to_a_controller_that_was_replaced_is_given_up(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2, 3)) as cluster:
        await until(lambda: len(cluster.services(3).metadata_cache.brokers) == 3)
        arrived = asyncio.Event()

        async def never_respond(*_: object) -> None:
            arrived.set()
            await asyncio.get_running_loop().create_future()

        cluster.services(1).controller.alter_partition = never_respond  # type: ignore[assignment,method-assign]
        services = cluster.services(3)
        asking = asyncio.ensure_future(
            services.controller_link.alter_partition(AlterPartitionRequest(broker_id=3, topics=[]))
        )
        await arrived.wait()
        host, port = services.metadata_cache.brokers[2].endpoints[LISTENER]
        endpoint = UpdateMetadataEndpoint(host=host, port=port, listener=LISTENER, security_protocol=0)
        request = UpdateMetadataRequest(
            controller_id=2, controller_epoch=99, live_brokers=[UpdateMetadataBroker(id=2, endpoints=[endpoint])]
        )
        await services.control_door.submit(request)
        with pytest.raises(PeerUnavailable, match="the connection was closed"):
            await asking


REQUESTS = [
    (ControlledShutdownRequest(broker_id=2), 1, ErrorCode.STALE_CONTROLLER_EPOCH),
    (AlterPartitionRequest(broker_id=2, topics=[]), ALTER_PARTITION_WITH_EPOCHS, ErrorCode.NOT_CONTROLLER),
    (AllocateProducerIdsRequest(broker_id=2), 0, ErrorCode.NOT_CONTROLLER),
]


@pytest.mark.parametrize(("request_", "version", "code"), REQUESTS, ids=lambda it: type(it).__name__)
async def test_broker_that_is_not_the_controller_refuses(
    tmp_path: Path, request_: object, version: int, code: ErrorCode
) -> None:
    async with running_cluster(tmp_path) as cluster:
        assert (await cluster.brokers[2].ask(request_, version)).error_code == code


async def test_broker_that_is_not_the_controller_creates_no_topics_for_clients(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        response = await cluster.brokers[2].ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
        assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("request_", [request for request, _, _ in REQUESTS], ids=lambda it: type(it).__name__)
async def test_listeners_for_clients_refuse_requests_of_brokers(tmp_path: Path, request_: object) -> None:
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
    }
    async with running_cluster(tmp_path, (1,), overrides) as cluster:
        cluster.brokers[1].channel.listener = "CLIENTS"
        response = await cluster.brokers[1].ask(request_)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
