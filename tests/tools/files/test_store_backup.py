"""A backup of the embedded store: consistent at any moment, from the newest copy that can be used."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from controller.embedded.sqlite_file import SqliteFile, Transaction
from controller.store.state_store import Create, SetData
from tools.files import store_backup
from tools.files.store_backup import BackupError, back_up, copy_consistently

CLUSTER_ID = b'{"version":"1","id":"7ym0r3ycTc-XAnwnQmXzjg"}'


def write(file: SqliteFile, *operations: Create | SetData) -> None:
    file.apply(operations, Transaction(file.zxid + 1, 1, 0))


def new_store(path: Path, cluster_id: bytes = CLUSTER_ID) -> SqliteFile:
    """Return an open, locked store of a cluster with one transaction."""
    file = SqliteFile(path)
    write(file, Create("/cluster", None), Create("/cluster/id", cluster_id))
    return file


def content(path: Path, node: str) -> bytes | None:
    with closing(SqliteFile(path)) as file:
        found = file.get(node)
        return None if found is None else found.data


def test_the_backup_of_a_locked_store_has_what_was_committed(tmp_path: Path) -> None:
    file = new_store(tmp_path / "store")
    write(file, Create("/a", b"x" * 100_000))
    backup = back_up([tmp_path / "store"], tmp_path / "copy")
    write(file, SetData("/a", b"later"))
    file.close()
    assert (backup.source, backup.zxid, backup.left_out) == (tmp_path / "store", 2, [])
    assert content(tmp_path / "copy", "/a") == b"x" * 100_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "store"]


def test_backups_during_writes_and_checkpoints_are_consistent(tmp_path: Path) -> None:
    """Each transaction writes one number to several nodes; a backup must show one number in all of them."""
    nodes = [f"/{letter}" for letter in "abcdefgh"]
    file = new_store(tmp_path / "store")
    write(file, *(Create(node, b"0" * 4096) for node in nodes))
    stop = threading.Event()

    def write_on() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            write(file, *(SetData(node, b"%4096d" % number) for node in nodes))

    thread = threading.Thread(target=write_on)
    thread.start()
    try:
        for number in range(30):
            copy = tmp_path / f"copy-{number}"
            back_up([tmp_path / "store"], copy)
            with closing(sqlite3.connect(copy)) as connection:
                (count,) = connection.execute("SELECT count(DISTINCT data) FROM node WHERE path LIKE '/_'").fetchone()
            assert count == 1
    finally:
        stop.set()
        thread.join()
        file.close()


def test_a_log_that_restarts_during_a_copy_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").write_bytes(b"database")
    log = tmp_path / "store-wal"
    log.write_bytes(b"1" * 32)
    generations = iter([b"2", b"3"])
    copy_log = store_backup._copy_log

    def restart(source: Path, target: Path) -> None:
        log.write_bytes(next(generations, b"3") * 32)
        copy_log(source, target)

    monkeypatch.setattr(store_backup, "_copy_log", restart)
    monkeypatch.setattr(store_backup, "COPY_RETRY_S", 0.0)
    copy_consistently(tmp_path / "store", tmp_path / "copy")
    assert (tmp_path / "copy-wal").read_bytes() == b"3" * 32
    endless = (str(number % 10).encode() for number in range(10_000))
    monkeypatch.setattr(store_backup, "_copy_log", lambda source, target: log.write_bytes(next(endless) * 32))
    with pytest.raises(BackupError, match="changes too fast"):
        copy_consistently(tmp_path / "store", tmp_path / "copy")


def test_the_newest_copy_of_the_cluster_is_taken(tmp_path: Path) -> None:
    older, newer, damaged, empty = (tmp_path / name for name in ("older", "newer", "damaged", "empty"))
    new_store(older).close()
    file = new_store(newer)
    write(file, Create("/a", b"new"))
    file.close()
    damaged.write_bytes(b"no database" * 1000)
    SqliteFile(empty).close()
    backup = back_up([older, damaged, newer, empty], tmp_path / "copy")
    assert (backup.source, backup.zxid, backup.left_out) == (newer, 2, [damaged, empty])
    assert content(tmp_path / "copy", "/a") == b"new"


@pytest.mark.parametrize("case", ["damaged", "mixed", "empty"])
def test_failed_backup_leaves_no_file(tmp_path: Path, case: str) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    match case:
        case "damaged":
            one.write_bytes(b"no database" * 1000)
            sources, reason = [one], "not a database"
        case "mixed":
            new_store(one).close()
            new_store(other, CLUSTER_ID.replace(b"7ym", b"8ym")).close()
            sources, reason = [one, other], "different clusters"
        case _:
            SqliteFile(one).close()
            sources, reason = [one], "no copy belongs to a cluster"
    with pytest.raises(BackupError, match=reason) as raised:
        back_up(sources, tmp_path / "copy")
    assert all(str(source) in str(raised.value) for source in sources)
    assert ".backup-" not in str(raised.value)
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob(".backup-*"))
