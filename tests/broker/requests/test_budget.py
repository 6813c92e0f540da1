"""Requests of many elements: decoded and encoded beside the event loop up to a limit, refused beyond it."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import metadata
from broker.loop.promise import Promise
from broker.loop.slices import SLICE_MS
from broker.replica.appends import PARTITIONS_IN_ONE_STEP_MAX
from broker.requests import dispatch
from broker.requests.budget import (
    ELEMENTS_AT_ONCE_MAX,
    ELEMENTS_ON_LOOP_MAX,
    LARGE_REQUESTS_MAX,
    SIZE_IN_STEPS_MAX,
    elements_max,
)
from broker.requests.routes import TABLE
from config.broker import BrokerConfig
from config.describe import describe_topic
from protocol.api import APIS
from protocol.codec import encode
from protocol.errors import ErrorCode, Malformed
from protocol.headers import request_header
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.manual_clock import ManualClock, SteppingClock

MIB = 1 << 20
METADATA, UPDATE_METADATA, OFFSET_COMMIT, INCREMENTAL_ALTER_CONFIGS, UPDATE_FEATURES = 3, 6, 8, 44, 57


@pytest.mark.parametrize(
    ("frame_size", "expected"),
    [(0, 64_000), (MIB, 64_000 + MIB // 32), (16 * MIB, 64_000 + MIB // 2)],
)
def test_the_limit_of_bulk_requests_grows_with_the_frame(frame_size: int, expected: int) -> None:
    assert elements_max(TABLE[METADATA].API.elements, frame_size) == expected


def test_the_limit_of_other_requests_is_fixed() -> None:
    assert {elements_max(TABLE[UPDATE_FEATURES].API.elements, size) for size in (0, MIB, 16 * MIB)} == {10_000}


def test_offsets_of_a_hundred_thousand_partitions_are_within_the_limit() -> None:
    committed = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(1000)
    ]
    topics = [OffsetCommitRequestTopic(name=f"topic-{number}", partitions=committed) for number in range(100)]
    size = sum(map(len, encode(OffsetCommitRequest(group_id="g", topics=topics), 8)))
    assert 100_000 + 2 * len(topics) + 1 <= elements_max(TABLE[OFFSET_COMMIT].API.elements, size)


@pytest.mark.parametrize("topic_count", [500, 5000])
def test_configurations_of_all_topics_that_mirror_maker_replicates_are_within_the_limit(topic_count: int) -> None:
    configs = [
        AlterableConfig(name=row.name, config_operation=1, value=row.value)
        for row in describe_topic(BrokerConfig.from_properties({}), {})
    ]
    resources = [
        AlterConfigsResource(resource_type=2, resource_name=f"source.topic-{number}", configs=configs)
        for number in range(topic_count)
    ]
    size = sum(map(len, encode(IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1)))
    assert topic_count * (2 + len(configs)) + 1 <= elements_max(TABLE[INCREMENTAL_ALTER_CONFIGS].API.elements, size)


def metadata_request(count: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"t{number:x}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


async def test_large_request_gets_the_same_response_as_small_ones(tmp_path: Path) -> None:
    count = ELEMENTS_ON_LOOP_MAX + 1000
    async with running_broker(tmp_path / "data") as broker:
        response = await broker.ask(metadata_request(count))
    assert [topic.name for topic in response.topics] == [f"t{number:x}" for number in range(count)]
    assert {topic.error_code for topic in response.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_large_request_is_decoded_and_its_response_encoded_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path / "data") as broker:
        seen = watched_codec(broker, monkeypatch, limit=50)
        await broker.ask(metadata_request(10))
        assert seen == {"decode": {threading.main_thread()}, "encode": {threading.main_thread()}}
        seen["decode"].clear()
        seen["encode"].clear()
        await broker.ask(metadata_request(100))
    assert threading.main_thread() not in seen["decode"]
    assert threading.main_thread() not in seen["encode"]


async def test_produce_to_many_partitions_appends_after_its_frame_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame in the scratch buffer is overwritten when the call returns in which it was handed out."""
    monkeypatch.setattr(dispatch, "ELEMENTS_ON_LOOP_MAX", 100)
    count = 200
    batch = build_batch([RecordData(0, None, b"value")])
    data = [PartitionProduceData(index=index, records=batch) for index in range(count)]
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    frame = bytearray(request_header(0, 9, 7, "test") + b"".join(encode(request, 9)))
    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic("t", 2)
        responding = broker.dispatcher.dispatch(memoryview(frame), broker.channel)
        frame[:] = bytes(len(frame))
        assert responding is not None
        await responding  # type: ignore[misc]
        assert [broker.services.replica_manager.find("t", index).log.log_end_offset for index in (0, 1)] == [1, 1]  # type: ignore[union-attr]


