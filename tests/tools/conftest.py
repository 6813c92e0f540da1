"""A broker for the tools, and fixtures that run a tool in this process or as a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.broker import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]


class Outcome(NamedTuple):
    """The exit status and output of a tool."""

    status: int
    stdout: str
    stderr: str


RunTool = Callable[..., Outcome]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of this folder; each test uses its own topics and groups."""
    folder = tmp_path_factory.mktemp("tools-broker")
    with BrokerProcess(folder, {"num.partitions": "2", "offsets.topic.num.partitions": "4"}) as process:
        yield process


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> RunTool:
    """Runs a tool's `main` in this process: `run(topics.main, "--list", ...)`."""

    def run_main(main: Callable[[Sequence[str]], int], *arguments: str) -> Outcome:
        capfd.readouterr()
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
        sys.stdout.flush()
        return Outcome(status, *capfd.readouterr())

    return run_main


def run_module(module: str, *arguments: str, stdin: bytes = b"", timeout_s: float = 60) -> Outcome:
    """Runs a tool as a separate process, for tests of standard input, signals and exit."""
    finished = subprocess.run(
        [sys.executable, "-P", "-m", f"tools.{module}", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=timeout_s,
        check=False,
    )
    return Outcome(finished.returncode, finished.stdout.decode(), finished.stderr.decode())
