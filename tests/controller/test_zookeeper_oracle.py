"""The SQLite store against a real ZooKeeper: the same random transactions have the same outcome, and a tree that a
controller made there can be loaded and read back unchanged.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from controller.embedded.sqlite_store import SqliteStore
from controller.store.state_store import Check, Create, Delete, Operation, SetData, StateStore, StoreError
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from tests.controller.test_controller import start_alone
from tests.support.manual_clock import ManualClock
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import ZooKeeperProcess

SEEDS = 8
TRANSACTIONS = 60

# ZooKeeper's result for those operations of a failed transaction that did not fail themselves.
_FELLOW_VICTIMS = {"RolledBackError", "RuntimeInconsistency"}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KazooClient]:
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as server:
        client = KazooClient(server.connect)
        client.start()
        yield client
        client.stop()
        client.close()


def _commit(client: KazooClient, operations: Sequence[Operation]) -> list[object]:
    """The paths of created nodes and None for the rest, or the first failure."""
    transaction = client.transaction()
    for operation in operations:
        match operation:
            case Create(path, data, ephemeral, sequential):
                transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
            case SetData(path, data, version):
                transaction.set_data(path, data, version)
            case Delete(path, version):
                transaction.delete(path, version)
            case Check(path, version):
                transaction.check(path, version)
    results = transaction.commit()
    for index, result in enumerate(results):
        if isinstance(result, Exception) and type(result).__name__ not in _FELLOW_VICTIMS:
            return ["failed", type(result).__name__.removesuffix("Error"), index]
    return [result if isinstance(result, str) else None for result in results]


async def _apply(store: StateStore, operations: Sequence[Operation]) -> list[object]:
    try:
        return [result if isinstance(result, str) else None for result in await store.multi(operations)]
    except StoreError as error:
        return ["failed", type(error).__name__, error.index]


def _random_operation(root: str, random_source: random.Random) -> Operation:
    path = root + random_source.choice(["/a", "/b", "/a/c", "/a/d", "/b/c", "/a/c/e"])
    version = random_source.choice([-1, -1, 0, 1, 2])
    operations: list[Operation] = [
        Create(path, b"new", ephemeral=random_source.random() < 0.2, sequential=random_source.random() < 0.2),
        Create(path, b"plain"),
        SetData(path, random_source.randbytes(3), version),
        Delete(path, version),
        Check(path, version),
    ]
    return random_source.choice(operations)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_transactions_have_the_same_outcome(seed: int, tmp_path: Path, zookeeper: KazooClient) -> None:
    store = SqliteStore([tmp_path / "metadata.sqlite"], ManualClock())
    await store.open()
    root = f"/seed-{seed}"
    zookeeper.create(root, None)
    await store.create(root)
    random_source = random.Random(seed)
    for _ in range(TRANSACTIONS):
        operations = [_random_operation(root, random_source) for _ in range(random_source.randint(1, 3))]
        assert await _apply(store, operations) == _commit(zookeeper, operations), (seed, operations)
    for path in await _paths_below(store, root):
        node = await store.get(path)
        data, stat = zookeeper.get(path)
        assert (node.data, node.stat.version) == (data, stat.version), path
        assert await store.children(path) == sorted(zookeeper.get_children(path))
    await store.close()


async def _paths_below(store: StateStore, path: str) -> list[str]:
    below = [path]
    for name in await store.children(path):
        below += await _paths_below(store, f"{path.rstrip('/')}/{name}")
    return below


async def test_a_tree_moves_to_zookeeper_and_back(tmp_path: Path, zookeeper: KazooClient) -> None:
    store = SqliteStore([tmp_path / "metadata.sqlite"], ManualClock())
    await store.open()
    controller, _, _ = await start_alone(store)
    configs = [CreatableTopicConfig(name="retention.ms", value="1")]
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=[], configs=configs)
    await controller.create_topics([topic])
    tree = {path: (await store.get(path)).data for path in (await _paths_below(store, "/"))[1:]}
    await controller.stop()
    await store.close()

    zookeeper.create("/moved")
    for path, data in tree.items():
        zookeeper.create(f"/moved{path}", data)
    assert {path: zookeeper.get(f"/moved{path}")[0] for path in tree} == tree
