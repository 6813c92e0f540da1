"""A store in memory, and sessions on it; a real ZooKeeper, and the coordination server."""

from collections.abc import AsyncIterator, Iterator

import pytest

from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.tree.registration import ensure_paths
from tests.support.coordination import RunningCoordination, coordination_in_memory
from tests.support.parts import skip_when_unavailable
from tests.support.zookeeper import ZooKeeperProcess


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """One server for all tests; each uses its own chroot."""
    with skip_when_unavailable(), ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def coordination_server() -> Iterator[RunningCoordination]:
    """One server for all tests; each uses its own chroot."""
    with coordination_in_memory() as running:
        yield running


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree(now_ms=1_000_000_000)


@pytest.fixture
async def store(tree: MemoryTree) -> AsyncIterator[MemoryStore]:
    """A session, with the roots of the tree made."""
    opened = MemoryStore(tree)
    await opened.open()
    await ensure_paths(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def other_store(tree: MemoryTree) -> AsyncIterator[MemoryStore]:
    """Another broker's session with the same tree."""
    opened = MemoryStore(tree)
    await opened.open()
    yield opened
    await opened.close()
