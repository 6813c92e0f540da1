"""A script of changes to a log directory, interrupted at each call that changes a file, by each kind of failure.

Killed process: all acknowledged batches exist, and at most one more. Power cut: all synced batches exist,
and none that was never written. Failed call: the caller gets the error, no acknowledged batch is lost, and a restart
repairs the rest. In every case the log can be read from its start to its end, and its producers are those of a full
replay.
"""

import contextlib
import errno
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from protocol.errors import KafkaError
from protocol.records.builder import RecordData, build_batch
from protocol.records.control import ControlType
from storage.cleaning.cleaner import clean
from storage.cleaning.log_cleaning import CleanerSettings, LogCleaning
from storage.disk import names
from storage.disk.files import Files
from storage.disk.meta_properties import MetaProperties
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings, NoUsableDirectoryError
from storage.producers.producer_snapshots import encode
from storage.producers.producer_state import ProducerState
from storage.recovery.recovery import replay
from storage.segments.segment import CleanedSegment
from storage.segments.transaction_index import AbortedTransaction
from tests.storage.builders import (
    NOW_MS,
    QuickFiles,
    append,
    append_marker,
    batch,
    create_log,
    created,
    done,
    in_thread,
    load_log,
    log_config,
    log_options,
    marker,
    pause,
    read_all,
)
from tests.storage.compacted import finish_pass
from tests.support.faulty_files import Crashed, FaultyFiles, where_torn
from tests.support.same_thread import SameThread

CONFIG = log_config(
    segment_bytes=600, index_interval_bytes=100, segment_index_bytes=240, file_delete_delay_ms=0, retention_bytes=1500
)
META = MetaProperties(1, "cluster")


def start(directory: Path, files: Files) -> LogManager:
    manager = LogManager(
        [str(directory)],
        LogManagerSettings(file_delete_delay_ms=0),
        files,
        random=Random(),
        new_threads=SameThread,
        on_directory_failed=lambda *_: None,
    )
    manager.startup.open()
    manager.startup.claim(META)
    manager.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
    return manager


