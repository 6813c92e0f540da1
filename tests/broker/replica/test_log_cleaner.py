"""The cleaner's tasks follow log.cleaner.threads, stop passes whose result is not wanted, and leave no files behind."""

import asyncio
import dataclasses
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from base.pause import InThread, Pause
from broker.loop.slices import SlicedWork
from broker.replica.log_cleaner import LogCleaner, WorkerEndedError, WorkerProcess
from storage.cleaning.cleaner import clean
from storage.cleaning.cleaning_job import CleaningJob, CleaningResult
from storage.cleaning.log_cleaning import CleanerSettings, LogCleaning
from storage.disk import names
from storage.disk.files import ShortageError
from tests.storage.builders import NAME, NOW_MS, append, delete_expired, log_config
from tests.storage.compacted import Broker, commit_and_roll, finish_pass, kept_in, keyed
from tests.storage.disk.test_shortages import no_descriptors_left
from tests.support.broker import ROOT
from tests.support.manual_clock import ManualClock

DEADLINE_S = 20


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


@pytest.fixture
def blocking() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


class NothingDue:
    """A `LogCleaning` that records the workers that call `pick`; one of its steps may fail."""

    def __init__(self) -> None:
        self.settings = CleanerSettings()
        self.askers: set[object] = set()
        self.failing_step: str | None = None

    def _begin(self, step: str) -> None:
        if step == self.failing_step:
            raise RuntimeError("ours")

    def pick(self, now_ms: int, worker: int) -> None:
        self._begin("pick")
        self.askers.add(worker)

    def reconfigure(self, settings: CleanerSettings) -> None:
        self.settings = settings

    def when_checkpoint_wanted(self, listener: Callable[[], object]) -> None:
        pass

    def read_ages(self) -> None:
        pass

    async def delete_expired(self, now_ms: int, pause: Pause, in_thread: InThread) -> None:
        self._begin("delete_expired")
        await pause()

    def write_checkpoints(self) -> None:
        pass


class NoWorker:
    def clean(self, job: CleaningJob) -> CleaningResult:
        raise AssertionError("nothing is due")

    def end(self) -> None:
        pass


