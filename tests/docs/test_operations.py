"""Every command of docs/operations.md succeeds, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from milena_broker.testing import Broker
from tests.docs.console_blocks import ROOT, forked

PAGE = ROOT / "docs" / "operations.md"
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
STOPS = "bin/kafka-server-stop"


@pytest.mark.timeout(240)
def test_every_command_succeeds(tmp_path: Path) -> None:
    """The command that stops the brokers of this installation names a broker that does not exist: others run tests."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    commands = COMMAND.findall(PAGE.read_text())
    assert len(commands) > 15
    with Broker() as broker:
        (tmp_path / "data").symlink_to(broker.log.parent / "data-0")
        (tmp_path / "var").mkdir()
        (tmp_path / "var" / "data").symlink_to(tmp_path / "data")  # log.dir of config/server.properties
        for written in commands:
            command = written
            if command.startswith(STOPS):
                command += " --node-id 987654"
            done = subprocess.run(
                ["bash", "-c", forked(command).replace("localhost:9092", broker.bootstrap_servers)],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if command.startswith(STOPS):
                assert (done.returncode, done.stdout) == (1, "No kafka server to stop\n")
            else:
                assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
