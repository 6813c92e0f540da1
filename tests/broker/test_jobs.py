"""The table of jobs: what follows settings that change while the broker runs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import cast

from broker.jobs import storage_jobs
from broker.loop.periodic_jobs import Job
from broker.loop.slices import SlicedWork
from config.broker import BrokerConfig
from storage.disk.dirty_pages import DirtyPages
from storage.manager.log_manager import LogManager
from tests.support.manual_clock import ManualClock


class Logs:
    """Notes for how long idle producers are kept, and how often data is to be written."""

    def __init__(self) -> None:
        self.kept_ms: list[int] = []
        self.writeback_count = 0

    def start_writeback(self) -> None:
        self.writeback_count += 1

    def expire_producers(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        self.kept_ms.append(expiration_ms)
        yield 0


class Pages:
    """Whether they are many, look by look."""

    def __init__(self, responses: list[bool]) -> None:
        self.responses = responses

    def are_many(self) -> bool:
        return self.responses.pop(0)


def jobs_of(
    config: BrokerConfig, logs: Logs, pages: DirtyPages | None = None, blocking: Executor | None = None
) -> list[Job]:
    clock = ManualClock()
    return storage_jobs(
        config,
        clock,
        cast(LogManager, logs),
        (pages or DirtyPages()).are_many,
        SlicedWork(clock.monotonic_ms),
        cast(Executor, blocking),
    )


async def test_changed_producer_expiration_takes_effect_at_once() -> None:
    config = BrokerConfig.from_properties(
        {"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "70"}
    )
    logs = Logs()
    jobs = jobs_of(config, logs)
    (job,) = [job for job in jobs if job.name == "producer expiration"]
    assert job.interval_ms == 70
    await job.run()
    config.apply_dynamic(default={"producer.id.expiration.ms": "6000"}, broker={})
    await job.run()
    assert logs.kept_ms == [5000, 6000]


async def test_retention_begins_after_the_configured_delay() -> None:
    config = BrokerConfig.from_properties({"log.initial.task.delay.ms": "7"})
    jobs = jobs_of(config, Logs())
    assert [job.initial_delay_ms for job in jobs if job.name == "retention"] == [7]


async def test_writeback_starts_when_dirty_pages_are_many() -> None:
    logs, pages = Logs(), Pages([False, True, False, False, True, True])
    with ThreadPoolExecutor(1) as blocking:
        jobs = jobs_of(BrokerConfig.from_properties({}), logs, cast(DirtyPages, pages), blocking)
        (job,) = [job for job in jobs if job.name == "writeback"]
        counts = []
        while pages.responses:
            await job.run()
            counts.append(logs.writeback_count)
    assert counts == [0, 1, 1, 1, 2, 3]
