"""Servers as separate processes: start, wait until they serve, stop by process id.

Owns: the process, its log file, its port, and the loop that calls a probe until it succeeds. Must not know: which
server it is, or its protocol; a probe is a function.

A server binds port 0 on its first start, and the kernel knows which one it got: a port that a test finds free may be
taken before a server binds it. Later starts of the same server bind that port again, so that clients find it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

PROBE_INTERVAL_S = 0.02
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
LISTEN_STATE = "0A"


@contextmanager
def closed_port() -> Iterator[int]:
    """Yield a port of 127.0.0.1 that rejects connections: bound, but not listening, so no other process gets it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


def listening_ports(pid: int) -> list[int]:
    """Return the TCP ports that a process listens on, each once, in the order of its descriptors."""
    folder = f"/proc/{pid}/fd"
    targets = []
    for descriptor in sorted(map(int, os.listdir(folder))):
        with suppress(FileNotFoundError):  # closed since it was listed
            targets.append(os.readlink(f"{folder}/{descriptor}"))
    if not any(target.startswith("socket:") for target in targets):
        return []  # most of a start: the kernel takes milliseconds to list the sockets of all processes
    sockets = {inode: port for family in ("tcp", "tcp6") for inode, port in _listening(pid, family)}
    found = [sockets[target] for target in targets if target in sockets]
    return list(dict.fromkeys(found))  # a socket may have several descriptors


def is_running(pid: int) -> bool:
    """Whether a process runs or is halted. A zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _listening(pid: int, family: str) -> Iterator[tuple[str, int]]:
    """Yield (`socket:[INODE]`, port) of every listening socket in the network namespace of a process."""
    for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
        fields = line.split()
        _, local_address, _, state = fields[:4]
        if state == LISTEN_STATE:
            yield f"socket:[{fields[9]}]", int(local_address.rpartition(":")[2], 16)


class Process(Protocol):
    """What a test does with a process: part of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class ServerProcess:
    """One server; as a context manager it waits until the server responds."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        is_ready: Callable[[int], bool],
        *,
        settings: Path,
        properties: Callable[[int], Mapping[str, str]],
        port: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            is_ready: probes the server at a port once; OSError means not yet.
            settings: the file that holds `properties(port)` when the process starts; the port is 0 until it is known.
            port: 0 for any free one.
            environment: added to this process's own.
        """
        self.name = name
        self.log = log
        self.port = port
        self.settings = settings
        self._properties = properties
        self._environment = {**os.environ, **(environment or {})}
        # Without bytecode files every start would compile the whole program again; the launchers do this too.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._command = command
        self._is_ready = is_ready
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self) -> Self:
        """Return when the server responds; otherwise raises RuntimeError with the end of its log."""
        self.spawn()
        self.wait_until_ready()
        return self

    @property
    def bootstrap(self) -> str:
        """The address of the started server."""
        assert self.port, f"{self.name} was not started"
        return f"127.0.0.1:{self.port}"

    def spawn(self) -> None:
        """Start the process without waiting."""
        lines = (f"{key}={value}\n" for key, value in self._properties(self.port).items())
        self.settings.write_text("".join(lines))
        with self.log.open("ab") as log:
            self._process = self._started(log.fileno())

    def _started(self, log: int) -> Process:
        """Start the process, which writes to the descriptor `log`."""
        # A separate process group: Ctrl-C reaches only the tests, which stop servers in order.
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            env=self._environment,
        )

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._responds():
            assert self._process is not None
            exit_code = self._process.poll()
            if exit_code is not None or time.monotonic() > deadline:
                self.kill()
                state = f"exited with {exit_code}" if exit_code is not None else f"does not respond after {timeout_s} s"
                raise RuntimeError(f"{self.name} {state}; its log ends:\n{self._log_tail()}")
            time.sleep(PROBE_INTERVAL_S)

    def stop(self) -> None:
        """Stop the server, and kill it after a timeout; does nothing if it has ended."""
        if self._process is None:
            return
        self._process.terminate()
        self.resume()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait_for_exit(self) -> int:
        """Return the exit code of a server that ends by itself; otherwise raises TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(STOP_TIMEOUT_S)

    @property
    def is_running(self) -> bool:
        """Whether the process exists, halted or not."""
        return self._process is not None and self._process.poll() is None

    def halt(self) -> None:
        """Halt the server with SIGSTOP: its connections stay open, and it does nothing until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a halted server. Has no effect if it runs or has ended."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _responds(self) -> bool:
        try:
            if not self.port:
                self.port = next(iter(listening_ports(self.pid)), 0)
            return self.port != 0 and self._is_ready(self.port)
        except OSError:
            return False

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
