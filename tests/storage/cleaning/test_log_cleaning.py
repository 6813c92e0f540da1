"""Which log is cleaned, first dirty offsets, retention of compacted logs, and the metrics of the cleaner."""

import dataclasses
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from base.pause import AT_ONCE, Awaited
from config.broker import BrokerConfig
from protocol.errors import KafkaError
from protocol.records.batch import batches
from protocol.records.control import ControlType
from storage.cleaning.cleaner import clean
from storage.cleaning.cleaning_job import MAP_MEMORY_MAX
from storage.cleaning.cleaning_metrics import Uncleanable
from storage.cleaning.compaction import ActiveProducer
from storage.cleaning.log_cleaning import LAST_MS, CleanerSettings, Cleaning
from storage.disk import names
from storage.disk.files import Buffer, failure
from storage.disk.shortages import OutOfResourcesError
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.segments.segment import CorruptSegmentError, Segment
from storage.segments.time_index import TimestampOffset
from tests.sim.disk import DiskFiles, PowerCut, SimulatedDisk
from tests.storage.builders import (
    NAME,
    NOW_MS,
    QuickFiles,
    WatchedRemovals,
    append,
    append_marker,
    created,
    delete_expired,
    done,
    in_thread,
    log_config,
    marker,
    pause,
)
from tests.storage.compacted import CONFIG, Broker, commit_and_roll, finish_pass, kept_in, keyed

OTHER = ("other", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def fill(log: Log, *values: str, key: str = "a") -> None:
    for value in values:
        append(log, keyed((key, value)))
    commit_and_roll(log)


def checkpoint(directory: Path) -> str:
    return (directory / names.CLEANER_CHECKPOINT).read_text()


# Choosing


def test_dirtiest_log_is_picked_first_and_by_one_worker(broker: Broker) -> None:
    clean_part, dirty = broker.log(NAME), broker.log(OTHER)
    fill(clean_part, "x" * 500)
    assert broker.clean()
    fill(clean_part, "1")
    fill(dirty, "1")
    picked = [broker.cleaning.pick(NOW_MS, worker) for worker in range(3)]
    assert [each and each.log.topic for each in picked] == ["other", "topic", None]


def test_overdue_log_is_picked_before_a_dirtier_one(broker: Broker) -> None:
    overdue, dirty = broker.log(NAME), broker.log(OTHER)
    fill(overdue, "x" * 500)
    assert broker.clean()
    fill(overdue, "1")
    fill(dirty, "1")
    overdue.reconfigure(dataclasses.replace(CONFIG, max_compaction_lag_ms=1000))
    picked = broker.cleaning.pick(NOW_MS + 5000)
    assert picked is not None
    assert picked.log is overdue
    assert broker.cleaning.metrics(NOW_MS + 5000).max_compaction_delay_secs == 4


def test_one_log_is_taken_below_its_dirty_ratio_but_not_twice(broker: Broker) -> None:
    log = broker.log(NAME)
    fill(log, "x" * 500)
    assert broker.clean()
    fill(log, "1")
    log.reconfigure(dataclasses.replace(CONFIG, min_cleanable_dirty_ratio=0.9))
    assert broker.cleaning.pick(NOW_MS) is None
    taken = broker.cleaning.take(log, NOW_MS)
    assert taken is not None
    assert broker.cleaning.is_in_progress(log)
    assert broker.cleaning.take(log, NOW_MS) is None
    assert finish_pass(broker.cleaning, taken, clean(taken.job), now_ms=NOW_MS)
    assert broker.cleaning.take(log, NOW_MS) is None, "nothing is dirty"
    assert not broker.cleaning.is_in_progress(log)


def test_pass_gets_its_share_of_memory_and_bandwidth(broker: Broker) -> None:
    config = BrokerConfig.from_properties(
        {
            "log.cleaner.threads": "4",
            "log.cleaner.dedupe.buffer.size": str(8 << 30),
            "log.cleaner.io.buffer.size": "800000",
            "log.cleaner.io.buffer.load.factor": "0.7",
            "log.cleaner.io.max.bytes.per.second": "1000",
        }
    )
    fill(broker.log(), "1")
    broker.cleaning.reconfigure(CleanerSettings.of(config))
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    assert picked.job.map_memory == MAP_MEMORY_MAX
    assert picked.job.map_load_factor == 0.7
    assert picked.job.buffer_size == 100_000
    assert picked.job.bytes_per_second_max == 250


def test_changed_cleanup_policy_applies_to_the_next_pick(broker: Broker) -> None:
    log = broker.log()
    log.reconfigure(log_config())
    fill(log, "1", "2", "3")
    assert broker.cleaning.pick(NOW_MS) is None
    log.reconfigure(CONFIG)
    assert broker.clean()
    assert kept_in(log) == [(2, b"a", b"3")]
    fill(log, "4")
    log.reconfigure(log_config())
    assert broker.cleaning.pick(NOW_MS) is None


def test_files_deleted_by_a_second_pass_have_their_own_delay(broker: Broker) -> None:
    """Both passes delete a segment with base offset 0, and the later file takes the name of the earlier one."""
    log = broker.log()
    log.reconfigure(dataclasses.replace(CONFIG, file_delete_delay_ms=60_000))
    fill(log, "1", "2")
    assert broker.clean(NOW_MS)
    fill(log, "3", "4")
    assert broker.clean(NOW_MS + 59_000)
    deleted = log.directory / "00000000000000000000.log.deleted"
    log.disposal.remove_deleted(NOW_MS + 60_000)
    assert deleted.exists()
    log.disposal.remove_deleted(NOW_MS + 119_000)
    assert not deleted.exists()


# Retention


def test_compact_and_delete_are_both_applied(broker: Broker) -> None:
    log = broker.log()
    both = dataclasses.replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10_000)
    log.reconfigure(both)
    fill(log, "1", "2")
    append(log, keyed(("b", "3"), ("b", "4"), timestamp_ms=NOW_MS + 8000))
    commit_and_roll(log)
    assert broker.clean(NOW_MS + 9000)
    assert kept_in(log) == [(1, b"a", b"2"), (3, b"b", b"4")]
    append(log, keyed(("b", "5"), timestamp_ms=NOW_MS + 30_000))
    commit_and_roll(log)
    # The cleaned segment goes when its greatest timestamp is too old, the newest value inside the window stays.
    assert done(broker.cleaning.delete_expired(NOW_MS + 30_000, pause, in_thread)) == 1
    assert kept_in(log) == [(4, b"b", b"5")]
    assert log.log_start_offset == 4


