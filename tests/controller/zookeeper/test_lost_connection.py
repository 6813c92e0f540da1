"""A connection to ZooKeeper that is cut: at every request of a program, before the server has it or before its response
arrives. Callers see neither; watches fire as if nothing had happened.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from kazoo.client import KazooClient

from controller.store.state_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    StateStore,
    StoreUnavailable,
    WatchEvent,
)
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from tests.support.coordination import RunningCoordination
from tests.support.processes import closed_port
from tests.support.zookeeper import ZooKeeperProcess
from tests.support.zookeeper_proxy import Cut, ZooKeeperProxy, zookeeper_proxy

AnyServer = ZooKeeperProcess | RunningCoordination
SESSION_TIMEOUT_MS = 4_000
REQUESTS_OF_PROGRAM = 20


@pytest.fixture(params=["zookeeper_server", pytest.param("coordination_server", marks=pytest.mark.soak)])
def server(request: pytest.FixtureRequest) -> AnyServer:
    """A ZooKeeper server, and the coordination server."""
    found: AnyServer = request.getfixturevalue(request.param)
    return found


@asynccontextmanager
async def _opened(
    server: AnyServer, *, max_in_flight: int = 10, session_timeout_ms: int = SESSION_TIMEOUT_MS
) -> AsyncIterator[tuple[ZooKeeperStore, ZooKeeperProxy]]:
    """Open a store behind a proxy, below a chroot of its own."""
    async with zookeeper_proxy(server.port) as proxy:
        settings = ZooKeeperSettings(
            f"127.0.0.1:{proxy.port}/{uuid.uuid4()}",
            session_timeout_ms=session_timeout_ms,
            max_in_flight_requests=max_in_flight,
        )
        store = ZooKeeperStore(settings)
        await store.open()
        try:
            yield store, proxy
        finally:
            proxy.admit()
            await store.close()


@asynccontextmanager
async def _other(server: AnyServer, store: ZooKeeperStore) -> AsyncIterator[ZooKeeperStore]:
    """Open another session with the same tree, without the proxy."""
    other = ZooKeeperStore(ZooKeeperSettings(server.connect + store._settings.chroot))
    await other.open()
    try:
        yield other
    finally:
        await other.close()


async def _outcome(call: Callable[[], object]) -> object:
    try:
        return await call()  # type: ignore[misc]
    except (BadVersion, NodeExists, NoNode) as error:
        return type(error).__name__, error.index, error.path


async def _program(store: StateStore) -> list[object]:
    """Perform every kind of operation, some of which fail; return what a caller sees."""
    seen: list[object] = []

    def watch(event: WatchEvent) -> None:
        seen.append((event.kind.value, event.path))

    def said(stat: object) -> object:
        return getattr(stat, "version", stat)

    seen.append(await store.exists("/a", watch))
    seen.append(await store.create("/a", b"1"))
    seen.append(await store.create("/a/null", None))
    seen.append(await _outcome(lambda: store.create("/a", b"1")))
    seen.append((await store.get("/a", watch)).data)
    seen.append(said(await store.set("/a", b"2", 0)))
    seen.append(await _outcome(lambda: store.set("/a", b"2", 0)))
    seen.append(await store.children("/a", watch))
    seen.append(await store.create("/a/ephemeral", b"e", ephemeral=True))
    seen.append(await store.children("/a"))
    results = await store.multi(
        [Check("/a", 1), Create("/a/b"), SetData("/a/b", b"x", 0), Create("/a/c", b"y"), Delete("/a/null")]
    )
    seen.append([said(result) for result in results])
    seen.append(await _outcome(lambda: store.multi([Check("/a", 7), SetData("/a", b"no")])))
    seen.append(await _outcome(lambda: store.multi([SetData("/a", b"no"), Delete("/missing")])))
    nodes = await store.get_many(["/a", "/missing", "/a/b", "/a/c"])
    seen.append([node and (node.data, node.stat.version) for node in nodes])
    with suppress(NoNode):  # deleted by the first of two executions
        await store.delete("/a/c", 0)
    seen.append(await _outcome(lambda: store.delete("/a/c", 0)))
    seen.append(await _outcome(lambda: store.get("/a/c")))
    (sequential,) = await store.multi([Create("/a/s_", b"", sequential=True)])
    assert isinstance(sequential, str)
    seen.append(sequential[:5])
    seen.append(await _outcome(lambda: store.create("/missing/child")))
    ephemeral = await store.exists("/a/ephemeral")
    seen.append(ephemeral is not None and ephemeral.ephemeral_owner == store.session_id)
    return seen


@pytest.fixture
async def uncut(server: AnyServer) -> list[object]:
    async with _opened(server) as (store, proxy):
        before = proxy.requests
        seen = await _program(store)
        assert proxy.requests - before == REQUESTS_OF_PROGRAM
        return seen


@pytest.mark.parametrize("where", Cut)
@pytest.mark.parametrize("request_number", range(REQUESTS_OF_PROGRAM))
async def test_caller_does_not_see_a_connection_that_is_cut(
    request_number: int, where: Cut, server: AnyServer, uncut: list[object]
) -> None:
    async with _opened(server) as (store, proxy):
        session = store.session_id
        proxy.cut_at(proxy.requests + request_number, where)
        seen = await _program(store)
        assert proxy.cuts == 1
        assert store.session_id == session
    assert seen == uncut


@pytest.mark.parametrize("where", Cut)
@pytest.mark.parametrize("max_in_flight", [1, 3, 10])
async def test_pipelined_operations_keep_their_order_over_cuts(
    max_in_flight: int, where: Cut, server: AnyServer
) -> None:
    depth = 20
    paths = ["".join(f"/{index}" for index in range(length + 1)) for length in range(depth)]
    async with _opened(server, max_in_flight=max_in_flight) as (store, proxy):
        await store.create("/n", b"")
        for offset in (0, 3, 4, 11, 17):
            proxy.cut_at(proxy.requests + offset, where)
        # Each node needs the one before it, and only the last value of /n is to stay.
        calls = [call for path in paths for call in (store.create(path, b"x"), store.set("/n", path.encode()))]
        results = await asyncio.gather(*calls)
        assert results[::2] == paths
        assert (await store.get("/n")).data == paths[-1].encode()
        assert proxy.cuts >= 2


@pytest.mark.parametrize("where", Cut)
async def test_conditional_writes_to_one_node_are_applied_once(where: Cut, server: AnyServer) -> None:
    async with _opened(server, max_in_flight=1) as (store, proxy):
        await store.create("/n", b"")
        for offset in (0, 3, 4, 11, 17):
            proxy.cut_at(proxy.requests + offset, where)
        stats = await asyncio.gather(*(store.set("/n", b"%d" % number, number) for number in range(20)))
        assert [stat.version for stat in stats] == list(range(1, 21))
        assert (await store.get("/n")).data == b"19"


async def test_watches_fire_for_what_changed_while_the_connection_was_lost(
    server: AnyServer,
) -> None:
    async with _opened(server) as (store, proxy), _other(server, store) as other:
        await other.multi([Create(path) for path in ("/changed", "/deleted", "/reborn", "/same", "/parent", "/quiet")])
        seen: list[tuple[str, str]] = []

        def watch(event: WatchEvent) -> None:
            seen.append((event.kind.value, event.path))

        for path in ("/changed", "/deleted", "/reborn", "/same"):
            await store.get(path, watch)
        for path in ("/created", "/absent"):
            await store.exists(path, watch)
        for path in ("/parent", "/quiet"):
            await store.children(path, watch)
        proxy.refuse()
        await other.multi([SetData("/changed", b"x"), Delete("/deleted"), Create("/created"), Create("/parent/child")])
        await other.multi([Delete("/reborn"), Create("/reborn")])
        await other.set("/quiet", b"its data, not its children")
        read = asyncio.ensure_future(store.get("/changed"))
        await asyncio.sleep(0)
        assert not seen
        proxy.admit()
        assert (await read).data == b"x"
        assert sorted(seen) == [
            ("changed", "/changed"),
            ("changed", "/reborn"),
            ("children", "/parent"),
            ("created", "/created"),
            ("deleted", "/deleted"),
        ]
        seen.clear()
        await other.multi(
            [SetData("/same", b"x"), Create("/absent"), Create("/quiet/child"), SetData("/changed", b"y")]
        )
        await store.create("/later")  # a write of this session is later than those of the other
        assert sorted(seen) == [("changed", "/same"), ("children", "/quiet"), ("created", "/absent")]


async def test_second_execution_is_not_taken_for_another_sessions_write(server: AnyServer) -> None:
    async with _opened(server) as (store, proxy), _other(server, store) as other:
        await other.create("/a", b"same")
        await store.exists("/a")
        proxy.cut_at(proxy.requests, Cut.RESPONSE)
        with pytest.raises(NodeExists):
            await store.create("/a", b"same")
        proxy.cut_at(proxy.requests, Cut.RESPONSE)
        with pytest.raises(NodeExists):
            await store.create("/a", b"same", ephemeral=True)
        assert proxy.cuts == 2


async def test_waiting_operations_fail_when_the_session_expires(server: AnyServer) -> None:
    async with _opened(server) as (store, proxy):
        await store.create("/e", ephemeral=True)
        first_session = store.session_id
        expired: list[bool] = []
        store.on_session_expired(lambda: expired.append(True))
        fired: list[WatchEvent] = []
        await store.exists("/e", fired.append)
        proxy.refuse()
        waiting = [asyncio.ensure_future(store.set("/e", b"x")) for _ in range(30)]
        await asyncio.sleep(0)
        await asyncio.to_thread(_end_session, server, store)
        proxy.admit()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(result) for result in results} == {SessionExpired}
        assert expired == [True]
        with pytest.raises(SessionExpired):
            await store.exists("/e")
        await store.open()
        assert store.session_id != first_session
        assert await store.exists("/e") is None
        assert fired == []
        assert await store.create("/e", ephemeral=True) == "/e"
        assert expired == [True]


def _end_session(server: AnyServer, store: ZooKeeperStore) -> None:
    """End the session on the server, as its timeout would."""
    assert store._session is not None
    client = KazooClient(server.connect, client_id=store._session._client.client_id or _identity(store))
    client.start()
    client.stop()
    client.close()


def _identity(store: ZooKeeperStore) -> tuple[int, bytes]:
    assert store._session is not None
    client = store._session._client
    return client._session_id, client._session_passwd


async def test_operation_called_while_the_session_begins_waits_for_it(server: AnyServer) -> None:
    async with _opened(server) as (store, _):
        await store.create("/a", b"x")
        await store.close()
        opening = asyncio.ensure_future(store.open())
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            assert (await store.get("/a")).data == b"x"
        await opening


async def test_closed_store_fails_what_waits_for_the_connection(server: AnyServer) -> None:
    async with _opened(server) as (store, proxy):
        proxy.refuse()
        waiting = asyncio.ensure_future(store.exists("/a"))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await waiting
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.exists("/a")


async def test_session_survives_a_server_that_restarts(server: AnyServer) -> None:
    async with _opened(server, session_timeout_ms=60_000) as (store, _):
        await store.create("/e", ephemeral=True)
        session = store.session_id
        await asyncio.to_thread(server.kill)
        waiting = asyncio.ensure_future(store.get("/e"))
        await asyncio.to_thread(server.start)
        assert (await waiting).stat.ephemeral_owner == session == store.session_id


@pytest.mark.parametrize("reads_together", [True, False])
async def test_many_nodes_are_read_in_order(reads_together: bool, server: AnyServer) -> None:
    async with _opened(server) as (store, proxy):
        store._reads_together = reads_together
        await store.multi([Create(f"/n{number}", b"%d" % number) for number in range(0, 250, 2)])
        before = proxy.requests
        nodes = await store.get_many([f"/n{number}" for number in range(250)])
        assert [node and node.data for node in nodes] == [None if n % 2 else b"%d" % n for n in range(250)]
        assert proxy.requests - before == (3 if reads_together else 250)


async def test_server_that_cannot_read_together_is_read_one_by_one(
    server: AnyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown_request = 99
    monkeypatch.setattr("controller.zookeeper.session._MultiRead.type", unknown_request)
    async with _opened(server) as (store, _):
        await store.multi([Create("/a", b"a"), Create("/b", b"b")])
        async with asyncio.timeout(20):
            nodes = await store.get_many(["/a", "/missing", "/b"])
        assert [node and node.data for node in nodes] == [b"a", None, b"b"]


async def test_missing_zookeeper_is_reported_with_its_addresses() -> None:
    with closed_port() as one, closed_port() as other:
        hosts = f"127.0.0.1:{one},127.0.0.1:{other}"
        store = ZooKeeperStore(ZooKeeperSettings(f"{hosts}/chroot", connection_timeout_ms=300))
        with pytest.raises(StoreUnavailable) as caught:
            await store.open()
    assert f"no connection to ZooKeeper at {hosts} (zookeeper.connect) within 300 ms" in str(caught.value)
    assert "refused" in str(caught.value)
    with pytest.raises(StoreUnavailable):
        await store.exists("/")


async def test_other_addresses_are_tried(server: AnyServer) -> None:
    with closed_port() as closed:
        for _ in range(4):  # the order of the addresses is random
            store = ZooKeeperStore(ZooKeeperSettings(f"127.0.0.1:{closed},{server.connect}/{uuid.uuid4()}"))
            await store.open()
            with suppress(NodeExists):
                await store.create("/a")
            await store.close()


async def test_chroot_of_several_names_is_created(server: AnyServer) -> None:
    root = str(uuid.uuid4())
    store = ZooKeeperStore(ZooKeeperSettings(f"{server.connect}/{root}/one/two"))
    await store.open()
    await store.create("/a", b"x")
    assert await store.children("/") == ["a"]
    await store.close()
    whole = ZooKeeperStore(ZooKeeperSettings(server.connect))
    await whole.open()
    assert (await whole.get(f"/{root}/one/two/a")).data == b"x"
    await whole.close()
