"""A log directory that fails takes its partitions with it, and nothing else."""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.handlers.test_produce_and_fetch import batch_of, fetch, produce
from tests.broker.replica.test_directory_moves import TIMEOUT_S, Place, move, places, until
from tests.support.broker import BrokerProcess
from tests.support.in_process import InProcessBroker, running_broker

# Only the checkpoint accesses an idle directory.
SOON = {"replica.high.watermark.checkpoint.interval.ms": "20"}


class Disks:
    """Two log directories; one of them, `bad`, can be taken away and brought back."""

    def __init__(self, folder: Path, bad: str = "b") -> None:
        self.folder = folder
        self.good, self.bad = (folder / "a", folder / "b") if bad == "b" else (folder / "b", folder / "a")
        self.log_dirs = f"{folder / 'a'},{folder / 'b'}"

    def running(self, **overrides: str) -> AbstractAsyncContextManager[InProcessBroker]:
        settings = {key.replace("_", "."): value for key, value in overrides.items()}
        return running_broker(self.folder, {"log.dirs": self.log_dirs, **SOON, **settings})

    def take_away(self) -> None:
        """Make every path below the directory fail, as without its disk."""
        self.bad.rename(self.folder / "kept")
        self.bad.write_text("no directory any more")

    def bring_back(self) -> None:
        self.bad.unlink()
        (self.folder / "kept").rename(self.bad)


@pytest.fixture(params=["a", "b"])
def disks(tmp_path: Path, request: pytest.FixtureRequest) -> Disks:
    """The first of the two directories fails, or the second."""
    return Disks(tmp_path, request.param)


async def create_in_both(broker: InProcessBroker, disks: Disks) -> None:
    for topic, path in (("stays", disks.good), ("goes", disks.bad)):
        await move(broker, topic, str(path))
        await broker.create_topic(topic)
        assert await places(broker, topic) == [Place(str(path), False, 0)]
        assert await produced(broker, topic) is ErrorCode.NONE


async def produced(broker: InProcessBroker, topic: str) -> ErrorCode:
    return ErrorCode((await produce(broker, topic, {0: batch_of(b"value")}, acks=-1))[0].error_code)


async def fetched(broker: InProcessBroker, topic: str) -> ErrorCode:
    return ErrorCode((await fetch(broker, topic, {0: 0})).responses[0].partitions[0].error_code)


async def listed(broker: InProcessBroker, topic: str) -> ErrorCode:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return ErrorCode((await broker.ask(request)).topics[0].partitions[0].error_code)


async def deleted(broker: InProcessBroker, topic: str) -> ErrorCode:
    partition = DeleteRecordsPartition(partition_index=0, offset=0)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000)
    return ErrorCode((await broker.ask(request)).topics[0].partitions[0].error_code)


async def epoch_told(broker: InProcessBroker, topic: str) -> ErrorCode:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    return ErrorCode((await broker.ask(request)).topics[0].partitions[0].error_code)


ASKED: dict[str, Callable[[InProcessBroker, str], Awaitable[ErrorCode]]] = {
    "produce": produced,
    "fetch": fetched,
    "list offsets": listed,
    "delete records": deleted,
    "offset for leader epoch": epoch_told,
}


async def producer_id(broker: InProcessBroker) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    response = await broker.ask(request)
    assert response.error_code == ErrorCode.NONE
    return int(response.producer_id)


async def partition_of(broker: InProcessBroker, topic: str) -> MetadataResponsePartition:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    partition = min((await broker.ask(request)).topics[0].partitions, key=lambda found: found.partition_index)
    assert isinstance(partition, MetadataResponsePartition)
    return partition


async def until_offline(broker: InProcessBroker, topic: str) -> None:
    async def is_offline() -> bool:
        return (await partition_of(broker, topic)).offline_replicas == [0]

    await until(is_offline)


