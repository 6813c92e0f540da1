"""The simulated coordination server keeps the promises of the store's port, over its deaths as well."""

from __future__ import annotations

import asyncio

import pytest

from controller.store.state_store import BadVersion, Check, Create, NodeExists, NoNode, SetData, WatchEvent
from tests.sim.coordination import SimulatedCoordination
from tests.sim.store_hosts import StoreHosts
from tests.sim.world import World


def test_operations_take_effect_in_order_and_failed_transactions_change_nothing() -> None:
    with World(1) as world:
        hosts = StoreHosts(world, SimulatedCoordination)
        store = hosts.store("a")

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

        hosts.run(main())
        assert hosts.server.tree.entries["/n"].data == b"8"


@pytest.mark.parametrize("in_write", [False, True])
def test_sessions_and_what_was_acknowledged_outlive_the_server(in_write: bool) -> None:
    for seed in range(8):
        with World(seed) as world:
            hosts = StoreHosts(world, SimulatedCoordination)
            store, other = hosts.store("a"), hosts.store("b")
            expired: list[int] = []
            store.on_session_expired(lambda expired=expired: expired.append(1))  # type: ignore[misc]
            hosts.run(store.create("/e", b"1", ephemeral=True))
            hosts.server.restart(9_000_000, in_write=in_write)
            hosts.run(store.set("/e", b"2", 0))  # sent again, and recognized if it was written
            node = hosts.run(other.get("/e"), "b")
            assert (node.data, node.stat.version) == (b"2", 1)
            assert world.now_us > 9_000_000
            assert not expired
            hosts.loops["a"].kill()
            world.run_for(9_000_000)
            assert hosts.run(other.exists("/e"), "b") is None


def test_write_that_a_crash_interrupts_is_lost_or_not() -> None:
    found = set()
    for seed in range(12):
        with World(seed) as world:
            hosts = StoreHosts(world, SimulatedCoordination)
            store, other = hosts.store("a"), hosts.store("b")
            hosts.server.restart(2_000_000, in_write=True)
            hosts.loops["a"].start(store.create("/n"))
            world.run_for(10_000)
            hosts.loops["a"].kill()  # so that it does not repeat the request
            found.add(hosts.run(other.exists("/n"), "b") is not None)
    assert found == {True, False}


def test_watches_fire_for_what_others_changed_while_the_connection_was_lost() -> None:
    with World(3) as world:
        hosts = StoreHosts(world, SimulatedCoordination)
        reader, writer = hosts.store("a"), hosts.store("b")
        events: list[WatchEvent] = []
        hosts.run(writer.create("/n", b"0"), "b")
        hosts.run(reader.get("/n", events.append))
        hosts.run(reader.children("/", events.append))
        hosts.server.network.cut("a", "zookeeper")
        hosts.server.lose_connection("a")
        hosts.run(writer.set("/n", b"1"), "b")
        hosts.run(writer.create("/m"), "b")
        hosts.server.network.mend("a", "zookeeper")
        assert hosts.run(reader.get("/n")).data == b"1"
        assert {event.path for event in events} == {"/", "/n"}


def test_no_session_ends_because_the_server_was_halted() -> None:
    """Whether its timer runs first, or what waits in its sockets is read first."""
    for seed in range(8):
        with World(seed) as world:
            hosts = StoreHosts(world, SimulatedCoordination)
            store = hosts.store("a")
            hosts.run(store.create("/e", ephemeral=True))
            hosts.server.become_unavailable()
            world.after(60_000_000, hosts.server.become_available)
            read = hosts.loops["a"].start(store.exists("/e"))
            world.run_for(59_000_000)
            assert not read.done()
            world.run_for(10_000_000)
            assert read.result() is not None


def test_session_of_a_killed_process_ends_and_observers_learn_of_it() -> None:
    with World(2) as world:
        hosts = StoreHosts(world, SimulatedCoordination)
        store, other = hosts.store("a"), hosts.store("b")
        left: list[str] = []
        hosts.server.on_session_end = left.append
        hosts.run(store.create("/e", ephemeral=True))
        with pytest.raises(NodeExists):
            hosts.run(other.create("/e"), "b")
        hosts.loops["a"].kill()
        world.run_for(9_000_000)
        assert hosts.run(other.exists("/e"), "b") is None
        assert left == ["a"]
        hosts.run(other.close(), "b")
        world.run_for(1_000_000)
        assert left == ["a", "b"]