def test_compacted_log_without_delete_loses_only_segments_below_its_start(broker: Broker) -> None:
    log = broker.log()
    log.reconfigure(dataclasses.replace(CONFIG, retention_ms=1, retention_bytes=1))
    fill(log, "1")
    fill(log, "2")
    assert done(broker.cleaning.delete_expired(NOW_MS + 10**9, pause, in_thread)) == 0
    log.delete_records_before(1)
    assert done(broker.cleaning.delete_expired(NOW_MS, pause, in_thread)) == 1


def test_retention_skips_a_log_during_a_pass(broker: Broker) -> None:
    log = broker.log()
    fill(log, "1")
    fill(log, "2")
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    log.delete_records_before(1)
    assert done(broker.cleaning.delete_expired(NOW_MS, pause, in_thread)) == 0
    assert done(broker.manager.run_retention(NOW_MS, pause, in_thread)) == 0
    assert broker.cleaning.is_wanted(picked)
    # Only the cleaner runs retention of this log. After it the result of the pass is useless.
    assert delete_expired(log, NOW_MS) == 1
    assert not broker.cleaning.is_wanted(picked)


def test_compacted_logs_get_ordinary_retention_without_a_cleaner(broker: Broker) -> None:
    log = broker.log()
    fill(log, "1")
    log.delete_records_before(1)
    assert done(broker.manager.run_retention(NOW_MS, pause, in_thread)) == 0
    broker.manager.observers._observers.clear()
    assert done(broker.manager.run_retention(NOW_MS, pause, in_thread)) == 1


