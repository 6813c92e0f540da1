"""Programs that are forked: what a test sees of them is what it would see of `python -m`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked_programs import ROOT, ForkedProcess, run_program, start_program, variables_of_programs
from tests.support.processes import Process, is_running
from tests.support.waiting import wait_until

PROGRAM = "tests.support.echo_program"


def hanging(folder: Path, **variables: str) -> Process:
    """Start the program, and return when it hangs. `variables` are further ones."""
    output = folder / "output"
    with output.open("wb") as stream:
        process = start_program(
            PROGRAM,
            ["hang"],
            stdout=stream.fileno(),
            stderr=stream.fileno(),
            environment={**variables_of_programs(), **variables},
        )
    wait_until(lambda: "['hang']" in output.read_text())
    return process


@pytest.mark.parametrize("end", ["return", "raise", "interrupt", "3", "a text"])
def test_a_fork_prints_and_ends_as_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setenv("ECHO_NAME", "a value")
    found = run_program(PROGRAM, [end, "b c"], stdin=b"some input", timeout_s=30, folder=tmp_path)
    expected = subprocess.run(
        [sys.executable, "-P", "-m", PROGRAM, end, "b c"],
        input=b"some input",
        capture_output=True,
        cwd=tmp_path,
        env=variables_of_programs(),
        process_group=0,
        timeout=30,
        check=False,
    )
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
    assert b"some input\nat exit\n" in found.stdout
    # The stack of an exception has frames of the process that forks as well.
    lines, expected_lines = found.stderr.splitlines(), expected.stderr.splitlines()
    assert (lines[:2], lines[-1]) == (expected_lines[:2], expected_lines[-1])


def test_a_fork_is_signalled_and_waited_for(tmp_path: Path) -> None:
    process = hanging(tmp_path)
    assert isinstance(process, ForkedProcess)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)
    process.terminate()
    assert process.wait(30) == process.poll() == -signal.SIGTERM
    process.kill()  # without an effect
    assert not is_running(process.pid)


def test_a_program_with_variables_of_the_interpreter_is_not_forked(tmp_path: Path) -> None:
    process = hanging(tmp_path, PYTHONUTF8="1")
    assert isinstance(process, subprocess.Popen)
    process.kill()
    assert process.wait(30) == -signal.SIGKILL


STARTER = f"""
import os
from tests.support.forked_programs import start_program, variables_of_programs
null = os.open(os.devnull, os.O_WRONLY)
process = start_program("{PROGRAM}", ["hang"], stdout=null, stderr=null, environment=variables_of_programs())
print(process.pid, flush=True)
input()
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_forks_end_with_the_process_that_started_them(is_killed: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", STARTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables_of_programs(),
        cwd=ROOT,
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert is_running(pid)
        if is_killed:
            starter.kill()
        starter.communicate("\n", timeout=30)
    wait_until(lambda: not is_running(pid))
