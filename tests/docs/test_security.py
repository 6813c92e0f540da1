"""docs/security.md: its steps work as written, and its table is that of the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.requests.routes import TABLE
from protocol.api import APIS
from tests.docs.console_blocks import forked
from tests.support.broker import ROOT
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PAGE = ROOT / "docs" / "security.md"
TEXT = PAGE.read_text(encoding="utf-8")
STEPS = TEXT.partition("## From open to secured in five steps")[2].partition("\n## ")[0]


def rows() -> Iterator[str]:
    """Yield the rows of the table of permissions."""
    for key in sorted(TABLE):
        permissions = TABLE[key].API.permissions
        needs = [
            f"{operation.title} on the {noun}"
            for operation, noun in (
                (permissions.cluster, "cluster"),
                (permissions.transactional_id, "transactional id"),
                (permissions.group, "group"),
                (permissions.topic, "topic"),
            )
            if operation is not None
        ]
        if permissions.cluster_instead is not None:
            needs.append(f"or {permissions.cluster_instead.title} on the cluster")
        yield f"| {APIS[key].name} | {', '.join(needs) or 'none'} | {permissions.note} |"


def test_table_is_that_of_the_code() -> None:
    table = TEXT.split("### The permission for each request\n\n")[1].splitlines()
    assert table[:2] == ["| request | permission | |", "|---|---|---|"]
    assert table[2 : 2 + len(TABLE)] == list(rows())


def commands() -> list[str]:
    """Return the commands of the steps; a backslash at the end of a line continues a command."""
    return re.findall(r"^ *\$ (.*)$", STEPS.replace("\\\n", ""), re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the launchers and the files of the page."""
    (tmp_path / "bin").symlink_to(ROOT / "bin")
    (tmp_path / "secured").mkdir()
    for block in re.findall(r"```properties\n(.*?)```", STEPS, re.DOTALL):
        lines = [line.removeprefix("   ") for line in block.splitlines()]
        (tmp_path / lines[0].strip(" #")).write_text("\n".join(lines) + "\n")
    return tmp_path


def test_steps_work_as_written(folder: Path) -> None:
    port = str(free_port())
    settings = folder / "secured" / "server.properties"
    settings.write_text(settings.read_text().replace("9093", port))
    steps = [command.replace("9093", port) for command in commands()]
    start = next(command for command in steps if "kafka-server-start" in command)
    preparation, administration = steps[: steps.index(start)], steps[steps.index(start) + 1 :]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(command: str) -> str:
        done = subprocess.run(
            forked(command),
            check=False,
            shell=True,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for command in preparation:
        run(command)
    with (folder / "log").open("wb") as log:
        broker = subprocess.Popen(["sh", "-c", f"exec {start}"], cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: "] started" in (folder / "log").read_text() or broker.poll() is not None, "a broker")
        consumed = [run(command) for command in administration][-1]
        assert consumed == "first order\n"
        add = next(command for command in administration if "kafka-acls" in command)
        added = run(add.replace("--add --allow-principal User:alice --producer --consumer", "--list"))
        assert "principal=User:alice, host=*, operation=WRITE" in added
    finally:
        broker.terminate()
        broker.wait(30)
        shutil.rmtree(folder / "secured" / "data", ignore_errors=True)
    log_text = (folder / "log").read_text()
    assert "change-me" not in log_text
    assert "WARN" not in log_text