@pytest.mark.parametrize("rule", ["time", "size", "log start"])
def test_segment_without_kept_records_does_not_stop_retention(broker: Broker, rule: str) -> None:
    log = broker.log()
    limits = {"time": {"retention_ms": 10_000}, "size": {"retention_bytes": 1}}.get(rule, {})
    both = frozenset({"compact", "delete"})
    config = dataclasses.replace(CONFIG, cleanup_policy=both, segment_bytes=1500, retention_ms=-1, retention_bytes=-1)
    log.reconfigure(dataclasses.replace(config, **limits))
    for number in range(3):
        fill(log, f"{number}" * 1000)
    append(log, keyed(("b", "1"), timestamp_ms=NOW_MS + 60_000))
    log.advance_high_watermark(4)
    assert broker.clean()
    assert [(segment.base_offset, segment.size > 0) for segment in log.segments.all()] == [
        (0, False),
        (1, False),
        (2, True),
        (3, True),
    ]
    if rule == "log start":
        log.delete_records_before(3)
    now_ms = max(segment.on_disk.modified_ms for segment in log.segments.all()) + 10_001
    now_ms = max(now_ms, NOW_MS + 60_000) if rule == "time" else NOW_MS
    assert done(broker.cleaning.delete_expired(now_ms, pause, in_thread)) >= 3
    assert log.log_start_offset >= 3


# Changes of the log between the end of a pass and the swap, and a crash after that


def truncate_and_append(log: Log) -> None:
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    for number in range(6):
        append(log, keyed((f"n{number}", "new")), leader_epoch=5)
    log.advance_high_watermark(log.log_end_offset)


def start_anew(log: Log) -> None:
    log.truncation.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    append(log, keyed(("n", "new")), leader_epoch=5)


def expire(log: Log) -> None:
    assert delete_expired(log, NOW_MS + 2500) == 2


def delete_records(log: Log) -> None:
    log.delete_records_before(2)
    assert delete_expired(log, NOW_MS) == 2


@pytest.mark.parametrize("change", [truncate_and_append, start_anew, expire, delete_records])
@pytest.mark.parametrize("is_given_back", [True, False])
def test_finished_pass_preserves_later_changes_of_the_log(
    tmp_path: Path, change: Callable[[Log], None], is_given_back: bool
) -> None:
    both = frozenset({"compact", "delete"})
    config = dataclasses.replace(CONFIG, cleanup_policy=both, retention_ms=1000, segment_bytes=1000)
    broker = Broker(tmp_path, config)
    log = broker.log()
    log.reconfigure(config)
    for number in range(4):
        append(log, keyed((f"k{number}", "v" * 300), timestamp_ms=NOW_MS + number * 1000))
        commit_and_roll(log)
    append(log, keyed(("z", "z"), timestamp_ms=NOW_MS + 9000))
    log.advance_high_watermark(log.log_end_offset)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    result = clean(picked.job, broker.files)
    broker.cleaning.make_durable(picked)
    change(log)
    if is_given_back:
        assert not finish_pass(broker.cleaning, picked, result, now_ms=NOW_MS)
    log.durability.flush(NOW_MS)
    broker.manager.checkpoint_recovery_points()
    broker.manager.checkpoint_log_starts()
    expected = log.log_start_offset, kept_in(log), log.log_end_offset
    broker.manager.directories.unlock()  # killed
    log = Broker(tmp_path, config).log()
    assert (log.log_start_offset, kept_in(log), log.log_end_offset) == expected


@pytest.mark.parametrize("change", [truncate_and_append, start_anew, expire, delete_records])
def test_changes_between_two_segments_that_a_pass_puts_into_service_are_preserved(
    tmp_path: Path, change: Callable[[Log], None]
) -> None:
    both = frozenset({"compact", "delete"})
    config = dataclasses.replace(CONFIG, cleanup_policy=both, retention_ms=1000, segment_bytes=500)
    broker = Broker(tmp_path, config)
    log = broker.log()
    log.reconfigure(config)
    for number in range(4):
        append(log, keyed((f"k{number}", "v" * 300), timestamp_ms=NOW_MS + number * 1000))
        commit_and_roll(log)
    append(log, keyed(("z", "z"), timestamp_ms=NOW_MS + 9000))
    log.advance_high_watermark(log.log_end_offset)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    result = clean(picked.job, broker.files)
    assert len(result.segments) == 4
    broker.cleaning.make_durable(picked)
    pauses: list[int] = []

    def pause() -> Awaited:
        if not pauses:
            change(log)
        pauses.append(log.log_end_offset)
        return AT_ONCE

    finish_pass(broker.cleaning, picked, result, now_ms=NOW_MS, pause=pause)
    assert len(pauses) == 4
    assert not broker.cleaning.is_in_progress(log)
    assert not [path for path in log.directory.iterdir() if path.suffix in (names.SWAP, names.CLEANED)]
    expected = log.log_start_offset, kept_in(log), log.log_end_offset
    log.durability.flush(NOW_MS)
    broker.manager.checkpoint_recovery_points()
    broker.manager.checkpoint_log_starts()
    broker.manager.directories.unlock()  # killed
    log = Broker(tmp_path, config).log()
    assert (log.log_start_offset, kept_in(log), log.log_end_offset) == expected


