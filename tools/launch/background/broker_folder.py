"""A folder with one broker in the background: its data, its log, and the file that shows that it runs.

    .milena/data/          the log directory
    .milena/run/           the registration of the running broker (tools.launch.running_servers)
    .milena/broker.log     what the broker logs, over all starts
    .milena/milena.lock    held while a command starts or stops the broker; shows that the folder is one of these
    .milena/.gitignore     keeps the folder out of the project's repository

The registration is locked by the broker's process, so a process that got the id of a dead broker is never taken for it.

Owns this layout, the start and the end of the broker. Must not know command lines or topics.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from tools.launch.detached import start_detached
from tools.launch.fixture.settings_for_tests import SETTINGS_FOR_TESTS
from tools.launch.running_servers import POLL_S, RunningBroker, running_brokers, wait_for_end
from tools.launch.served_addresses import Address

LOG_LINES_MAX = 5
_HTTP = ("http", "https")
_ERROR_LINE = re.compile(r"\[[^\]]*\] ERROR (?P<text>.*?)(?: \([\w.$]+\))?")
_LOGS_ELSEWHERE = ("LOG_DIR", "KAFKA_LOG4J_OPTS")
"""Variables that send the log of a broker to other files."""


class StartFailed(Exception):  # noqa: N818 - named as what happened
    """The broker has not started. The text says why."""


class ForeignFolderError(Exception):
    """The folder has other files, which the data of a broker must not be mixed with. The text names it."""


class StillRuns(Exception):  # noqa: N818 - named as what was met
    """The broker has not ended in time. The text names its process."""


class ServingBroker(NamedTuple):
    """The broker of a folder, which serves clients."""

    pid: int
    bootstrap_servers: str
    console: str | None
    """The address of its console and metrics, if it has one."""


class BrokerFolder:
    """The folder of one broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / "data"
        self.log = path / "broker.log"
        self._run_folder = path / "run"
        self._lock = path / "milena.lock"
        self._ignore = path / ".gitignore"

    def is_used(self) -> bool:
        """Return whether a broker was started in the folder before."""
        return self._lock.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other command start or stop the broker during the block. Raises ForeignFolderError and OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.is_used() and any(self.path.iterdir()):
            raise ForeignFolderError(
                f"{self.path} has other files: expected a new folder, an empty one, or that of an earlier `milena up`"
            )
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def running(self) -> ServingBroker | None:
        """Return the broker if it serves clients."""
        for broker in running_brokers(self._run_folder):
            if broker.addresses:
                return _serving(broker)
        return None

    def lost_pid(self) -> int | None:
        """Return the process of a broker that has ended without a stop. Later calls of any method forget it."""
        registered = {int(path.name.rpartition("-")[2]) for path in self._run_folder.glob("broker-*")}
        return min(registered - {broker.pid for broker in running_brokers(self._run_folder)}, default=None)

    def start(self, port: int, settings: Mapping[str, str], timeout_s: float) -> ServingBroker:
        """Start the broker; return when it serves clients. Raises StartFailed and OSError."""
        self._ignore.write_text("*\n")
        log_end = self.log.stat().st_size if self.log.exists() else 0
        arguments = ["--port", str(port), "--data", str(self.data), "--run-folder", str(self._run_folder)]
        arguments += [f"--override={key}={value}" for key, value in {**SETTINGS_FOR_TESTS, **settings}.items()]
        variables = {name: value for name, value in os.environ.items() if name not in _LOGS_ELSEWHERE}
        process = start_detached("tools.launch.server_start", arguments, self.log, variables)
        try:
            return self._serving(process, log_end, timeout_s)
        except BaseException:
            process.terminate()
            raise

    def stop(self, pid: int, timeout_s: float) -> None:
        """Wait for the end of the broker, which was told to stop. Raises StillRuns."""
        if wait_for_end({pid}, timeout_s, self._run_folder):
            raise StillRuns(f"the broker still runs after {timeout_s:g} s: process {pid}")

    def remove(self) -> None:
        """Remove the data and all else of the broker; files of others stay, and the folder with them."""
        for folder in (self.data, self._run_folder):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.log, self._ignore, self._lock):
            file.unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def _serving(self, process: Popen[bytes], log_end: int, timeout_s: float) -> ServingBroker:
        deadline_s = time.monotonic() + timeout_s
        while (broker := self.running()) is None:
            if process.poll() is not None:
                raise StartFailed(self._reason(log_end))
            if time.monotonic() > deadline_s:
                raise StartFailed(f"the broker does not serve clients after {timeout_s:g} s; its log is {self.log}")
            time.sleep(POLL_S)
        return broker

    def _reason(self, log_end: int) -> str:
        """Return the errors that a start has logged, or else the end of its log."""
        with self.log.open("rb") as file:
            file.seek(log_end)
            lines = file.read().decode(errors="replace").splitlines()
        errors = [found["text"] for line in lines if (found := _ERROR_LINE.fullmatch(line))]
        return "\n".join(errors or lines[-LOG_LINES_MAX:])


def _serving(broker: RunningBroker) -> ServingBroker:
    addresses = [Address.parse(text) for text in broker.addresses]
    clients = [f"{address.host}:{address.port}" for address in addresses if address.kind not in _HTTP]
    console = next((str(address) for address in addresses if address.kind in _HTTP), None)
    return ServingBroker(broker.pid, ",".join(clients), console)
