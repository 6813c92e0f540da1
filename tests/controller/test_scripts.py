"""Golden scripts: the requests to brokers and the content of the store, command by command.

A file in `scripts/` is a list of blocks: a command, `----`, what could be seen. Run with REWRITE=1 to write what is
seen now into the files, and commit only differences that you understand.
"""

import asyncio
import os
from pathlib import Path

import pytest

from tests.controller.scripted_cluster import ScriptedCluster

SCRIPTS = Path(__file__).parent / "scripts"


async def _play(script: str) -> str:
    cluster = ScriptedCluster()
    blocks: list[str] = []
    for block in script.strip().split("\n\n"):
        comments = [line for line in block.splitlines() if line.startswith("#")]
        command = next((line for line in block.splitlines() if not line.startswith("#")), None)
        if command is None:
            blocks.append("\n".join(comments))
            continue
        seen = await cluster.run(command)
        blocks.append("\n".join([*comments, command, "----", *seen]).rstrip())
    await cluster.close()
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_scripted_events_lead_to_the_expected_state_and_requests(path: Path) -> None:
    script = path.read_text()
    seen = asyncio.run(_play(script))
    if os.environ.get("REWRITE"):
        path.write_text(seen)
    assert seen == script
