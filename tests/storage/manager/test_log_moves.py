"""A copy follows its log whatever happens to the log, and no crash in the middle of a move loses what was there."""

import contextlib
import errno
import shutil
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from config.log_config import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records.control import ControlType
from storage.cleaning.cleaner import clean
from storage.cleaning.log_cleaning import CleanerSettings, LogCleaning
from storage.disk.files import Files
from storage.disk.meta_properties import MetaProperties
from storage.disk.names import DirectoryState
from storage.disk.shortages import TryLaterError
from storage.log.log import Log
from storage.log.log_reader import LogReader
from storage.manager.log_manager import LogManager
from storage.manager.log_moves import FoundLog, LogContents, Settled, catch_up, settle, write_marker
from storage.manager.log_startup import LogManagerSettings, NoUsableDirectoryError
from storage.producers.producer_snapshots import encode
from tests.storage.builders import (
    NOW_MS,
    QuickFiles,
    append,
    append_marker,
    batch,
    created,
    done,
    in_thread,
    log_config,
    marker,
    pause,
    read_all,
)
from tests.storage.compacted import finish_pass
from tests.support.faulty_files import Crashed, FaultyFiles, where_torn
from tests.support.same_thread import SameThread

CONFIG = log_config(segment_bytes=600, index_interval_bytes=100, segment_index_bytes=240, file_delete_delay_ms=1000)
META = MetaProperties(1, "cluster")
NAME = ("topic", 0)


def start(folder: Path, files: Files | None = None, config: LogConfig = CONFIG) -> LogManager:
    paths = [str(folder / "a"), str(folder / "b")]
    manager = LogManager(
        paths,
        LogManagerSettings(file_delete_delay_ms=1000),
        files or QuickFiles(),
        random=Random(),
        new_threads=SameThread,
        on_directory_failed=lambda *_: None,
    )
    manager.startup.open()
    manager.startup.claim(META)
    manager.startup.load(lambda topic: config, now_ms=NOW_MS)
    return manager


def log_of(manager: LogManager) -> Log:
    log = manager.get(*NAME)
    assert log is not None
    return log


def create(manager: LogManager) -> Log:
    return created(manager, *NAME, topic_id=None, config=CONFIG, now_ms=NOW_MS)


def copy_of(manager: LogManager) -> Log:
    log = log_of(manager)
    source = manager.directory_of(*NAME)
    target = next(one for one in manager.directories if one is not source)
    return manager.create_future(log, target, now_ms=NOW_MS)


def catch_up_wholly(log: Log, copy: Log, max_bytes: int = 200) -> None:
    while catch_up(log, copy, max_bytes, now_ms=NOW_MS) or copy.log_end_offset != log.log_end_offset:
        pass


def switch(manager: LogManager, log: Log, copy: Log, *, is_finished: bool = True) -> Log:
    """A whole move, in the order in which the broker takes its steps."""
    catch_up_wholly(log, copy)
    copy.durability.flush(NOW_MS)
    manager.move_markers.mark_whole(copy, log, now_ms=NOW_MS)
    catch_up_wholly(log, copy)
    copy.take_over_state(log)
    old_directory = manager.directory_of(*NAME)
    assert old_directory is not None
    moved = manager.put_future_in_service(*NAME, now_ms=NOW_MS)
    if is_finished:
        manager.move_markers.finish(moved, old_directory, now_ms=NOW_MS)
    return moved


def facts(log: Log) -> dict[str, object]:
    """Return everything in which two logs may differ for readers, appenders and followers."""
    return {
        "batches": list(read_all(log)),
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "high watermark": log.high_watermark,
        "last stable": log.last_stable_offset,
        "epochs": list(log.leader_epochs.entries),
        "producers": encode(log.producer_state.producers.values()),
        "aborted": log.reader.aborted_transactions(log.log_start_offset, log.log_end_offset),
    }


# Catching up


def fill(log: Log) -> None:
    for number in range(6):
        append(log, batch(3, size=40, producer_id=7, sequence=3 * number))
    append(log, batch(1, producer_id=8, sequence=0, is_transactional=True), leader_epoch=2)
    append_marker(log, marker(ControlType.ABORT, 8))
    append(log, batch(2, size=30), leader_epoch=3)
    log.advance_high_watermark(log.log_end_offset)


def truncate_into_an_older_epoch(log: Log) -> None:
    log.truncation.truncate_to(7, now_ms=NOW_MS)
    append(log, batch(4, size=25), leader_epoch=5)


