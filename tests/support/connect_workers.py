"""Workers of Kafka Connect as processes: Milena's, and Apache Kafka's own.

Owns their command lines, the settings that tests share, and requests to their REST interface. Must not know connectors.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.apache_kafka import file_connectors_jar, tool_command
from tests.support.ports import free_port
from tests.support.processes import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
REQUEST_TIMEOUT_S = 30.0
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
TOPICS = ("config", "offset", "status")


def milena_command(settings: Path) -> Sequence[str]:
    return [sys.executable, "-P", "-m", "spark_jobs.connect.cli.distributed", str(settings)]


def kafka_command(settings: Path) -> Sequence[str]:
    return tool_command("org.apache.kafka.connect.cli.ConnectDistributed", str(settings))


class ConnectWorker(ServerProcess):
    """One worker of a group, with its REST interface on 127.0.0.1."""

    def __init__(
        self, folder: Path, bootstrap: str, group: str, *, is_kafkas: bool, overrides: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "worker.properties"

        def properties(port: int) -> Mapping[str, str]:
            topics = {f"{topic}.storage.topic": f"{group}-{topic}" for topic in TOPICS}
            factors = {f"{topic}.storage.replication.factor": "1" for topic in TOPICS}
            return {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "key.converter": STRING_CONVERTER,
                "value.converter": STRING_CONVERTER,
                "listeners": f"http://127.0.0.1:{port}",
                "session.timeout.ms": "3000",
                "heartbeat.interval.ms": "300",
                "scheduled.rebalance.max.delay.ms": "0",
                "offset.flush.interval.ms": "500",
                **topics,
                **factors,
                **({"plugin.path": str(file_connectors_jar())} if is_kafkas else {}),
                **(overrides or {}),
            }

        command = kafka_command if is_kafkas else milena_command
        super().__init__(
            "Kafka's worker" if is_kafkas else "Milena's worker",
            command(settings),
            folder / "worker.log",
            lambda port: request(port, "GET", "/")[0] == 200,
            settings=settings,
            properties=properties,
            port=free_port(),
            environment={"PYTHONPATH": str(ROOT)},
        )

    def request(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        """Return status and JSON of a response. Raises OSError if the worker is not reached."""
        return request(self.port, method, path, content)

    def states(self) -> dict[str, tuple[str, str]]:
        """Return state and worker of each connector and each task, such as `name` and `name-0`."""
        _, found = self.request("GET", "/connectors?expand=status")
        states = {}
        for name, each in found.items():
            status = each["status"]
            states[name] = (status["connector"]["state"], status["connector"]["worker_id"])
            for task in status["tasks"]:
                states[f"{name}-{task['id']}"] = (task["state"], task["worker_id"])
        return states

    @property
    def worker_id(self) -> str:
        return f"127.0.0.1:{self.port}"


def request(port: int, method: str, path: str, content: Any = None) -> tuple[int, Any]:
    """Return status and JSON of the response of a worker at a port. Raises OSError if it is not reached."""
    body = None if content is None else json.dumps(content).encode()
    sent = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(sent, timeout=REQUEST_TIMEOUT_S) as response:
            return response.status, json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        with error, suppress(ValueError):  # before it has started, a Java worker answers with HTML
            return error.code, json.loads(error.read() or b"null")
        return error.code, None
