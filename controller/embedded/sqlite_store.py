"""The state store of a standalone broker: a SQLite file in each log directory, with ZooKeeper's data model.

Owns one worker thread, the only one that accesses the files (`controller.embedded.store_copies`), so the event loop
never waits for the disk. Must not know what the nodes mean.

Invariants: only one process uses the files (they are locked from `open` to `close`); `open` deletes the ephemeral nodes
of earlier sessions; a transaction is on the disk of every live copy before its `multi` returns, so kill -9, a power
failure or the loss of all copies but one loses nothing that was acknowledged.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from base.clock import Clock
from controller.embedded.sqlite_file import DamagedFileError
from controller.embedded.store_copies import FoundCopy, StoreCopies
from controller.store.state_store import (
    Node,
    NoNode,
    Operation,
    Result,
    SingleWrites,
    Stat,
    StoreUnavailable,
    Watch,
)
from controller.store.watches import Watches

logger = logging.getLogger("kafka.zk.KafkaZkClient")

T = TypeVar("T")

METADATA_FILE = "metadata.sqlite"
"""The store's name in each of a broker's log directories."""

STORE_FILES = frozenset(METADATA_FILE + ending for ending in ("", "-wal", "-shm", "-journal", ".tmp"))
"""The files that the store may leave in a log directory in normal operation."""


class SqliteStore(SingleWrites):
    """`StateStore` over copies at `file_paths`, which are created if missing. Its session never expires.

    `on_disk_failed(path, error)` is called for each copy that a failed disk takes out of use; `on_lost(error)` when no
    copy is left and the store has failed. `sleep(seconds)` waits before another attempt to open a copy. All three are
    called in the store's thread.
    """

    def __init__(
        self,
        file_paths: Sequence[Path],
        clock: Clock,
        *,
        on_disk_failed: Callable[[Path, Exception], None] = lambda path, error: logger.error("%s: %s", path, error),
        on_lost: Callable[[Exception], None] = lambda error: None,
        sleep: Callable[[float], None] = lambda seconds: None,
        on_response: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._on_response = on_response
        self._name = ", ".join(map(str, file_paths))
        self._copies = StoreCopies(file_paths, clock, self._disk_failed, sleep=sleep)
        self._on_disk_failed = on_disk_failed
        self._on_lost = on_lost
        self._watches = Watches()
        self._executor: ThreadPoolExecutor | None = None

    @property
    def session_id(self) -> int:
        assert self._copies.session_id, "the store is not open"
        return self._copies.session_id

    async def examine(self) -> list[FoundCopy]:
        """Lock the copies and serve reads from the newest, without writing, so that the caller can choose the copies to
        use.

        Raises:
            StoreUnavailable: another process uses a copy, they belong to different clusters, or none can be read.
        """
        assert self._executor is None, "the store is open"
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-store")
        try:
            found = await self._run(executor, self._copies.examine)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        self._executor = executor
        return found

    async def open(self, *, without: Collection[Path] = ()) -> None:
        """Start a session and bring the copies up to date, except those in `without`. Raise what `examine` raises."""
        if self._executor is None:
            await self.examine()
        try:
            await self._submit(lambda copies: copies.begin_session(without))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._executor is None:
            return
        executor, self._executor = self._executor, None
        self._watches.clear()
        try:
            await self._run(executor, self._copies.close)
        finally:
            executor.shutdown(wait=False)

    def leave(self, path: Path) -> None:
        """Stop using the copy at `path`, whose disk has failed, unless it is the last one. Callable from any thread."""
        executor = self._executor
        if executor is not None:
            with suppress(RuntimeError):  # closed at the same time
                executor.submit(self._copies.leave, path)

    def _disk_failed(self, path: Path, error: Exception) -> None:
        self._on_disk_failed(path, error)
        if self._copies.session_id and not self._copies.count:
            self._on_lost(error)

    def on_session_expired(self, callback: Callable[[], None]) -> None:
        """Do nothing: the session lasts as long as the process."""

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        (node,) = await self.get_many([path], watch)
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        return await self._submit(lambda copies: copies.get_many(paths), partial(self._arm_found, paths, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        (node,) = await self._submit(lambda copies: copies.get_many([path]), lambda _: self._arm(path, watch))
        return None if node is None else node.stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._submit(lambda copies: copies.children(path), partial(self._arm_children, path, watch))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        applied = await self._submit(
            lambda copies: copies.apply(operations), lambda applied: self._watches.fire(applied.changes)
        )
        return applied.results

    def _arm(self, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches.watch_data(path, watch)

    def _arm_found(self, paths: Sequence[str], watch: Watch | None, nodes: list[Node | None]) -> None:
        for path, node in zip(paths, nodes, strict=True):
            if node is not None:
                self._arm(path, watch)

    def _arm_children(self, path: str, watch: Watch | None, _: list[str]) -> None:
        if watch is not None:
            self._watches.watch_children(path, watch)

    async def _submit(self, job: Callable[[StoreCopies], T], then: Callable[[T], None] | None = None) -> T:
        """Run `job` in the worker, then `then` with its result on the event loop.

        Jobs run in the order of the calls, and so do their `then`s: a watch armed by a read sees every later write and
        no earlier one.
        """
        if self._executor is None:
            raise StoreUnavailable(f"{self._name} is closed")
        return await self._run(self._executor, partial(job, self._copies), then)

    async def _run(
        self, executor: ThreadPoolExecutor, job: Callable[[], T], then: Callable[[T], None] | None = None
    ) -> T:
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        future = loop.run_in_executor(executor, job)
        future.add_done_callback(lambda _: self._on_response(loop.time() - sent_s))
        if then is not None:
            future.add_done_callback(partial(_call_with_result, then))
        try:
            # Shielded: the worker completes the job even if the caller is cancelled, and its watches must fire.
            return await asyncio.shield(future)
        except DamagedFileError as error:
            raise StoreUnavailable(str(error)) from error
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._name}: {error}") from error


def _call_with_result(then: Callable[[T], None], future: asyncio.Future[T]) -> None:
    if not future.cancelled() and future.exception() is None:
        then(future.result())
