"""A log directory with a slow disk delays only its own producers."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.environment import environment_of_this_machine
from broker.server import Server
from config.broker import BrokerConfig
from protocol.api import APIS
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.headers import request_header
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from storage.disk.directory_writer import DirectoryWriter
from storage.disk.files import Buffer, OpenFile, OsFiles
from storage.log.log import Log
from tests.broker.handlers.test_produce_and_fetch import batch_of, produce
from tests.broker.replica.test_directory_moves import fill, move, until, until_it_lies_in, values
from tests.support.in_process import LISTENER, InProcessBroker

API_VERSIONS = APIS[18]
WRITE_S = 0.02
PINGS = 60


class SlowDisk:
    """Writes below `path` take WRITE_S while `is_slow`; `threads` have made such writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_slow = False
        self.threads: set[str] = set()

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write = OsFiles.write

        def slow_write(files: OsFiles, file: OpenFile, buffer: Buffer, position: int) -> int:
            if self.is_slow and file.path.startswith(str(self.path)) and file.path.endswith(".log"):
                self.threads.add(threading.current_thread().name)
                time.sleep(WRITE_S)
            return write(files, file, buffer, position)

        monkeypatch.setattr(OsFiles, "write", slow_write)


class FileWork:
    """Lists the calls that change files below `path` and were made by the thread of the event loop."""

    CALLS = ("make_directory", "open", "rename", "sync", "sync_directory", "truncate", "unlink", "write")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_loop: list[str] = []

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop_thread = threading.current_thread()
        for name in self.CALLS:
            call = getattr(OsFiles, name)

            def watched(
                files: OsFiles,
                target: OpenFile | str,
                *rest: object,
                name: str = name,
                call: Any = call,
                **more: object,
            ) -> object:
                path = target if isinstance(target, str) else target.path
                if path.startswith(str(self.path)) and threading.current_thread() is loop_thread:
                    self.on_loop.append(f"{name} {Path(path).name}")
                return call(files, target, *rest, **more)

            monkeypatch.setattr(OsFiles, name, watched)


class Broker:
    """A real server over a good and a slow disk, with a topic on each."""

    def __init__(self, server: Server, disk: SlowDisk, good: Path) -> None:
        self.client = InProcessBroker(server.dispatcher, server._services)
        self.port = server.ports[LISTENER]
        self.disk = disk
        self.good = good

    @property
    def writer(self) -> DirectoryWriter:
        return self.client.services.log_manager.writers[str(self.disk.path)]

    async def make_slow(self) -> None:
        """Until the broker has noticed."""
        self.disk.is_slow = True
        while not self.writer.is_slow:
            await produced(self.client, "slow", b"found out")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk(tmp_path / "slow")
    disk.patch(monkeypatch)
    return disk


