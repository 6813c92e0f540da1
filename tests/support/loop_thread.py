"""An event loop in a thread of its own, so that a test may block beside a broker in its process, as on a browser.

Owns the thread and the loop. Must not know what runs there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

TIMEOUT_S = 60.0


class LoopThread:
    """A running event loop; by default uvloop, as in the broker."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop of a test", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the loop and return its result."""

        async def called() -> T:
            return function()

        return self.run(called())

    @contextmanager
    def entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an asynchronous context in the loop, and leave it at the end of the block."""
        value = self.run(_awaited(context.__aenter__()))
        try:
            yield value
        finally:
            self.run(_awaited(context.__aexit__(None, None, None)))

    def stop(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


@contextmanager
def loop_thread(
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Iterator[LoopThread]:
    """Run an event loop in a thread until the end of the block."""
    thread = LoopThread(new_loop)
    try:
        yield thread
    finally:
        thread.stop()


WORK_SIZE = 20_000
WORK_S = 0.0035
"""What `_work_s` returns on an idle machine: no bound is stricter on a faster one."""
LONG_S = 0.01
"""Shorter turns are not compared: the work would take as long as they."""


class Turns:
    """The processor time of the callbacks of asyncio's own event loop: what one of them takes, no other work gets.

    A test may state a bound: a turn that takes long is compared with a fixed piece of work right after it, because
    processors that share a core, a cache or a clock rate with others are slower. A garbage collection in a turn visits
    all objects of the test process: turn it off, or exclude what exists from it, before the measurement.
    """

    def __init__(self) -> None:
        self.count = 0
        self.longest_s = 0.0
        self.total_s = 0.0

    def reset(self) -> None:
        self.count = 0
        self.longest_s = self.total_s = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the callbacks of all event loops of asyncio; uvloop has callbacks of its own."""
        original = asyncio.events.Handle._run

        def run(handle: asyncio.Handle) -> None:
            began_s = time.thread_time()
            original(handle)
            took_s = time.thread_time() - began_s
            if took_s > LONG_S:
                took_s *= min(1.0, WORK_S / _work_s())
            self.count += 1
            self.total_s += took_s
            self.longest_s = max(self.longest_s, took_s)

        asyncio.events.Handle._run = run  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.events.Handle._run = original  # type: ignore[method-assign]


def _work_s() -> float:
    """Return the processor time that a fixed piece of work takes now."""
    began_s = time.thread_time()
    numbers = {number: str(number) for number in range(WORK_SIZE)}
    sum(map(len, numbers.values()))
    return time.thread_time() - began_s


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
