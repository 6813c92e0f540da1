"""The promises of the port, kept by the SQLite store, by its twin in memory, by a real ZooKeeper and by the
coordination server; random programs agree in all.
"""

import random
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.embedded.sqlite_store import SqliteStore
from controller.store.state_store import (
    DATA_SIZE_MAX,
    BadVersion,
    Check,
    Create,
    DataTooLarge,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    StateStore,
    StoreError,
    StoreUnavailable,
    WatchEvent,
    WatchKind,
    parent_path,
)
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from tests.support.coordination import RunningCoordination
from tests.support.manual_clock import ManualClock
from tests.support.zookeeper import ZooKeeperProcess

KINDS = ["sqlite", "memory", "late", "zookeeper", "coordination"]


def make_store(kind: str, request: pytest.FixtureRequest) -> StateStore:
    """Return a new store with an empty tree."""
    match kind:
        case "sqlite":
            folder: Path = request.getfixturevalue("tmp_path")
            return SqliteStore([folder / "metadata.sqlite"], ManualClock())
        case "zookeeper":
            server: ZooKeeperProcess = request.getfixturevalue("zookeeper_server")
            return ZooKeeperStore(ZooKeeperSettings(f"{server.connect}/{uuid.uuid4()}"))
        case "coordination":
            running: RunningCoordination = request.getfixturevalue("coordination_server")
            return ZooKeeperStore(ZooKeeperSettings(f"{running.connect}/{uuid.uuid4()}"))
        case "late":
            return MemoryStore(MemoryTree(), late=random.Random(7))
        case _:
            return MemoryStore(MemoryTree())


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    made = make_store(request.param, request)
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize(("path", "parent"), [("/a", "/"), ("/a/b", "/a"), ("/a/b/c", "/a/b")])
def test_parent_path_is_the_path_without_its_last_name(path: str, parent: str) -> None:
    assert parent_path(path) == parent


async def test_a_node_is_read_as_it_was_written(store: StateStore) -> None:
    assert await store.create("/a", b"one") == "/a"
    node = await store.get("/a")
    assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"one", 0, 0)
    assert node.stat.czxid == node.stat.mzxid > 0
    stat = await store.set("/a", b"two", 0)
    assert (stat.version, stat.czxid) == (1, node.stat.czxid)
    assert stat.mzxid > stat.czxid
    assert await store.exists("/a") == stat
    assert await store.get_many(["/b", "/a"]) == [None, await store.get("/a")]


async def test_null_data_differs_from_empty_data(store: StateStore) -> None:
    await store.create("/none")
    await store.create("/empty", b"")
    assert (await store.get("/none")).data is None
    assert (await store.get("/empty")).data == b""
    await store.set("/empty", None)
    assert (await store.get("/empty")).data is None


REFUSED: list[tuple[Operation, type[StoreError]]] = [
    (Create("/a"), NodeExists),
    (Create("/x/y"), NoNode),
    (Create("/eph/y"), NoChildrenForEphemerals),
    (Create("/big", bytes(DATA_SIZE_MAX + 1)), DataTooLarge),
    (SetData("/x", b""), NoNode),
    (SetData("/a", b"", 7), BadVersion),
    (SetData("/a", bytes(DATA_SIZE_MAX + 1)), DataTooLarge),
    (Delete("/x"), NoNode),
    (Delete("/a/b", 7), BadVersion),
    (Delete("/a"), NotEmpty),
    (Check("/x"), NoNode),
    (Check("/a", 7), BadVersion),
]


@pytest.mark.parametrize(("operation", "error"), REFUSED)
async def test_rejected_operation_rolls_back_its_multi(
    store: StateStore, operation: Operation, error: type[StoreError]
) -> None:
    await store.multi([Create("/a", b"1"), Create("/a/b"), Create("/eph", ephemeral=True)])
    with pytest.raises(error) as caught:
        await store.multi([Create("/fresh"), SetData("/a", b"2"), operation, Delete("/a/b")])
    assert caught.value.index == 2
    assert caught.value.path == operation.path
    assert await store.children("/") == ["a", "eph"]
    assert (await store.get("/a")).data == b"1"


async def test_operations_see_those_before_them_and_share_a_zxid(store: StateStore) -> None:
    results = await store.multi([Create("/a"), SetData("/a", b"x", 0), Check("/a", 1), Create("/a/b"), Delete("/a/b")])
    stat = (await store.get("/a")).stat
    assert results == ["/a", stat, None, "/a/b", None]
    assert stat.czxid == stat.mzxid


async def test_reading_a_missing_node_raises_no_node(store: StateStore) -> None:
    with pytest.raises(NoNode):
        await store.get("/a")
    with pytest.raises(NoNode):
        await store.children("/a")
    assert await store.exists("/a") is None


@pytest.mark.parametrize("path", ["/..", "/a/..", "/a/../a", "/./a", "/a//b", "/a/", "/a\0"])
async def test_path_that_no_node_can_have_is_read_like_that_of_a_missing_node(store: StateStore, path: str) -> None:
    await store.create("/a", b"x")
    seen: list[WatchEvent] = []
    for watch in (None, seen.append):
        with pytest.raises(NoNode):
            await store.get(path, watch)
        with pytest.raises(NoNode):
            await store.children(path, watch)
        assert await store.exists(path, watch) is None
        nodes = await store.get_many([path, "/a"], watch)
        assert [node and node.data for node in nodes] == [None, b"x"]
    await store.set("/a", b"y")
    await store.exists("/a")
    assert {event.path for event in seen} == {"/a"}


