"""--java: the arguments reach the script of an unpacked Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import ROOT

MODULES = {
    "connect-standalone": "standalone",
    "connect-distributed": "distributed",
    "connect-mirror-maker": "mirror_maker",
}


def run(tool: str, home: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "KAFKA_HOME"}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if home is None else {"KAFKA_HOME": str(home)})
    command = [sys.executable, "-P", "-m", f"spark_jobs.connect.cli.{MODULES[tool]}", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("tool", MODULES)
def test_the_script_of_apache_kafka_gets_the_other_arguments(tmp_path: Path, tool: str) -> None:
    script = tmp_path / "bin" / f"{tool}.sh"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho "$0" "$@"\nexit 3\n')
    script.chmod(0o755)
    done = run(tool, tmp_path, "--java", "worker.properties")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{script} worker.properties\n", "")


@pytest.mark.parametrize(
    ("home", "text"),
    [(None, "--java needs KAFKA_HOME"), (Path("/nowhere"), "/nowhere/bin/connect-distributed.sh: No such file")],
)
def test_without_an_apache_kafka_the_reason_is_said(home: Path | None, text: str) -> None:
    done = run("connect-distributed", home, "--java", "worker.properties")
    assert done.returncode == 1
    assert text in done.stderr
    assert "Traceback" not in done.stderr
