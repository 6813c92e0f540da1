"""A store in memory, and sessions on it."""

from collections.abc import AsyncIterator

import pytest

from controller.registration import ensure_paths
from tests.support.memory_store import MemoryStore, MemoryTree


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
