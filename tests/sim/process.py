"""One simulated broker process: a whole `Server` whose environment is the world.

Owns the environment. Must not know what clients do, or which faults there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from broker.environment import Environment
from broker.loop.slices import SLICE_MS, STEPS_MIN, SlicedWork
from broker.server import Server
from config.broker import BrokerConfig
from controller.store.state_store import StateStore
from controller.zookeeper.settings import ZooKeeperSettings
from storage.cleaning.cleaner import clean
from storage.cleaning.cleaning_job import CleaningJob, CleaningResult
from storage.disk.files import Files
from tests.sim.disk import EPOCH_MS, DiskFiles
from tests.sim.network import SimulatedNetwork
from tests.sim.world import ProcessLoop, SimulatedThreads

PORT = 9092
SLICE_US_MAX = 1_000
"""How long a slice takes at most, so that requests arrive between the slices of one work."""


class SimulatedClock:
    """The clocks that a process sees. The wall clock of its machine is wrong by `error_ms()`."""

    def __init__(self, loop: ProcessLoop, error_ms: Callable[[], int] = lambda: 0) -> None:
        self._loop = loop
        self._error_ms = error_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self._error_ms() + self._loop.now_us() // 1000

    def monotonic_ms(self) -> int:
        return self._loop.now_us() // 1000

    def monotonic_s(self) -> float:
        return self._loop.now_us() / 1_000_000

    def processor_s(self) -> float:
        return 0.0


class SliceClock:
    """Measures slices of long work. Each reading ends the slice by chance; then the turn takes some time."""

    def __init__(self, random: Random, stall: Callable[[int], None]) -> None:
        self._random = random
        self._stall = stall
        self._chance = random.choice([0.0, 0.05, 0.5])
        self.steps_min = random.choice([1, 2, STEPS_MIN])
        self._now_ms = 0

    def now_ms(self) -> int:
        if self._random.random() < self._chance:
            self._now_ms += SLICE_MS
            self._stall(self._random.randrange(SLICE_US_MAX))
        return self._now_ms


class InlineWorker:
    """A `Worker` of the log cleaner that cleans in the step of the calling thread."""

    def __init__(self, files: Files, note: Callable[[str, str], None]) -> None:
        self._files = files
        self._note = note

    def clean(self, job: CleaningJob) -> CleaningResult:
        self._note("clean", job.directory)
        return clean(job, self._files)

    def end(self) -> None: ...


class BrokerProcess:
    """A broker that runs in a world, from its start until it is stopped or killed.

    `new_files(loop)` returns the files of the process; `new_store` its connection to a simulated ZooKeeper, without
    which it runs alone. With `ends_slices`, long work on its loop is interrupted at random steps.
    """

    started: asyncio.Task[None]
    stopped: asyncio.Task[None]

    def __init__(
        self,
        network: SimulatedNetwork,
        host: str,
        new_files: Callable[[ProcessLoop], Files],
        properties: Mapping[str, str],
        *,
        clock_error_ms: Callable[[], int] = lambda: 0,
        ends_slices: bool = True,
        new_store: Callable[[ProcessLoop, ZooKeeperSettings], StateStore] | None = None,
    ) -> None:
        self.host = host
        self.loop: ProcessLoop = network.world.new_loop(host)
        self.files = new_files(self.loop)
        self._network = network
        config = BrokerConfig.from_properties(
            {
                "listeners": f"PLAINTEXT://{host}:{PORT}",
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "transaction.state.log.num.partitions": "1",
                **properties,
            }
        )
        seed = network.world.random.getrandbits(64)
        slices = SliceClock(Random(f"{seed}/slices"), self.loop.stall) if ends_slices else None
        environment = Environment(
            clock=SimulatedClock(self.loop, clock_error_ms),
            random=Random(seed),
            files=self.files,
            new_threads=lambda size, name: SimulatedThreads(self.loop),
            new_worker=lambda: InlineWorker(self.files, network.world.note),
            are_dirty_pages_many=lambda: False,
            network=network.host(host, self.loop),
            host_name=lambda: host,
            descriptors_max=1 << 20,
            open_descriptors=lambda: 0,
            new_sliced_work=lambda clock: (
                SlicedWork(clock.monotonic_ms) if slices is None else SlicedWork(slices.now_ms, slices.steps_min)
            ),
            new_cluster_store=None if new_store is None else lambda settings: new_store(self.loop, settings),
        )
        self.server = Server(config, environment)

    def start(self, on_fatal: Callable[[], None] = lambda: None) -> None:
        self.started = self.loop.start(self.server.start(on_fatal))

    def stop(self) -> None:
        self.stopped = self.loop.start(self.server.stop())

    def kill(self) -> None:
        """End the process as kill -9 does: its files stay as they are, its connections are closed."""
        self._end()
        self._network.process_died(self.loop)

    def lose_power(self) -> None:
        """End the process with its machine: its peers are not notified."""
        self._end()
        self._network.machine_died(self.loop)

    def _end(self) -> None:
        if isinstance(self.files, DiskFiles):
            self.files.die()
        self.loop.kill()