def test_a_log_whose_pass_ended_with_its_worker_comes_last_for_a_while(broker: Broker) -> None:
    for name, count in (("dirty", 3), ("other", 1)):
        log = broker.log((name, 0))
        append(log, keyed(("a", "0")))
        commit_and_roll(log)
        assert broker.clean()
        for number in range(count):
            append(log, keyed(("a", str(number))))
        commit_and_roll(log)

    def picked_at(now_ms: int) -> Cleaning:
        picked = broker.cleaning.pick(now_ms)
        assert picked is not None
        broker.cleaning.give_back(picked)
        return picked

    for ends in range(4):
        picked = picked_at(NOW_MS + LAST_MS * 10 * ends)
        assert picked.log.topic == "dirty"
        broker.cleaning.worker_ended(picked, NOW_MS + LAST_MS * 10 * ends)
        pause_ms = LAST_MS << ends
        assert picked_at(NOW_MS + LAST_MS * 10 * ends + pause_ms - 1).log.topic == "other"
        assert picked_at(NOW_MS + LAST_MS * 10 * ends + pause_ms).log.topic == "dirty"


def test_a_job_has_only_producers_whose_last_batch_the_pass_may_meet(broker: Broker) -> None:
    log = broker.log()
    for producer_id in (1, 2):
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        append(log, keyed((f"k{producer_id}", "v"), **fields))
        if producer_id == 1:
            commit_and_roll(log)
    log.advance_high_watermark(log.log_end_offset)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    assert log.producer_state.producers.keys() == {1, 2}
    assert picked.job.producers == {1: ActiveProducer(0, 0)}


