"""Runs a job as a process of its own, with the processes that it starts.

The process leads a session and a group. Its last lines on standard error are kept: they say why it has ended. Secrets
reach it in files without a name, which only the process can open: neither its command line nor a folder has them.
Temporary files of the job are in a folder that is deleted when it has ended.

Owns the life of the process. Must not know which job it runs.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final

import spark_jobs
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.connectors import spark_program

logger = logging.getLogger(__name__)

LINES_KEPT: Final = 60
LINE_BYTES_MAX: Final = 4096
_LAST_LINES_S: Final = 1.0
_ROOT: Final = Path(spark_jobs.__file__).resolve().parents[1]
_WARNINGS: Final = ("WARNING", "ERROR", "CRITICAL")
"""Levels of a job's log, as its lines state them."""


class JobProcess:
    """One run of a module. One thread calls all methods."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], secrets: Mapping[str, str]) -> None:
        """`secrets` has the content of the file that each flag is to name. `name` is for messages."""
        self._name = name
        self._command = [sys.executable, "-P", "-m", spark_program.__name__, module, *arguments]
        self._secrets = secrets
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._output: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """The process, which is also the number of its group and session; None unless it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Raises OSError if there can be no process."""
        self._scratch = tempfile.TemporaryDirectory(prefix="connect-job-", ignore_cleanup_errors=True)
        with ExitStack() as files:
            secrets = {flag: files.enter_context(tempfile.TemporaryFile()) for flag in self._secrets}
            for flag, file in secrets.items():
                file.write(self._secrets[flag].encode())
                file.flush()
                file.seek(0)
            flags = [part for flag, file in secrets.items() for part in (flag, f"/dev/fd/{file.fileno()}")]
            process = subprocess.Popen(
                [*self._command, *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[file.fileno() for file in secrets.values()],
                env=_environment(self._scratch.name),
                start_new_session=True,
            )
        assert process.stderr is not None
        self._process = process
        self._output = threading.Thread(target=self._keep, args=(process.stderr,), name=self._name, daemon=True)
        self._output.start()
        logger.info("%s runs as process %d", self._name, process.pid)

    def check(self) -> None:
        """Return while the process runs. Raises ConnectError, with its last lines, when it has ended."""
        assert self._process is not None
        assert self._output is not None
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        self._output.join(_LAST_LINES_S)
        how = "with exit code" if ended.si_code == os.CLD_EXITED else "by signal"
        raise ConnectError(
            "\n".join([f"{self._name} has ended {how} {ended.si_status}. Its last lines:", *self._lines])
        )

    def stop(self, timeout_s: float) -> None:
        """Ask the process to end, and kill its group after the time."""
        process, output = self._process, self._output
        if process is None or output is None:
            return
        # The group is not reused before the process is reaped, so these signals reach nothing else.
        os.kill(process.pid, signal.SIGTERM)
        output.join(timeout_s)  # all that have inherited standard error have ended then
        if output.is_alive():
            logger.warning("%s has not ended in %.1f s, and is killed", self._name, timeout_s)
        with suppress(ProcessLookupError, PermissionError):  # the group may have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        output.join(_LAST_LINES_S)
        self._process = None
        if self._scratch is not None:
            self._scratch.cleanup()

    def _keep(self, stream: IO[bytes]) -> None:
        """Keep the last lines, and log those that are warnings."""
        with stream:
            while line := stream.readline(LINE_BYTES_MAX):
                text = line.decode(errors="replace").rstrip()
                self._lines.append(text)
                level = logging.WARNING if any(f" {each} " in text for each in _WARNINGS) else logging.DEBUG
                logger.log(level, "%s: %s", self._name, text)


def _environment(scratch: str) -> dict[str, str]:
    """Return the variables of the process: it finds this package, and its temporary files are in `scratch`."""
    path = os.environ.get("PYTHONPATH")
    options = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={scratch}"
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_ROOT), path] if path else [str(_ROOT)]),
        "TMPDIR": scratch,
        "SPARK_LOCAL_DIRS": scratch,
        "SPARK_SUBMIT_OPTS": options.strip(),
    }
