"""One pass of retention over the logs of a broker: what is on the disk when, and what runs in a thread."""

import contextlib
import dataclasses
import errno
import os
import threading
from pathlib import Path
from random import Random

import pytest

from storage.batches.stored_batch import Extent
from storage.disk.files import Files, OpenFile, failure
from storage.disk.meta_properties import MetaProperties
from storage.disk.shortages import TryLaterError
from storage.log.log import Log
from storage.log.log_disposal import LogDisposal
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from storage.segments.segment import Segment
from tests.storage.builders import (
    NOW_MS,
    QuickFiles,
    WatchedRemovals,
    append,
    batch,
    create_log,
    created,
    done,
    in_thread,
    log_config,
    log_options,
    pause,
    read_all,
    steps_of,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.same_thread import SameThread

CONFIG = log_config(segment_bytes=300, retention_ms=1000, file_delete_delay_ms=1000)


class NotedFiles(QuickFiles):
    """Notes the files that are opened, renamed, removed or asked for their time."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    def open(self, path: str, *, create: bool = False) -> OpenFile:
        self.touched.append(f"open {path}")
        return super().open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        self.touched.append(f"rename {old}")
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.touched.append(f"unlink {path}")
        super().unlink(path)

    def modified_ms(self, path: str) -> int:
        self.touched.append(f"time of {path}")
        return super().modified_ms(path)


def start(directory: Path, files: Files | None = None) -> LogManager:
    manager = LogManager(
        [str(directory)],
        LogManagerSettings(),
        files or QuickFiles(),
        random=Random(),
        new_threads=SameThread,
        on_directory_failed=lambda *_: None,
    )
    manager.startup.open()
    manager.startup.claim(MetaProperties(1, "cluster"))
    manager.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
    return manager


def expirable(manager: LogManager) -> Log:
    """Segments 0 to 4 of one batch each, of which the first three are too old in ten seconds."""
    log = created(manager, "topic", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    for number in range(5):
        append(log, batch(1, size=200, timestamp_ms=NOW_MS + (0 if number < 3 else 9_500)))
    log.advance_high_watermark(5)
    assert [segment.base_offset for segment in log.segments.all()] == [0, 1, 2, 3, 4]
    return log


def test_log_start_is_synced_before_a_segment_is_renamed(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = start(tmp_path, files)
    log = expirable(manager)
    before = len(files.calls)
    assert done(manager.run_retention(NOW_MS + 10_000, pause, in_thread)) == 3
    calls = files.calls[before:]
    first_deletion = next(number for number, call in enumerate(calls) if call.startswith("rename 0") and ".log" in call)
    start_written = calls.index("rename log-start-offset-checkpoint.tmp")
    assert start_written < calls.index(f"sync directory {tmp_path.name}", start_written) < first_deletion
    assert log.log_start_offset == 3
    manager.directories.unlock()


@pytest.mark.parametrize("lost", [(1,), (0, 2), (1, 2)])
@pytest.mark.parametrize("is_torn", [False, True])
def test_gaps_below_the_log_start_after_a_power_cut_lose_nothing_above_it(
    tmp_path: Path, lost: tuple[int, ...], is_torn: bool
) -> None:
    """The new names of a directory may get to the disk in any order."""
    manager = start(tmp_path)
    expirable(manager)
    for work in steps_of(manager.run_retention(NOW_MS + 10_000, pause, in_thread)):
        if work is not None:
            work()
        if (tmp_path / "log-start-offset-checkpoint").exists():
            break
    manager.directories.unlock()
    for number in lost:
        for path in tmp_path.glob(f"topic-0/{number:020d}.*"):
            path.unlink()
    if is_torn:
        for number in {0, 1, 2} - set(lost):
            os.truncate(tmp_path / "topic-0" / f"{number:020d}.log", 100)
    (tmp_path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    manager = start(tmp_path)
    log = manager.get("topic", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)
    assert [offset for offset, _ in read_all(log)] == [3, 4]
    log.advance_high_watermark(5)
    done(manager.run_retention(NOW_MS, pause, in_thread))
    assert [segment.base_offset for segment in log.segments.all()] == [3, 4]
    manager.directories.unlock()


def test_retention_reads_and_renames_files_only_in_threads(tmp_path: Path) -> None:
    files = NotedFiles()
    manager = start(tmp_path, files)
    log = expirable(manager)
    log.release()
    for segment in log.segments.all()[:-1]:
        segment._forget_timestamps()
    files.touched.clear()
    on_loop: list[str] = []
    in_threads: list[str] = []
    for work in steps_of(manager.run_retention(NOW_MS + 10_000, pause, in_thread)):
        on_loop += files.touched
        files.touched.clear()
        if work is not None:
            work()
        in_threads += files.touched
        files.touched.clear()
    on_loop += files.touched
    assert len(in_threads) > 10
    # The leader epochs are written without waiting for the disk.
    assert [name for name in on_loop if "leader-epoch" not in name] == []
    manager.directories.unlock()


def test_log_that_fails_unexpectedly_does_not_stop_the_retention_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start(tmp_path)
    failing = created(manager, "failing", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    expirable(manager)
    original = LogDisposal.read_ages

    def read_ages(disposal: LogDisposal, now_ms: int) -> None:
        if disposal is failing.disposal:
            raise RuntimeError("ours")
        original(disposal, now_ms)

    monkeypatch.setattr(LogDisposal, "read_ages", read_ages)
    assert done(manager.run_retention(NOW_MS + 10_000, pause, in_thread)) == 3
    assert "failing-0 failed unexpectedly; the work goes on with the next log" in caplog.text
    manager.directories.unlock()


def test_log_that_starts_to_move_during_retention_keeps_its_segments(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    manager = LogManager(
        [str(one) for one in directories],
        LogManagerSettings(),
        QuickFiles(),
        random=Random(),
        new_threads=SameThread,
        on_directory_failed=lambda *_: None,
    )
    manager.startup.open()
    manager.startup.claim(MetaProperties(1, "cluster"))
    manager.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
    log = expirable(manager)
    steps = steps_of(manager.run_retention(NOW_MS + 10_000, pause, in_thread))
    for work in steps:
        if work is None:
            break
        work()
    target = next(one for one in manager.directories if one is not manager.directory_of("topic", 0))
    manager.create_future(log, target, now_ms=NOW_MS)
    assert done(steps) == 0
    assert [segment.base_offset for segment in log.segments.all()] == [0, 1, 2, 3, 4]
    assert log.log_start_offset == 3
    manager.drop_future("topic", 0, now_ms=NOW_MS)
    assert done(manager.run_retention(NOW_MS, pause, in_thread)) == 3


def test_compacted_logs_lose_only_segments_below_their_log_start(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = expirable(manager)
    log.reconfigure(dataclasses.replace(CONFIG, cleanup_policy=frozenset({"compact"})))
    assert done(manager.run_retention(NOW_MS + 10_000, pause, in_thread)) == 0
    log.delete_records_before(2)
    assert done(manager.run_retention(NOW_MS + 10_000, pause, in_thread)) == 2


def test_records_deleted_during_retention_wait_for_the_sync_of_their_log_start(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = expirable(manager)
    steps = steps_of(manager.run_retention(NOW_MS + 10_000, pause, in_thread))
    for work in steps:
        if work is not None:
            work()
        if (tmp_path / "log-start-offset-checkpoint").exists():
            break
    log.delete_records_before(5)
    assert done(steps) == 3
    assert [segment.base_offset for segment in log.segments.all()] == [3, 4]
    manager.directories.unlock()


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_truncation_during_retention_begins_with_an_empty_file(tmp_path: Path, offset: int) -> None:
    """Segments have left the log, and their files still have their names."""
    manager = start(tmp_path)
    log = expirable(manager)
    assert log.disposal.expire(NOW_MS + 10_000) == 3
    assert log.disposal.drop_expired(3) == 3
    log.truncation.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
    append(log, batch(1, size=50))
    log.disposal.mark_dropped(NOW_MS)
    assert [found for found, _ in read_all(log)] == [offset]
    assert os.stat(log.segments.active.path).st_size == log.size
    manager.directories.unlock()


@pytest.mark.parametrize("is_reserved", [True, False])
@pytest.mark.parametrize("timestamp_ms", [NOW_MS, -1])
def test_ages_are_not_read_from_files_that_a_truncation_removes(
    tmp_path: Path, timestamp_ms: int, is_reserved: bool
) -> None:
    """Without timestamps the age is that of the file. The truncation may also begin while the ages are read."""
    files, failed = WatchedRemovals(), list[OSError]()
    log = create_log(tmp_path, CONFIG, log_options(files, on_io_error=failed.append))
    for _ in range(4):
        append(log, batch(1, size=200, timestamp_ms=timestamp_ms))
    log.advance_high_watermark(4)
    counts: list[int] = []

    def read_ages() -> None:
        for segment in log.segments.all():
            segment._forget_timestamps()
            segment.release()
        with contextlib.suppress(TryLaterError):
            log.disposal.read_ages(NOW_MS + 10_000)
        counts.append(log.segment_count)

    files.at_removal = read_ages
    if is_reserved:
        log.planned.reserve()
    log.truncation.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    assert counts == [4, 4, 4, 4]
    assert failed == []


def test_age_of_a_segment_that_is_cut_off_at_the_same_time_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = create_log(tmp_path)
    for number in range(3):
        append(log, batch(1, timestamp_ms=NOW_MS + number))
    segment = log.segments.active
    segment._forget_timestamps()
    original = Segment.max_timestamp_of

    def cut(each: Segment, extent: Extent) -> int:
        monkeypatch.undo()
        log.truncation.truncate_to(1, now_ms=NOW_MS)
        return original(each, extent)

    monkeypatch.setattr(Segment, "max_timestamp_of", cut)
    damage: list[Exception] = []
    assert segment.age_timestamp_ms(damage.append) == NOW_MS
    assert damage == []


def test_dropped_segments_are_renamed_by_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncation renames them too, while retention waits for the sync of their names."""
    files = QuickFiles()
    manager = start(tmp_path, files)
    log = expirable(manager)
    log.disposal.expire(NOW_MS + 10_000)
    assert log.disposal.drop_expired(3) == 3
    other = threading.Thread(target=lambda: log.disposal.mark_dropped(NOW_MS))

    def sync_directory(path: str) -> None:
        monkeypatch.undo()
        other.start()
        other.join(0.05)  # it has to wait for this thread, so it does not end now

    monkeypatch.setattr(files, "sync_directory", sync_directory)
    log.disposal.mark_dropped(NOW_MS)
    other.join()
    assert len(list(log.directory.glob("*.log.deleted"))) == 3
    assert log.disposal.first_file_offset == 3
    manager.directories.unlock()


@pytest.mark.parametrize("is_clean", [True, False])
def test_log_start_stays_checkpointed_while_files_below_it_keep_their_names(tmp_path: Path, is_clean: bool) -> None:
    """A stop may cut a pass off in any step, and another checkpoint may be written before the files are renamed."""
    manager = start(tmp_path)
    log = expirable(manager)
    log.durability.flush(NOW_MS)
    for work in steps_of(manager.run_retention(NOW_MS + 10_000, pause, in_thread)):
        if log.segment_count == 2:
            break
        if work is not None:
            work()
    if is_clean:
        manager.close(NOW_MS)
    else:
        manager.checkpoint_recovery_points()
        manager.checkpoint_log_starts()
        manager.directories.unlock()
    assert (tmp_path / "topic-0" / f"{0:020d}.log").exists()
    manager = start(tmp_path)
    found = manager.get("topic", 0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (3, 5)
    assert done(manager.run_retention(NOW_MS + 10_000, pause, in_thread)) == 3
    manager.checkpoint_log_starts()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n", "the names of the files show it"
    manager.directories.unlock()


def test_files_that_could_not_be_renamed_are_renamed_by_the_next_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when nothing more of their log has expired."""
    files = QuickFiles()
    manager = start(tmp_path, files)
    log = expirable(manager)

    def rename(old: str, new: str) -> None:
        if old.endswith(".log"):
            raise failure(OSError(errno.ENOMEM, "Cannot allocate memory"), "rename", old)
        os.replace(old, new)

    with monkeypatch.context() as short:
        short.setattr(files, "rename", rename)
        assert done(manager.run_retention(NOW_MS + 10_000, pause, in_thread)) == 3
    assert len(list(log.directory.glob("*.log"))) == 5
    assert done(manager.run_retention(NOW_MS + 10_000, pause, in_thread)) == 0
    assert len(list(log.directory.glob("*.log"))) == 2
    assert manager.remove_deleted(NOW_MS + 20_000) >= 3
    manager.directories.unlock()
