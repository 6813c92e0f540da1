"""Several whole brokers in the test's own process and event loop. They share a store in memory, and reach each other
over real sockets.

Owns: the brokers' life. Must not know what a test does with them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from broker.environment import Environment, environment_of_this_machine
from broker.requests.services import Services
from broker.server import Server
from config.broker import BrokerConfig
from controller.coordination.memory_store import MemoryStore, MemoryTree
from tests.support.in_process import LISTENER, InProcessBroker

PATIENCE_S = 20.0


class InProcessCluster:
    """Brokers by their ids; the first one that starts becomes the controller."""

    def __init__(self, folder: Path, overrides: Mapping[str, str], environment: Environment) -> None:
        self.tree = MemoryTree()
        self.stores: dict[int, MemoryStore] = {}
        self.brokers: dict[int, InProcessBroker] = {}
        self._servers: dict[int, Server] = {}
        self._folder = folder
        self._overrides = overrides
        self._environment = environment

    async def start(self, broker_id: int, overrides: Mapping[str, str] | None = None) -> InProcessBroker:
        """Start a broker, or start it again over its folder."""
        config = BrokerConfig.from_properties(
            {
                "broker.id": str(broker_id),
                "zookeeper.connect": "memory:2181",
                "listeners": f"{LISTENER}://127.0.0.1:0",
                "log.dirs": str(self._folder / str(broker_id)),
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "4",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.num.partitions": "4",
                "transaction.state.log.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
                "log.cleaner.enable": "false",
                "controlled.shutdown.enable": "false",
                **self._overrides,
                **(overrides or {}),
            }
        )
        store = self.stores[broker_id] = MemoryStore(self.tree)
        server = Server(config, replace(self._environment, new_cluster_store=lambda _: store))
        self._servers[broker_id] = server
        await server.start()
        broker = self.brokers[broker_id] = InProcessBroker(server.dispatcher, server._services, server.metrics_port)
        return broker

    async def stop(self, broker_id: int) -> None:
        self.brokers.pop(broker_id, None)
        await self._servers.pop(broker_id).stop()

    async def stop_all(self) -> None:
        for broker_id in reversed(list(self._servers)):
            await self.stop(broker_id)

    def services(self, broker_id: int) -> Services:
        return self.brokers[broker_id].services

    @property
    def controller(self) -> InProcessBroker:
        (active,) = (broker for broker in self.brokers.values() if broker.services.controller.is_active)
        return active

    async def see_each_other(self) -> None:
        """Wait until each broker's metadata shows all of them."""
        await until(
            lambda: all(
                one.services.metadata_cache.brokers.keys() == self.brokers.keys() for one in self.brokers.values()
            )
        )


async def until(holds: Callable[[], object], what: str = "the condition holds") -> None:
    """Let the loop turn until a condition holds."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > give_up_s:
            raise AssertionError(f"not in {PATIENCE_S} s: {what}")
        await asyncio.sleep(0.002)


@asynccontextmanager
async def running_cluster(
    folder: Path,
    broker_ids: tuple[int, ...] = (1, 2),
    overrides: Mapping[str, str] | None = None,
    environment: Environment | None = None,
) -> AsyncIterator[InProcessCluster]:
    """Run brokers that see each other; the first one is the controller. Stops all at the end."""
    cluster = InProcessCluster(folder, overrides or {}, environment or environment_of_this_machine())
    try:
        for broker_id in broker_ids:
            await cluster.start(broker_id)
        await cluster.see_each_other()
        yield cluster
    finally:
        await cluster.stop_all()
