"""A running broker's metrics as a monitoring system scrapes them, compared with responses to its clients."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from config.versions import KAFKA_VERSION
from controller.tree import paths
from protocol.codec import encode
from protocol.headers import request_header
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.schema import ZERO_UUID
from storage.disk.files import OsFiles
from tests.broker.handlers.test_produce_and_fetch import batch_of, produce
from tests.broker.metrics.table import SHOWN, table_of_a_broker
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.in_process_cluster import running_cluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
LATEST = -1
OUTGOING = (
    "connection_count",
    "connection_creation_rate",
    "request_rate",
    "request_total",
    "request_size_avg",
    "request_size_max",
    "response_rate",
    "response_total",
    "incoming_byte_rate",
    "incoming_byte_total",
    "outgoing_byte_rate",
    "outgoing_byte_total",
)
FETCHERS_NAMES = {
    "kafka_server_fetcherlagmetrics_consumerlag",
    "kafka_server_fetcherstats_bytes",
    "kafka_server_fetcherstats_requests",
}

NAMES_IN_A_CLUSTER = {
    f"kafka_server_{group}_{attribute}"
    for group in ("replica_fetcher_metrics", "controller_channel_metrics")
    for attribute in OUTGOING
} | {
    "kafka_controller_controllerchannelmanager_queuesize",
    "kafka_controller_controllerchannelmanager_requestrateandqueuetimems",
}
NAMES_WITH_TRANSACTIONS = {
    f"kafka_server_{group}_{attribute}"
    for group in ("txn_marker_channel_metrics", "addpartitionsmanager_channel_metrics")
    for attribute in OUTGOING
}
NAMES_WITH_SHARE_GROUPS = {f"kafka_server_persister_channel_metrics_{attribute}" for attribute in OUTGOING}

# Kafka's own object names, as a Prometheus server finds them through the usual rules of jmx_exporter.
KAFKA_NAMES = {
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_insyncreplicascount",
    "kafka_cluster_partition_laststableoffsetlag",
    "kafka_cluster_partition_replicascount",
    "kafka_cluster_partition_underminisr",
    "kafka_cluster_partition_underreplicated",
    "kafka_controller_controllereventmanager_eventqueuesize",
    "kafka_controller_controllerstats_leaderelectionrateandtimems",
    "kafka_controller_controllerstats_uncleanleaderelections",
    "kafka_controller_kafkacontroller_activebrokercount",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_globalpartitioncount",
    "kafka_controller_kafkacontroller_globaltopiccount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "kafka_coordinator_group_groupmetadatamanager_numgroups",
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsdead",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsempty",
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
    "kafka_coordinator_group_groupmetadatamanager_numoffsets",
    "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize",
    "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
    "kafka_log_log_logendoffset",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_numlogsegments",
    "kafka_log_log_size",
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "kafka_log_logcleaner_deadthreadcount",
    "kafka_log_logcleaner_max_buffer_utilization_percent",
    "kafka_log_logcleaner_max_clean_time_secs",
    "kafka_log_logcleaner_max_compaction_delay_secs",
    "kafka_log_logcleanermanager_max_dirty_percent",
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "kafka_log_logcleanermanager_uncleanable_bytes",
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "kafka_log_logflushstats_logflushrateandtimems",
    "kafka_log_logmanager_logdirectoryoffline",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_log_logmanager_remaininglogstorecover",
    "kafka_network_socketserver_expiredconnectionskilledcount",
    "kafka_network_socketserver_memorypoolavailable",
    "kafka_network_socketserver_memorypoolused",
    "kafka_python_event_loop_lag_seconds",
    "kafka_server_app_info",
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "kafka_server_group_coordinator_metrics_group_completed_rebalance_count",
    "kafka_server_group_coordinator_metrics_offset_commit_count",
    "kafka_server_kafkaserver_brokerstate",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "kafka_server_replicaalterlogdirsmanager_failedpartitionscount",
    "kafka_server_replicaalterlogdirsmanager_maxlag",
    "kafka_server_replicafetchermanager_deadthreadcount",
    "kafka_server_replicafetchermanager_failedpartitionscount",
    "kafka_server_replicafetchermanager_maxlag",
    "kafka_server_replicamanager_atminisrpartitioncount",
    "kafka_server_replicamanager_failedisrupdates",
    "kafka_server_replicamanager_isrexpands",
    "kafka_server_replicamanager_isrshrinks",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_offlinereplicacount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_partitionswithlatetransactionscount",
    "kafka_server_replicamanager_produceridcount",
    "kafka_server_replicamanager_reassigningpartitions",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
    "process_cpu_seconds",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "python_gc_collections",
}


Values = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
"""By name and labels."""


@dataclass(frozen=True)
class Scrape:
    """A response, of which only the lines that a test asks for are parsed: for all of them the parser takes 50 ms."""

    text: str
    parse: Callable[[str], Iterator[Family]]

    def __call__(self, name: str, **labels: str) -> float:
        return self._values_of(name)[name, frozenset(labels.items())]

    def subjects(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for _, labels in self._values_of(name)]

    @cached_property
    def names(self) -> set[str]:
        """All names, without the suffixes of their kinds."""
        return {family.name for family in self.parse(self.text)}

    @cached_property
    def values(self) -> Values:
        return self._parsed(self.text)

    def _values_of(self, name: str) -> Values:
        lines = [line for line in self.text.splitlines(keepends=True) if line.startswith((f"{name} ", f"{name}{{"))]
        return self._parsed("".join(lines))

    def _parsed(self, text: str) -> Values:
        samples = (sample for family in self.parse(text) for sample in family.samples)
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


class Monitored(NamedTuple):
    broker: InProcessBroker
    port: int

    async def scrape(self, accept: str = "") -> Scrape:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{self.port}/metrics"
            async with session.get(url, headers={"Accept": accept} if accept else {}) as response:
                assert response.status == 200
                text = await response.text()
        return Scrape(text, parse_open_metrics if "openmetrics" in response.headers["Content-Type"] else parse_text)


@pytest.fixture
def overrides() -> dict[str, str]:
    return {}


@pytest.fixture
async def monitored(tmp_path: Path, overrides: dict[str, str]) -> AsyncIterator[Monitored]:
    settings = {"metrics.http.listener": "127.0.0.1:0", "offsets.topic.num.partitions": "2", **overrides}
    async with running_broker(tmp_path, settings, files=OsFiles()) as broker:  # flushes take time
        assert broker.metrics_port is not None
        yield Monitored(broker, broker.metrics_port)


async def test_names_are_kafkas_and_all_are_documented(monitored: Monitored) -> None:
    await monitored.broker.create_topic("t")
    scrape = await monitored.scrape()
    assert scrape.names >= KAFKA_NAMES
    documented = set(re.findall(r"^\| `(\w+)", PAGE.read_text(), re.MULTILINE))
    ours = {name for name in scrape.names if not name.startswith(("process_", "python_"))}
    ours.add("kafka_server_socket_server_metrics_connections")  # this broker has no connection
    ours |= FETCHERS_NAMES | NAMES_IN_A_CLUSTER  # nor a leader to follow
    ours |= NAMES_WITH_TRANSACTIONS | NAMES_WITH_SHARE_GROUPS
    ours |= {"kafka_network_requestmetrics_deprecatedrequests", "kafka_client_metric"}
    ours.add("kafka_log_logmanager_remainingsegmentstorecover")  # this broker is started
    assert {name.removesuffix("_total") for name in documented} == {name.removesuffix("_total") for name in ours}


async def test_values_equal_those_in_responses(monitored: Monitored) -> None:
    broker = monitored.broker
    await broker.create_topic("t", 3)
    await broker.create_topic("dots.and-dashes_", 1)
    for partition, count in ((0, 5), (2, 2)):
        await produce(broker, "t", {partition: batch_of(*[b"x" * 100] * count)})
    scrape = await monitored.scrape()
    described = (await broker.ask(DescribeLogDirsRequest(topics=None))).results[0]
    sizes = {
        (topic.name, it.partition_index): it.partition_size for topic in described.topics for it in topic.partitions
    }
    assert len(sizes) == 4
    asked = [
        ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=it, timestamp=LATEST)])
        for it in range(3)
    ]
    offsets = await broker.ask(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=asked))
    ends = [topic.partitions[0].offset for topic in offsets.topics]
    assert ends == [5, 0, 2]
    for (topic, partition), size in sizes.items():
        labels = {"topic": topic, "partition": str(partition)}
        assert scrape("kafka_log_log_size", **labels) == size
        assert scrape("kafka_log_log_logstartoffset", **labels) == 0
        assert scrape("kafka_log_log_numlogsegments", **labels) == 1
        assert scrape("kafka_cluster_partition_replicascount", **labels) == 1
        assert scrape("kafka_cluster_partition_underreplicated", **labels) == 0
        assert scrape("kafka_cluster_partition_atminisr", **labels) == 1
    assert [scrape("kafka_log_log_logendoffset", topic="t", partition=str(it)) for it in range(3)] == ends
    assert scrape("kafka_server_replicamanager_partitioncount") == len(sizes)
    assert scrape("kafka_server_replicamanager_leadercount") == len(sizes)
    assert scrape("kafka_controller_kafkacontroller_globaltopiccount") == 2
    assert scrape("kafka_controller_kafkacontroller_globalpartitioncount") == len(sizes)
    assert scrape("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert scrape("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert scrape("kafka_server_kafkaserver_brokerstate") == 3
    assert scrape("kafka_log_logmanager_logdirectoryoffline", logDirectory=described.log_dir) == 0


@pytest.mark.parametrize("overrides", [{"listeners": "PLAINTEXT://127.0.0.1:0"}])
async def test_traffic_includes_connections_that_are_closed(monitored: Monitored) -> None:
    (endpoint,) = monitored.broker.services.metadata_cache.brokers[0].endpoints.values()
    payload = request_header(3, 9, 1, "c") + b"".join(encode(MetadataRequest(topics=[]), 9))
    frame = len(payload).to_bytes(4, "big") + payload
    received = 0
    for number in range(1, 3):
        reader, writer = await asyncio.open_connection(*endpoint)
        writer.write(frame)
        received += 4 + len(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
        expected = (number, pytest.approx(number * len(frame), abs=number), pytest.approx(received, abs=2 * number))
        assert await _traffic(monitored) == expected
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(10):
            while (await monitored.scrape())(f"{SOCKETS}_connection_count", **PROCESSOR):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        expected = (number, pytest.approx(number * len(frame), abs=number), pytest.approx(received, abs=2 * number))
        assert await _traffic(monitored) == expected


@pytest.mark.parametrize("overrides", [{"listeners": "PLAINTEXT://127.0.0.1:0", "max.connection.creation.rate": "1"}])
async def test_connections_of_a_listener_are_counted_without_a_processor(monitored: Monitored) -> None:
    (endpoint,) = monitored.broker.services.metadata_cache.brokers[0].endpoints.values()
    listener = {"listener": "PLAINTEXT"}
    scrape = await monitored.scrape()
    assert scrape(f"{SOCKETS}_connection_accept_throttle_time", **listener) == 0
    for _ in range(11):  # one a second over ten windows of one second, and one that is delayed
        _, writer = await asyncio.open_connection(*endpoint)
        writer.close()
    async with asyncio.timeout(10):
        while not (scrape := await monitored.scrape())(f"{SOCKETS}_connection_accept_throttle_time", **listener):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # until the last one is accepted
    assert scrape(f"{SOCKETS}_ip_connection_accept_throttle_time", **listener) == 0
    assert scrape(f"{SOCKETS}_connection_accept_rate", **listener) > 0
    assert scrape(f"{SOCKETS}_broker_connection_accept_rate") > 0


@pytest.mark.parametrize(
    "overrides", [{"listeners": "PLAINTEXT://127.0.0.1:0", "queued.max.request.bytes": "104857600"}]
)
async def test_time_without_memory_for_requests_is_shown(monitored: Monitored) -> None:
    (endpoint,) = monitored.broker.services.metadata_cache.brokers[0].endpoints.values()
    announced = (104857600).to_bytes(4, "big") + bytes(10)
    assert (await monitored.scrape())(f"{SOCKETS}_memorypooldepletedtimetotal") == 0
    connections = [await asyncio.open_connection(*endpoint) for _ in range(2)]
    for _, writer in connections:  # the first takes all memory, the second waits for it
        writer.write(announced)
    async with asyncio.timeout(10):
        while not (scrape := await monitored.scrape())(f"{SOCKETS}_memorypooldepletedtimetotal"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert 0 <= scrape(f"{SOCKETS}_memorypoolavgdepletedpercent") <= 1
    assert scrape("kafka_network_socketserver_memorypoolavailable") <= 0
    for _, writer in connections:
        writer.close()


SOCKETS = "kafka_server_socket_server_metrics"
PROCESSOR = {"listener": "PLAINTEXT", "networkProcessor": "0"}


async def _traffic(monitored: Monitored) -> tuple[float, ...]:
    """Return requests, incoming and outgoing bytes. The kernel may count the first and the last packet as a byte."""
    scrape = await monitored.scrape()
    names = ("request_total", "incoming_byte_total", "outgoing_byte_total")
    return tuple(scrape(f"{SOCKETS}_{name}", **PROCESSOR) for name in names)


async def test_the_number_of_metrics_is_that_of_the_samples(monitored: Monitored) -> None:
    await monitored.broker.create_topic("t", 3)
    scrape = await monitored.scrape()
    shown = {
        (name, labels) for name, labels in scrape.values if not name.endswith("_sum") and "quantile" not in dict(labels)
    }
    of_process = {(name, labels) for name, labels in shown if name.startswith(("process_", "python_"))}
    # In the table, the name of an attribute follows the object name.
    named = set(re.findall(r"^\| `(\w+)[^|]*\|[^|]*\| `[^`]+` [^|]", PAGE.read_text(), re.MULTILINE))
    attributes = {(name, labels) for name, labels in shown if name in named}
    assert scrape("kafka_server_kafka_metrics_count_count") == len(attributes)
    others = len(shown - of_process - attributes)
    assert scrape("kafka_server_kafkaserver_yammer_metrics_count") == pytest.approx(others, abs=5)


async def test_groups_are_counted(monitored: Monitored) -> None:
    broker = monitored.broker
    await broker.create_topic("t", 2)
    await broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=it, committed_offset=1, committed_metadata="")
                    for it in range(2)
                ],
            )
        ],
    )
    async with asyncio.timeout(10):
        while (await broker.ask(commit)).topics[0].partitions[0].error_code:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # until the coordinator has loaded its new partition
    scrape = await monitored.scrape()
    assert scrape("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert scrape("kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 1
    assert scrape("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 2
    assert scrape("kafka_server_group_coordinator_metrics_partition_load_time_max") >= 0


async def test_segments_to_recover_are_shown_by_thread(monitored: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "kafka_log_logmanager_remainingsegmentstorecover"
    assert (await monitored.scrape()).subjects(name) == []
    (directory,) = monitored.broker.services.log_manager.directories
    startup = monitored.broker.services.log_manager.startup
    monkeypatch.setattr(startup, "remaining_segments_in", lambda _: {0: 3, 1: 0})
    scrape = await monitored.scrape()
    assert [scrape(name, dir=directory.path, threadNum=str(number)) for number in range(2)] == [3, 0]


async def test_metrics_of_deleted_topics_disappear(monitored: Monitored) -> None:
    await monitored.broker.create_topic("t")
    assert (await monitored.scrape()).subjects("kafka_log_log_size") == [{"topic": "t", "partition": "0"}]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=5000)
    assert not (await monitored.broker.ask(request)).responses[0].error_code
    scrape = await monitored.scrape()
    assert scrape.subjects("kafka_log_log_size") == []
    assert scrape("kafka_server_replicamanager_partitioncount") == 0


async def test_flushes_are_timed(monitored: Monitored) -> None:
    await monitored.broker.create_topic("t", flush_messages="1")
    before = (await monitored.scrape())("kafka_log_logflushstats_logflushrateandtimems_count")
    await produce(monitored.broker, "t", {0: batch_of(b"x")})
    await asyncio.sleep(0)
    scrape = await monitored.scrape()
    assert scrape("kafka_log_logflushstats_logflushrateandtimems_count") == before + 1
    assert scrape("kafka_log_logflushstats_logflushrateandtimems", quantile="0.50") > 0


async def test_open_metrics_response_has_the_same_names(monitored: Monitored) -> None:
    await monitored.broker.create_topic("t")
    scrape = await monitored.scrape("application/openmetrics-text;version=1.0.0")
    assert scrape.names >= KAFKA_NAMES


@pytest.mark.parametrize("overrides", [{"metrics.per.partition": "false"}])
async def test_metrics_of_partitions_are_omitted_if_disabled(monitored: Monitored) -> None:
    await monitored.broker.create_topic("t", 3)
    scrape = await monitored.scrape()
    assert "kafka_log_log_size" not in scrape.names
    assert "kafka_cluster_partition_underreplicated" not in scrape.names
    assert scrape("kafka_server_replicamanager_partitioncount") == 3


@pytest.mark.parametrize("overrides", [{"log.cleaner.enable": "false"}])
async def test_cleaner_metrics_are_missing_without_a_cleaner(monitored: Monitored) -> None:
    scrape = await monitored.scrape()
    assert not any("cleaner" in name for name in scrape.names)


async def test_the_port_is_part_of_the_registration(monitored: Monitored) -> None:
    store = monitored.broker.services.controller._store
    assert f'"jmx_port":{monitored.port}'.encode() in (await store.get(paths.broker_path(0))).data


async def test_other_paths_are_not_there(monitored: Monitored) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{monitored.port}/other") as response,
    ):
        assert response.status == 404


async def test_json_has_the_values_of_prometheus(monitored: Monitored) -> None:
    await monitored.broker.create_topic("t.x")
    await produce(monitored.broker, "t.x", {0: batch_of(*[b"x"] * 7)})
    scrape = await monitored.scrape()
    name = "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t.x"
    asked = [{"type": "read", "mbean": name, "attribute": "Count"}, {"type": "read", "mbean": "kafka.log:type=Log,*"}]
    url = f"http://127.0.0.1:{monitored.port}/jolokia"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/read/{name}/Count") as response:
            assert response.content_type == "application/json"
            one = await response.json()
        async with session.post(url, json=asked) as response:
            posted = await response.json()
        async with session.post(url, data=b"nonsense") as response:
            refused = await response.json()
    assert one["value"] == posted[0]["value"] == 7
    assert scrape("kafka_server_brokertopicmetrics_messagesin_total", topic="t.x") == 7
    size = scrape("kafka_log_log_size", topic="t.x", partition="0")
    assert posted[1]["value"]["kafka.log:name=Size,partition=0,topic=t.x,type=Log"] == {"Value": size}
    assert refused["status"] == 400


async def test_without_an_address_nothing_is_registered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        data = (await broker.services.controller._store.get(paths.broker_path(0))).data
    assert b'"jmx_port":-1' in data


async def test_the_table_of_the_page_is_made_from_the_metrics(tmp_path: Path) -> None:
    shown = SHOWN.search(PAGE.read_text())
    assert shown
    # python -m tests.broker.metrics.table writes it anew
    assert shown[0] == await table_of_a_broker(tmp_path)


async def test_connections_between_brokers(tmp_path: Path) -> None:
    def is_complete(scrape: Scrape) -> bool:
        expired = scrape("kafka_server_delayedfetchmetrics_expires_total", fetcherType="follower")
        return expired > 0 and scrape.names >= FETCHERS_NAMES

    overrides = {"metrics.http.listener": "127.0.0.1:0", "replica.fetch.wait.max.ms": "100"}
    async with running_cluster(tmp_path, (1, 2), overrides) as cluster:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=2, assignments=[], configs=[])
        response = await cluster.controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert not response.topics[0].error_code
        scrapes = {}
        async with asyncio.timeout(10):
            while not scrapes or not all(is_complete(it) for it in scrapes.values()):
                for broker_id, broker in cluster.brokers.items():
                    assert broker.metrics_port is not None
                    scrapes[broker_id] = await Monitored(broker, broker.metrics_port).scrape()
    assert scrapes[1].names >= NAMES_IN_A_CLUSTER
    fetching = "kafka_server_replica_fetcher_metrics"
    of_leader = {"broker_id": "2", "fetcher_id": "0"}
    assert scrapes[1](f"{fetching}_connection_count", **of_leader) == 1
    assert scrapes[1](f"{fetching}_request_total", **of_leader) >= 1
    assert scrapes[1](f"{fetching}_outgoing_byte_total", **of_leader) > 0
    sent = scrapes[1]("kafka_server_controller_channel_metrics_response_total", broker_id="2")
    assert sent >= 2, "UpdateMetadata and LeaderAndIsr"
    queued = "kafka_controller_controllerchannelmanager_requestrateandqueuetimems_count"
    assert scrapes[1](queued, broker_id="2") >= sent


async def test_quotas_have_the_names_of_the_usual_exporter(monitored: Monitored) -> None:
    scrape = await monitored.scrape()
    nobody = {"user": "", "clientId": ""}
    for resource in ("Produce", "Fetch"):
        assert scrape("kafka_server_quota_byte_rate", resource=resource, **nobody) == 0
    for resource in ("Produce", "Fetch", "Request", "ControllerMutation"):
        assert scrape("kafka_server_quota_throttle_time", resource=resource, **nobody) == 0
        assert scrape("kafka_server_quota_queue_size", resource=resource) == 0


async def test_the_embedded_store_has_latencies(monitored: Monitored) -> None:
    name = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count"
    before = (await monitored.scrape())(name)
    await monitored.broker.create_topic("t")
    assert (await monitored.scrape())(name) > before


async def test_all_purgatories_are_there(monitored: Monitored) -> None:
    found = (await monitored.scrape()).subjects("kafka_server_delayedoperationpurgatory_purgatorysize")
    assert {each["delayedOperation"] for each in found} == {
        "Produce",
        "Fetch",
        "DeleteRecords",
        "topic",
        "Heartbeat",
        "Rebalance",
        "RemoteFetch",
        "ElectLeader",
        "AlterAcls",
    }


async def test_the_build_is_an_object_of_its_own(monitored: Monitored) -> None:
    url = f"http://127.0.0.1:{monitored.port}/jolokia/read/kafka.server:type=app-info,id=0"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        value = (await response.json())["value"]
    assert (value["version"], value["start-time-ms"] > 0) == (KAFKA_VERSION, True)
