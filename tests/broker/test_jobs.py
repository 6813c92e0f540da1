"""The table of jobs: what follows settings that change while the broker runs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import cast

from broker.jobs import storage_jobs
from config.broker import BrokerConfig
from storage.log_manager import LogManager
from tests.support.manual_clock import ManualClock


class Logs:
    """Notes for how long idle producers are kept, and what there is to write."""

    def __init__(self) -> None:
        self.kept_ms: list[int] = []
        self.unwritten: list[int] = []

    def start_writeback(self) -> int:
        return self.unwritten.pop(0)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        self.kept_ms.append(expiration_ms)
        yield 0


async def test_how_long_idle_producers_are_kept_changes_at_once() -> None:
    config = BrokerConfig.from_properties(
        {"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "70"}
    )
    logs = Logs()
    jobs = storage_jobs(config, ManualClock(), cast(LogManager, logs), cast(Executor, None))
    (job,) = [job for job in jobs if job.name == "producer expiration"]
    assert job.interval_ms == 70
    await job.run()
    config.apply_dynamic(default={"producer.id.expiration.ms": "6000"}, broker={})
    await job.run()
    assert logs.kept_ms == [5000, 6000]


async def test_a_broker_at_rest_looks_less_often_for_what_is_to_be_written() -> None:
    logs = Logs()
    with ThreadPoolExecutor(1) as blocking:
        jobs = storage_jobs(BrokerConfig.from_properties({}), ManualClock(), cast(LogManager, logs), blocking)
        (job,) = [job for job in jobs if job.name == "writeback"]
        logs.unwritten = [5, 7, 0, 0, 9, 3, 1]
        left = []
        for _ in range(13):
            await job.run()
            left.append(len(logs.unwritten))
    # Five times as long after each look that found nothing, and at once again when there was something.
    assert left == [6, 5, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 2]
