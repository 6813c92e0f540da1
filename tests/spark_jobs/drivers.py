"""Drivers in processes of their own, which tests kill: Python and the JVM together, as when their machine fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.spark_jobs.quick_drivers import job_environment

PROJECT = Path(__file__).parents[2]
_START_TIMEOUT_S = 180
_POLL_INTERVAL_S = 0.05


def kill_driver(arguments: Sequence[str], log: Path, is_due: Callable[[], bool], wait_s: float) -> bool:
    """Run `python -m ARGUMENTS` and kill it `wait_s` after `is_due` has become true, if it has not ended before.

    Return whether `is_due` became true in time. Standard error goes to the file `log`.
    """
    environment = {**job_environment(), "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-P", "-m", *arguments]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, env=environment, cwd=log.parent, stderr=errors, start_new_session=True) as process,
    ):
        try:
            deadline = time.monotonic() + _START_TIMEOUT_S
            while not is_due() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_INTERVAL_S)
            was_due = is_due()
            if was_due:
                time.sleep(wait_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return was_due
