"""Our dump tool and Kafka's print the same of the same files: those of the fixtures and those of a broker of today."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.dumped import TOPIC
from tests.support.apache_kafka import tool_command
from tests.support.broker import ROOT
from tests.support.parts import skip_when_unavailable
from tests.tools.test_dump_log import CASES, FIXTURES

SUFFIXES = frozenset({".log", ".index", ".timeindex", ".txnindex", ".snapshot"})
TIMEOUT_S = 60


def printed(command: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Status, stdout and stderr of a tool that runs in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


def kafkas(arguments: Sequence[str]) -> list[str]:
    with skip_when_unavailable():
        return tool_command("kafka.tools.DumpLogSegments", *arguments)


def ours(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "tools.dump_log", *arguments]


@pytest.mark.parametrize("name", CASES)
def test_what_the_fixtures_expect_is_what_kafka_prints(name: str) -> None:
    folder, arguments = FIXTURES / "partitions", CASES[name]
    expected = printed(kafkas(arguments), folder)
    assert expected[1] == (FIXTURES / "expected" / f"{name}.txt").read_text()
    assert printed(ours(arguments), folder) == expected


def test_files_of_a_broker(dumped_folder: Path) -> None:
    for partition, option in (
        (f"{TOPIC}-0", "--print-data-log"),
        (f"{TOPIC}-0", "--index-sanity-check"),
        ("__consumer_offsets-0", "--offsets-decoder"),
    ):
        files = sorted(path.name for path in (dumped_folder / partition).iterdir() if path.suffix in SUFFIXES)
        arguments = ["--files", ",".join(files), option]
        expected = printed(kafkas(arguments), dumped_folder / partition)
        assert printed(ours(arguments), dumped_folder / partition) == expected
        assert expected[0] == 0
