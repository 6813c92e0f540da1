"""Golden scripts: the requests to brokers and the content of the store, command by command.

They are the same over the store in memory, with immediate or late watches, and over a real ZooKeeper. The embedded
store has one session, and so only one broker.

A file in `scripts/` is a list of blocks: a command, `----`, what could be seen. Run with MILENA_REGENERATE=1 to write
what is seen now into the files, and commit only differences that you understand.
"""

import asyncio
import itertools
import os
from pathlib import Path
from random import Random

import pytest

from tests.controller.scripted_cluster import ScriptedCluster, ScriptedMemoryStore
from tests.controller.scripted_zookeeper import ZooKeeperCluster
from tests.support.zookeeper import ZooKeeperProcess

SCRIPTS = Path(__file__).parent / "scripts"


async def _play(script: str, cluster: ScriptedCluster) -> str:
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
    seen = asyncio.run(_play(script, ScriptedCluster()))
    if os.environ.get("MILENA_REGENERATE"):
        path.write_text(seen)
    assert seen == script


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_late_watches_lead_to_the_same(path: Path, seed: int) -> None:
    seeds = itertools.count(seed * 100)
    script = path.read_text()
    cluster = ScriptedCluster(make_store=lambda tree: ScriptedMemoryStore(tree, late=Random(next(seeds))))
    assert asyncio.run(_play(script, cluster)) == script


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_zookeeper_leads_to_the_same(path: Path, zookeeper_server: ZooKeeperProcess) -> None:
    """When a broker learns who is controller depends on the time that the server takes, so that is not compared."""
    script = path.read_text()
    played = asyncio.run(_play(script, ZooKeeperCluster(zookeeper_server)))
    assert _without_observations(played) == _without_observations(script)


def _without_observations(script: str) -> list[str]:
    return [line for line in script.splitlines() if " sees controller " not in line]
