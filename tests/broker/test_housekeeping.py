"""Long work on the loop gives way to others, and a stop waits for what runs."""

import asyncio
from collections.abc import Iterator

import pytest

from broker.housekeeping import TURN_MS, Housekeeping, Job, take_turns
from tests.support.manual_clock import ManualClock


async def test_others_have_their_turn_between_steps() -> None:
    clock = ManualClock()
    seen: list[str] = []

    def steps() -> Iterator[None]:
        for number in range(6):
            clock.advance(TURN_MS // 2 + 1)
            seen.append(f"step {number}")
            yield

    async def other() -> None:
        while len(seen) < 8:
            seen.append("other")
            await asyncio.sleep(0)

    waiting = asyncio.create_task(other())
    await take_turns(steps(), clock)
    await waiting
    assert seen == ["step 0", "step 1", "other", "step 2", "step 3", "other", "step 4", "step 5"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_stop_waits_for_what_runs(fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    ended = []

    async def run() -> None:
        begun.set()
        await may_end.wait()
        ended.append("job")
        if fails:
            raise OSError("disk gone")

    housekeeping = Housekeeping([Job("checkpoint", 0, run), Job("later", 60_000, run)])
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
