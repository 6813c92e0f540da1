"""Runs a command so that nothing of it is left, whatever way it ends: no process, and no temporary folder.

    python -m tests.support.supervisor COMMAND [ARGUMENT...]

Owns: the processes that descend from the command, and the folder that they take for temporary files. Must not know what
the command does.

Two processes watch. The outer one is what a user sees and interrupts. The inner one is in a session of its own, so that
no signal to the group of the outer one ends it; it starts the command, and adopts what the command leaves. If one of
the two is killed, the other one ends all processes and removes the folder.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

GRACE_S = 20.0
"""How long an interrupted command may take to end by itself."""
POLL_S = 0.05
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAILED = 1
"""The exit code of pytest if a test has failed: its files are kept then."""
MEMORY = Path("/dev/shm")
MEMORY_VARIABLE = "TESTS_IN_MEMORY"
"""Names a folder in memory, which belongs to the run."""
_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36


def memory_folder() -> Path | None:
    """Return the folder in memory that belongs to the run, or that of the system; None if there is none."""
    return Path(os.environ.get(MEMORY_VARIABLE, MEMORY)) if MEMORY.is_dir() else None


def supervise(command: Sequence[str]) -> int:
    """Run a command; return its exit code, or 128 and the number of the signal that ended it.

    The command's process group gets SIGINT, SIGTERM and SIGHUP that this process gets, and SIGTERM when the parent of
    this process ends. What runs `GRACE_S` later is killed.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # until the processes handle them
    _adopt_orphans()
    folders = _folders()
    reading, writing = os.pipe()
    inner = os.fork()
    if not inner:
        os.close(writing)
        os._exit(_run(command, folders, reading))
    os.close(reading)
    _on_stop(lambda number: _send(inner, number))
    _get_sigterm_when_the_parent_ends()
    code = _wait_for(inner)
    _end_descendants()
    _remove(folders[1:] if code == FAILED else folders)
    if folders[0].exists():
        print(f"The files of failed tests are in {folders[0]}", file=sys.stderr)
    return code


def _run(command: Sequence[str], folders: Sequence[Path], outer: int) -> int:
    """Be the inner process. `outer` is a pipe that closes when the outer process ends."""
    os.setsid()
    _adopt_orphans()
    started = os.fork()
    if not started:
        os.close(outer)
        os.setpgid(0, 0)
        for each in STOPS:  # a shell starts what runs in the background with SIGINT ignored
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        os.execvpe(command[0], command, _environment(folders))
    ends_at, stopped_by = float("inf"), 0

    def stop(number: int) -> None:
        nonlocal ends_at, stopped_by
        ends_at = min(ends_at, time.monotonic() + GRACE_S)
        stopped_by = stopped_by or number
        with suppress(ProcessLookupError):
            os.killpg(started, number)

    _on_stop(stop)
    os.set_blocking(outer, False)
    code = None
    while code is None and time.monotonic() < ends_at and not _is_closed(outer):
        time.sleep(POLL_S)
        code = _reap(started)
    _end_descendants()
    if code is None:
        _remove(folders)
    return code if code is not None and not stopped_by else 128 + (stopped_by or signal.SIGKILL)


def _folders() -> list[Path]:
    folders = [Path(tempfile.mkdtemp(prefix="milena-"))]
    if MEMORY.is_dir():
        folders.append(Path(tempfile.mkdtemp(prefix="milena-", dir=MEMORY)))
    return folders


def _environment(folders: Sequence[Path]) -> Mapping[str, str]:
    folder = str(folders[0])
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={folder}"
    variables = {"TMPDIR": folder, "SPARK_LOCAL_DIRS": folder, "SPARK_SUBMIT_OPTS": options.strip()}
    return {**os.environ, **variables, MEMORY_VARIABLE: str(folders[-1])}


def _remove(folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _on_stop(stop: Callable[[int], None]) -> None:
    def handle(number: int, _: FrameType | None) -> None:
        stop(number)

    for each in STOPS:
        signal.signal(each, handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_closed(pipe: int) -> bool:
    try:
        return not os.read(pipe, 1)
    except BlockingIOError:
        return False


def _wait_for(child: int) -> int:
    """Return the exit code of a child, and reap what this process has adopted."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return _exit_code(status)


def _reap(child: int) -> int | None:
    """Reap every child that has ended; return the exit code of one of them, or None if it runs."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                return _exit_code(ended[1])
    return None


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _end_descendants() -> None:
    """Kill all descendants. A killed parent leaves its children to this process, so each round finds the next ones."""
    while True:
        children = list(_children(os.getpid()))
        for pid in children:
            _send(pid, signal.SIGKILL)
        if not children:
            return
        with suppress(ChildProcessError):
            os.wait()


def _children(parent: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            _, parent_of_it = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent_of_it) == parent:
                yield int(path.parent.name)


def _adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends. Linux alone has this call."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _get_sigterm_when_the_parent_ends() -> None:
    parent = os.getppid()
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
