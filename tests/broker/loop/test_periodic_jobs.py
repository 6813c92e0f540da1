"""Jobs run again, and a stop waits for what runs."""

import asyncio

import pytest

from broker.loop.periodic_jobs import Job, PeriodicJobs


@pytest.mark.parametrize("fails", [False, True])
async def test_stop_waits_for_running_jobs(fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    ended = []

    async def run() -> None:
        begun.set()
        await may_end.wait()
        ended.append("job")
        if fails:
            raise OSError("disk gone")

    housekeeping = PeriodicJobs([Job("checkpoint", 0, run), Job("later", 60_000, run)])
    housekeeping.start()
    await begun.wait()
    stopping = asyncio.create_task(housekeeping.stop())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not stopping.done()
    may_end.set()
    await stopping
    assert ended == ["job"]
    assert ("checkpoint failed while the broker stopped" in caplog.text) is fails


async def test_a_job_runs_on_request_but_not_twice_at_a_time() -> None:
    may_end = asyncio.Event()
    running, most = 0, 0

    async def run() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await may_end.wait()
        running -= 1
        return 7

    jobs = PeriodicJobs([Job("retention", 0, run)])
    jobs.start()
    requested = [asyncio.create_task(jobs.run_now("retention")) for _ in range(2)]
    for _ in range(10):
        await asyncio.sleep(0)
    may_end.set()
    assert [await each for each in requested] == [7, 7]
    await jobs.stop()
    assert most == 1
