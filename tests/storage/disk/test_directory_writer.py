"""A slow log directory: which appends are pending, in which order they are written, and when they become readable."""

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.compression import Compression
from protocol.records.control import ControlType
from storage.batches.validation import TooCostlyError
from storage.disk.directory_writer import (
    FAST_SECONDS_MIN,
    FAST_WRITES_MIN,
    PENDING_SIZE_MAX,
    SHARE_WRITES_MAX,
    SHORTAGE_TRIES_MAX,
    SLOW_AGAIN_S,
    THREADS,
    Action,
    DirectoryWriter,
)
from storage.disk.files import Buffer, OpenFile, ShortageError, failure
from storage.disk.shortages import TryLaterError
from storage.log.log import Log
from storage.log.log_state import LogOptions
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
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
from tests.support.faulty_files import FaultyFiles

CONFIG = log_config(segment_bytes=400, index_interval_bytes=0, file_delete_delay_ms=0)


class Disk(QuickFiles):
    """Writes to log files take as long as `write_s` says, by a clock of its own, or fail as `errors` says."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.write_s = 0.0
        self.starved_part = 0.0
        """The part of the time of a write for which the thread waits for a processor."""
        self.starved_s = 0.0
        self.undelayed_count = 0
        self.errors: deque[int] = deque()
        self.written: list[str] = []

    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        if file.path.endswith(".log"):
            self.now_s += self.write_s
            self.starved_s += self.write_s * self.starved_part
            if self.errors:
                number = self.errors.popleft()
                raise failure(OSError(number, os.strerror(number)), "write", file.path)
            self.written.append(os.path.basename(os.path.dirname(file.path)))
        return super().write(file, buffer, position)

    def monotonic_s(self) -> float:
        return self.now_s

    def undelayed_s(self) -> float:
        self.undelayed_count += 1
        return self.now_s - self.starved_s


class Thread:
    """The threads of a directory, which work when the test says so."""

    def __init__(self) -> None:
        self._given: list[tuple[Action, Action]] = []
        self._ended: list[Action] = []
        self.given_count = 0
        """How many shares the threads got."""

    def start(self, work: Action, done: Action) -> None:
        self._given.append((work, done))
        self.given_count += 1
        assert len(self._given) + len(self._ended) <= THREADS

    @property
    def is_busy(self) -> bool:
        return bool(self._given or self._ended)

    def store(self) -> None:
        """Up to the end of all writes, of which the thread that owns the logs does not know yet."""
        assert self._given
        given, self._given = self._given, []
        for work, end in given:
            work()
            self._ended.append(end)

    def store_one(self, number: int) -> None:
        """Let one of the busy threads end its share, also for the thread that owns the logs."""
        work, end = self._given.pop(number)
        work()
        end()

    def step(self) -> None:
        if not self._ended:
            self.store()
        ended, self._ended = self._ended, []
        for end in ended:
            end()

    def run(self) -> None:
        while self.is_busy:
            self.step()


class Slow:
    """A log in a directory that has become slow."""

    def __init__(self, directory: Path, *, is_slow: bool = True) -> None:
        self.directory = directory
        self.disk = Disk()
        self.thread = Thread()
        self.failed: list[OSError] = []
        self.damage: list[str] = []
        self.shortages: list[ShortageError] = []
        self.finished: list[int] = []
        self.writer = DirectoryWriter(
            "/slow", now_s=lambda: self.disk.now_s, sleep=lambda _: None, on_shortage=self.shortages.append
        )
        self.writer.use(self.thread.start)
        self.options: LogOptions = log_options(
            self.disk,
            writer=self.writer,
            on_io_error=self.failed.append,
            on_damage=self.damage.append,
            on_write_finished=lambda log: self.finished.append(log.log_end_offset),
        )
        self.log = create_log(directory, CONFIG, self.options)
        if is_slow:
            self.writer.note_slow_write(1.0, self.writer.clock_s)

    def reload(self) -> Log:
        """What a start after kill -9 finds."""
        return load_log(self.directory, CONFIG, recovery_point=0)


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path)


def offsets_in(log: Log) -> list[int]:
    return [offset for offset, _ in read_all(log)]


# When a directory is slow


@pytest.mark.parametrize(
    ("write_s", "count", "is_slow"),
    [
        (0.020, 9, False),
        (0.020, 11, True),
        (0.210, 1, True),
        (0.009, 100, False),  # none of them is slow
        (0.0, 100, False),
    ],
)
def test_slow_writes_within_a_second_make_a_directory_slow(
    tmp_path: Path, write_s: float, count: int, is_slow: bool
) -> None:
    slow = Slow(tmp_path, is_slow=False)
    slow.disk.write_s = write_s
    for _ in range(count):
        append(slow.log, batch(1))
    assert slow.writer.is_slow is is_slow
    assert slow.writer.slow_count == is_slow
    assert offsets_in(slow.log) == list(range(count)), "all were written directly"


def test_rare_slow_writes_do_not_make_a_directory_slow(tmp_path: Path) -> None:
    slow = Slow(tmp_path, is_slow=False)
    slow.disk.write_s = 0.03
    for _ in range(10):
        append(slow.log, batch(1))
        slow.disk.now_s += 1
    assert not slow.writer.is_slow


@pytest.mark.parametrize(
    ("write_s", "starved_part", "count", "is_slow"),
    [
        (0.100, 1.0, 100, False),
        (0.100, 0.95, 100, False),  # 5 ms of the disk
        (0.100, 0.5, 5, True),  # the first one only starts the measurement
        (0.100, 0.5, 4, False),
        (1.000, 0.0, 1, True),
    ],
)
def test_waiting_for_a_processor_makes_no_directory_slow(
    tmp_path: Path, write_s: float, starved_part: float, count: int, is_slow: bool
) -> None:
    disk = Disk()
    disk.write_s, disk.starved_part = write_s, starved_part
    writer = DirectoryWriter("/d", now_s=lambda: disk.now_s, undelayed_s=disk.undelayed_s)
    writer.use(Thread().start)
    log = create_log(tmp_path, options=log_options(disk, writer=writer))
    for _ in range(count):
        append(log, batch(1))
    assert writer.is_slow is is_slow


def test_write_that_began_before_waiting_was_measured_is_not_certain() -> None:
    disk = Disk()
    writer = DirectoryWriter("/d", now_s=lambda: disk.now_s, undelayed_s=disk.undelayed_s)
    writer.use(Thread().start)
    began_by = writer.clock_s
    for _ in range(2):  # of two threads: the first one changes the clock
        writer.note_slow_write(0.5, began_by)
    assert not writer.is_slow
    writer.note_slow_write(0.5, writer.clock_s)
    assert writer.is_slow


def test_waiting_for_a_processor_is_measured_only_for_a_second_after_a_slow_write(tmp_path: Path) -> None:
    disk = Disk()
    writer = DirectoryWriter("/d", now_s=lambda: disk.now_s, undelayed_s=disk.undelayed_s)
    writer.use(Thread().start)
    log = create_log(tmp_path, options=log_options(disk, writer=writer))

    def measured(seconds: float) -> int:
        before, end_s = disk.undelayed_count, disk.now_s + seconds
        while disk.now_s < end_s:
            disk.now_s += 0.1
            append(log, batch(1))
        return disk.undelayed_count - before

    assert measured(3.0) == 0
    disk.write_s = 0.02
    append(log, batch(1))
    disk.write_s = 0.0
    assert measured(0.8) == 2 * 8
    assert measured(1.0) > 0
    assert measured(3.0) == 0


def test_directory_without_a_thread_is_never_slow(tmp_path: Path) -> None:
    disk = Disk()
    disk.write_s = 1.0
    log = create_log(tmp_path, options=log_options(disk, writer=DirectoryWriter("/d", now_s=lambda: disk.now_s)))
    for _ in range(3):
        append(log, batch(1))
    assert log.log_end_offset == 3


def test_slow_directory_is_fast_again_after_many_fast_writes_and_some_time(
    slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    slow.disk.now_s = 100
    slow.disk.write_s = 0.02
    append(slow.log, batch(1))
    slow.thread.run()
    slow.disk.write_s = 0.0
    for _ in range(FAST_WRITES_MIN + 5):
        append(slow.log, batch(1))
        slow.thread.run()
    assert slow.writer.is_slow, "too early"
    slow.disk.now_s += FAST_SECONDS_MIN
    append(slow.log, batch(1))
    append(slow.log, batch(1))
    slow.thread.step()
    assert slow.writer.is_slow, "one waits"
    with caplog.at_level(logging.INFO):
        slow.thread.step()
    assert not slow.writer.is_slow
    assert slow.writer.fast_count == 1
    assert "/slow is fast again" in caplog.text
    end_offset = slow.log.log_end_offset
    assert append(slow.log, batch(1)).first_offset == end_offset == slow.log.log_end_offset - 1
    assert not slow.thread.is_busy
    assert offsets_in(slow.log) == list(range(end_offset + 1))


def test_one_slow_write_keeps_a_directory_slow(slow: Slow) -> None:
    for _ in range(FAST_WRITES_MIN):
        append(slow.log, batch(1))
        slow.thread.run()
    slow.disk.now_s += FAST_SECONDS_MIN
    slow.disk.write_s = 0.02
    append(slow.log, batch(1))
    slow.thread.run()
    assert slow.writer.is_slow


def test_directory_that_is_slow_again_and_again_stays_slow_for_longer(slow: Slow) -> None:
    def slow_for_s() -> float:
        """Make fast writes until the directory is fast; return how long that takes."""
        started_s = slow.disk.now_s
        while slow.writer.is_slow:
            append(slow.log, batch(1))
            slow.thread.run()
            slow.disk.now_s += 0.05
        return slow.disk.now_s - started_s

    def become_slow() -> None:
        slow.writer.note_slow_write(1.0, slow.writer.clock_s)

    times_s = [slow_for_s()]
    for _ in range(6):
        become_slow()
        times_s.append(slow_for_s())
    assert times_s == pytest.approx([1, 2, 4, 8, 16, 30, 30], abs=0.2)
    slow.disk.now_s += SLOW_AGAIN_S
    become_slow()
    assert slow_for_s() == pytest.approx(FAST_SECONDS_MIN, abs=0.2)


# Planned appends are invisible until they are written


def test_append_gets_its_offsets_when_planned_and_is_readable_when_written(slow: Slow) -> None:
    log = slow.log
    results = [append(log, batch(2)) for _ in range(3)]
    assert [result.first_offset for result in results] == [0, 2, 4]
    assert (log.next_offset, log.log_end_offset, log.planned.count > 0) == (6, 0, True)
    assert offsets_in(log) == []
    assert not log.advance_high_watermark(6)
    for before, end_offset in ((0, 2), (2, 6)):  # those that wait together are written together
        slow.thread.store()
        assert log.log_end_offset == before, "the owner of the log does not know yet"
        assert offsets_in(log) == list(range(0, before, 2))
        slow.thread.step()
        assert log.log_end_offset == end_offset
        assert offsets_in(log) == list(range(0, end_offset, 2))
    assert slow.finished == [2, 6]
    assert not log.planned.count
    assert not slow.thread.is_busy


@pytest.mark.parametrize("may_take_long", [True, False])
def test_every_append_to_a_slow_directory_is_planned(slow: Slow, may_take_long: bool) -> None:
    log = slow.log
    for offset, records in enumerate((batch(1), batch(1, compression=Compression.GZIP))):
        result = log.appends.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, may_take_long=may_take_long)
        assert (result.first_offset, result.last_offset) == (offset, offset)
    assert (log.next_offset, log.log_end_offset, log.planned.count > 0) == (2, 0, True)
    assert slow.disk.written == []
    slow.thread.run()
    assert offsets_in(log) == [0, 1]


def test_rejected_or_costly_append_is_not_planned(slow: Slow) -> None:
    log = slow.log
    append(log, batch(1, producer_id=7, sequence=0))
    broken = batch(1)
    broken[-1] ^= 1
    for records, expected in (
        (broken, KafkaError),
        (batch(1, producer_id=7, sequence=5), KafkaError),
        (batch(1, size=2_000_000, compression=Compression.ZSTD), TooCostlyError),
    ):
        with pytest.raises(expected):
            log.appends.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, may_take_long=False)
        assert (log.next_offset, log.log_end_offset) == (1, 0)
    append(log, batch(1, producer_id=7, sequence=1))
    slow.thread.run()
    assert offsets_in(log) == [0, 1]


def test_planned_append_copies_the_buffer_of_the_caller(slow: Slow) -> None:
    records = batch(1)
    append(slow.log, records)
    expected = bytes(records)
    records[:] = bytes(len(records))
    slow.thread.run()
    ((_, stored),) = read_all(slow.log)
    assert stored == expected


def test_duplicate_of_a_planned_batch_returns_the_first_result_and_is_not_written(slow: Slow) -> None:
    first = append(slow.log, batch(1, producer_id=7, sequence=0))
    again = append(slow.log, batch(1, producer_id=7, sequence=0))
    assert (first.last_offset, again.last_offset, again.is_duplicate) == (0, 0, True)
    with pytest.raises(KafkaError) as gap:
        append(slow.log, batch(1, producer_id=7, sequence=5))
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(slow.log, batch(1, producer_id=7, sequence=1))
    slow.thread.run()
    assert offsets_in(slow.log) == [0, 1]


def test_aborted_transaction_is_stable_only_after_its_index_entry_is_written(slow: Slow) -> None:
    log = slow.log
    append(log, batch(1, producer_id=7, sequence=0, is_transactional=True))
    append_marker(log, marker(ControlType.ABORT, 7))
    slow.thread.step()
    log.advance_high_watermark(log.log_end_offset)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    slow.thread.store()
    log.advance_high_watermark(log.log_end_offset)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    slow.thread.step()
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2
    assert [entry.last_offset for entry in log.reader.aborted_transactions(0, 2)] == [1]


def test_flush_covers_only_written_batches(slow: Slow) -> None:
    append(slow.log, batch(1))
    append(slow.log, batch(1))
    slow.thread.step()
    slow.log.durability.flush(NOW_MS)
    assert slow.log.durability.recovery_point == 1


# Failures


def test_failed_write_takes_the_directory_offline_and_fails_the_pending_writes(slow: Slow) -> None:
    append(slow.log, batch(1))
    slow.thread.run()
    slow.disk.errors.append(errno.EIO)
    for _ in range(3):
        append(slow.log, batch(1))
    slow.thread.run()
    assert [error.errno for error in slow.failed] == [errno.EIO]
    assert slow.log.is_offline
    assert slow.disk.written == ["topic-0"]
    assert len(slow.finished) == 3, "every waiting request is notified of each write"
    with pytest.raises(KafkaError):
        append(slow.log, batch(1))
    assert slow.reload().log_end_offset == 1


def test_write_that_met_a_shortage_is_repeated_before_the_pending_writes(slow: Slow) -> None:
    slow.disk.errors.extend([errno.ENOMEM, errno.EMFILE])
    for _ in range(3):
        append(slow.log, batch(1))
    slow.thread.run()
    assert len(slow.shortages) == 2
    assert not slow.failed
    assert offsets_in(slow.log) == [0, 1, 2]


def test_lasting_shortage_takes_only_its_log_offline(slow: Slow) -> None:
    slow.disk.errors.extend([errno.ENOMEM] * 2000)
    append(slow.log, batch(1))
    append(slow.log, batch(1))
    slow.thread.run()
    assert slow.log.is_offline
    assert not slow.failed
    assert slow.damage


def test_offline_log_stores_no_pending_write(slow: Slow) -> None:
    append(slow.log, batch(1))
    append(slow.log, batch(1))
    slow.thread.step()
    slow.log.take_offline()
    slow.thread.run()
    assert slow.reload().log_end_offset == 1


# What else changes the files of a log


def test_changes_of_a_log_wait_for_its_write_in_progress(slow: Slow) -> None:
    log = slow.log
    append(log, batch(1))
    slow.thread.run()
    log.advance_high_watermark(1)
    append(log, batch(1))
    changes: list[Callable[[], object]] = [
        lambda: log.appends.roll(NOW_MS),
        lambda: log.truncation.truncate_to(0, now_ms=NOW_MS),
        lambda: log.truncation.truncate_fully_and_start_at(5, now_ms=NOW_MS),
        lambda: log.delete_records_before(1),
        lambda: log.disposal.expire(NOW_MS),
        lambda: log.appends.append_as_follower(batch(1), now_ms=NOW_MS),
        lambda: log.rename(str(log.directory) + "x"),
        lambda: log.close(NOW_MS),
    ]
    for change in changes:
        with pytest.raises(TryLaterError):
            change()
    assert not slow.failed
    slow.thread.run()
    assert offsets_in(log) == [0, 1]


def test_change_of_a_log_runs_between_two_writes(slow: Slow) -> None:
    log = slow.log
    for _ in range(4):
        append(log, batch(1))
    done: list[int] = []

    def delete_and_roll() -> None:
        log.advance_high_watermark(log.log_end_offset)
        log.delete_records_before(log.high_watermark)
        log.appends.roll(NOW_MS)
        done.append(log.log_end_offset)

    slow.thread.store()
    log.planned.between_writes(delete_and_roll)
    assert done == []
    slow.thread.step()
    assert done == [1]
    slow.thread.run()
    assert offsets_in(log) == [1, 2, 3]
    assert [segment.base_offset for segment in log.segments.all()][:2] == [0, 1]
    log.planned.between_writes(lambda: done.append(-1))
    assert done == [1, -1], "synchronously when nothing is being written"
    assert [offset for offset, _ in read_all(slow.reload())] == [0, 1, 2, 3]


def test_epoch_that_begins_during_a_write_starts_at_its_own_first_record(slow: Slow) -> None:
    log = slow.log
    append(log, batch(1))
    append(log, batch(1))
    log.appends.assign_epoch(1)
    append(log, batch(1), leader_epoch=1)
    append(log, batch(1), leader_epoch=1)
    while slow.thread.is_busy:
        slow.thread.step()
        assert log.leader_epochs.end_offset_for(0, log.log_end_offset).end_offset == 2
    assert log.leader_epochs.entries == ((0, 0), (1, 2))


def test_snapshot_of_a_roll_excludes_appends_planned_after_it(slow: Slow) -> None:
    log = slow.log
    for sequence in range(8):
        append(log, batch(1, size=60, producer_id=7, sequence=sequence))
    producer_of_next = batch(1, size=60, producer_id=8, sequence=0)
    append(log, producer_of_next)
    slow.thread.run()
    bases = [segment.base_offset for segment in log.segments.all()]
    assert len(bases) > 2
    again = slow.reload()
    for base_offset in bases[1:]:
        assert base_offset in again.snapshots.offsets
        loaded = again.snapshots.load_latest(base_offset)
        assert loaded is not None
        (entry,) = loaded.entries
        assert (loaded.offset, entry.batches[-1].last_offset) == (base_offset, base_offset - 1)


def test_drain_ends_when_all_is_written_and_refuses_producers_until_then(slow: Slow) -> None:
    log = slow.log
    append(log, batch(1))
    append(log, batch(1))
    reported: list[str] = []
    log.planned.drain(lambda: reported.append("drained"))
    assert not log.planned.has_room
    log.planned.when_room(lambda: reported.append("room"))
    slow.thread.step()
    assert reported == ["room"]
    slow.thread.step()
    assert reported == ["room", "drained"]
    assert not log.planned.has_room
    log.planned.when_room(lambda: reported.append("room"))
    log.planned.end_drain()
    assert reported[-1] == "room"
    assert log.planned.has_room
    assert len(reported) == 3


def test_producers_wait_while_too_many_bytes_are_pending(slow: Slow) -> None:
    log = slow.log
    reported: list[int] = []
    while log.planned.has_room:
        slow.writer.submit(Pending(log, 1 << 20))
    assert slow.writer.pending_size >= PENDING_SIZE_MAX
    log.planned.when_room(lambda: reported.append(slow.writer.pending_size))
    slow.thread.step()
    slow.thread.step()
    assert reported
    assert reported[0] < PENDING_SIZE_MAX
    assert log.planned.has_room


class Pending:
    """A write of any size that takes no memory."""

    def __init__(self, log: Log, size: int) -> None:
        self.log = log
        self.size = size

    def begin(self) -> None: ...

    def store(self) -> None: ...

    def finish(self, error: Exception | None) -> None: ...


# Histories


def test_slow_and_fast_directory_end_with_the_same_log(tmp_path: Path) -> None:
    """Whatever the order of planning, writing and changes: the same files, and the same state after a crash."""
    for seed in range(15):
        random = Random(seed)
        folders = [tmp_path / f"{seed}-{name}" for name in ("fast", "slow")]
        for folder in folders:
            folder.mkdir()
        fast = create_log(folders[0], CONFIG)
        slow = Slow(folders[1])
        sequences = {7: 0, 8: 0}
        for _ in range(60):
            act(random, fast, slow, sequences)
        slow.thread.run()
        for log in (fast, slow.log):
            log.advance_high_watermark(log.log_end_offset)
        assert contents(folders[0], ".log") == contents(folders[1], ".log")
        assert contents(folders[0], ".txnindex") == contents(folders[1], ".txnindex")
        assert fast.leader_epochs.entries == slow.log.leader_epochs.entries
        assert fast.last_stable_offset == slow.log.last_stable_offset
        reloaded = [load_log(folder, CONFIG) for folder in folders]
        assert state_of(reloaded[0]) == state_of(reloaded[1]) == state_of(slow.log)


def act(random: Random, fast: Log, slow: Slow, sequences: dict[int, int]) -> None:
    kind = random.randrange(10)
    logs = (fast, slow.log)
    if kind < 3:
        size, epoch = random.choice((1, 50, 300)), random.choice((0, 0, 0, 1)) + fast.leader_epochs.latest
        results = [append(log, batch(1, size=size), leader_epoch=max(epoch, 0)) for log in logs]
        assert results[0].last_offset == results[1].last_offset
    elif kind < 5:
        producer_id = random.choice((7, 8))
        for log in logs:
            records = batch(1, producer_id=producer_id, sequence=sequences[producer_id], is_transactional=True)
            append(log, records, leader_epoch=max(fast.leader_epochs.latest, 0))
        sequences[producer_id] += 1
    elif kind == 5:
        producer_id = random.choice((7, 8))
        ending = random.choice((ControlType.ABORT, ControlType.COMMIT))
        for log in logs:
            append_marker(log, marker(ending, producer_id))
    elif kind == 6:
        with contextlib.suppress(TryLaterError):
            slow.log.durability.flush(NOW_MS)
    elif slow.thread.is_busy:
        slow.thread.step()
        slow.log.advance_high_watermark(slow.log.log_end_offset)


def contents(folder: Path, suffix: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "topic-0").glob(f"*{suffix}")}


def state_of(log: Log) -> list[object]:
    producers = log.producer_state.producers.values()
    return [
        (entry.producer_id, entry.epoch, list(entry.batches)[-1:], entry.current_transaction_first_offset)
        for entry in sorted(producers, key=lambda entry: entry.producer_id)
    ]


def test_crash_keeps_exactly_the_written_batches(tmp_path: Path) -> None:
    """Whatever is the last call that reaches the disk."""
    for number in range(10_000):
        directory = tmp_path / str(number)
        directory.mkdir()
        slow = Slow(directory)
        files = FaultyFiles()
        slow.log.files = files
        for segment in slow.log.segments.all():
            segment._files = segment.offset_index._files = segment.time_index._files = files
        files.crash_at(number, torn_bytes=7)
        for _ in range(7):
            append(slow.log, batch(1, size=50))
        try:
            slow.thread.run()
        except BaseException as crash:
            assert type(crash).__name__ == "Crashed"  # noqa: PT017
            end_offset = slow.log.log_end_offset
        else:
            assert slow.log.log_end_offset == 7
            return
        again = slow.reload()
        assert end_offset <= again.log_end_offset <= 7
        assert offsets_in(again) == list(range(again.log_end_offset))
    raise AssertionError("never came to its end")


# The log manager


class Manager:
    """One slow directory with several logs."""

    def __init__(self, directory: Path) -> None:
        self.disk = Disk()
        self.thread = Thread()
        self.manager = LogManager(
            [str(directory / "logs")],
            LogManagerSettings(file_delete_delay_ms=0),
            self.disk,
            random=Random(),
            new_threads=ThreadPoolExecutor,
            on_directory_failed=lambda *_: None,
        )
        self.manager.startup.open()
        self.manager.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
        self.manager.write_in_threads(lambda path: self.thread.start)
        (self.writer,) = self.manager.writers.values()
        self.writer.note_slow_write(1.0, self.writer.clock_s)

    def log(self, topic: str) -> Log:
        return created(self.manager, topic, 0, topic_id=None, config=CONFIG, now_ms=NOW_MS)


def test_logs_of_a_slow_directory_alternate_and_join_their_pending_batches(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    logs = [over.log(topic) for topic in "abc"]
    for log in [*logs, *reversed(logs), *logs]:
        append(log, batch(1))
    over.thread.run()
    # The first append of each began immediately; the second waited, and the third joined it.
    assert over.disk.written == ["a-0", "b-0", "c-0"] * 2
    assert [offsets_in(log) for log in logs] == [[0, 1, 2]] * 3
    assert list(over.manager.slow_directories) == list(over.manager.writers)


def logs_in_progress(over: Manager, topics: str) -> list[Log]:
    """Return logs with a write in progress each; the first one has stored another one before."""
    logs = [over.log(topic) for topic in topics]
    for log in logs:
        append(log, batch(1))
    append(logs[0], batch(1, size=300))
    over.thread.store_one(0)
    return logs


def occupied(over: Manager, threads: int) -> list[Log]:
    """Return so many logs with a write in progress, each in a thread of its own."""
    logs = [over.log(f"occupied{number}") for number in range(threads)]
    for log in logs:
        append(log, batch(1))
    return logs


def test_write_begins_while_those_of_other_logs_are_in_progress(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    others = occupied(over, THREADS - 1)
    log = over.log("a")
    append(log, batch(1))
    over.thread.store_one(THREADS - 1)
    assert over.disk.written == ["a-0"]
    assert offsets_in(log) == [0]
    assert all(offsets_in(other) == [] for other in others)
    over.thread.run()
    assert all(offsets_in(other) == [0] for other in others)
    assert over.writer.pending_size == 0


def test_logs_take_turns(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    over.disk.write_s = 0.2
    occupied(over, THREADS - 1)
    a, b = over.log("a"), over.log("b")
    for log in (a, a, a, b):
        append(log, batch(1, size=300))  # each begins a segment, so that none joins the write before
    for _ in range(4):
        over.thread.store_one(-1)  # by the only thread that is free
    assert over.disk.written == ["a-0", "b-0", "a-0", "a-0"]
    assert [offsets_in(log) for log in (a, b)] == [[0, 1, 2], [0]]
    over.thread.run()


def shared(over: Manager, count: int) -> int:
    """Have so many logs with a write each wait for the threads; return among how many shares they are divided."""
    others = occupied(over, THREADS)
    logs = [over.log(f"t{number}") for number in range(count)]
    for log in logs:
        append(log, batch(1))
    given_count = over.thread.given_count
    over.thread.step()
    over.thread.run()
    assert all(offsets_in(log) == [0] for log in [*others, *logs])
    return over.thread.given_count - given_count


def test_threads_share_the_writes_that_wait_while_these_are_fast(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    append(over.log("a"), batch(1))
    over.thread.run()
    # The first thread that is free gets as many as allowed, and so do the next ones.
    assert shared(over, 2 * SHARE_WRITES_MAX) == 2


def test_a_share_is_a_single_write_while_these_are_slow(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    over.disk.write_s = 0.2
    assert shared(over, 3) == 3


def test_failed_write_takes_the_directory_offline(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    logs = logs_in_progress(over, "abc")
    over.disk.errors.append(errno.EIO)
    over.thread.run()
    assert over.disk.written == ["a-0", "c-0", "a-0"], "by threads that do not know; none of it is readable"
    assert all(log.is_offline and not log.planned.count for log in logs)
    assert over.writer.pending_size == 0


def test_lasting_shortage_of_one_write_does_not_fail_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.disk.directory_writer.SHORTAGE_RETRY_S", 0.0)
    over = Manager(tmp_path)
    logs = logs_in_progress(over, "abc")
    over.disk.errors.extend([errno.ENOMEM] * SHORTAGE_TRIES_MAX)
    over.thread.run()
    assert over.disk.written == ["a-0", "c-0", "a-0"]
    assert [log.is_offline for log in logs] == [False, True, False]
    assert [offsets_in(log) for log in (logs[0], logs[2])] == [[0, 1], [0]]


def test_joined_write_is_limited_to_the_bytes_of_one_index_entry(slow: Slow) -> None:
    slow.log.reconfigure(log_config(segment_bytes=1 << 20))
    append(slow.log, batch(1))
    for _ in range(5):
        append(slow.log, batch(1, size=30_000))
    slow.thread.run()
    assert slow.disk.written == ["topic-0"] * (1 + 3)
    assert offsets_in(slow.log) == list(range(6))


def test_log_deleted_during_a_write_frees_its_name_after_the_write(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    log = over.log("a")
    append(log, batch(1))
    append(log, batch(1))
    over.manager.delete("a", 0, now_ms=NOW_MS)
    with pytest.raises(TryLaterError):
        over.log("a")
    over.thread.run()
    new = over.log("a")
    assert (new.log_end_offset, new is log) == (0, False)
    append(new, batch(1))
    over.thread.run()
    assert offsets_in(new) == [0]
    assert over.manager.remove_deleted(NOW_MS) == 1
    assert not over.manager.directories[0].is_offline


def test_stop_waits_until_all_is_written(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    logs = [over.log(topic) for topic in "ab"]
    for log in [*logs, logs[0]]:
        append(log, batch(1))
    reported: list[bool] = []
    over.manager.when_written(lambda: reported.append(True))
    over.thread.step()
    assert not reported
    over.thread.step()
    assert reported
    over.manager.close(NOW_MS)
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    assert [load_log_of(tmp_path, topic) for topic in "ab"] == [2, 1]


def load_log_of(directory: Path, topic: str) -> int:
    manager = LogManager(
        [str(directory / "logs")],
        LogManagerSettings(),
        QuickFiles(),
        random=Random(),
        new_threads=ThreadPoolExecutor,
        on_directory_failed=lambda *_: None,
    )
    manager.startup.open()
    manager.startup.load(lambda topic: CONFIG, now_ms=NOW_MS)
    log = manager.get(topic, 0)
    assert log is not None
    manager.close(NOW_MS)
    return log.log_end_offset


def test_stop_before_all_is_written_leaves_no_clean_marker(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    append(over.log("a"), batch(1))
    over.manager.close(NOW_MS)
    assert not (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_retention_runs_between_two_writes(tmp_path: Path) -> None:
    over = Manager(tmp_path)
    log = over.log("a")
    log.reconfigure(log_config(segment_bytes=400, retention_ms=1000, file_delete_delay_ms=0))
    for _ in range(5):
        append(log, batch(1, size=150))
    for _ in range(4):
        over.thread.step()
    log.advance_high_watermark(log.log_end_offset)
    before = log.segment_count
    assert before > 2
    assert done(over.manager.run_retention(NOW_MS + 5000, pause, in_thread)) == 0
    assert (log.log_start_offset, log.segment_count) == (0, before)
    over.thread.step()
    assert log.log_start_offset == 4, "raised between two writes"
    assert log.segment_count > 1, "the new log start is not on the disk yet"
    assert done(over.manager.run_retention(NOW_MS + 5000, pause, in_thread)) == before
    assert log.segment_count == 1
