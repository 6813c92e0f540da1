"""The commands of a page, and running them with the tools of this clone.

Owns how commands stand in a page: lines after `$ `, continued after a backslash, with the output that the page shows.
Must not know which servers they meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.commands import output_of
from tests.support.typed_programs import typed

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^ *```console\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_TOOL = re.compile(r"\bbin/([a-z-]+)(?:\.sh)?")
TIMEOUT_S = 60


class Command(NamedTuple):
    """A command, and the lines of output that the page shows."""

    line: str
    output: tuple[str, ...]


def blocks(text: str) -> Iterator[list[Command]]:
    """Yield the commands of each block."""
    for block in _BLOCK.findall(text):
        commands: list[Command] = []
        for line in block.replace("\\\n", " ").splitlines():
            stripped = line.strip()
            if stripped.startswith("$ "):
                commands.append(Command(re.sub(" +", " ", stripped[2:]), ()))
            else:
                commands[-1] = Command(commands[-1].line, (*commands[-1].output, stripped))
        yield commands


def modules() -> dict[str, str]:
    """Return the module that each launcher runs."""
    found = {}
    for path in (ROOT / "bin").iterdir():
        if match := re.search(r"run_tool ([\w.]+) ", path.read_text()):
            found[path.name] = f"tools.{match[1]}"
    return found


def forked(command: str) -> str:
    """Return a command line with forks of the tools in place of their launchers."""
    launchers = modules()
    return _TOOL.sub(lambda match: typed(launchers[match[1]]), command)


def run(command: str, folder: Path, variables: Mapping[str, str]) -> str:
    """Run a command in a folder with these variables of the shell; return its output. Fails if it does."""
    return output_of(["bash", "-c", forked(command)], folder, {"PYTHONPATH": str(ROOT), **variables}, TIMEOUT_S)
