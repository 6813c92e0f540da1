"""Rows of the metric table against a broker under a known load: name, labels, type and value in Prometheus and JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from storage.disk.files import OsFiles
from tests.broker.handlers.test_produce_and_fetch import batch_of, produce
from tests.support.in_process import InProcessBroker, running_broker

BATCHES, RECORDS, VALUE_SIZE = 5, 20, 100
LARGE = batch_of(b"x" * 5_000)
GOOD = batch_of(*[b"x" * VALUE_SIZE] * RECORDS)
KEYLESS = build_batch([RecordData(1, None, b"x")])
NO_EPOCH = -1


class Row(NamedTuple):
    """One series: its name and labels in Prometheus, the type of its metric, and its object in JSON."""

    name: str
    kind: str
    value: float
    labels: dict[str, str]
    bean: str
    attribute: str


def row(name: str, kind: str, value: float, bean: str, attribute: str = "Value", **labels: str) -> Row:
    return Row(name, kind, value, labels, bean, attribute)


TOPIC = {"topic": "t"}
PARTITION = {"topic": "t", "partition": "0"}
PRODUCE_9 = {"request": "Produce", "version": "9"}
SERVER, LOG, CLUSTER = "kafka.server:type=", "kafka.log:type=Log,name=", "kafka.cluster:type=Partition,name="
TOPICS, CONTROLLER = f"{SERVER}BrokerTopicMetrics,name=", "kafka.controller:type=KafkaController,name="
GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="
PURGATORY = f"{SERVER}DelayedOperationPurgatory,name="
T, C, G = "topic=t", "Count", "gauge"


async def put_under_load(broker: InProcessBroker) -> asyncio.Task[Any]:
    """Send a known load; return a fetch that waits for records."""
    await broker.create_topic("t", 3, max_message_bytes="4000", flush_messages="1")
    await broker.create_topic("compacted", cleanup_policy="compact")
    for _ in range(BATCHES):
        await produce(broker, "t", {0: GOOD})
    assert (await produce(broker, "t", {1: LARGE}))[1].error_code
    assert (await produce(broker, "t", {1: GOOD[:-1] + b"\xff"}))[1].error_code
    assert (await produce(broker, "compacted", {0: KEYLESS}))[0].error_code
    for _ in range(2):
        await fetch(broker, {0: 0}, session_epoch=NO_EPOCH)
    await fetch(broker, {1: 0, 2: 0}, session_epoch=0)  # opens a session
    deletion = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=7)])
    await broker.ask(DeleteRecordsRequest(topics=[deletion], timeout_ms=1_000))
    await commit(broker)
    await write_in_transaction(broker)
    waiting = asyncio.ensure_future(fetch(broker, {1: 0, 0: BATCHES * RECORDS}, session_epoch=NO_EPOCH, wait_ms=60_000))
    await asyncio.sleep(0)
    return waiting


async def fetch(broker: InProcessBroker, offsets: dict[int, int], *, session_epoch: int, wait_ms: int = 0) -> Any:
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=1 << 20)
                    for each, offset in offsets.items()
                ],
            )
        ],
    )
    return await broker.ask(request, 12)


async def accepted(broker: InProcessBroker, request: object, version: int | None, code_of: Callable[[Any], int]) -> Any:
    """Send a request until it succeeds: coordinators load their partitions after they were created."""
    for _ in range(1_000):
        response = await broker.ask(request, version)
        if not code_of(response):
            return response
        await asyncio.sleep(0.01)
    raise AssertionError(response)


async def commit(broker: InProcessBroker) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=each, committed_metadata="")
        for each in range(3)
    ]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    await broker.services.topics.ensure_internal("__consumer_offsets")
    await accepted(broker, request, None, lambda response: response.topics[0].partitions[0].error_code)


async def write_in_transaction(broker: InProcessBroker) -> None:
    """Leave a transaction open in partition 2 of t."""
    await broker.services.topics.ensure_internal("__transaction_state")
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    producer = await accepted(broker, request, None, lambda response: response.error_code)
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[2])],
    )

    def code_of(response: Any) -> int:
        (topic,) = response.results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    await accepted(broker, added, 3, code_of)
    batch = build_batch([RecordData(1, None, b"x")] * 3, base_sequence=0, is_transactional=True, **identity)
    produced = await broker.ask(
        ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=batch)])],
        ),
        9,
    )
    assert not produced.responses[0].partition_responses[0].error_code, produced


ROWS = [
    row("kafka_server_brokertopicmetrics_messagesin_total", "counter", BATCHES * RECORDS + 3,
        f"{TOPICS}MessagesInPerSec,{T}", C, **TOPIC),
    row("kafka_server_brokertopicmetrics_bytesout_total", "counter", 2 * BATCHES * len(GOOD),
        f"{TOPICS}BytesOutPerSec,{T}", C, **TOPIC),
    row("kafka_server_brokertopicmetrics_bytesrejected_total", "counter", len(LARGE),
        f"{TOPICS}BytesRejectedPerSec,{T}", C, **TOPIC),
    row("kafka_server_brokertopicmetrics_totalproducerequests_total", "counter", BATCHES + 3,
        f"{TOPICS}TotalProduceRequestsPerSec,{T}", C, **TOPIC),
    row("kafka_server_brokertopicmetrics_failedproducerequests_total", "counter", 0,
        f"{TOPICS}FailedProduceRequestsPerSec,{T}", C, **TOPIC),
    row("kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total", "counter", 1,
        f"{TOPICS}InvalidMessageCrcRecordsPerSec", C),
    row("kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total", "counter", 1,
        f"{TOPICS}NoKeyCompactedTopicRecordsPerSec", C),
    row("kafka_server_brokertopicmetrics_replicationbytesin_total", "counter", 0,
        f"{TOPICS}ReplicationBytesInPerSec", C),
    row("kafka_server_replicamanager_underreplicatedpartitions", G, 0,
        f"{SERVER}ReplicaManager,name=UnderReplicatedPartitions"),
    row("kafka_server_replicamanager_underminisrpartitioncount", G, 0,
        f"{SERVER}ReplicaManager,name=UnderMinIsrPartitionCount"),
    row("kafka_server_replicamanager_atminisrpartitioncount", G, 8,
        f"{SERVER}ReplicaManager,name=AtMinIsrPartitionCount"),
    row("kafka_server_replicamanager_partitioncount", G, 8, f"{SERVER}ReplicaManager,name=PartitionCount"),
    row("kafka_server_replicamanager_leadercount", G, 8, f"{SERVER}ReplicaManager,name=LeaderCount"),
    row("kafka_server_replicamanager_offlinereplicacount", G, 0, f"{SERVER}ReplicaManager,name=OfflineReplicaCount"),
    row("kafka_server_replicamanager_produceridcount", G, 1,
        f"{SERVER}ReplicaManager,name=ProducerIdCount"),
    row("kafka_server_delayedoperationpurgatory_numdelayedoperations", G, 1,
        f"{PURGATORY}NumDelayedOperations,delayedOperation=Fetch", delayedOperation="Fetch"),
    row("kafka_server_delayedoperationpurgatory_purgatorysize", G, 2,
        f"{PURGATORY}PurgatorySize,delayedOperation=Fetch", delayedOperation="Fetch"),
    row("kafka_server_fetchsessioncache_numincrementalfetchsessions", G, 1,
        f"{SERVER}FetchSessionCache,name=NumIncrementalFetchSessions"),
    row("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", G, 2,
        f"{SERVER}FetchSessionCache,name=NumIncrementalFetchPartitionsCached"),
    row("kafka_server_kafkaserver_brokerstate", G, 3, f"{SERVER}KafkaServer,name=BrokerState"),
    row("kafka_server_group_coordinator_metrics_offset_commit_count", G, 3,
        f"{SERVER}group-coordinator-metrics", "offset-commit-count"),
    row("kafka_coordinator_group_groupmetadatamanager_numgroups", G, 1, f"{GROUPS}NumGroups"),
    row("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", G, 1, f"{GROUPS}NumGroupsEmpty"),
    row("kafka_coordinator_group_groupmetadatamanager_numoffsets", G, 3, f"{GROUPS}NumOffsets"),
    row("kafka_network_requestmetrics_requests_total", "counter", 1,
        "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Produce,version=9", C, **PRODUCE_9),
    row("kafka_network_requestmetrics_requests_total", "counter", BATCHES + 3,
        "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Produce,version=11", C,
        request="Produce", version="11"),
    row("kafka_network_requestmetrics_errors_total", "counter", 1,
        "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Produce,error=MESSAGE_TOO_LARGE", C,
        request="Produce", error="MESSAGE_TOO_LARGE"),
    row("kafka_network_requestmetrics_errors_total", "counter", BATCHES + 1,
        "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Produce,error=NONE", C,
        request="Produce", error="NONE"),
    row("kafka_network_requestmetrics_totaltimems_count", "summary", BATCHES + 4,
        "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce", C, request="Produce"),
    row("kafka_network_requestmetrics_requestbytes_count", "summary", 3,
        "kafka.network:type=RequestMetrics,name=RequestBytes,request=FetchConsumer", C, request="FetchConsumer"),
    row("kafka_controller_kafkacontroller_activecontrollercount", G, 1, f"{CONTROLLER}ActiveControllerCount"),
    row("kafka_controller_kafkacontroller_globaltopiccount", G, 4, f"{CONTROLLER}GlobalTopicCount"),
    row("kafka_controller_kafkacontroller_globalpartitioncount", G, 8, f"{CONTROLLER}GlobalPartitionCount"),
    row("kafka_controller_kafkacontroller_offlinepartitionscount", G, 0, f"{CONTROLLER}OfflinePartitionsCount"),
    row("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", G, 0,
        f"{CONTROLLER}PreferredReplicaImbalanceCount"),
    row("kafka_controller_controllerstats_uncleanleaderelections_total", "counter", 0,
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec", C),
    row("kafka_cluster_partition_insyncreplicascount", G, 1,
        f"{CLUSTER}InSyncReplicasCount,{T},partition=0", **PARTITION),
    row("kafka_cluster_partition_laststableoffsetlag", G, 3, f"{CLUSTER}LastStableOffsetLag,{T},partition=2",
        topic="t", partition="2"),
    row("kafka_log_log_size", G, BATCHES * len(GOOD), f"{LOG}Size,{T},partition=0", **PARTITION),
    row("kafka_log_log_numlogsegments", G, 1, f"{LOG}NumLogSegments,{T},partition=0", **PARTITION),
    row("kafka_log_log_logstartoffset", G, 7, f"{LOG}LogStartOffset,{T},partition=0", **PARTITION),
    row("kafka_log_log_logendoffset", G, BATCHES * RECORDS, f"{LOG}LogEndOffset,{T},partition=0", **PARTITION),
    row("kafka_log_logflushstats_logflushrateandtimems_count", "summary", BATCHES + 1,
        "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs", C),
    row("kafka_server_quota_exempt_request_time", G, 0, f"{SERVER}Request", "exempt-request-time"),
    row("kafka_log_logmanager_offlinelogdirectorycount", G, 0,
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"),
]  # fmt: skip


async def test_rows_of_the_table_have_their_name_type_and_value(tmp_path: Path) -> None:
    settings = {
        "metrics.http.listener": "127.0.0.1:0",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
    }
    async with running_broker(tmp_path, settings, files=OsFiles()) as broker, aiohttp.ClientSession() as session:
        waiting = await put_under_load(broker)
        address = f"http://127.0.0.1:{broker.metrics_port}"
        async with session.get(f"{address}/metrics") as response:
            families = list(text_string_to_metric_families(await response.text()))
        found = {
            (sample.name, frozenset(sample.labels.items())): (family.type, sample.value)
            for family in families
            for sample in family.samples
        }
        asked = [{"type": "read", "mbean": each.bean, "attribute": each.attribute} for each in ROWS]
        async with session.post(f"{address}/jolokia", data=json.dumps(asked)) as response:
            answers = await response.json(content_type=None)
        waiting.cancel()
    assert len(ROWS) > 40
    shown = [found.get((each.name, frozenset(each.labels.items()))) for each in ROWS]
    wrong = [(each, one) for each, one in zip(ROWS, shown, strict=True) if one != (each.kind, each.value)]
    assert wrong == []
    in_json = [answer.get("value", answer) for answer in answers]
    assert [(each, one) for each, one in zip(ROWS, in_json, strict=True) if one != each.value] == []
