"""The memory of unsent responses: the allowance of a reader, the waiters for room, and which readers are aborted."""

import asyncio
from collections.abc import Callable

from broker.network.unsent_responses import ALLOWANCE_MIN, STUCK_MS, UnsentResponses

MB = 1 << 20


class Reader:
    def __init__(self, unsent_size: int) -> None:
        self.unsent_size = self.size_left = unsent_size
        self.memory: UnsentResponses
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True
        self.memory.drained(self)


class Calls:
    """A clock by hand: what was asked to be called later."""

    def __init__(self) -> None:
        self._due: list[tuple[int, Callable[[], None]]] = []
        self._now_ms = 0

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._due.append((self._now_ms + delay_ms, callback))

    def advance(self, by_ms: int) -> None:
        self._now_ms += by_ms
        due = [entry for entry in self._due if entry[0] <= self._now_ms]
        self._due = [entry for entry in self._due if entry[0] > self._now_ms]
        for _, callback in due:
            callback()


def blocked(memory: UnsentResponses, size: int) -> Reader:
    reader = Reader(size)
    reader.memory = memory
    memory.blocked(reader)
    return reader


def test_allowance_shrinks_with_the_unsent_bytes() -> None:
    memory = UnsentResponses(Calls().later, size_max=64 * MB)
    assert memory.allowance == 64 * MB
    first = blocked(memory, 32 * MB)
    assert memory.allowance == 2 * MB
    blocked(memory, 32 * MB)
    assert memory.allowance == 0
    assert memory.is_full
    memory.drained(first)
    memory.drained(first)
    assert memory.size == 32 * MB
    assert not memory.is_full


def test_readers_within_their_allowance_stay_below_the_limit() -> None:
    memory = UnsentResponses(Calls().later, size_max=64 * MB)
    count = 0
    while not memory.is_full:
        blocked(memory, memory.allowance if count else memory.allowance // 4)
        count += 1
    assert memory.size <= 64 * MB + ALLOWANCE_MIN
    assert count > 50, "many get something"


async def test_waiters_for_room_are_resumed_one_after_the_other() -> None:
    calls = Calls()
    memory = UnsentResponses(calls.later, size_max=MB)
    slow = blocked(memory, MB)
    waiting = [asyncio.create_task(memory.room()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    memory.drained(slow)
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, True, False]
    calls.advance(1)
    await asyncio.wait_for(waiting[2], 10)


async def test_stuck_reader_is_aborted_while_others_wait() -> None:
    calls = Calls()
    memory = UnsentResponses(calls.later, size_max=MB)
    moving, stuck = blocked(memory, MB // 2), blocked(memory, MB // 2)
    calls.advance(100 * STUCK_MS)
    assert not stuck.is_aborted, "no response waits"
    waiting = asyncio.create_task(memory.room())
    await asyncio.sleep(0)
    moving.size_left -= 1
    calls.advance(STUCK_MS)
    assert stuck.is_aborted
    assert not moving.is_aborted
    await asyncio.wait_for(waiting, 10)
    assert memory.evicted_count == 1


def test_stuck_readers_are_aborted_above_the_limit_without_a_waiter() -> None:
    calls = Calls()
    memory = UnsentResponses(calls.later, size_max=8 * MB)
    full = [blocked(memory, 4 * MB), blocked(memory, 4 * MB)]
    calls.advance(STUCK_MS)
    assert not any(reader.is_aborted for reader in full), "the bound is kept"
    beyond = blocked(memory, 4 * MB)
    full[0].size_left -= 1
    calls.advance(STUCK_MS)
    assert (full[0].is_aborted, full[1].is_aborted, beyond.is_aborted) == (False, True, True)
    calls.advance(100 * STUCK_MS)
    assert not full[0].is_aborted, "the bound is kept again"


async def test_reader_with_few_unsent_bytes_is_not_aborted() -> None:
    calls = Calls()
    memory = UnsentResponses(calls.later, size_max=MB)
    of_files = blocked(memory, 3)
    stuck = blocked(memory, MB)
    waiting = asyncio.create_task(memory.room())
    await asyncio.sleep(0)
    calls.advance(STUCK_MS)
    assert (of_files.is_aborted, stuck.is_aborted) == (False, True)
    await asyncio.wait_for(waiting, 10)
    memory.drained(of_files)
    assert memory.size == 0


async def test_only_as_many_readers_as_necessary_are_aborted() -> None:
    class Socket(Reader):
        """As in the event loop, an aborted connection is closed one turn later."""

        def abort(self) -> None:
            self.is_aborted = True

    calls = Calls()
    memory = UnsentResponses(calls.later, size_max=8 * MB)
    readers = [Socket(MB) for _ in range(8)]
    for reader in readers:
        memory.blocked(reader)
    waiting = asyncio.create_task(memory.room())
    await asyncio.sleep(0)
    calls.advance(STUCK_MS)
    assert [reader.is_aborted for reader in readers] == [True] * 4 + [False] * 4
    for reader in readers[:4]:
        memory.drained(reader)
    await asyncio.wait_for(waiting, 10)
    assert memory.size == 4 * MB