async def test_produce_to_many_partitions_does_not_starve_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition is a step, and its records outlive the frame."""
    count = PARTITIONS_IN_ONE_STEP_MAX + 1
    batch = build_batch([RecordData(0, None, b"value")])
    data = [PartitionProduceData(index=index, records=batch) for index in range(count)]
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    frame = bytearray(request_header(0, 9, 7, "test") + b"".join(encode(request, 9)))
    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic("t", count)
        logs = [broker.services.replica_manager.find("t", index).log for index in range(count)]  # type: ignore[union-attr]
        monkeypatch.setattr(broker.services.sliced_work, "_monotonic_ms", SteppingClock(SLICE_MS).monotonic_ms)
        await asyncio.sleep(0)  # the slice by the other clock is over
        responding = broker.dispatcher.dispatch(memoryview(frame), broker.channel)
        frame[:] = bytes(len(frame))
        appended = sum(log.log_end_offset for log in logs)
        assert appended < count
        await responding  # type: ignore[misc]
        assert [log.log_end_offset for log in logs] == [1] * count


async def test_produce_without_acks_is_complete_after_its_connection_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a producer closes its connection when it has sent its last request."""
    count = PARTITIONS_IN_ONE_STEP_MAX + 1
    batch = build_batch([RecordData(0, None, b"value")])
    data = [PartitionProduceData(index=index, records=batch) for index in range(count)]
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    frame = request_header(0, 9, 7, "test") + b"".join(encode(request, 9))
    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic("t", count)
        logs = [broker.services.replica_manager.find("t", index).log for index in range(count)]  # type: ignore[union-attr]
        monkeypatch.setattr(broker.services.sliced_work, "_monotonic_ms", SteppingClock(SLICE_MS).monotonic_ms)
        await asyncio.sleep(0)  # the slice by the other clock is over
        responding = broker.dispatcher.dispatch(memoryview(frame), broker.channel)
        assert isinstance(responding, Promise)
        for _ in range(3):
            await asyncio.sleep(0)
        assert sum(log.log_end_offset for log in logs) < count
        responding.cancel()
        for _ in range(10 * count):
            await asyncio.sleep(0)
        assert [log.log_end_offset for log in logs] == [1] * count


