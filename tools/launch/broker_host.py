"""Hosts brokers of `milena_broker.testing`, and runs its commands: all brokers of a cluster, or one of them.

Owns the commands and the end of the process. Must not know pytest. The test process talks through an inherited socket:
frames of a length and JSON; a response repeats the `number` of its command. When the socket ends, or this process has
another parent than at the start, it removes the data if it is temporary, and ends; so no broker outlives its tests. If
the parent ends while this process is halted, the kernel continues it, where the kernel can (Linux).

If all brokers of a cluster share this process, they share a metadata store in memory. If each has its own, one more
process hosts their coordination server (`tools.launch.cluster_host`).
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from broker.environment import Environment, environment_of_this_machine
from broker.network.network import SocketOptions
from broker.network.os_network import OsNetwork
from broker.network.tls import ClientContext
from broker.process import run_in_loop
from broker.requests.dispatch import request_decoder
from broker.requests.local_client import LocalClient
from broker.requests.routes import TABLE
from broker.server import Server, StartupError
from config.broker import BrokerConfig
from config.definition import ConfigError, ConfigErrors
from controller.embedded.memory_store import MemoryStore, MemoryTree
from protocol.api import APIS
from protocol.codec import encoder
from protocol.errors import KafkaError
from protocol.schema import message_info
from storage.disk.files import Buffer, OpenFile, OsFiles
from tools.launch.host_commands import PRELOADED, CommandError, Commands
from tools.log_output.log_lines import log_to_stderr

if TYPE_CHECKING:
    from tools.launch.cluster_host import ClusterHost

LISTENER = "PLAINTEXT"
FRAME_LENGTH = struct.Struct(">I")
PARENT_CHECK_S = 0.5
REMOVALS_MAX = 3
_PR_SET_PDEATHSIG = 1

DEFAULTS = {
    "auto.create.topics.enable": "true",
    "controlled.shutdown.retry.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""The settings of brokers for tests that differ from Kafka's: groups form immediately, internal topics are small."""


class SlowFiles(OsFiles):
    """The files of the machine, with writes and syncs that take longer."""

    def __init__(self) -> None:
        super().__init__()
        self.delay_s = 0.0

    def write(self, file: OpenFile, buffer: Buffer, position: int) -> int:
        if self.delay_s:
            time.sleep(self.delay_s)
        return super().write(file, buffer, position)

    def sync(self, file: OpenFile) -> None:
        if self.delay_s:
            time.sleep(self.delay_s)
        super().sync(file)


class CutNetwork(OsNetwork):
    """The network of the machine, without connections to some ports."""

    def __init__(self) -> None:
        self._cut: frozenset[int] = frozenset()
        self._transports: WeakSet[asyncio.Transport] = WeakSet()

    def cut(self, ports: Iterable[int]) -> None:
        """Close the connections that were opened to these ports, and open none until the next call."""
        self._cut = frozenset(ports)
        for transport in list(self._transports):
            peer = transport.get_extra_info("peername")
            if peer is not None and peer[1] in self._cut:
                transport.abort()

    async def connect(
        self,
        protocol: asyncio.BufferedProtocol,
        host: str,
        port: int,
        options: SocketOptions,
        tls: ClientContext | None = None,
    ) -> asyncio.Transport:
        if port in self._cut:
            raise ConnectionRefusedError(f"the test has isolated port {port}")
        transport = await super().connect(protocol, host, port, options, tls)
        self._transports.add(transport)
        return transport