@asynccontextmanager
async def running(disk: SlowDisk, **overrides: str) -> AsyncIterator[Broker]:
    good = disk.path.parent / "good"
    properties = {
        "broker.id": "0",
        "listeners": f"{LISTENER}://127.0.0.1:0",
        "log.dirs": f"{good},{disk.path}",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    server = Server(BrokerConfig.from_properties(properties, overrides), environment_of_this_machine())
    try:
        await server.start()
        broker = Broker(server, disk, good)
        for topic, path in (("good", good), ("slow", disk.path)):
            if server._services.log_manager.get(topic, 0) is None:
                await move(broker.client, topic, str(path))  # where it is to be created
                await broker.client.create_topic(topic)
        yield broker
    finally:
        await server.stop()


def log_of(broker: Broker, topic: str = "slow") -> Log:
    log = broker.client.services.log_manager.get(topic, 0)
    assert log is not None
    return log


async def produced(client: InProcessBroker, topic: str, *written: bytes, acks: int = 1) -> None:
    for value in written:
        responses = await produce(client, topic, {0: batch_of(value)}, acks=acks)
        assert [response.error_code for response in responses.values()] == [0] * (acks != 0)


def ping_times(port: int) -> Iterator[float]:
    """Seconds that ApiVersions takes, over a connection of its own."""
    body = b"".join(encode(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3))
    request = request_header(API_VERSIONS.key, 3, 1, "t") + body
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as responses:
        for _ in range(PINGS):
            began_s = time.perf_counter()
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", responses.read(4))
            responses.read(size)
            yield time.perf_counter() - began_s
            time.sleep(0.005)


async def test_clients_of_a_slow_directory_delay_no_others(disk: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst time is not compared: on a busy machine the scheduler alone takes more than 50 ms now and then.

    That the loop never waits for the slow disk is checked by its calls instead.
    """
    async with running(disk) as broker:
        client = broker.client
        await broker.make_slow()
        work = FileWork(disk.path)
        work.patch(monkeypatch)
        written: list[bytes] = []
        is_over = False

        async def keep_producing(number: int) -> None:
            count = 0
            while not is_over:
                value = b"%d-%d" % (number, count)
                await produced(client, "slow", value, acks=(1, -1, 0)[number % 3])
                written.append(value)
                count += 1

        producers = [asyncio.create_task(keep_producing(number)) for number in range(9)]
        times = await asyncio.to_thread(lambda: sorted(ping_times(broker.port)))
        good_began_s = time.perf_counter()
        await fill(client, "good", 10)
        good_s = time.perf_counter() - good_began_s
        is_over = True
        await asyncio.gather(*producers)
        assert work.on_loop == []
        assert times[PINGS * 9 // 10] < 0.05, times
        assert good_s < 10 * 0.05
        found = [value async for value in values(client, "slow")]
        found = [value for value in found if value != b"found out"]
        assert sorted(found) == sorted(written)
        assert len(written) > 10
        for number in range(9):
            mine = [value for value in found if value.startswith(b"%d-" % number)]
            assert mine == sorted(mine, key=lambda value: int(value.partition(b"-")[2])), "in the order of production"
        assert any(name.startswith("slow-log-directory") for name in disk.threads)


async def test_response_is_sent_once_its_record_is_readable(disk: SlowDisk) -> None:
    async with running(disk) as broker:
        await broker.make_slow()
        log = log_of(broker)
        for acks in (1, -1):
            waiting = asyncio.create_task(produced(broker.client, "slow", b"x", acks=acks))
            await asyncio.sleep(0)
            assert log.next_offset == log.log_end_offset + 1
            expected = log.next_offset
            assert not waiting.done()
            await waiting
            assert log.log_end_offset >= expected
            assert log.high_watermark >= expected


async def test_directory_that_is_fast_again_is_written_by_the_loop(
    disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.disk.directory_writer.FAST_SECONDS_MIN", 0.05)
    async with running(disk) as broker:
        await broker.make_slow()
        disk.is_slow = False

        async def is_fast() -> bool:
            await produced(broker.client, "slow", b"x")
            return not broker.writer.is_slow

        await until(is_fast)
        disk.threads.clear()
        await produced(broker.client, "slow", b"last")
        assert (broker.writer.slow_count, broker.writer.fast_count) == (1, 1)
        assert [value async for value in values(broker.client, "slow")][-1] == b"last"


async def test_offsets_are_committed_when_they_are_written(disk: SlowDisk) -> None:
    async with running(disk) as broker:
        client = broker.client
        await move(client, "__consumer_offsets", str(disk.path))
        request = OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name="good",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
                    ],
                )
            ],
        )

        async def commits() -> bool:
            response = await client.ask(request, 7)
            return not response.topics[0].partitions[0].error_code

        await client.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        await until(commits)
        await broker.make_slow()
        log = log_of(broker, "__consumer_offsets")
        assert str(log.directory).startswith(str(disk.path))
        for _ in range(3):
            waiting = asyncio.create_task(commits())
            await asyncio.sleep(0)
            assert log.planned.count
            expected = log.next_offset
            assert not waiting.done()
            assert await waiting
            assert log.high_watermark >= expected


async def test_record_is_synced_before_its_response_with_flush_messages_1(disk: SlowDisk) -> None:
    async with running(disk) as broker:
        await move(broker.client, "synced", str(disk.path))
        await broker.client.create_topic("synced", flush_messages="1")
        await broker.make_slow()
        log = log_of(broker, "synced")
        for number in range(3):
            await produced(broker.client, "synced", b"x")
            assert log.durability.recovery_point == number + 1


async def test_log_moves_from_a_slow_directory_under_load(disk: SlowDisk) -> None:
    async with running(disk) as broker:
        client = broker.client
        await broker.make_slow()
        written: list[bytes] = []
        is_over = False

        async def keep_producing(number: int) -> None:
            while not is_over:
                value = b"%d-%d" % (number, len(written))
                await produced(client, "slow", value)
                written.append(value)
                await asyncio.sleep(0)  # in a fast directory the response comes synchronously

        producers = [asyncio.create_task(keep_producing(number)) for number in range(5)]
        await asyncio.sleep(0.1)
        assert await move(client, "slow", str(broker.good)) is ErrorCode.NONE
        await until_it_lies_in(client, "slow", str(broker.good))
        is_over = True
        await asyncio.gather(*producers)
        found = [value async for value in values(client, "slow")]
        assert sorted(value for value in found if value != b"found out") == sorted(written)


async def test_records_are_deleted_between_two_writes(disk: SlowDisk) -> None:
    async with running(disk) as broker:
        client = broker.client
        await broker.make_slow()
        producing = asyncio.gather(*(produced(client, "slow", b"x") for _ in range(10)))
        await asyncio.sleep(0)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="slow", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])],
            timeout_ms=5000,
        )
        response = await client.ask(request)
        assert response.topics[0].partitions[0].error_code == 0
        assert response.topics[0].partitions[0].low_watermark == 1
        await producing


async def test_stop_writes_pending_appends(disk: SlowDisk) -> None:
    async with running(disk) as broker:
        await broker.make_slow()
        log = log_of(broker)
        producing = asyncio.gather(*(produced(broker.client, "slow", b"x") for _ in range(10)))
        await asyncio.sleep(0)
        expected = log.next_offset
        assert log.planned.count
    producing.cancel()
    assert (disk.path / ".kafka_cleanshutdown").exists()
    disk.is_slow = False
    async with running(disk) as broker:
        log = log_of(broker)
        assert log.log_end_offset == expected


async def test_producers_wait_for_room_until_their_timeout(disk: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(disk) as broker:
        await broker.make_slow()
        monkeypatch.setattr("storage.disk.directory_writer.PENDING_SIZE_MAX", 300)
        sizes: list[int] = []

        async def produce_large(number: int) -> None:
            await produced(broker.client, "slow", b"%d" % number + bytes(200))
            sizes.append(broker.writer.pending_size)

        await asyncio.gather(*(produce_large(number) for number in range(12)))
        assert max(sizes) < 300 + 2 * 300
        assert len([value async for value in values(broker.client, "slow") if len(value) > 200]) == 12
        monkeypatch.setattr("storage.disk.directory_writer.PENDING_SIZE_MAX", 1)
        monkeypatch.setattr("tests.broker.test_slow_directory.WRITE_S", 1.5)  # longer than producers wait
        end_offset = log_of(broker).log_end_offset
        responses = await asyncio.gather(*(produce(broker.client, "slow", {0: batch_of(b"x")}) for _ in range(3)))
        assert [ErrorCode(each[0].error_code) for each in responses] == [ErrorCode.REQUEST_TIMED_OUT] * 3
        assert log_of(broker).next_offset == end_offset + 1, "two were not even planned"
        await produced(broker.client, "good", b"x")


async def test_pending_appends_get_an_error_when_the_disk_fails(
    disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(disk) as broker:
        client = broker.client
        await broker.make_slow()
        write = OsFiles.write

        def failing_write(files: OsFiles, file: OpenFile, buffer: Buffer, position: int) -> int:
            if file.path.startswith(str(disk.path)):
                raise OSError(5, "Input/output error", file.path)
            return write(files, file, buffer, position)

        producing = [
            asyncio.create_task(produce(client, "slow", {0: batch_of(b"x")}, acks=acks)) for acks in (1, -1, 1, -1)
        ]
        await asyncio.sleep(0)
        monkeypatch.setattr(OsFiles, "write", failing_write)
        codes = {ErrorCode(one[0].error_code) for one in await asyncio.gather(*producing)}
        assert codes <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert ErrorCode.NONE not in codes or len(codes) > 1
        await produced(client, "good", b"x")


async def test_loop_makes_no_file_call_for_a_slow_directory(disk: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating partitions, appending, rolling, deleting records, retention and the sync of a move."""
    async with running(disk, **{"log.segment.delete.delay.ms": "0"}) as broker:
        client, services = broker.client, broker.client.services
        await broker.make_slow()
        work = FileWork(disk.path)
        work.patch(monkeypatch)

        for partition in range(3):
            await move(client, "new", str(disk.path), partition)
        await client.create_topic("new", 3, segment_bytes="200", retention_ms="-1")
        assert len(disk_logs(broker, "new")) == 3
        assert work.on_loop == []

        for _ in range(5):
            await produced(client, "new", b"x" * 100)
        log = log_of(broker, "new")
        assert log.segment_count == 5
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="new", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])],
            timeout_ms=5000,
        )
        assert (await client.ask(request)).topics[0].partitions[0].error_code == 0
        assert log.log_start_offset == 3
        assert work.on_loop == []

        async def off_loop(work: Callable[[], object]) -> object:
            return await asyncio.get_running_loop().run_in_executor(services.blocking, work)

        logs, clock = services.log_manager, services.clock
        assert await logs.run_retention(clock.now_ms(), services.sliced_work.pause, off_loop) == 3
        assert log.segment_count == 2
        assert work.on_loop == []

        log.reconfigure(replace(log.config, retention_ms=1))
        assert await logs.run_retention(clock.now_ms(), services.sliced_work.pause, off_loop) == 1
        assert log.segment_count == 1, "the segment that is appended to stays until the directory is fast"
        assert work.on_loop == []


