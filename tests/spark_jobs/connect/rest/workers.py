"""A standalone worker in the process of the test, and a client of the REST interface of any worker."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from spark_jobs.connect.herders.assembly import standalone_herder
from spark_jobs.connect.rest.app import RestApp
from spark_jobs.connect.rest.server import Listener, RestServer, Sockets
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from tests.spark_jobs.connect.worker.runs import PLUG_INS, STRINGS
from tests.support.waiting import wait_until

TIMEOUT_S = 30.0


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
    """Sends requests to one worker."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        """A body that is text or bytes is sent as it is."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        content = body if isinstance(body, str | bytes | None) else json.dumps(body)
        try:
            connection.request(method, path, content, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            found = response.read()
            return Response(response.status, json.loads(found) if found else None, dict(response.getheaders()))
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


class StandaloneWorker(Client):
    """A worker with its REST interface at a free port of 127.0.0.1."""

    def __init__(self, bootstrap: str, folder: Path, **settings: str) -> None:
        """Underscores in the names of settings stand for dots."""
        given = {
            "bootstrap.servers": bootstrap,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "50",
            "task.shutdown.graceful.timeout.ms": "500",
            "plugin.path": str(PLUG_INS),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        parsed = WorkerSettings(given, is_distributed=False)
        self._sockets = Sockets([Listener("127.0.0.1", 0)])
        address = f"127.0.0.1:{self._sockets.first.port}"
        super().__init__(f"http://{address}/")
        self.herder = standalone_herder(parsed, Plugins([PLUG_INS]), worker_id=address, url=self.url)
        self._server = RestServer(RestApp(self.herder, lambda: "cluster").application(), self._sockets)

    def __enter__(self) -> Self:
        self.herder.start()
        self._server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.herder.stop()
        self._server.stop()
