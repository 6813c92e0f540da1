"""Servers that run as processes of their own: start, wait until they serve, stop by process id.

Owns: the process, its log file, and the loop that asks a probe until it says yes. Must not know: which server it is
or what its protocol looks like; a probe is a function.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PROBE_INTERVAL_S = 0.02
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """One server; usable as a context manager that is entered when the server answers."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        is_ready: Callable[[], bool],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`is_ready` asks the server once; OSError means not yet. `environment` is added to this process's own."""
        self.name = name
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._command = command
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self) -> Self:
        """Return when the server answers; RuntimeError with the end of its log when it does not."""
        self.spawn()
        self.wait_until_ready()
        return self

    def spawn(self) -> None:
        """Start the process and wait for nothing."""
        with self.log.open("ab") as log:
            # A group of its own: Ctrl-C on the terminal reaches the tests alone, and they stop servers in order.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                env=self._environment,
            )

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            assert self._process is not None
            exit_code = self._process.poll()
            if exit_code is not None or time.monotonic() > deadline:
                self.kill()
                state = f"exited with {exit_code}" if exit_code is not None else f"does not answer after {timeout_s} s"
                raise RuntimeError(f"{self.name} {state}; its log ends:\n{self._log_tail()}")
            time.sleep(PROBE_INTERVAL_S)

    def stop(self) -> None:
        """Ask it to end, and end it when it does not; does nothing when it has ended."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait_for_exit(self) -> int:
        """The exit code of a server that ends by itself; TimeoutExpired when it does not."""
        assert self._process is not None
        return self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            return self._is_ready()
        except OSError:
            return False

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
