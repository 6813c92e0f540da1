"""The commands of docs/from-docker-compose.md print what the page shows, in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.console_blocks import ROOT, TIMEOUT_S, blocks
from tests.support.commands import launchers, output_of

PAGE = ROOT / "docs" / "from-docker-compose.md"
ADDRESS = "localhost:9092"
SERVED = "$(milena status --env 2>/dev/null | cut -d= -f2)"
OF_ONE_RUN = re.compile(r"(?<=localhost:)\d+|(?<=process )\d+|\d+\.\d+(?= s$)")


def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    """Brokers get free ports, as other tests run on this machine."""
    path = launchers(tmp_path / "bin", "milena", "kafka-topics")
    project = tmp_path / "project"
    project.mkdir()
    shown, printed = [], []
    for block in blocks(PAGE.read_text()):
        wanted = [command for command in block if not command.line.startswith("pip install")]
        # The commands of one block share their variables, as in a shell.
        script = "\n".join(command.line for command in wanted).replace(ADDRESS, SERVED)
        script = script.replace("milena up --topics", "milena up --port 0 --topics")
        output = output_of(["bash", "-euc", script], project, {"PATH": path}, TIMEOUT_S).splitlines()
        if lines := [line for command in wanted for line in command.output]:
            shown += lines
            printed += output
    assert len(shown) > 4
    assert [OF_ONE_RUN.sub("N", line) for line in printed] == [OF_ONE_RUN.sub("N", line) for line in shown]
    assert not (project / ".milena").exists()
