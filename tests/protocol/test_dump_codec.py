"""The tool that prints compiled codecs."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "bin" / "dump_codec.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "headings"),
    [
        ("list_offsets", ["# ListOffsetsRequest v1", "# ListOffsetsResponse v1"]),
        ("FetchResponse", ["# FetchResponse v1"]),
    ],
)
def test_it_prints_readers_and_writers(name: str, headings: list[str]) -> None:
    done = run(name, "1")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("#")] == headings
    assert done.stdout.count("def read(") == done.stdout.count("def write(") == len(headings)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("heartbeat", "9"), "HeartbeatRequest has no version 9, only 0 to 4"),
        (("nosuch", "0"), "no API, request or response is called 'nosuch'"),
    ],
)
def test_it_says_what_it_does_not_know(arguments: tuple[str, str], text: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
