"""Work outside the event loop, and the notification when too much of it is queued."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from broker.loop.cpu_pool import CpuPool


@pytest.fixture
def said() -> list[str]:
    """What the pool has reported of its queue."""
    return []


@pytest.fixture
def cpu_pool(said: list[str]) -> Iterator[CpuPool]:
    made = CpuPool(3, ThreadPoolExecutor, on_full=lambda: said.append("full"), on_room=lambda: said.append("room"))
    yield made
    made.stop()


async def test_results_and_errors_are_returned(cpu_pool: CpuPool) -> None:
    loop_thread = threading.get_ident()
    assert await cpu_pool.run(threading.get_ident) != loop_thread
    with pytest.raises(ZeroDivisionError):
        await cpu_pool.run(lambda: 1 // 0)


async def test_full_queue_and_its_end_are_reported_once(cpu_pool: CpuPool, said: list[str]) -> None:
    gate = threading.Event()
    waiting = [asyncio.create_task(cpu_pool.run(gate.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    assert said == []
    waiting += [asyncio.create_task(cpu_pool.run(gate.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    assert said == ["full"]
    gate.set()
    await asyncio.gather(*waiting)
    assert said == ["full", "room"]


async def test_long_work_has_a_thread_of_its_own(cpu_pool: CpuPool) -> None:
    gate = threading.Event()
    long = asyncio.create_task(cpu_pool.run_alone(gate.wait))
    later = asyncio.create_task(cpu_pool.run_alone(threading.get_ident))
    await asyncio.sleep(0)
    shared = [await cpu_pool.run(threading.get_ident) for _ in range(3)]
    assert not later.done()
    gate.set()
    assert await long
    assert await later not in shared


async def test_a_queue_that_is_full_again_as_soon_as_it_has_room_is_reported_again(said: list[str]) -> None:
    """A connection that is read again may have a request at hand."""
    gate = threading.Event()
    at_hand: list[Coroutine[Any, Any, bool]] = []

    def has_room() -> None:
        said.append("room")
        if len(at_hand) < 2:
            at_hand.append(pool.run(gate.wait))
            at_hand[-1].send(None)

    pool = CpuPool(1, ThreadPoolExecutor, on_full=lambda: said.append("full"), on_room=has_room)
    await pool.run(lambda: None)
    assert said == ["full", "room", "full"]
    at_hand[0].close()
    assert said == ["full", "room", "full", "room", "full"]
    at_hand[1].close()
    assert said[5:] == ["room"]
    gate.set()
    pool.stop()
