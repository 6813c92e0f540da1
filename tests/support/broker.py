"""Milena's broker as a process, started as by its launcher.

Owns: the command line and the server.properties of a broker under test; callers override any property.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.support.forked_programs import start_program
from tests.support.metadata_probe import is_serving
from tests.support.processes import Process, ServerProcess
from tests.support.secrets import secrets_in

LOG_WAIT_S = 10.0
MODULE = "tools.launch.server_start"
ROOT = Path(__file__).resolve().parents[2]


def server_command(settings: Path, *arguments: str) -> list[str]:
    """Return the command line with which `bin/kafka-server-start` starts the broker."""
    return [sys.executable, "-P", "-m", MODULE, str(settings), *arguments]


class BrokerProcess(ServerProcess):
    """One broker on 127.0.0.1 with the embedded store; all its files are below `folder`."""

    are_forked: ClassVar[bool] = False
    """Whether brokers are forks of a process that has imported what they need. The tests' are, and start in less than a
    third of the processor time; those that a benchmark measures are not."""

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        broker_id: int = 0,
        command: Callable[[Path], Sequence[str]] = server_command,
        descriptors_max: int | None = None,
        is_measured: bool = False,
    ) -> None:
        """`descriptors_max` is its hard limit of file descriptors; None for that of this process. With it, with another
        `command`, or when its memory `is_measured`, the broker is not forked.

        `{port}` in an override is the broker's port, 0 until it is known.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log_dir = folder / "data"
        self.overrides = dict(overrides or {})
        """Settings that the next start applies."""
        settings = folder / "server.properties"

        def properties(port: int) -> Mapping[str, str]:
            return {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": str(self.log_dir),
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "group.initial.rebalance.delay.ms": "0",
                "group.min.session.timeout.ms": "1000",
                # Retention starts late: what a test stores in a shared broker may have a timestamp of any year.
                "log.initial.task.delay.ms": "3600000",
                **{key: value.replace("{port}", str(port)) for key, value in self.overrides.items()},
            }

        self._is_plain = descriptors_max is None and command is server_command and not is_measured
        limited = [] if descriptors_max is None else ["sh", "-c", f'ulimit -n {descriptors_max}; exec "$@"', "sh"]
        super().__init__(
            f"Milena {broker_id}",
            [*limited, *command(settings)],
            folder / "server.log",
            is_serving,
            settings=settings,
            properties=properties,
            port=port,
            environment={"PYTHONPATH": str(ROOT)},
        )

    def _started(self, log: int) -> Process:
        if self.are_forked and self._is_plain:
            return start_program(MODULE, [str(self.settings)], stdout=log, stderr=log, environment=self._environment)
        return super()._started(log)

    @property
    def metrics_port(self) -> int:
        """The port of metrics and console. A thread writes the log that names it, a little after the start."""
        give_up_s = time.monotonic() + LOG_WAIT_S
        while time.monotonic() < give_up_s:
            found = re.search(r"metrics are served on port (\d+)", self.log.read_text(errors="replace"))
            if found is not None:
                return int(found[1])
            time.sleep(0.005)
        raise AssertionError(f"{self.log} names no port of the metrics: set metrics.http.listener")

    def stop(self) -> None:
        """Stop the broker; fail if its log has a secret of the suite.

        Clients that are garbage end first: they would look for the broker, and log that during later tests.
        """
        gc.collect()
        super().stop()
        if self.log.exists():
            assert not secrets_in(self.log.read_text(errors="replace")), f"{self.log} has a secret"
