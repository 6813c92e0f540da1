"""A whole broker in the test's own process and event loop, used without sockets.

Owns: the server's life.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from base.clock import Clock
from base.file_slice import FileSlice
from broker.environment import environment_of_this_machine
from broker.network.channel import Channel
from broker.network.connection import Buffers
from broker.network.listener import Listener
from broker.network.unsent_responses import UnsentResponses
from broker.requests.dispatch import RequestDispatcher
from broker.requests.local_client import LocalClient
from broker.requests.services import Services
from broker.server import Server, StartupError
from config.broker import BrokerConfig
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from storage.disk.files import Files, OpenFile, OsFiles, failure
from tests.support.secrets import secrets_in_bytes

LISTENER = "PLAINTEXT"
INTERNAL_PARTITIONS = 4
"""Of each internal topic: the default, 50, would make the first request of a group ten times as expensive."""


class UntimedFiles(OsFiles):
    """Files in memory, whose calls take no time by their clock.

    On a busy machine, a directory would otherwise become slow: a thread writes to it, and appends end in later turns
    of the event loop.
    """

    monotonic_s = staticmethod(lambda: 0.0)

    def read_cached_into(self, file: OpenFile, buffer: bytearray | memoryview, position: int) -> int:
        """Read as from the page cache in any folder: tmpfs has no RWF_NOWAIT."""
        try:
            return os.preadv(file.descriptor, [buffer], position)
        except OSError as error:
            raise failure(error, "read", file.path) from None


class InProcessBroker(LocalClient):
    """One running broker; `ask` sends a request and returns the decoded response."""

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        services: Services,
        metrics_port: int | None = None,
        listeners: Collection[Listener] = (),
    ) -> None:
        super().__init__(dispatcher, services.clock, LISTENER)
        self.dispatcher = dispatcher
        self.services = services
        """The broker's components, for states that no request can cause."""
        self.metrics_port = metrics_port
        self.listeners = listeners

    async def send(self, frame: bytes, channel: Channel) -> Buffers | None:
        """Return the response; fail if it has a secret of the suite."""
        buffers = await super().send(frame, channel)
        assert not secrets_in_bytes(piece for piece in buffers or () if not isinstance(piece, FileSlice))
        return buffers

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; `configs` have underscores for dots."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                    ],
                )
            ]
        )
        response = await self.ask(request)
        assert not response.topics[0].error_code, response.topics[0]


async def reason_not_to_start(config: BrokerConfig) -> str:
    """Return the error of a broker that does not start."""
    server = Server(config, environment_of_this_machine())
    try:
        with pytest.raises(StartupError) as caught:
            await server.start()
    finally:
        await server.stop()
    return str(caught.value)


@contextmanager
def reserved(unsent: UnsentResponses, size: int) -> Iterator[None]:
    """Let responses of `size` bytes wait for their readers."""
    unsent.reserve(size)
    try:
        yield
    finally:
        unsent.release(size)


@asynccontextmanager
async def running_broker(
    folder: Path, overrides: Mapping[str, str] | None = None, *, clock: Clock | None = None, files: Files | None = None
) -> AsyncIterator[InProcessBroker]:
    """Run a broker over `folder`, by default on the machine's clock with `UntimedFiles`; stop it cleanly."""
    config = BrokerConfig.from_properties(
        {
            "broker.id": "0",
            "listeners": f"{LISTENER}://127.0.0.1:0",
            "log.dirs": str(folder),
            "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
            "share.coordinator.state.topic.num.partitions": str(INTERNAL_PARTITIONS),
            "group.initial.rebalance.delay.ms": "0",
            # Retention starts late: what a test stores in a shared broker may have a timestamp of any year.
            "log.initial.task.delay.ms": "3600000",
            **(overrides or {}),
        }
    )
    machine = environment_of_this_machine()
    server = Server(config, replace(machine, clock=clock or machine.clock, files=files or UntimedFiles()))
    try:
        await server.start()
        listeners = server._listeners.sockets.listeners
        yield InProcessBroker(server.dispatcher, server._services, server.metrics_port, listeners)
    finally:
        await server.stop()
