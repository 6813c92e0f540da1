"""Work beside the event loop, and who is told when too much of it waits."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from broker.computing import Computing


@pytest.fixture
def computing() -> Iterator[Computing]:
    made = Computing(queued_max=3)
    yield made
    made.stop()


async def test_results_and_errors_come_back(computing: Computing) -> None:
    loop_thread = threading.get_ident()
    assert await computing.run(threading.get_ident) != loop_thread
    with pytest.raises(ZeroDivisionError):
        await computing.run(lambda: 1 // 0)


async def test_the_bound_is_announced_once_and_its_end_once(computing: Computing) -> None:
    said: list[str] = []
    computing.when_full(lambda: said.append("full"), lambda: said.append("room"))
    gate = threading.Event()
    waiting = [asyncio.create_task(computing.run(gate.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    assert said == []
    waiting += [asyncio.create_task(computing.run(gate.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    assert said == ["full"]
    gate.set()
    await asyncio.gather(*waiting)
    assert said == ["full", "room"]
