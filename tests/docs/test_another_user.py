"""What the documentation shows works for a user who is not root, in a clone that belongs to somebody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.commands import ROOT
from tests.support.java import UnavailableError
from tests.support.parts import skip_when_unavailable

TYPED = (
    "tests/docs",
    "tests/tools/test_command_line_sessions.py",
    "tests/tools/test_operator_session.py",
    "tests/tools/test_quick_starts.py",
)
"""The tests that type what README.md, docs/ and Kafka's quick starts show."""
USER_ID = 65534
TIMEOUT_S = 1200


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the other user, beside those of pytest, which he cannot reach."""
    with TemporaryDirectory() as folder:
        os.chown(folder, USER_ID, USER_ID)
        yield Path(folder)


@pytest.mark.soak  # the same sessions once more
@pytest.mark.timeout(TIMEOUT_S)
def test_what_the_docs_show_is_typed_by_another_user(home: Path) -> None:
    with skip_when_unavailable():
        if os.geteuid() != 0:
            raise UnavailableError("needs root, which can run a command as another user")
    options = ["-q", "-n2", "-m", "not soak", "-o", f"cache_dir={home / 'cache'}", f"--basetemp={home / 'tests'}"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *options, *TYPED],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        user=USER_ID,
        group=USER_ID,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout
