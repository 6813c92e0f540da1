"""Hosts with a store each, around one simulated service of the metadata: what tests of such services begin with."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from controller.store.state_store import StateStore
from controller.zookeeper.settings import ZooKeeperSettings
from tests.sim.network import SimulatedNetwork
from tests.sim.world import ProcessLoop, World
from tests.sim.zookeeper import SimulatedZooKeeper

T = TypeVar("T")
Server = TypeVar("Server", bound=SimulatedZooKeeper)

SETTINGS = ZooKeeperSettings("zookeeper:2181", session_timeout_ms=6000, connection_timeout_ms=6000)


class StoreHosts(Generic[Server]):
    def __init__(self, world: World, new_server: Callable[[SimulatedNetwork], Server]) -> None:
        self.world = world
        self.network = SimulatedNetwork(world)
        self.server = new_server(self.network)
        self.loops: dict[str, ProcessLoop] = {}

    def store(self, host: str) -> StateStore:
        """Return the open store of a new process on `host`."""
        loop = self.loops[host] = self.world.new_loop(host)
        store = self.server.new_store(host, loop, SETTINGS)
        self.run(store.open(), host)
        return store

    def run(self, main: Coroutine[Any, Any, T], host: str = "a") -> T:
        """Run a coroutine in the process on `host`, until it ends, and return its result."""
        task = self.loops[host].start(main)
        assert self.world.run_until(task.done, limit_us=self.world.now_us + 60_000_000), "stuck"
        return task.result()
