"""A real ZooKeeper, from the jars that pyspark ships."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.support.java import java_command, pyspark_jars
from tests.support.processes import ServerProcess, free_port

ASK_TIMEOUT_S = 2.0


class ZooKeeperProcess(ServerProcess):
    """One standalone server on 127.0.0.1 that keeps everything below `folder`."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        settings = folder / "zoo.cfg"
        settings.write_text(_settings(folder / "data", self.port))
        command = java_command(
            [pyspark_jars() / "*"],
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            [str(settings)],
            options=["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        )
        super().__init__("ZooKeeper", command, folder / "zookeeper.log", self._is_serving)

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return f"127.0.0.1:{self.port}"

    def _is_serving(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), ASK_TIMEOUT_S) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"


def _settings(data: Path, port: int) -> str:
    return "\n".join(
        [
            f"dataDir={data}",
            f"clientPort={port}",
            "clientPortAddress=127.0.0.1",
            "tickTime=500",
            "minSessionTimeout=1000",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            "",
        ]
    )
