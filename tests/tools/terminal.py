"""A shell in which tests type the commands of a user, and servers that run in other terminals.

Owns how a command line is typed and a server awaited: a tool that is interrupted, and a server, by its launcher, any
other tool as a fork. Must not know what the commands do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.console_blocks import forked
from tests.support.metadata_probe import is_serving
from tests.support.processes import listening_ports
from tests.tools.conftest import ROOT

TIMEOUT_S = 60.0
# A shell starts background processes with SIGINT ignored, and its children inherit that.
INTERRUPTIBLE = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])",
)


class Terminal:
    """A shell in a folder with Milena's `bin` and `config`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.addresses: dict[str, str] = {}
        """By the address that the documentation prints: the one to use."""
        for name in ("bin", "config"):
            (folder / name).symlink_to(ROOT / name)

    def type(self, line: str, stdin: Sequence[str] = ()) -> list[str]:
        """Run a command line; return the lines that it printed. Fails the test if it fails."""
        return self._run(line, "".join(f"{text}\n" for text in stdin), 0).stdout.splitlines()

    def type_wrongly(self, line: str) -> list[str]:
        """Run a command line that fails with exit status 1; return the lines of its error."""
        return self._run(line, "", 1).stderr.splitlines()

    def _run(self, line: str, stdin: str, expected: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["sh", "-c", forked(self._typed(line))],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == expected, f"{line}\n{done.stdout}\n{done.stderr}"
        return done

    def repeat_until(self, line: str, text: str) -> None:
        """Run a command line until it prints a text."""
        deadline = time.monotonic() + TIMEOUT_S
        while not any(text in printed for printed in self.type(line)):
            assert time.monotonic() < deadline, f"{line} never printed {text!r}"

    def type_and_interrupt(self, line: str, count: int) -> list[str]:
        """Run a command line, and press Ctrl-C when it has printed `count` lines; return these."""
        process = subprocess.Popen(
            [*INTERRUPTIBLE, "sh", "-c", f"exec {self._typed(line)}"],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip("\n") for _ in range(count)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
        assert f"Processed a total of {count} messages" in errors
        return lines

    @contextmanager
    def running(self, line: str, *overrides: str) -> Iterator[None]:
        """Run a server in another terminal until Ctrl-C."""
        words = ["bin/" + line.removeprefix("bin/"), "--override", "listeners=PLAINTEXT://127.0.0.1:0"]
        with (self._folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *INTERRUPTIBLE,
                    "sh",
                    "-c",
                    f"exec {' '.join(words)} {' '.join(f'--override {each}' for each in overrides)}",
                ],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        try:
            self.addresses["localhost:9092"] = f"127.0.0.1:{self._port_of(process)}"
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT_S)

    def _port_of(self, process: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            try:
                for port in listening_ports(process.pid):
                    if is_serving(port):
                        return port
            except OSError:
                pass
            time.sleep(0.05)
        pytest.fail((self._folder / "server.log").read_text())

    def _typed(self, line: str) -> str:
        for printed, used in self.addresses.items():
            line = line.replace(printed, used)
        return line
