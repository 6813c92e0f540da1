"""Tools that are typed into a shell: what the shell sees of a fork is what it would see of `python -m`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked_programs import variables_of_programs
from tests.support.typed_programs import typed

PROGRAM = "tests.support.echo_program"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    variables = {**variables_of_programs(), "ECHO_NAME": "a value"}
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=variables, input=b"some input", capture_output=True, check=False, timeout=60
    )


@pytest.mark.parametrize("end", ["return", "interrupt", "3"])
def test_a_typed_program_prints_and_ends_as_the_command_does(tmp_path: Path, end: str) -> None:
    found = shell(f"{typed(PROGRAM)} {end} 'b c'; echo ended with $?", tmp_path)
    expected = shell(f"{sys.executable} -P -m {PROGRAM} {end} 'b c'; echo ended with $?", tmp_path)
    # It says whether it has a process group of its own.
    assert found.stdout.replace(b" True ", b" False ") == expected.stdout
    assert b"some input\nat exit\n" in found.stdout or end == "interrupt"
    assert found.stderr.startswith(b"an error\n")


def test_typed_programs_are_parts_of_a_command_line(tmp_path: Path) -> None:
    version = f"{typed('milena_broker')} tools.admin.topics --version"
    found = shell(f"{version} | tee printed; {typed('tools.admin.topics')} --nonsense 2>/dev/null || exit 4", tmp_path)
    assert (found.returncode, found.stderr) == (4, b"")
    assert found.stdout.startswith(b"3.9.1 ")
    assert (tmp_path / "printed").read_bytes() == found.stdout
