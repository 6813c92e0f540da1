"""A scripted cluster whose brokers have sessions with a real ZooKeeper.

A command is over when nothing moves any more. ZooKeeper delivers the watches of a session before the response of a
later read, so after one read in each session all earlier changes have been reported.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence

from kazoo.client import KazooClient

from controller.store.state_store import Node, Operation, Result, SessionExpired, Stat, Watch, WatchKind
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from tests.controller.scripted_cluster import QUIET_TURNS, ScriptedCluster
from tests.support.zookeeper import ZooKeeperProcess

TURNS_PER_ROUND = 20
QUIET_ROUNDS = 3
BLOCKED_ROUNDS = 20
"""Of a command that does not end, as one to a broker that was stopped on purpose."""
BLOCKED_ROUND_S = 0.01
ROUNDS_MAX = 2_000


class ScriptedZooKeeperStore(ZooKeeperStore):
    """A session of a process that may be stopped: it neither sends nor hears anything until `resume`."""

    def __init__(self, server: ZooKeeperProcess, chroot: str) -> None:
        super().__init__(ZooKeeperSettings(f"{server.connect}/{chroot}"))
        self.operations = 0
        self._hearing = 0
        self._is_ending = False
        self._server = server
        self._running = asyncio.Event()
        self._running.set()
        self._unheard: list[Callable[[], None]] = []

    @property
    def is_usable(self) -> bool:
        return self._session is not None and not self._has_expired and self._running.is_set()

    @property
    def is_quiet(self) -> bool:
        is_opening = self._opening is not None and not self._opening.done()
        pending = len(self._in_flight) + len(self._waiting) + len(self._lost) - self._hearing
        is_working = is_opening or pending > 0
        return not self._is_ending and not (is_working and self._running.is_set())

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()
        unheard, self._unheard = self._unheard, []
        for report in unheard:
            report()

    async def lose_session(self) -> None:
        self._is_ending = True
        await asyncio.to_thread(self._end_session_on_server)
        self._is_ending = False

    def _end_session_on_server(self) -> None:
        assert self._session is not None
        client = self._session._client
        other = KazooClient(self._server.connect, client_id=(client._session_id, client._session_passwd))
        other.start()
        other.stop()
        other.close()

    def ended(self) -> None:
        self._hear(super().ended)

    def changed(self, kind: WatchKind, path: str) -> None:
        changed = super().changed
        self._hear(lambda: changed(kind, path))

    def _hear(self, report: Callable[[], None]) -> None:
        self.operations += 1
        if self._running.is_set():
            report()
        else:
            self._unheard.append(report)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        await self._turn()
        return await super().get_many(paths, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._turn()
        return await super().exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._turn()
        return await super().children(path, watch)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        await self._turn()
        return await super().multi(operations)

    async def _turn(self) -> None:
        self.operations += 1
        await self._running.wait()

    async def hear_all(self) -> None:
        """Return when every change made so far has been reported."""
        if self.is_usable:
            self._hearing += 1
            try:
                await ZooKeeperStore.exists(self, "/")
            except SessionExpired:
                return
            finally:
                self._hearing -= 1


class ZooKeeperCluster(ScriptedCluster):
    def __init__(self, server: ZooKeeperProcess) -> None:
        chroot = str(uuid.uuid4())
        super().__init__(make_store=lambda _: ScriptedZooKeeperStore(server, chroot))
        self._observer = ScriptedZooKeeperStore(server, chroot)
        self._is_observed = False

    async def node(self, path: str) -> Node:
        return await (await self._opened_observer()).get(path)

    async def dump(self) -> dict[str, bytes | None]:
        observer = await self._opened_observer()
        found: dict[str, bytes | None] = {}
        pending = ["/"]
        while pending:
            path = pending.pop()
            found[path] = (await observer.get(path)).data
            pending += [f"{path.rstrip('/')}/{name}" for name in await observer.children(path)]
        return dict(sorted(found.items()))

    async def _opened_observer(self) -> ScriptedZooKeeperStore:
        if not self._is_observed:
            self._is_observed = True
            await self._observer.open()
        return self._observer

    async def settle(self, quiet_turns: int = QUIET_TURNS) -> None:
        """Read in each session until nothing has happened for some rounds.

        Called from outside a command, also wait until all commands are done, unless something was stopped on purpose.
        """
        is_outside = quiet_turns == QUIET_TURNS
        quiet, before = 0, self._progress()
        for _ in range(ROUNDS_MAX):
            for store in list(self.stores.values()):
                assert isinstance(store, ScriptedZooKeeperStore)
                await store.hear_all()
            for _ in range(TURNS_PER_ROUND):
                await asyncio.sleep(0)
            now = self._progress()
            has_ended = all(task.done() for task in self.pending)
            is_done = not is_outside or has_ended or self._is_blocked()
            quiet = quiet + 1 if now == before and is_done and self._is_quiet() else 0
            before = now
            is_brief = has_ended or quiet_turns < QUIET_TURNS // 2 or not self._is_blocked()
            if quiet >= (QUIET_ROUNDS if is_brief else BLOCKED_ROUNDS):
                return
            if quiet >= QUIET_ROUNDS:
                await asyncio.sleep(BLOCKED_ROUND_S)
        raise AssertionError("the cluster does not come to rest")

    def _is_blocked(self) -> bool:
        return not all(self.stores[it].is_usable for it in self.controllers) or any(
            broker.is_held for broker in self.brokers.values()
        )

    def _is_quiet(self) -> bool:
        return all(store.is_quiet for store in self.stores.values() if isinstance(store, ScriptedZooKeeperStore))

    def _progress(self) -> object:
        return (
            [store.operations for store in self.stores.values() if isinstance(store, ScriptedZooKeeperStore)],
            len(self.lines),
            [it.gauges()["EventQueueSize"]() for it in self.controllers.values()],
            len([task for task in self.pending if not task.done()]),
        )

    async def close(self) -> None:
        await super().close()
        for store in [*self.stores.values(), self._observer]:
            await store.close()