def truncate_and_write_as_much_again(log: Log) -> None:
    end_offset = log.log_end_offset
    log.truncation.truncate_to(18, now_ms=NOW_MS)
    append(log, batch(end_offset - 18), leader_epoch=9)


def begin_anew_beyond(log: Log) -> None:
    log.truncation.truncate_fully_and_start_at(log.log_end_offset + 100, now_ms=NOW_MS)
    append(log, batch(2), leader_epoch=9)


def begin_anew_below_an_empty_log(log: Log) -> None:
    log.truncation.truncate_fully_and_start_at(4, now_ms=NOW_MS)
    for _ in range(8):
        append(log, batch(4), leader_epoch=9)


def begin_anew_within(log: Log) -> None:
    log.truncation.truncate_fully_and_start_at(4, now_ms=NOW_MS)


EVENTS: dict[str, Callable[[Log], object]] = {
    "nothing": lambda log: None,
    "append": lambda log: append(log, batch(5), leader_epoch=3),
    "truncate to a batch": lambda log: log.truncation.truncate_to(9, now_ms=NOW_MS),
    "truncate into a batch": lambda log: log.truncation.truncate_to(10, now_ms=NOW_MS),
    "truncate into an older epoch": truncate_into_an_older_epoch,
    "truncate and write as much again": truncate_and_write_as_much_again,
    "truncate to nothing": lambda log: log.truncation.truncate_to(0, now_ms=NOW_MS),
    "begin anew beyond": begin_anew_beyond,
    "begin anew within": begin_anew_within,
    "delete records": lambda log: log.delete_records_before(9),
    "delete records within a batch": lambda log: log.delete_records_before(10),
    "delete all records": lambda log: log.delete_records_before(log.high_watermark),
}


@pytest.mark.parametrize("bytes_copied_before", [0, 300, 100_000])
@pytest.mark.parametrize("event", EVENTS)
def test_copy_follows_appends_truncations_and_deletions(tmp_path: Path, event: str, bytes_copied_before: int) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    copy = copy_of(manager)
    copied = 0
    while copied < bytes_copied_before and (size := catch_up(log, copy, 150, now_ms=NOW_MS)):
        copied += size
    EVENTS[event](log)
    catch_up_wholly(log, copy)
    expected = facts(log)
    found = facts(copy)
    assert found["batches"] == expected["batches"]
    assert (found["start"], found["end"], found["high watermark"]) == (
        expected["start"],
        expected["end"],
        expected["high watermark"],
    )
    assert facts(switch(manager, log, copy)) == expected


