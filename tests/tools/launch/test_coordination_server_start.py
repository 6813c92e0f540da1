"""coordination-server-start: serves until it is stopped, and reports why it cannot."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.coordination import RawClient, buffer, string
from tests.tools.conftest import Outcome, RunTool
from tools.launch import coordination_server_start

ROOT = Path(__file__).resolve().parents[3]
CREATE, EXISTS = 1, 3


@contextmanager
def started(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a process, and kill it at the end; yields it with its port."""
    command = [sys.executable, "-P", "-m", "tools.launch.coordination_server_start", "--data", str(folder)]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"serves at 127\.0\.0\.1:(\d+), log (\S+)\n", process.stdout.readline())
            assert found is not None
            assert Path(found[2]) == folder / "server.log"
            yield process, int(found[1])
        finally:
            process.kill()


def test_nothing_acknowledged_is_lost_by_kill_minus_nine_or_by_a_stop(tmp_path: Path) -> None:
    body = buffer(b"x") + struct.pack(">ii", 1, 31) + string("world") + string("anyone") + struct.pack(">i", 0)
    with started(tmp_path) as (process, port):
        client = RawClient(port)
        for number in range(2000):  # more than it can write before it is killed
            client.send(CREATE, string(f"/{number}") + body)
        acknowledged = 0
        while (frame := client.read()) is not None:
            assert frame.error == 0
            acknowledged += 1
            if acknowledged == 20:
                process.kill()
        client.close()
    with started(tmp_path) as (process, port):
        again = RawClient(port, session=client.session, password=client.password, last_zxid=acknowledged + 1)
        assert again.session == client.session
        for number in range(acknowledged):
            assert again.ask(EXISTS, string(f"/{number}") + b"\0")[-1].error == 0
        again.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_port_in_use_is_reported(run: RunTool, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run(coordination_server_start.main, "--data", str(tmp_path), "--port", str(port))
    assert outcome.status == 1
    assert outcome.stdout == ""
    assert outcome.stderr.startswith(f"The coordination server in {tmp_path} has ended: ")
    assert "in use" in outcome.stderr


def test_log_that_cannot_be_opened_is_reported(run: RunTool, tmp_path: Path) -> None:
    (tmp_path / "server.log").mkdir()
    outcome = run(coordination_server_start.main, "--data", str(tmp_path), "--port", "0")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert "Is a directory" in outcome.stderr


def test_file_of_something_else_is_reported(run: RunTool, tmp_path: Path) -> None:
    file = tmp_path / "coordination.sqlite"
    file.write_text("no database, and longer than a header of one")
    outcome = run(coordination_server_start.main, "--data", str(tmp_path), "--port", "0")
    assert outcome == Outcome(
        1, "", f"The coordination server in {tmp_path} has ended: {file}: file is not a database\n"
    )


def test_database_of_something_else_is_left_alone(run: RunTool, tmp_path: Path) -> None:
    file = tmp_path / "coordination.sqlite"
    with closing(sqlite3.connect(file)) as other:
        other.executescript("PRAGMA user_version = 1; CREATE TABLE t (c)")
    outcome = run(coordination_server_start.main, "--data", str(tmp_path), "--port", "0")
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.endswith(f"{file}: the database belongs to another application, 0x0\n")
