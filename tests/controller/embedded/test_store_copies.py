"""The store in several directories: how a start treats the copies it finds, and what the loss of one costs."""

from __future__ import annotations

import errno
import itertools
import logging
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.embedded import sqlite_file, store_copies
from controller.embedded.sqlite_file import Applied, SqliteFile, Transaction
from controller.embedded.store_copies import OPEN_RETRY_S, OPEN_TRIES, StoreCopies
from controller.store.state_store import Create, NodeExists, Operation, SetData, Stat, StoreUnavailable, WatchKind
from controller.tree import paths
from tests.support.manual_clock import ManualClock

CLUSTER, OTHER_CLUSTER = "7ym0r3ycTc-XAnwnQmXzjg", "pSEGtdSkRXmCBClYmmbVaw"
NAMES = ("a", "b", "c")


class Crashed(BaseException):
    """The process was killed. It is no Exception, so that no code catches it and continues."""


class Disks:
    """Folders that hold a copy each. `failed` are the copies whose disk was reported as failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed: list[str] = []
        self.waits: list[float] = []
        self.on_wait: Callable[[], object] = lambda: None
        for name in NAMES:
            (folder / name).mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self.folder / name / "metadata.sqlite"

    def store(self, names: Iterable[str] | None = None) -> StoreCopies:
        files = [self.path(name) for name in (NAMES if names is None else names)]
        return StoreCopies(
            files, ManualClock(), lambda path, error: self.failed.append(path.parent.name), sleep=self._wait
        )

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.on_wait()

    def open(self, names: Iterable[str] | None = None) -> StoreCopies:
        store = self.store(names)
        store.examine()
        store.begin_session()
        return store

    def new_cluster(self, names: Iterable[str] | None = None, cluster_id: str = CLUSTER) -> StoreCopies:
        store = self.open(names)
        store.apply([Create("/cluster"), Create(paths.CLUSTER_ID, paths.encode_cluster_id(cluster_id))])
        return store

    def tree_of(self, name: str) -> dict[str, tuple[bytes | None, int]]:
        """Every node with its data and version, as one copy by itself has them."""
        file = SqliteFile(self.path(name))
        found, pending = {}, ["/"]
        while pending:
            path = pending.pop()
            (node,) = file.get_many([path])
            assert node is not None
            found[path] = (node.data, node.stat.version)
            pending += [f"{path.rstrip('/')}/{child}" for child in file.children(path)]
        file.close()
        return found


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def names_of(store: StoreCopies) -> list[str]:
    return [name for name in store.children("/") if name != "cluster"]


def subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [chosen for size in range(1, len(names) + 1) for chosen in itertools.combinations(names, size)]


# What is found


def test_every_copy_has_all_data(disks: Disks) -> None:
    store = disks.new_cluster()
    store.apply([Create("/kept", b"data")])
    store.apply([SetData("/kept", b"more")])
    store.close()
    trees = [disks.tree_of(name) for name in NAMES]
    assert trees[0]["/kept"] == (b"more", 1)
    assert trees[0] == trees[1] == trees[2]


@pytest.mark.parametrize("left", subsets(NAMES))
@pytest.mark.parametrize("is_clean", [True, False])
def test_one_copy_suffices_for_a_start(disks: Disks, left: tuple[str, ...], is_clean: bool) -> None:
    store = disks.new_cluster()
    store.apply([Create("/acknowledged")])
    store.apply([Create("/gone", ephemeral=True)])
    if not is_clean:
        kept = disks.folder / "killed"
        for name in NAMES:
            shutil.copytree(disks.folder / name, kept / name)
        store.close()
        for name in NAMES:
            shutil.rmtree(disks.folder / name)
            shutil.copytree(kept / name, disks.folder / name)
    else:
        store.close()
    for name in set(NAMES) - set(left):
        shutil.rmtree(disks.folder / name)
    again = disks.open(left)
    assert names_of(again) == ["acknowledged"]
    again.apply([Create("/later")])
    again.close()
    assert len({frozenset(disks.tree_of(name).items()) for name in left}) == 1
    assert disks.failed == []


def test_older_copy_is_updated(disks: Disks) -> None:
    disks.new_cluster().close()
    for round_number, left in enumerate([("b", "c"), ("c", "a"), ("a", "b"), NAMES]):
        store = disks.open(left)
        assert names_of(store) == [f"round{number}" for number in range(round_number)]
        store.apply([Create(f"/round{round_number}")])
        store.close()
    assert disks.tree_of("a") == disks.tree_of("b") == disks.tree_of("c")
    assert not list(disks.folder.glob("*/metadata.sqlite.*"))


def test_a_replacement_is_on_the_disk_before_and_after_it_takes_the_place(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure could leave neither the old copy nor the new one."""
    disks.new_cluster().close()
    store = disks.open(["a", "b"])
    store.apply([Create("/newer")])
    store.close()
    order: list[tuple[str, str]] = []
    sync, rename = store_copies._sync, Path.rename

    def synced(path: Path) -> None:
        order.append(("sync", path.name))
        sync(path)

    def renamed(path: Path, target: Path) -> Path:
        order.append(("rename", path.name))
        return rename(path, target)

    monkeypatch.setattr(store_copies, "_sync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    disks.open().close()
    new = "metadata.sqlite.tmp"
    assert order == [("sync", new), ("sync", "c"), ("rename", new), ("sync", "c")]


def test_current_copy_is_not_rewritten(disks: Disks) -> None:
    disks.new_cluster().close()
    before = [disks.path(name).stat().st_ino for name in NAMES]
    disks.open().close()
    assert [disks.path(name).stat().st_ino for name in NAMES] == before


def test_session_ids_increase_whichever_copies_exist(disks: Disks) -> None:
    seen = []
    disks.new_cluster().close()
    for left in subsets(NAMES):
        store = disks.open([*left, "a"] if "a" not in left else left)
        seen.append(store.session_id)
        store.close()
    assert seen == sorted(set(seen))


def test_copy_of_another_cluster_is_rejected(disks: Disks) -> None:
    disks.new_cluster(["a"]).close()
    disks.new_cluster(["b"], OTHER_CLUSTER).close()
    before = [disks.path(name).read_bytes() for name in ("a", "b")]
    with pytest.raises(StoreUnavailable) as refused:
        disks.open()
    for text in (CLUSTER, OTHER_CLUSTER, str(disks.path("a")), str(disks.path("b"))):
        assert text in str(refused.value)
    assert [disks.path(name).read_bytes() for name in ("a", "b")] == before
    assert not disks.path("c").exists()
    disks.open(["a"]).close()


def test_a_copy_without_a_cluster_never_replaces_one_that_has_one(disks: Disks) -> None:
    """Starts that are refused for want of metadata write it again and again."""
    store = disks.new_cluster(["a"])
    store.apply([Create("/kept")])
    store.close()
    for _ in range(20):
        disks.open(["b"]).close()
    store = disks.open(["b", "a"])
    assert names_of(store) == ["kept"]
    store.close()
    assert disks.tree_of("b") == disks.tree_of("a")
    assert not list(disks.folder.glob("*/metadata.sqlite.*"))


def test_diverged_copies_use_the_newest_and_keep_the_other(disks: Disks, caplog: pytest.LogCaptureFixture) -> None:
    disks.new_cluster(["a", "b"]).close()
    for name, count in (("a", 5), ("b", 2)):
        store = disks.open([name])
        for number in range(count):
            store.apply([Create(f"/{name}{number}")])
        store.close()
    caplog.clear()
    store = disks.open(["a", "b"])
    assert names_of(store) == [f"a{number}" for number in range(5)]
    store.close()
    assert disks.tree_of("b") == disks.tree_of("a")
    kept = disks.path("b").with_name("metadata.sqlite.1")
    file = SqliteFile(kept)
    assert {"b0", "b1"} <= set(file.children("/"))
    file.close()
    (line,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert str(disks.path("b")) in line
    assert str(kept) in line


def test_diverged_copies_are_detected_even_with_the_same_zxid(disks: Disks) -> None:
    disks.new_cluster(["a", "b"]).close()
    for name in ("a", "b"):
        store = disks.open([name])
        store.apply([Create(f"/{name}")])
        store.close()
    store = disks.open(["a", "b"])
    assert names_of(store) == ["a"]
    store.close()
    assert disks.tree_of("a") == disks.tree_of("b")


def spoil_start(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def spoil_page(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes([0xAB]) * 4096 + content[8192:])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [spoil_start, spoil_page])
def test_a_damaged_copy_is_replaced_and_kept(disks: Disks, spoil: Callable[[Path], None]) -> None:
    store = disks.new_cluster()
    store.apply([Create("/kept")])
    store.close()
    spoil(disks.path("a"))
    damaged = disks.path("a").read_bytes()
    store = disks.open()
    assert names_of(store) == ["kept"]
    store.close()
    assert disks.tree_of("a") == disks.tree_of("b")
    assert disks.path("a").with_name("metadata.sqlite.1").read_bytes() == damaged
    spoil(disks.path("a"))
    disks.open().close()
    assert disks.path("a").with_name("metadata.sqlite.2").exists()


def test_empty_file_becomes_a_copy(disks: Disks) -> None:
    disks.new_cluster().close()
    empty(disks.path("a"))
    disks.open().close()
    assert disks.tree_of("a") == disks.tree_of("b")


def test_damaged_copy_without_a_valid_one_is_left_unchanged(disks: Disks) -> None:
    disks.new_cluster(["a"]).close()
    spoil_start(disks.path("a"))
    disks.open(["b"]).close()
    with pytest.raises(StoreUnavailable, match="not a database"):
        disks.open(["a", "b"])
    assert disks.path("a").read_bytes().startswith(b"no database")


def test_wal_of_a_replaced_file_is_not_applied_to_the_new_one(disks: Disks) -> None:
    store = disks.new_cluster()
    store.apply([Create("/kept")])
    shutil.copy(f"{disks.path('b')}-wal", disks.folder / "wal")
    store.close()
    shutil.copy(disks.folder / "wal", f"{disks.path('b')}-wal")
    spoil_start(disks.path("b"))
    store = disks.open()
    store.close()
    assert disks.tree_of("a") == disks.tree_of("b")


def test_a_copy_in_use_stops_the_start(disks: Disks) -> None:
    running = disks.new_cluster(["b"])
    with pytest.raises(StoreUnavailable, match=r"b/metadata\.sqlite: in use by another process"):
        disks.open()
    running.close()
    disks.open().close()


def test_store_of_schema_version_1_is_upgraded(disks: Disks) -> None:
    disks.new_cluster(["a"]).close()
    connection = sqlite3.connect(disks.path("a"))
    connection.executescript("DROP TABLE session; PRAGMA user_version = 1;")
    connection.close()
    store = disks.open()
    store.apply([Create("/kept")])
    store.close()
    assert disks.tree_of("a") == disks.tree_of("b")
    assert "/kept" in disks.tree_of("c")


def test_examination_writes_nothing(disks: Disks) -> None:
    store = disks.new_cluster(["a", "b"])
    store.apply([Create("/kept")])
    store.close()
    trees = [disks.tree_of(name) for name in ("a", "b")]
    content = disks.path("a").read_bytes()
    store = disks.store()
    found = store.examine()
    assert [(one.path.parent.name, one.zxid is None) for one in found] == [("a", False), ("b", False), ("c", True)]
    assert names_of(store) == ["kept"]
    with pytest.raises(StoreUnavailable, match="reading only"):
        store.apply([Create("/new")])
    store.close()
    assert [disks.tree_of(name) for name in ("a", "b")] == trees
    assert disks.path("a").read_bytes() == content
    assert not disks.path("c").exists()


def test_excluded_copy_is_not_changed(disks: Disks) -> None:
    disks.new_cluster(["a", "b"]).close()
    older = disks.tree_of("b")
    store = disks.store()
    store.examine()
    store.begin_session(without=[disks.path("b"), disks.path("c")])
    store.apply([Create("/later")])
    store.close()
    assert disks.tree_of("b") == older
    assert not disks.path("c").exists()
    disks.open().close()
    assert "/later" in disks.tree_of("b")


def test_the_sessions_of_a_copy_are_bounded(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "SESSIONS_KEPT", 3)
    disks.new_cluster(["a"]).close()
    for _ in range(5):
        disks.open(["a"]).close()
    file = SqliteFile(disks.path("a"))
    assert len(file.sessions()) == 3
    file.close()


# Failure


def disk_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    return error


def out_of_memory() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("out of memory")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_NOMEM
    return error


class Faults:
    """Makes one of the writes of one copy fail, before it was done or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Callable[[], BaseException] | None = None
        self.name = ""
        self.is_done_first = False
        self.count = 0
        faults = self

        class FaultyFile(SqliteFile):
            def apply(self, operations: Iterable[Operation], transaction: Transaction) -> Applied:
                if faults.error is None or self.path.parent.name != faults.name:
                    return super().apply(operations, transaction)
                faults.count -= 1
                if faults.count >= 0:
                    return super().apply(operations, transaction)
                if faults.is_done_first:
                    super().apply(operations, transaction)
                raise faults.error()

        monkeypatch.setattr(store_copies, "SqliteFile", FaultyFile)

    def fail(
        self, name: str, error: Callable[[], BaseException], *, is_done_first: bool = False, after: int = 0
    ) -> None:
        self.name, self.error, self.is_done_first, self.count = name, error, is_done_first, after


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.mark.parametrize("is_done_first", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_failed_copy_does_not_stop_the_others(disks: Disks, faults: Faults, name: str, is_done_first: bool) -> None:
    store = disks.new_cluster()
    faults.fail(name, disk_error, is_done_first=is_done_first)
    results, changes = store.apply([Create("/during")])
    assert results == ["/during"]
    assert len(changes) == 1
    assert disks.failed == [name]
    store.apply([Create("/after")])
    with pytest.raises(NodeExists):
        store.apply([Create("/during")])
    assert names_of(store) == ["after", "during"]
    assert store.count == 2
    store.close()
    for left in (set(NAMES) - {name}, NAMES):
        store = disks.open(left)
        assert names_of(store) == ["after", "during"]
        store.close()
    assert disks.tree_of("a") == disks.tree_of("b") == disks.tree_of("c")
    assert not list(disks.folder.glob("*/metadata.sqlite.*"))


@pytest.mark.parametrize("name", NAMES)
def test_copy_that_fails_within_a_transaction_hides_no_change(
    disks: Disks, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = disks.new_cluster()
    original = SqliteFile._set

    def fail(copy: SqliteFile, *arguments: Any) -> Stat:
        if copy.path.parent.name == name:
            raise disk_error()
        return original(copy, *arguments)

    monkeypatch.setattr(SqliteFile, "_set", fail)
    _, changes = store.apply([Create("/first"), SetData("/first", b"value"), Create("/second")])
    assert [(change.kind, change.path) for change in changes] == [
        (WatchKind.CREATED, "/first"),
        (WatchKind.CHANGED, "/first"),
        (WatchKind.CREATED, "/second"),
    ]
    assert disks.failed == [name]
    store.close()


def test_failure_of_the_last_copy_makes_the_store_unavailable(disks: Disks, faults: Faults) -> None:
    store = disks.new_cluster()
    for name in NAMES[:-1]:
        faults.fail(name, disk_error)
        store.apply([Create(f"/{name}")])
    faults.fail(NAMES[-1], disk_error)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="no copy of the metadata store is left"):
            store.apply([Create("/last")])
    with pytest.raises(StoreUnavailable, match="no copy of the metadata store is left"):
        store.children("/")
    assert disks.failed == list(NAMES)
    store.close()


def test_a_shortage_of_memory_fails_one_write_and_no_copy(disks: Disks, faults: Faults) -> None:
    store = disks.new_cluster()
    faults.fail("a", out_of_memory)
    with pytest.raises(sqlite3.OperationalError, match="out of memory"):
        store.apply([Create("/refused")])
    faults.error = None
    store.apply([Create("/kept")])
    store.close()
    assert disks.failed == []
    assert "/refused" not in disks.tree_of("a")
    assert disks.tree_of("a") == disks.tree_of("b") == disks.tree_of("c")


def test_later_copy_that_lacks_memory_is_dropped_without_a_disk_failure(disks: Disks, faults: Faults) -> None:
    store = disks.new_cluster()
    faults.fail("b", out_of_memory)
    store.apply([Create("/kept")])
    assert store.count == 2
    assert disks.failed == []
    store.close()
    disks.open().close()
    assert disks.tree_of("a") == disks.tree_of("b") == disks.tree_of("c")


def test_copy_that_differs_for_any_reason_is_dropped(disks: Disks, faults: Faults) -> None:
    store = disks.new_cluster()
    faults.fail("b", MemoryError)
    store.apply([Create("/kept")])
    faults.fail("c", lambda: NodeExists("/kept"))
    store.apply([Create("/more")])
    assert store.count == 1
    assert disks.failed == []
    with pytest.raises(NodeExists):
        store.apply([Create("/kept")])
    assert store.count == 1
    store.close()
    disks.open().close()
    assert disks.tree_of("a") == disks.tree_of("b") == disks.tree_of("c")
    assert {"/kept", "/more"} <= disks.tree_of("c").keys()


def test_newest_copy_can_be_excluded_once_the_others_equal_it(disks: Disks) -> None:
    """Its directory has failed after it was examined."""
    disks.new_cluster(["a"]).close()
    store = disks.store()
    store.examine()
    store.begin_session(without=[disks.path("a")])
    store.apply([Create("/kept")])
    assert store.count == 2
    store.close()
    assert "/kept" in disks.tree_of("b")
    assert "/kept" not in disks.tree_of("a")


def test_copy_in_a_failed_directory_is_dropped_unless_it_is_the_last(disks: Disks) -> None:
    store = disks.new_cluster()
    store.leave(disks.path("a"))
    store.leave(disks.path("b"))
    store.leave(disks.path("c"))
    assert store.count == 1
    store.apply([Create("/kept")])
    store.close()
    assert "/kept" in disks.tree_of("c")
    assert "/kept" not in disks.tree_of("a")
    assert disks.failed == []


@pytest.mark.parametrize("is_done_first", [True, False])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("left", subsets(NAMES))
def test_kill_between_the_writes_of_two_copies_loses_no_acknowledged_write(
    tmp_path: Path, faults: Faults, name: str, is_done_first: bool, left: tuple[str, ...]
) -> None:
    """Then the start of any of the copies, then of all: one tree everywhere, with all that was acknowledged."""
    disks = Disks(tmp_path / "running")
    store = disks.new_cluster()
    store.apply([Create("/acknowledged")])
    faults.fail(name, Crashed, is_done_first=is_done_first)
    with pytest.raises(Crashed):
        store.apply([Create("/one"), Create("/two")])
    faults.error = None
    # What the files hold is what a dead process leaves; the locks of this one are in the way.
    shutil.copytree(tmp_path / "running", tmp_path / "dead")
    dead = Disks(tmp_path / "dead")
    for chosen in (left, NAMES):
        store = dead.open(chosen)
        assert set(names_of(store)) in ({"acknowledged"}, {"acknowledged", "one", "two"})
        store.close()
    assert dead.tree_of("a") == dead.tree_of("b") == dead.tree_of("c")


def test_a_kill_while_a_copy_is_replaced_leaves_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Disks(tmp_path / "before")
    before.new_cluster().close()
    store = before.open(["a"])
    store.apply([Create("/newer")])
    store.close()
    spoil_start(before.path("c"))
    steps, killed_at = itertools.count(), 0

    def counted(step: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **named: object) -> object:
            if next(steps) == killed_at:
                raise Crashed
            return step(*arguments, **named)

        return run

    is_over = False
    while not is_over:
        folder = tmp_path / str(killed_at)
        shutil.copytree(tmp_path / "before", folder)
        disks = Disks(folder)
        steps = itertools.count()
        with monkeypatch.context() as patch:
            for owner, name in ((Path, "rename"), (Path, "unlink"), (store_copies, "_sync")):
                patch.setattr(owner, name, counted(getattr(owner, name)))
            try:
                disks.open().close()
                is_over = True
            except Crashed:
                pass
        dead = Disks(tmp_path / f"{killed_at}-dead")
        shutil.copytree(folder, dead.folder, dirs_exist_ok=True)
        alone = dead.open(["b"])
        assert set(names_of(alone)) <= {"newer"}
        alone.close()
        shutil.rmtree(dead.folder)
        shutil.copytree(folder, dead.folder)
        store = dead.open()
        assert names_of(store) == ["newer"]
        store.close()
        assert dead.tree_of("a") == dead.tree_of("b") == dead.tree_of("c")
        assert dead.failed == []
        killed_at += 1
    assert killed_at > 10


@pytest.mark.parametrize("name", ["a", "b"])
def test_directory_that_is_not_writable_at_the_start_is_excluded(
    disks: Disks, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds no copy yet, and the disk is full."""
    disks.new_cluster(["c"]).close()
    real = store_copies._sync

    def failing(path: Path) -> None:
        if path.is_relative_to(disks.folder / name):
            raise OSError(28, "No space left on device", str(path))
        real(path)

    monkeypatch.setattr(store_copies, "_sync", failing)
    store = disks.open()
    assert disks.failed == [name]
    assert store.count == 2
    store.close()


# Shortages


@contextmanager
def no_descriptors_left() -> Iterator[Callable[[], None]]:
    """From here on this process can open nothing, until the end or a call of what is returned."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def end() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield end
    finally:
        end()


@pytest.mark.parametrize("names", [NAMES, NAMES[:1]])
def test_shortage_of_descriptors_stops_the_start_and_fails_no_directory(disks: Disks, names: Sequence[str]) -> None:
    disks.new_cluster(names).close()
    store = disks.store(names)
    expected = f"^{disks.path('a')}: out of file descriptors or memory \\(not a disk failure\\): "
    with no_descriptors_left(), pytest.raises(StoreUnavailable, match=expected):
        store.examine()
    assert disks.failed == []
    assert disks.waits == [OPEN_RETRY_S] * (OPEN_TRIES - 1)
    store.examine()
    store.begin_session()
    assert store.count == len(names)
    store.close()


def test_copy_is_opened_once_a_shortage_of_descriptors_is_over(disks: Disks) -> None:
    disks.new_cluster().close()
    with no_descriptors_left() as end:
        disks.on_wait = end
        store = disks.open()
    assert disks.waits == [OPEN_RETRY_S]
    assert disks.failed == []
    assert store.count == 3
    store.close()


def test_shortage_of_memory_stops_the_start_and_fails_no_directory(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.new_cluster().close()
    opened = SqliteFile

    def short(path: Path, *, is_checked: bool = False) -> SqliteFile:
        if path == disks.path("b"):
            raise out_of_memory()
        return opened(path, is_checked=is_checked)

    monkeypatch.setattr(store_copies, "SqliteFile", short)
    with pytest.raises(StoreUnavailable, match="out of file descriptors or memory"):
        disks.store().examine()
    assert disks.failed == []


@pytest.mark.parametrize("name", ["a", "b"])
def test_shortage_while_a_copy_is_written_stops_the_start(
    disks: Disks, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.new_cluster(["c"]).close()
    real = store_copies._sync

    def short(path: Path) -> None:
        if path.is_relative_to(disks.folder / name):
            raise OSError(errno.ENFILE, "Too many open files in system", str(path))
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(store_copies, "_sync", short)
        store = disks.store()
        store.examine()
        with pytest.raises(StoreUnavailable, match="out of file descriptors or memory"):
            store.begin_session()
        store.close()
    assert disks.failed == []
    store = disks.open()
    assert store.count == 3
    store.close()
    assert disks.tree_of("a") == disks.tree_of("b") == disks.tree_of("c")


def test_file_that_cannot_be_opened_for_another_reason_fails_its_directory(disks: Disks) -> None:
    disks.new_cluster(["a", "c"]).close()
    disks.path("b").mkdir()
    store = disks.open()
    assert set(disks.failed) == {"b"}
    assert store.count == 2
    store.close()
