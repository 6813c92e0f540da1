"""Files of running brokers, of ended ones, and other files."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

from tests.tools.conftest import ROOT
from tools.launch.running_servers import RunningBroker, registered, running_brokers

HOLDER = """
import sys
from pathlib import Path
from tools.launch.running_servers import registered
with registered(int(sys.argv[2]), Path(sys.argv[1])):
    print("up", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path, broker_id: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(folder), str(broker_id)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def test_without_the_folder_no_broker_runs(tmp_path: Path) -> None:
    assert running_brokers(tmp_path / "none") == []


def test_running_brokers_are_listed_until_they_end(tmp_path: Path) -> None:
    with holder(tmp_path, 1) as one, holder(tmp_path, 2) as two:
        assert sorted(running_brokers(tmp_path)) == sorted([RunningBroker(one.pid, 1), RunningBroker(two.pid, 2)])
        one.communicate()
        assert running_brokers(tmp_path) == [RunningBroker(two.pid, 2)]
        two.kill()
        two.wait()
        assert running_brokers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_files_of_ended_brokers_are_removed(tmp_path: Path) -> None:
    (tmp_path / "broker-1").write_text(f"{os.getpid()} 1\n")
    (tmp_path / "broker-2").write_text("nonsense")
    assert running_brokers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_look_during_the_registration_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a broker looks all the time, also between the creation of its file and the lock."""
    lock = fcntl.flock

    def lock_after_a_look(file: TextIO, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            running_brokers(tmp_path)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock_after_a_look)
    with registered(5, tmp_path):
        assert running_brokers(tmp_path) == [RunningBroker(os.getpid(), 5)]


def test_registration_ends_with_its_block(tmp_path: Path) -> None:
    with registered(5, tmp_path):
        assert (tmp_path / f"broker-{os.getpid()}").read_text() == f"{os.getpid()} 5\n"
    assert list(tmp_path.iterdir()) == []