async def test_children_are_names_of_direct_children_sorted(store: StateStore) -> None:
    await store.multi([Create("/b"), Create("/b/z"), Create("/b/z/1"), Create("/b/a"), Create("/bb")])
    assert await store.children("/b") == ["a", "z"]
    assert await store.children("/b/z/1") == []
    assert await store.children("/") == ["b", "bb"]


async def test_sequence_counts_every_child_the_parent_ever_had(store: StateStore) -> None:
    await store.create("/s")
    assert await store.create("/s/n_", sequential=True) == "/s/n_0000000000"
    await store.create("/s/other")
    await store.delete("/s/n_0000000000")
    assert await store.create("/s/n_", sequential=True) == "/s/n_0000000002"


async def test_ephemeral_node_is_deleted_with_its_session(store: StateStore) -> None:
    await store.create("/e", b"x", ephemeral=True)
    stat = await store.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == store.session_id != 0
    session_before = store.session_id
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.get("/e")
    await store.open()
    assert await store.exists("/e") is None
    assert store.session_id > session_before
    await store.create("/e", ephemeral=True)
    reborn = await store.exists("/e")
    assert reborn is not None
    assert reborn.czxid > stat.czxid


async def test_watches_fire_once_before_their_session_reads_the_change(store: StateStore) -> None:
    seen: list[WatchEvent] = []
    await store.exists("/a", seen.append)
    await store.children("/", seen.append)
    await store.create("/a", b"1")
    await store.exists("/a")
    assert seen == [WatchEvent(WatchKind.CREATED, "/a"), WatchEvent(WatchKind.CHILDREN, "/")]
    await store.set("/a", b"2")
    assert len(seen) == 2
    await store.get("/a", seen.append)
    await store.set("/a", b"3")
    await store.set("/a", b"4")
    await store.exists("/a")
    assert seen[2:] == [WatchEvent(WatchKind.CHANGED, "/a")]


async def test_deletion_fires_watches_of_node_children_and_parent(store: StateStore) -> None:
    await store.create("/a")
    seen: list[str] = []
    await store.get("/a", lambda event: seen.append(f"data {event.kind.value}"))
    await store.children("/a", lambda event: seen.append(f"children {event.kind.value}"))
    await store.children("/", lambda event: seen.append(f"parent {event.kind.value}"))
    await store.delete("/a")
    await store.exists("/a")
    assert seen == ["data deleted", "children deleted", "parent children"]


async def test_a_failed_read_or_write_leaves_no_trace_in_watches(store: StateStore) -> None:
    seen: list[WatchEvent] = []
    with pytest.raises(NoNode):
        await store.get("/a", seen.append)
    await store.create("/a")
    await store.get("/a", seen.append)
    with pytest.raises(BadVersion):
        await store.multi([SetData("/a", b""), Check("/a", 9)])
    assert seen == []


def _random_operation(random_source: random.Random) -> Operation:
    path = random_source.choice(["/a", "/b", "/a/c", "/a/d", "/b/c", "/a/c/e"])
    version = random_source.choice([-1, -1, 0, 1, 2])
    operations: list[Operation] = [
        Create(path, b"new", ephemeral=random_source.random() < 0.2, sequential=random_source.random() < 0.2),
        Create(path),
        SetData(path, random_source.randbytes(3), version),
        Delete(path, version),
        Check(path, version),
    ]
    return random_source.choice(operations)


@pytest.mark.parametrize("seed", range(10))
async def test_stores_agree_on_random_programs(seed: int, request: pytest.FixtureRequest) -> None:
    stores = [make_store(kind, request) for kind in KINDS]
    seen: list[list[WatchEvent]] = [[] for _ in stores]
    for store in stores:
        await store.open()
    random_source = random.Random(seed)
    for _ in range(120):
        operations = [_random_operation(random_source) for _ in range(random_source.randint(1, 3))]
        watched = random_source.choice(["/a", "/b", "/a/c"])
        for store, events in zip(stores, seen, strict=True):
            await store.exists(watched, events.append)
        # What a session reads comes after the events of all changes before.
        assert all(events == seen[0] for events in seen), seed
        outcomes: list[list[object]] = []
        for store, events in zip(stores, seen, strict=True):
            await store.children("/", events.append)
            try:
                results = await store.multi(operations)
                outcomes.append([result if isinstance(result, str) else None for result in results])
            except StoreError as error:
                outcomes.append([type(error).__name__, error.index, error.path])
        assert all(outcome == outcomes[0] for outcome in outcomes), (seed, operations, outcomes)
    paths = ["/a", "/b", "/a/c", "/a/d", "/b/c", "/a/c/e"]
    found = [[node and (node.data, node.stat.version) for node in await store.get_many(paths)] for store in stores]
    assert all(nodes == found[0] for nodes in found)
    assert all(events == seen[0] for events in seen), seed
    for store in stores:
        await store.close()
