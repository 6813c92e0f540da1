"""A store whose next read of several nodes ends late: with what it found before later writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from controller.coordination.memory_store import MemoryStore
from controller.store.state_store import Node, Watch


class HeldStore(MemoryStore):
    """A session in which a test holds back one result."""

    _release: asyncio.Event | None = None
    _has_read: asyncio.Event | None = None

    async def hold_next_read(self, paths_below: str) -> None:
        """Hold back the next `get_many` of nodes below a path, and return once it has read them."""
        self._below, self._release, self._has_read = paths_below, asyncio.Event(), asyncio.Event()
        await self._has_read.wait()

    def release(self) -> None:
        """End the read that is held back."""
        assert self._release is not None
        self._release.set()

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        found = await super().get_many(paths, watch)
        has_read, release = self._has_read, self._release
        if has_read is not None and release is not None and any(path.startswith(self._below) for path in paths):
            self._has_read = None
            has_read.set()
            await release.wait()
        return found
