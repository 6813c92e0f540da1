"""A Spark that hangs: where its threads and its Python workers are, and its end.

Owns this report. Must not know tests.
"""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from bench.processes import process_tree

PRINTING_S = 1.0
_TOOL_TIMEOUT_S = 30


def end_with_stacks(pid: int) -> str:
    """Return the stacks of a JVM's threads and the states of its descendants, and kill all of them.

    The descendants print their own stacks to standard error.
    """
    processes = process_tree(pid)
    parts = [_stacks(each) if _name(each) == "java" else _state(each) for each in processes]
    for each in processes:
        if _name(each) != "java":
            _send(each, signal.SIGUSR1)
    time.sleep(PRINTING_S)
    for each in processes:
        _send(each, signal.SIGKILL)
    return "\n".join(parts)


def _stacks(pid: int) -> str:
    try:
        done = subprocess.run(
            ["jstack", str(pid)], capture_output=True, text=True, check=False, timeout=_TOOL_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{pid}: no stacks: {error}"
    return done.stdout or done.stderr


def _state(pid: int) -> str:
    with suppress(OSError):
        return f"{pid}:\n{Path(f'/proc/{pid}/status').read_text()}"
    return f"{pid}: has ended"


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
