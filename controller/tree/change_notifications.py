"""Follow the notifications that brokers leave in the store when they have changed something.

Owns the order of notifications, their watch and the removal of old ones. Must not know what they mean.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from controller.store.state_store import StateStore, StoreError, StoreUnavailable, WatchEvent
from controller.tree import paths

logger = logging.getLogger("kafka.common.ZkNodeChangeNotificationListener$ChangeEventProcessThread")

# Kafka's brokers delete notifications older than this when they read newer ones. Here it is the time from one to the
# newest, by the clock of the store: a broker whose clock is ahead would delete what others have not read yet.
NOTIFICATION_AGE_MS_MAX = 15 * 60 * 1000


class ChangeListener:
    """Calls `on_change` with the data of each notification that is created after `start`, in their order.

    The caller reads what they are about after `start`, so that it misses no earlier change.
    """

    def __init__(
        self,
        store: StateStore,
        path: str,
        on_change: Callable[[bytes | None], Awaitable[None] | None],
    ) -> None:
        """`path` is the node above the notifications. `on_change` may raise `paths.Undecodable`."""
        self._store = store
        self._path = path
        self._on_change = on_change
        self._last_sequence = -1
        self._reading: asyncio.Task[None] | None = None
        self._changed_again = False
        self._stopped = False

    async def start(self) -> None:
        """Set the watch, and skip the notifications that exist already."""
        names = await self._names()
        self._last_sequence = max(map(paths.sequence_of, names), default=-1)
        await self._purge(names)

    def stop(self) -> None:
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()

    def _notified(self, _: WatchEvent) -> None:
        if self._reading is None and not self._stopped:
            self._reading = asyncio.ensure_future(self._read_all())
        else:
            self._changed_again = True

    async def _read_all(self) -> None:
        try:
            self._changed_again = True
            while self._changed_again and not self._stopped:
                self._changed_again = False
                await self._read()
        except StoreUnavailable as error:
            logger.warning("cannot read changes below %s until the store is available again: %s", self._path, error)
        finally:
            self._reading = None

    async def _read(self) -> None:
        names = sorted(await self._names(), key=paths.sequence_of)
        fresh = [name for name in names if paths.sequence_of(name) > self._last_sequence]
        nodes = await self._store.get_many([f"{self._path}/{name}" for name in fresh])
        for name, node in zip(fresh, nodes, strict=True):
            self._last_sequence = paths.sequence_of(name)
            if node is not None:
                await self._call_back(name, node.data)
        await self._purge(names)

    async def _names(self) -> list[str]:
        """Set the watch, and return the names of the notifications; nodes of others are left alone."""
        names = await self._store.children(self._path, self._notified)
        return [name for name in names if paths.is_sequential(name)]

    async def _call_back(self, name: str, data: bytes | None) -> None:
        try:
            result = self._on_change(data)
            if result is not None:
                await result
        except paths.Undecodable as error:
            logger.error("ignoring the change %s: %s", name, error)
        except Exception:
            logger.exception("cannot apply the change %s", name)

    async def _purge(self, names: list[str]) -> None:
        nodes = [f"{self._path}/{name}" for name in names]
        found = [
            (path, node.stat.ctime_ms)
            for path, node in zip(nodes, await self._store.get_many(nodes), strict=True)
            if node is not None
        ]
        newest_ms = max((ctime_ms for _, ctime_ms in found), default=0)
        for path, ctime_ms in found:
            if ctime_ms < newest_ms - NOTIFICATION_AGE_MS_MAX:
                try:
                    await self._store.delete(path)
                except StoreError:
                    continue
