"""Workers of a group that are killed at random while they copy: what arrives is byte-equal to what was there.

Sources send in transactions; the sinks' files are cut at their last flush. Each kill is followed by a new worker.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import BrokerProcess
from tests.support.connect_workers import ConnectWorker
from tests.support.waiting import wait_until

WORKERS, KILLS, FILES = 3, 50, 3
SEED = 43
SETTINGS = {
    "session.timeout.ms": "2000",
    "heartbeat.interval.ms": "300",
    "offset.flush.interval.ms": "500",
    "exactly.once.source.support": "enabled",
    "consumer.isolation.level": "read_committed",
}


class Workers:
    """Workers of one group on this machine."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._count = 0
        self.running: list[ConnectWorker] = []

    def start(self) -> None:
        self._count += 1
        folder = self._folder / f"worker-{self._count}"
        worker = ConnectWorker(folder, self._bootstrap, "killed", is_kafkas=False, overrides=SETTINGS)
        worker.spawn()
        self.running.append(worker)

    def kill(self, worker: ConnectWorker) -> None:
        self.running.remove(worker)
        worker.kill()

    def request(self, method: str, path: str, content: Any = None) -> Any:
        """Return what the first worker that accepts the request responds; None if there is no such worker."""
        for worker in self.running:
            try:
                response = worker.send(method, path, content)
            except OSError:
                continue
            if response.status < 400:
                return response.body
        return None


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with BrokerProcess(tmp_path / "broker") as broker:
        found = Workers(broker.bootstrap, tmp_path)
        for _ in range(WORKERS):
            found.start()
        yield found
        for worker in list(found.running):
            found.kill(worker)


@pytest.mark.soak
def test_files_are_equal_after_fifty_kills(workers: Workers, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    sources = [tmp_path / f"source-{number}.txt" for number in range(FILES)]
    sinks = [tmp_path / f"sink-{number}.txt" for number in range(FILES)]
    for file in sources:
        file.write_bytes(b"")
    for number in range(FILES):
        source = {"connector.class": "FileStreamSource", "file": str(sources[number]), "topic": f"t{number}"}
        sink = {"connector.class": "FileStreamSink", "file": str(sinks[number]), "topics": f"t{number}"}
        for name, config in ((f"source-{number}", source), (f"sink-{number}", sink)):
            wait_until(partial(workers.request, "PUT", f"/connectors/{name}/config", config))
    line = 0
    sizes = set()
    for _ in range(KILLS):
        for file in sources:
            with file.open("ab") as target:
                for _ in range(2_000):
                    target.write(b"%08d %s\n" % (line, b"x" * chance.randrange(100)))
                    line += 1
        time.sleep(chance.uniform(0, 4))
        sizes.add(sinks[0].stat().st_size if sinks[0].exists() else 0)
        workers.kill(chance.choice(workers.running))
        workers.start()

    def is_copied() -> bool:
        return all(
            sink.exists() and sink.stat().st_size >= source.stat().st_size
            for source, sink in zip(sources, sinks, strict=True)
        )

    wait_until(is_copied, "the sinks have everything", timeout_s=120)
    assert [file.read_bytes() for file in sinks] == [file.read_bytes() for file in sources]
    assert len(sizes) > KILLS / 10, "the workers were killed while they copied"
    statuses = workers.request("GET", "/connectors?expand=status")
    failed = [name for name, each in statuses.items() for task in each["status"]["tasks"] if task["state"] == "FAILED"]
    assert not failed
