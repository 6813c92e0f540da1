"""Log directories of brokers that have stopped, made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from controller.embedded.sqlite_store import METADATA_FILE, SqliteStore
from controller.store.state_store import Create
from storage.disk import checkpoints
from storage.disk.files import OsFiles
from tests.support.manual_clock import ManualClock
from tests.tools.kraft.metadata import CLUSTER_ID

SEGMENTS = ("00000000000000000000", "00000000000000000010", "00000000000000000020")


def write_tree(folder: Path, nodes: Mapping[str, bytes | None]) -> None:
    """Make the embedded store of a folder, with the parents of these nodes."""

    async def write() -> None:
        store = SqliteStore([folder / METADATA_FILE], ManualClock())
        await store.open()
        made: dict[str, bytes | None] = {}
        for path in nodes:
            words = path.split("/")[1:]
            made |= {"/" + "/".join(words[:end]): None for end in range(1, len(words))}
        made |= nodes
        await store.multi([Create(path, made[path]) for path in sorted(made)])
        await store.close()

    asyncio.run(write())


def make_folder(folder: Path, *partitions: str, broker_id: int = 1, cluster_id: str = CLUSTER_ID) -> Path:
    """Make a log directory of a broker that has stopped."""
    folder.mkdir()
    (folder / "meta.properties").write_text(f"version=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n")
    for name in partitions:
        (folder / name).mkdir()
        for segment in SEGMENTS:
            for suffix in (".log", ".index"):
                (folder / name / f"{segment}{suffix}").write_text(f"{name} {segment}{suffix}")
    names = [tuple(name.rsplit("-", 1)) for name in partitions if "." not in name]
    offsets = {(topic, int(number)): 25 for topic, number in names}
    for file in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        checkpoints.write_offsets(OsFiles(), str(folder / file), offsets)
    return folder
