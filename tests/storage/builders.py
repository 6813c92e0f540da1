"""Small makers for storage tests: settings, logs and batches, with what a test does not care about filled in."""

import dataclasses
from collections.abc import Callable, Coroutine, Generator, Iterator
from pathlib import Path
from random import Random
from typing import Any, Generic, TypeVar
from uuid import UUID

from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.records.batch import batches
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType, TransactionMarker, build_marker
from storage.batches.validation import AppendOrigin
from storage.disk import names
from storage.disk.files import Files, OpenFile, OsFiles
from storage.log import log_opening
from storage.log.log import Log
from storage.log.log_appends import AppendResult
from storage.log.log_state import LogOptions
from storage.manager.log_creation import NewLog
from storage.manager.log_manager import LogManager
from storage.recovery.log_loader import LoadProgress

T = TypeVar("T")

NAME = ("topic", 0)
NOW_MS = 1_700_000_000_000


class QuickFiles(OsFiles):
    """Real files that are never synced: for tests that do not cut the power."""

    def sync(self, file: OpenFile) -> None: ...

    def sync_directory(self, path: str) -> None: ...


class WatchedRemovals(QuickFiles):
    """Calls `at_removal` whenever a log file has been removed: what another thread may do during a truncation."""

    at_removal: Callable[[], object] | None = None

    def unlink(self, path: str) -> None:
        super().unlink(path)
        if self.at_removal is not None and path.endswith(names.LOG + names.DELETED):
            self.at_removal()


def log_config(**changes: object) -> LogConfig:
    """Return the default configuration with small index files."""
    defaults = LogConfig.from_overrides(BrokerConfig.from_properties({}, {}), {"segment.index.bytes": "4096"})
    return dataclasses.replace(defaults, **changes)


def log_options(files: Files | None = None, **callbacks: object) -> LogOptions:
    return LogOptions(files or QuickFiles(), Random(1), **callbacks)


def create_log(directory: Path, config: LogConfig | None = None, options: LogOptions | None = None) -> Log:
    return log_opening.create(
        options or log_options(),
        str(directory / "topic-0"),
        NAME,
        config or log_config(),
        topic_id=None,
        now_ms=NOW_MS,
    )


class Damage(LoadProgress):
    """Collects what a load reports."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_damage(self, text: str) -> None:
        self.texts.append(text)


def load_log(
    directory: Path,
    config: LogConfig | None = None,
    options: LogOptions | None = None,
    *,
    is_clean: bool = False,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    high_watermark: int = 0,
    gaps_below: int = 0,
    progress: LoadProgress | None = None,
) -> Log:
    return log_opening.load(
        options or log_options(),
        str(directory / "topic-0"),
        NAME,
        config or log_config(),
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        high_watermark=high_watermark,
        gaps_below=gaps_below,
        is_clean=is_clean,
        now_ms=NOW_MS,
        progress=progress or LoadProgress(),
    )


def batch(
    count: int = 1,
    *,
    size: int = 10,
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    sequence: int = -1,
    **fields: object,
) -> memoryview:
    """A batch as a client sends it: `count` records of `size` bytes, a millisecond apart."""
    records = [RecordData(timestamp_ms + number, b"key", b"v" * size) for number in range(count)]
    epoch = fields.pop("producer_epoch", 0 if producer_id >= 0 else -1)
    return memoryview(
        bytearray(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields))
    )


def marker(control_type: ControlType, producer_id: int, *, epoch: int = 0, coordinator_epoch: int = 0) -> memoryview:
    built = build_marker(
        TransactionMarker(control_type, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        now_ms=NOW_MS,
    )
    return memoryview(bytearray(built))


def append(log: Log, records: memoryview, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> AppendResult:
    return log.appends.append_as_leader(records, leader_epoch=leader_epoch, now_ms=now_ms)


def append_marker(log: Log, records: memoryview) -> AppendResult:
    return log.appends.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def read_all(log: Log, start_offset: int | None = None, *, max_bytes: int = 1000) -> Iterator[tuple[int, bytes]]:
    """(base offset, bytes) of every batch up to the log's end, fetched piece by piece as a consumer does."""
    offset = log.log_start_offset if start_offset is None else start_offset
    while True:
        fetched = log.reader.read(offset, max_bytes, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        assert fetched is not None
        if not fetched.records:
            return
        for position, header in batches(fetched.records):
            yield header.base_offset, bytes(fetched.records[position : position + header.size])
            offset = header.next_offset


class _Step(Generic[T]):
    """A step of a coroutine that works on logs, awaited in place of a pause or a thread: the test makes it."""

    def __init__(self, work: Callable[[], T] | None = None) -> None:
        self._work = work

    def __await__(self) -> Generator[Callable[[], object] | None, None, T | None]:
        work = self._work
        if work is None:
            yield None
            return None
        results: list[T] = []
        yield lambda: results.append(work())
        return results[0]


def pause() -> _Step[None]:
    return _Step()


def in_thread(work: Callable[[], T]) -> _Step[T]:
    return _Step(work)


Steps = Generator[Callable[[], object] | None, None, T]
"""The steps of a coroutine: what runs in a thread before it is continued, or None for a pause."""


def steps_of(work: Coroutine[Any, Any, T]) -> Steps[T]:
    return (yield from work.__await__())


def done(work: Coroutine[Any, Any, T] | Steps[T]) -> T:
    """The result of work in steps, all of it in this thread."""
    steps = work if isinstance(work, Generator) else steps_of(work)
    while True:
        try:
            step = next(steps)
        except StopIteration as finished:
            result: T = finished.value
            return result
        if step is not None:
            step()


def created(
    manager: LogManager, topic: str, partition: int, *, topic_id: UUID | None, config: LogConfig, now_ms: int
) -> Log:
    """The log of that name, created if there is none. Raises KafkaError."""
    name = (topic, partition)
    failed = done(manager.creation.create([NewLog(name, topic_id, config)], pause, in_thread, now_ms=now_ms))
    if name in failed:
        raise failed[name]
    log = manager.get(topic, partition)
    assert log is not None
    return log


def delete_expired(log: Log, now_ms: int) -> int:
    """Retention on one log, without a log manager that writes its start to the disk."""
    count = log.disposal.expire(now_ms)
    log.disposal.drop_expired(log.log_start_offset)
    log.disposal.mark_dropped(now_ms)
    return count
