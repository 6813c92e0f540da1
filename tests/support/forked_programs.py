"""Programs of this project as processes, forked from one that has imported what they need.

Owns the process that forks, one for each process of tests, and what a test does with a program: its id, signals and
exit code. The program notices no difference to `python -m MODULE` but its command line in /proc: it has the arguments,
variables, folder and streams that it was given, and a process group of its own. It ends with the tests.

Must not know what a program does. Tests of a start, of memory, or of imports start programs themselves.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn, TextIO

from tests.support.processes import Process, ServerProcess

ROOT = Path(__file__).resolve().parents[2]
REQUEST_SIZE_MAX = 1 << 20
STDOUT, STDERR = 1, 2
START_TIMEOUT_S = 60.0
STATUS_SIZE_MAX = 32
AT_START = ("PYTHON", "MILENA_COMPILED", "LD_", "MALLOC_", "LC_", "LANG")
"""Beginnings of variables that act before a program begins, so that a fork would ignore them."""
NOT_INHERITED = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Without bytecode files every start would compile the whole program again; the launchers do this too."""
IMPORTED = (
    "broker.console.assembly",
    "broker.metrics.beans",
    "broker.metrics.endpoint",
    "broker.metrics.jolokia",
    "controller.zookeeper.session",
    "tools.admin.configs",
    "tools.admin.reassign_partitions",
    "tools.admin.topics",
    "tools.launch.fixture.broker_host",
    "tools.launch.server_start",
    "tools.records.console_consumer",
    "tools.records.console_producer",
)
"""What the programs that tests start most often need."""
IMPORTED_LATER = "spark_jobs.connect.cli."
"""The beginning of the names of programs that few files of tests start, but often: each is imported before its first
start, and its next ones begin with what it needs."""


