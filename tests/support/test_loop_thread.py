"""The bound of a turn holds on an idle machine as it is, and is as much wider on a busy one as that is slower."""

import asyncio
import time

import pytest

from tests.support import loop_thread
from tests.support.loop_thread import WORK_S, Turns

BUSY_S = 0.03


def compute() -> None:
    end_s = time.thread_time() + BUSY_S
    while time.thread_time() < end_s:
        pass


@pytest.mark.parametrize(("slowness", "is_long"), [(0.5, True), (1.0, True), (2.0, False)])
def test_a_long_turn_is_compared_with_other_work(
    slowness: float, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_thread, "_work_s", lambda: slowness * WORK_S)
    turns = Turns()

    async def turn() -> None:
        asyncio.get_running_loop().call_soon(compute)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with turns.measured(), asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(turn())
    assert turns.count > 0
    assert (turns.longest_s >= BUSY_S) is is_long