async def test_last_sync_of_a_move_does_not_run_on_the_loop(disk: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if producers cause many syncs of the log during the move."""
    async with running(disk) as broker:
        client = broker.client
        await move(client, "synced", str(broker.good))
        await client.create_topic("synced", flush_messages="1")
        work = FileWork(disk.path)
        work.patch(monkeypatch)
        is_over = False

        async def keep_producing() -> None:
            while not is_over:
                await produced(client, "synced", b"x")

        producers = [asyncio.create_task(keep_producing()) for _ in range(4)]
        assert await move(client, "synced", str(disk.path)) is ErrorCode.NONE
        await until_it_lies_in(client, "synced", str(disk.path))
        is_over = True
        await asyncio.gather(*producers)
        assert [call for call in work.on_loop if call.startswith("sync")] == []


def disk_logs(broker: Broker, topic: str) -> list[Log]:
    """The logs of a topic that lie on the slow disk."""
    logs = broker.client.services.log_manager.logs()
    return [log for log in logs if log.topic == topic and log.directory.is_relative_to(broker.disk.path)]


async def test_start_makes_no_file_call_on_the_loop(disk: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    work = FileWork(disk.path)
    work.patch(monkeypatch)
    for _ in range(2):
        async with running(disk):
            pass
    assert work.on_loop == []
