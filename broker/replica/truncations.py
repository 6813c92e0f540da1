"""Keeps changes of followers' logs that run in a thread apart from the controller's requests.

Owns: which logs are being truncated, and that no truncation begins while a request of the controller is applied. Must
not know: why a log is truncated, or what the request changes.

A truncation may read a gigabyte to find the state of the producers, so it runs in a thread. Before it ends the
partition must not become leader, whose epoch would begin at an end that is about to fall, nor be deleted. And a request
of the controller is applied in slices, between which no truncation may begin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from base.topic_partition import TopicPartition

logger = logging.getLogger("kafka.server.ReplicaFetcherThread")

T = TypeVar("T")


class Truncations:
    """All truncations of one broker that run in threads."""

    def __init__(self) -> None:
        self._running: dict[TopicPartition, asyncio.Task[object]] = {}
        self._held_count = 0
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def kept_out(self, keys: Callable[[], Iterable[TopicPartition]]) -> AsyncIterator[None]:
        """Let no truncation begin within the context; wait at its start for those of `keys()` to end.

        `keys` is called only if a truncation runs.
        """
        self._held_count += 1
        try:
            if self._running:
                await self._ended(set(keys()))
            yield
        finally:
            self._held_count -= 1
            if not self._held_count:
                self._let_begin()

    async def _ended(self, keys: set[TopicPartition]) -> None:
        running = [task for key, task in self._running.items() if key in keys]
        if running:
            await asyncio.wait(running)

    async def run(self, key: TopicPartition, truncate: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `truncate()`, which begins as soon as no request of the controller is being applied.

        A truncation that has begun is not cancelled with the caller.
        """
        loop = asyncio.get_running_loop()
        while self._held_count or key in self._running:
            begin: asyncio.Future[None] = loop.create_future()
            self._waiting.append(begin)
            await begin
        task: asyncio.Task[T] = loop.create_task(_as_coroutine(truncate), name=f"truncation of {key[0]}-{key[1]}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._end(key, task))
        return await asyncio.shield(task)

    def _end(self, key: TopicPartition, task: asyncio.Task[T]) -> None:
        del self._running[key]
        error = None if task.cancelled() else task.exception()
        if error is not None:  # the caller may have been cancelled, and then learns nothing
            logger.warning("%s failed: %s", task.get_name(), error)
        if not self._held_count:
            self._let_begin()

    def _let_begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for begin in waiting:
            if not begin.done():
                begin.set_result(None)

    async def stop(self) -> None:
        """Wait until all truncations that have begun have ended."""
        if self._running:
            await asyncio.wait(list(self._running.values()))


async def _as_coroutine(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
