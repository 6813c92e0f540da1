"""Shortages of descriptors and memory: what they may not do to a log, its directory and the broker's log file."""

import dataclasses
import errno
import logging
import mmap
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.compression import Compression
from protocol.records.control import ControlType
from storage.disk import names
from storage.disk.files import Buffer, Files, OpenFile, OsFiles, ShortageError, failure
from storage.disk.shortages import OutOfResourcesError, Shortages
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LoadError, LogManagerSettings
from tests.storage.builders import (
    NOW_MS,
    QuickFiles,
    append,
    append_marker,
    batch,
    create_log,
    created,
    delete_expired,
    done,
    in_thread,
    load_log,
    log_config,
    log_options,
    marker,
    pause,
    read_all,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.same_thread import SameThread

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
CONFIG = log_config(segment_bytes=400, index_interval_bytes=0, retention_ms=1000, file_delete_delay_ms=0, flush_ms=1000)


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """From here on this process can open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class ShortFiles(QuickFiles):
    """Some calls, counted from the last `fail`, meet a shortage. Syncs never do."""

    def __init__(self) -> None:
        super().__init__()
        self._failing: range = range(0)
        self._number = errno.EMFILE
        self.count = 0

    def fail(self, calls: range, number: int) -> None:
        self._failing, self._number = calls, number
        self.count = 0

    def _meet(self, operation: str, path: str) -> None:
        self.count += 1
        if self.count - 1 in self._failing:
            raise failure(OSError(self._number, os.strerror(self._number)), operation, path)

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        self._meet("open", path)
        return super().open(path, create=create)

    def open_for_reading(self, path: str) -> OpenFile:
        self._meet("open", path)
        return super().open_for_reading(path)

    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        self._meet("write", file.path)
        return super().write(file, buffer, position)

    def read(self, file: OpenFile, size: int, position: int) -> bytes:
        self._meet("read", file.path)
        return super().read(file, size, position)

    def truncate(self, file: OpenFile, size: int) -> None:
        self._meet("truncate", file.path)
        super().truncate(file, size)

    def map(self, file: OpenFile, size: int) -> mmap.mmap:
        self._meet("map", file.path)
        return super().map(file, size)


def test_failure_names_the_operation_and_the_file(tmp_path: Path) -> None:
    files = OsFiles()
    file = files.open(str(tmp_path / "x"), create=True)
    read_only = files.open_for_reading(file.path)
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: files.write(read_only, b"x", 0),
        "read": lambda: files.read(file, 1, -1),
        "truncate": lambda: files.truncate(read_only, 0),
        "map": lambda: files.map(OpenFile(file.path, os.open("/dev/null", os.O_RDONLY)), 1),
        "rename": lambda: files.rename(file.path, f"{tmp_path}/missing/x"),
        "unlink": lambda: files.unlink(str(tmp_path)),
        "remove directory": lambda: files.remove_directory(file.path),
        "list": lambda: files.list_directory(file.path),
    }
    for operation, call in calls.items():
        with pytest.raises(OSError, match=f"cannot {operation}: .*{tmp_path}"):
            call()
    with pytest.raises(FileNotFoundError, match="cannot open: No such file"):
        files.open(f"{tmp_path}/missing/x", create=True)


@pytest.mark.parametrize("number", SHORTAGES)
def test_shortage_is_no_disk_error_except_during_a_sync(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert isinstance(failure(error, "open", "/x"), ShortageError)
    assert not isinstance(failure(error, "sync", "/x"), ShortageError)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.ENODEV])
def test_disk_error_is_no_shortage(number: int) -> None:
    assert not isinstance(failure(OSError(number, os.strerror(number)), "write", "/x"), ShortageError)


def test_log_stays_online_without_descriptors(tmp_path: Path) -> None:
    failed: list[OSError] = []
    shortages: list[OSError] = []
    log = create_log(tmp_path, options=log_options(on_io_error=failed.append, on_shortage=shortages.append))
    append(log, batch(1))
    log.release()
    with no_descriptors_left():
        for call in (
            lambda: append(log, batch(1)),
            lambda: log.reader.read(0, 100, upper_bound_offset=1, min_one_batch=True),
            lambda: log.appends.roll(NOW_MS),
            lambda: log.durability.flush(NOW_MS),
        ):
            with pytest.raises(OutOfResourcesError, match=r"cannot open: Too many open files.*\.") as caught:
                call()
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not failed
    assert len(shortages) == 4
    assert append(log, batch(1)).first_offset == 1
    assert log.durability.recovery_point == 0
    log.durability.flush(NOW_MS)
    assert log.durability.recovery_point == 2


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_batch_that_met_a_shortage_is_appended_on_retry(tmp_path: Path, compression: Compression) -> None:
    log = create_log(tmp_path)
    append(log, batch(1, producer_id=7, sequence=0))
    log.release()
    as_sent = bytes(batch(1, producer_id=7, sequence=1, compression=compression))
    for _ in range(2):
        with no_descriptors_left(), pytest.raises(OutOfResourcesError):
            append(log, memoryview(bytearray(as_sent)))
        assert (log.log_end_offset, log.next_offset, log.high_watermark) == (1, 1, 0)
    again = append(log, memoryview(bytearray(as_sent)))
    assert (again.first_offset, again.is_duplicate) == (1, False)
    assert [(offset, stored[16:]) for offset, stored in read_all(log)][1:] == [(1, as_sent[16:])]


def test_sync_that_failed_for_lack_of_memory_is_not_repeated(tmp_path: Path) -> None:
    files = FaultyFiles()
    failed: list[OSError] = []
    log = create_log(tmp_path, options=log_options(files, on_io_error=failed.append))
    append(log, batch(1))
    log.segments.active.on_disk.create_indexes()
    files.fail_from(len(files.calls), errno.ENOMEM)
    with pytest.raises(KafkaError):
        log.durability.flush(NOW_MS)
    assert failed
    assert log.is_offline


def test_shortage_at_any_call_loses_nothing(tmp_path: Path) -> None:
    """If any call of this history fails once or twice, the retry continues where the first attempt ended."""
    for width in (1, 3):
        for number in range(10_000):
            directory = tmp_path / f"{width}-{number}"
            directory.mkdir()
            if not went_through(directory, range(number, number + width)):
                break
        else:
            raise AssertionError("never came to its end")
        assert number > 50


def went_through(directory: Path, failing: range) -> bool:
    """False when the history has no such calls."""
    files = ShortFiles()
    failed: list[OSError] = []
    log = create_log(directory, CONFIG, log_options(files, on_io_error=failed.append))
    files.fail(failing, SHORTAGES[failing.start % len(SHORTAGES)])

    def tried(call: Callable[[], object]) -> None:
        for _ in range(len(failing)):
            try:
                call()
            except OutOfResourcesError:
                continue
            return
        call()

    sequence = 0
    for number in range(3):
        for size in (10, 60, 200):
            tried(lambda: append(log, batch(1, size=size)))  # noqa: B023
        tried(lambda: append(log, batch(2, producer_id=7, sequence=sequence, is_transactional=True)))  # noqa: B023
        sequence += 2
        tried(lambda: append_marker(log, marker(ControlType.ABORT, 7)))
        log.advance_high_watermark(log.log_end_offset)
        log.release()
        tried(lambda: append(log, batch(1), leader_epoch=number))  # noqa: B023
        tried(lambda: log.durability.flush(NOW_MS) if number % 2 else log.appends.roll(NOW_MS))  # noqa: B023
        tried(
            lambda: log.reader.read(
                log.log_start_offset, 100, upper_bound_offset=log.log_end_offset, min_one_batch=True
            )
        )
        if number == 1:
            tried(lambda: log.delete_records_before(3))
            tried(lambda: delete_expired(log, NOW_MS))
    count = files.count
    files.fail(range(0), 0)
    assert not failed
    assert not log.is_offline
    offsets = [offset for offset, _ in read_all(log)]
    assert offsets == [base for number in range(3) for base in (7 * number + each for each in (0, 1, 2, 3, 5, 6))][3:]
    aborted = log.reader.aborted_transactions(log.log_start_offset, log.log_end_offset)
    assert [entry.last_offset - entry.first_offset for entry in aborted] == [2] * len(aborted)
    again = load_log(
        directory, CONFIG, recovery_point=log.durability.recovery_point, log_start_offset=log.log_start_offset
    )
    assert [offset for offset, _ in read_all(again)] == offsets
    assert again.reader.aborted_transactions(again.log_start_offset, again.log_end_offset) == aborted
    assert again.leader_epochs.entries == log.leader_epochs.entries
    return count > failing.start


def manager_over(tmp_path: Path, files: Files, failed: list[str]) -> LogManager:
    return LogManager(
        [str(tmp_path / "logs")],
        LogManagerSettings(file_delete_delay_ms=0),
        files,
        random=Random(),
        new_threads=SameThread,
        on_directory_failed=lambda path, error: failed.append(path),
    )


def opened(tmp_path: Path, files: Files, failed: list[str]) -> LogManager:
    manager = manager_over(tmp_path, files, failed)
    manager.startup.open()
    manager.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
    return manager


def made(manager: LogManager, topic: str = "t") -> Log:
    return created(manager, topic, 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)


def test_log_that_could_not_be_created_is_created_on_retry(tmp_path: Path) -> None:
    failed: list[str] = []
    files = ShortFiles()
    manager = opened(tmp_path, files, failed)
    config = dataclasses.replace(CONFIG, preallocate=True)
    for number in range(5):
        create = partial(created, manager, f"t{number}", 0, topic_id=UUID(int=number + 1), config=config, now_ms=NOW_MS)
        files.fail(range(number, number + 1), errno.EMFILE)
        with pytest.raises(OutOfResourcesError):
            create()
        assert create().topic_id == UUID(int=number + 1)
    assert not failed


@pytest.mark.parametrize("is_clean", [True, False])
def test_start_without_descriptors_fails_with_one_error(tmp_path: Path, is_clean: bool) -> None:
    failed: list[str] = []
    manager = opened(tmp_path, QuickFiles(), failed)
    append(made(manager), batch(1))
    if is_clean:
        manager.close(NOW_MS)
    else:
        manager.directories.unlock()
        # Without recovery points a log is synced as soon as it is scanned.
        (tmp_path / "logs" / names.RECOVERY_POINT_CHECKPOINT).unlink()
    texts: list[str] = []
    for number in range(1000):
        files = ShortFiles()
        files.fail(range(number, number + 1), errno.EMFILE)
        manager = manager_over(tmp_path, files, failed)
        try:
            manager.startup.open()
            manager.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
        except LoadError as error:
            texts.append(str(error))
            manager.directories.unlock()
            continue
        finally:
            assert not failed
            assert not manager.directories[0].is_offline
        assert files.count <= number
        log = manager.get("t", 0)
        assert log is not None
        assert log.log_end_offset == 1
        assert len(texts) > 5
        assert all("cannot" in text and str(tmp_path) in text for text in texts)
        return
    raise AssertionError("never came to its end")


def test_stop_without_descriptors_leaves_no_clean_marker(tmp_path: Path) -> None:
    for number in range(1000):
        files = ShortFiles()
        failed: list[str] = []
        directory = tmp_path / str(number)
        directory.mkdir()
        manager = opened(directory, files, failed)
        append(made(manager), batch(1))
        files.fail(range(number, number + 1), errno.EMFILE)
        manager.close(NOW_MS)
        assert not failed
        is_clean = (directory / "logs" / ".kafka_cleanshutdown").exists()
        if files.count <= number:
            assert is_clean
            return
        assert not is_clean
    raise AssertionError("never came to its end")


def test_checkpoints_and_removals_that_met_a_shortage_are_repeated(tmp_path: Path) -> None:
    failed: list[str] = []
    files = ShortFiles()
    manager = opened(tmp_path, files, failed)
    append(made(manager), batch(1))
    made(manager, "goes")
    manager.delete("goes", 0, now_ms=NOW_MS)
    with no_descriptors_left():
        manager.checkpoint_recovery_points()
        assert manager.remove_deleted(NOW_MS) == 0
        assert manager.flush_due(NOW_MS + 1000) == 0
    assert manager.shortages.count == 3
    assert manager.remove_deleted(NOW_MS) == 1
    assert manager.flush_due(NOW_MS + 1000) == 1
    manager.checkpoint_recovery_points()
    assert manager.directories[0].read_recovery_points(print) == {("t", 0): 1}
    assert not failed


def test_sealed_segments_that_could_not_be_synced_are_synced_later(tmp_path: Path) -> None:
    manager = opened(tmp_path, QuickFiles(), [])
    log = made(manager)
    append(log, batch(1))
    log.appends.roll(NOW_MS)
    with no_descriptors_left():
        assert manager.flush_due(NOW_MS) == 0
    assert manager.flush_due(NOW_MS) == 1
    assert log.durability.recovery_point == 1


def test_idle_segment_is_not_released_before_its_writeback_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports a failed write-back only to descriptors that are open."""
    files = QuickFiles()
    manager = opened(tmp_path, files, [])
    log = made(manager)
    append(log, batch(1))
    done(manager.release_idle(pause, in_thread))

    def finish_writeback(file: OpenFile) -> None:
        raise failure(OSError(errno.ENOMEM, "Cannot allocate memory"), "start write-back", file.path)

    with monkeypatch.context() as short:
        short.setattr(files, "finish_writeback", finish_writeback)
        done(manager.release_idle(pause, in_thread))
        assert log.segments.active._file is not None
    done(manager.release_idle(pause, in_thread))
    assert log.segments.active._file is None


def test_interrupted_truncation_takes_only_its_log_offline(tmp_path: Path) -> None:
    failed: list[str] = []
    manager = opened(tmp_path, QuickFiles(), failed)
    log, other = made(manager), made(manager, "other")
    append(log, batch(1))
    append(log, batch(1))
    log.release()
    with no_descriptors_left(), pytest.raises(KafkaError):
        log.truncation.truncate_to(1, now_ms=NOW_MS)
    assert log.is_offline
    assert not failed
    append(other, batch(1))
    manager.close(NOW_MS)
    assert not (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    again = opened(tmp_path, QuickFiles(), failed).get("t", 0)
    assert again is not None
    assert [offset for offset, _ in read_all(again)] == list(range(again.log_end_offset))


def test_shortages_are_logged_rarely_with_their_file(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    shortages = Shortages(lambda: now_s)
    error = ShortageError(errno.EMFILE, "cannot open: Too many open files", "/d/t-0/0.log")
    with caplog.at_level(logging.ERROR):
        for _ in range(100):
            shortages.report(error)
        now_s = 10.0
        shortages.report(error)
    assert shortages.count == 101
    first, second = (record.getMessage() for record in caplog.records)
    assert "/d/t-0/0.log" in first
    assert "(99 such failures not logged)" in second
