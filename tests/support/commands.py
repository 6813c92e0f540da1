"""Commands that tests run as a user would, and that have to succeed."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from milena_broker import commands
from tests.support.typed_programs import typed

ROOT = Path(__file__).resolve().parents[2]


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


def launchers(folder: Path, *tools: str) -> str:
    """Write programs with the names of tools, as an installation has them; return a PATH in which they are first.

    Their settings and state are those of the tests, of which they are forks.
    """
    folder.mkdir()
    milena = typed("milena_broker")
    for name in tools:
        module = getattr(commands, name.removeprefix("kafka-").replace("-", "_")).args[0]
        program = folder / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {milena} {module} "$@"\n')
        program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
