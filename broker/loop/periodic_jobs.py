"""Periodic jobs such as checkpoints, retention and flushes. Each runs again a fixed time after it ended.

Owns: when jobs run, and that a failed job is logged and runs again. Must not know: what they do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from base.dataclass import dataclass

logger = logging.getLogger("kafka.server.PeriodicJobs")


@dataclass(frozen=True, slots=True)
class Job:
    """One periodic job."""

    name: str
    interval_ms: int
    run: Callable[[], Awaitable[object]]
    initial_delay_ms: int | None = None
    """The delay before the first run; None: one interval."""


class PeriodicJobs:
    """Runs jobs until it is stopped."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = {job.name: (job, asyncio.Lock()) for job in jobs}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(_repeat(job, running), name=name) for name, (job, running) in self._jobs.items()
        ]

    async def run_now(self, name: str) -> object:
        """Run one job now, but not while it runs already, and return its result."""
        job, running = self._jobs[name]
        async with running:
            return await job.run()

    async def stop(self) -> None:
        """Cancel waiting jobs, and wait until running jobs have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


async def _repeat(job: Job, alone: asyncio.Lock) -> None:
    delay_ms = job.interval_ms if job.initial_delay_ms is None else job.initial_delay_ms
    while True:
        await asyncio.sleep(delay_ms / 1000)
        running = asyncio.ensure_future(_run(job, alone))
        try:
            # Shielded so that a stop leaves no checkpoint half written.
            await asyncio.shield(running)
        except asyncio.CancelledError:
            # The job must end before the next step of the stop, which closes the logs and releases their locks.
            await asyncio.wait([running])
            if not running.cancelled() and (error := running.exception()):
                logger.error("%s failed while the broker stopped", job.name, exc_info=error)
            raise
        except Exception:
            logger.exception("%s failed; it runs again in %d ms", job.name, job.interval_ms)
        delay_ms = job.interval_ms


async def _run(job: Job, alone: asyncio.Lock) -> None:
    async with alone:
        await job.run()
