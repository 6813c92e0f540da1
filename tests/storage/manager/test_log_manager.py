"""The log manager: the owner of directories, loading, the choice of a directory, and the effect of failures."""

import errno
import itertools
import os
import shutil
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import MAGIC_POSITION
from storage.directories.log_directory import DirectoryLockedError, ForeignDirectoryError, LogDirectory
from storage.disk.files import Files, OpenFile
from storage.disk.meta_properties import MetaProperties, WrongDirectoryError
from storage.disk.shortages import TryLaterError
from storage.log import log_opening
from storage.log.log import Log
from storage.manager.log_creation import NewLog
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import DuplicateLogError, LoadStatus, LogManagerSettings, NoUsableDirectoryError
from storage.recovery import log_loader
from storage.recovery.recovery import Scan
from tests.storage.builders import (
    NOW_MS,
    QuickFiles,
    append,
    batch,
    created,
    done,
    in_thread,
    log_config,
    pause,
    read_all,
    steps_of,
)
from tests.support.faulty_files import Crashed, FaultyFiles

CONFIG = log_config(segment_bytes=300, file_delete_delay_ms=1000)
META = MetaProperties(1, "cluster")


class Disks:
    """Managers over the same directories, one after the other."""

    def __init__(self, *paths: Path) -> None:
        self.paths = [str(path) for path in paths]
        self.failed: list[str] = []
        self.progress: list[LoadStatus] = []

    def manager(self, files: Files | None = None, **settings: int) -> LogManager:
        return LogManager(
            self.paths,
            LogManagerSettings(**{"file_delete_delay_ms": 1000, **settings}),
            files or QuickFiles(),
            random=Random(),
            new_threads=ThreadPoolExecutor,
            on_directory_failed=lambda path, error: self.failed.append(path),
        )

    def start(self, files: Files | None = None, **settings: int) -> LogManager:
        manager = self.manager(files, **settings)
        manager.startup.open()
        manager.startup.claim(META)
        manager.startup.load(lambda topic: CONFIG, now_ms=NOW_MS, on_progress=self.progress.append)
        return manager


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path / "a", tmp_path / "b")


def create(manager: LogManager, topic: str, partition: int = 0) -> None:
    created(manager, topic, partition, topic_id=None, config=CONFIG, now_ms=NOW_MS)


# Whose directories


def test_claimed_directories_are_recognized_after_a_restart(disks: Disks, tmp_path: Path) -> None:
    manager = disks.manager()
    assert manager.startup.open() is None
    manager.startup.claim(META)
    manager.directories.unlock()
    assert (tmp_path / "b" / "meta.properties").read_text() == "version=0\nbroker.id=1\ncluster.id=cluster\n"
    assert disks.manager().startup.open() == META


def test_directory_of_another_broker_is_not_changed(disks: Disks, tmp_path: Path) -> None:
    disks.start().directories.unlock()
    manager = disks.manager()
    manager.startup.open()
    with pytest.raises(WrongDirectoryError, match=r"a/meta\.properties: broker\.id is 1, expected 2"):
        manager.startup.claim(MetaProperties(2, "cluster"))
    manager.directories.unlock()
    (tmp_path / "b" / "meta.properties").write_text("version=0\nbroker.id=5\ncluster.id=cluster\n")
    with pytest.raises(WrongDirectoryError, match=r"b/meta\.properties: broker\.id is 5, expected 1"):
        disks.manager().startup.open()


def test_directory_locked_by_another_broker_is_rejected(disks: Disks, tmp_path: Path) -> None:
    running = disks.start()
    with pytest.raises(DirectoryLockedError, match=str(tmp_path / "a" / ".lock")):
        disks.manager().startup.open()
    running.close(NOW_MS)
    disks.manager().startup.open()


def test_unusable_directory_goes_offline_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    disks = Disks(tmp_path / "file", tmp_path / "good")
    manager = disks.start()
    assert disks.failed == [str(tmp_path / "file")]
    create(manager, "topic")
    manager.directories.unlock()
    with pytest.raises(NoUsableDirectoryError, match=str(tmp_path / "file")):
        Disks(tmp_path / "file").manager().startup.open()


# Loading


