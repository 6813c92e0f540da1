"""A simulated cluster: machines with disks and clocks, a ZooKeeper, a network, and broker processes that come and go.

Owns the means to start, stop and hurt brokers. Must not know when that happens (`tests.sim.faults` does), or what
clients do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.server import StartupError
from tests.sim.coordination import SimulatedCoordination
from tests.sim.disk import DiskFiles, RandomCut, SimulatedDisk
from tests.sim.network import SimulatedNetwork
from tests.sim.process import PORT, BrokerProcess
from tests.sim.world import ProcessLoop, World
from tests.sim.zookeeper import SimulatedZooKeeper

FOLDER: Final = "/data"
FOLDERS: Final = (FOLDER, "/more")
"""All log directories that a broker may have."""
WITHOUT_IDS: Final = "2.6"
"""An `inter.broker.protocol.version` in which controllers know no topic ids."""
RESTART_US: Final = 1_000_000
"""How long the supervisor of a machine waits before it starts a broker again that could not start or failed."""

PROPERTIES: Final = {
    "zookeeper.connect": "zookeeper:2181",
    "zookeeper.session.timeout.ms": "6000",
    "log.dirs": FOLDER,
    "log.segment.bytes": "4096",
    "log.index.size.max.bytes": "1024",
    "log.index.interval.bytes": "256",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "1500",
    "replica.fetch.backoff.ms": "200",
    "controlled.shutdown.retry.backoff.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "log.cleaner.enable": "false",
    "leader.imbalance.check.interval.seconds": "20",
    "request.timeout.ms": "10000",
    "controller.socket.timeout.ms": "10000",
    "replica.socket.timeout.ms": "10000",
}


@dataclass(slots=True)
class Machine:
    """One machine of the cluster. It runs a broker unless it is down; `is_wanted` says whether it should."""

    broker_id: int
    host: str
    rack: str = ""
    """Empty if it is in no rack."""
    protocol: str = ""
    """`inter.broker.protocol.version`, until the broker is stopped cleanly; empty for the newest."""
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    clock_error_ms: int = 0
    is_wanted: bool = True
    process: BrokerProcess | None = None
    has_failed: bool = False
    """Whether the process is ending by itself; it will be started again."""
    starts: int = 0


class Cluster:
    """Brokers 1 to `size`, each on the machine `broker-<id>`."""

    def __init__(
        self, world: World, size: int, properties: Mapping[str, str] | None = None, *, is_coordinated: bool = False
    ) -> None:
        """With `is_coordinated`, brokers have sessions with the coordination server, not with a model of ZooKeeper."""
        self.world = world
        self.network = SimulatedNetwork(world)
        self.zookeeper = (SimulatedCoordination if is_coordinated else SimulatedZooKeeper)(self.network)
        self.properties = {**PROPERTIES, **(properties or {})}
        self.machines = {number: Machine(number, f"broker-{number}") for number in range(1, size + 1)}
        self.ends_slices = True
        """Whether long work on the loops of brokers is interrupted at random steps."""
        self.on_death: Callable[[Machine], None] = lambda machine: None
        """Called after a process was killed, before its machine forgets it."""
        self.on_power_loss: Callable[[Machine, Callable[[], None]], None] = lambda machine, cut: cut()
        """Called with the cut of the power, before the machine forgets its process; calls it."""
        self.on_started: list[Callable[[Machine], None]] = []
        """Called with the machine of a broker that has started."""
        self.failures: list[str] = []
        """What reached the exception handlers of brokers: defects of the brokers."""

    @property
    def folders(self) -> list[str]:
        """The log directories of each broker."""
        return self.properties["log.dirs"].split(",")

    @property
    def hosts(self) -> list[str]:
        return [machine.host for machine in self.machines.values()]

    # Start and stop

    def start(self, broker_id: int) -> None:
        """Start the broker of a machine, and start it again if it fails by itself."""
        machine = self.machines[broker_id]
        assert machine.process is None
        machine.is_wanted = True
        machine.has_failed = False
        machine.starts += 1
        disk = machine.disk
        for folder in self.folders:
            disk.provide_directory(folder)
        process = machine.process = BrokerProcess(
            self.network,
            machine.host,
            lambda loop: DiskFiles(disk, loop.now_us, loop.stall),
            {
                **self.properties,
                "broker.id": str(broker_id),
                **({"broker.rack": machine.rack} if machine.rack else {}),
                **({"inter.broker.protocol.version": machine.protocol} if machine.protocol else {}),
            },
            clock_error_ms=lambda: machine.clock_error_ms,
            ends_slices=self.ends_slices,
            new_store=lambda loop, settings: self.zookeeper.new_store(machine.host, loop, settings),
        )
        self.world.note("start", machine.host)
        process.start(partial(self._has_failed, machine, process))
        process.started.add_done_callback(partial(self._has_started, machine, process))

    def _has_started(self, machine: Machine, process: BrokerProcess, started: object) -> None:
        if process.started.cancelled():
            return
        error = process.started.exception()
        if error is None:
            self.world.note("started", machine.host)
            for call in self.on_started:
                call(machine)
            return
        if not isinstance(error, StartupError):
            self.failures.append(f"{machine.host} at its start: {error!r}")
        self.world.note("start failed", machine.host, f"{error}")
        self._has_failed(machine, process)

    def _has_failed(self, machine: Machine, process: BrokerProcess) -> None:
        """The broker ends by itself: it stops, and its supervisor starts it again."""
        self.world.note("failed", machine.host)
        machine.has_failed = True
        process.stop()

        def again() -> None:
            if machine.process is process:
                self.kill(machine.broker_id)
                self.start(machine.broker_id)

        self.world.after(RESTART_US, again)

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly; its machine runs none until `start`."""
        machine = self.machines[broker_id]
        process = machine.process
        if process is None:
            return
        machine.is_wanted = False
        self.world.note("stop", machine.host)
        if machine.protocol:
            self.world.note("upgrade", machine.host, machine.protocol)
            machine.protocol = ""
        process.stop()

        def has_stopped(stopped: asyncio.Task[None]) -> None:
            # Not `process.stopped`: a broker whose disk fails while it stops is stopped once more.
            if machine.process is process:
                if stopped.exception() is not None:
                    self.failures.append(f"{machine.host} at its stop: {stopped.exception()!r}")
                self.world.note("stopped", machine.host)
                self._bury(machine)

        process.stopped.add_done_callback(has_stopped)

    def kill(self, broker_id: int) -> None:
        machine = self.machines[broker_id]
        if machine.process is not None:
            self.world.note("kill", machine.host)
            machine.process.kill()
            self.on_death(machine)
            self._bury(machine)

    def kill_in_call(self, broker_id: int, calls: int) -> None:
        """Kill a broker within a call of its disk, after `calls` more of them."""
        machine = self.machines[broker_id]
        process = machine.process
        if process is not None and isinstance(process.files, DiskFiles):

            def crash() -> None:
                if machine.process is process:
                    self.kill(broker_id)

            process.files.crash_after(calls, crash)

    def lose_power(self, broker_id: int) -> None:
        """Cut the power of a machine: what its disk has not synced may be lost."""
        machine = self.machines[broker_id]
        self.world.note("lose power", machine.host)
        if machine.process is not None:
            machine.process.lose_power()
        self.on_power_loss(machine, lambda: machine.disk.lose_power(RandomCut(self.world.random)))
        if machine.process is not None:
            self._bury(machine)

    def return_power(self, broker_id: int) -> None:
        self.network.machine_returned(self.machines[broker_id].host)

    def _bury(self, machine: Machine) -> None:
        """Note the defects of a process that has ended."""
        assert machine.process is not None
        self._note_failures(machine)
        if not machine.process.loop.is_killed:  # it has stopped by itself
            machine.process.kill()
        machine.process = None

    def _note_failures(self, machine: Machine) -> None:
        if machine.process is not None:
            failures = machine.process.loop.failures
            for context in failures:
                task = context.get("task") or context.get("future")
                name = task.get_name() if isinstance(task, asyncio.Task) else ""
                self.failures.append(f"{machine.host}: {context.get('message')}: {name} {context.get('exception')!r}")
            failures.clear()
            dispatcher = getattr(machine.process.server, "dispatcher", None)  # None before it has started
            if dispatcher is not None and dispatcher.unexpected_error_count:
                self.failures.append(
                    f"{machine.host}: {dispatcher.unexpected_error_count} requests failed unexpectedly"
                )
                dispatcher.unexpected_error_count = 0

    # Observation

    def is_running(self, broker_id: int) -> bool:
        """Whether the broker has started and still runs; one that has failed only ends."""
        process = self.machines[broker_id].process
        return (
            process is not None
            and not self.machines[broker_id].has_failed
            and process.started.done()
            and not process.started.cancelled()
            and process.started.exception() is None
        )

    def collect_failures(self) -> list[str]:
        """Return the defects noted so far, those of running brokers included."""
        for machine in self.machines.values():
            self._note_failures(machine)
        return self.failures

    def client_loop(self, name: str) -> ProcessLoop:
        """Return the loop of a new client process on the machine `name`."""
        return self.world.new_loop(name)

    def addresses(self) -> list[tuple[str, int]]:
        return [(host, PORT) for host in self.hosts]
