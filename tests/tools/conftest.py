"""A broker for the tools, and fixtures that run a tool in this process or as a separate process."""

from __future__ import annotations

import io
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from milena_broker import commands
from tests.support import command_lines
from tests.support.broker import BrokerProcess
from tests.support.forked_programs import run_program

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


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
    settings = {
        "num.partitions": "2",
        "offsets.topic.num.partitions": "4",
        # A member of a new share group gets its partitions with its second heartbeat.
        "group.share.min.heartbeat.interval.ms": "50",
        "group.share.heartbeat.interval.ms": "50",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    with BrokerProcess(folder, settings) as process:
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


def module_of(name: str) -> str:
    """Return the module that a console script runs."""
    package, _, function = SCRIPTS[name].partition(":")
    assert package == commands.__name__
    (module,) = getattr(commands, function).args
    assert isinstance(module, str)
    return module


@pytest.fixture
def milenas_tools(run: RunTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> command_lines.RunTool:
    """Runs command lines with Milena's tools in the folder `tmp_path`."""
    monkeypatch.chdir(tmp_path)

    @cache
    def purpose(name: str) -> str:
        printed = run(import_module(module_of(name)).main, "--help")
        return (printed.stdout or printed.stderr).partition("Option  ")[0]

    def run_tool(command: command_lines.Command, arguments: Sequence[str]) -> Outcome:
        above_options = purpose(command.name)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(command.stdin)))
        status, stdout, stderr = run(import_module(module_of(command.name)).main, *arguments)
        # Kafka's tools print their purpose above the options only if no error is there.
        return Outcome(status, stdout, stderr.replace(f"{above_options}Option  ", "Option  "))

    return run_tool


def run_module(module: str, *arguments: str, stdin: bytes = b"", timeout_s: float = 60) -> Outcome:
    """Run a tool as a separate process, for tests of standard input, signals and exit."""
    finished = run_program(f"tools.{module}", arguments, stdin=stdin, timeout_s=timeout_s)
    return Outcome(finished.returncode, finished.stdout.decode(), finished.stderr.decode())
