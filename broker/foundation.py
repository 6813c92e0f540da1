"""What every room of one broker is built on: who the broker is, and the means that all its parts share.

Owns only the references. The server makes it before the first part; the `assembly` of each room receives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from random import Random
from typing import TypeVar

from base.clock import Clock
from base.dataclass import dataclass
from broker.loop.cpu_pool import CpuPool
from broker.loop.slices import SlicedWork
from broker.loop.timer import Timer
from config.broker import BrokerConfig
from controller.store.state_store import StateStore
from storage.manager.log_manager import LogManager

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Foundation:
    """The identity of one broker, and the means that its parts share."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    random: Random
    timer: Timer
    store: StateStore
    log_manager: LogManager
    blocking: Executor
    """Runs work that waits for a disk, see `in_thread`."""
    background: Executor
    """Runs long work that no request waits for."""
    cpu_pool: CpuPool
    sliced_work: SlicedWork
    new_threads: Callable[[int, str], Executor]
    """Returns an executor of a number of threads with a name."""
    begin: Callable[[Coroutine[None, None, None], str], None]
    """Begins work that nobody waits for, in a task with a name."""
    broker_epoch: Callable[[], int]
    """Returns the epoch of this broker's registration, -1 before it is registered."""

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work`, which may wait for a disk, in a thread."""
        return asyncio.get_running_loop().run_in_executor(self.blocking, work)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` in a later turn of the event loop."""
        asyncio.get_running_loop().call_soon(callback)