def test_empty_copy_follows_a_log_that_restarts_at_a_lower_offset(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    log.delete_records_before(log.high_watermark)
    copy = copy_of(manager)
    catch_up_wholly(log, copy)
    assert copy.log_start_offset == copy.log_end_offset == log.log_end_offset
    begin_anew_below_an_empty_log(log)
    catch_up_wholly(log, copy)
    expected = facts(log)
    assert facts(switch(manager, log, copy)) == expected


@pytest.mark.parametrize("seed", range(30))
def test_copy_equals_its_log_after_random_changes(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    manager = start(tmp_path)
    log = create(manager)
    copy = copy_of(manager)
    epoch = 0
    for _ in range(60):
        match random.randrange(10):
            case 0:
                epoch += 1
                log.truncation.truncate_to(random.randint(log.log_start_offset, log.log_end_offset), now_ms=NOW_MS)
            case 1:
                log.delete_records_before(random.randint(log.log_start_offset, log.high_watermark))
            case 2:
                log.advance_high_watermark(random.randint(log.log_start_offset, log.log_end_offset))
            case 3 | 4 | 5:
                append(log, batch(random.randint(1, 4), size=random.randint(1, 80)), leader_epoch=epoch)
            case _:
                catch_up(log, copy, random.randint(1, 400), now_ms=NOW_MS)
    catch_up_wholly(log, copy)
    expected = facts(log)
    assert facts(switch(manager, log, copy)) == expected


def test_truncation_between_comparison_and_read_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log belongs to another thread: what is read then may stand behind batches that the log holds no more."""
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    copy = copy_of(manager)
    while copy.log_end_offset < 12:
        catch_up(log, copy, 100, now_ms=NOW_MS)
    read = LogReader.read

    def truncate_and_read(self: LogReader, offset: int, *args: object, **fields: object) -> object:
        if self is log.reader:
            monkeypatch.undo()
            log.truncation.truncate_to(6, now_ms=NOW_MS)
            append(log, batch(5, size=25), leader_epoch=5)
            append(log, batch(5, size=25), leader_epoch=5)
        return read(self, offset, *args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(LogReader, "read", truncate_and_read)
    catch_up(log, copy, 100, now_ms=NOW_MS)
    assert log.log_end_offset == 16
    catch_up_wholly(log, copy)
    expected = facts(log)
    assert facts(copy)["batches"] == expected["batches"]
    assert facts(switch(manager, log, copy)) == expected


# Changing places


def test_reader_of_the_old_log_can_finish_until_its_files_are_removed(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    expected = list(read_all(log))
    log.release()
    moved = switch(manager, log, copy_of(manager))
    assert manager.get(*NAME) is moved
    assert manager.directory_of(*NAME) is manager.directories[1]
    assert list(read_all(log)) == list(read_all(moved)) == expected
    log.durability.flush(NOW_MS)
    (old,) = (tmp_path / "a").glob("topic-0*")
    assert old.name.endswith("-delete")
    manager.remove_deleted(NOW_MS + 1000)
    assert not old.exists()
    assert not manager.directories[0].is_offline
    with pytest.raises(KafkaError) as caught:
        log.reader.read(0, 10, upper_bound_offset=1, min_one_batch=True)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_moved_log_writes_to_its_new_directory(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    moved = switch(manager, log, copy_of(manager))
    for number in range(8):
        append(moved, batch(3, size=40, producer_id=9, sequence=3 * number), leader_epoch=11)
    expected = facts(moved)
    manager.close(NOW_MS)
    again = log_of(start(tmp_path))
    again.advance_high_watermark(expected["high watermark"])  # type: ignore[arg-type]
    assert facts(again) == expected
    assert str(again.directory) == str(tmp_path / "b" / "topic-0")


def test_copy_is_counted_flushed_and_loaded_but_not_served(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    copy = copy_of(manager)
    assert [len(directory.logs) for directory in manager.directories] == [1, 1]
    assert list(manager.logs()) == [log]
    catch_up(log, copy, 300, now_ms=NOW_MS)
    copied = copy.log_end_offset
    manager.close(NOW_MS)
    manager = start(tmp_path)
    log, again = log_of(manager), manager.future(*NAME)
    assert again is not None
    assert again.is_future
    assert again.log_end_offset == copied
    assert manager.future_directory_of(*NAME) is manager.directories[1]
    assert facts(switch(manager, log, again))["end"] == log.log_end_offset


def test_cancelled_move_leaves_no_files(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    copy = copy_of(manager)
    manager.drop_future(*NAME, now_ms=NOW_MS)
    manager.drop_future(*NAME, now_ms=NOW_MS)
    assert manager.future(*NAME) is None
    with pytest.raises(KafkaError):
        catch_up(log, copy, 100, now_ms=NOW_MS)
    manager.remove_deleted(NOW_MS + 1000)
    assert not list((tmp_path / "b").glob("topic-0*"))
    assert not manager.directories[1].is_offline


def test_deletion_of_a_log_deletes_its_copy(tmp_path: Path) -> None:
    manager = start(tmp_path)
    create(manager)
    copy_of(manager)
    manager.delete(*NAME, now_ms=NOW_MS)
    assert manager.get(*NAME) is None
    assert manager.future(*NAME) is None
    manager.remove_deleted(NOW_MS + 1000)
    assert not list(tmp_path.glob("*/topic-0*"))


def test_retention_waits_for_the_end_of_a_move(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    log.delete_records_before(log.high_watermark)
    copy_of(manager)
    assert done(manager.run_retention(NOW_MS, pause, in_thread)) == 0
    manager.drop_future(*NAME, now_ms=NOW_MS)
    assert done(manager.run_retention(NOW_MS, pause, in_thread)) > 0


def test_failed_target_directory_leaves_the_log_in_service(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = start(tmp_path, files)
    log = create(manager)
    fill(log)
    expected = list(read_all(log))
    copy = copy_of(manager)
    files.fail_from(len(files.calls), errno.ENOSPC)
    with pytest.raises(KafkaError) as caught:
        catch_up_wholly(log, copy)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [directory.is_offline for directory in manager.directories] == [False, True]
    assert manager.future(*NAME) is None
    assert list(read_all(log)) == expected


def test_move_is_rejected_while_a_directory_is_offline(tmp_path: Path) -> None:
    manager = start(tmp_path)
    create(manager)
    manager.directories.fail(manager.directories[1], OSError(errno.EIO, "gone"))
    with pytest.raises(KafkaError) as caught:
        copy_of(manager)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_move_of_a_topic_with_too_long_a_name_is_rejected(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = created(manager, "t" * 249, 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    with pytest.raises(KafkaError) as caught:
        manager.create_future(log, manager.directories[1], now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_log_is_created_in_the_preferred_directory(tmp_path: Path) -> None:
    manager = start(tmp_path)
    manager.creation.prefer("wanted", 0, manager.directories[1])
    created(manager, "wanted", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    assert manager.directory_of("wanted", 0) is manager.directories[1]
    manager.creation.prefer("wanted", 0, manager.directories[0])
    manager.delete("wanted", 0, now_ms=NOW_MS)
    created(manager, "other", 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)
    assert manager.directory_of("other", 0) is manager.directories[0]


# The cleaner


COMPACTED = log_config(cleanup_policy=frozenset({"compact"}), segment_bytes=300, min_cleanable_dirty_ratio=0.0)


def fill_compacted(manager: LogManager) -> Log:
    log = created(manager, *NAME, topic_id=None, config=COMPACTED, now_ms=NOW_MS)
    for _ in range(10):
        append(log, batch(2, size=50))
    log.advance_high_watermark(log.log_end_offset)
    log.appends.roll(NOW_MS)
    return log


def test_moving_log_is_not_cleaned_and_a_pass_in_progress_is_discarded(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = fill_compacted(manager)
    cleaning = LogCleaning(manager, QuickFiles(), CleanerSettings(dedupe_buffer_size=1 << 16))
    under_way = cleaning.pick(NOW_MS)
    assert under_way is not None
    before = list(read_all(log))
    copy = copy_of(manager)
    assert not finish_pass(cleaning, under_way, clean(under_way.job, QuickFiles()), now_ms=NOW_MS)
    assert list(read_all(log)) == before
    assert not list((tmp_path / "a" / "topic-0").glob("*.swap"))
    assert cleaning.pick(NOW_MS) is None
    switch(manager, log, copy)
    assert cleaning.pick(NOW_MS) is not None


@pytest.mark.parametrize("ending", ["finish", "give back", "fail"])
def test_pass_that_ends_after_the_move_changes_neither_directory(tmp_path: Path, ending: str) -> None:
    manager = start(tmp_path)
    log = fill_compacted(manager)
    cleaning = LogCleaning(manager, QuickFiles(), CleanerSettings(dedupe_buffer_size=1 << 16))
    under_way = cleaning.pick(NOW_MS)
    assert under_way is not None
    result = clean(under_way.job, QuickFiles())
    moved = switch(manager, log, copy_of(manager))
    before = list(read_all(moved))
    if ending == "finish":
        assert not finish_pass(cleaning, under_way, result, now_ms=NOW_MS)
    elif ending == "give back":
        cleaning.give_back(under_way)
    else:
        cleaning.fail(under_way, FileNotFoundError(errno.ENOENT, "gone"))
    assert list(read_all(moved)) == before
    assert not manager.directories.has_offline
    assert NAME not in cleaning.uncleanable
    assert cleaning.pick(NOW_MS) is not None


@pytest.mark.parametrize("is_written", [True, False])
def test_first_dirty_offset_moves_with_its_log(tmp_path: Path, is_written: bool) -> None:
    manager = start(tmp_path)
    log = fill_compacted(manager)
    cleaning = LogCleaning(manager, QuickFiles(), CleanerSettings(dedupe_buffer_size=1 << 16))
    picked = cleaning.pick(NOW_MS)
    assert picked is not None
    assert finish_pass(cleaning, picked, clean(picked.job, QuickFiles()), now_ms=NOW_MS)
    cleaning.write_checkpoints()
    assert log.log_end_offset == 20
    first_dirty = cleaning.cleanable_part_of(log, NOW_MS).first_dirty_offset
    assert first_dirty > 0
    moved = switch(manager, log, copy_of(manager))
    if is_written:
        cleaning.write_checkpoints()
        assert (tmp_path / "a" / "cleaner-offset-checkpoint").read_text() == "0\n0\n"
    manager.close(NOW_MS)
    again = start(tmp_path, config=COMPACTED)
    cleaning = LogCleaning(again, QuickFiles(), CleanerSettings())
    cleaning.load()
    moved = log_of(again)
    moved.advance_high_watermark(moved.log_end_offset)
    assert cleaning.cleanable_part_of(moved, NOW_MS).first_dirty_offset == first_dirty


# What a start finds


def found(directory: str, state: DirectoryState = DirectoryState.CURRENT) -> FoundLog:
    return FoundLog(directory, f"{directory}/{state.name}", NAME, state)


HERE, THERE = found("a"), found("b")
COPY, SECOND_COPY = found("b", DirectoryState.FUTURE), found("c", DirectoryState.FUTURE)
SETTLED: dict[str, tuple[list[FoundLog], dict[FoundLog, str], Settled]] = {
    "no move": ([HERE], {}, Settled([HERE], [], [])),
    "a move under way": ([HERE, COPY], {}, Settled([HERE, COPY], [], [])),
    "a copy that was whole once": ([HERE, COPY], {COPY: "a"}, Settled([HERE, COPY], [], [])),
    "two copies": ([HERE, COPY, SECOND_COPY], {}, Settled([HERE, COPY], [], [SECOND_COPY])),
    "a copy beside its log": ([THERE, COPY], {}, Settled([THERE], [], [COPY])),
    "both have the name": ([HERE, THERE], {THERE: "a"}, Settled([THERE], [], [HERE])),
    "both have the name, listed the other way round": ([THERE, HERE], {THERE: "a"}, Settled([THERE], [], [HERE])),
    "the old one has gone": ([COPY], {COPY: "a"}, Settled([], [COPY], [])),
    "the old one is out of reach": ([COPY], {COPY: "offline"}, Settled([], [], [])),
    "a copy alone": ([COPY], {}, Settled([], [], [])),
    "a marker that was not taken away": ([THERE], {THERE: "a"}, Settled([THERE], [], [])),
    "two logs that no move has made": ([HERE, THERE], {}, Settled([HERE, THERE], [], [])),
}


@pytest.mark.parametrize("case", SETTLED)
def test_settle_serves_promotes_and_retires_logs_by_their_markers(case: str) -> None:
    logs, markers, expected = SETTLED[case]
    assert settle(logs, {"a", "b", "c"}, markers.get, lambda log: pytest.fail("read")) == expected


@pytest.mark.parametrize(
    ("here", "there", "kept"),
    [
        (LogContents(2, 10, 5), LogContents(2, 11, 0), THERE),
        (LogContents(3, 10, 5), LogContents(2, 11, 6), HERE),
        (LogContents(2, 10, 5), LogContents(2, 10, 6), THERE),
        (LogContents(2, 10, 5), LogContents(2, 10, 5), HERE),
    ],
    ids=["more records", "newer leader epoch", "higher recovery point", "equal"],
)
def test_settle_keeps_the_newest_log_when_all_are_marked_as_replaced(
    here: LogContents, there: LogContents, kept: FoundLog, caplog: pytest.LogCaptureFixture
) -> None:
    retired = HERE if kept is THERE else THERE
    contents = {HERE: here, THERE: there}
    settled = settle([HERE, THERE], {"a", "b"}, {HERE: "b", THERE: "a"}.get, contents.get)
    assert settled == Settled([kept], [], [retired])
    assert f"{kept.path} is kept" in caplog.text


def test_settle_retires_no_log_when_all_are_marked_and_one_is_unreadable() -> None:
    contents = {HERE: LogContents(2, 10, 5)}
    assert settle([HERE, THERE], {"a", "b"}, {HERE: "b", THERE: "a"}.get, contents.get) == Settled([], [], [])


@pytest.mark.parametrize("longer", ["a", "b"])
@pytest.mark.parametrize("damage", [b"", b"\x00" * 500])
def test_start_keeps_the_log_with_the_most_records_when_both_name_each_other(
    tmp_path: Path, longer: str, damage: bytes
) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    expected = list(read_all(log))
    manager.close(NOW_MS)
    shutil.copytree(tmp_path / "a" / "topic-0", tmp_path / "b" / "topic-0")
    shorter = "b" if longer == "a" else "a"
    (last,) = sorted((tmp_path / shorter / "topic-0").glob("*.log"))[-1:]
    last.write_bytes(last.read_bytes()[:-3] + damage)
    for here, there in (("a", "b"), ("b", "a")):
        write_marker(QuickFiles(), str(tmp_path / here / "topic-0"), str(tmp_path / there))
        (tmp_path / here / ".kafka_cleanshutdown").unlink(missing_ok=True)
    manager = start(tmp_path)
    assert str(log_of(manager).directory) == str(tmp_path / longer / "topic-0")
    assert list(read_all(log_of(manager))) == expected
    assert not list(tmp_path.glob("*/topic-0/moved-from"))


# A move there and back


def marked(folder: Path) -> list[str]:
    return sorted(path.parent.parent.name for path in folder.glob("*/topic-0*/moved-from"))


def test_second_move_removes_the_marker_of_an_unfinished_first_one(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    moved = switch(manager, log, copy_of(manager), is_finished=False)
    assert marked(tmp_path) == ["b"]
    copy = copy_of(manager)
    catch_up_wholly(moved, copy)
    manager.move_markers.mark_whole(copy, moved, now_ms=NOW_MS)
    assert marked(tmp_path) == ["a"]


def test_second_move_does_not_mark_its_copy_before_the_first_one_can_be_finished(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    fill(log)
    moved = switch(manager, log, copy_of(manager), is_finished=False)
    copy = copy_of(manager)
    catch_up_wholly(moved, copy)
    moved.durability.hold_flushes()
    with pytest.raises(TryLaterError):
        manager.move_markers.mark_whole(copy, moved, now_ms=NOW_MS)
    assert marked(tmp_path) == ["b"]
    moved.durability.release_flushes()
    manager.move_markers.mark_whole(copy, moved, now_ms=NOW_MS)
    assert marked(tmp_path) == ["a"]


def test_second_move_waits_for_a_running_end_of_the_first_one(tmp_path: Path) -> None:
    is_syncing, may_go_on = threading.Event(), threading.Event()

    class SlowFiles(QuickFiles):
        is_slow = False

        def sync_directory(self, path: str) -> None:
            if self.is_slow and path == str(tmp_path / "a"):
                is_syncing.set()
                assert may_go_on.wait(20)
            super().sync_directory(path)

    files = SlowFiles()
    manager = start(tmp_path, files)
    log = create(manager)
    fill(log)
    moved = switch(manager, log, copy_of(manager), is_finished=False)
    copy = copy_of(manager)
    catch_up_wholly(moved, copy)
    files.is_slow = True
    with ThreadPoolExecutor(2) as threads:
        finishing = threads.submit(lambda: manager.move_markers.finish(moved, manager.directories[0], now_ms=NOW_MS))
        assert is_syncing.wait(20)
        marking = threads.submit(lambda: manager.move_markers.mark_whole(copy, moved, now_ms=NOW_MS))
        with pytest.raises(TimeoutError):
            marking.result(0.1)
        assert marked(tmp_path) == ["b"]
        may_go_on.set()
        finishing.result(20)
        marking.result(20)
    assert marked(tmp_path) == ["a"]


# Crashes


class Move:
    """A log is written, moved, and written again."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.synced: dict[int, bytes] = {}

    def run(self, folder: Path, files: Files) -> None:
        manager = start(folder, files)
        log = create(manager)
        for number in range(6):
            self.append(log, batch(2, size=40, producer_id=7, sequence=2 * number))
        log.durability.flush(NOW_MS)
        manager.checkpoint_recovery_points()
        self.synced = dict(self.acknowledged)
        self.append(log, batch(1))
        moved = switch(manager, log, copy_of(manager))
        self.append(moved, batch(1))
        manager.remove_deleted(NOW_MS + 1000)
        manager.close(NOW_MS)

    def append(self, log: Log, records: memoryview) -> None:
        offset = log.log_end_offset
        append(log, records)
        self.acknowledged[offset] = bytes(records)

    def check(self, folder: Path, must_be_there: dict[int, bytes]) -> None:
        """All records exist, another move works, and all records still exist."""
        for _ in range(2):
            manager = start(folder)
            log = manager.get(*NAME)
            if log is None:
                assert not must_be_there
                manager.directories.unlock()
                return
            assert must_be_there.items() <= dict(read_all(log)).items()
            copy = manager.future(*NAME) or copy_of(manager)
            moved = switch(manager, log, copy)
            assert must_be_there.items() <= dict(read_all(moved)).items()
            manager.remove_deleted(NOW_MS + 1000)
            manager.close(NOW_MS)
            # (a, b) hold one log, and nothing else of it
            assert len(list(folder.glob("*/topic-0*"))) == 1


class MoveThereAndBack(Move):
    """The first move ends without its last step."""

    def run(self, folder: Path, files: Files) -> None:
        manager = start(folder, files)
        log = create(manager)
        for number in range(3):
            self.append(log, batch(2, size=40, producer_id=7, sequence=2 * number))
        log.durability.flush(NOW_MS)
        manager.checkpoint_recovery_points()
        self.synced = dict(self.acknowledged)
        for _ in range(2):
            log = switch(manager, log, copy_of(manager), is_finished=False)
            self.append(log, batch(1))
            log.durability.flush(NOW_MS)
            self.synced = dict(self.acknowledged)
        manager.remove_deleted(NOW_MS + 1000)
        manager.close(NOW_MS)


@pytest.fixture(scope="module")
def calls_there_and_back(tmp_path_factory: pytest.TempPathFactory) -> int:
    files = FaultyFiles()
    MoveThereAndBack().run(tmp_path_factory.mktemp("count"), files)
    return len(files.calls)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    files = FaultyFiles()
    Move().run(tmp_path_factory.mktemp("count"), files)
    return files.calls


def each_call(numbers: Iterable[int], run: Callable[[int], None]) -> None:
    for number in numbers:
        try:
            run(number)
        except BaseException as failure:
            failure.add_note(f"call {number}")
            raise


@pytest.mark.parametrize("torn_bytes", [0, 30])
def test_kill_at_any_call_of_a_move_keeps_one_log(memory_path: Path, calls: list[str], torn_bytes: int) -> None:
    def run(number: int) -> None:
        files, move, folder = FaultyFiles(), Move(), memory_path / str(number)
        files.crash_at(number, torn_bytes=torn_bytes)
        with pytest.raises(Crashed):
            move.run(folder, files)
        files.bury()
        move.check(folder, move.acknowledged)

    each_call(where_torn(calls, torn_bytes), run)


@pytest.mark.parametrize("seed", [None, 1])
def test_power_cut_at_any_call_of_a_move_keeps_one_log(memory_path: Path, calls: list[str], seed: int | None) -> None:
    def run(number: int) -> None:
        files, move, folder = FaultyFiles(), Move(), memory_path / str(number)
        files.crash_at(number)
        with pytest.raises(Crashed):
            move.run(folder, files)
        files.bury()
        files.lose_unsynced(folder, None if seed is None else Random(1000 * seed + number))
        move.check(folder, move.synced)

    each_call(range(len(calls)), run)


@pytest.mark.parametrize("is_lasting", [False, True])
def test_failure_of_any_call_of_a_move_keeps_one_log(memory_path: Path, calls: list[str], is_lasting: bool) -> None:
    def run(number: int) -> None:
        files, move, folder = FaultyFiles(), Move(), memory_path / str(number)
        (files.fail_from if is_lasting else files.fail_call)(number, errno.EIO)
        with contextlib.suppress(KafkaError, NoUsableDirectoryError, OSError, AssertionError):
            move.run(folder, files)
        files.bury()
        move.check(folder, move.acknowledged)

    each_call(range(len(calls)), run)


def test_kill_at_any_call_of_a_move_there_and_back_keeps_one_log(memory_path: Path, calls_there_and_back: int) -> None:
    def run(number: int) -> None:
        files, move, folder = FaultyFiles(), MoveThereAndBack(), memory_path / str(number)
        files.crash_at(number)
        with pytest.raises(Crashed):
            move.run(folder, files)
        files.bury()
        move.check(folder, move.acknowledged)

    each_call(range(calls_there_and_back), run)


@pytest.mark.parametrize("seed", [None, pytest.param(1, marks=pytest.mark.soak)])
def test_power_cut_at_any_call_of_a_move_there_and_back_keeps_one_log(
    memory_path: Path, calls_there_and_back: int, seed: int | None
) -> None:
    def run(number: int) -> None:
        files, move, folder = FaultyFiles(), MoveThereAndBack(), memory_path / str(number)
        files.crash_at(number)
        with pytest.raises(Crashed):
            move.run(folder, files)
        files.bury()
        files.lose_unsynced(folder, None if seed is None else Random(1000 * seed + number))
        move.check(folder, move.synced)

    each_call(range(calls_there_and_back), run)
