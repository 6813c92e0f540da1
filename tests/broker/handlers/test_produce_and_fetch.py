"""Produce and Fetch through the whole broker, version by version, without sockets."""

import asyncio
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from broker.handlers.request_context import CloseConnection
from broker.network.unsent_responses import UNSENT_SIZE_MAX
from protocol.api import APIS
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from protocol.records.batch import batches, records
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.records.entries import entries, entry_records
from protocol.schema import ZERO_UUID
from tests.support.in_process import InProcessBroker, reserved, running_broker

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRODUCE, FETCH = APIS[0], APIS[1]
SIZE_MAX = 1 << 24


@pytest.fixture
def served(broker_of_file: InProcessBroker) -> InProcessBroker:
    return broker_of_file


def batch_of(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **fields: int) -> bytes:
    return build_batch([RecordData(timestamp=timestamp_ms, key=b"k", value=value) for value in values], **fields)


async def produce(
    broker: InProcessBroker,
    topic: str,
    records_of_partition: dict[int, bytes],
    *,
    acks: int = 1,
    version: int = 11,
    client_id: str = "test",
) -> dict[int, PartitionProduceResponse]:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=data) for index, data in records_of_partition.items()
                ],
            )
        ],
    )
    response = await broker.ask(request, version, client_id=client_id)
    return {} if response is None else {one.index: one for one in response.responses[0].partition_responses}


async def topic_id_of(broker: InProcessBroker, topic: str) -> object:
    response = await broker.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    )
    return response.topics[0].topic_id


async def fetch(
    broker: InProcessBroker,
    topic: str,
    offsets: dict[int, int],
    *,
    version: int = 12,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = SIZE_MAX,
    partition_max_bytes: int = SIZE_MAX,
    session: tuple[int, int] = (0, -1),
    forgotten: tuple[int, ...] = (),
    leader_epoch: int = -1,
) -> FetchResponse:
    topic_id = await topic_id_of(broker, topic) if version >= 13 else ZERO_UUID
    name = "" if version >= 13 else topic
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic=name,
                topic_id=topic_id,  # type: ignore[arg-type]
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=leader_epoch,
                    )
                    for index, offset in offsets.items()
                ],
            )
        ]
        if offsets
        else [],
        forgotten_topics_data=[ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(forgotten))]  # type: ignore[arg-type]
        if forgotten
        else [],
    )
    response = await broker.ask(request, version)
    assert isinstance(response, FetchResponse)
    return response


def partitions_of(response: FetchResponse) -> dict[int, PartitionData]:
    return {one.partition_index: one for topic in response.responses for one in topic.partitions}