def test_new_directory_is_synced_with_its_parents(tmp_path: Path) -> None:
    files = FaultyFiles()
    path = tmp_path / "new" / "newer" / "data"
    Disks(path).manager(files).startup.open()
    first_write = next(number for number, call in enumerate(files.calls) if call.startswith("create"))
    synced = [call for call in files.calls[:first_write] if call.startswith("sync directory")]
    assert sorted(synced) == sorted(f"sync directory {parent.name}" for parent in list(path.parents)[:3])
    files.free_locks()
    again = FaultyFiles()
    Disks(path).manager(again).startup.open()
    assert not [call for call in again.calls if call.startswith("sync directory")]


def test_number_of_logs_to_load_is_reported(tmp_path: Path) -> None:
    disks = Disks(tmp_path / "a")
    manager = disks.start()
    for partition in range(3):
        create(manager, "topic", partition)
    manager.close(NOW_MS)
    again = disks.manager()
    again.startup.open()
    (directory,) = again.directories
    remaining = [again.startup.remaining_logs_in(directory)]

    def config_of(_: str) -> LogConfig:
        remaining.append(again.startup.remaining_logs_in(directory))
        return CONFIG

    again.startup.load(config_of, now_ms=NOW_MS)
    assert [*remaining, again.startup.remaining_logs_in(directory)] == [0, 3, 2, 1, 0]


def test_number_of_segments_to_recover_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = Disks(tmp_path / "a")
    manager = disks.start()
    create(manager, "topic")
    (log,) = manager.logs()
    while log.segment_count < 3:
        append(log, batch(2))
    manager.directories.unlock()
    again = disks.manager(recovery_threads_per_directory=2)
    again.startup.open()
    (directory,) = again.directories
    remaining = [dict(again.startup.remaining_segments_in(directory))]
    scan_segment = log_loader.scan_segment

    def scan(*arguments: Any) -> Scan:
        remaining.append(dict(again.startup.remaining_segments_in(directory)))
        return scan_segment(*arguments)

    monkeypatch.setattr(log_loader, "scan_segment", scan)
    again.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
    assert remaining == [{}, {0: 3, 1: 0}, {0: 2, 1: 0}, {0: 1, 1: 0}]
    assert not again.startup.remaining_segments_in(directory)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_clean", [True, False])
def test_restart_restores_every_log(disks: Disks, is_clean: bool, threads: int) -> None:
    manager = disks.start()
    topic_id = uuid.uuid4()
    for partition in range(5):
        log = created(manager, "topic", partition, topic_id=topic_id, config=CONFIG, now_ms=NOW_MS)
        for _ in range(3 * partition):
            append(log, batch(2))
        log.advance_high_watermark(3)
    manager.checkpoint_high_watermarks()
    expected = {log.name: list(read_all(log)) for log in manager.logs()}
    if is_clean:
        manager.close(NOW_MS)
    else:
        manager.directories.unlock()
    again = disks.start(recovery_threads_per_directory=threads)
    assert {log.name: list(read_all(log)) for log in again.logs()} == expected
    assert {log.topic_id for log in again.logs()} == {topic_id}
    assert [log.high_watermark for log in sorted(again.logs(), key=lambda log: log.partition)] == [0, 3, 3, 3, 3]
    status = disks.progress[-1]
    assert (status.logs_done, status.logs_total) == (5, 5)
    assert status.bytes_done == status.bytes_total
    assert (status.bytes_total == 0) is is_clean


def test_start_removes_the_clean_marker(disks: Disks, tmp_path: Path) -> None:
    manager = disks.start()
    create(manager, "topic")
    manager.close(NOW_MS)
    marker = tmp_path / "a" / ".kafka_cleanshutdown"
    assert marker.read_text() == '{"version":0,"brokerEpoch":-1}'
    disks.start().directories.unlock()
    assert not marker.exists()


