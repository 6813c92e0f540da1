"""The frames that brokers send to each other, beside those of Apache Kafka 3.9.1 for the same event.

Compared are API, version, client id, order, and every field. What differs from run to run is replaced: ids of topics,
epochs of brokers and controllers, addresses, and the order of lists whose order Kafka does not define.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from broker.environment import environment_of_this_machine
from protocol.api import APIS
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.headers import read_request_header
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.schema import Struct
from tests.broker.cluster.test_control_channels import create
from tests.broker.transactions.test_across_brokers import commit_four
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until
from tests.support.recorded import BROKER_FRAMES, read_lines
from tests.support.recording_network import RecordingNetwork

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN = 4, 5, 6, 7
API_VERSIONS, ADD_PARTITIONS, WRITE_MARKERS, ALLOCATE_IDS = 18, 24, 27, 67
CONTROL = {LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA}

VARYING = {
    "controller_id", "controller_epoch", "broker_epoch", "topic_id", "port", "host", "host_name", "rack", "listener",
    "producer_id", "transactional_id", "coordinator_epoch", "broker_id",
    "client_software_name", "client_software_version",
}  # fmt: skip
UNORDERED = {"partition_states", "topic_states", "live_leaders", "live_brokers", "endpoints", "isr"}


class Sent(NamedTuple):
    """A request between brokers."""

    key: int
    version: int
    client_id: str | None
    request: Any


def sent(frame: bytes) -> Sent:
    header, position = read_request_header(frame)
    request = decode(APIS[header.api_key].request, header.api_version, frame, position)
    return Sent(header.api_key, header.api_version, header.client_id, request)


def shape(value: Any) -> Any:
    """Return what must be equal in every run."""
    if isinstance(value, Struct):
        fields = {}
        for field in value.__fields__:
            content = shape(getattr(value, field.name))
            if field.name in VARYING:
                content = type(content).__name__ if field.name != "rack" else "rack"
            elif field.name in UNORDERED:
                content = sorted(content, key=repr)
            fields[field.name] = content
        return fields
    if isinstance(value, list):
        return [shape(each) for each in value]
    return int(value) if isinstance(value, bool | ErrorCode) else value


@cache
def recorded() -> Sequence[tuple[str, int, Sent]]:
    """Kafka's requests: the scenario, the receiver, the request."""
    return [
        (line["scenario"], line["to_broker"], sent(bytes.fromhex(line["request_hex"])))
        for line in read_lines(BROKER_FRAMES)
        if "request_hex" in line
    ]


def of_kafka(scenario: str, key: int, receiver: int | None = None) -> Sent:
    return next(
        each
        for name, to_broker, each in recorded()
        if (name, each.key) == (scenario, key) and receiver in (None, to_broker)
    )


def ours(network: RecordingNetwork, cluster: InProcessCluster, receiver: int) -> Iterator[Sent]:
    """Yield what was sent to a broker, in order."""
    port = cluster.services(1).peers.address_of(receiver)
    assert port is not None
    for each in network.sent:
        if each.port == port.port:
            yield sent(each.frame)


def same_header(one: Sent, other: Sent) -> None:
    """Compare all of a header but the correlation id. Client ids contain the id of the sender."""
    assert one[:2] == other[:2]
    assert one.client_id is not None
    assert other.client_id is not None
    assert re.sub(r"\d+", "N", one.client_id) == re.sub(r"\d+", "N", other.client_id)


def one_endpoint(request: Any) -> Any:
    """Reduce brokers to one listener: Kafka's had three."""
    for broker in getattr(request, "live_brokers", ()):
        broker.endpoints = broker.endpoints[:1]
        broker.endpoints[0].security_protocol = 0
    return request


def recording(folder: Path) -> tuple[RecordingNetwork, Any]:
    network = RecordingNetwork()
    return network, running_cluster(
        folder, (3, 1, 2), environment=replace(environment_of_this_machine(), network=network)
    )


async def test_topic_is_created_with_the_requests_of_kafka(tmp_path: Path) -> None:
    network, running = recording(tmp_path)
    async with running as cluster:
        network.sent.clear()
        await create(cluster, "ibt", [1, 2, 3], [2, 3, 1])
        await until(lambda: cluster.services(1).metadata_cache.has_leaders("ibt", 2))
        control = [each for each in ours(network, cluster, 1) if each.key in CONTROL]
        assert [each.key for each in control] == [LEADER_AND_ISR, UPDATE_METADATA], "one of each for all partitions"
        for own in control:
            kafka = of_kafka("create-topic", own.key, receiver=1)
            same_header(own, kafka)
            assert shape(one_endpoint(own.request)) == shape(one_endpoint(kafka.request))


async def test_topic_is_deleted_with_the_requests_of_kafka(tmp_path: Path) -> None:
    network, running = recording(tmp_path)
    async with running as cluster:
        await create(cluster, "ibt", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        await until(lambda: cluster.services(1).metadata_cache.has_leaders("ibt", 3))
        network.sent.clear()
        await cluster.controller.ask(DeleteTopicsRequest(topic_names=["ibt"], timeout_ms=10_000), 5)
        await until(lambda: "/brokers/topics/ibt" not in cluster.tree.entries)
        control = [each for each in ours(network, cluster, 1) if each.key in CONTROL]
        assert [each.key for each in control[:2]] == [UPDATE_METADATA, STOP_REPLICA]
        for own in control[:2]:
            kafka = of_kafka("delete-topic", own.key, receiver=1)
            same_header(own, kafka)
            assert shape(one_endpoint(own.request)) == shape(one_endpoint(kafka.request))
        deleting = [each for each in control if each.key == STOP_REPLICA][1]
        states = deleting.request.topic_states[0].partition_states
        assert [(each.leader_epoch, each.delete_partition) for each in states] == [(-2, True)] * 3


async def test_brokers_get_the_live_brokers_first_and_all_metadata_before_their_replicas(tmp_path: Path) -> None:
    network, running = recording(tmp_path)
    async with running as cluster:
        await create(cluster, "t", [2, 3])
        await cluster.stop(2)
        await until(lambda: 2 not in cluster.services(1).metadata_cache.brokers)
        network.sent.clear()
        await cluster.start(2)
        await until(lambda: cluster.services(2).metadata_cache.has_leaders("t", 1))
        await until(lambda: cluster.services(2).replica_manager.find("t", 0) is not None)
        restarted = [each for each in ours(network, cluster, 2) if each.key in CONTROL]
        assert [each.key for each in restarted[:2]] == [UPDATE_METADATA, LEADER_AND_ISR]
        assert [topic.topic_name for topic in restarted[0].request.topic_states] == ["t"]
        updates = [each for each in ours(network, cluster, 1) if each.key == UPDATE_METADATA]
        other = next(each for each in updates if 2 in {broker.id for broker in each.request.live_brokers})
        assert other.request.topic_states == []
        kafka = of_kafka("restart-broker-2-first", UPDATE_METADATA, receiver=1)
        same_header(other, kafka)
        assert [broker.id for broker in other.request.live_brokers] == [1, 2, 3]


async def test_controlled_shutdown_is_requested_as_by_kafka(tmp_path: Path) -> None:
    network, running = recording(tmp_path)
    async with running as cluster:
        await cluster.services(2).controller_link.controlled_shutdown()
        (own,) = [each for each in ours(network, cluster, 3) if each.key == CONTROLLED_SHUTDOWN]
        kafka = of_kafka("controlled-shutdown-2", CONTROLLED_SHUTDOWN)
        same_header(own, kafka)
        assert shape(own.request) == shape(kafka.request)
        assert own.request.broker_id == 2
        assert API_VERSIONS not in {each.key for each in ours(network, cluster, 3)}


async def test_producer_ids_are_requested_as_by_kafka(tmp_path: Path) -> None:
    network, running = recording(tmp_path)
    async with running as cluster:
        await cluster.services(2).producer_ids.next_id()
        first, second = ours(network, cluster, 3)
        kafka = of_kafka("transactions-and-producer-ids", ALLOCATE_IDS)
        same_header(second, kafka)
        assert shape(second.request) == shape(kafka.request)
        begins = of_kafka("restart-broker-2-first", API_VERSIONS)
        same_header(first, begins)
        assert shape(first.request) == shape(begins.request)


async def test_transactions_cross_brokers_with_the_requests_of_kafka(tmp_path: Path) -> None:
    network, running = recording(tmp_path)
    async with running as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 2) for each in (1, 2, 3)))
        await commit_four(cluster)
        requests = [sent(each.frame) for each in network.sent]
        await until(lambda: WRITE_MARKERS in {sent(each.frame).key for each in network.sent})
        requests = [sent(each.frame) for each in network.sent]
        for key in (ADD_PARTITIONS, WRITE_MARKERS):
            own = next(each for each in requests if each.key == key)
            kafka = of_kafka("transactions-and-producer-ids", key)
            same_header(own, kafka)
            names = {"t", *(topic.name for each in _items(kafka.request) for topic in each.topics)}
            assert _named(shape(own.request), names) == _named(shape(kafka.request), names)
        by_connection: dict[int, list[int]] = {}
        for each in network.sent:
            by_connection.setdefault(each.connection, []).append(sent(each.frame).key)
        for keys in by_connection.values():
            assert (API_VERSIONS in keys) == (keys[0] == API_VERSIONS)
            assert API_VERSIONS in keys or not {ADD_PARTITIONS, ALLOCATE_IDS} & set(keys)
            assert API_VERSIONS not in keys or not {WRITE_MARKERS, *CONTROL} & set(keys)


def _items(request: Any) -> list[Any]:
    return getattr(request, "transactions", None) or request.markers


def _named(value: Any, names: set[str]) -> Any:
    """Replace names and numbers of partitions, which differ between the scenarios."""
    if isinstance(value, dict):
        return {key: "partitions" if "partition" in key else _named(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    return "topic" if value in names else value
