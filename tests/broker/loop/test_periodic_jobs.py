"""Long work on the loop gives way to others, and a stop waits for what runs."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.loop.periodic_jobs import Job, PeriodicJobs, take_steps
from broker.loop.slices import SLICE_MS, SlicedWork
from storage.manager.log_manager import Steps
from tests.support.manual_clock import ManualClock, SteppingClock


async def test_steps_on_the_loop_share_the_slice_of_all_long_work() -> None:
    sliced_work = SlicedWork(SteppingClock(1).monotonic_ms)
    done = 0

    def steps() -> Steps[None]:
        nonlocal done
        for _ in range(30):
            done += 1
            yield None

    with ThreadPoolExecutor(1) as blocking:
        running = [asyncio.ensure_future(take_steps(steps(), sliced_work, blocking)) for _ in range(10)]
        while not all(task.done() for task in running):
            before = done
            await asyncio.sleep(0)
            assert done - before <= 10 + SLICE_MS, "a step for each that begins, and one slice"
    assert done == 10 * 30


async def test_steps_that_wait_for_a_disk_run_in_a_thread_and_return_their_result() -> None:
    threads = []

    def steps() -> Steps[str]:
        threads.append(threading.current_thread())
        yield lambda: threads.append(threading.current_thread())
        threads.append(threading.current_thread())
        return "result"

    with ThreadPoolExecutor(1) as blocking:
        assert await take_steps(steps(), SlicedWork(ManualClock().monotonic_ms), blocking) == "result"
    here = threading.main_thread()
    assert [thread is here for thread in threads] == [True, False, True]


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