class Host:
    """The brokers of one process."""

    def __init__(self, order: Mapping[str, Any], on_fatal: asyncio.Event) -> None:
        """`order` has the data folder, the ids of the brokers, their ports (0: any), settings, how many brokers the
        cluster has, and where its coordination server is; None: all of its brokers are in this process.
        """
        self._folder: str = order["folder"]
        self._ports: dict[int, int] = dict(zip(order["brokers"], order["ports"], strict=True))
        self._size: int = order["cluster_size"]
        self._coordination: str | None = order["coordination"]
        self._settings: dict[str, str] = order["settings"]
        self._files = SlowFiles()
        self._network = CutNetwork()
        self._tree = MemoryTree()
        self._servers: dict[int, Server] = {}
        self._clients: dict[int, LocalClient] = {}
        self._commands = Commands(self._clients)
        self._on_fatal = on_fatal

    async def start(self) -> list[int]:
        """Start all brokers and return their ports. Raises StartupError, ConfigError and ConfigErrors."""
        for broker_id in self._ports:
            await self._start(broker_id)
        await self._commands.until_all_know(len(self._ports))
        return list(self._ports.values())

    async def stop(self) -> None:
        """Stop all brokers cleanly."""
        for broker_id in reversed(list(self._servers)):
            await self._remove(broker_id).stop()

    async def run(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run one command and return its result. Raises CommandError, KafkaError and StartupError."""
        match command:
            case "slow_disk":
                self._files.delay_s = arguments["delay_ms"] / 1000
            case "stop_broker":
                await self._remove(arguments["broker_id"]).stop()
            case "start_broker":
                await self._start(arguments["broker_id"])
            case "cut":
                self._network.cut(arguments["ports"])
            case _:
                return await self._commands.run(command, arguments)
        return None

    async def _start(self, broker_id: int) -> None:
        if broker_id in self._servers or broker_id not in self._ports:
            raise CommandError(f"broker {broker_id} is running, or not one of {', '.join(map(str, self._ports))}")
        config = BrokerConfig.from_properties(
            {
                **DEFAULTS,
                "broker.id": str(broker_id),
                "listeners": f"{LISTENER}://127.0.0.1:{self._ports[broker_id]}",
                "log.dirs": os.path.join(self._folder, f"data-{broker_id}"),
                **_replication(self._size, self._coordination),
                **self._settings,
            }
        )
        environment = self._environment()
        server = Server(config, environment)
        try:
            await server.start(on_fatal=self._on_fatal.set)
        except BaseException:
            await server.stop()
            raise
        self._ports[broker_id] = server.ports[next(iter(server.ports))]
        self._servers[broker_id] = server
        self._clients[broker_id] = LocalClient(server.dispatcher, environment.clock, config.listeners[0].name)

    def _environment(self) -> Environment:
        environment = replace(environment_of_this_machine(), files=self._files, network=self._network)
        if self._size == 1 or self._coordination is not None:
            return environment
        return replace(environment, new_cluster_store=lambda _: MemoryStore(self._tree))

    def _remove(self, broker_id: int) -> Server:
        if broker_id not in self._servers:
            raise CommandError(f"broker {broker_id} is not running, expected one of {sorted(self._servers)}")
        del self._clients[broker_id]
        return self._servers.pop(broker_id)


def _replication(brokers: int, coordination: str | None) -> dict[str, str]:
    copies = str(min(brokers, 3))
    settings = {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(brokers, 2)),
    }
    return settings if brokers == 1 else {**settings, "zookeeper.connect": coordination or "memory:2181"}


# -- the process -------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Host brokers until the socket ends whose descriptor is the argument; return the exit status."""
    (descriptor,) = sys.argv[1:] if arguments is None else arguments
    parent_id = os.getppid()
    _continue_when_parent_dies()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the tests, and they stop their brokers
    log_to_stderr(logging.INFO)
    return run_in_loop(_serve(socket.socket(fileno=int(descriptor)), parent_id))


def preload() -> None:
    """Import what most brokers for tests use, and compile its codecs, before brokers are forked."""
    for request in PRELOADED:
        api = APIS[message_info(request).api_key]
        request_decoder(TABLE[api.key], api, api.versions[-1])
        encoder(api.response, api.versions[-1])


def preload_cluster() -> None:
    """Import what the processes of a cluster use beside."""
    import tools.launch.cluster_host  # noqa: F401


def _continue_when_parent_dies() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


async def _serve(control: socket.socket, parent_id: int) -> int:
    reader, writer = await asyncio.open_connection(sock=control)
    order = await _received(reader)
    if order is None:
        return 1
    failed = asyncio.Event()
    asyncio.get_running_loop().call_soon(_watch_parent, parent_id, order)
    host = _new_host(order, failed)
    try:
        _send(writer, order, {"result": await host.start()})
    except (StartupError, ConfigError, ConfigErrors, OSError) as error:
        _send(writer, order, {"error": str(error)})
        await writer.drain()
        return 1
    ended = asyncio.create_task(failed.wait())
    while True:
        receiving = asyncio.ensure_future(_received(reader))
        await asyncio.wait({receiving, ended}, return_when=asyncio.FIRST_COMPLETED)
        request = receiving.result() if receiving.done() else {"command": "stop", "number": None}
        if request is None:
            _end(order)
        elif request["command"] == "stop":
            await host.stop()
            _send(writer, request, {"result": None})
            await writer.drain()
            return int(failed.is_set())
        else:
            _send(writer, request, await _outcome(host, request))
            await writer.drain()


def _new_host(order: Mapping[str, Any], failed: asyncio.Event) -> Host | ClusterHost:
    if order["brokers"]:
        return Host(order, failed)
    from tools.launch.cluster_host import ClusterHost  # most brokers for tests run alone

    return ClusterHost(order, failed)


async def _outcome(host: Host | ClusterHost, request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return {"result": await host.run(request["command"], request["arguments"])}
    except (CommandError, KafkaError, StartupError, ConfigError, ConfigErrors, OSError) as error:
        return {"error": str(error)}


def _watch_parent(parent_id: int, order: Mapping[str, Any]) -> None:
    if os.getppid() != parent_id:
        _end(order)
    asyncio.get_running_loop().call_later(PARENT_CHECK_S, _watch_parent, parent_id, order)


def _end(order: Mapping[str, Any]) -> None:
    """End this process immediately, because no process is left that reads its data."""
    for _ in range(REMOVALS_MAX if order["is_temporary"] else 0):
        shutil.rmtree(order["folder"], ignore_errors=True)  # a thread of the broker may still create a file in it
    os._exit(0)


async def _received(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next message of the parent; None if it has ended."""
    try:
        (size,) = FRAME_LENGTH.unpack(await reader.readexactly(FRAME_LENGTH.size))
        message: dict[str, Any] = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message


def _send(writer: asyncio.StreamWriter, request: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
    """Send what became of a request, with its number."""
    data = json.dumps({"number": request["number"], **outcome}).encode()
    writer.write(FRAME_LENGTH.pack(len(data)) + data)


if __name__ == "__main__":
    raise SystemExit(main())
