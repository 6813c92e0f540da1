"""What a broker gets from the machine: clocks, randomness, files, threads, worker processes and the cluster's store.

Owns the choice. No module below creates one of these itself, so a simulation can run whole brokers on virtual time.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from base.clock import Clock
from base.dataclass import dataclass
from broker.loop.clock import SystemClock
from broker.loop.slices import SlicedWork
from broker.network.descriptors import open_count, soft_limit
from broker.network.network import Network
from broker.network.os_network import OsNetwork
from broker.replica.log_cleaner import Worker, WorkerProcess
from controller.store.state_store import StateStore
from storage.disk.dirty_pages import DirtyPages
from storage.disk.files import Files, OsFiles

if TYPE_CHECKING:
    from controller.zookeeper.settings import ZooKeeperSettings  # a broker that runs alone starts without it


@dataclass(frozen=True, slots=True)
class Environment:
    """The surroundings of one broker."""

    clock: Clock
    random: Random
    """Member ids come from it, so clients must not be able to predict it."""
    files: Files
    new_threads: Callable[[int, str], Executor]
    """Returns an executor of a number of threads with a name."""
    new_worker: Callable[[], Worker]
    """Returns a process for passes of the log cleaner, which starts when there is work."""
    are_dirty_pages_many: Callable[[], bool]
    """Returns whether so much written data is not on disk yet that the kernel will soon delay writers."""
    network: Network
    host_name: Callable[[], str]
    descriptors_max: int
    """How many file descriptors the process may have open."""
    open_descriptors: Callable[[], int]
    """Returns how many it has open; raises OSError if that is not known."""
    new_cluster_store: Callable[[ZooKeeperSettings], StateStore] | None = None
    """Returns a store that several brokers share, not open yet. None: there is none, and a broker runs alone."""
    new_sliced_work: Callable[[Clock], SlicedWork] = lambda clock: SlicedWork(clock.monotonic_ms)
    """Returns the queue of long work on the event loop. A simulation, in which a turn takes no time, ends slices."""


def environment_of_this_machine() -> Environment:
    """Return an environment of the operating system's means."""
    return Environment(
        clock=SystemClock(),
        random=SystemRandom(),
        files=OsFiles(),
        new_threads=ThreadPoolExecutor,
        new_worker=WorkerProcess,
        are_dirty_pages_many=DirtyPages().are_many,
        network=OsNetwork(),
        host_name=socket.getfqdn,
        descriptors_max=soft_limit(),
        open_descriptors=open_count,
        new_cluster_store=_zookeeper_store,
    )


def _zookeeper_store(settings: ZooKeeperSettings) -> StateStore:
    from controller.zookeeper.store import ZooKeeperStore  # imported on demand: a broker that runs alone starts faster

    return ZooKeeperStore(settings)
