"""The table of jobs: what follows settings that change while the broker runs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import cast

from broker.jobs import storage_jobs
from config.broker import BrokerConfig
from storage.log_manager import LogManager
from tests.support.manual_clock import ManualClock


class Logs:
    """Notes for how long idle producers are kept."""

    def __init__(self) -> None:
        self.kept_ms: list[int] = []

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
