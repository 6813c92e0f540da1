"""A standalone worker in the process of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from spark_jobs.connect.herders.assembly import standalone_herder
from spark_jobs.connect.rest.app import RestApp
from spark_jobs.connect.rest.server import Listener, RestServer, Sockets
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from tests.spark_jobs.connect.worker.runs import PLUG_INS, STRINGS
from tests.support.connect_workers import Client


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