async def check_what_is_left(broker: InProcessBroker, disks: Disks) -> None:
    for name, ask in ASKED.items():
        assert await ask(broker, "goes") is ErrorCode.KAFKA_STORAGE_ERROR, name
        assert await ask(broker, "stays") is ErrorCode.NONE, name
    gone = await partition_of(broker, "goes")
    assert (gone.leader_id, gone.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    results = (await broker.ask(DescribeLogDirsRequest(topics=None))).results
    assert {result.log_dir: ErrorCode(result.error_code) for result in results} == {
        str(disks.good): ErrorCode.NONE,
        str(disks.bad): ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert await move(broker, "stays", str(disks.bad)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await move(broker, "goes", str(disks.good)) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_directory_that_fails_at_run_time_goes_offline_alone(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    async with disks.running() as broker:
        await create_in_both(broker, disks)
        disks.take_away()
        await until_offline(broker, "goes")
        await check_what_is_left(broker, disks)
        await broker.create_topic("new")
        assert await places(broker, "new") == [Place(str(disks.good), False, 0)]
        assert await producer_id(broker) >= 0
    assert not [record for record in caplog.records if record.exc_info]
    disks.bring_back()
    async with disks.running() as broker:
        for topic in ("stays", "goes", "new"):
            assert await produced(broker, topic) is ErrorCode.NONE
            assert (await partition_of(broker, topic)).offline_replicas == []
        ((_, records),) = [
            (one.partition_index, one.records) for one in (await fetch(broker, "goes", {0: 0})).responses[0].partitions
        ]
        assert len(records) == 2 * len(batch_of(b"value"))


async def test_directory_that_is_unusable_at_the_start_goes_offline_alone(disks: Disks) -> None:
    async with disks.running() as broker:
        await create_in_both(broker, disks)
    disks.take_away()
    async with disks.running() as broker:
        await until_offline(broker, "goes")
        await check_what_is_left(broker, disks)
        # No empty log takes the place of the one that is out of reach.
        assert await places(broker, "goes") == []
        await broker.create_topic("new")
        assert await produced(broker, "new") is ErrorCode.NONE
        assert await producer_id(broker) >= 0
    disks.bring_back()
    async with disks.running() as broker:
        assert await fetched(broker, "goes") is ErrorCode.NONE
        assert await places(broker, "goes") == [Place(str(disks.bad), False, 0)]
        assert await fetched(broker, "new") is ErrorCode.NONE


async def test_returning_directory_gets_the_metadata_it_missed(disks: Disks) -> None:
    """The copies in this directory are older, but the only ones left without the other directory."""
    async with disks.running() as broker:
        await create_in_both(broker, disks)
    disks.take_away()
    async with disks.running() as broker:
        await broker.create_topic("later")
    disks.bring_back()
    async with disks.running():
        pass
    disks.good.rename(disks.folder / "gone")
    disks.good.write_text("no directory any more")
    async with disks.running() as broker:
        await until_offline(broker, "later")
        assert await fetched(broker, "goes") is ErrorCode.NONE


async def test_waiting_fetch_gets_the_error_of_a_failed_directory(disks: Disks) -> None:
    async with disks.running() as broker:
        await create_in_both(broker, disks)
        waiting = asyncio.create_task(fetch_waiting(broker, "goes"))
        await asyncio.sleep(0)  # it is parked now
        disks.take_away()
        assert await waiting in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def fetch_waiting(broker: InProcessBroker, topic: str) -> ErrorCode:
    responded = await fetch(broker, topic, {0: 1}, max_wait_ms=20_000)
    return ErrorCode(responded.responses[0].partitions[0].error_code)


def test_broker_serves_clients_until_its_last_directory_fails(tmp_path: Path) -> None:
    disks = Disks(tmp_path / "broker")
    disks.folder.mkdir()
    with BrokerProcess(disks.folder, {"log.dirs": f"{disks.good},{disks.bad}", **SOON}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result()
        lies_in = {int(path.name[-1]): path.parent for path in disks.folder.glob("*/t-*")}
        assert set(lies_in.values()) == {disks.good, disks.bad}
        (stays,) = (number for number, path in lies_in.items() if path == disks.good)
        acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 3000})

        def send(partition: int, value: bytes) -> None:
            def delivered(error: object, _: object) -> None:
                if error is None:
                    acknowledged[partition].append(value)

            producer.produce("t", value, partition=partition, on_delivery=delivered)

        for number in range(100):
            send(number % 2, str(number).encode())
        producer.flush()
        assert [len(values) for values in acknowledged.values()] == [50, 50]
        disks.take_away()
        for number in range(100, 200):
            send(number % 2, str(number).encode())
        producer.flush()
        assert len(acknowledged[stays]) == 100
        assert leaders(admin, expected={stays: 0, 1 - stays: -1}) == {stays: 0, 1 - stays: -1}
        (disks.folder / "gone").mkdir()
        disks.good.rename(disks.folder / "gone" / "a")
        assert broker.wait_for_exit() == 1
    (disks.folder / "gone" / "a").rename(disks.good)
    disks.bring_back()
    with BrokerProcess(disks.folder, {"log.dirs": f"{disks.good},{disks.bad}"}) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True})
        for partition, values in acknowledged.items():
            assert set(values) <= set(read_all(consumer, partition))
        consumer.close()


def test_broker_with_a_full_disk_stops_and_keeps_acknowledged_records(tmp_path: Path) -> None:
    acknowledged: list[bytes] = []
    # Indexes are made at their full size in advance, which must stay below what the disk takes.
    broker = BrokerProcess(tmp_path / "broker", {"log.index.size.max.bytes": "4096"})
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 2000, "linger.ms": 0})
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        for number in range(400):
            value = str(number).encode() * 2000

            def delivered(error: object, _: object, value: bytes = value) -> None:
                if error is None:
                    acknowledged.append(value)

            producer.produce("t", value, partition=0, on_delivery=delivered)
            producer.poll(0)
        assert broker.wait_for_exit() == 1
        producer.flush()
    assert 0 < len(acknowledged) < 400
    with broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True})
        assert read_all(consumer, 0)[: len(acknowledged)] == acknowledged
        consumer.close()


@pytest.mark.parametrize("met_by", ["a producer", "the metadata"])
def test_broker_whose_only_disk_is_full_reports_it_in_one_line(tmp_path: Path, met_by: str) -> None:
    broker = BrokerProcess(tmp_path / "broker", {"log.index.size.max.bytes": "4096"})
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 100, 1)])["t"].result()
        size_max = 64 * 1024
        assert (broker.log_dir / "metadata.sqlite-wal").stat().st_size > size_max
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size_max, resource.RLIM_INFINITY))
        if met_by == "a producer":
            producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 2000, "linger.ms": 0})
            for _ in range(100):
                producer.produce("t", bytes(2000), partition=0)
        else:
            admin.create_topics([NewTopic("new", 1, 1)])
        assert broker.wait_for_exit() == 1
    lines = (tmp_path / "broker" / "server.log").read_text().splitlines()
    assert not [line for line in lines if "Traceback" in line]
    assert len([line for line in lines if "stopping: " in line and str(broker.log_dir) in line]) == 1


def leaders(admin: AdminClient, expected: dict[int, int]) -> dict[int, int]:
    """Of the partitions as clients see them, once they are as expected or the time is up."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        described = admin.list_topics("t", timeout=5).topics["t"].partitions
        found = {number: partition.leader for number, partition in described.items()}
        if found == expected or time.monotonic() > deadline:
            return found


def read_all(consumer: Consumer, partition: int) -> list[bytes]:
    consumer.assign([TopicPartition("t", partition, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(message.value())
    return found
