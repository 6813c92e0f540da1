"""Whatever way a supervised command ends, nothing of it is left: no process and no folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes import READY_TIMEOUT_S, is_running
from tests.support.supervisor import FAILED, MEMORY_VARIABLE

# A command that leaves a process in a session of its own, ignores SIGTERM, and prints what there is to look for.
COMMAND = f"""
import os, signal, subprocess, sys, tempfile, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
left = subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True)
folder = tempfile.mkdtemp()
print(os.getpid(), left.pid, os.getppid(), folder, os.environ["{MEMORY_VARIABLE}"], flush=True)
sys.stdin.read()
sys.exit(int(sys.argv[1]))
"""


class Supervised:
    """A supervised command that has begun, and waits for the end of its input."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        command, left, inner, *folders = process.stdout.readline().split()
        self.pids = [int(command), int(left), int(inner)]
        self.inner = self.pids[-1]
        self.folders = [Path(folder) for folder in folders]
        assert all(folder.is_dir() for folder in self.folders)

    def wait_until_nothing_is_left(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while any(map(is_running, self.pids)) or any(folder.exists() for folder in self.folders):
            assert time.monotonic() < deadline, "something is left"
            time.sleep(0.01)


@contextmanager
def supervised(code: int = 0, *launcher: str, grace_s: float = 0.2) -> Iterator[Supervised]:
    program = f"from tests.support import supervisor; supervisor.GRACE_S = {grace_s}"
    program += "; import sys; sys.exit(supervisor.supervise(sys.argv[1:]))"
    with subprocess.Popen(
        [*launcher, sys.executable, "-P", "-c", program, sys.executable, "-c", COMMAND, str(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Supervised(process)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()


def test_a_run_in_the_background_of_a_shell_can_be_interrupted_like_any_other() -> None:
    """Such a shell has SIGINT ignored: programs of tests would differ in whether they notice it."""
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    supervisor = [sys.executable, "-P", "-m", "tests.support.supervisor", sys.executable, "-c", program]
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    done = subprocess.run([*ignoring, *supervisor], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("code", [0, 5])
def test_what_a_command_leaves_ends_with_it(code: int) -> None:
    with supervised(code) as run:
        run.process.communicate()
        assert run.process.returncode == code
        run.wait_until_nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_a_command_leaves_ends_with_a_signal_to_the_supervisor(number: signal.Signals) -> None:
    with supervised() as run:
        run.process.send_signal(number)
        assert run.process.wait(READY_TIMEOUT_S) == 128 + number
        run.wait_until_nothing_is_left()


def test_what_a_command_leaves_ends_when_the_supervisor_is_killed() -> None:
    with supervised() as run:
        run.process.kill()
        run.wait_until_nothing_is_left()


def test_what_a_command_leaves_ends_when_the_inner_process_is_killed() -> None:
    with supervised() as run:
        os.kill(run.inner, signal.SIGKILL)
        assert run.process.wait(READY_TIMEOUT_S) == 128 + signal.SIGKILL
        run.wait_until_nothing_is_left()


def test_what_a_command_leaves_ends_when_the_parent_of_the_supervisor_is_killed() -> None:
    with supervised(0, "sh", "-c", '"$@"; true', "sh") as run:
        run.process.kill()
        run.wait_until_nothing_is_left()


def test_files_of_failed_tests_are_kept_until_somebody_has_looked() -> None:
    with supervised(FAILED) as run:
        run.process.communicate()
        folder, memory = run.folders
        assert run.process.returncode == FAILED
        assert folder.is_dir()
        assert not memory.exists()
    shutil.rmtree(folder.parent)
