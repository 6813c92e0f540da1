"""The process that starts brokers for this one, and the processes of those brokers.

Owns both from the side of the test process: `tools.launch.fixture.broker_nursery` is the other side. Must not know what
a broker does.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from enum import Enum
from pathlib import Path

from milena_broker.commands import modules

START_TIMEOUT_S = 60.0


class Kind(Enum):
    """What a new process has to prepare; the value is the first byte of a request."""

    ALONE = b"a"
    CLUSTER = b"c"
    """It is one of several processes of a cluster."""
    MOVABLE_CLOCK = b"m"
    """A test moves its time."""


_PID_SIZE_MAX = 32


class NurseryError(OSError):
    """The process that starts brokers has ended. The text has what it wrote."""


class HostProcess:
    """The process of one broker. It is not our child, so its socket shows when it has ended."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control
        # With a descriptor of the process, a signal never reaches another one that has got its id since.
        self._descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process has not ended."""
        with suppress(ProcessLookupError):
            if self._descriptor is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """End the process with SIGKILL; return when it has ended."""
        self.send_signal(signal.SIGKILL)
        self.control.settimeout(START_TIMEOUT_S)
        with suppress(OSError):
            while self.control.recv(1 << 16):
                pass
        self.control.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _Nursery:
    """The process that starts brokers. It ends with this one, which holds the only end of its socket."""

    def __init__(self) -> None:
        self.owner_pid = os.getpid()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(modules()), os.environ.get("PYTHONPATH")]))
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tools.launch.fixture.broker_nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        self._requests.settimeout(START_TIMEOUT_S)
        atexit.register(self.end)

    def new_host(self, log: Path, kind: Kind) -> HostProcess:
        """Start a process that waits for its order. Raises NurseryError."""
        request = kind.value + os.fsencode(log)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._requests, [request], [theirs.fileno()])
            reply = self._requests.recv(_PID_SIZE_MAX)
            return HostProcess(int(reply), ours)
        except (OSError, ValueError) as error:
            ours.close()
            self.end()
            raise NurseryError(
                f"the process that starts brokers has ended: status {self._process.returncode}"
            ) from error

    @property
    def is_usable(self) -> bool:
        """Whether it runs and belongs to this process, which a fork of it does not inherit."""
        return self.owner_pid == os.getpid() and self._process.poll() is None

    def end(self) -> None:
        """End the process. The brokers that it has started end as well."""
        self._requests.close()
        if self.owner_pid == os.getpid():
            self._process.kill()
            self._process.wait()
        atexit.unregister(self.end)


_lock = threading.Lock()
_nursery: _Nursery | None = None


def new_host(log: Path, kind: Kind = Kind.ALONE) -> HostProcess:
    """Start the process of a broker, and the process that starts brokers before the first. Raises NurseryError."""
    global _nursery  # noqa: PLW0603 - one for this process, like the process itself
    with _lock:
        if _nursery is None or not _nursery.is_usable:
            _nursery = _Nursery()
        return _nursery.new_host(log, kind)
