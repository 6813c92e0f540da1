"""What is counted of requests and topics, beside what clients did."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from broker.metrics.subjects.replicas import waiting_metrics
from broker.metrics.subjects.requests import request_metrics, topic_metrics
from broker.replica.topic_metrics import AllTopicMetrics
from broker.requests.dispatch import RequestDispatcher
from broker.requests.request_metrics import SOFTWARE_MAX, RequestMetrics, RequestParts
from broker.requests.services import Services
from protocol.api import APIS
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.headers import request_header
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import HEADER_SIZE, Record
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.legacy import build_message_set
from protocol.schema import ZERO_UUID
from tests.broker.handlers.test_produce_and_fetch import batch_of, produce
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.manual_clock import ManualClock


def of_topic(services: Services, topic: str, name: str) -> int:
    return int(getattr(services.replica_manager.topic_metrics.by_topic[topic], name))


def parts_of(dispatcher: RequestDispatcher, name: str) -> RequestParts:
    return dispatcher.metrics[name].sums


async def fetch(broker: InProcessBroker, topic: str, *, max_wait_ms: int = 0, replica_id: int = -1) -> bytes:
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[
            FetchTopic(
                topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
            )
        ],
    )
    response = await broker.ask(request, 4)
    return bytes(response.responses[0].partitions[0].records or b"")


async def test_records_and_bytes_of_a_topic_are_counted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t", 2)
        batches = [batch_of(b"a", b"b"), batch_of(b"c")]
        for partition, batch in enumerate(batches):
            await produce(broker, "t", {partition: batch})
        received = await fetch(broker, "t")
        services = broker.services
        assert of_topic(services, "t", "messages_in") == 3
        assert of_topic(services, "t", "bytes_in") == sum(map(len, batches))
        assert of_topic(services, "t", "bytes_out") == len(received) == len(batches[0])
        assert of_topic(services, "t", "total_produce_requests") == 2
        assert of_topic(services, "t", "total_fetch_requests") == 1


@pytest.mark.parametrize(
    ("records", "counted"),
    [
        (batch_of(b"x" * 2000), {"bytes_rejected": len(batch_of(b"x" * 2000)), "failed_produce_requests": 0}),
        (batch_of(b"x")[:-1] + b"\xff", {"invalid_message_crc_records": 1, "failed_produce_requests": 0}),
    ],
)
async def test_rejected_records_are_counted_by_cause(tmp_path: Path, records: bytes, counted: dict[str, int]) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t", max_message_bytes="1000")
        responses = await produce(broker, "t", {0: records})
        assert responses[0].error_code
        for name, count in {**counted, "total_produce_requests": 1, "messages_in": 0, "bytes_in": 0}.items():
            assert of_topic(broker.services, "t", name) == count, name


async def test_partitions_that_are_not_here_count_in_the_totals_alone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await produce(broker, "missing", {0: batch_of(b"x")})
        topics = broker.services.replica_manager.topic_metrics
        assert topics.by_topic == {}
        assert topics.others.total_produce_requests == 1


async def test_counts_of_a_deleted_topic_stay_in_the_totals(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t", 2)
        await produce(broker, "t", {0: batch_of(b"a", b"b")})
        await broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=ZERO_UUID)], timeout_ms=5000))
        topics = broker.services.replica_manager.topic_metrics
        assert "t" not in topics.by_topic
        assert topics.others.messages_in == 2


async def test_records_sent_to_followers_are_not_counted_as_sent_to_consumers(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        await produce(broker, "t", {0: batch_of(b"x")})
        await fetch(broker, "t", replica_id=7)  # is no replica of the partition: fails, as a follower's request
        assert broker.dispatcher.metrics["FetchFollower"].count == 1
        assert broker.dispatcher.metrics["FetchConsumer"].count == 0
        assert of_topic(broker.services, "t", "bytes_out") == 0


async def test_records_of_old_formats_are_counted_as_converted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        await produce(broker, "t", {0: batch_of(b"a", b"b")})
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=9999)]
                )
            ],
        )
        await broker.ask(request, 2)
        assert of_topic(broker.services, "t", "fetch_message_conversions") == 2
        assert parts_of(broker.dispatcher, "FetchConsumer").temporary_size > 0


def conversions_of_produce(broker: InProcessBroker) -> tuple[int, float]:
    parts = parts_of(broker.dispatcher, "Produce")
    return parts.temporary_size, parts.conversion_s


def times_a_second_apart(broker: InProcessBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = broker.services.replica_manager.find(topic, 0)
    assert partition is not None
    seconds = itertools.count()
    monkeypatch.setattr(type(partition.log.files), "monotonic_s", lambda *_: float(next(seconds)), raising=False)


ROWS = [RecordData(1_700_000_000_000 + n, b"key", b"value" * 20) for n in range(5)]
PLAIN_SIZE = len(build_batch(ROWS)) - HEADER_SIZE
MESSAGES = [Record(n, row.timestamp, row.key, row.value, []) for n, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("compression_type", "sent", "version", "temporary_size", "conversion_s"),
    [
        ("producer", build_batch(ROWS), 9, 0, 0),
        ("producer", build_batch(ROWS, compression=Compression.GZIP), 9, PLAIN_SIZE, 0),
        ("gzip", build_batch(ROWS), 9, PLAIN_SIZE, 1),
        ("lz4", build_batch(ROWS, compression=Compression.GZIP), 9, 2 * PLAIN_SIZE, 1),
        ("producer", build_message_set(MESSAGES, magic=1), 2, PLAIN_SIZE, 1),
        (
            "producer",
            build_message_set(MESSAGES, magic=1, compression=Compression.GZIP),
            2,
            PLAIN_SIZE + len(build_message_set(MESSAGES, magic=1)),
            1,
        ),
    ],
    ids=["unchanged", "opened", "compressed", "recompressed", "old format", "compressed old format"],
)
async def test_conversions_of_produced_records_are_timed_with_their_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression_type: str,
    sent: bytes,
    version: int,
    temporary_size: int,
    conversion_s: float,
) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t", compression_type=compression_type)
        times_a_second_apart(broker, "t", monkeypatch)
        request = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=sent)])],
        )
        response = await broker.ask(request, version)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert conversions_of_produce(broker) == (temporary_size, conversion_s)
        assert of_topic(broker.services, "t", "produce_message_conversions") == (5 if conversion_s else 0)


async def test_error_codes_are_counted_by_partition(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t", 2)
        await produce(broker, "t", {0: batch_of(b"x"), 1: batch_of(b"y")})
        await produce(broker, "t", {0: batch_of(b"x"), 9: batch_of(b"y")})
        errors = broker.dispatcher.metrics["Produce"].errors
        assert errors == {ErrorCode.NONE: 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}


@pytest.mark.parametrize("topic_count", [1, 3])
async def test_error_codes_in_rows_are_counted(tmp_path: Path, topic_count: int) -> None:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name=f"missing-{number}", partitions=rows) for number in range(topic_count)]
    async with running_broker(tmp_path / "data") as broker:
        await broker.ask(OffsetCommitRequest(group_id="readers", topics=topics), 8)
        errors = broker.dispatcher.metrics["OffsetCommit"].errors
        assert +Counter(errors) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: topic_count}


async def test_a_parked_fetch_spends_its_time_waiting_for_others(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker:
        await broker.create_topic("t")
        parked = asyncio.ensure_future(fetch(broker, "t", max_wait_ms=60_000))
        await asyncio.sleep(0)  # the fetch is dispatched
        assert broker.services.replica_manager.fetch_purgatory.watched
        clock.advance(500)
        await produce(broker, "t", {0: batch_of(b"x")})
        assert await parked
        parts = parts_of(broker.dispatcher, "FetchConsumer")
        assert parts.remote_s == pytest.approx(0.5)
        assert parts.local_s == pytest.approx(0.0)
        assert parts.total_s == pytest.approx(0.5)
        assert parts_of(broker.dispatcher, "Produce").remote_s == 0.0


async def test_a_throttled_request_spends_its_mute_time_throttled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, clock=ManualClock()) as broker:
        route = broker.dispatcher._route(APIS[3], 9)

        def throttled(services: Services, request: object, context: object) -> object:
            context.mute_ms = 250  # type: ignore[attr-defined]
            return route.handle(services, request, context)  # type: ignore[arg-type]

        monkeypatch.setitem(broker.dispatcher._routes, (3, 9), replace(route, handle=throttled))
        await broker.ask(MetadataRequest(topics=[]), 9)
        parts = parts_of(broker.dispatcher, "Metadata")
        assert (parts.throttle_s, parts.total_s, parts.remote_s, parts.local_s) == (0.25, 0.25, 0.0, 0.0)


async def test_the_parts_of_a_request_over_a_socket_add_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path, {"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        (endpoint,) = broker.services.metadata_cache.brokers[0].endpoints.values()
        reader, writer = await asyncio.open_connection(*endpoint)
        payload = request_header(3, 9, 1, "c") + b"".join(encode(MetadataRequest(topics=[]), 9))
        frame = len(payload).to_bytes(4, "big") + payload
        writer.write(frame * 3)  # three requests in one segment: their responses leave together
        for _ in range(3):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        metrics = broker.dispatcher.metrics["Metadata"]
        assert metrics.counts == {9: 3}
        assert len(metrics.sample.values()) == 3
        for parts in metrics.sample.values():
            others_s = sum(parts[1:7])
            assert parts.total_s == pytest.approx(others_s, abs=1e-6)
            assert parts.size == len(payload)
            assert parts.local_s > 0
            assert parts.send_s > 0
        writer.close()
        await writer.wait_closed()


async def test_deprecated_versions_are_counted_by_client(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        broker.channel.software = ("old-client", "0.9")
        metrics = broker.dispatcher.metrics
        for version in (3, 4):
            await broker.ask(MetadataRequest(topics=[]), version)
        assert metrics["Metadata"].deprecated == {(3, "old-client", "0.9"): 1}
        (metric,) = (it for it in request_metrics(metrics) if it.bean.endswith("DeprecatedRequestsPerSec"))
        assert list(metric.read()) == [(("Metadata", "3", "old-client", "0.9"), 1)]
        for number in range(SOFTWARE_MAX):
            broker.channel.software = (f"client-{number}", "1")
            await broker.ask(MetadataRequest(topics=[]), 3)
        assert metrics["Metadata"].deprecated[3, "other", "other"] == 1
        assert len(metrics["Metadata"].deprecated) == SOFTWARE_MAX + 1


async def test_a_fetch_that_waits_in_vain_counts_as_expired(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        await fetch(broker, "t", max_wait_ms=1)
        metrics = waiting_metrics(
            broker.services.replica_manager,
            broker.services.fetch_sessions,
            broker.services.topics.purgatory,
            broker.services.groups,
        )
        (metric,) = (it for it in metrics if "DelayedFetchMetrics" in it.bean)
        assert list(metric.read()) == [(("consumer",), 1), (("follower",), 0)]


def test_nothing_is_counted_before_the_first_request() -> None:
    metrics = RequestMetrics(lambda: 0.5)
    assert metrics.sums == RequestParts(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    assert metrics.count == 0


async def test_topics_may_come_during_a_scrape() -> None:
    topics = AllTopicMetrics()
    for number in range(3):
        topics.opened(f"t{number}")
    (metric, *_) = topic_metrics(topics)
    samples = iter(metric.read())
    assert next(samples) == ((), 0)
    topics.opened("new")
    assert [sample[0] for sample in samples if sample] == [("t0",), ("t1",), ("t2",)]


async def test_records_prepared_in_a_thread_count_as_received(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t", compression_type="gzip")
        records = batch_of(b"x" * 400_000)
        await produce(broker, "t", {0: records})
        assert of_topic(broker.services, "t", "bytes_in") == len(records)


async def test_a_request_whose_client_left_is_counted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")
        broker.channel.closed(0.0)
        await produce(broker, "t", {0: batch_of(b"x")})
        assert broker.dispatcher.metrics["Produce"].count == 1
        assert broker.channel.completed == []