class ForkedProcess:
    """One program, with the methods of `subprocess.Popen` that tests of servers need."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        """`control` receives the exit code."""
        self.pid = pid
        self.returncode: int | None = None
        self._control = control
        # With a descriptor of the process, a signal never reaches another one that has got its id since.
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended already
            self._descriptor = -1

    def poll(self) -> int | None:
        """Return the exit code, the negative number of a signal that ended it, or None while it runs."""
        return self._received(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired."""
        code = self._received(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if the program has not ended."""
        if self.poll() is None and self._descriptor >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _received(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            self._control.settimeout(timeout_s)
            try:
                status = self._control.recv(STATUS_SIZE_MAX)
            except (BlockingIOError, TimeoutError):
                return None
            assert status, "the process that forks programs has ended"
            self.returncode = int(status)
            self._control.close()
            if self._descriptor >= 0:
                os.close(self._descriptor)
        return self.returncode


class _Forking:
    """The process that forks, from the side of the tests. It ends with them: they hold the only end of its socket."""

    def __init__(self) -> None:
        self._owner_pid = os.getpid()
        environment = variables_of_programs()
        self.variables = _at_start(environment)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.support.forked_programs", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env=environment,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        atexit.register(self.end)

    def fork(self, request: Mapping[str, object], streams: Sequence[int]) -> ForkedProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._requests, [json.dumps(request).encode()], [theirs.fileno(), *streams])
        ours.settimeout(START_TIMEOUT_S)
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = ours.recv(1)  # what follows may be the exit code
            assert byte, "the process that forks programs has ended"
            line += byte
        return ForkedProcess(int(line), ours)

    @property
    def is_usable(self) -> bool:
        """Whether it runs and belongs to this process, which a fork of it does not inherit."""
        return self._owner_pid == os.getpid() and self._process.poll() is None

    def end(self) -> None:
        """End the process, which kills all programs that are left."""
        self._requests.close()
        if self._owner_pid == os.getpid():
            self._process.wait()


_lock = threading.Lock()
_forking: _Forking | None = None


def start_program(
    module: str,
    arguments: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int,
    stderr: int,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> Process:
    """Start `python -P -m MODULE ARGUMENTS` in a process group of its own, without waiting.

    It is not forked if the system or its variables do not allow that.

    Args:
        stdin: a descriptor, as the two others; by default an empty input.
        environment: all variables of the program; those that are NOT_INHERITED are left out.
        folder: where it runs; None for the present folder of the tests.
    """
    environment = _kept(environment)
    forking = _forking_for(environment)
    if forking is None:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=environment,
            process_group=0,
        )
    request = {
        "module": module,
        "arguments": [*arguments],
        "environment": environment,
        "folder": str(folder or Path.cwd()),
    }
    with _lock, Path(os.devnull).open("rb") as empty:
        return forking.fork(request, [empty.fileno() if stdin == subprocess.DEVNULL else stdin, stdout, stderr])


def run_program(
    module: str, arguments: Sequence[str], *, stdin: bytes = b"", timeout_s: float, folder: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run `python -P -m MODULE ARGUMENTS` as a process, with the variables of the tests; return what it printed.

    Raises subprocess.TimeoutExpired.
    """
    reading, writing = os.pipe()
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        process = start_program(
            module,
            arguments,
            stdin=reading,
            stdout=stdout.fileno(),
            stderr=stderr.fileno(),
            environment=variables_of_programs(),
            folder=folder,
        )
        os.close(reading)
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as input_of_program:
            input_of_program.write(stdin)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess([module, *arguments], code, stdout.read(), stderr.read())


@contextmanager
def running_program(module: str, arguments: Sequence[str]) -> Iterator[tuple[Process, TextIO]]:
    """Start `python -P -m MODULE ARGUMENTS` with the variables of the tests; yield it, and its output to read.

    Its errors go where those of the tests go. At the end of the block it is killed if it still runs.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading) as output:
        process = start_program(module, arguments, stdout=writing, stderr=STDERR, environment=variables_of_programs())
        os.close(writing)
        try:
            yield process, output
        finally:
            process.kill()
            process.wait()


class ForkedServer(ServerProcess):
    """A server that is forked if its command line is `python -P -m MODULE ARGUMENTS`, and started otherwise."""

    def _started(self, log: int) -> Process:
        interpreter, *options, module = self._command[:4]
        if (interpreter, *options) != (sys.executable, "-P", "-m"):
            return super()._started(log)
        arguments = self._command[4:]
        return start_program(module, arguments, stdout=log, stderr=log, environment=self._environment)


def _forking_for(environment: Mapping[str, str]) -> _Forking | None:
    """Return the process that forks, started before the first program; None if a program needs one of its own."""
    global _forking  # noqa: PLW0603 - one for this process, like the process itself
    if not hasattr(os, "pidfd_open"):
        return None
    with _lock:
        if _forking is None or not _forking.is_usable:
            _forking = _Forking()
        return _forking if _at_start(environment) == _forking.variables else None


def variables_of_programs() -> dict[str, str]:
    """Return the variables of the tests for a program of this project."""
    return {**_kept(os.environ), "PYTHONPATH": str(ROOT)}


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in NOT_INHERITED}


def _at_start(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


# -- the process that forks --------------------------------------------------------------------------------------------


def main(descriptor: str) -> None:
    """Fork programs until the tests close their end of the socket; then kill those that are left.

    In a forked process it returns when the program does. This process has one thread and no event loop, so a fork is
    safe.
    """
    for name in IMPORTED:
        importlib.import_module(name)
    sys.modules["tools.launch.fixture.broker_host"].preload()
    gc.collect()
    gc.freeze()  # shared with the programs, as long as no collection writes into it
    requests = socket.socket(fileno=int(descriptor))
    selector = selectors.DefaultSelector()
    selector.register(requests, selectors.EVENT_READ)
    programs: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is not requests:
                _report_end(selector, programs, key.fd)
                continue
            data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_SIZE_MAX, 4)
            if not data:
                for process, _ in programs.values():
                    os.kill(process, signal.SIGKILL)
                return
            control = socket.socket(fileno=descriptors[0])
            request = json.loads(data)
            if request["module"].startswith(IMPORTED_LATER):
                importlib.import_module(request["module"])
            pid = os.fork()
            if pid == 0:
                selector.close()
                for pidfd, (_, other) in programs.items():
                    os.close(pidfd)
                    other.close()
                requests.close()
                control.close()
                _become(request, descriptors[1:])
                return
            os.setpgid(pid, pid)  # here as well: the test may send a signal to the group at once
            for stream in descriptors[1:]:
                os.close(stream)
            control.sendall(b"%d\n" % pid)
            pidfd = os.pidfd_open(pid)
            programs[pidfd] = pid, control
            selector.register(pidfd, selectors.EVENT_READ)


def _report_end(selector: selectors.BaseSelector, programs: dict[int, tuple[int, socket.socket]], pidfd: int) -> None:
    pid, control = programs.pop(pidfd)
    selector.unregister(pidfd)
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError), control:  # nobody may wait for it any more
        control.sendall(b"%d" % os.waitstatus_to_exitcode(status))


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Run a program in this process, which has been forked for it, and end the process.

    Raises what the program raises, but for an exit with a status.
    """
    os.setpgid(0, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    module = request["module"]
    sys.argv[1:] = request["arguments"]
    sys.modules.pop(module, None)  # as `-m`, which runs it by the name __main__
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        _exit(end.code or 0)


def _exit(status: int) -> NoReturn:
    """End this process as an interpreter does, but keep its modules: to free them takes longer than all the rest."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main(*sys.argv[1:])
