"""Starts a program of this installation that survives its terminal and the program that started it.

Owns how. Must not know which program it is.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def start_detached(
    module: str, arguments: Sequence[str], output: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.Popen[bytes]:
    """Start a module's `main` in a session of its own; what it prints is appended to a file. Raises OSError."""
    with output.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "milena_broker", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
            start_new_session=True,
        )
