"""The tool that prints compiled codecs."""

import pytest

from tests.tools.conftest import RunTool
from tools.files import dump_codec


@pytest.mark.parametrize(
    ("name", "headings"),
    [
        ("list_offsets", ["# ListOffsetsRequest v1", "# ListOffsetsResponse v1"]),
        ("FetchResponse", ["# FetchResponse v1"]),
    ],
)
def test_dump_prints_readers_and_writers(run: RunTool, name: str, headings: list[str]) -> None:
    outcome = run(dump_codec.main, name, "1")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert [line for line in outcome.stdout.splitlines() if line.startswith("#")] == headings
    assert outcome.stdout.count("def read(") == outcome.stdout.count("def write(") == len(headings)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("heartbeat", "9"), "HeartbeatRequest has no version 9, only 0 to 4"),
        (("nosuch", "0"), "no API, request or response is called 'nosuch'"),
    ],
)
def test_unknown_names_and_versions_are_reported(run: RunTool, arguments: tuple[str, str], text: str) -> None:
    outcome = run(dump_codec.main, *arguments)
    assert outcome.status == 2
    assert text in outcome.stderr