async def test_requests_of_many_connections_that_arrive_together_share_one_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that arrive when it is over are decoded and served one in a turn of the loop, in order."""
    connections = 20
    decoded: list[int] = []
    async with running_broker(tmp_path / "data") as broker:
        dispatcher = broker.dispatcher
        api = APIS[METADATA]
        version = api.usual_version
        route = dispatcher._route(api, version)

        def decode(frame: memoryview, position: int, limit: int) -> object:
            request = route.decode(frame, position, limit)
            decoded.append(len(request.topics))
            return request

        dispatcher._routes[METADATA, version] = replace(route, decode=decode)
        monkeypatch.setattr(broker.services.sliced_work, "_monotonic_ms", SteppingClock(1).monotonic_ms)
        await asyncio.sleep(0)  # the slice by the other clock is over
        requests = [
            asyncio.ensure_future(broker.ask(metadata_request(ELEMENTS_AT_ONCE_MAX + number)))
            for number in range(connections)
        ]
        await asyncio.sleep(0)
        assert len(decoded) <= SLICE_MS
        while len(decoded) < connections:
            before = len(decoded)
            await asyncio.sleep(0)
            assert len(decoded) - before <= 1
        assert decoded == [ELEMENTS_AT_ONCE_MAX + number for number in range(connections)]
        assert [len((await request).topics) for request in requests] == decoded


async def test_small_requests_are_served_at_once_after_the_slice_of_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path / "data") as broker:
        sliced_work = broker.services.sliced_work
        clock = ManualClock(sliced_work._begin())
        monkeypatch.setattr(sliced_work, "_monotonic_ms", clock.monotonic_ms)
        assert not sliced_work.has_time()
        frame = request_header(METADATA, 9, 7, "test") + b"".join(encode(metadata_request(5), 9))
        assert isinstance(broker.dispatcher.dispatch(memoryview(bytearray(frame)), broker.channel), list)


async def test_large_requests_of_many_connections_are_served_two_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path / "data") as broker:
        monkeypatch.setattr(dispatch, "ELEMENTS_ON_LOOP_MAX", 50)
        monkeypatch.setattr(broker.services.sliced_work, "_monotonic_ms", SteppingClock(SLICE_MS).monotonic_ms)
        most, served = 0, 0
        handle = metadata.handle

        async def counted(*arguments: Any) -> object:
            nonlocal most, served
            served += 1
            most = max(most, served)
            try:
                return await handle(*arguments)
            finally:
                served -= 1

        monkeypatch.setattr(metadata, "handle", counted)
        requests = [asyncio.ensure_future(broker.ask(metadata_request(100))) for _ in range(6)]
        assert [len((await request).topics) for request in requests] == [100] * 6
    assert most == LARGE_REQUESTS_MAX


async def test_large_requests_whose_clients_expect_no_response_are_served_two_at_a_time_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their work goes on when their connections close, and counts until then."""
    count = 100
    batch = build_batch([RecordData(0, None, b"value")])
    data = [PartitionProduceData(index=index, records=batch) for index in range(count)]
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic("t", count)
        monkeypatch.setattr(dispatch, "ELEMENTS_ON_LOOP_MAX", 50)
        monkeypatch.setattr(broker.services.sliced_work, "_monotonic_ms", SteppingClock(SLICE_MS).monotonic_ms)
        most, served = 0, 0
        serve = broker.services.appends.serve_in_slices

        async def counted(*arguments: Any) -> object:
            nonlocal most, served
            served += 1
            most = max(most, served)
            try:
                return await serve(*arguments)
            finally:
                served -= 1

        monkeypatch.setattr(broker.services.appends, "serve_in_slices", counted)
        requests = [asyncio.ensure_future(broker.ask(request, 9)) for _ in range(6)]
        assert [await request for request in requests] == [None] * 6
        ends = {partition.log.log_end_offset for partition in broker.services.replica_manager.hosted()}
    assert 0 < most <= LARGE_REQUESTS_MAX
    assert ends == {6}


def test_the_elements_of_a_long_request_are_those_of_16_mib() -> None:
    for api_key in (METADATA, INCREMENTAL_ALTER_CONFIGS, UPDATE_METADATA, UPDATE_FEATURES):
        elements = TABLE[api_key].API.elements
        assert elements_max(elements, 100 * MIB) == elements_max(elements, 16 * MIB)


