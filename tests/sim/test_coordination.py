"""The simulated coordination server keeps the promises of the store's port, over its deaths as well."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from controller.state_store import BadVersion, Check, Create, NodeExists, NoNode, SetData, StateStore, WatchEvent
from controller.zookeeper.settings import ZooKeeperSettings
from tests.sim.coordination import SimulatedCoordination
from tests.sim.network import SimulatedNetwork
from tests.sim.world import ProcessLoop, World

T = TypeVar("T")
SETTINGS = ZooKeeperSettings("zookeeper:2181", session_timeout_ms=6000, connection_timeout_ms=6000)


class Setup:
    def __init__(self, world: World) -> None:
        self.world = world
        self.server = SimulatedCoordination(SimulatedNetwork(world))
        self.loops: dict[str, ProcessLoop] = {}

    def store(self, host: str) -> StateStore:
        loop = self.loops[host] = self.world.new_loop(host)
        store = self.server.new_store(host, loop, SETTINGS)
        self.run(store.open(), host)
        return store

    def run(self, main: Coroutine[Any, Any, T], host: str = "a") -> T:
        task = self.loops[host].start(main)
        assert self.world.run_until(task.done, limit_us=self.world.now_us + 60_000_000), "stuck"
        return task.result()


def test_operations_take_effect_in_order_and_failed_transactions_change_nothing() -> None:
    with World(1) as world:
        setup = Setup(world)
        store = setup.store("a")

        async def main() -> None:
            writes = [asyncio.ensure_future(store.create("/n", b"0"))]
            writes += [asyncio.ensure_future(store.set("/n", b"%d" % number, number - 1)) for number in range(1, 9)]  # type: ignore[arg-type]
            await asyncio.gather(*writes)
            assert (await store.get("/n")).data == b"8"
            with pytest.raises(BadVersion) as caught:
                await store.multi([Create("/m"), SetData("/n", b"x"), Check("/n", 5)])
            assert caught.value.index == 2
            with pytest.raises(NoNode):
                await store.get("/m")
            assert [node and node.data for node in await store.get_many(["/n", "/m"])] == [b"8", None]
            assert await store.children("/") == ["n", "zookeeper"]
            assert await store.create("/n/s-", sequential=True) == "/n/s-0000000000"

        setup.run(main())
        assert setup.server.tree.entries["/n"].data == b"8"


@pytest.mark.parametrize("in_write", [False, True])
def test_sessions_and_what_was_acknowledged_outlive_the_server(in_write: bool) -> None:
    for seed in range(8):
        with World(seed) as world:
            setup = Setup(world)
            store, other = setup.store("a"), setup.store("b")
            expired: list[int] = []
            store.on_session_expired(lambda expired=expired: expired.append(1))  # type: ignore[misc]
            setup.run(store.create("/e", b"1", ephemeral=True))
            setup.server.restart(9_000_000, in_write=in_write)
            setup.run(store.set("/e", b"2", 0))  # sent again, and recognized if it was written
            node = setup.run(other.get("/e"), "b")
            assert (node.data, node.stat.version) == (b"2", 1)
            assert world.now_us > 9_000_000
            assert not expired
            setup.loops["a"].kill()
            world.run_for(9_000_000)
            assert setup.run(other.exists("/e"), "b") is None


def test_write_that_a_crash_interrupts_is_lost_or_not() -> None:
    found = set()
    for seed in range(12):
        with World(seed) as world:
            setup = Setup(world)
            store, other = setup.store("a"), setup.store("b")
            setup.server.restart(2_000_000, in_write=True)
            setup.loops["a"].start(store.create("/n"))
            world.run_for(10_000)
            setup.loops["a"].kill()  # so that it does not repeat the request
            found.add(setup.run(other.exists("/n"), "b") is not None)
    assert found == {True, False}


def test_watches_fire_for_what_others_changed_while_the_connection_was_lost() -> None:
    with World(3) as world:
        setup = Setup(world)
        reader, writer = setup.store("a"), setup.store("b")
        events: list[WatchEvent] = []
        setup.run(writer.create("/n", b"0"), "b")
        setup.run(reader.get("/n", events.append))
        setup.run(reader.children("/", events.append))
        setup.server.network.cut("a", "zookeeper")
        setup.server.lose_connection("a")
        setup.run(writer.set("/n", b"1"), "b")
        setup.run(writer.create("/m"), "b")
        setup.server.network.mend("a", "zookeeper")
        assert setup.run(reader.get("/n")).data == b"1"
        assert {event.path for event in events} == {"/", "/n"}


def test_no_session_ends_because_the_server_was_halted() -> None:
    """Whether its timer runs first, or what waits in its sockets is read first."""
    for seed in range(8):
        with World(seed) as world:
            setup = Setup(world)
            store = setup.store("a")
            setup.run(store.create("/e", ephemeral=True))
            setup.server.become_unavailable()
            world.after(60_000_000, setup.server.become_available)
            read = setup.loops["a"].start(store.exists("/e"))
            world.run_for(59_000_000)
            assert not read.done()
            world.run_for(10_000_000)
            assert read.result() is not None


def test_session_of_a_killed_process_ends_and_observers_learn_of_it() -> None:
    with World(2) as world:
        setup = Setup(world)
        store, other = setup.store("a"), setup.store("b")
        left: list[str] = []
        setup.server.on_session_end = left.append
        setup.run(store.create("/e", ephemeral=True))
        with pytest.raises(NodeExists):
            setup.run(other.create("/e"), "b")
        setup.loops["a"].kill()
        world.run_for(9_000_000)
        assert setup.run(other.exists("/e"), "b") is None
        assert left == ["a"]
        setup.run(other.close(), "b")
        world.run_for(1_000_000)
        assert left == ["a", "b"]
