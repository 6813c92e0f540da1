"""A metadata tree with a controller, and a session with it."""

from collections.abc import AsyncIterator

import pytest

from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.tree import paths
from controller.tree.registration import ensure_paths


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree(now_ms=1_000_000_000)


@pytest.fixture
async def store(tree: MemoryTree) -> AsyncIterator[MemoryStore]:
    opened = MemoryStore(tree)
    await opened.open()
    await ensure_paths(opened)
    await opened.create(paths.CONTROLLER, paths.encode_controller(1, 0))
    yield opened
    await opened.close()
