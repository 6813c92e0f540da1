"""The metadata over several log directories: where it is read from, and what a failed disk takes along."""

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from broker.clock import SystemClock
from broker.server import Server
from config.broker import BrokerConfig
from controller.sqlite_file import SqliteFile, Transaction
from controller.sqlite_store import METADATA_FILE
from controller.state_store import Operation, Result
from protocol.errors import ErrorCode
from tests.broker.handlers.test_produce_and_fetch import batch_of, produce
from tests.broker.replica.test_directory_moves import move, places
from tests.broker.test_directory_failure import until_offline
from tests.support.in_process import InProcessBroker, reason_not_to_start, running_broker


class Mounts:
    """Two log directories."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.a, self.b = folder / "a", folder / "b"

    def settings(self, *paths: Path) -> dict[str, str]:
        return {"log.dirs": ",".join(map(str, paths or (self.a, self.b)))}

    def running(self, *paths: Path) -> AbstractAsyncContextManager[InProcessBroker]:
        return running_broker(self.folder, self.settings(*paths))

    def other(self, path: Path) -> Path:
        return self.a if path == self.b else self.b


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    return Mounts(tmp_path)


async def create_in(broker: InProcessBroker, topic: str, path: Path, partitions: int = 1) -> None:
    for partition in range(partitions):
        await move(broker, topic, str(path), partition)
    await broker.create_topic(topic, partitions)
    assert {place.directory for place in await places(broker, topic)} == {str(path)}


async def produced(broker: InProcessBroker, topic: str) -> ErrorCode:
    return ErrorCode((await produce(broker, topic, {0: batch_of(b"value")}, acks=-1))[0].error_code)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_no_new_cluster_begins_while_a_directory_that_may_hold_the_old_one_cannot_be_used(
    mounts: Mounts,
) -> None:
    async with mounts.running(mounts.a):
        pass
    mounts.a.rename(mounts.folder / "kept")
    mounts.a.write_text("no directory")
    properties = {"broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:0", **mounts.settings()}
    reason = await reason_not_to_start(BrokerConfig.from_properties(properties))
    assert str(mounts.a) in reason
    assert METADATA_FILE in reason
    assert [path.name for path in mounts.b.iterdir()] == [".lock"]


async def test_a_copy_of_another_cluster_stops_the_start(mounts: Mounts) -> None:
    async with mounts.running(mounts.a) as broker:
        cluster_a = broker.services.metadata_cache.cluster_id
    async with mounts.running(mounts.b) as broker:
        cluster_b = broker.services.metadata_cache.cluster_id
    (mounts.b / "meta.properties").write_bytes((mounts.a / "meta.properties").read_bytes())
    properties = {"broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:0", **mounts.settings()}
    reason = await reason_not_to_start(BrokerConfig.from_properties(properties))
    for text in (cluster_a, cluster_b, str(mounts.a / METADATA_FILE), str(mounts.b / METADATA_FILE)):
        assert text in reason


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_disk_that_fails_under_the_metadata_takes_its_log_directory_along(
    mounts: Mounts, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost = mounts.folder / name
    write = SqliteFile.apply

    def failing(self: SqliteFile, operations: Iterable[Operation], transaction: Transaction) -> list[Result]:
        if self.path.parent == lost:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
            raise error
        return write(self, operations, transaction)

    async with mounts.running() as broker:
        await create_in(broker, "goes", lost)
        await create_in(broker, "stays", mounts.other(lost))
        monkeypatch.setattr(SqliteFile, "apply", failing)
        caplog.clear()
        await broker.create_topic("new")
        await until_offline(broker, "goes")
        assert await produced(broker, "goes") is ErrorCode.KAFKA_STORAGE_ERROR
        assert await produced(broker, "stays") is await produced(broker, "new") is ErrorCode.NONE
    assert not [record for record in caplog.records if record.exc_info]
    assert f"Log directory {lost} is offline until the next start: {METADATA_FILE}: disk I/O error" in errors(caplog)
    monkeypatch.undo()
    async with mounts.running() as broker:
        for topic in ("goes", "stays", "new"):
            assert await produced(broker, topic) is ErrorCode.NONE


async def test_the_broker_ends_when_no_copy_can_be_written_any_more(
    mounts: Mounts, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when a log directory still lives: a broker without its metadata would be half alive."""
    config = BrokerConfig.from_properties(
        {"broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:0", **mounts.settings()}
    )
    stopped: list[bool] = []
    server = Server(config, SystemClock())
    await server.start(on_fatal=lambda: stopped.append(True))
    try:
        server._store._on_lost(OSError("gone"))  # type: ignore[union-attr]
        await server._store.children("/")  # type: ignore[union-attr]
    finally:
        await server.stop()
    assert stopped == [True]
    assert server.has_failed
    assert [line for line in errors(caplog) if "stopping" in line] == [
        "stopping: no copy of the metadata store can be written any more: gone"
    ]
