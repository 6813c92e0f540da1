"""A dedicated MirrorMaker as a process, and what it leaves at a cluster.

Owns its command line, and the file of two clusters with short intervals. Owns no assertion.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.spark_jobs.connect.mirror.flows import stored
from tests.support.broker import ROOT
from tests.support.connect_workers import MIRROR_REPLICATION

STOP_TIMEOUT_S = 30.0
COMMAND = (sys.executable, "-P", "-m", "spark_jobs.connect.cli.mirror_maker")


def two_clusters(source: str, target: str, **settings: object) -> dict[str, str]:
    """Return the settings of a file with the clusters A and B; `settings` have underscores for dots."""
    return {
        "clusters": "A, B",
        "A.bootstrap.servers": source,
        "B.bootstrap.servers": target,
        "A->B.enabled": "true",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.interval.seconds": "1",
        "consumer.poll.timeout.ms": "100",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        **MIRROR_REPLICATION,
        **{key.replace("_", "."): str(value) for key, value in settings.items()},
    }


def write(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return path


class MirrorMakerProcess:
    """One process; as a context manager it runs, and ends by SIGTERM."""

    def __init__(self, file: Path, log: Path, *arguments: str) -> None:
        self.log = log
        self._command = self.command(file, *arguments)

    @staticmethod
    def command(file: Path, *arguments: str) -> Sequence[str]:
        return [*COMMAND, str(file), *arguments]

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, process_group=0, env=environment)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self.stop()

    def stop(self) -> int:
        """End the process by SIGTERM; return its exit status."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def logged(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")


def run(*arguments: str) -> tuple[int, str]:
    """Run the command to its end; return its exit status and its errors."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=STOP_TIMEOUT_S, check=False, env=environment
    )
    return done.returncode, done.stderr


def latest(bootstrap: str, topic: str) -> dict[str, Any]:
    """Return the last value of each key of a topic of workers."""
    found: dict[str, Any] = {}
    for record in stored(bootstrap, topic):
        value = record.value()
        found[(record.key() or b"").decode()] = None if value is None else json.loads(value)
    return found


def workers(bootstrap: str) -> set[str]:
    """Return the workers that run tasks of the flow from A."""
    states = latest(bootstrap, "mm2-status.A.internal")
    tasks = [state for key, state in states.items() if key.startswith("status-task-") and state is not None]
    return {task["worker_id"] for task in tasks if task["state"] == "RUNNING"}
