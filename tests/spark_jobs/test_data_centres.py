"""Every command of docs/data-centres.md about several clusters does what the page says, in the order of the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import pytest

from milena_broker.testing import Broker
from spark_jobs.mirror import JOB
from tests.docs.console_blocks import ROOT, Command, blocks, run
from tests.spark_jobs.conftest import JobRunner

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "data-centres.md"
MIRRORED = PAGE.read_text(encoding="utf-8").partition("\n## One stretched cluster")[0]
MIRROR = "bin/spark-job mirror "


def run_block(commands: Sequence[Command], job_runner: JobRunner, variables: dict[str, str], folder: Path) -> None:
    """Run the commands of a block. Mirrors that follow each other run at the same time, to the end of their source."""
    for is_mirror, lines in groupby(commands, lambda command: command.line.startswith(MIRROR)):
        if is_mirror:
            flags = [flags_of(command.line, variables, job_runner.folder) for command in lines]
            assert job_runner.supervise_together(JOB, flags) == 0
            continue
        for line, output in lines:
            if not re.fullmatch(r"[abc]=[abc].*:9092", line):
                check_output(line, run(line, folder, variables), output)


def flags_of(line: str, variables: dict[str, str], folder: Path) -> list[str]:
    flags = shlex.split(re.sub(r"\$([abc])\b", lambda match: variables[match[1]], line.removeprefix(MIRROR)))
    checkpoint = flags.index("--checkpoint") + 1
    flags[checkpoint] = str(folder / flags[checkpoint])
    return [*flags, "--heartbeats", ""]


def check_output(line: str, printed: str, expected: Sequence[str]) -> None:
    if expected:
        assert [*expected] == printed.splitlines()
    if line.endswith("--describe --group mirror-a-b"):
        assert re.search(r"orders +0 +3 +3 +0 ", printed), printed


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return sorted((record.value or b"" for record in broker.consume(topic)), key=bytes)


def test_every_command_about_mirrors_does_what_the_page_says(job_runner: JobRunner, tmp_path: Path) -> None:
    with ExitStack() as running:
        a, b, c = (running.enter_context(Broker({"auto.create.topics.enable": True})) for _ in range(3))
        variables = {"a": a.bootstrap_servers, "b": b.bootstrap_servers, "c": c.bootstrap_servers}
        for commands in blocks(MIRRORED):
            run_block(commands, job_runner, variables, tmp_path)
        mirrored = [b"first", b"second", b"third"]
        assert values(a, "orders") == values(b, "orders") == mirrored, "the old primary has what was mirrored back"
        assert values(b, "orders-left-at-a") == [b"never mirrored"]
        assert values(a, "B.users") == [b"bob"]
        assert values(b, "A.users") == [b"ann"]
        assert values(c, "clicks") == [b"a clicks", b"b clicks"]