async def test_long_request_gets_its_response(tmp_path: Path) -> None:
    names = [f"{number}".ljust(32_000, "x") for number in range(SIZE_IN_STEPS_MAX // 32_000 + 1)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    async with running_broker(tmp_path / "data") as broker:
        response = await broker.ask(request)
    assert [topic.name for topic in response.topics] == names
    assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}


async def test_long_requests_are_decoded_in_a_thread_one_at_a_time_and_let_shorter_ones_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long one waits until no large one is served, and then no large one begins until it is decoded and served."""
    monkeypatch.setattr(dispatch, "SIZE_IN_STEPS_MAX", 3_000)
    async with running_broker(tmp_path / "data") as broker:
        dispatcher = broker.dispatcher
        api = APIS[METADATA]
        version = api.usual_version
        route = dispatcher._route(api, version)
        decoded: list[tuple[int, bool, threading.Thread]] = []

        def decode(frame: memoryview, position: int, limit: int) -> object:
            request = route.decode(frame, position, limit)
            is_alone = dispatcher._large_requests.locked() and dispatcher._long_requests.locked()
            decoded.append((len(request.topics), is_alone, threading.current_thread()))
            return request

        dispatcher._routes[METADATA, version] = replace(route, decode=decode)
        long = [asyncio.ensure_future(broker.ask(metadata_request(count))) for count in (401, 402, 403)]
        short = asyncio.ensure_future(broker.ask(metadata_request(5)))
        assert [len((await one).topics) for one in (*long, short)] == [401, 402, 403, 5]
        assert not dispatcher._long_requests.locked()
        assert not dispatcher._large_requests.locked()
    counts = [count for count, *_ in decoded]
    assert counts.index(5) < counts.index(402)
    of_long = [one for one in decoded if one[0] != 5]
    assert [count for count, *_ in of_long] == [401, 402, 403]
    assert all(is_alone and thread is not threading.main_thread() for _, is_alone, thread in of_long)


async def test_long_request_of_few_elements_is_not_decoded_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "SIZE_IN_STEPS_MAX", 100)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 200)])
    async with running_broker(tmp_path / "data") as broker:
        seen = watched_codec(broker, monkeypatch, limit=ELEMENTS_ON_LOOP_MAX)
        assert len((await broker.ask(request)).topics) == 1
    assert threading.main_thread() not in seen["decode"]


async def test_large_request_that_fails_as_a_whole_returns_its_error(tmp_path: Path) -> None:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(ELEMENTS_ON_LOOP_MAX)]
    request = OffsetDeleteRequest(group_id="", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
    async with running_broker(tmp_path / "data") as broker:
        assert (await broker.ask(request)).error_code


async def test_a_request_beyond_the_limit_is_malformed(tmp_path: Path) -> None:
    frame = request_header(3, 9, 7, "stuffer") + b"".join(
        encode(MetadataRequest(topics=[MetadataRequestTopic(name="")] * (MIB // 2)), 9)
    )
    async with running_broker(tmp_path / "data") as broker:
        with pytest.raises(Malformed, match=r"Metadata v9 of client 'stuffer'.*elements more than are allowed"):
            await broker.send(frame, broker.channel)
        assert (await broker.ask(metadata_request(1))).topics


async def test_a_response_beyond_the_limit_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "RESPONSE_SIZE_MAX", 1000)
    async with running_broker(tmp_path / "data") as broker:
        with (
            caplog.at_level(logging.ERROR),
            pytest.raises(Malformed, match=r"a response of \d+ bytes, expected at most"),
        ):
            await broker.ask(metadata_request(200))
        assert not caplog.records


def watched_codec(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, limit: int
) -> dict[str, set[threading.Thread]]:
    """The threads in which Metadata requests are read and responses written as far as they go, with this limit."""
    seen: dict[str, set[threading.Thread]] = {"decode": set(), "encode": set()}
    dispatcher = broker.dispatcher
    api = APIS[3]
    version = api.usual_version
    route = dispatcher._route(api, version)

    def watched(verb: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            seen[verb].add(threading.current_thread())
            return result

        return call

    monkeypatch.setattr(dispatch, "ELEMENTS_ON_LOOP_MAX", limit)
    dispatcher._routes[3, version] = replace(
        route, decode=watched("decode", route.decode), encode=watched("encode", route.encode)
    )
    return seen


async def test_request_without_a_response_is_served_after_its_client_disconnects(tmp_path: Path) -> None:
    """It waits for its turn, as the slice of this turn is used up, and its client expects nothing any more."""
    count = ELEMENTS_AT_ONCE_MAX + 10
    batch = build_batch([RecordData(0, None, b"value")])
    data = [PartitionProduceData(index=index, records=batch) for index in range(count)]
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    frame = bytearray(request_header(0, 9, 7, "test") + b"".join(encode(request, 9)))
    async with running_broker(tmp_path / "data") as broker:
        await broker.create_topic("t", count)
        sliced_work = broker.services.sliced_work
        sliced_work._begin()
        sliced_work._end_ms = 0
        responding = broker.dispatcher.dispatch(memoryview(frame), broker.channel)
        assert isinstance(responding, Promise)
        responding.cancel()
        logs = [broker.services.replica_manager.find("t", index).log for index in range(count)]  # type: ignore[union-attr]
        async with asyncio.timeout(10):
            while not all(log.log_end_offset for log in logs):  # noqa: ASYNC110 - there is no event for this
                await asyncio.sleep(0.001)
