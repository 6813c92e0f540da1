"""Brokers for tests that run in an event loop: every call is awaited, and a service in the same loop keeps running.

Owns the asynchronous names. Each class holds the blocking object of the same name as `blocking`, which does the work;
`milena_broker.testing.steps` runs it. Must not know what the work is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from milena_broker.testing.broker import Broker, Cluster
from milena_broker.testing.client_settings import Library, Mechanism
from milena_broker.testing.controls import Controls
from milena_broker.testing.operations import Operations
from milena_broker.testing.process_cluster import ClusterBroker, ProcessCluster
from milena_broker.testing.schema_registry import SchemaRegistry
from milena_broker.testing.steps import awaited, awaited_change

__tracebackhide__ = True


class AsyncControls:
    """See `milena_broker.testing.controls.Controls`."""

    slow_disk = awaited_change(Controls.slow_disk)
    fail_next = awaited_change(Controls.fail_next)
    delay = awaited_change(Controls.delay)
    drop_connection = awaited_change(Controls.drop_connection)
    fault_count = awaited(Controls.fault_count)
    clear_faults = awaited(Controls.clear_faults)
    run_retention = awaited(Controls.run_retention)
    run_compaction = awaited(Controls.run_compaction)


class AsyncCluster(AsyncControls):
    """See `Cluster`. Use with `async with`."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        folder: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> None:
        """See `Cluster`."""
        self.blocking = Cluster(
            brokers,
            settings,
            topics=topics,
            seed=seed,
            folder=folder,
            tls=tls,
            users=users,
            movable_clock=movable_clock,
        )

    advance = awaited(Cluster.advance)
    start_broker = awaited(Cluster.start_broker)
    stop_broker = awaited(Cluster.stop_broker)
    kill = awaited(Cluster.kill)
    restart = awaited(Cluster.restart)
    stop = awaited(Cluster.stop)
    pause = awaited_change(Cluster.pause)
    resume = awaited(Cluster.resume)

    create_topic = awaited(Operations.create_topic)
    produce = awaited(Operations.produce)
    consume = awaited(Operations.consume)
    reset = awaited(Operations.reset)
    wait_for_record = awaited(Operations.wait_for_record)
    wait_for_topic = awaited(Operations.wait_for_topic)
    wait_for_leader = awaited(Operations.wait_for_leader)
    wait_for_isr = awaited(Operations.wait_for_isr)
    wait_for_group = awaited(Operations.wait_for_group)

    async def start(self) -> Self:
        """See `Cluster.start`."""
        await asyncio.to_thread(self.blocking.start)
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.shield(self.stop())

    @property
    def bootstrap_servers(self) -> str:
        """See `Cluster.bootstrap_servers`."""
        return self.blocking.bootstrap_servers

    def client_settings(
        self, user: str | None = None, *, library: Library = "librdkafka", mechanism: Mechanism = "SCRAM-SHA-256"
    ) -> dict[str, Any]:
        """See `Cluster.client_settings`."""
        return self.blocking.client_settings(user, library=library, mechanism=mechanism)

    @property
    def certificate_authority(self) -> Path | None:
        """See `Cluster.certificate_authority`."""
        return self.blocking.certificate_authority

    @property
    def pid(self) -> int:
        """See `Cluster.pid`."""
        return self.blocking.pid

    @property
    def log(self) -> Path:
        """See `Cluster.log`."""
        return self.blocking.log

    @property
    def logs(self) -> Sequence[Path]:
        """See `Cluster.logs`."""
        return self.blocking.logs


class AsyncBroker(AsyncCluster):
    """See `Broker`. Use with `async with`."""

    blocking: Broker

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        as_version: str | None = None,
        folder: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> None:
        """See `Broker`."""
        self.blocking = Broker(
            settings,
            topics=topics,
            seed=seed,
            as_version=as_version,
            folder=folder,
            tls=tls,
            users=users,
            movable_clock=movable_clock,
        )

    @classmethod
    def of(cls, broker: Broker) -> Self:
        """Return the asynchronous form of a broker that exists."""
        own = cls.__new__(cls)
        own.blocking = broker
        return own


class AsyncClusterBroker(AsyncControls):
    """See `ClusterBroker`."""

    kill = awaited(ClusterBroker.kill)
    stop = awaited(ClusterBroker.stop)
    start = awaited(ClusterBroker.start)
    restart = awaited(ClusterBroker.restart)
    pause = awaited_change(ClusterBroker.pause)
    resume = awaited(ClusterBroker.resume)

    def __init__(self, broker: ClusterBroker) -> None:
        self.blocking = broker

    @property
    def broker_id(self) -> int:
        return self.blocking.broker_id

    @property
    def bootstrap_server(self) -> str:
        """See `ClusterBroker.bootstrap_server`."""
        return self.blocking.bootstrap_server

    @property
    def pid(self) -> int:
        """See `ClusterBroker.pid`."""
        return self.blocking.pid

    @property
    def log(self) -> Path:
        """See `ClusterBroker.log`."""
        return self.blocking.log

    @property
    def is_running(self) -> bool:
        """See `ClusterBroker.is_running`."""
        return self.blocking.is_running


class AsyncSchemaRegistry:
    """See `SchemaRegistry`. Use with `async with`."""

    stop = awaited(SchemaRegistry.stop)
    reset = awaited(SchemaRegistry.reset)

    def __init__(self) -> None:
        self.blocking = SchemaRegistry()

    async def start(self) -> Self:
        """See `SchemaRegistry.start`."""
        await asyncio.to_thread(self.blocking.start)
        return self

    @property
    def url(self) -> str:
        """See `SchemaRegistry.url`."""
        return self.blocking.url

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.shield(self.stop())


class AsyncProcessCluster(AsyncCluster):
    """See `ProcessCluster`. Use with `async with`."""

    blocking: ProcessCluster

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        racks: Sequence[str] = (),
        topics: Mapping[str, int] | None = None,
        seed: Mapping[str, str | Path] | None = None,
        folder: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        movable_clock: bool = False,
    ) -> None:
        """See `ProcessCluster`."""
        self.blocking = ProcessCluster(
            brokers, settings, racks=racks, topics=topics, seed=seed, folder=folder, tls=tls, users=users
        )

    isolate = awaited_change(ProcessCluster.isolate)

    def broker(self, broker_id: int) -> AsyncClusterBroker:
        """See `ProcessCluster.broker`."""
        return AsyncClusterBroker(self.blocking.broker(broker_id))

    async def leader_of(self, topic: str, partition: int = 0) -> AsyncClusterBroker:
        """See `ProcessCluster.leader_of`."""
        return AsyncClusterBroker(await asyncio.to_thread(self.blocking.leader_of, topic, partition))

    @property
    def folder(self) -> Path:
        """See `ProcessCluster.folder`."""
        return self.blocking.folder
