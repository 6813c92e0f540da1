"""Log directories that are not what they were: taken offline with a reason, or accepted when the operator says so."""

import logging
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from broker.environment import environment_of_this_machine
from broker.server import Server
from config.broker import BrokerConfig
from controller.embedded.sqlite_file import SqliteFile, Transaction
from controller.embedded.sqlite_store import METADATA_FILE
from controller.store.state_store import Operation, Result
from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData
from tests.broker.handlers.test_produce_and_fetch import batch_of, fetch, produce
from tests.broker.replica.test_directory_moves import Place, move, places
from tests.broker.test_directory_failure import until_offline
from tests.support.in_process import InProcessBroker, reason_not_to_start, running_broker

ACCEPTED = {"log.dirs.accept.changed": "true"}


class Mounts:
    """Log directories that may be mounted or not; where one is not, an empty directory is in its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.a, self.b = folder / "a", folder / "b"

    def settings(self, *paths: Path) -> dict[str, str]:
        return {"log.dirs": ",".join(map(str, paths or (self.a, self.b)))}

    def running(self, *paths: Path, accepts: bool = False) -> AbstractAsyncContextManager[InProcessBroker]:
        return running_broker(self.folder, {**self.settings(*paths), **(ACCEPTED if accepts else {})})

    def unmount(self, path: Path) -> None:
        path.rename(self.folder / f"{path.name}-unmounted")
        path.mkdir()

    def mount(self, path: Path) -> None:
        """The mount hides the records that were written to the empty directory."""
        shutil.rmtree(path)
        (self.folder / f"{path.name}-unmounted").rename(path)

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


async def fetched(broker: InProcessBroker, topic: str) -> PartitionData:
    (partition,) = (await fetch(broker, topic, {0: 0})).responses[0].partitions
    assert isinstance(partition, PartitionData)
    return partition


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("name", ["a", "b"])
async def test_failed_mount_does_not_count_as_an_empty_directory(
    mounts: Mounts, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = mounts.folder / name
    async with mounts.running() as broker:
        await create_in(broker, "goes", lost, partitions=3)
        await create_in(broker, "stays", mounts.other(lost))
        assert await produced(broker, "goes") is await produced(broker, "stays") is ErrorCode.NONE
    mounts.unmount(lost)
    caplog.clear()
    async with mounts.running() as broker:
        await until_offline(broker, "goes")
        assert await produced(broker, "goes") is ErrorCode.KAFKA_STORAGE_ERROR
        assert await produced(broker, "stays") is ErrorCode.NONE
        await broker.create_topic("new")
        assert await places(broker, "new") == [Place(str(mounts.other(lost)), False, 0)]
    assert [path.name for path in lost.iterdir()] == [".lock"]
    line = next(line for line in errors(caplog) if str(lost) in line)
    assert "3 partitions" in line
    assert "log.dirs.accept.changed=true" in line
    mounts.mount(lost)
    caplog.clear()
    async with mounts.running() as broker:
        assert (await fetched(broker, "goes")).records == (await fetched(broker, "stays")).records[
            : len(batch_of(b"value"))
        ]
        assert await produced(broker, "goes") is await produced(broker, "new") is ErrorCode.NONE
    assert errors(caplog) == []


async def test_known_directory_that_is_empty_is_rejected(mounts: Mounts, caplog: pytest.LogCaptureFixture) -> None:
    """What is written below the mount would be hidden when it is back."""
    async with mounts.running():
        pass
    mounts.unmount(mounts.b)
    async with mounts.running() as broker:
        for topic in ("one", "two"):
            await broker.create_topic(topic)
            assert await places(broker, topic) == [Place(str(mounts.a), False, 0)]
    assert "0 partitions" in next(line for line in errors(caplog) if str(mounts.b) in line)


async def test_new_directory_is_used_without_confirmation(mounts: Mounts, caplog: pytest.LogCaptureFixture) -> None:
    async with mounts.running(mounts.a) as broker:
        await broker.create_topic("first")
    async with mounts.running(mounts.b, mounts.a) as broker:
        await broker.create_topic("second")
        assert await places(broker, "second") == [Place(str(mounts.b), False, 0)]
        assert await produced(broker, "first") is await produced(broker, "second") is ErrorCode.NONE
    assert errors(caplog) == []
    assert (mounts.b / METADATA_FILE).exists()


async def test_directory_removed_from_the_settings_may_return_empty(
    mounts: Mounts, caplog: pytest.LogCaptureFixture
) -> None:
    async with mounts.running():
        pass
    async with mounts.running(mounts.a):
        pass
    shutil.rmtree(mounts.b)
    async with mounts.running():
        pass
    assert errors(caplog) == []


async def test_empty_directory_is_accepted_if_the_operator_confirms_it(
    mounts: Mounts, caplog: pytest.LogCaptureFixture
) -> None:
    async with mounts.running() as broker:
        await create_in(broker, "goes", mounts.b)
        assert await produced(broker, "goes") is ErrorCode.NONE
    mounts.unmount(mounts.b)
    caplog.clear()
    async with mounts.running(accepts=True) as broker:
        assert (await fetched(broker, "goes")).records in (None, b"")
        await move(broker, "written", str(mounts.b))
        await broker.create_topic("written")
        assert await produced(broker, "goes") is await produced(broker, "written") is ErrorCode.NONE
    assert "no log directory holds goes-0" in caplog.text
    caplog.clear()
    async with mounts.running() as broker:
        assert await produced(broker, "goes") is ErrorCode.NONE
    assert errors(caplog) == []


async def test_directory_replaced_by_an_empty_one_is_rejected_when_it_returns(
    mounts: Mounts, caplog: pytest.LogCaptureFixture
) -> None:
    """The records that were acknowledged in the meantime are below the mount."""
    async with mounts.running() as broker:
        await create_in(broker, "goes", mounts.b)
        await create_in(broker, "stays", mounts.a)
    mounts.unmount(mounts.b)
    async with mounts.running(accepts=True) as broker:
        assert await places(broker, "goes") == [Place(str(mounts.b), False, 0)]
        assert await produced(broker, "goes") is ErrorCode.NONE
    mounts.mount(mounts.b)
    for topic in ("one", "two"):
        before = (mounts.b / METADATA_FILE).read_bytes()
        caplog.clear()
        async with mounts.running() as broker:
            await broker.create_topic(topic)
            assert await produced(broker, "goes") is ErrorCode.KAFKA_STORAGE_ERROR
        assert "accepted in its place" in next(line for line in errors(caplog) if str(mounts.b) in line)
        assert (mounts.b / METADATA_FILE).read_bytes() == before
    caplog.clear()
    async with mounts.running(accepts=True):
        pass
    async with mounts.running():
        pass
    assert errors(caplog) == []


async def test_no_cluster_is_created_while_a_directory_is_unusable(
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


async def test_metadata_of_another_cluster_stops_the_start(mounts: Mounts) -> None:
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
async def test_failed_metadata_write_takes_its_log_directory_offline(
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


async def test_broker_stops_when_no_metadata_copy_is_writable(mounts: Mounts, caplog: pytest.LogCaptureFixture) -> None:
    """Also when a log directory still lives: a broker without its metadata would be half alive."""
    config = BrokerConfig.from_properties(
        {"broker.id": "0", "listeners": "PLAINTEXT://127.0.0.1:0", **mounts.settings()}
    )
    stopped: list[bool] = []
    server = Server(config, environment_of_this_machine())
    await server.start(on_fatal=lambda: stopped.append(True))
    try:
        server._opened_store.embedded._on_lost(OSError("gone"))  # type: ignore[union-attr]
        await server._opened_store.store.children("/")
    finally:
        await server.stop()
    assert stopped == [True]
    assert server.has_failed
    assert [line for line in errors(caplog) if "stopping" in line] == [
        "stopping: no copy of the metadata store can be written: gone"
    ]
