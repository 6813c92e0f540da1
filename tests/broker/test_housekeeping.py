"""Long work on the loop gives way to others."""

import asyncio
from collections.abc import Iterator

from broker.housekeeping import TURN_MS, take_turns
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
