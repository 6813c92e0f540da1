"""Consumers that read from followers near them: what the leader recommends, and what a follower serves (KIP-392)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from broker.replica.near_reads import NearReads, RackAwareSelector, ReadingClient, ReplicaView
from config.broker import BrokerConfig
from config.definition import ConfigErrors
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records.batch import records
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import LISTENER, InProcessBroker
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SETTINGS = {
    "replica.selector.class": SELECTOR,
    "replica.fetch.wait.max.ms": "100",
    "transaction.partition.verification.enable": "false",
}
RACKS = {1: "north", 2: "south", 3: "east"}
SIZE_MAX = 1 << 20


class SouthernSelector:
    """Sends every client to the south, whatever its rack."""

    def select(
        self, topic: str, partition: int, client: ReadingClient, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> ReplicaView | None:
        if client.client_id == "broken":
            raise ValueError("no south")
        if client.client_id == "lost":
            return leader._replace(broker_id=9)
        return next((replica for replica in replicas if replica.rack == "south"), None)


@asynccontextmanager
async def racks(folder: Path, settings: dict[str, str] | None = None) -> AsyncIterator[InProcessCluster]:
    """Three brokers in three racks with the topic `t`, whose leader is broker 1, and whose replicas are in sync."""
    async with running_cluster(folder, (), SETTINGS | (settings or {})) as cluster:
        for broker_id, rack in RACKS.items():
            await cluster.start(broker_id, {"broker.rack": rack})
        await cluster.see_each_other()
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
        topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[])
        response = await cluster.controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert not response.topics[0].error_code, response
        await until(lambda: all(each.services.metadata_cache.has_leaders("t", 1) for each in cluster.brokers.values()))
        yield cluster


async def produce(cluster: InProcessCluster, batch: bytes) -> None:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    response = await cluster.brokers[1].ask(
        ProduceRequest(transactional_id="x", acks=-1, timeout_ms=10_000, topic_data=[data]), 9
    )
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    await until(
        lambda: all(log_of(each).high_watermark == log_of(each).log_end_offset for each in cluster.brokers.values())
    )


def log_of(broker: InProcessBroker) -> Any:
    partition = broker.services.replica_manager.find("t", 0)
    assert partition is not None
    return partition.log


def values(*contents: bytes) -> bytes:
    return build_batch([RecordData(1, None, content) for content in contents])


async def fetch(
    broker: InProcessBroker,
    offset: int,
    rack: str = "",
    version: int = 12,
    *,
    epoch: int = -1,
    committed: bool = False,
    wait_ms: int = 0,
) -> PartitionData:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=SIZE_MAX, current_leader_epoch=epoch)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=SIZE_MAX,
        isolation_level=int(committed),
        session_epoch=-1,
        rack_id=rack,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    response = await broker.ask(request, version)
    (topic,) = response.responses
    (data,) = topic.partitions
    found: PartitionData = data
    return found


def contents(data: PartitionData) -> list[bytes | None]:
    assert data.error_code == ErrorCode.NONE
    return [record.value for record in records(data.records, size_max=SIZE_MAX)] if data.records else []


async def test_leader_sends_a_consumer_to_the_replica_in_its_rack(tmp_path: Path) -> None:
    async with racks(tmp_path) as cluster:
        await produce(cluster, values(b"a", b"b"))
        leader = cluster.brokers[1]
        for rack, preferred in (("north", -1), ("south", 2), ("east", 3), ("west", -1), ("", -1)):
            data = await fetch(leader, 0, rack)
            assert (data.preferred_read_replica, contents(data)) == (preferred, [] if preferred > 0 else [b"a", b"b"])
            assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (2, 2, 0)
        assert contents(await fetch(leader, 0, "south", 10)) == [b"a", b"b"], "the client knows no other replica"
        # A follower that does not have the offset is no candidate.
        assert (await fetch(leader, 3, "south")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_follower_serves_consumers_up_to_its_high_watermark(tmp_path: Path) -> None:
    async with racks(tmp_path) as cluster:
        await produce(cluster, values(b"a", b"b"))
        follower = cluster.brokers[2]
        for rack in ("south", ""):
            data = await fetch(follower, 0, rack)
            assert (contents(data), data.preferred_read_replica) == ([b"a", b"b"], -1)
        assert contents(await fetch(follower, 2)) == []
        assert (await fetch(follower, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await fetch(follower, 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = follower.services.replica_manager.find("t", 0)
        assert partition is not None
        assert (await fetch(follower, 0, epoch=partition.leader_epoch)).error_code == ErrorCode.NONE
        assert (await fetch(follower, 0, epoch=partition.leader_epoch + 1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        partition.stop()
        assert (await fetch(follower, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_consumer_waits_at_a_follower_for_committed_records(tmp_path: Path) -> None:
    async with racks(tmp_path) as cluster:
        waiting = asyncio.create_task(fetch(cluster.brokers[3], 0, wait_ms=30_000))
        await until(lambda: cluster.services(3).replica_manager.fetch_purgatory.delayed_count)
        await produce(cluster, values(b"late"))
        assert contents(await waiting) == [b"late"]
        # Another broker is elected: the epoch that the reader knew is over, and the wait ends.
        waiting = asyncio.create_task(fetch(cluster.brokers[3], 1, wait_ms=30_000))
        await until(lambda: cluster.services(3).replica_manager.fetch_purgatory.delayed_count)
        await cluster.stop(1)
        assert (await waiting).error_code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_session_tells_of_the_near_replica_again_and_again(tmp_path: Path) -> None:
    async with racks(tmp_path) as cluster:
        await produce(cluster, values(b"a"))
        leader = cluster.brokers[1]
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=SIZE_MAX)
        opening = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_epoch=0,
            rack_id="south",
            topics=[FetchTopic(topic="t", partitions=[wanted])],
        )
        response = await leader.ask(opening, 12)
        assert response.session_id
        for epoch in (1, 2):
            assert response.responses[0].partitions[0].preferred_read_replica == 2
            request = FetchRequest(
                max_wait_ms=30_000,
                min_bytes=1,
                session_id=response.session_id,
                session_epoch=epoch,
                rack_id="south",
                topics=[],
            )
            response = await leader.ask(request, 12)


async def test_follower_knows_aborted_transactions(tmp_path: Path) -> None:
    async with racks(tmp_path) as cluster:
        producer_id = (
            await cluster.brokers[1].ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
        ).producer_id
        await produce(
            cluster,
            build_batch(
                [RecordData(1, None, b"undone")],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            ),
        )
        await produce(cluster, values(b"plain"))
        follower = cluster.brokers[2]
        data = await fetch(follower, 0, committed=True)
        assert (contents(data), data.last_stable_offset, data.high_watermark) == ([], 0, 2)
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=0,
        )
        await cluster.brokers[1].ask(WriteTxnMarkersRequest(markers=[marker]))
        await until(lambda: log_of(follower).last_stable_offset == 3)
        data = await fetch(follower, 0, committed=True)
        assert data.aborted_transactions is not None
        assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(producer_id, 0)]


async def test_own_selector_decides_and_its_failures_leave_the_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{__name__}:{SouthernSelector.__name__}"
    async with racks(tmp_path, {"replica.selector.class": name}) as cluster:
        await produce(cluster, values(b"a"))
        assert (await fetch(cluster.brokers[1], 0)).preferred_read_replica == 2


LEADER = ReplicaView(1, "a", 1, "north", 10, 0)


@pytest.mark.parametrize(
    ("rack", "others", "selected"),
    [
        ("south", [ReplicaView(2, "b", 1, "south", 8, 5), ReplicaView(3, "c", 1, "south", 9, 9)], 3),
        ("south", [ReplicaView(2, "b", 1, "south", 9, 5), ReplicaView(3, "c", 1, "south", 9, 9)], 2),
        ("south", [ReplicaView(2, "b", 1, "south", 9, 5), ReplicaView(3, "c", 1, "south", 9, 5)], 3),
        ("north", [ReplicaView(2, "b", 1, "north", 10, 0)], 1),
        ("", [ReplicaView(2, "b", 1, "", 10, 0)], 1),
        ("west", [ReplicaView(2, "b", 1, None, 10, 0)], 1),
    ],
)
def test_the_most_current_replica_of_the_rack_is_selected(rack: str, others: list[ReplicaView], selected: int) -> None:
    client = ReadingClient(rack, "c", "127.0.0.1", "User:ann", "PLAINTEXT")
    found = RackAwareSelector().select("t", 0, client, LEADER, [LEADER, *others])
    assert found is not None
    assert found.broker_id == selected


@pytest.mark.parametrize(
    ("client_id", "text"), [("broken", "failed; consumers read from leaders"), ("lost", "none of the replicas")]
)
def test_selector_that_fails_is_logged_once(client_id: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    reads = NearReads(SouthernSelector(), 1, dict, lambda: 0)
    client = ReadingClient("south", client_id, "127.0.0.1", "User:ann", "PLAINTEXT")

    class NamedPartition:
        topic, partition = "t", 0

    for _ in range(2):
        assert reads._select(NamedPartition(), client, LEADER, [LEADER]) is LEADER  # type: ignore[arg-type]
    assert caplog.text.count(text) == 1


def test_java_class_is_refused_by_name() -> None:
    with pytest.raises(ConfigErrors, match="Java classes cannot be loaded"):
        BrokerConfig.from_properties({"replica.selector.class": "com.example.Selector", "log.dirs": "/tmp/x"}, {})


async def test_librdkafka_reads_from_the_follower_in_its_rack(tmp_path: Path) -> None:
    async with racks(tmp_path) as cluster:
        expected = [b"%d" % number for number in range(100)]
        for value in expected:
            await produce(cluster, values(value))
        host, port = cluster.services(1).metadata_cache.brokers[1].endpoints[LISTENER]
        settings = {"bootstrap.servers": f"{host}:{port}", "group.id": "g", "client.rack": "east"}

        def read() -> list[bytes | None]:
            consumer = Consumer(settings)
            try:
                consumer.assign([TopicPartition("t", 0, 0)])
                return [message.value() for message in consumer.consume(len(expected), 30)]
            finally:
                consumer.close()

        assert await asyncio.to_thread(read) == expected
        sent = {number: cluster.services(number).replica_manager.topic_metrics.by_topic["t"] for number in RACKS}
        assert {number: metrics.bytes_out > 0 for number, metrics in sent.items()} == {1: False, 2: False, 3: True}
