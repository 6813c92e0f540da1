"""Shortcuts against their dumb twin, the general way: the same bytes for the same requests, whatever they repeat."""

import asyncio
import errno
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.network.connection import Buffers
from broker.network.unsent_answers import ALLOWANCE_MIN
from broker.offsets_log import PartitionOffsetsLog
from broker.promise import Promise
from broker.request_context import CloseConnection, Peer
from broker.shortcuts import LEARNED_IN_VAIN_MAX, SHORTCUTS_MAX, Answer, Shortcut, Shortcuts
from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.headers import read_response_header, request_header
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from protocol.schema import ZERO_UUID
from protocol.writer import uvarint
from storage.files import FileSlice, OsFiles
from tests.support.in_process import InProcessBroker, running_broker

PRODUCE, FETCH, COMMIT = 0, 1, 8
FIRST_COMMIT_WITH_EPOCH = 6
SHORT, GENERAL = "topic-s", "topic-g"


class NoShortcuts(Shortcuts):
    """A connection that never learns."""

    def learn(self, shortcut: Shortcut) -> None:
        pass


class CountedShortcuts(Shortcuts):
    """A connection that tells how many answers came from a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.answer_count = 0

    def answer(self, frame: memoryview) -> Answer | None:
        answer = super().answer(frame)
        self.answer_count += answer is not None
        return answer


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path / "data") as running:
        for topic in (SHORT, GENERAL):
            await running.create_topic(topic, 2)
        yield running


@pytest.fixture
def learning() -> CountedShortcuts:
    return CountedShortcuts()


def peer_with(shortcuts: Shortcuts) -> Peer:
    return Peer("127.0.0.1", 1, "PLAINTEXT", shortcuts=shortcuts)


def batch_of(count: int, size: int = 10, **fields: int) -> bytes:
    return build_batch([RecordData(timestamp=1000, key=b"k", value=bytes(size)) for _ in range(count)], **fields)


def produce_frame(topic: str, records: bytes, version: int, *, number: int = 0, acks: int = 1, index: int = 0) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
    return request_header(PRODUCE, version, number, "client") + b"".join(encode(request, version))


async def send(broker: InProcessBroker, frame: bytes, shortcuts: Shortcuts) -> bytes:
    return joined(await broker.send(frame, peer_with(shortcuts)))


def joined(answer: Buffers | None) -> bytes:
    return b"".join(piece.read() if isinstance(piece, FileSlice) else piece for piece in answer or [])


def error_in(answer: bytes, version: int) -> int:
    _, position = read_response_header(PRODUCE, version, answer[4:])
    response = decode(ProduceResponse, version, answer[4:], position)
    return response.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("version", list(APIS[PRODUCE].versions))
@pytest.mark.parametrize("acks", [1, -1])
async def test_produce_answers_the_same_bytes(
    broker: InProcessBroker, learning: CountedShortcuts, version: int, acks: int
) -> None:
    sizes = [(1, 10), (1, 10), (3, 10), (1, 100), (1, 200), (50, 400), (1, 0), (2, 70_000)]
    for number, (count, size) in enumerate(sizes):
        records = batch_of(count, size)
        short = await send(broker, produce_frame(SHORT, records, version, number=number, acks=acks), learning)
        general = await send(broker, produce_frame(GENERAL, records, version, number=number, acks=acks), NoShortcuts())
        assert short == general.replace(GENERAL.encode(), SHORT.encode())
    assert bool(learning.answer_count) == (version >= 5)


async def test_partitions_in_turn_are_all_remembered(broker: InProcessBroker, learning: CountedShortcuts) -> None:
    for number in range(10):
        answer = await send(broker, produce_frame(SHORT, batch_of(1), 9, number=number, index=number % 2), learning)
        assert error_in(answer, 9) == ErrorCode.NONE
    assert learning.answer_count == 8


async def test_no_more_is_remembered_than_is_of_use(broker: InProcessBroker) -> None:
    shortcuts = CountedShortcuts()
    await broker.create_topic("wide", SHORTCUTS_MAX + 1)
    for _ in range(3):
        for index in range(SHORTCUTS_MAX + 1):
            await send(broker, produce_frame("wide", batch_of(1), 9, index=index), shortcuts)
    assert shortcuts.answer_count == 0, "the oldest is always the one that is asked for next"


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (damaged(batch_of(1)), ErrorCode.CORRUPT_MESSAGE),
        (batch_of(1) * 2, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(30), ErrorCode.CORRUPT_MESSAGE),
        (batch_of(1, 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(1, producer_id=7, producer_epoch=0, base_sequence=5), ErrorCode.NONE),
        (batch_of(1, producer_id=7, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "two batches", "nothing", "garbage", "too large", "a producer id", "no sequence"],
)
@pytest.mark.parametrize("version", [7, 11])
async def test_refused_records_are_refused_alike(
    broker: InProcessBroker, learning: CountedShortcuts, records: bytes, code: ErrorCode, version: int
) -> None:
    for topic, shortcuts in ((SHORT, learning), (GENERAL, NoShortcuts())):
        await send(broker, produce_frame(topic, batch_of(1), version), shortcuts)
    short = await send(broker, produce_frame(SHORT, records, version), learning)
    general = await send(broker, produce_frame(GENERAL, records, version), NoShortcuts())
    assert error_in(short, version) == error_in(general, version) == code
    after = await send(broker, produce_frame(SHORT, batch_of(1), version), learning)
    assert error_in(after, version) == ErrorCode.NONE


@pytest.mark.parametrize("records_size", [16381, 16382, 16383, 16384])
async def test_a_length_of_three_bytes_is_told_from_one_of_two(
    broker: InProcessBroker, learning: CountedShortcuts, records_size: int
) -> None:
    for records in (batch_of(1), batch_of(1, records_size - len(batch_of(1, 10_000)) + 10_000)):
        short = await send(broker, produce_frame(SHORT, records, 9), learning)
        general = await send(broker, produce_frame(GENERAL, records, 9), NoShortcuts())
        assert short == general.replace(GENERAL.encode(), SHORT.encode())
    assert len(records) == records_size
    assert learning.answer_count == 1


async def test_a_batch_that_is_sent_again_is_written_once(broker: InProcessBroker, learning: CountedShortcuts) -> None:
    partition = broker.services.replica_manager.find(SHORT, 0)
    assert partition is not None
    await send(broker, produce_frame(SHORT, batch_of(2), 9), learning)
    frame = produce_frame(SHORT, batch_of(3, producer_id=7, producer_epoch=0, base_sequence=0), 9)
    answers = {await send(broker, frame, learning) for _ in range(3)}
    assert len(answers) == 1
    assert learning.answer_count == 3
    assert partition.log.log_end_offset == partition.log.high_watermark == 5


async def test_what_another_replica_has_to_have_is_not_committed_with_the_append(
    broker: InProcessBroker, learning: CountedShortcuts
) -> None:
    partition = broker.services.replica_manager.find(SHORT, 0)
    assert partition is not None
    log, alone = partition.log, partition.leadership
    produce = partial(send, broker, produce_frame(SHORT, batch_of(1), 9), learning)
    await produce()
    await produce()
    assert (log.log_end_offset, log.high_watermark) == (2, 2)
    partition.lead(replace(alone, leader_epoch=alone.leader_epoch + 1, isr=(0, 1), replicas=(0, 1)))
    await produce()
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    partition.follow(replace(alone, leader_id=1, leader_epoch=alone.leader_epoch + 2))
    assert error_in(await produce(), 9) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.lead(replace(alone, leader_epoch=alone.leader_epoch + 3))
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    await produce()
    assert (log.log_end_offset, log.high_watermark) == (4, 4)
    partition.stop()
    assert error_in(await produce(), 9) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.lead(replace(alone, leader_epoch=alone.leader_epoch + 4))
    assert learning.answer_count == 3


async def test_a_disk_that_fails_is_told_as_in_the_general_way(
    broker: InProcessBroker, learning: CountedShortcuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = broker.services.replica_manager.find(SHORT, 0)
    assert partition is not None

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is gone")

    await send(broker, produce_frame(SHORT, batch_of(1), 9), learning)
    with monkeypatch.context() as broken:
        broken.setattr(OsFiles, "write", fail)
        refused = await send(broker, produce_frame(SHORT, batch_of(1), 9), learning)
    assert error_in(refused, 9) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.log.is_offline
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 1)


async def test_an_endless_length_is_told_from_a_length_at_once(
    broker: InProcessBroker, learning: CountedShortcuts
) -> None:
    frame = produce_frame(SHORT, batch_of(1), 9)
    await send(broker, frame, learning)
    prefix = frame[: frame.index(batch_of(1)) - 1]
    with pytest.raises(Malformed):
        await send(broker, prefix + b"\xff" * 1_000_000 + bytes(3), learning)


async def test_a_shortcut_that_fails_closes_its_connection_only(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def answer(self, frame: memoryview) -> None:
            raise ZeroDivisionError("of ours")

    shortcuts = Shortcuts()
    shortcuts.learn(Broken())
    with pytest.raises(CloseConnection):
        await send(broker, produce_frame(SHORT, batch_of(1), 9), shortcuts)
    assert "ZeroDivisionError: of ours" in caplog.text


async def test_a_connection_that_never_repeats_itself_is_not_learned_from(broker: InProcessBroker) -> None:
    class Other:
        def answer(self, frame: memoryview) -> None:
            return None

    shortcuts = Shortcuts()
    for _ in range(LEARNED_IN_VAIN_MAX):
        shortcuts.learn(Other())
    for _ in range(2):
        await send(broker, produce_frame(SHORT, batch_of(1), 9), shortcuts)
    assert shortcuts.answer(memoryview(bytearray(produce_frame(SHORT, batch_of(1), 9)))) is None


async def test_a_gap_in_the_sequence_is_refused_alike_with_append_time(
    broker: InProcessBroker, learning: CountedShortcuts
) -> None:
    """The attempt in the shortcut stamps the batch; the general way must find it as it came."""
    codes = []
    for topic, shortcuts in (("stamped-s", learning), ("stamped-g", NoShortcuts())):
        await broker.create_topic(topic, message_timestamp_type="LogAppendTime")
        for sequence in (0, 1, 9):
            records = batch_of(1, producer_id=7, producer_epoch=0, base_sequence=sequence)
            answer = await send(broker, produce_frame(topic, records, 9), shortcuts)
        codes.append(error_in(answer, 9))
    assert codes == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2


async def test_a_transactional_batch_is_no_repetition(broker: InProcessBroker, learning: CountedShortcuts) -> None:
    await send(broker, produce_frame(SHORT, batch_of(1), 9), learning)
    records = build_batch(
        [RecordData(timestamp=1, key=None, value=b"v")],
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    answer = await send(broker, produce_frame(SHORT, records, 9), learning)
    assert error_in(answer, 9) != ErrorCode.NONE
    assert learning.answer_count == 0


@pytest.mark.parametrize("version", [5, 7, 9, 11])
async def test_bytes_after_the_request_do_not_become_records(
    broker: InProcessBroker, learning: CountedShortcuts, version: int
) -> None:
    for extra in (b"", b"\0", b"\0\0\0\0", b"more"):
        answer = await send(broker, produce_frame(SHORT, batch_of(1), version) + extra, learning)
        assert error_in(answer, version) == ErrorCode.NONE


async def test_a_new_topic_of_the_same_name_is_another_one(broker: InProcessBroker, learning: CountedShortcuts) -> None:
    await send(broker, produce_frame(SHORT, batch_of(1), 9), learning)
    state = DeleteTopicState(name=SHORT, topic_id=ZERO_UUID)
    await broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000))
    gone = await send(broker, produce_frame(SHORT, batch_of(1), 9), learning)
    assert error_in(gone, 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await broker.create_topic(SHORT, 2)
    back = await send(broker, produce_frame(SHORT, batch_of(1), 9), learning)
    assert error_in(back, 9) == ErrorCode.NONE
    assert learning.answer_count == 0


async def test_changed_settings_are_in_force_at_once(broker: InProcessBroker, learning: CountedShortcuts) -> None:
    for _ in range(2):
        await send(broker, produce_frame(SHORT, batch_of(1), 9), learning)
    change = AlterConfigsResource(
        resource_type=2,
        resource_name=SHORT,
        configs=[AlterableConfig(name="max.message.bytes", config_operation=0, value="100")],
    )
    await broker.ask(IncrementalAlterConfigsRequest(resources=[change], validate_only=False))
    answer = await send(broker, produce_frame(SHORT, batch_of(1, 1000), 9), learning)
    assert error_in(answer, 9) == ErrorCode.MESSAGE_TOO_LARGE
    assert learning.answer_count == 1


async def fetch_frame(
    broker: InProcessBroker,
    version: int,
    offset: int,
    *,
    number: int = 0,
    bytes_max: int = 5000,
    bytes_min: int = 1,
    wait_ms: int = 0,
    replica_id: int = -1,
    rack: str = "",
    leader_epoch: int = -1,
) -> bytes:
    described = await broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name=SHORT)]))
    topic = FetchTopic(
        topic=SHORT if version < 13 else "",
        topic_id=described.topics[0].topic_id if version >= 13 else ZERO_UUID,
        partitions=[
            FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=bytes_max, current_leader_epoch=leader_epoch
            )
        ],
    )
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=bytes_min, topics=[topic], rack_id=rack)
    if version < 15:
        request.replica_id = replica_id
    else:
        request.replica_state = ReplicaState(replica_id=replica_id)
    return request_header(FETCH, version, number, "client") + b"".join(encode(request, version))


@pytest.mark.parametrize("version", list(APIS[FETCH].versions))
async def test_fetch_answers_the_same_bytes(broker: InProcessBroker, learning: CountedShortcuts, version: int) -> None:
    for count in (20, 20, 3, 1, 200):
        await send(broker, produce_frame(SHORT, batch_of(count, 100), 9), NoShortcuts())
    in_zstd = build_batch([RecordData(timestamp=1, key=b"k", value=b"v")], compression=Compression.ZSTD)
    await send(broker, produce_frame(SHORT, in_zstd, 9), NoShortcuts())
    # Forward, back, inside of batches, at the end, and outside of the log.
    for number, offset in enumerate([0, 20, 40, 43, 44, 244, 5, 0, 245, 999, -1, 40]):
        frame = await fetch_frame(broker, version, offset, number=number)
        assert await send(broker, frame, learning) == await send(broker, frame, NoShortcuts()), offset
    assert bool(learning.answer_count) == (version >= 10)


def lead_with_another_replica(broker: InProcessBroker) -> None:
    partition = broker.services.replica_manager.find(SHORT, 0)
    assert partition is not None
    leader_epoch = partition.leader_epoch + 1
    partition.lead(replace(partition.leadership, leader_epoch=leader_epoch, isr=(0, 1), replicas=(0, 1)))


@pytest.mark.parametrize("version", [10, 14, 15, 17])
@pytest.mark.parametrize("replica_id", [1, -2])
async def test_followers_and_tools_read_past_the_high_watermark_however_often_they_ask(
    broker: InProcessBroker, learning: CountedShortcuts, version: int, replica_id: int
) -> None:
    lead_with_another_replica(broker)
    await send(broker, produce_frame(SHORT, batch_of(3), 9), NoShortcuts())
    frame = await fetch_frame(broker, version, 0, replica_id=replica_id)
    full = await send(broker, frame, NoShortcuts())
    assert len(full) > len(batch_of(3)), "nothing is committed"
    for _ in range(3):
        assert await send(broker, frame, learning) == full
    assert learning.answer_count == 0


@pytest.mark.parametrize("version", [11, 16])
@pytest.mark.parametrize(
    ("rack", "has_other_replica", "is_remembered"),
    [("a", True, False), ("", True, True), ("a", False, True)],
    ids=["another replica may be nearer", "no rack", "no other replica"],
)
async def test_a_consumer_that_may_be_sent_to_a_nearer_replica_is_asked_in_full(
    broker: InProcessBroker,
    learning: CountedShortcuts,
    version: int,
    rack: str,
    has_other_replica: bool,
    is_remembered: bool,
) -> None:
    if has_other_replica:
        lead_with_another_replica(broker)
    for number in range(3):
        await send(broker, await fetch_frame(broker, version, 0, number=number, rack=rack), learning)
    assert bool(learning.answer_count) == is_remembered


@pytest.mark.parametrize("version", [10, 11, 12, 16])
@pytest.mark.parametrize("bytes_max", [-1, 0, 100, 130, 5000, 16_384, 20_000, 70_000])
async def test_a_consumer_that_goes_on_gets_the_same_bytes(
    broker: InProcessBroker, learning: CountedShortcuts, version: int, bytes_max: int
) -> None:
    """In pieces whose lengths are told in one to three bytes."""
    ends = list(accumulate([1, 2, 20, 20, 1, 3, 1, 1, 30, 40, 40, 1]))
    for first, end in pairwise([0, *ends]):
        size = 0 if end - first == 1 else 500
        await send(broker, produce_frame(SHORT, batch_of(end - first, size), 9), NoShortcuts())
    for number, offset in enumerate([0, *ends, ends[-1] - 1]):
        frame = await fetch_frame(broker, version, offset, number=number, bytes_max=bytes_max)
        assert await send(broker, frame, learning) == await send(broker, frame, NoShortcuts()), offset
    assert learning.answer_count == len(ends) + 1


async def test_a_fetch_with_nothing_to_read_waits_as_ever(broker: InProcessBroker, learning: CountedShortcuts) -> None:
    await send(broker, produce_frame(SHORT, batch_of(20, 100), 9), NoShortcuts())
    for _ in range(2):
        await send(broker, await fetch_frame(broker, 12, 0, wait_ms=30), learning)
    assert learning.answer_count == 1
    frame = await fetch_frame(broker, 12, 20, wait_ms=30)
    started = asyncio.get_running_loop().time()
    empty = await send(broker, frame, learning)
    assert asyncio.get_running_loop().time() - started >= 0.025, "what is left of 30 ms by clocks that count whole ones"
    assert learning.answer_count == 2
    assert empty == await send(broker, frame, NoShortcuts())


async def test_a_fetch_with_an_old_leader_epoch_is_refused_at_the_end_of_the_log(
    broker: InProcessBroker, learning: CountedShortcuts
) -> None:
    await send(broker, produce_frame(SHORT, batch_of(2), 9), NoShortcuts())
    for _ in range(2):
        await send(broker, await fetch_frame(broker, 12, 0, wait_ms=50, leader_epoch=0), learning)
    assert learning.answer_count == 1
    partition = broker.services.replica_manager.find(SHORT, 0)
    assert partition is not None
    partition.lead(replace(partition.leadership, leader_epoch=partition.leadership.leader_epoch + 1))
    frame = await fetch_frame(broker, 12, 2, wait_ms=50, leader_epoch=0)
    assert await send(broker, frame, learning) == await send(broker, frame, NoShortcuts())
    assert learning.answer_count == 1


async def parked_fetch(
    broker: InProcessBroker, shortcuts: Shortcuts, offset: int, *, version: int = 12, wait_ms: int = 60_000, **more: int
) -> Promise[Buffers | None]:
    """A fetch that waits; the shortcut for it is learned first, unless `shortcuts` never learn."""
    peer = peer_with(shortcuts)
    await broker.send(await fetch_frame(broker, version, 0, wait_ms=wait_ms, **more), peer)
    frame = await fetch_frame(broker, version, offset, wait_ms=wait_ms, number=7, **more)
    answer = broker.dispatcher.dispatch(memoryview(bytearray(frame)), peer)
    assert isinstance(answer, Promise)
    assert not answer.done()
    return answer


@pytest.mark.parametrize("version", [10, 11, 12, 16])
@pytest.mark.parametrize(("count", "size"), [(1, 10), (3, 3000), (2, 70_000)])
async def test_a_waiting_fetch_is_answered_within_the_append(
    broker: InProcessBroker, learning: CountedShortcuts, version: int, count: int, size: int
) -> None:
    await send(broker, produce_frame(SHORT, batch_of(20, 100), 9), NoShortcuts())
    general = await parked_fetch(broker, NoShortcuts(), 20, version=version)
    short = await parked_fetch(broker, learning, 20, version=version)
    assert learning.answer_count == 1
    frame = memoryview(bytearray(produce_frame(SHORT, batch_of(count, size), 9)))
    broker.dispatcher.dispatch(frame, peer_with(NoShortcuts()))
    assert short.done(), "within the call that appends"
    assert joined(short.result()) == joined(general.result())
    assert len(joined(short.result())) > count * size
    assert not broker.services.replica_manager.fetch_purgatory.delayed_count


async def test_a_waiting_fetch_waits_for_all_the_bytes_it_wants(
    broker: InProcessBroker, learning: CountedShortcuts
) -> None:
    await send(broker, produce_frame(SHORT, batch_of(20, 1000), 9), NoShortcuts())
    short = await parked_fetch(broker, learning, 20, bytes_min=5000)
    for _ in range(4):
        await send(broker, produce_frame(SHORT, batch_of(1, 1000), 9), NoShortcuts())
        assert not short.done()
    await send(broker, produce_frame(SHORT, batch_of(1, 1000), 9), NoShortcuts())
    assert len(joined(short.result())) > 5000


async def test_a_fetch_that_wants_no_bytes_never_waits(broker: InProcessBroker, learning: CountedShortcuts) -> None:
    await send(broker, produce_frame(SHORT, batch_of(20, 1000), 9), NoShortcuts())
    for _ in range(2):
        frame = await fetch_frame(broker, 12, 20, wait_ms=60_000, bytes_min=0)
        answer = broker.dispatcher.dispatch(memoryview(bytearray(frame)), peer_with(learning))
        assert not isinstance(answer, Promise)
    assert learning.answer_count == 1


@pytest.mark.parametrize("event", ["deleted", "truncated", "no room"])
async def test_what_a_waiting_shortcut_cannot_tell_is_answered_in_full(
    broker: InProcessBroker, learning: CountedShortcuts, event: str
) -> None:
    await send(broker, produce_frame(SHORT, batch_of(20, 1000), 9), NoShortcuts())
    general = await parked_fetch(broker, NoShortcuts(), 20)
    short = await parked_fetch(broker, learning, 20)
    unsent = broker.services.unsent_answers
    match event:
        case "deleted":
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=SHORT, topic_id=ZERO_UUID)], timeout_ms=10_000)
            assert not (await broker.ask(request)).responses[0].error_code
        case "truncated":
            await send(broker, produce_frame(SHORT, batch_of(5, 10), 9), NoShortcuts())
            assert joined(await general) == joined(await short)
            general, short = await parked_fetch(broker, NoShortcuts(), 25), await parked_fetch(broker, learning, 25)
            partition = broker.services.replica_manager.find(SHORT, 0)
            assert partition is not None
            partition.log.truncate_fully_and_start_at(100, now_ms=1)
            broker.services.replica_manager.fetch_purgatory.check_and_complete((SHORT, 0))
        case "no room":
            with unsent.reserved(unsent.allowance):
                await send(broker, produce_frame(SHORT, batch_of(1, 10), 9), NoShortcuts())
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not short.done()
    async with asyncio.timeout(10):
        answers = [joined(await short), joined(await general)]
    if event == "deleted":
        errors = {struct.unpack_from(">h", answer, answer.index(SHORT.encode()) + 12)[0] for answer in answers}
        assert errors <= {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    else:
        assert answers[0] == answers[1]


async def test_a_waiting_fetch_whose_time_is_over_does_not_begin_anew_when_memory_is_scarce(
    broker: InProcessBroker, learning: CountedShortcuts
) -> None:
    await send(broker, produce_frame(SHORT, batch_of(20, 1000), 9), NoShortcuts())
    short = await parked_fetch(broker, learning, 20, bytes_max=1 << 20)
    unsent = broker.services.unsent_answers
    with unsent.reserved(unsent.allowance - 1):
        assert unsent.allowance == ALLOWANCE_MIN
        broker.services.replica_manager.fetch_purgatory.force_complete_all((SHORT, 0))
        assert short.done()


async def test_a_waiting_fetch_whose_client_left_is_forgotten(
    broker: InProcessBroker, learning: CountedShortcuts
) -> None:
    await send(broker, produce_frame(SHORT, batch_of(20, 1000), 9), NoShortcuts())
    for offset, shortcuts in ((20, learning), (21, NoShortcuts())):
        waiting = await parked_fetch(broker, shortcuts, offset)
        assert broker.services.replica_manager.fetch_purgatory.delayed_count == 1
        waiting.cancel()
        assert broker.services.replica_manager.fetch_purgatory.delayed_count == 0
        await send(broker, produce_frame(SHORT, batch_of(1, 10), 9), NoShortcuts())


def commit_frame(
    group: str,
    offset: int,
    version: int,
    *,
    number: int = 0,
    metadata: str | None = "",
    generation_id: int = -1,
    **more: Any,
) -> bytes:
    partition = OffsetCommitRequestPartition(
        partition_index=more.pop("index", 0),
        committed_offset=offset,
        committed_leader_epoch=3 if version >= FIRST_COMMIT_WITH_EPOCH else -1,
        committed_metadata=metadata,
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation_id,
        topics=[OffsetCommitRequestTopic(name=more.pop("topic", SHORT), partitions=[partition])],
        **more,
    )
    return request_header(COMMIT, version, number, "client") + b"".join(encode(request, version))


def with_header_tag(frame: bytes, version: int, api_key: int, size: int) -> bytes:
    """The frame of a flexible version with a tag in its header that nobody knows."""
    header = request_header(api_key, version, 0, "client")
    body_start = len(header)
    tag = bytes([1, 100]) + uvarint(size) + bytes(size)
    return frame[: body_start - 1] + tag + frame[body_start:]


@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, COMMIT])
async def test_large_requests_are_not_remembered(
    coordinating: InProcessBroker, learning: CountedShortcuts, api_key: int
) -> None:
    broker = coordinating
    await send(broker, produce_frame(SHORT, batch_of(20, 100), 9), NoShortcuts())
    version, frame = {
        PRODUCE: (9, produce_frame(SHORT, batch_of(1), 9)),
        FETCH: (12, await fetch_frame(broker, 12, 0)),
        COMMIT: (8, commit_frame("g", 1, 8)),
    }[api_key]
    for size, answered_short in ((100, True), (1 << 20, False)):
        before = learning.answer_count
        for _ in range(3):
            assert await send(broker, with_header_tag(frame, version, api_key, size), learning)
        assert (learning.answer_count > before) == answered_short


async def offset_of(broker: InProcessBroker, group: str, topic: str = SHORT) -> tuple[int, str]:
    wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    (found,) = (await broker.ask(OffsetFetchRequest(group_id=group, topics=wanted), 7)).topics[0].partitions
    return found.committed_offset, found.metadata


@pytest_asyncio.fixture
async def coordinating(broker: InProcessBroker) -> InProcessBroker:
    """The broker, once it coordinates groups."""
    await broker.ask(FindCoordinatorRequest(key="g", key_type=0), 2)
    async with asyncio.timeout(10):
        while (  # noqa: ASYNC110 - nobody tells when the partition is loaded
            await broker.ask(OffsetFetchRequest(group_id="g", topics=[]), 7)
        ).error_code:
            await asyncio.sleep(0.01)
    return broker


@pytest.mark.parametrize("version", list(APIS[COMMIT].versions))
async def test_commits_that_repeat(coordinating: InProcessBroker, learning: CountedShortcuts, version: int) -> None:
    for number, offset in enumerate((5, 1 << 40, 0, 7)):
        frames = [commit_frame(group, offset, version, number=number, metadata="m") for group in ("short", "general")]
        answer = await send(coordinating, frames[0], learning)
        assert answer == await send(coordinating, frames[1], NoShortcuts())
        if version:
            assert await offset_of(coordinating, "short") == await offset_of(coordinating, "general") == (offset, "m")
    assert learning.answer_count == (3 if version >= 2 else 0)


async def test_commits_that_differ_in_something_else(coordinating: InProcessBroker, learning: CountedShortcuts) -> None:
    await send(coordinating, commit_frame("g", 1, 8), learning)
    for other in (
        commit_frame("h", 2, 8),
        commit_frame("g", 2, 8, metadata=None),
        commit_frame("g", 2, 8, index=1),
        commit_frame("g", 2, 8, topic=GENERAL),
        commit_frame("g", 2, 7),
        commit_frame("g", 2, 8) + b"?",
        commit_frame("g", 2, 4, retention_time_ms=5),
        commit_frame("g", 2, 4, retention_time_ms=5),
    ):
        await send(coordinating, other, learning)
    assert learning.answer_count == 0
    await send(coordinating, commit_frame("g", 9, 8), learning)
    assert learning.answer_count == 1
    assert await offset_of(coordinating, "g") == (9, "")


async def test_a_repeated_commit_gets_the_error_that_there_is_now(
    coordinating: InProcessBroker, learning: CountedShortcuts
) -> None:
    """A member appears, and who is none may not commit any more; the topic goes."""

    async def codes(number: int) -> set[bytes]:
        frame = commit_frame("g", number, 8, number=number)
        return {await send(coordinating, frame, shortcuts) for shortcuts in (learning, NoShortcuts())}

    assert [len(await codes(number)) for number in range(2)] == [1, 1]
    join = JoinGroupRequest(
        member_id="",
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert not (await coordinating.ask(join, 2)).error_code
    (refused,) = await codes(2)
    assert ErrorCode.UNKNOWN_MEMBER_ID.to_bytes(2) in refused
    assert learning.answer_count == 2
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=SHORT, topic_id=ZERO_UUID)], timeout_ms=10_000)
    assert not (await coordinating.ask(deletion)).responses[0].error_code
    (unknown,) = await codes(3)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.to_bytes(2) in unknown
    assert learning.answer_count == 2


async def test_a_repeated_commit_whose_append_takes_time(
    coordinating: InProcessBroker, learning: CountedShortcuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(coordinating, commit_frame("g", 1, 8), learning)
    appended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(PartitionOffsetsLog, "append", lambda *_: appended)
    waiting = asyncio.ensure_future(send(coordinating, commit_frame("g", 2, 8), learning))
    await asyncio.sleep(0)
    assert not waiting.done()
    appended.set_exception(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE.to_bytes(2) in await waiting
    assert learning.answer_count == 1
    assert await offset_of(coordinating, "g") == (1, "")
