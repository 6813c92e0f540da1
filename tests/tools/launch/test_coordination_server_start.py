"""coordination-server-start: serves until it is stopped, and reports why it cannot."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.coordination import RawClient
from tests.tools.conftest import Outcome, RunTool
from tools.launch import coordination_server_start

ROOT = Path(__file__).resolve().parents[3]
CLOSE = -11


def test_server_runs_until_it_is_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "tools.launch.coordination_server_start", "--data", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        found = re.fullmatch(r"serves at 127\.0\.0\.1:(\d+), log (\S+)\n", process.stdout.readline())
        assert found is not None
        client = RawClient(int(found[1]))
        assert client.ask(CLOSE)[-1].error == 0
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert Path(found[2]) == tmp_path / "server.log"
    assert (tmp_path / "coordination.sqlite").exists()


def test_port_in_use_is_reported(run: RunTool, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run(coordination_server_start.main, "--data", str(tmp_path), "--port", str(port))
    assert outcome.status == 1
    assert outcome.stdout == ""
    assert outcome.stderr.startswith(f"The coordination server in {tmp_path} has ended: ")
    assert "in use" in outcome.stderr


def test_file_of_something_else_is_reported(run: RunTool, tmp_path: Path) -> None:
    file = tmp_path / "coordination.sqlite"
    file.write_text("no database, and longer than a header of one")
    outcome = run(coordination_server_start.main, "--data", str(tmp_path), "--port", "0")
    assert outcome == Outcome(
        1, "", f"The coordination server in {tmp_path} has ended: {file}: file is not a database\n"
    )
