"""Facts that pages share: collected once at a time, kept for a while, and shown under the permissions of their time."""

from __future__ import annotations

import asyncio

import pytest

from broker.console.console import STALE_MS_MAX, Cached

VALID_MS = 1_000


class Collected:
    """A fact that a test collects step by step."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.permissions = 0
        self.count = 0
        self.may_end = asyncio.Event()
        self.cached = Cached(self._collect, lambda: self.now_ms, lambda: self.permissions, VALID_MS)

    async def _collect(self) -> int:
        self.count += 1
        number = self.count
        await self.may_end.wait()
        return number


@pytest.fixture
async def fact() -> Collected:
    return Collected()


async def test_a_fact_is_collected_once_until_it_is_too_old(fact: Collected) -> None:
    fact.may_end.set()
    assert await asyncio.gather(*(fact.cached.get() for _ in range(3))) == [1, 1, 1]
    fact.now_ms = VALID_MS - 1
    assert (await fact.cached.get(), await fact.cached.soon(0)) == (1, 1)
    fact.now_ms = VALID_MS
    assert await fact.cached.get() == 2
    fact.cached.forget()
    assert await fact.cached.get() == 3


async def test_a_page_does_not_wait_for_a_slow_collection(fact: Collected) -> None:
    assert await fact.cached.soon(0.001) is None
    assert await fact.cached.soon(0.001) is None
    assert fact.count == 1, "the collection goes on"
    fact.may_end.set()
    assert await fact.cached.soon(10) == 1
    fact.may_end.clear()
    fact.now_ms = STALE_MS_MAX - 1
    assert await fact.cached.soon(0.001) == 1, "the last fact, while it is collected again"
    fact.now_ms = STALE_MS_MAX
    assert await fact.cached.soon(0.001) is None
    fact.cached.stop()


async def test_a_fact_of_other_permissions_is_not_shown(fact: Collected) -> None:
    fact.may_end.set()
    assert await fact.cached.get() == 1
    fact.permissions = 1
    fact.may_end.clear()
    assert await fact.cached.soon(0.001) is None
    fact.permissions = 2  # during the collection
    fact.may_end.set()
    assert await fact.cached.get() == 3
