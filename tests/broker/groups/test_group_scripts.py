"""The golden scripts: each has the output of the machine. `MILENA_REGENERATE=1` rewrites them; review the diff."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.broker.groups.script import Script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripted_requests_get_the_recorded_responses(path: Path) -> None:
    expected = path.read_text()
    actual = Script().run(expected)
    if os.environ.get("MILENA_REGENERATE"):
        path.write_text(actual)
    assert actual == expected
