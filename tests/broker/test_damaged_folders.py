"""A broker with damaged directories: readable records are served, and each damage is logged once."""

import logging
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from config.broker import BrokerConfig
from protocol.errors import ErrorCode
from protocol.records.batch import batches
from tests.broker.handlers.test_produce_and_fetch import batch_of, fetch, produce
from tests.broker.replica.test_directory_moves import move
from tests.support.in_process import InProcessBroker, reason_not_to_start, running_broker

COUNT = 40
# Index entries lead to every second batch, so that what lies behind a damaged one is found.
BATCH_SIZE = len(batch_of(b"%020d" % 0))
SEGMENT_BATCHES = 10


class Folders:
    """Two log directories; the topic "t" lies in the second, beside nothing that the broker needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first, self.second = folder / "a", folder / "b"

    @property
    def partition(self) -> Path:
        return self.second / "t-0"

    def segment(self, number: int, suffix: str = ".log") -> Path:
        return self.partition / f"{number * SEGMENT_BATCHES:020d}{suffix}"

    def running(self) -> AbstractAsyncContextManager[InProcessBroker]:
        return running_broker(self.folder, {"log.dirs": f"{self.first},{self.second}"})

    async def reason_not_to_start(self) -> str:
        return await reason_not_to_start(
            BrokerConfig.from_properties(
                {
                    "broker.id": "0",
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "log.dirs": f"{self.first},{self.second}",
                }
            )
        )


class Fault(NamedTuple):
    """`spoil` returns what the broker must log once; fetches of the offsets `lost` fail with `code`."""

    spoil: Callable[[Folders], str]
    lost: tuple[int, ...] = ()
    code: ErrorCode = ErrorCode.CORRUPT_MESSAGE


def change(path: Path, position: int, content: bytes) -> None:
    before = path.read_bytes()
    path.write_bytes(before[:position] + content + before[position + len(content) :])


def wrong_magic(folders: Folders) -> str:
    position = 3 * BATCH_SIZE
    change(folders.segment(1), position + 16, b"\x09")
    return f"{folders.segment(1)} at position {position}"


def wrong_length(folders: Folders) -> str:
    position = 3 * BATCH_SIZE
    change(folders.segment(1), position + 8, b"\x00\x00\x00\x01")
    return f"{folders.segment(1)} at position {position}"


def lying_index(folders: Folders) -> str:
    path = folders.segment(1, ".index")
    content = path.read_bytes()
    assert len(content) >= 16
    change(path, 4, content[-4:])
    return str(path)


def missing_index(folders: Folders) -> str:
    folders.segment(2, ".index").unlink()
    return str(folders.segment(2))


def cut_index(folders: Folders) -> str:
    path = folders.segment(2, ".timeindex")
    path.write_bytes(path.read_bytes()[:-1])
    return str(folders.segment(2))


def garbage(name: str) -> Callable[[Folders], str]:
    def spoil(folders: Folders) -> str:
        path = folders.second / name
        path.write_text("0\nmany\nt 0 7\n")
        return f"{path} line 2"

    return spoil


def torn_tail(folders: Folders) -> str:
    path = folders.segment(3)
    path.write_bytes(path.read_bytes()[:-5])
    return f"{path} at position {path.stat().st_size + 5 - BATCH_SIZE}"


def garbage_behind(folders: Folders) -> str:
    path = folders.segment(3)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x00" * 100)
    return f"{path} at position {size}"


def foreign_file(name: str) -> Callable[[Folders], str]:
    def spoil(folders: Folders) -> str:
        path = folders.second / name
        path.write_text("mine")
        return str(path)

    return spoil


def foreign_directory(folders: Folders) -> str:
    path = folders.partition / "notes"
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    return str(path)


def flipped_value(folders: Folders) -> str:
    """Consumers check the CRC; the broker sends the bytes as long as it finds the boundaries of batches."""
    path = folders.segment(1)
    change(path, 4 * BATCH_SIZE - 3, bytes([path.read_bytes()[4 * BATCH_SIZE - 3] ^ 0xFF]))
    return ""


def garbled_epochs(folders: Folders) -> str:
    path = folders.partition / "leader-epoch-checkpoint"
    path.write_text("0\nmany\n0 0\n")
    return f"{path} line 2"


def garbled_topic_id(folders: Folders) -> str:
    path = folders.partition / "partition.metadata"
    path.write_text("version: 0\ntopic_id: none\n")
    return f"{path} line 2"


def lying_time_index(folders: Folders) -> str:
    """Its greatest timestamp is used; records are found by the timestamps in the batches."""
    path = folders.segment(1, ".timeindex")
    change(path, 0, b"\x7f")
    return ""


def orphaned_index(folders: Folders) -> str:
    path = folders.segment(9, ".index")
    path.write_bytes(bytes(8))
    return str(path)


FAULTS: dict[str, Fault] = {
    "wrong magic in a sealed segment": Fault(wrong_magic, (SEGMENT_BATCHES + 3,)),
    "wrong length in a sealed segment": Fault(wrong_length, (SEGMENT_BATCHES + 3,)),
    "an index that lies": Fault(lying_index),
    "a missing index": Fault(missing_index),
    "an index that is cut off": Fault(cut_index),
    "garbage in the recovery points": Fault(garbage("recovery-point-offset-checkpoint")),
    "garbage in the log starts": Fault(garbage("log-start-offset-checkpoint")),
    "garbage in the high watermarks": Fault(garbage("replication-offset-checkpoint")),
    "a torn tail": Fault(torn_tail, (COUNT - 1,), ErrorCode.NONE),
    "garbage behind the tail": Fault(garbage_behind),
    "garbage in the first dirty offsets": Fault(garbage("cleaner-offset-checkpoint")),
    "garbage in the leader epochs": Fault(garbled_epochs),
    "garbage in the topic id": Fault(garbled_topic_id),
    "a flipped byte in a value": Fault(flipped_value),
    "a time index that lies": Fault(lying_time_index),
    "a file that does not belong to the log directory": Fault(foreign_file("notes.txt")),
    "a file that does not belong to the log": Fault(foreign_file("t-0/notes.txt")),
    "a name that is nearly a segment's": Fault(foreign_file("t-0/7.log")),
    "a directory in the log": Fault(foreign_directory),
    "an index without a log": Fault(orphaned_index),
}


async def filled(folders: Folders) -> dict[int, bytes]:
    """Four segments of ten batches; what each offset holds."""
    written = {}
    async with folders.running() as broker:
        await move(broker, "t", str(folders.second))
        configs = {"segment_bytes": str(SEGMENT_BATCHES * BATCH_SIZE), "index_interval_bytes": "100"}
        await broker.create_topic("t", **configs)
        for offset in range(COUNT):
            written[offset] = batch_of(b"%020d" % offset)
            assert not (await produce(broker, "t", {0: written[offset]}))[0].error_code
    return written


async def read(broker: InProcessBroker, offset: int) -> tuple[ErrorCode, list[int]]:
    """The first batch from an offset on."""
    responded = (await fetch(broker, "t", {0: offset}, partition_max_bytes=1)).responses[0].partitions[0]
    return ErrorCode(responded.error_code), [header.base_offset for _, header in batches(responded.records or b"")]


@pytest.mark.parametrize("name", FAULTS)
async def test_readable_records_are_served_and_damage_is_logged_once(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fault, folders = FAULTS[name], Folders(tmp_path)
    await filled(folders)
    named = fault.spoil(folders)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        async with folders.running() as broker:
            for _ in range(2):
                for offset in reversed(range(COUNT)):
                    if offset not in fault.lost:
                        assert await read(broker, offset) == (ErrorCode.NONE, [offset])
                    else:
                        assert await read(broker, offset) == (fault.code, [])
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum(bool(named) and named in line for line in logged) == bool(named), logged
    repeated = {line: count for line, count in Counter(logged).items() if count > 1}
    assert not repeated


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("broker.id=9", "version=0\nbroker.id=9\ncluster.id=CLUSTER\n"),
        ("other", "version=0\nbroker.id=0\ncluster.id=other\n"),
        ("version", "no properties"),
    ],
)
async def test_directory_of_another_broker_stops_the_start(tmp_path: Path, name: str, content: str) -> None:
    folders = Folders(tmp_path)
    async with folders.running():
        pass
    path = folders.second / "meta.properties"
    (line,) = [line for line in path.read_text().splitlines() if line.startswith("cluster.id")]
    content = content.replace("CLUSTER", line.partition("=")[2])
    path.write_text(content)
    reason = await folders.reason_not_to_start()
    assert str(path) in reason
    assert name.partition("=")[0] in reason
    assert path.read_text() == content


async def test_a_directory_that_is_no_partition_stops_the_start(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    (folders.second / "lost+found").mkdir(parents=True)
    assert str(folders.second / "lost+found") in await folders.reason_not_to_start()


def copy_of_partition(folder: Path, name: str) -> Path:
    partition = next(folder.glob("*/t-0"))
    return Path(shutil.copytree(partition, partition.with_name(name)))


async def test_directory_unknown_to_the_metadata_is_reported_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = Folders(tmp_path)
    async with folders.running() as broker:
        await broker.create_topic("t")
    unknown = copy_of_partition(tmp_path, "unknown-0")
    caplog.clear()
    async with folders.running() as broker:
        assert broker.services.replica_manager.find("unknown", 0) is None
    kept = [line for line in caplog.messages if "kept but not served" in line]
    assert [line.split(",")[0] for line in kept] == [str(unknown)]
    assert unknown.is_dir()
