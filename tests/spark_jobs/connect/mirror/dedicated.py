"""A dedicated MirrorMaker as a process, and what it leaves at a cluster.

Owns its command line, and the file of two clusters with short intervals. Owns no assertion.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.spark_jobs.connect.mirror.flows import stored
from tests.support.connect_workers import MIRROR_REPLICATION
from tests.support.forked_programs import run_program, start_program, variables_of_programs
from tests.support.processes import Process

STOP_TIMEOUT_S = 30.0
MODULE = "spark_jobs.connect.cli.mirror_maker"


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
        self._arguments = [str(file), *arguments]

    def _started(self, log: int) -> Process:
        """Start the process, which writes to the descriptor `log`."""
        return start_program(MODULE, self._arguments, stdout=log, stderr=log, environment=variables_of_programs())

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = self._started(log.fileno())
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
    done = run_program(MODULE, arguments, timeout_s=STOP_TIMEOUT_S)
    return done.returncode, done.stderr.decode()


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
