"""A real ZooKeeper, from the jars that pyspark ships."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.java import java_command, pyspark_jars
from tests.support.processes import ServerProcess

ASK_TIMEOUT_S = 2.0


def server_command(settings: Path) -> list[str]:
    """Return a command line with options for a quick start and little memory."""
    return java_command(
        [pyspark_jars() / "*"],
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        [str(settings)],
        options=["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
    )


class ZooKeeperProcess(ServerProcess):
    """One standalone server on 127.0.0.1 with all files below `folder`."""

    def __init__(self, folder: Path, *, command: Callable[[Path], Sequence[str]] = server_command) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "zoo.cfg"
        super().__init__(
            "ZooKeeper",
            command(settings),
            folder / "zookeeper.log",
            _is_serving,
            settings=settings,
            properties=lambda port: _properties(folder / "data", port),
        )

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return self.bootstrap


def _is_serving(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), ASK_TIMEOUT_S) as connection:
        connection.sendall(b"srvr")  # a server that responds to `ruok` may still drop connections
        return connection.recv(4096).startswith(b"Zookeeper version")


def _properties(data: Path, port: int) -> Mapping[str, str]:
    return {
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "tickTime": "500",
        "minSessionTimeout": "1000",
        "maxSessionTimeout": "60000",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
    }