def test_removed_clean_marker_does_not_reappear_after_a_power_cut(tmp_path: Path) -> None:
    """It would vouch for a batch that was appended after it was removed, and of which zeros are left."""
    disks = Disks(tmp_path / "a")
    files = FaultyFiles()
    manager = disks.start(files)
    create(manager, "topic")
    append(the_log(manager), batch(1))
    manager.close(NOW_MS)
    files.free_locks()
    manager = disks.start(files)
    append(the_log(manager), batch(1))
    path = Path(the_log(manager).directory) / f"{0:020d}.log"
    written = path.read_bytes()
    files.bury()
    files.lose_unsynced(tmp_path / "a")
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    path.write_bytes(written[: len(written) // 2] + bytes(len(written) // 2))
    assert the_log(disks.start()).log_end_offset == 1


@pytest.mark.parametrize("content", ["", "0", '{"version":0,"brokerEpoch":4711}', '{"version":7}'])
def test_clean_marker_with_any_content_is_accepted(disks: Disks, tmp_path: Path, content: str) -> None:
    manager = disks.start()
    create(manager, "topic")
    append(manager.get("topic", 0), batch(3))  # type: ignore[arg-type]
    manager.close(NOW_MS)
    for name in ("a", "b"):
        (tmp_path / name / ".kafka_cleanshutdown").write_text(content)
    again = disks.start()
    assert disks.progress[-1].bytes_total == 0
    assert again.get("topic", 0).log_end_offset == 3  # type: ignore[union-attr]


def open_files(folder: Path) -> set[str]:
    """Those below a folder, of this process."""
    links = (os.path.realpath(path) for path in Path("/proc/self/fd").iterdir())
    return {link for link in links if link.startswith(f"{folder}/")}


@pytest.mark.parametrize("ending", ["delete", "close", "fail"])
def test_close_releases_every_descriptor(disks: Disks, tmp_path: Path, ending: str) -> None:
    manager = disks.start()
    locks = open_files(tmp_path)
    create(manager, "topic")
    log = manager.get("topic", 0)
    assert log is not None
    for _ in range(20):
        append(log, batch(1, size=50))
    assert len(list(read_all(log))) == 20
    assert len(open_files(tmp_path)) > len(locks) == 2
    if ending == "delete":
        manager.delete("topic", 0, now_ms=NOW_MS)
    elif ending == "fail":
        manager.directories.fail(manager.directories[0], OSError(errno.EIO, "gone"))
    else:
        manager.close(NOW_MS)
    assert open_files(tmp_path) == (set() if ending == "close" else locks)


def test_logs_may_be_created_and_deleted_while_the_others_are_closed(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop of a broker closes the logs in a thread, and requests may be under way."""
    manager = disks.start()
    create(manager, "kept")
    create(manager, "deleted")

    class Home(dict[Log, LogDirectory]):
        """Closes the logs at the moment at which the directory of a new one is noted, or of a deleted one forgotten."""

        def __setitem__(self, log: Log, directory: LogDirectory) -> None:
            manager.close(NOW_MS)
            super().__setitem__(log, directory)

        def pop(self, log: Log) -> LogDirectory:  # type: ignore[override]
            directory = super().pop(log)
            manager.close(NOW_MS)
            return directory

    monkeypatch.setattr(manager._table, "home", Home(manager._table.home))
    manager.delete("deleted", 0, now_ms=NOW_MS)
    create(manager, "new")
    assert sorted(log.topic for log in manager.logs()) == ["kept", "new"]
    assert disks.failed == []


def test_foreign_directory_stops_the_start(disks: Disks, tmp_path: Path) -> None:
    (tmp_path / "a" / "lost+found").mkdir(parents=True)
    with pytest.raises(ForeignDirectoryError, match=str(tmp_path / "a" / r"lost\+found")):
        disks.start()


def test_the_metadata_log_of_a_kraft_node_is_ignored(disks: Disks, tmp_path: Path) -> None:
    (tmp_path / "a" / "__cluster_metadata-0").mkdir(parents=True)
    assert list(disks.start().logs()) == []


def test_the_directory_of_a_kraft_node_stops_the_start(disks: Disks, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(exist_ok=True)
    (tmp_path / "a" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    with pytest.raises(WrongDirectoryError, match="metadata-copy --from-kraft converts it"):
        disks.start()


def test_partition_in_two_directories_stops_the_start(disks: Disks, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "topic-0").mkdir(parents=True)
    with pytest.raises(DuplicateLogError, match="topic-0"):
        disks.start()


GARBLED = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


@pytest.mark.parametrize("name", GARBLED)
@pytest.mark.parametrize("is_clean", [True, False])
def test_malformed_checkpoint_counts_as_empty(
    disks: Disks, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, is_clean: bool
) -> None:
    manager = disks.start()
    create(manager, "one")
    create(manager, "two")
    append(manager.get("one", 0), batch(3))  # type: ignore[arg-type]
    if is_clean:
        manager.close(NOW_MS)
    else:
        manager.directories.unlock()
    (tmp_path / "a" / name).write_bytes(b"garbage")
    again = disks.start()
    assert disks.failed == []
    log = again.get("one", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    assert log.high_watermark <= 3
    assert again.get("two", 0) is not None
    assert caplog.text.count(str(tmp_path / "a" / name)) == 1


def test_gaps_are_accepted_in_any_log_without_a_cleaner_checkpoint(tmp_path: Path) -> None:
    """The second of three segments is missing, as after a cleaning that left nothing of it."""
    disks = Disks(tmp_path / "a")
    manager = disks.start()
    create(manager, "topic")
    for _ in range(3):
        append(the_log(manager), batch(1, size=150))
    assert [segment.base_offset for segment in the_log(manager).segments.all()] == [0, 1, 2]
    manager.directories.unlock()
    for path in (tmp_path / "a" / "topic-0").glob(f"{1:020d}.*"):
        path.unlink()
    (tmp_path / "a" / "cleaner-offset-checkpoint").write_bytes(b"garbage")
    assert the_log(disks.start()).log_end_offset == 3


def test_malformed_topic_id_counts_as_none(disks: Disks, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = disks.start()
    created(manager, "topic", 0, topic_id=uuid.uuid4(), config=CONFIG, now_ms=NOW_MS)
    append(the_log(manager), batch(3))
    manager.close(NOW_MS)
    path = tmp_path / "a" / "topic-0" / "partition.metadata"
    path.write_bytes(b"garbage")
    log = the_log(disks.start())
    assert disks.failed == []
    assert (log.topic_id, log.log_end_offset) == (None, 3)
    assert caplog.text.count(str(path)) == 1


# Placement and deletion


def test_new_log_goes_to_the_directory_with_the_fewest_logs(disks: Disks, tmp_path: Path) -> None:
    manager = disks.start()
    for partition in range(5):
        create(manager, "topic", partition)
    found = [manager.directory_of("topic", partition).path for partition in range(5)]  # type: ignore[union-attr]
    assert sorted(found) == [str(tmp_path / "a")] * 3 + [str(tmp_path / "b")] * 2
    first = manager.get("topic", 0)
    assert created(manager, "topic", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS) is first


def test_deleted_log_frees_its_name_at_once_and_its_files_later(disks: Disks, tmp_path: Path) -> None:
    manager = disks.start()
    create(manager, "topic")
    log = manager.get("topic", 0)
    assert log is not None
    append(log, batch(1))
    manager.delete("topic", 0, now_ms=NOW_MS)
    assert manager.get("topic", 0) is None
    create(manager, "topic")
    assert manager.get("topic", 0).log_end_offset == 0  # type: ignore[union-attr]
    (folder,) = tmp_path.glob("*/topic-0.*-delete")
    # A Kafka that starts at this point opens the log again, and warns about missing indexes.
    assert {path.suffix for path in folder.glob("0*")} == {".log", ".index", ".timeindex"}
    manager.remove_deleted(NOW_MS + 999)
    assert len(list(tmp_path.glob("*/topic-0.*-delete"))) == 1
    manager.remove_deleted(NOW_MS + 1000)
    assert not list(tmp_path.glob("*/topic-0.*-delete"))
    manager.delete("nosuch", 0, now_ms=NOW_MS)


def test_deleted_log_is_removed_with_unknown_files(disks: Disks, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("mine")
    manager = disks.start()
    create(manager, "topic")
    folder = manager.get("topic", 0).directory  # type: ignore[union-attr]
    (folder / "notes" / "more").mkdir(parents=True)
    (folder / "notes" / "more" / "notes.txt").write_text("mine")
    (folder / "linked").symlink_to(elsewhere)
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    manager.delete("topic", 0, now_ms=NOW_MS)
    manager.remove_deleted(NOW_MS + 1000)
    assert not list(tmp_path.glob("*/topic-0*"))
    assert (elsewhere / "kept").exists()
    assert disks.failed == []


def test_deleted_log_may_be_removed_by_hand(disks: Disks, tmp_path: Path) -> None:
    manager = disks.start()
    create(manager, "topic")
    create(manager, "other")
    for topic in ("topic", "other"):
        manager.delete(topic, 0, now_ms=NOW_MS)
    shutil.rmtree(next(tmp_path.glob("*/topic-0.*-delete")))
    manager.remove_deleted(NOW_MS + 1000)
    assert not list(tmp_path.glob("*/*-delete"))
    assert disks.failed == []


def test_log_is_deleted_on_a_full_disk(disks: Disks, tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = disks.start(files)
    create(manager, "topic")
    append(manager.get("topic", 0), batch(1))  # type: ignore[arg-type]
    files.fail_call(len(files.calls), errno.ENOSPC)
    manager.delete("topic", 0, now_ms=NOW_MS)
    assert len(list(tmp_path.glob("*/topic-0.*-delete"))) == 1
    assert disks.failed == []


def test_deletion_continues_after_a_restart(disks: Disks, tmp_path: Path) -> None:
    manager = disks.start()
    create(manager, "topic")
    manager.delete("topic", 0, now_ms=NOW_MS)
    manager.directories.unlock()
    again = disks.start()
    assert again.get("topic", 0) is None
    again.remove_deleted(NOW_MS + 1000)
    assert not list(tmp_path.glob("*/topic-0*"))


def test_log_starts_that_no_file_name_contains_are_checkpointed(disks: Disks, tmp_path: Path) -> None:
    manager = disks.start()
    create(manager, "topic")
    log = manager.get("topic", 0)
    assert log is not None
    for _ in range(3):
        append(log, batch(1))
    log.advance_high_watermark(3)
    log.delete_records_before(2)
    manager.close(NOW_MS)
    assert (tmp_path / "a" / "log-start-offset-checkpoint").read_text() == "0\n1\ntopic 0 2\n"
    assert disks.start().get("topic", 0).log_start_offset == 2  # type: ignore[union-attr]


# What is checkpointed, and a name that is used again

OLD_END = 3
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


def the_log(manager: LogManager) -> Log:
    log = manager.get("topic", 0)
    assert log is not None
    return log


def checkpoint_old_log(manager: LogManager) -> None:
    """A log of three records of which one is left, as all checkpoints state."""
    create(manager, "topic")
    log = the_log(manager)
    for _ in range(OLD_END):
        append(log, batch(1))
    log.advance_high_watermark(OLD_END)
    log.delete_records_before(OLD_END - 1)
    log.durability.flush(NOW_MS)
    manager.checkpoint_recovery_points()
    manager.checkpoint_log_starts()
    manager.checkpoint_high_watermarks()


@pytest.mark.parametrize("restarts", ["never", "before the deletion", "after the deletion"])
def test_new_log_does_not_get_offsets_of_a_deleted_log_of_its_name(tmp_path: Path, restarts: str) -> None:
    disks = Disks(tmp_path / "a")
    manager = disks.start()
    checkpoint_old_log(manager)
    if restarts == "before the deletion":
        manager.directories.unlock()
        manager = disks.start()
    manager.delete("topic", 0, now_ms=NOW_MS)
    if restarts == "after the deletion":
        manager.directories.unlock()
        manager = disks.start()
    create(manager, "topic")
    append(the_log(manager), batch(1, size=50))
    manager.directories.unlock()
    log = the_log(disks.start())
    assert [offset for offset, _ in read_all(log)] == [0]
    assert (log.log_start_offset, log.log_end_offset, log.durability.recovery_point, log.high_watermark) == (0, 1, 0, 0)


def test_checkpoint_without_an_entry_of_a_name_is_not_written_to_free_it(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = Disks(tmp_path / "a").start(files)
    checkpoint_old_log(manager)
    done = len(files.calls)
    create(manager, "other")
    assert not [call for call in files.calls[done:] if "checkpoint" in call]
    manager.delete("topic", 0, now_ms=NOW_MS)
    manager.checkpoint_recovery_points()
    done = len(files.calls)
    create(manager, "topic")
    renamed = [call for call in files.calls[done:] if call.startswith("rename")]
    assert renamed == [f"rename {name}.tmp" for name in CHECKPOINTS[1:]]
    done = len(files.calls)
    manager.delete("other", 0, now_ms=NOW_MS)
    create(manager, "topic", 1)
    assert not [call for call in files.calls[done:] if "checkpoint" in call]


def test_name_is_not_free_while_a_checkpoint_with_it_is_being_written(tmp_path: Path) -> None:
    recreating: list[threading.Thread] = []
    manager: LogManager | None = None

    class Files(QuickFiles):
        """While the checkpoint is on its way to the disk, its log is deleted and made again."""

        def rename(self, old: str, new: str) -> None:
            if new.endswith(CHECKPOINTS[0]) and manager and manager.get("topic", 0) is not None and not recreating:
                deleted = threading.Event()

                def recreate() -> None:
                    manager.delete("topic", 0, now_ms=NOW_MS)
                    deleted.set()
                    create(manager, "topic")

                recreating.append(threading.Thread(target=recreate))
                recreating[0].start()
                assert deleted.wait(10)
            super().rename(old, new)

    manager = Disks(tmp_path / "a").start(Files())
    checkpoint_old_log(manager)
    recreating[0].join()
    (directory,) = manager.directories
    assert directory.read_recovery_points(pytest.fail) == {}
    assert directory.read_log_starts(pytest.fail) == {}


def test_truncation_lowers_the_checkpointed_recovery_point(tmp_path: Path) -> None:
    manager = Disks(tmp_path / "a").start()
    checkpoint_old_log(manager)
    (directory,) = manager.directories
    assert directory.read_recovery_points(pytest.fail) == {("topic", 0): OLD_END}
    the_log(manager).truncation.truncate_to(OLD_END - 1, now_ms=NOW_MS)
    assert directory.read_recovery_points(pytest.fail) == {("topic", 0): OLD_END - 1}


def test_start_lowers_the_recovery_point_of_a_log_that_ends_below_it(tmp_path: Path) -> None:
    disks = Disks(tmp_path / "a")
    manager = disks.start()
    checkpoint_old_log(manager)
    manager.directories.unlock()
    checkpoint = tmp_path / "a" / CHECKPOINTS[0]
    checkpoint.write_text("0\n1\ntopic 0 99\n")
    disks.start()
    assert checkpoint.read_text() == f"0\n1\ntopic 0 {OLD_END - 1}\n", "no index of the scan was synced"


# Periodic work and failure


def test_rolled_segment_is_synced_by_the_next_flush(disks: Disks) -> None:
    manager = disks.start()
    create(manager, "topic")
    log = manager.get("topic", 0)
    assert log is not None
    for _ in range(4):
        append(log, batch(1, size=50))
    assert log.segment_count > 1
    assert log.durability.recovery_point == 0
    assert manager.flush_due(NOW_MS) == 1
    assert log.durability.recovery_point == log.segments.active.base_offset == 2
    assert manager.flush_due(NOW_MS) == 0


def test_flush_that_is_due_after_a_roll_syncs_all_segments(disks: Disks) -> None:
    manager = disks.start()
    create(manager, "topic")
    log = manager.get("topic", 0)
    assert log is not None
    log.reconfigure(replace(log.config, flush_ms=1000))
    for _ in range(4):
        append(log, batch(1, size=50))
    assert manager.flush_due(NOW_MS + 500) == 1
    assert log.durability.recovery_point == log.segments.active.base_offset == 2
    assert manager.flush_due(NOW_MS + 999) == 0
    assert manager.flush_due(NOW_MS + 1000) == 1
    assert log.durability.recovery_point == 4


FAILING: dict[str, Callable[[LogManager], object]] = {
    "checkpoint": lambda manager: manager.checkpoint_high_watermarks(),
    "flush": lambda manager: [log.durability.flush(NOW_MS) for log in manager.logs() if not log.is_offline],
    "append": lambda manager: append(manager.get("topic", 0), batch(1)),  # type: ignore[arg-type]
    "create": lambda manager: create(manager, "new"),
    "delete": lambda manager: manager.delete("topic", 0, now_ms=NOW_MS),
}


@pytest.mark.parametrize("action", FAILING)
def test_failed_directory_goes_offline_and_the_other_stays_online(disks: Disks, tmp_path: Path, action: str) -> None:
    files = FaultyFiles()
    manager = disks.start(files)
    for topic in ("topic", "other", "third", "last"):
        create(manager, topic)
    append(manager.get("topic", 0), batch(1))  # type: ignore[arg-type]
    files.fail_call(len(files.calls), errno.EIO)
    try:
        FAILING[action](manager)
    except KafkaError as error:
        failure: KafkaError | None = error
    else:
        failure = None
    assert failure is None or failure.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert disks.failed == [str(tmp_path / "a")]
    assert {log.topic for log in manager.logs() if not log.is_offline} == {"other", "last"}
    create(manager, "newer")
    assert manager.directory_of("newer", 0).path == str(tmp_path / "b")  # type: ignore[union-attr]
    manager.close(NOW_MS)
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_fifty_idle_partitions_open_no_files(tmp_path: Path) -> None:
    manager = Disks(tmp_path / "a").start()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for partition in range(50):
        create(manager, "__consumer_offsets", partition)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


# Truncation


@pytest.mark.parametrize("is_full", [False, True])
def test_append_after_a_truncation_below_the_log_start_survives_a_crash(disks: Disks, is_full: bool) -> None:
    manager = disks.start()
    log = created(manager, "topic", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    for _ in range(6):
        append(log, batch(1))
    log.advance_high_watermark(6)
    log.delete_records_before(5)
    manager.checkpoint_log_starts()
    if is_full:
        log.truncation.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    else:
        assert log.truncation.truncate_to(2, now_ms=NOW_MS)
    append(log, batch(1))
    manager.directories.unlock()
    found = disks.start().get("topic", 0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (2, 3)
    assert [offset for offset, _ in read_all(found)] == [2]


def test_interrupted_truncation_of_several_segments_leaves_no_gap(tmp_path: Path) -> None:
    for number in itertools.count():
        files = FaultyFiles()
        disks = Disks(tmp_path / str(number))
        manager = disks.start(files)
        log = created(manager, "topic", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
        for _ in range(6):
            append(log, batch(1, size=200))
        log.durability.flush(NOW_MS)
        manager.checkpoint_recovery_points()
        files.crash_at(len(files.calls) + number)
        try:
            log.truncation.truncate_to(1, now_ms=NOW_MS)
            break
        except Crashed:
            files.bury()
        found = disks.start().get("topic", 0)
        assert found is not None
        assert [offset for offset, _ in read_all(found)] == list(range(found.log_end_offset))
    assert number > 20


# Names of deleted logs


def test_free_names_frees_the_name_of_a_deleted_log_before_its_reuse(disks: Disks) -> None:
    files = FaultyFiles()
    manager = disks.start(files)
    create(manager, "topic")
    manager.checkpoint_recovery_points()
    manager.delete("topic", 0, now_ms=NOW_MS)
    manager.free_names()
    before = len(files.calls)
    manager.free_names()
    assert len(files.calls) == before, "nothing is left to be written"
    create(manager, "topic")
    assert not [call for call in files.calls[before:] if "checkpoint" in call or call.startswith("sync")]
    manager.directories.unlock()


# Damage that a clean start does not look for


def with_damaged_batch(tmp_path: Path) -> tuple[Disks, LogManager]:
    """A log of 100 batches, closed cleanly, of which one before the last index entry is damaged since."""
    disks = Disks(tmp_path / "a")
    manager = disks.start()
    log = created(manager, "t", 0, topic_id=None, config=log_config(), now_ms=NOW_MS)
    append(log, batch(1, timestamp_ms=NOW_MS + 1000))  # so that the time index ends before the damage
    for _ in range(99):
        append(log, batch(1, size=100))
    damaged = list(log.segments.active.walk(0))[50]
    manager.close(NOW_MS)
    with open(f"{log.directory}/{0:020d}.log", "r+b") as file:
        file.seek(damaged.position + MAGIC_POSITION)
        file.write(b"\x63")
    return disks, disks.start()


def test_log_with_a_damaged_batch_closes_cleanly_and_keeps_the_batches_behind_it(tmp_path: Path) -> None:
    disks, manager = with_damaged_batch(tmp_path)
    manager.close(NOW_MS)
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    manager = disks.start()
    log = manager.get("t", 0)
    assert log is not None
    assert log.log_end_offset == 100
    manager.directories.unlock()


def test_append_that_meets_a_damaged_batch_writes_nothing(tmp_path: Path) -> None:
    """The batch goes to a new segment. In the damaged one a start would read it as records of the log."""
    _, manager = with_damaged_batch(tmp_path)
    log = manager.get("t", 0)
    assert log is not None
    log.reconfigure(log_config())
    damaged = log.segments.active
    assert append(log, batch(1, timestamp_ms=NOW_MS + 2000)).first_offset == 100
    assert log.segments.active.base_offset == 100
    assert os.path.getsize(damaged.path) == damaged.size
    assert append(log, batch(1)).first_offset == 101
    manager.directories.unlock()


def test_log_with_a_damaged_batch_can_be_deleted_and_recreated(tmp_path: Path) -> None:
    disks, manager = with_damaged_batch(tmp_path)
    manager.delete("t", 0, now_ms=NOW_MS)
    assert created(manager, "t", 0, topic_id=None, config=log_config(), now_ms=NOW_MS).log_end_offset == 0
    assert not disks.failed
    manager.directories.unlock()


# Creation in steps


def new_logs(count: int) -> list[NewLog]:
    return [NewLog(("topic", number), None, CONFIG) for number in range(count)]


def test_logs_are_created_in_another_thread_and_spread_over_the_directories(tmp_path: Path) -> None:
    loop_thread = threading.current_thread()

    class Files(QuickFiles):
        def make_directory(self, path: str) -> None:
            assert threading.current_thread() is not loop_thread
            super().make_directory(path)

        def open(self, path: str, *, create: bool = False) -> OpenFile:
            assert not create or not path.endswith(".log") or threading.current_thread() is not loop_thread
            return super().open(path, create=create)

    files = Files()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    manager = Disks(tmp_path / "a", tmp_path / "b").start(files)
    steps = steps_of(manager.creation.create(new_logs(6), pause, in_thread, now_ms=NOW_MS))
    with ThreadPoolExecutor(1) as thread:
        for work in steps:
            if work is not None:
                thread.submit(work).result()
    assert [len(directory.logs) for directory in manager.directories] == [3, 3]
    assert all(manager.get("topic", number) is not None for number in range(6))


def test_directory_that_fails_while_logs_are_created_fails_one_of_them_only(tmp_path: Path) -> None:
    class Files(QuickFiles):
        def make_directory(self, path: str) -> None:
            if path.startswith(f"{tmp_path}/a/"):
                raise OSError(errno.EIO, "Input/output error", path)
            super().make_directory(path)

    disks = Disks(tmp_path / "a", tmp_path / "b")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    manager = disks.start(Files())
    failed = done(manager.creation.create(new_logs(6), pause, in_thread, now_ms=NOW_MS))
    assert [(number, error.code) for (_, number), error in failed.items()] == [(0, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert [len(directory.logs) for directory in manager.directories] == [0, 5]
    assert manager.directories[0].is_offline


def test_directory_that_fails_before_a_created_log_is_known_keeps_it_out(tmp_path: Path) -> None:
    manager = Disks(tmp_path / "a", tmp_path / "b").start()
    steps = steps_of(manager.creation.create(new_logs(1), pause, in_thread, now_ms=NOW_MS))
    work = next(step for step in steps if step is not None)
    work()
    manager.directories.fail(manager.directories[0], OSError(errno.EIO, "Input/output error"))
    failed = done(steps)
    assert list(failed) == [("topic", 0)]
    assert manager.get("topic", 0) is None
    assert done(manager.creation.create(new_logs(1), pause, in_thread, now_ms=NOW_MS)) == {}
    assert manager.directory_of("topic", 0) is manager.directories[1]


def test_log_that_is_being_created_is_not_created_twice(tmp_path: Path) -> None:
    manager = Disks(tmp_path / "a").start()
    steps = steps_of(manager.creation.create(new_logs(1), pause, in_thread, now_ms=NOW_MS))
    work = next(step for step in steps if step is not None)
    failed = done(manager.creation.create(new_logs(1), pause, in_thread, now_ms=NOW_MS))
    assert isinstance(failed["topic", 0], TryLaterError)
    work()
    assert list(steps) == [None]
    assert manager.get("topic", 0) is not None
    assert not manager.directories[0].is_offline


def test_log_whose_creation_raised_an_unexpected_error_can_be_created_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Log:
        raise RuntimeError("unexpected")

    manager = Disks(tmp_path / "a").start()
    with monkeypatch.context() as patch:
        patch.setattr(log_opening, "create", fail)
        with pytest.raises(RuntimeError):
            done(manager.creation.create(new_logs(2), pause, in_thread, now_ms=NOW_MS))
    assert done(manager.creation.create(new_logs(2), pause, in_thread, now_ms=NOW_MS)) == {}
    assert len(list(manager.logs())) == 2


@pytest.mark.parametrize("is_listed", [True, False])
def test_directory_that_fails_in_another_thread_while_a_log_is_put_in_service_keeps_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    manager = Disks(tmp_path / "a", tmp_path / "b").start()
    table = manager._table
    add, made = table.add, []

    def fail_and_add(log: Log, directory: LogDirectory) -> None:
        """Another thread's `fail_directory`, before or after this one has listed the log."""
        made.append(log)
        if is_listed:
            add(log, directory)
        manager.directories.fail(directory, OSError(errno.EIO, "Input/output error"))
        if not is_listed:
            add(log, directory)

    monkeypatch.setattr(table, "add", fail_and_add)
    failed = done(manager.creation.create(new_logs(1), pause, in_thread, now_ms=NOW_MS))
    assert [error.code for error in failed.values()] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert manager.get("topic", 0) is None
    assert made[0].is_offline