class Life:
    """What the script has done so far, as a client and as an operator know it."""

    def __init__(self) -> None:
        self.written: dict[int, set[bytes]] = {}  # every version of a batch that may ever have reached the disk
        self.acknowledged: dict[int, bytes] = {}
        self.synced: dict[int, bytes] = {}

    def run(self, directory: Path, files: Files) -> None:
        manager = start(directory, files)
        log = created(manager, "topic", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
        created(manager, "other", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
        for number in range(6):
            self.append(log, batch(2, size=40, producer_id=7, sequence=2 * number))
        self.flush(log)
        manager.checkpoint_recovery_points()
        self.append(log, batch(1, producer_id=8, sequence=0, is_transactional=True))
        self.append_marker(log, marker(ControlType.ABORT, 8))
        self.append(log, batch(3, size=50), leader_epoch=2)
        log.appends.roll(NOW_MS)
        manager.flush_due(NOW_MS)
        self.synced = dict(self.acknowledged) if log.durability.recovery_point == log.log_end_offset else self.synced
        self.append(log, batch(2, size=60), leader_epoch=2)
        self.truncate(log, log.log_end_offset - 2)
        for number in range(8):
            self.append(log, batch(1, size=90, producer_id=7, sequence=12 + number), leader_epoch=3)
        self.apply_retention(manager, log)
        manager.checkpoint_high_watermarks()
        manager.checkpoint_log_starts()
        manager.delete("other", 0, now_ms=NOW_MS)
        manager.remove_deleted(NOW_MS)
        manager.close(NOW_MS)
        if not log.is_offline:
            self.synced = dict(self.acknowledged)

    def append(self, log: Log, records: memoryview, *, leader_epoch: int = 0) -> None:
        offset = log.log_end_offset
        writing = memoryview(bytearray(records))
        try:
            append(log, writing, leader_epoch=leader_epoch)
        finally:
            self.written.setdefault(offset, set()).add(bytes(writing))
        self.acknowledged[offset] = bytes(writing)

    def append_marker(self, log: Log, records: memoryview) -> None:
        offset = log.log_end_offset
        try:
            append_marker(log, records)
        finally:
            self.written.setdefault(offset, set()).add(bytes(records))
        self.acknowledged[offset] = bytes(records)

    def flush(self, log: Log) -> None:
        log.durability.flush(NOW_MS)
        self.synced = dict(self.acknowledged)

    def truncate(self, log: Log, offset: int) -> None:
        for table in (self.acknowledged, self.synced):
            for base_offset in [base_offset for base_offset in table if base_offset >= offset]:
                del table[base_offset]
        log.truncation.truncate_to(offset, now_ms=NOW_MS)

    def apply_retention(self, manager: LogManager, log: Log) -> None:
        log.advance_high_watermark(log.log_end_offset)
        # What may go is as good as gone from here on.
        kept_bytes = 0
        for base_offset in sorted(self.acknowledged, reverse=True):
            kept_bytes += len(self.acknowledged[base_offset])
            if kept_bytes > CONFIG.retention_bytes:
                self.acknowledged.pop(base_offset)
                self.synced.pop(base_offset, None)
        done(manager.run_retention(NOW_MS, pause, in_thread))


def check(directory: Path, life: Life, must_be_there: dict[int, bytes]) -> None:
    manager = start(directory, QuickFiles())
    log = manager.get("topic", 0)
    if log is None:
        assert not must_be_there
        manager.directories.unlock()
        return
    found = dict(read_all(log))
    expected = {offset: content for offset, content in must_be_there.items() if offset >= log.log_start_offset}
    assert expected == must_be_there or log.log_start_offset <= min(must_be_there, default=0)
    assert {offset: found.get(offset) for offset in must_be_there} == must_be_there
    for offset, content in found.items():
        assert content in life.written[offset]
    for offset in range(log.log_start_offset, log.log_end_offset):
        fetched = log.reader.read(offset, 1, upper_bound_offset=log.log_end_offset, min_one_batch=True)
        assert fetched is not None
        assert bytes(fetched.records) == found[max(base_offset for base_offset in found if base_offset <= offset)]
    replayed = ProducerState("topic-0")
    replay(log.segments.all(), replayed, log.log_end_offset)
    # Of producers whose records have been deleted more may be known; the others are known as a replay knows them.
    for producer_id, entry in replayed.producers.items():
        if entry.batches:
            assert encode([log.producer_state.producers[producer_id]]) == encode([entry])
    # The repaired log is a log: it takes more, and is the same after one more start.
    append(log, batch(1), leader_epoch=9)
    again = dict(read_all(log))
    manager.close(NOW_MS)
    manager = start(directory, QuickFiles())
    reopened = manager.get("topic", 0)
    assert reopened is not None
    assert dict(read_all(reopened)) == again
    manager.directories.unlock()


def list_calls(directory: Path) -> list[str]:
    files = FaultyFiles()
    Life().run(directory, files)
    return files.calls


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return list_calls(tmp_path_factory.mktemp("count") / "logs")


def each_call(numbers: Iterable[int], run: Callable[[int], None]) -> Iterator[None]:
    for number in numbers:
        try:
            run(number)
        except BaseException as failure:
            failure.add_note(f"call {number}")
            raise
        yield


@pytest.mark.parametrize("torn_bytes", [1, 30, 70])
def test_kill_in_any_write_loses_no_written_batch(memory_path: Path, calls: list[str], torn_bytes: int) -> None:
    def run(number: int) -> None:
        files, life, directory = FaultyFiles(), Life(), memory_path / str(number)
        files.crash_at(number, torn_bytes=torn_bytes)
        with pytest.raises(Crashed):
            life.run(directory, files)
        files.bury()
        check(directory, life, life.acknowledged)

    numbers = where_torn(calls, torn_bytes)
    assert numbers
    for _ in each_call(numbers, run):
        pass


@pytest.mark.parametrize("seeds", [(None, 1), pytest.param((2,), marks=pytest.mark.soak)])
def test_kill_at_any_call_loses_no_written_batch_and_power_cuts_no_flushed_one(
    memory_path: Path, calls: list[str], seeds: tuple[int | None, ...]
) -> None:
    """All begin with the same run: each power cut makes a folder of its own from what was synced."""

    def run(number: int) -> None:
        files, life, directory = FaultyFiles(), Life(), memory_path / str(number)
        files.crash_at(number)
        with pytest.raises(Crashed):
            life.run(directory, files)
        files.bury()
        for seed in seeds:
            lost = memory_path / f"{number}-{seed}"
            files.lose_unsynced(directory, None if seed is None else Random(1000 * seed + number), into=lost)
            check(lost, life, life.synced)
        check(directory, life, life.acknowledged)

    for _ in each_call(range(len(calls)), run):
        pass


@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("is_rest", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_failure_of_any_call_loses_no_acknowledged_batch(
    memory_path: Path, calls: list[str], error: int, is_lasting: bool, is_rest: bool
) -> None:
    """Each call fails with each error, and once or for good: at every other call the pairs are the other two."""
    first = (error == errno.EIO) ^ is_lasting ^ is_rest

    def run(number: int) -> None:
        files, life, directory = FaultyFiles(), Life(), memory_path / str(number)
        if is_lasting:
            files.fail_from(number, error)
        else:
            files.fail_call(number, error)
        with contextlib.suppress(KafkaError, NoUsableDirectoryError, OSError):
            life.run(directory, files)
        files.bury()
        check(directory, life, life.acknowledged)

    for _ in each_call(range(first, len(calls), 2), run):
        pass


# Indexes that a start has rebuilt


def start_anew(directory: Path) -> tuple[FaultyFiles, LogManager, Log]:
    """Another process, which finds what the one before has synced."""
    files = FaultyFiles()
    files.adopt(directory)
    manager = start(directory, files)
    log = manager.get("topic", 0)
    assert log is not None
    return files, manager, log


def write_aborted(directory: Path) -> list[AbortedTransaction]:
    """A log of several segments with aborted transactions in the first and in the last one, synced, not closed."""
    files = FaultyFiles()
    manager = start(directory, files)
    log = created(manager, "topic", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    for producer_id in (8, 9):
        append(log, batch(1, producer_id=producer_id, sequence=0, is_transactional=True))
        append_marker(log, marker(ControlType.ABORT, producer_id))
        if producer_id == 8:
            for _ in range(8):
                append(log, batch(2, size=90))
    log.advance_high_watermark(log.log_end_offset)
    log.durability.flush(NOW_MS)
    manager.checkpoint_recovery_points()
    assert log.segment_count > 2
    files.bury()
    return log.reader.aborted_transactions(0, log.log_end_offset)


def index_entries(log: Log) -> list[object]:
    return [[*segment.offset_index, *segment.time_index] for segment in log.segments.all()]


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX])
def test_index_rebuilt_below_recovery_point_survives_power_loss_after_clean_stop(
    memory_path: Path, suffix: str
) -> None:
    for seed in range(10):
        directory = memory_path / str(seed)
        expected = write_aborted(directory)
        (directory / "topic-0" / names.segment_file(0, suffix)).write_bytes(b"damaged")
        files, manager, log = start_anew(directory)
        assert log.reader.aborted_transactions(0, log.log_end_offset) == expected
        entries = index_entries(log)
        manager.close(NOW_MS)
        files.free_locks()
        files.lose_unsynced(directory, Random(seed))
        _, manager, log = start_anew(directory)
        assert log.reader.aborted_transactions(0, log.log_end_offset) == expected, seed
        assert index_entries(log) == entries, seed
        manager.directories.unlock()


def test_index_scanned_at_recovery_point_survives_power_loss_after_clean_stop(memory_path: Path) -> None:
    """All was synced before the kill, so that the scan of the last segment finds nothing above the recovery point."""
    for seed in range(10):
        directory = memory_path / str(seed)
        expected = write_aborted(directory)
        files, manager, log = start_anew(directory)
        assert log.reader.aborted_transactions(0, log.log_end_offset) == expected
        manager.close(NOW_MS)
        files.free_locks()
        files.lose_unsynced(directory, Random(seed))
        _, manager, log = start_anew(directory)
        assert log.reader.aborted_transactions(0, log.log_end_offset) == expected, seed
        manager.directories.unlock()


@pytest.mark.parametrize("tail", [b"", b"garbage", bytes(200)], ids=["torn batch", "garbage", "zeros"])
def test_end_cut_at_a_start_survives_power_loss_after_clean_stop(memory_path: Path, tail: bytes) -> None:
    """A clean start scans nothing: it would serve the damaged end that is back."""
    for seed in range(10):
        directory = memory_path / str(seed)
        write_aborted(directory)
        last = max((directory / "topic-0").glob("*.log"))
        whole_size = last.stat().st_size
        with last.open("ab") as file:
            torn = (20).to_bytes(8) + bytes(batch(1, size=90)[8:-10]) + bytes(10)
            file.write(tail or torn)
        files, manager, log = start_anew(directory)
        end_offset = log.log_end_offset
        assert (end_offset, log.segments.active.size) == (20, whole_size)
        manager.close(NOW_MS)
        files.free_locks()
        files.lose_unsynced(directory, Random(seed))
        _, manager, log = start_anew(directory)
        assert log.log_end_offset == end_offset, seed
        assert last.stat().st_size == log.segments.active.size == whole_size, seed
        manager.directories.unlock()


def test_only_batch_cut_at_a_start_does_not_return_after_a_clean_stop(memory_path: Path) -> None:
    """Found by the simulator: consumers got the damaged batch."""
    for seed in range(10):
        directory = memory_path / str(seed)
        files = FaultyFiles()
        manager = start(directory, files)
        log = created(manager, "topic", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
        append(log, batch(1, size=90))
        log.durability.flush(NOW_MS)
        files.bury()
        (segment,) = (directory / "topic-0").glob("*.log")
        content = segment.read_bytes()
        segment.write_bytes(content[:30] + bytes(len(content) - 30))
        files, manager, log = start_anew(directory)
        assert (log.log_end_offset, segment.stat().st_size) == (0, 0)
        manager.close(NOW_MS)
        files.free_locks()
        files.lose_unsynced(directory, Random(seed))
        _, manager, log = start_anew(directory)
        assert (log.log_end_offset, segment.stat().st_size) == (0, 0), seed
        manager.directories.unlock()


@pytest.mark.parametrize("offset", [3, 12, 18], ids=["an earlier segment", "a middle one", "the last one"])
def test_truncation_survives_power_loss_after_clean_stop(memory_path: Path, offset: int) -> None:
    for seed in range(10):
        directory = memory_path / str(seed)
        write_aborted(directory)
        files, manager, log = start_anew(directory)
        log.truncation.truncate_to(offset, now_ms=NOW_MS)
        end_offset, count = log.log_end_offset, log.segment_count
        assert end_offset <= offset
        manager.close(NOW_MS)
        files.free_locks()
        files.lose_unsynced(directory, Random(seed))
        _, manager, log = start_anew(directory)
        assert (log.log_end_offset, log.segment_count) == (end_offset, count), seed
        manager.directories.unlock()


def test_recovered_log_is_flushed_once_by_the_next_periodic_flush(tmp_path: Path) -> None:
    write_aborted(tmp_path)
    _, manager, log = start_anew(tmp_path)
    assert log.durability.unflushed_count
    assert manager.flush_due(NOW_MS) == 1
    assert log.durability.recovery_point == log.log_end_offset
    append(log, batch(1))
    assert manager.flush_due(NOW_MS) == 0
    manager.directories.unlock()


# Cleaning


COMPACTED = log_config(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=600,
    index_interval_bytes=100,
    segment_index_bytes=240,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
)


def start_compacted(directory: Path, files: Files) -> LogManager:
    manager = LogManager(
        [str(directory)],
        LogManagerSettings(),
        files,
        random=Random(),
        new_threads=SameThread,
        on_directory_failed=lambda *_: None,
    )
    manager.startup.open()
    manager.startup.claim(META)
    manager.startup.load(lambda topic: COMPACTED, now_ms=NOW_MS)
    return manager


def fill_compacted(directory: Path, files: Files) -> dict[int, bytes]:
    """A log with few keys, closed; the record that each offset holds."""
    manager = start_compacted(directory, files)
    log = created(manager, "topic", 0, topic_id=None, config=COMPACTED, now_ms=NOW_MS)
    for number in range(20):
        records = [RecordData(NOW_MS, f"key-{number % 4}".encode(), f"value-{number}".encode() * 5)]
        append(log, memoryview(bytearray(build_batch(records))))
    log.advance_high_watermark(20)
    log.appends.roll(NOW_MS)
    found = dict(read_all(log))
    manager.close(NOW_MS)
    return found


def clean_once(directory: Path, files: Files) -> list[CleanedSegment]:
    manager = start_compacted(directory, files)
    cleaning = LogCleaning(manager, files, CleanerSettings(dedupe_buffer_size=1 << 16))
    cleaning.load()
    picked = cleaning.pick(NOW_MS)
    assert picked is not None
    result = clean(picked.job, files)
    cleaning.make_durable(picked)
    try:
        assert finish_pass(cleaning, picked, result, now_ms=NOW_MS)
    except KafkaError:
        cleaning.give_back(picked)
        raise
    cleaning.write_checkpoints()
    manager.remove_deleted(NOW_MS)
    manager.close(NOW_MS)
    return result.segments


class Cleaned(NamedTuple):
    """An undisturbed pass: how many calls come before it, its calls, and what each group of segments has held."""

    filled: Path
    """What it began with, to be copied."""
    calls_before: int
    calls: list[str]
    groups: list[tuple[dict[int, bytes], dict[int, bytes]]]  # before and after


def check_cleaned(directory: Path, cleaned: Cleaned) -> None:
    """Each group is as it was or cleaned, whole, and the log is readable from every offset."""
    manager = start_compacted(directory, QuickFiles())
    log = manager.get("topic", 0)
    assert log is not None
    assert log.log_end_offset == 20
    found = dict(read_all(log))
    for before, after in cleaned.groups:
        assert {offset: content for offset, content in found.items() if offset in before} in (before, after)
    assert sum(len(before) for before, _ in cleaned.groups) == 20
    for offset in range(20):
        fetched = log.reader.read(offset, 1, upper_bound_offset=20, min_one_batch=True)
        assert fetched is not None
        assert bytes(fetched.records) == found[min(base_offset for base_offset in found if base_offset >= offset)]
    assert not [path for path in log.directory.iterdir() if path.suffix in (".swap", ".cleaned", ".deleted")]
    append(log, memoryview(bytearray(build_batch([RecordData(NOW_MS, b"key-0", b"more")]))))
    manager.directories.unlock()


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Cleaned:
    directory = tmp_path_factory.mktemp("cleaning") / "logs"
    files = FaultyFiles()
    before = fill_compacted(directory, files)
    files.free_locks()
    calls_before = len(files.calls)
    filled = shutil.copytree(directory, tmp_path_factory.mktemp("filled") / "logs")
    segments = clean_once(directory, files)
    files.free_locks()
    calls = files.calls[calls_before:]
    manager = start_compacted(directory, QuickFiles())
    log = manager.get("topic", 0)
    assert log is not None
    after = dict(read_all(log))
    manager.directories.unlock()
    assert 4 <= len(after) < 8
    starts = [segment.base_offset for segment in segments]
    groups = [
        tuple(
            {offset: content for offset, content in found.items() if start <= offset < end} for found in (before, after)
        )
        for start, end in zip(starts, [*starts[1:], 20], strict=True)
    ]
    assert len(groups) > 1
    return Cleaned(filled, calls_before, calls, groups)  # type: ignore[arg-type]


def test_kill_in_any_write_of_a_cleaning_keeps_the_records(memory_path: Path, cleaned: Cleaned) -> None:
    def run(number: int) -> None:
        files, directory = FaultyFiles(), memory_path / str(number)
        shutil.copytree(cleaned.filled, directory)
        files.crash_at(number, torn_bytes=50)
        with pytest.raises(Crashed):
            clean_once(directory, files)
        files.bury()
        check_cleaned(directory, cleaned)

    for _ in each_call(where_torn(cleaned.calls, 50), run):
        pass


@pytest.mark.parametrize("seeds", [(None, 1), pytest.param((2, 3), marks=pytest.mark.soak)])
def test_kill_or_power_cut_at_any_call_of_a_cleaning_keeps_the_records(
    memory_path: Path, cleaned: Cleaned, seeds: tuple[int | None, ...]
) -> None:
    def run(number: int) -> None:
        files, directory = FaultyFiles(), memory_path / str(number)
        fill_compacted(directory, files)
        files.free_locks()
        files.crash_at(cleaned.calls_before + number)
        with pytest.raises(Crashed):
            clean_once(directory, files)
        files.bury()
        for seed in seeds:
            lost = memory_path / f"{number}-{seed}"
            files.lose_unsynced(directory, None if seed is None else Random(1000 * seed + number), into=lost)
            check_cleaned(lost, cleaned)
        check_cleaned(directory, cleaned)

    for _ in each_call(range(len(cleaned.calls)), run):
        pass


def test_failure_of_any_call_of_a_cleaning_keeps_the_records(memory_path: Path, cleaned: Cleaned) -> None:
    def run(number: int) -> None:
        files, directory = FaultyFiles(), memory_path / str(number)
        shutil.copytree(cleaned.filled, directory)
        files.fail_call(number, errno.ENOSPC)
        with contextlib.suppress(KafkaError, NoUsableDirectoryError, OSError, AssertionError):
            clean_once(directory, files)
        files.bury()
        check_cleaned(directory, cleaned)

    for _ in each_call(range(len(cleaned.calls)), run):
        pass


# Rebuilding the indexes of a sealed segment


def test_index_rebuild_killed_at_any_call_is_repeated(tmp_path: Path) -> None:
    """Half an index of aborted transactions would show aborted records to consumers of committed ones."""
    whole = tmp_path / "whole"
    whole.mkdir()
    config = log_config(index_interval_bytes=100)
    log = create_log(whole, config)
    for sequence in range(24):
        append(log, batch(1, producer_id=7, sequence=sequence, is_transactional=True))
        if sequence % 8 == 7:
            append_marker(log, marker(ControlType.ABORT, 7))
    log.appends.roll(NOW_MS)
    append(log, batch(1))
    end_offset = log.log_end_offset
    aborted = log.reader.aborted_transactions(0, end_offset)
    assert len(aborted) == 3
    log.close(NOW_MS)
    (whole / "topic-0" / f"{0:020d}.timeindex").unlink()

    def run(number: int) -> None:
        files, directory = FaultyFiles(), tmp_path / str(number)
        shutil.copytree(whole, directory)
        files.crash_at(number)
        with contextlib.suppress(Crashed):
            load_log(directory, config, log_options(files), recovery_point=end_offset)
        again = load_log(directory, config, recovery_point=end_offset)
        assert again.reader.aborted_transactions(0, end_offset) == aborted

    for number in range(30):
        run(number)
