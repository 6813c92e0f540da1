"""kafka-server-stop: the signalled processes, and the signal."""

from __future__ import annotations

import os
import pwd
import signal

import pytest

from tests.tools.conftest import Outcome, RunTool
from tools.launch import server_stop
from tools.launch.running_servers import RunningBroker


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The signals that were sent to two simulated brokers."""
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(server_stop, "running_brokers", lambda: [RunningBroker(101, 1), RunningBroker(102, 2)])
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    monkeypatch.delenv("SIGNAL", raising=False)
    return signals


@pytest.mark.parametrize(
    ("arguments", "pids"),
    [
        ((), [101, 102]),
        (("--node-id=2",), [102]),
        (("--node-id", "1"), [101]),
        (("--process-role=broker",), [101, 102]),
    ],
)
def test_running_brokers_get_sigterm(
    run: RunTool, sent: list[tuple[int, int]], arguments: tuple[str, ...], pids: list[int]
) -> None:
    assert run(server_stop.main, *arguments) == Outcome(0, "", "")
    assert sent == [(pid, signal.SIGTERM) for pid in pids]


@pytest.mark.parametrize("arguments", [("--node-id=3",), ("--process-role=controller",)])
def test_no_running_broker_is_reported(run: RunTool, sent: list[tuple[int, int]], arguments: tuple[str, ...]) -> None:
    assert run(server_stop.main, *arguments) == Outcome(1, "No kafka server to stop\n", "")
    assert sent == []


@pytest.mark.parametrize("name", ["INT", "SIGINT", "int", "2"])
def test_signal_of_the_environment_is_sent(
    run: RunTool, sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SIGNAL", name)
    assert run(server_stop.main, "--node-id=1").status == 0
    assert sent == [(101, signal.SIGINT)]


@pytest.mark.parametrize("name", ["NONSENSE", "999"])
def test_invalid_signal_is_reported(
    run: RunTool, sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SIGNAL", name)
    outcome = run(server_stop.main)
    assert outcome == Outcome(1, "", f"SIGNAL={name} is not the name of a signal\n")
    assert sent == []


def test_broker_of_another_user_is_one_line(run: RunTool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    pid, me = os.getpid(), pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(server_stop, "running_brokers", lambda: [RunningBroker(pid, 1)])
    monkeypatch.setattr(os, "kill", refuse)
    said = f"Cannot stop process {pid}: it belongs to user {me}. Run this tool as that user\n"
    assert run(server_stop.main) == Outcome(1, "", said)