def values_in(data: PartitionData) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record, in whichever format it came."""
    found: list[tuple[int, bytes | None]] = []
    assert data.records is not None
    for entry in entries(data.records):
        found += [(one.offset, one.value) for one in entry_records(data.records, entry.position, size_max=SIZE_MAX)]
    return found


@pytest.mark.parametrize("version", list(PRODUCE.versions))
@pytest.mark.parametrize("acks", [1, -1])
async def test_every_version_produces(served: InProcessBroker, name: str, version: int, acks: int) -> None:
    await served.create_topic(name)
    first = await produce(served, name, {0: batch_of(b"a", b"b")}, acks=acks, version=version)
    second = await produce(served, name, {0: batch_of(b"c")}, acks=acks, version=version)
    assert [(one[0].error_code, one[0].base_offset) for one in (first, second)] == [(0, 0), (0, 2)]
    data = partitions_of(await fetch(served, name, {0: 0}))[0]
    assert values_in(data) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("version", list(FETCH.versions))
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
async def test_every_version_fetches(
    served: InProcessBroker, name: str, version: int, compression: Compression
) -> None:
    await served.create_topic(name)
    await produce(served, name, {0: batch_of(b"a", b"b", compression=compression)})
    await produce(served, name, {0: batch_of(b"c", compression=compression)})
    response = await fetch(served, name, {0: 0}, version=version)
    data = partitions_of(response)[0]
    assert data.error_code == ErrorCode.NONE
    assert data.high_watermark == 3
    assert values_in(data) == [(0, b"a"), (1, b"b"), (2, b"c")]
    magic = memoryview(data.records or b"")[16]
    assert magic == (0 if version < 2 else 1 if version < 4 else 2)


async def test_one_bad_partition_does_not_fail_the_others(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, 2)
    damaged = bytearray(batch_of(b"x"))
    damaged[-1] ^= 1
    responses = await produce(served, name, {0: batch_of(b"good"), 1: bytes(damaged), 2: batch_of(b"nowhere")})
    assert {index: response.error_code for index, response in responses.items()} == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    stored = partitions_of(await fetch(served, name, {0: 0, 1: 0}))
    assert values_in(stored[0]) == [(0, b"good")]
    assert (stored[1].high_watermark, stored[1].records) == (0, b""), "nothing of the damaged batch is stored"


@pytest.mark.parametrize("acks", [2, -2, 127])
async def test_unknown_acks_are_refused_before_anything_is_written(
    served: InProcessBroker, name: str, acks: int
) -> None:
    await served.create_topic(name)
    responses = await produce(served, name, {0: batch_of(b"x")}, acks=acks)
    assert (responses[0].error_code, responses[0].base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert partitions_of(await fetch(served, name, {0: 0}))[0].high_watermark == 0


async def test_acks_0_gets_no_response_and_closes_on_failure(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    assert await produce(served, name, {0: batch_of(b"x")}, acks=0) == {}
    assert partitions_of(await fetch(served, name, {0: 0}))[0].high_watermark == 1
    with pytest.raises(CloseConnection, match=f"{name}-5"):
        await produce(served, name, {5: batch_of(b"x")}, acks=0)


async def test_acks_0_that_fails_as_a_whole_closes_the_connection(
    served: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(topic: str, partition: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(served.services.replica_manager, "find", broken)
    with pytest.raises(CloseConnection, match="UNKNOWN_SERVER_ERROR"):
        await produce(served, name, {0: batch_of(b"x")}, acks=0)


async def test_no_more_replicas_have_to_be_in_sync_than_there_are(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, min_insync_replicas="2")
    assert (await produce(served, name, {0: batch_of(b"x")}, acks=-1))[0].error_code == ErrorCode.NONE
    assert partitions_of(await fetch(served, name, {0: 0}))[0].high_watermark == 1


async def test_internal_topics_are_for_the_broker(served: InProcessBroker) -> None:
    await served.create_topic("__consumer_offsets", cleanup_policy="compact")
    responses = await produce(served, "__consumer_offsets", {0: batch_of(b"x")})
    assert responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_keyless_record_in_a_compacted_topic_is_named(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, cleanup_policy="compact")
    keyless = build_batch(
        [RecordData(timestamp=1, key=b"k", value=b"v"), RecordData(timestamp=1, key=None, value=b"v")]
    )
    response = (await produce(served, name, {0: keyless}))[0]
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in response.record_errors] == [1]
    assert response.error_message.startswith("One or more records have been rejected")


async def test_log_append_time_is_the_brokers(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, message_timestamp_type="LogAppendTime")
    response = (await produce(served, name, {0: batch_of(b"x", timestamp_ms=5)}))[0]
    assert response.log_append_time_ms > 1_700_000_000_000
    data = partitions_of(await fetch(served, name, {0: 0}))[0]
    (record,) = records(data.records or b"", size_max=SIZE_MAX)
    assert record.timestamp == response.log_append_time_ms


async def test_a_repeated_idempotent_batch_is_stored_once(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    first = await served.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    second = await served.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    assert first.producer_id != second.producer_id
    producer_id = first.producer_id

    def numbered(sequence: int, value: bytes) -> bytes:
        return batch_of(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    sent = [numbered(0, b"a"), numbered(1, b"b"), numbered(0, b"a"), numbered(1, b"b"), numbered(2, b"c")]
    responses = [(await produce(served, name, {0: one}))[0] for one in sent]
    assert [(one.error_code, one.base_offset) for one in responses] == [(0, 0), (0, 1), (0, 0), (0, 1), (0, 2)]
    gap = (await produce(served, name, {0: numbered(9, b"z")}))[0]
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(values_in(partitions_of(await fetch(served, name, {0: 0}))[0])) == 3


@pytest.mark.parametrize(
    ("offset", "code"),
    [(-1, ErrorCode.OFFSET_OUT_OF_RANGE), (4, ErrorCode.OFFSET_OUT_OF_RANGE), (3, ErrorCode.NONE), (2, ErrorCode.NONE)],
)
async def test_offsets_outside_the_log_are_out_of_range(
    served: InProcessBroker, name: str, offset: int, code: ErrorCode
) -> None:
    await served.create_topic(name)
    await produce(served, name, {0: batch_of(b"a", b"b", b"c")})
    data = partitions_of(await fetch(served, name, {0: offset}))[0]
    assert data.error_code == code
    assert data.records is not None, "null records are what librdkafka refuses"


async def test_an_offset_inside_a_batch_returns_the_batch(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    await produce(served, name, {0: batch_of(b"a", b"b", b"c")})
    assert len(values_in(partitions_of(await fetch(served, name, {0: 2}))[0])) == 3


async def test_limits_hold_except_for_the_first_batch(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name, 2)
    large, small = batch_of(bytes(5000)), batch_of(b"s")
    await produce(served, name, {0: large, 1: small})
    await produce(served, name, {0: small, 1: small})
    tight = partitions_of(await fetch(served, name, {0: 0, 1: 0}, max_bytes=10))
    assert len(tight[0].records or b"") == len(large), "a whole first batch, or the consumer is stuck"
    assert tight[1].records == b""
    by_partition = partitions_of(await fetch(served, name, {1: 0, 0: 0}, partition_max_bytes=len(small)))
    assert len(by_partition[1].records or b"") == len(small)
    assert by_partition[0].records == b"", "a part of a batch stops clients"
    old = partitions_of(await fetch(served, name, {1: 0, 0: 0}, partition_max_bytes=len(small), version=2))
    assert old[0].records, "clients of that time ask for more if they get a part"


@pytest.mark.parametrize(
    ("leader_epoch", "code"),
    [(-1, ErrorCode.NONE), (0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
async def test_the_readers_leader_epoch_is_checked(
    served: InProcessBroker, name: str, leader_epoch: int, code: ErrorCode
) -> None:
    await served.create_topic(name)
    data = partitions_of(await fetch(served, name, {0: 0}, leader_epoch=leader_epoch))[0]
    assert data.error_code == code


async def test_unknown_topics_are_reported_by_name_and_by_id(served: InProcessBroker, name: str) -> None:
    assert partitions_of(await fetch(served, name, {0: 0}))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partitions_of(await fetch(served, name, {0: 0}, version=17))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_append_completes_a_long_poll(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    waiting = asyncio.ensure_future(fetch(served, name, {0: 0}, max_wait_ms=60_000))
    await asyncio.sleep(0)
    assert not waiting.done()
    await produce(served, name, {0: batch_of(b"news")})
    async with asyncio.timeout(10):
        assert values_in(partitions_of(await waiting)[0]) == [(0, b"news")]


async def test_a_long_poll_waits_for_as_many_bytes_as_it_wants(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    batch = batch_of(bytes(100))
    waiting = asyncio.ensure_future(fetch(served, name, {0: 0}, max_wait_ms=60_000, min_bytes=2 * len(batch)))
    await produce(served, name, {0: batch})
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    await produce(served, name, {0: batch})
    async with asyncio.timeout(10):
        assert len(partitions_of(await waiting)[0].records or b"") == 2 * len(batch)


async def test_a_fetch_that_wants_more_bytes_than_it_may_get_does_not_wait(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    batch = batch_of(bytes(5000))
    await produce(served, name, {0: batch})
    async with asyncio.timeout(10):
        response = await fetch(served, name, {0: 0}, max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=1000)
    assert len(partitions_of(response)[0].records or b"") == len(batch)


async def test_a_long_poll_ends_empty_at_its_deadline(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    async with asyncio.timeout(10):
        response = await fetch(served, name, {0: 0}, max_wait_ms=20)
    assert partitions_of(response)[0].records == b""


@pytest.mark.parametrize("version", [7, 12, 13, 17])
async def test_session_returns_changes_only(served: InProcessBroker, name: str, version: int) -> None:
    await served.create_topic(name, 3)
    opened = await fetch(served, name, {0: 0, 1: 0, 2: 0}, version=version, session=(0, 0))
    assert opened.session_id > 0
    assert set(partitions_of(opened)) == {0, 1, 2}
    quiet = await fetch(served, name, {}, version=version, session=(opened.session_id, 1))
    assert partitions_of(quiet) == {}
    await produce(served, name, {1: batch_of(b"x")})
    changed = await fetch(served, name, {}, version=version, session=(opened.session_id, 2))
    assert {index: values_in(data) for index, data in partitions_of(changed).items()} == {1: [(0, b"x")]}
    moved_on = await fetch(served, name, {1: 1}, version=version, session=(opened.session_id, 3), forgotten=(0, 2))
    assert partitions_of(moved_on) == {}
    wrong = await fetch(served, name, {}, version=version, session=(opened.session_id, 9))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = await fetch(served, name, {}, version=version, session=(12345, 1))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", [4, 9, 10, 12])
async def test_batch_in_zstd_is_fetched_unchanged(served: InProcessBroker, name: str, version: int) -> None:
    """Clients that ask with versions before 10 read it too, for instance rskafka and kafka-python 2.0."""
    await served.create_topic(name)
    sent = batch_of(b"x", compression=Compression.ZSTD)
    await produce(served, name, {0: sent})
    data = partitions_of(await fetch(served, name, {0: 0}, version=version))[0]
    assert data.error_code == ErrorCode.NONE
    assert data.records is not None
    assert bytes(data.records)[16:] == sent[16:]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_zstd_has_no_old_form(served: InProcessBroker, name: str, version: int) -> None:
    """What comes before it is read, and then it is an error."""
    await served.create_topic(name)
    await produce(served, name, {0: batch_of(b"a")})
    await produce(served, name, {0: batch_of(b"b", compression=Compression.ZSTD)})
    read = partitions_of(await fetch(served, name, {0: 0}, version=version))[0]
    message_set = read.records or b""
    assert [record.value for record in entry_records(message_set, size_max=99)] == [b"a"]
    assert len(list(entries(message_set))) == 1
    failed = partitions_of(await fetch(served, name, {0: 1}, version=version))[0]
    assert failed.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert failed.records == b""


async def test_a_reader_before_version_3_learns_that_its_buffer_is_too_small(
    served: InProcessBroker, name: str
) -> None:
    await served.create_topic(name)
    await produce(served, name, {0: batch_of(bytes(3000))})
    data = partitions_of(await fetch(served, name, {0: 0}, version=2, partition_max_bytes=1000))[0]
    assert data.records is not None
    offset, size = struct.unpack_from(">qi", data.records)
    assert offset == 0
    assert size > len(data.records) - 12, "a message that is cut off"
    assert len(data.records) == 12, "nothing of a format that it does not know"


async def test_batches_leave_as_they_came(served: InProcessBroker, name: str) -> None:
    await served.create_topic(name)
    sent = batch_of(b"a", b"b", compression=Compression.GZIP)
    await produce(served, name, {0: sent})
    data = partitions_of(await fetch(served, name, {0: 0}))[0]
    ((_, header),) = batches(data.records or b"")
    assert bytes(data.records or b"")[16:] == sent[16:], "only offset and leader epoch are the broker's"
    assert header.partition_leader_epoch == 0


async def test_not_leader_error_names_the_leader(served: InProcessBroker, name: str) -> None:
    """This replica follows broker 7, which is unknown; older versions have no field for the leader."""
    await served.create_topic(name, partitions=2)
    partition = served.services.replica_manager.find(name, 0)
    assert partition is not None
    partition.follow(replace(partition.leadership, leader_id=7, leader_epoch=5))
    for version in (9, 11):
        produced = await produce(served, name, {0: batch_of(b"x"), 1: batch_of(b"y")}, version=version)
        assert produced[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produced[1].current_leader is None
        leader = produced[0].current_leader
        assert (leader is not None) == (version >= 10)
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (7, 5)
    assert partitions_of(await fetch(served, name, {0: 0}, version=17))[0].error_code == ErrorCode.NONE, "a follower"
    partition.stop()
    fetched = await fetch(served, name, {0: 0}, version=17)
    assert partitions_of(fetched)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partitions_of(fetched)[0].current_leader == LeaderIdAndEpoch(leader_id=-1, leader_epoch=5)
    assert fetched.node_endpoints == []


@pytest.mark.parametrize("version", [12, 15, 16, 17])
async def test_fenced_epoch_error_names_the_leader(served: InProcessBroker, name: str, version: int) -> None:
    await served.create_topic(name)
    partition = served.services.replica_manager.find(name, 0)
    assert partition is not None
    partition.lead(replace(partition.leadership, leader_epoch=4), 0)
    fetched = await fetch(served, name, {0: 0}, version=version, leader_epoch=3)
    data = partitions_of(fetched)[0]
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    if version < 16:
        assert data.current_leader is None
        return
    assert data.current_leader == LeaderIdAndEpoch(leader_id=0, leader_epoch=4)
    (node,) = fetched.node_endpoints
    assert (node.node_id, node.host) == (0, "127.0.0.1")


@pytest.mark.parametrize("version", [5, 6])
async def test_an_offline_log_is_no_leader_to_readers_that_know_no_better(
    served: InProcessBroker, name: str, version: int
) -> None:
    await served.create_topic(name)
    partition = served.services.replica_manager.find(name, 0)
    assert partition is not None
    partition.log.take_offline()
    code = partitions_of(await fetch(served, name, {0: 0}, version=version))[0].error_code
    assert code == (ErrorCode.KAFKA_STORAGE_ERROR if version >= 6 else ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_the_leader_is_the_nearest_replica_when_it_is_the_only_one(tmp_path: Path, name: str) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    async with running_broker(tmp_path, {"replica.selector.class": selector, "broker.rack": "here"}) as broker:
        await broker.create_topic(name)
        await produce(broker, name, {0: batch_of(b"x")})
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=SIZE_MAX,
            session_epoch=-1,
            rack_id="there",
            topics=[
                FetchTopic(
                    topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=SIZE_MAX)]
                )
            ],
        )
        data = partitions_of(await broker.ask(request, 11))[0]
        assert values_in(data) == [(0, b"x")]
        assert data.preferred_read_replica == -1


async def test_fetch_waits_for_memory_and_small_responses_still_hold_a_whole_batch(
    served: InProcessBroker, name: str
) -> None:
    await served.create_topic(name)
    large = batch_of(bytes(200_000))
    for _ in range(4):
        await produce(served, name, {0: large})
    unsent = served.services.unsent_responses

    async def read_size() -> int:
        records = partitions_of(await fetch(served, name, {0: 0}))[0].records
        assert records is not None
        return len(records)

    assert await read_size() == 4 * len(large)
    with reserved(unsent, UNSENT_SIZE_MAX - 1):
        assert await read_size() == len(large), "one batch whatever is left"
    with reserved(unsent, UNSENT_SIZE_MAX):
        waiting = asyncio.ensure_future(read_size())
        await asyncio.sleep(0.01)
        assert not waiting.done()
    assert await waiting == 4 * len(large)


@pytest.mark.parametrize("version", [14, 15, 17])
async def test_a_follower_takes_the_session_of_a_consumer_when_slots_are_used_up(
    tmp_path: Path, name: str, version: int
) -> None:
    async with running_broker(tmp_path, {"max.incremental.fetch.session.cache.slots": "1"}) as broker:
        await broker.create_topic(name)
        assert (await fetch(broker, name, {0: 0}, session=(0, 0))).session_id > 0
        assert (await fetch(broker, name, {0: 0}, session=(0, 0))).session_id == 0, "no slot is no error"
        follower = FetchRequest(
            replica_id=3 if version < 15 else -1,
            replica_state=None if version < 15 else ReplicaState(replica_id=3),
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=SIZE_MAX,
            topics=[
                FetchTopic(
                    topic_id=await topic_id_of(broker, name),  # type: ignore[arg-type]
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=SIZE_MAX)],
                )
            ],
            session_epoch=0,
        )
        assert (await broker.ask(follower, version)).session_id > 0


@pytest.mark.parametrize("version", [2, 3, 9, 11])
async def test_of_records_for_a_partition_twice_the_last_count(
    served: InProcessBroker, name: str, version: int
) -> None:
    await served.create_topic(name, partitions=2)

    def of(*records_of: tuple[int, bytes]) -> TopicProduceData:
        data = [PartitionProduceData(index=index, records=batch_of(value)) for index, value in records_of]
        return TopicProduceData(name=name, partition_data=data)

    for round_number in range(2):
        topic_data = [of((0, b"first"), (1, b"other"), (0, b"second")), of((0, b"third"))]
        response = await served.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topic_data), version)
        responded = [(one.index, one.base_offset) for topic in response.responses for one in topic.partition_responses]
        assert responded == [(0, round_number), (1, round_number)]
    stored = partitions_of(await fetch(served, name, {0: 0, 1: 0}))
    assert values_in(stored[0]) == [(0, b"third"), (1, b"third")]
    assert values_in(stored[1]) == [(0, b"other"), (1, b"other")]


async def read_as(
    broker: InProcessBroker, topic: str, replica_id: int, *, version: int, leader_epoch: int = -1
) -> PartitionData:
    """Return the response to a fetch with a replica id."""
    request = FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=None if version < 15 else ReplicaState(replica_id=replica_id),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=SIZE_MAX,
        isolation_level=1,
        topics=[
            FetchTopic(
                topic="" if version >= 13 else topic,
                topic_id=await topic_id_of(broker, topic) if version >= 13 else ZERO_UUID,  # type: ignore[arg-type]
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=0,
                        partition_max_bytes=SIZE_MAX,
                        current_leader_epoch=leader_epoch,
                    )
                ],
            )
        ],
        session_epoch=-1,
    )
    (data,) = partitions_of(await broker.ask(request, version)).values()
    return data


@pytest.mark.parametrize("version", [4, 9, 12, 15, 17])
@pytest.mark.parametrize("replica_id", [0, 1, 7])
async def test_fetch_from_an_unassigned_replica_is_rejected(
    served: InProcessBroker, name: str, version: int, replica_id: int
) -> None:
    await served.create_topic(name)
    await produce(served, name, {0: batch_of(b"v")})
    data = await read_as(served, name, replica_id, version=version)
    assert (data.error_code, data.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    if version >= 9:
        data = await read_as(served, name, replica_id, version=version, leader_epoch=0)
        assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [4, 12, 15])
async def test_tools_read_no_more_than_consumers(served: InProcessBroker, name: str, version: int) -> None:
    """Their replica id is no reason to show what may be removed again."""
    await served.create_topic(name)
    await produce(served, name, {0: batch_of(b"v")})
    await produce(served, name, {0: batch_of(b"w")})
    partition = served.services.replica_manager.find(name, 0)
    assert partition is not None
    partition.log.high_watermark = 1
    for replica_id in (-1, -2, -7):
        data = await read_as(served, name, replica_id, version=version)
        assert (data.error_code, data.aborted_transactions) == (ErrorCode.NONE, [])
        assert [offset for offset, _ in values_in(data)] == [0]


@pytest.mark.parametrize("version", [4, 7, 12])
@pytest.mark.parametrize("level", [-1, 2, 7])
async def test_an_unknown_isolation_level_reads_nothing(
    served: InProcessBroker, name: str, version: int, level: int
) -> None:
    await served.create_topic(name)
    await produce(served, name, {0: batch_of(b"v")})
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=SIZE_MAX,
        isolation_level=level,
        topics=[
            FetchTopic(
                topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=SIZE_MAX)]
            )
        ],
        session_epoch=-1,
    )
    response = await served.ask(request, version)
    codes = [response.error_code] if version >= 7 else [one.error_code for one in partitions_of(response).values()]
    assert codes == [ErrorCode.INVALID_REQUEST]
    assert not any(one.records for one in partitions_of(response).values())
