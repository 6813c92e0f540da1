"""One simulated broker process: a whole `Server` whose environment is the world.

Owns the environment. Must not know what clients do, or which faults there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from broker.environment import Environment
from broker.server import Server
from config.broker import BrokerConfig
from storage.cleaner import CleaningJob, CleaningResult, clean
from storage.files import Files
from tests.sim.network import SimulatedNetwork
from tests.sim.world import ProcessLoop, SimulatedThreads, World

PORT = 9092
EPOCH_MS = 1_795_000_000_000
"""The wall time at which a world begins."""


class SimulatedClock:
    """The clocks of one machine, of which the wall clock is wrong by `error_ms`."""

    def __init__(self, world: World, error_ms: int = 0) -> None:
        self._world = world
        self._error_ms = error_ms

    def now_ms(self) -> int:
        return EPOCH_MS + self._error_ms + self._world.now_us // 1000

    def monotonic_ms(self) -> int:
        return self._world.now_us // 1000

    def monotonic_s(self) -> float:
        return self._world.now_us / 1_000_000

    def processor_s(self) -> float:
        return 0.0


class InlineWorker:
    """A `Worker` of the log cleaner that cleans in the step of the calling thread."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def clean(self, job: CleaningJob) -> CleaningResult:
        return clean(job, self._files)

    def end(self) -> None: ...


class BrokerProcess:
    """A broker that runs in a world, from its start until it is stopped or killed."""

    def __init__(
        self, network: SimulatedNetwork, host: str, files: Files, folder: Path, properties: Mapping[str, str]
    ) -> None:
        self.host = host
        self.loop: ProcessLoop = network.world.new_loop(host)
        self._network = network
        config = BrokerConfig.from_properties(
            {
                "listeners": f"PLAINTEXT://{host}:{PORT}",
                "log.dirs": str(folder),
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                **properties,
            }
        )
        environment = Environment(
            clock=SimulatedClock(network.world),
            random=Random(network.world.random.getrandbits(64)),
            files=files,
            new_threads=lambda size, name: SimulatedThreads(self.loop),
            new_worker=lambda: InlineWorker(files),
            are_dirty_pages_many=lambda: False,
            network=network.host(host, self.loop),
            host_name=lambda: host,
            descriptors_max=1 << 20,
            open_descriptors=lambda: 0,
        )
        self.server = Server(config, environment)

    def start(self) -> None:
        self.started = self.loop.start(self.server.start())

    def stop(self) -> None:
        self.stopped = self.loop.start(self.server.stop())

    def kill(self) -> None:
        """End the process as kill -9 does: its files stay as they are, its connections are closed."""
        self.loop.kill()
        self._network.process_died(self.loop)