def test_pass_is_not_finished_if_its_recovery_point_meets_a_shortage(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash afterwards would take the gap that the pass leaves for lost records."""
    log = broker.log()
    fill(log, "1", "2")
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None

    def replace(path: str, content: Buffer, *, durable: bool) -> None:
        raise failure(OSError(errno.EMFILE, "Too many open files"), "open", path)

    monkeypatch.setattr(broker.files, "replace", replace)
    with pytest.raises(OutOfResourcesError):
        broker.cleaning.make_durable(picked)
    monkeypatch.undo()
    assert not log.is_offline
    broker.cleaning.give_back(picked)
    assert broker.clean(), "it is due again"


# First dirty offsets


def test_truncation_lowers_the_first_dirty_offset(broker: Broker, tmp_path: Path) -> None:
    log = broker.log()
    fill(log, "1", "2")
    fill(log, "3", "4", key="b")
    assert broker.clean()
    assert checkpoint(tmp_path) == "0\n1\ntopic 0 4\n"
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    broker.cleaning.write_checkpoints()
    assert checkpoint(tmp_path) == "0\n1\ntopic 0 0\n"
    fill(log, "5", "6", "7")
    assert broker.clean()
    assert [value for _, _, value in kept_in(log)] == [b"7"]
    log.truncation.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    fill(log, "8", "9")
    assert broker.clean()
    assert [value for _, _, value in kept_in(log)] == [b"9"]


def test_deletion_of_a_log_removes_its_first_dirty_offset(broker: Broker, tmp_path: Path) -> None:
    log = broker.log()
    fill(log, "1", "2", "3")
    assert broker.clean()
    broker.manager.delete(*NAME, now_ms=NOW_MS)
    log = broker.log()
    broker.cleaning.write_checkpoints()
    assert checkpoint(tmp_path) == "0\n0\n"
    fill(log, "4", "5", "6", "7", "8")
    assert broker.clean()
    assert kept_in(log) == [(4, b"a", b"8")]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_new_log_does_not_get_the_first_dirty_offset_of_a_deleted_one(tmp_path: Path, is_restarted: bool) -> None:
    broker = Broker(tmp_path)
    fill(broker.log(), "1", "2", "3")
    assert broker.clean()
    broker.cleaning.write_checkpoints()
    assert checkpoint(tmp_path) == "0\n1\ntopic 0 3\n"
    if is_restarted:
        broker.manager.close(NOW_MS)
        broker = Broker(tmp_path)
    wanted: list[str] = []
    broker.cleaning.when_checkpoint_wanted(lambda: wanted.append("soon"))
    broker.manager.delete(*NAME, now_ms=NOW_MS)
    assert wanted == ["soon"]
    fill(broker.log(), "4", "5", "6", "7", "8")
    assert checkpoint(tmp_path) == "0\n0\n", "before the new log has records"
    broker.manager.close(NOW_MS)
    broker = Broker(tmp_path)
    broker.log().advance_high_watermark(5)
    assert broker.clean()
    assert kept_in(broker.log()) == [(4, b"a", b"8")]


def test_a_log_that_is_made_anew_before_the_cleaner_starts_has_no_first_dirty_offset(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    fill(broker.log(), "1", "2", "3")
    assert broker.clean()
    broker.manager.close(NOW_MS)

    def make_anew(manager: LogManager) -> None:
        manager.delete(*NAME, now_ms=NOW_MS)
        fill(created(manager, *NAME, topic_id=None, config=CONFIG, now_ms=NOW_MS), "4", "5", "6", "7", "8")

    broker = Broker(tmp_path, before_cleaning=make_anew)
    assert broker.clean()
    assert kept_in(broker.log()) == [(4, b"a", b"8")]


class _FailingFiles(QuickFiles):
    """Fails one call on a path that has a text."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: tuple[str, int] | None = None

    def _check(self, call: str, path: str) -> None:
        if self.fails is not None and self.fails[0] in path:
            error, self.fails = self.fails[1], None
            raise failure(OSError(error, os.strerror(error)), call, path)

    def rename(self, path: str, new_path: str) -> None:
        self._check("rename", new_path)
        super().rename(path, new_path)

    def replace(self, path: str, content: Buffer, *, durable: bool) -> None:
        self._check("open", path)
        super().replace(path, content, durable=durable)


def test_a_log_whose_removal_fails_leaves_no_first_dirty_offset(tmp_path: Path) -> None:
    files = _FailingFiles()
    broker = Broker(tmp_path, files=files)
    fill(broker.log(), "1", "2", "3")
    assert broker.clean()
    assert broker.cleaning._first_dirty == {NAME: 3}
    files.fails = ("-delete", errno.EIO)
    with pytest.raises(KafkaError):
        broker.manager.delete(*NAME, now_ms=NOW_MS)
    assert broker.manager.get(*NAME) is None
    assert broker.cleaning._first_dirty == {}


def test_a_log_is_not_created_while_its_name_cannot_be_freed(tmp_path: Path) -> None:
    files = _FailingFiles()
    broker = Broker(tmp_path, files=files)
    fill(broker.log(), "1", "2", "3")
    assert broker.clean()
    broker.manager.delete(*NAME, now_ms=NOW_MS)
    files.fails = (names.CLEANER_CHECKPOINT, errno.EMFILE)
    with pytest.raises(OutOfResourcesError):
        broker.log()
    assert broker.manager.get(*NAME) is None
    assert broker.log().log_end_offset == 0
    assert checkpoint(tmp_path) == "0\n0\n"


def test_first_dirty_offset_above_the_log_end_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    fill(log, "1", "2", "3")
    broker.manager.close(NOW_MS)
    (tmp_path / names.CLEANER_CHECKPOINT).write_text("0\n2\ntopic 0 9\ngone 0 1\n")
    broker = Broker(tmp_path)
    assert "topic-0 ends at 3: its first dirty offset 9 is reset to the log start 0" in caplog.text
    broker.log().advance_high_watermark(3)
    assert broker.clean()
    assert checkpoint(tmp_path) == "0\n1\ntopic 0 3\n"


def test_cleaning_begins_at_the_log_start_without_a_readable_checkpoint(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    fill(broker.log(), "1", "2", "3")
    assert broker.clean()
    broker.manager.close(NOW_MS)
    (tmp_path / names.CLEANER_CHECKPOINT).write_text("what\n")
    broker = Broker(tmp_path)
    log = broker.log()
    log.advance_high_watermark(3)
    fill(log, "4")
    assert broker.clean()
    assert kept_in(log) == [(3, b"a", b"4")]
    assert checkpoint(tmp_path) == "0\n1\ntopic 0 4\n"


# Errors and figures


def test_disk_error_takes_the_directory_offline(broker: Broker) -> None:
    fill(broker.log(), "1")
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    broker.cleaning.fail(picked, OSError(errno.EIO, "I/O error"))
    assert not broker.manager.directories.live


def test_cleaner_leaves_a_log_alone_that_a_thread_truncates(tmp_path: Path) -> None:
    """The files of a truncation are missing on purpose: neither the disk has failed, nor is the log damaged."""
    files = WatchedRemovals()
    broker = Broker(tmp_path, files=files)
    log = broker.log()
    fill(log, "1", "2")
    fill(log, "3")
    log.segments.active._forget_timestamps()
    (directory,) = broker.manager.directories
    found: list[object] = []

    def look() -> None:
        found.extend((broker.cleaning.pick(NOW_MS), broker.cleaning.take(log, NOW_MS)))
        broker.cleaning.read_ages()
        broker.cleaning.uncleanable.add(log.name)
        assert broker.cleaning.uncleanable_in(directory, NOW_MS).partitions_count == 1
        broker.cleaning.uncleanable.clear()

    files.at_removal = look
    log.planned.reserve()
    log.truncation.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    log.planned.release()
    assert found == [None, None] * 3
    assert broker.manager.directories.live == [directory]
    fill(log, "4")
    assert broker.clean()


def test_uncleanable_logs_are_reported_by_directory(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    log = broker.log()
    fill(log, "1")
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    (directory,) = broker.manager.directories
    assert broker.cleaning.uncleanable_in(directory, NOW_MS) == Uncleanable(0, 0)
    broker.cleaning.fail(picked, CorruptSegmentError("path", 0, "damaged"))
    assert "topic-0 cannot be cleaned until the next start: path at position 0: damaged" in caplog.text
    assert broker.cleaning.uncleanable_in(directory, NOW_MS) == Uncleanable(1, log.segments.first.size)
    assert broker.cleaning.pick(NOW_MS) is None
    broker.manager.delete(*NAME, now_ms=NOW_MS)
    assert broker.cleaning.uncleanable_in(directory, NOW_MS) == Uncleanable(0, 0)


def test_finished_pass_sets_the_metrics(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    fill(broker.log(), "1", "2", "3", "4")
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    assert broker.cleaning.metrics(NOW_MS + 7).max_dirty_percent == 100
    assert broker.cleaning.metrics(NOW_MS + 7).time_since_last_run_ms == 7
    result = clean(picked.job, broker.files)
    assert finish_pass(broker.cleaning, picked, result, now_ms=NOW_MS)
    assert broker.cleaning.metrics(NOW_MS).cleaner_recopy_percent == 12  # read twice, a quarter kept
    assert (result.records_read, result.records_kept) == (4, 1)
    assert result.bytes_read == 8 * result.bytes_kept
    assert "topic-0 cleaned from 0 to 4: 1 of 4 records" in caplog.text


def test_gap_at_the_end_of_the_cleanable_part_is_cleaned_once(broker: Broker) -> None:
    log = broker.log()
    fill(log, "1", "2")
    later = bytearray(keyed(("a", "3")))
    later[:8] = (9).to_bytes(8)
    log.appends.append_as_follower(memoryview(later), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments.all()] == [0, 2]
    log.reconfigure(dataclasses.replace(CONFIG, segment_bytes=1))
    far = 1 << 32  # too far for a segment that begins where the last batch ends
    later[:8] = far.to_bytes(8)
    log.appends.append_as_follower(memoryview(later), now_ms=NOW_MS)
    log.advance_high_watermark(far + 1)
    assert [segment.base_offset for segment in log.segments.all()] == [0, 2, far]
    assert broker.clean()
    assert broker.cleaning.pick(NOW_MS) is None
    assert [offset for offset, _, _ in kept_in(log)] == [9, far]


def test_marker_of_aborted_data_below_the_log_start_outlives_the_data(broker: Broker) -> None:
    log = broker.log()
    append(log, keyed(("a", "1"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, 1))
    fill(log, "2", "3")
    log.delete_records_before(2)
    fill(log, "4", key="b")
    assert broker.clean()
    stored = [header for _, header in batches(Path(log.segments.first.path).read_bytes())]
    # The data goes, its marker stays for now: the other way round would be an open transaction to a start.
    assert [(header.is_control, header.records_count) for header in stored] == [
        (False, 0),
        (True, 1),
        (False, 1),
        (False, 1),
    ]


@pytest.mark.parametrize("control_type", [ControlType.COMMIT, ControlType.ABORT])
def test_marker_that_justifies_a_removal_survives_a_power_cut_after_it(control_type: ControlType) -> None:
    """The marker is in the active segment, which nothing else syncs."""
    disk = SimulatedDisk()
    disk.provide_directory("/data")

    def start() -> Broker:
        return Broker(Path("/data"), files=DiskFiles(disk, lambda: 0, lambda _: None))

    broker = start()
    log = broker.log()
    append(log, keyed(("a", "1")))
    append(log, keyed(("a", "2"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    commit_and_roll(log)
    append_marker(log, marker(control_type, 1))
    log.advance_high_watermark(log.log_end_offset)
    assert broker.clean()
    kept = [b"2"] if control_type is ControlType.COMMIT else [b"1"]
    assert [value for _, _, value in kept_in(log)] == kept
    broker.files.sync_directory(str(log.directory))
    assert isinstance(broker.files, DiskFiles)
    broker.files.die()
    disk.lose_power(PowerCut())
    log = start().log()
    assert [value for _, _, value in kept_in(log)] == kept
    assert not log.producer_state.has_open_transaction


def test_log_whose_job_fails_does_not_stop_the_cleaning_of_others(broker: Broker) -> None:
    logs = {name: broker.log((name, 0)) for name in ("bad", "good")}
    fill(logs["bad"], "1", "2", "3")
    fill(logs["good"], "1")

    logs["bad"].segments.first.transaction_index.release()
    (logs["bad"].directory / names.segment_file(0, names.TRANSACTION_INDEX)).write_bytes(b"odd")
    picked = [broker.cleaning.pick(NOW_MS) for _ in range(2)]
    assert [each and each.log.topic for each in picked] == ["good", None]
    assert broker.cleaning.uncleanable == {logs["bad"].name}


def test_checkpoints_are_written_by_one_thread_at_a_time(broker: Broker, tmp_path: Path) -> None:
    log = broker.log()
    fill(log, "1")
    assert broker.clean()

    def write() -> None:
        for _ in range(200):
            broker.cleaning.moved(log, broker.manager.directories[0])
            broker.cleaning.write_checkpoints()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broker.manager.directories.live
    assert checkpoint(tmp_path) == "0\n1\ntopic 0 1\n"


def test_lowered_first_dirty_offset_requests_a_checkpoint(broker: Broker, tmp_path: Path) -> None:
    log = broker.log()
    fill(log, "1", "2")
    assert broker.clean()
    broker.cleaning.when_checkpoint_wanted(broker.cleaning.write_checkpoints)
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    assert checkpoint(tmp_path) == "0\n1\ntopic 0 0\n"


def test_pick_after_read_ages_opens_no_file(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker.log()
    fill(log, "1")
    fill(log, "2")
    append(log, keyed(("a", "3")))  # in the active segment, as after a start
    for segment in log.segments.all():
        segment._forget_timestamps()
    log.release()
    broker.cleaning.read_ages()
    log.release()
    opened: list[str] = []
    original = QuickFiles.open
    monkeypatch.setattr(
        QuickFiles, "open", lambda files, path, **options: opened.append(path) or original(files, path, **options)
    )
    assert broker.cleaning.pick(NOW_MS) is not None
    assert opened == []


def test_timestamp_found_by_a_thread_does_not_replace_a_later_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = broker.log()
    append(log, keyed(("a", "1")))
    segment = log.segments.active
    segment._forget_timestamps()
    original = Segment._find_largest

    def slow(self: Segment) -> TimestampOffset:
        found = original(self)
        monkeypatch.undo()
        append(log, keyed(("b", "1"), timestamp_ms=NOW_MS + 5000))  # by the thread that owns the log
        return found

    monkeypatch.setattr(Segment, "_find_largest", slow)
    segment.largest()
    assert segment.largest().timestamp_ms == NOW_MS + 5000
