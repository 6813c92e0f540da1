"""What the file adds to the port: durability, one process at a time, errors that name the file."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from controller.embedded.sqlite_store import SqliteStore
from controller.store.state_store import Create, StoreUnavailable, WatchEvent
from tests.support.manual_clock import ManualClock

# A process of its own, because only the end of one drops the lock without closing the store.
_WRITER = """
import asyncio, os, pathlib, signal, sys
from controller.embedded.sqlite_store import SqliteStore

class Clock:
    def now_ms(self): return 0

async def main():
    store = SqliteStore([pathlib.Path(sys.argv[1])], Clock())
    await store.open()
    await store.create("/kept", b"acknowledged")
    await store.create("/gone", b"", ephemeral=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_sigkill_keeps_acknowledged_writes_and_removes_ephemeral_nodes(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    process = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", _WRITER, str(path)], check=False)
    assert process.returncode == -9
    store = SqliteStore([path], ManualClock())
    await store.open()
    assert (await store.get("/kept")).data == b"acknowledged"
    assert await store.children("/") == ["kept"]
    before = (await store.get("/kept")).stat.czxid
    await store.create("/next")
    assert (await store.get("/next")).stat.czxid > before
    await store.close()


async def test_second_store_on_the_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    first = SqliteStore([path], ManualClock())
    await first.open()
    second = SqliteStore([path], ManualClock())
    with pytest.raises(StoreUnavailable, match=r"metadata\.sqlite: in use by another process"):
        await second.open()
    await first.create("/still-works")
    await first.close()
    await second.open()
    assert await second.children("/") == ["still-works"]
    await second.close()


async def test_file_that_is_no_store_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    path.write_bytes(b"not a database at all " * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        await SqliteStore([path], ManualClock()).open()


async def test_store_of_another_schema_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreUnavailable, match="schema version 99, expected 2"):
        await SqliteStore([path], ManualClock()).open()


async def test_database_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "contacts.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="the file has tables of another program"):
        await SqliteStore([path], ManualClock()).open()
    assert path.read_bytes() == before


async def test_missing_folder_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="unable to open"):
        await SqliteStore([tmp_path / "nowhere" / "metadata.sqlite"], ManualClock()).open()


async def test_cancelled_write_still_fires_watches(tmp_path: Path) -> None:
    store = SqliteStore([tmp_path / "metadata.sqlite"], ManualClock())
    await store.open()
    seen: list[WatchEvent] = []
    await store.children("/", seen.append)
    writer = asyncio.create_task(store.multi([Create("/a")]))
    await asyncio.sleep(0)
    writer.cancel()
    assert await store.children("/") == ["a"]
    assert len(seen) == 1
    await store.close()
