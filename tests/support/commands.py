"""Commands that tests run as a user would, and that have to succeed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def output_of(command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float) -> str:
    """Run a command in a folder, with these variables beside those of the tests; return its standard output.

    Fails with its output unless it succeeds.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
