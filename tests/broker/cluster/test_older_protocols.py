"""Clusters whose brokers speak the protocols of earlier releases to each other (`inter.broker.protocol.version`)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from base.pause import AT_ONCE, Awaited
from broker.cluster.control_versions import versioned
from broker.environment import environment_of_this_machine
from config.inter_broker import inter_broker_protocol
from protocol.api import APIS
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.cluster.test_control_channels import create, produce
from tests.broker.cluster.test_frames_between_brokers import (
    Sent,
    of_kafka,
    one_endpoint,
    ours,
    same_header,
    sent,
    shape,
)
from tests.broker.transactions.test_across_brokers import commit_four
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until
from tests.support.recording_network import RecordingNetwork

PROTOCOL = "inter.broker.protocol.version"
REPLICATED = {"replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "100", "min.insync.replicas": "1"}

FETCH, LIST_OFFSETS, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, SHUTDOWN = 1, 2, 4, 5, 6, 7
EPOCH_ENDS, WRITE_MARKERS, ALTER_PARTITION, ALLOCATE_IDS = 23, 27, 56, 67

VERSIONS = ("0.8.0", "0.9.0", "0.10.2", "0.11.0-IV1", "1.1", "2.2", "2.4-IV0", "2.6", "2.7", "2.8", "3.2", "3.8")


def state_of(cluster: InProcessCluster, topic: str) -> tuple[int, list[int]]:
    """Return the leader and the ISR of the first partition, as the store has them."""
    node = json.loads(cluster.tree.entries[f"/brokers/topics/{topic}/partitions/0/state"].data or b"{}")
    return node["leader"], node["isr"]


def end_offset(cluster: InProcessCluster, broker_id: int, topic: str) -> int:
    partition = cluster.services(broker_id).replica_manager.find(topic, 0)
    return -1 if partition is None else partition.log.log_end_offset


def stored(cluster: InProcessCluster, broker_id: int, topic: str) -> bytes:
    """Return all batches of the first partition on a broker."""
    partition = cluster.services(broker_id).replica_manager.find(topic, 0)
    assert partition is not None
    read = partition.log.reader.read(0, 1 << 20, upper_bound_offset=1 << 40, min_one_batch=True)
    assert read is not None
    return bytes(read.records)


async def append(cluster: InProcessCluster, topic: str) -> None:
    """Have a record acknowledged by the leader that the store names."""

    def is_led() -> bool:
        leader = state_of(cluster, topic)[0]
        partition = None if leader == -1 else cluster.services(leader).replica_manager.find(topic, 0)
        return partition is not None and partition.is_leader

    await until(is_led)
    assert await produce(cluster.brokers[state_of(cluster, topic)[0]], topic, 0, acks=-1) == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
async def test_partition_survives_its_leader_in_every_protocol(tmp_path: Path, version: str) -> None:
    network = RecordingNetwork()
    environment = replace(environment_of_this_machine(), network=network)
    async with running_cluster(tmp_path, (1, 2), {PROTOCOL: version, **REPLICATED}, environment) as cluster:
        await create(cluster, "t", [2, 1])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 1) for each in (1, 2)))
        for _ in range(3):
            await append(cluster, "t")
        await cluster.stop(2)
        await until(lambda: state_of(cluster, "t") == (1, [1]), "the follower leads")
        await append(cluster, "t")
        await cluster.start(2)
        await until(lambda: state_of(cluster, "t") == (1, [1, 2]), "the former leader is in sync")
        await append(cluster, "t")
        assert [end_offset(cluster, each, "t") for each in (1, 2)] == [5, 5]
        assert await cluster.services(2).producer_ids.next_id() >= 0
        await cluster.services(2).controller_link.controlled_shutdown()
        assert stored(cluster, 1, "t") == stored(cluster, 2, "t")
        await cluster.controller.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        await until(lambda: "/brokers/topics/t" not in cluster.tree.entries)
        await until(lambda: end_offset(cluster, 2, "t") == -1)
        assert_versions([sent(each.frame) for each in network.sent], version)


def assert_versions(requests: list[Sent], version: str) -> None:
    """Check the version of each request between brokers, and that none was sent which the protocol does not know."""
    protocol = inter_broker_protocol(version)
    expected: Mapping[int, int | None] = {
        LEADER_AND_ISR: protocol.leader_and_isr,
        UPDATE_METADATA: protocol.update_metadata,
        STOP_REPLICA: protocol.stop_replica,
        SHUTDOWN: protocol.controlled_shutdown,
        EPOCH_ENDS: None if protocol.compares_epochs_by_fetch else protocol.offset_for_leader_epoch,
        ALTER_PARTITION: protocol.alter_partition,
        ALLOCATE_IDS: protocol.allocate_producer_ids,
    }
    seen: dict[int, set[int]] = {}
    for request in requests:
        seen.setdefault(request.key, set()).add(request.version)
    for key, wanted in expected.items():
        assert seen.get(key, set()) <= {wanted}, (APIS[key].name, seen.get(key), wanted)
    assert {LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA, SHUTDOWN, FETCH} <= seen.keys()
    assert (ALLOCATE_IDS in seen) == (protocol.allocate_producer_ids is not None)
    assert (EPOCH_ENDS in seen) == (expected[EPOCH_ENDS] is not None)
    # A topic has an id in the protocol that fetches by id.
    assert seen[FETCH] == {protocol.fetch}


async def test_requests_of_protocol_2_6_are_those_of_kafka(tmp_path: Path) -> None:
    network = RecordingNetwork()
    environment = replace(environment_of_this_machine(), network=network)
    async with running_cluster(tmp_path, (1, 2), {PROTOCOL: "2.6", **REPLICATED}, environment) as cluster:
        await create(cluster, "old2", [1, 2], [2, 1])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("old2", 2) for each in (1, 2)))
        assert await produce(cluster.brokers[1], "old2", 0, acks=-1) == ErrorCode.NONE
        assert await produce(cluster.brokers[2], "old2", 1, acks=-1) == ErrorCode.NONE
        created = list(ours(network, cluster, 2))
        await cluster.services(2).controller_link.controlled_shutdown()
        await until(lambda: STOP_REPLICA in {each.key for each in ours(network, cluster, 2)})
        stopped = list(ours(network, cluster, 2))[len(created) :]
        asked = list(ours(network, cluster, 1))
    for key, own in (
        (LEADER_AND_ISR, next(each for each in created if each.key == LEADER_AND_ISR)),
        (STOP_REPLICA, next(each for each in stopped if each.key == STOP_REPLICA)),
        (SHUTDOWN, next(each for each in asked if each.key == SHUTDOWN)),
    ):
        kafka = of_kafka("protocol-2.6", key)
        same_header(own, kafka)
        if key != STOP_REPLICA:  # Kafka's stopped replicas of a topic that was being deleted
            assert shape(one_endpoint(own.request)) == shape(one_endpoint(kafka.request))
    for key in (UPDATE_METADATA, FETCH, EPOCH_ENDS):
        for own in (each for each in (*created, *asked) if each.key == key):
            same_header(own, of_kafka("protocol-2.6", key))
            assert shape(own.request).keys() == shape(of_kafka("protocol-2.6", key).request).keys()


@pytest.mark.parametrize("version", ["0.8.0", "2.2", "2.4"])
async def test_older_stop_replica_is_built_with_a_pause_for_each_partition(version: str) -> None:
    names = [StopReplicaPartitionState(partition_index=it, delete_partition=it % 2 == 0) for it in range(20)]
    request = StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=names)],
    )
    pauses = itertools.count()

    def pause() -> Awaited:
        next(pauses)
        return AT_ONCE

    parts = await versioned(request, inter_broker_protocol(version), pause)
    assert [part.version for part in parts] == [inter_broker_protocol(version).stop_replica] * 2
    assert next(pauses) >= 2 * len(names), "each is read once and written once"


async def test_nodes_of_protocol_2_6_are_those_of_kafka(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1,), {PROTOCOL: "2.6"}) as cluster:
        nodes = {name: cluster.tree.entries[name].data for name in ("/brokers/ids/1", "/feature")}
    registration = json.loads(nodes["/brokers/ids/1"] or b"{}")
    assert registration["version"] == 4
    assert "features" not in registration
    assert nodes["/feature"] == b'{"features":{},"version":1,"status":0}'


async def test_features_are_unknown_below_protocol_2_7(tmp_path: Path) -> None:
    update = FeatureUpdateKey(feature="f", max_version_level=1, upgrade_type=1)
    client = ApiVersionsRequest(client_software_name="probe", client_software_version="1")
    async with running_cluster(tmp_path, (1,), {PROTOCOL: "2.6"}) as cluster:
        refused = await cluster.controller.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == ("Feature versioning system is disabled because the IBP is older than 2.7-IV0.")
        assert (await cluster.controller.ask(client, 4)).finalized_features_epoch == -1


async def test_features_are_enabled_when_the_protocol_is_raised(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1,), {PROTOCOL: "2.6"}) as cluster:
        await cluster.stop(1)
        await cluster.start(1, {PROTOCOL: "3.9"})
        assert cluster.tree.entries["/feature"].data == b'{"features":{},"version":2,"status":1}'


async def test_topics_have_no_ids_below_2_8_and_get_them_when_it_is_raised(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2), {PROTOCOL: "2.7", **REPLICATED}) as cluster:
        await create(cluster, "t", [1, 2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 1) for each in (1, 2)))
        for broker in cluster.brokers.values():
            response = await broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
            assert response.topics[0].topic_id.int == 0
        for broker_id in (1, 2):
            await cluster.stop(broker_id)
            await cluster.start(broker_id, {PROTOCOL: "2.8"})
            await until(lambda: state_of(cluster, "t")[1] in ([1, 2], [2, 1]))
        for broker in cluster.brokers.values():
            await until(lambda broker=broker: broker.services.metadata_cache.topics["t"].topic_id.int != 0)
        ids = {broker.services.metadata_cache.topics["t"].topic_id for broker in cluster.brokers.values()}
        assert len(ids) == 1
        await append(cluster, "t")


@pytest.mark.parametrize("version", ["2.6", "2.7"])
async def test_transactions_cross_brokers_in_older_protocols(tmp_path: Path, version: str) -> None:
    network = RecordingNetwork()
    environment = replace(environment_of_this_machine(), network=network)
    async with running_cluster(tmp_path, (3, 1, 2), {PROTOCOL: version}, environment) as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 2) for each in (1, 2, 3)))
        await commit_four(cluster)
        await until(lambda: WRITE_MARKERS in {sent(each.frame).key for each in network.sent})
        markers = [sent(each.frame) for each in network.sent]
        assert {each.version for each in markers if each.key == WRITE_MARKERS} == {0}
        assert ALLOCATE_IDS not in {each.key for each in markers}


async def test_protocol_is_raised_broker_by_broker(tmp_path: Path) -> None:
    """Of three replicas one after the other restarts with the new protocol, while acknowledged records arrive."""
    async with running_cluster(tmp_path, (1, 2, 3), {PROTOCOL: "2.6", **REPLICATED}) as cluster:
        await create(cluster, "t", [1, 2, 3])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 1) for each in (1, 2, 3)))
        written = 0
        for broker_id in (1, 2, 3):
            await cluster.stop(broker_id)
            await until(lambda broker_id=broker_id: state_of(cluster, "t")[0] not in (-1, broker_id))
            for _ in range(3):
                await append(cluster, "t")
                written += 1
            await cluster.start(broker_id, {PROTOCOL: "3.9"})
            await until(lambda: len(state_of(cluster, "t")[1]) == 3, "all replicas are in sync")
        await until(lambda: [end_offset(cluster, each, "t") for each in (1, 2, 3)] == [written] * 3)
