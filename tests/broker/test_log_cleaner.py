"""The cleaner's tasks follow log.cleaner.threads while it runs."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from broker.log_cleaner import LogCleaner
from storage.cleaner import CleaningJob, CleaningResult
from storage.log_cleaning import CleanerSettings, LogCleaning
from tests.support.manual_clock import ManualClock


class NothingDue:
    """A `LogCleaning` that counts who asks it at a time."""

    def __init__(self) -> None:
        self.settings = CleanerSettings()
        self.askers: set[object] = set()

    def pick(self, now_ms: int) -> None:
        self.askers.add(asyncio.current_task())


class NoWorkers:
    def __init__(self) -> None:
        self.count = 1

    def run(self, job: CleaningJob) -> asyncio.Future[CleaningResult]:
        raise AssertionError("nothing is due")

    def end(self) -> None:
        pass

    def resize(self, count: int) -> None:
        self.count = count


async def askers_of(cleaning: NothingDue) -> int:
    """How many tasks look for work within a few turns of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)
    cleaning.askers.clear()
    for _ in range(5):
        await asyncio.sleep(0)
    return len(cleaning.askers)


async def test_more_and_fewer_threads() -> None:
    cleaning, workers = NothingDue(), NoWorkers()
    with ThreadPoolExecutor(1) as blocking:
        cleaner = LogCleaner(cast(LogCleaning, cleaning), workers, blocking, ManualClock(), count=1, backoff_ms=0)
        cleaner.start()
        assert await askers_of(cleaning) == 1
        for threads in (3, 2, 1, 4):
            settings = CleanerSettings(threads=threads, dedupe_buffer_size=threads)
            cleaner.reconfigure(settings, backoff_ms=0)
            assert await askers_of(cleaning) == threads
            assert cleaning.settings is settings
            assert workers.count == threads
        await cleaner.stop()
        assert await askers_of(cleaning) == 0
