"""A broker with too few file descriptors for all connections: files have precedence."""

import errno
import os
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.errors import ErrorCode
from storage.disk.files import OpenFile, OsFiles, failure
from tests.broker.replica.test_directory_moves import until
from tests.broker.test_directory_failure import produced
from tests.support.broker import BrokerProcess
from tests.support.in_process import running_broker

CONNECTIONS = 1300
DESCRIPTORS = 1024
RECORDS = 400


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process needs more than the broker has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 300:
        pytest.skip(f"needs {CONNECTIONS + 300} file descriptors: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_idle_connections_leave_descriptors_for_segments(tmp_path: Path) -> None:
    settings = {
        "log.segment.bytes": "16384",
        "log.index.size.max.bytes": "4096",
        "socket.listen.backlog.size": str(CONNECTIONS),  # a full one delays a connection by a second
    }
    broker = BrokerProcess(tmp_path / "broker", settings, descriptors_max=DESCRIPTORS)
    idle: list[socket.socket] = []
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 2000, "message.timeout.ms": 20_000})
        delivered = send(producer, 40)
        for number in range(CONNECTIONS):
            idle.append(socket.create_connection(("127.0.0.1", broker.port)))
            if number % 100 == 0:
                delivered += send(producer, RECORDS // 13)
        delivered += send(producer, RECORDS)
        in_use = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
        assert in_use < DESCRIPTORS - 16
        for connection in idle:
            connection.close()
        assert read_all(broker) == sorted(delivered)
    log = broker.log.read_text()
    assert f"limit of file descriptors: {DESCRIPTORS}" in log
    assert 1 <= log.count("refused a connection from 127.0.0.1") < 10
    assert not re.search("offline|Too many open files|Traceback", log)
    assert len(list((tmp_path / "broker" / "data" / "t-0").glob("*.log"))) > 4, "segments rolled during the load"


def send(producer: Producer, count: int) -> list[bytes]:
    """The values of records that are acknowledged, all of them."""
    delivered: list[bytes] = []
    for number in range(count):
        value = b"%d" % number

        def note(error: object, _: object, value: bytes = value) -> None:
            assert error is None, error
            delivered.append(value)

        producer.produce("t", value.ljust(400), partition=number % 4, on_delivery=note)
        producer.poll(0)
    producer.flush()
    assert len(delivered) == count
    return delivered


def read_all(broker: BrokerProcess) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(4)])
    found: list[bytes] = []
    ends = 0
    while ends < 4:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found.append((message.value() or b"").strip())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ends += 1
    consumer.close()
    return sorted(found)


async def test_partition_that_could_not_be_opened_is_opened_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.lost_logs.REOPEN_DELAY_S", 0.01)
    shortages = 3
    open_file = OsFiles.open

    def fail_some(files: OsFiles, path: str, *, create: bool = False) -> OpenFile:
        nonlocal shortages
        if create and "/t-0/" in path and shortages:
            shortages -= 1
            raise failure(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open", path)
        return open_file(files, path, create=create)

    monkeypatch.setattr(OsFiles, "open", fail_some)
    async with running_broker(tmp_path) as broker:
        await broker.create_topic("t")

        async def is_open() -> bool:
            return await produced(broker, "t") is ErrorCode.NONE

        await until(is_open)
        assert shortages == 0
        assert not broker.services.log_manager.directories.has_offline
