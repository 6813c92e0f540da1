"""Workers of Kafka Connect as processes: Milena's, and Apache Kafka's own.

Owns their command lines, the settings that they cannot do without, and a client of the REST interface of any worker.
Must not know connectors.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.apache_kafka import file_connectors_jar, tool_command
from tests.support.broker import ROOT
from tests.support.ports import free_port
from tests.support.processes import ServerProcess
from tests.support.waiting import wait_until

REQUEST_TIMEOUT_S = 30.0
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
TOPICS = ("config", "offset", "status")
MIRROR_REPLICATION: Mapping[str, str] = {
    f"{topics}replication.factor": "1"
    for topics in ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.", "offset.storage.",
                   "status.storage.", "config.storage.")
}  # fmt: skip
"""Settings of a MirrorMaker, with its workers, that creates topics at a single broker."""


class Response(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def message(self) -> str:
        """The text of an error, whose code is that of the response."""
        assert self.body["error_code"] == self.status
        return str(self.body["message"])


class Client:
    """Sends requests to one worker. All methods raise OSError if it is not reached."""

    def __init__(self, url: str, *, is_kafkas: bool = False) -> None:
        self.url = url
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port
        self._is_kafkas = is_kafkas

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        """A body that is text or bytes is sent as it is."""
        connection = http.client.HTTPConnection(*self._address, timeout=REQUEST_TIMEOUT_S)
        content = body if isinstance(body, str | bytes | None) else json.dumps(body)
        try:
            connection.request(method, path, content, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return Response(response.status, self._parsed(response), dict(response.getheaders()))
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        response = self.send("GET", path)
        assert response.status == 200, response
        return response.body

    def states(self, connector: str) -> list[str]:
        """Return the state of a connector, then those of its tasks."""
        found = self.get(f"/connectors/{connector}/status")
        return [found["connector"]["state"], *(task["state"] for task in found["tasks"])]

    def wait_for(self, connector: str, *states: str) -> None:
        wait_until(lambda: self.states(connector) == list(states), f"{connector} is {states}: {self.states(connector)}")

    def _parsed(self, response: http.client.HTTPResponse) -> Any:
        found = response.read()
        try:
            return json.loads(found) if found else None
        except ValueError:
            if self._is_kafkas and response.status >= 400:
                return None  # before it has started, Kafka's worker responds with HTML
            raise


def milena_command(settings: Path) -> Sequence[str]:
    return [sys.executable, "-P", "-m", "spark_jobs.connect.cli.distributed", str(settings)]


def kafka_command(settings: Path) -> Sequence[str]:
    return tool_command("org.apache.kafka.connect.cli.ConnectDistributed", str(settings))


def group_settings(bootstrap: str, group: str) -> dict[str, str]:
    """Return the settings of any worker of a group, whose topics have its name."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.converter": STRING_CONVERTER,
        "value.converter": STRING_CONVERTER,
        **{f"{topic}.storage.topic": f"{group}-{topic}" for topic in TOPICS},
        **{f"{topic}.storage.replication.factor": "1" for topic in TOPICS},
    }


class ConnectWorker(ServerProcess, Client):
    """One worker of a group, with its REST interface on 127.0.0.1."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        group: str,
        *,
        is_kafkas: bool,
        overrides: Mapping[str, str],
        ready_path: str = "/",
    ) -> None:
        """It is ready when it responds with status 200 to a request for `ready_path`."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "worker.properties"
        port = free_port()
        Client.__init__(self, f"http://127.0.0.1:{port}/", is_kafkas=is_kafkas)

        def properties(port: int) -> Mapping[str, str]:
            return {
                **group_settings(bootstrap, group),
                "listeners": f"http://127.0.0.1:{port}",
                **({"plugin.path": str(file_connectors_jar())} if is_kafkas else {}),
                **overrides,
            }

        command = kafka_command if is_kafkas else milena_command
        ServerProcess.__init__(
            self,
            "Kafka's worker" if is_kafkas else "Milena's worker",
            command(settings),
            folder / "worker.log",
            lambda _: self.send("GET", ready_path).status == 200,
            settings=settings,
            properties=properties,
            port=port,
            environment={"PYTHONPATH": str(ROOT)},
        )

    def all_states(self) -> dict[str, tuple[str, str]]:
        """Return state and worker of each connector and each task, such as `name` and `name-0`."""
        states = {}
        for name, each in self.send("GET", "/connectors?expand=status").body.items():
            status = each["status"]
            states[name] = (status["connector"]["state"], status["connector"]["worker_id"])
            for task in status["tasks"]:
                states[f"{name}-{task['id']}"] = (task["state"], task["worker_id"])
        return states

    @property
    def worker_id(self) -> str:
        return f"127.0.0.1:{self.port}"