def cleaner_over(cleaning: NothingDue, blocking: ThreadPoolExecutor) -> LogCleaner:
    clock = ManualClock()
    sliced_work = SlicedWork(clock.monotonic_ms)
    return LogCleaner(
        cast(LogCleaning, cleaning), NoWorker, ThreadPoolExecutor, blocking, clock, sliced_work, count=1, backoff_ms=0
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in threads
            await asyncio.sleep(0.002)


async def askers_are(cleaning: NothingDue, count: int) -> bool:
    """Whether so many tasks, and no more, come to look for work, in three rounds in a row.

    A task that is to stop may look for work once more, which begins the rounds again.
    """
    rounds = 0
    async with asyncio.timeout(DEADLINE_S):
        while rounds < 3:
            cleaning.askers.clear()
            await until(lambda: len(cleaning.askers) >= count)
            rounds = rounds + 1 if cleaning.askers == set(range(count)) else 0
    return True


async def test_number_of_workers_follows_the_configured_threads(blocking: ThreadPoolExecutor) -> None:
    cleaning = NothingDue()
    cleaner = cleaner_over(cleaning, blocking)
    cleaner.start()
    assert await askers_are(cleaning, 1)
    for threads in (3, 2, 1, 4):
        settings = CleanerSettings(threads=threads, dedupe_buffer_size=threads)
        cleaner.reconfigure(settings, backoff_ms=0)
        assert await askers_are(cleaning, threads)
        assert cleaning.settings is settings
    await cleaner.stop()
    cleaning.askers.clear()
    await asyncio.sleep(0)
    assert not cleaning.askers
    assert cleaner.dead_thread_count == 0


@pytest.mark.parametrize("step", ["pick", "delete_expired"])
async def test_failed_round_is_counted_and_repeated(
    blocking: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    cleaning = NothingDue()
    cleaning.failing_step = step
    cleaner = cleaner_over(cleaning, blocking)
    cleaner.start()
    await until(lambda: cleaner.dead_thread_count == 1)
    assert "log cleaner 0 failed; it tries again in 0 ms" in caplog.text
    cleaning.failing_step = None
    await until(lambda: cleaner.dead_thread_count == 0)
    await cleaner.stop()


# Passes that are cut off


class SlowWorker:
    """Cleans when it may. Ended before, it leaves what a process leaves that is ended in the middle."""

    def __init__(self) -> None:
        self.is_cleaning = threading.Event()
        self.may_go_on = threading.Event()
        self.is_ended = False

    def clean(self, job: CleaningJob) -> CleaningResult:
        self.is_cleaning.set()
        assert self.may_go_on.wait(DEADLINE_S)
        if not self.is_ended:
            return clean(job)
        if Path(job.directory).exists():
            (Path(job.directory) / (names.segment_file(0, names.LOG) + names.CLEANED)).touch()
        raise WorkerEndedError

    def end(self) -> None:
        self.is_ended = True
        self.may_go_on.set()


class Running:
    """A cleaner at work on a log."""

    def __init__(self, directory: Path, blocking: ThreadPoolExecutor) -> None:
        self.broker = Broker(directory)
        self.log = self.broker.log()
        for number in range(3):
            append(self.log, keyed(("a", str(number))))
        commit_and_roll(self.log)
        self.worker = SlowWorker()
        clock = ManualClock(NOW_MS)
        self.cleaner = LogCleaner(
            self.broker.cleaning,
            lambda: self.worker,
            ThreadPoolExecutor,
            blocking,
            clock,
            SlicedWork(clock.monotonic_ms),
            count=1,
            backoff_ms=60_000,
        )
        self.cleaner.start()

    def staged(self) -> list[Path]:
        return [path for path in self.log.directory.iterdir() if path.suffix in (names.SWAP, names.CLEANED)]


async def test_pass_is_stopped_when_the_broker_stops(tmp_path: Path, blocking: ThreadPoolExecutor) -> None:
    running = Running(tmp_path, blocking)
    await until(running.worker.is_cleaning.is_set)
    await running.cleaner.stop()
    assert running.worker.is_ended
    assert not running.staged()
    assert len(kept_in(running.log)) == 3
    assert running.broker.cleaning.pick(NOW_MS) is not None


async def test_recovery_point_is_above_the_cleaned_segments_before_the_swap(
    tmp_path: Path, blocking: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running(tmp_path, blocking)
    finish = running.broker.cleaning.finish
    found: list[str] = []

    async def noted(*arguments: Any, **named: Any) -> bool:
        found.append((tmp_path / names.RECOVERY_POINT_CHECKPOINT).read_text())
        return await finish(*arguments, **named)

    monkeypatch.setattr(running.broker.cleaning, "finish", noted)
    running.worker.may_go_on.set()
    await until(lambda: len(kept_in(running.log)) == 1)
    await running.cleaner.stop()
    assert found == ["0\n1\ntopic 0 3\n"]


async def test_truncation_in_a_thread_lowers_the_checkpoint(tmp_path: Path, blocking: ThreadPoolExecutor) -> None:
    running = Running(tmp_path, blocking)
    running.worker.may_go_on.set()
    checkpoint = tmp_path / names.CLEANER_CHECKPOINT
    await until(lambda: checkpoint.exists() and checkpoint.read_text() == "0\n1\ntopic 0 3\n")
    await asyncio.to_thread(running.log.truncation.truncate_to, 1, now_ms=NOW_MS)
    await until(lambda: checkpoint.read_text() != "0\n1\ntopic 0 3\n")
    await running.cleaner.stop()


def delete(running: Running) -> None:
    running.broker.manager.delete(*NAME, now_ms=NOW_MS)


def recreate(running: Running) -> None:
    running.broker.manager.delete(*NAME, now_ms=NOW_MS)
    running.log = running.broker.log()


def truncate(running: Running) -> None:
    running.log.truncation.truncate_to(2, now_ms=NOW_MS)


def stop_compacting(running: Running) -> None:
    running.log.reconfigure(log_config())


def shorten(running: Running) -> None:
    append(running.log, keyed(("b", "1")))
    commit_and_roll(running.log)
    running.log.delete_records_before(3)
    assert delete_expired(running.log, NOW_MS) == 1


@pytest.mark.parametrize("change", [delete, recreate, truncate, stop_compacting, shorten])
async def test_pass_whose_result_is_not_wanted_is_stopped(
    tmp_path: Path, blocking: ThreadPoolExecutor, change: Callable[[Running], None]
) -> None:
    running = Running(tmp_path, blocking)
    await until(running.worker.is_cleaning.is_set)
    change(running)
    await until(lambda: running.worker.is_ended)
    await running.cleaner.stop()
    if change is not delete:
        assert not running.staged()
    assert not running.broker.cleaning.uncleanable
    assert running.broker.manager.directories.live


class CountedThread(ThreadPoolExecutor):
    """One thread that counts what it was given to do."""

    count = 0

    def submit(self, *work: Any, **named: Any) -> Any:
        self.count += 1
        return super().submit(*work, **named)


async def test_what_a_pass_left_is_removed_if_the_cleaner_stops_before_the_removal_begins(tmp_path: Path) -> None:
    with CountedThread(1) as thread:
        running, may_go_on = Running(tmp_path, thread), threading.Event()
        await until(running.worker.is_cleaning.is_set)
        thread.submit(may_go_on.wait, DEADLINE_S)
        count = thread.count
        stop_compacting(running)
        await until(lambda: thread.count > count)  # the removal waits for the thread
        stopping = asyncio.create_task(running.cleaner.stop())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        may_go_on.set()
        await stopping
    assert not running.staged()


class PickyWorker:
    """Ends in every pass over one log, as if the kernel had killed it."""

    def __init__(self) -> None:
        self.ends = 0

    def clean(self, job: CleaningJob) -> CleaningResult:
        if job.directory.endswith("/bad-0"):
            self.ends += 1
            raise WorkerEndedError
        return clean(job)

    def end(self) -> None: ...


async def test_a_log_that_ends_every_worker_keeps_no_other_from_being_cleaned(
    tmp_path: Path, blocking: ThreadPoolExecutor
) -> None:
    broker = Broker(tmp_path)
    bad, good = broker.log(("bad", 0)), broker.log(("good", 0))
    for number in range(3):
        append(bad, keyed(("a", str(number) * 50)))
        append(good, keyed(("a", str(number))))
    append(good, keyed(("b", "1")))
    commit_and_roll(bad)
    commit_and_roll(good)
    worker = PickyWorker()
    clock = ManualClock(NOW_MS)
    cleaner = LogCleaner(
        broker.cleaning,
        lambda: worker,
        ThreadPoolExecutor,
        blocking,
        clock,
        SlicedWork(clock.monotonic_ms),
        count=1,
        backoff_ms=0,
    )
    (directory,) = broker.manager.directories
    cleaner.start()
    await until(lambda: len(kept_in(good)) == 2)
    assert worker.ends == 1
    await until(lambda: worker.ends >= 3)
    await until(lambda: cleaner.uncleanable_in(directory).partitions_count == 1)
    await cleaner.stop()
    assert len(kept_in(bad)) == 3


def test_ended_worker_process_is_replaced(broker: Broker) -> None:
    log = broker.log()
    for number in range(3):
        append(log, keyed(("a", str(number))))
    commit_and_roll(log)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    worker = WorkerProcess()
    try:
        slow = dataclasses.replace(picked.job, bytes_per_second_max=1.0)
        with ThreadPoolExecutor(1) as threads:
            pending = threads.submit(worker.clean, slow)
            while not pending.done():
                worker.end()
                time.sleep(0.01)
            with pytest.raises(WorkerEndedError):
                pending.result()
        broker.cleaning.give_back(picked)
        picked = broker.cleaning.pick(NOW_MS)
        assert picked is not None
        assert finish_pass(broker.cleaning, picked, worker.clean(picked.job), now_ms=NOW_MS)
        assert kept_in(log) == [(2, b"a", b"2")]
        with pytest.raises(FileNotFoundError):
            worker.clean(dataclasses.replace(picked.job, directory=picked.job.directory + "-gone"))
    finally:
        worker.end()


@pytest.mark.parametrize("where", ["spawn", "pass"])
async def test_a_shortage_postpones_a_pass(tmp_path: Path, blocking: ThreadPoolExecutor, where: str) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    for number in range(3):
        append(log, keyed(("a", str(number))))
    commit_and_roll(log)
    workers: list[ShortWorker] = []
    cleaner = LogCleaner(
        broker.cleaning,
        lambda: workers.append(ShortWorker(where)) or workers[0],  # type: ignore[func-returns-value]
        ThreadPoolExecutor,
        blocking,
        ManualClock(NOW_MS),
        SlicedWork(ManualClock().monotonic_ms),
        count=1,
        backoff_ms=0,
    )
    cleaner.start()
    await until(lambda: len(kept_in(log)) == 1)
    await cleaner.stop()
    assert workers[0].shortages == 3
    assert not broker.manager.directories[0].is_offline
    assert not broker.cleaning.uncleanable
    assert cleaner.dead_thread_count == 0


class ShortWorker:
    """Comes to its end at the fourth try."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.shortages = 0

    def clean(self, job: CleaningJob) -> CleaningResult:
        if self.shortages == 3:
            return clean(job)
        self.shortages += 1
        if self._where == "spawn":
            with no_descriptors_left():
                return WorkerProcess().clean(job)
        raise ShortageError(errno.ENOMEM, "cannot map: Cannot allocate memory", "/x/0.index")

    def end(self) -> None:
        pass


def test_a_worker_process_ends_when_its_broker_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "killed.py"
    path.write_text(
        "import multiprocessing, os\n"
        "from broker.replica.log_cleaner import WorkerProcess\n"
        "if __name__ == '__main__':\n"
        "    WorkerProcess()._spawn()\n"
        "    print(multiprocessing.active_children()[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Its output ends when no process has it open any more: the worker has inherited it.
    killed = subprocess.run(
        [sys.executable, str(path)], check=False, stdout=subprocess.PIPE, env=environment, timeout=DEADLINE_S
    )
    assert killed.returncode == -signal.SIGKILL
    assert int(killed.stdout)
