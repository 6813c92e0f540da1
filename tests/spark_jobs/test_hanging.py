"""The report about a Spark that hangs: here a process with a child, neither of which is Java."""

import subprocess
import sys

from tests.spark_jobs.hanging import end_with_stacks

_PROGRAM = """
import faulthandler, signal, subprocess, sys
faulthandler.register(signal.SIGUSR1)
def waits_here():
    child = subprocess.Popen([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"])
    print(child.pid, flush=True)
    child.wait()
    signal.pause()
waits_here()
"""


def test_report_names_all_processes_prints_their_stacks_and_ends_them() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = {process.stdout.readline().strip(), process.stdout.readline().strip()}
        (child,) = lines - {"ready"}
        report = end_with_stacks(process.pid)
        _, errors = process.communicate()
    assert f"{process.pid}:" in report
    assert f"{child}:" in report
    assert "waits_here" in errors
    assert process.returncode < 0
