"""What the store sends, and what it does with a request that fails: a scripted session responds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent, ZnodeStat

from controller.store.state_store import StoreUnavailable, WatchKind
from controller.zookeeper.session import SessionListener, ZooKeeperSession
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore

UNSENDABLE = "/unsendable"
STAT = ZnodeStat(*range(11))
DEADLINE_S = 20.0

Done = Callable[[Any], None]


class ScriptedSession:
    """Responds to reads in the next turn of the event loop: the data of a node is its path."""

    session_id = 1
    last_zxid = 1
    last_problem = ""
    is_login_refused = False

    def __init__(self, settings: ZooKeeperSettings, listener: SessionListener) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener

    def start(self) -> None:
        self._loop.call_soon(self._listener.connected)

    def resume(self) -> None: ...

    async def close(self, timeout_seconds: float) -> None: ...

    def get(self, path: str, watched: bool, done: Done) -> bool:
        if path == UNSENDABLE:
            raise ValueError("it cannot be sent")
        self._loop.call_soon(done, (path.encode(), STAT))
        return True

    def exists(self, path: str, watched: bool, done: Done) -> bool:
        if path == UNSENDABLE:
            raise ValueError("it cannot be sent")
        self._loop.call_soon(done, STAT)
        return True


@pytest.fixture
async def store() -> AsyncIterator[ZooKeeperStore]:
    def session(settings: ZooKeeperSettings, listener: SessionListener) -> ZooKeeperSession:
        return cast(ZooKeeperSession, ScriptedSession(settings, listener))

    opened = ZooKeeperStore(ZooKeeperSettings("127.0.0.1:1"), session)
    await opened.open()
    yield opened
    await opened.close()


async def test_request_that_cannot_be_sent_fails_and_those_behind_it_are_sent(
    store: ZooKeeperStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        found = await asyncio.gather(
            store.get("/before"),
            store.get(UNSENDABLE),
            store.exists(UNSENDABLE),
            store.get("/after"),
            return_exceptions=True,
        )
        assert [type(outcome).__name__ for outcome in found] == [
            "Node",
            "StoreUnavailable",
            "StoreUnavailable",
            "Node",
        ]
        with pytest.raises(StoreUnavailable, match=f"ZooKeeper refuses {UNSENDABLE}: .*it cannot be sent"):
            await store.get(UNSENDABLE)
        assert (await store.get("/later")).data == b"/later"
    assert "a request to ZooKeeper fails: it cannot be sent" in caplog.text


class Reports:
    """What a session has reported of its watches, and the results of requests, in order."""

    def __init__(self) -> None:
        self.lines: list[object] = []

    def connected(self) -> None: ...
    def connection_lost(self) -> None: ...
    def ended(self) -> None: ...

    def changed(self, kind: WatchKind, path: str) -> None:
        self.lines.append((kind, path))


async def test_response_that_is_read_before_its_request_is_handed_over_precedes_the_event_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the watch would be armed after its event has come, and report nothing any more."""

    def call(_: KazooClient, request: Any, outcome: Any) -> None:
        outcome.set(STAT)
        request.watcher(WatchedEvent(EventType.DELETED, KeeperState.CONNECTED, "/controller"))

    monkeypatch.setattr(KazooClient, "_call", call)
    reports = Reports()
    session = ZooKeeperSession(ZooKeeperSettings("127.0.0.1:1"), reports)
    session.resume()
    assert session.exists("/controller", True, reports.lines.append)
    assert reports.lines == []
    await asyncio.sleep(0)
    assert reports.lines == [STAT, (WatchKind.DELETED, "/controller")]
