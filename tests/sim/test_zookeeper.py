"""The simulated ZooKeeper keeps what ZooKeeper promises, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from controller.store.state_store import (
    BadVersion,
    Check,
    Create,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    StateStore,
    StoreUnavailable,
    WatchEvent,
)
from tests.sim.store_hosts import StoreHosts
from tests.sim.world import World
from tests.sim.zookeeper import HOST, SimulatedZooKeeper


def test_operations_take_effect_in_order_and_failed_transactions_change_nothing() -> None:
    with World(1) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        store = hosts.store("a")

        async def main() -> None:
            writes = [asyncio.ensure_future(store.create("/n", b"0"))]
            writes += [asyncio.ensure_future(store.set("/n", b"%d" % number, number - 1)) for number in range(1, 9)]  # type: ignore[arg-type]
            await asyncio.gather(*writes)
            assert (await store.get("/n")).data == b"8"
            with pytest.raises(BadVersion) as caught:
                await store.multi([Create("/m"), SetData("/n", b"x"), Check("/n", 5)])
            assert caught.value.index == 2
            assert (await store.get("/n")).data == b"8"
            with pytest.raises(NoNode):
                await store.get("/m")
            assert await store.children("/") == ["n"]

        hosts.run(main())


def test_watch_is_late_but_before_its_session_reads_the_change() -> None:
    delays = []
    for seed in range(30):
        with World(seed) as world:
            hosts = StoreHosts(world, SimulatedZooKeeper)
            reader, writer = hosts.store("reader"), hosts.store("writer")
            events: list[tuple[int, WatchEvent]] = []
            hosts.run(writer.create("/n", b"0"), "writer")

            def note(event: WatchEvent, world: World = world, events: list[tuple[int, WatchEvent]] = events) -> None:
                events.append((world.now_us, event))

            hosts.run(reader.get("/n", note), "reader")
            hosts.run(writer.set("/n", b"1"), "writer")
            written_us = world.now_us
            if seed % 2:
                assert hosts.run(reader.get("/n"), "reader").data == b"1"
                assert len(events) == 1
            else:
                world.run_for(1_000_000)
                delays.append(events[0][0] - written_us)
            hosts.run(writer.set("/n", b"2"), "writer")
            world.run_for(1_000_000)
            assert len(events) == 1  # it fires once
    assert min(delays) < 10_000
    assert max(delays) > 50_000


def test_session_of_a_killed_process_ends_after_its_timeout() -> None:
    with World(2) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        store, other = hosts.store("a"), hosts.store("b")
        hosts.run(store.create("/e", ephemeral=True))
        hosts.loops["a"].kill()
        world.run_for(5_000_000)
        assert hosts.run(other.exists("/e"), "b") is not None
        world.run_for(5_000_000)
        assert hosts.run(other.exists("/e"), "b") is None


def test_closing_a_session_deletes_its_ephemeral_nodes_at_once() -> None:
    with World(2) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        store, other = hosts.store("a"), hosts.store("b")
        hosts.run(store.create("/e", ephemeral=True))
        hosts.run(store.close())
        assert hosts.run(other.exists("/e"), "b") is None
        with pytest.raises(StoreUnavailable):
            hosts.run(store.exists("/e"))


@pytest.mark.parametrize("isolate", ["pause", "cut", "one way to", "one way from"])
def test_isolated_client_learns_late_that_its_session_is_over(isolate: str) -> None:
    with World(3) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        store, other = hosts.store("a"), hosts.store("b")
        expired: list[int] = []
        store.on_session_expired(lambda: expired.append(world.now_us))
        hosts.run(store.create("/e", ephemeral=True))
        heal: Callable[[], None] = lambda: hosts.network.mend("a", HOST)  # noqa: E731
        if isolate == "pause":
            hosts.loops["a"].pause()
            heal = hosts.loops["a"].resume
        elif isolate == "cut":
            hosts.network.cut("a", HOST)
        else:
            hosts.network.cut(*(("a", HOST) if isolate == "one way to" else (HOST, "a")), one_way=True)
        world.run_for(20_000_000)
        assert hosts.run(other.exists("/e"), "b") is None
        assert not expired
        heal()
        world.run_for(5_000_000)
        assert len(expired) == 1
        with pytest.raises(SessionExpired):
            hosts.run(store.exists("/e"))
        hosts.run(store.open())
        assert hosts.run(store.exists("/e")) is None


def test_request_of_an_earlier_session_holds_up_no_later_one() -> None:
    with World(3) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        store = hosts.store("a")
        hosts.network.cut("a", HOST)
        lost = hosts.loops["a"].start(store.exists("/e"))
        world.run_for(20_000_000)
        hosts.network.mend("a", HOST)
        world.run_for(5_000_000)
        assert isinstance(lost.exception(), SessionExpired)
        hosts.run(store.open())
        assert hosts.run(store.exists("/e")) is None


def test_short_loss_of_the_connection_is_waited_out() -> None:
    with World(4) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        store = hosts.store("a")
        hosts.network.cut("a", HOST)
        world.after(2_000_000, lambda: hosts.network.mend("a", HOST))
        began_us = world.now_us
        assert hosts.run(store.create("/n")) == "/n"
        assert 2_000_000 <= world.now_us - began_us < 4_000_000


def test_write_whose_response_was_lost_is_executed_again() -> None:
    outcomes = set()
    for seed in range(40):
        with World(seed) as world:
            hosts = StoreHosts(world, SimulatedZooKeeper)
            store = hosts.store("a")
            world.after(1_000 + 20 * seed, lambda hosts=hosts: hosts.server.lose_connection("a"))  # type: ignore[misc]

            async def main(store: StateStore = store) -> str:
                await asyncio.sleep(0.0008)
                try:
                    return await store.create("/n")
                except NodeExists:
                    return "its own"

            outcomes.add(hosts.run(main()))
    assert outcomes == {"/n", "its own"}


def test_no_session_ends_while_the_service_is_unavailable() -> None:
    with World(5) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        store = hosts.store("a")
        hosts.run(store.create("/e", ephemeral=True))
        hosts.server.become_unavailable()
        world.after(60_000_000, hosts.server.become_available)
        read = hosts.loops["a"].start(store.exists("/e"))
        world.run_for(59_000_000)
        assert not read.done()
        world.run_for(10_000_000)
        assert read.result() is not None


def test_opening_fails_if_the_service_does_not_respond_in_time() -> None:
    with World(6) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        hosts.server.become_unavailable()
        with pytest.raises(StoreUnavailable):
            hosts.store("a")
        assert world.now_us < 7_000_000


def test_expired_session_is_reported_to_a_living_client() -> None:
    with World(7) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        store = hosts.store("a")
        expired: list[int] = []
        store.on_session_expired(lambda: expired.append(1))
        hosts.server.expire("a")
        world.run_for(3_000_000)
        assert expired == [1]


def test_reads_of_a_lagging_server_are_old_but_in_order_and_include_own_writes() -> None:
    with World(1) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        writer, reader = hosts.store("a"), hosts.store("b")
        events: list[WatchEvent] = []
        hosts.run(writer.create("/n", b"0"))
        hosts.server.begin_to_lag("b", 1_000_000_000)
        assert hosts.run(reader.exists("/n/child", events.append), "b") is None
        hosts.run(writer.set("/n", b"1", 0))
        hosts.run(writer.create("/n/child", b""))
        assert hosts.run(reader.get("/n"), "b").data == b"0"
        assert hosts.run(reader.children("/n"), "b") == []
        assert events == []
        with pytest.raises(BadVersion):
            hosts.run(reader.set("/n", b"2", 0), "b")
        assert hosts.run(reader.get("/n"), "b").data == b"1"
        assert hosts.run(reader.children("/n"), "b") == ["child"]
        assert [event.path for event in events] == ["/n/child"]
        hosts.run(writer.delete("/n/child"))
        hosts.server.stop_lagging("b")
        assert hosts.run(reader.exists("/n/child"), "b") is None


def test_session_that_ends_at_a_lagging_server_hears_of_nothing_more() -> None:
    with World(1) as world:
        hosts = StoreHosts(world, SimulatedZooKeeper)
        writer, reader = hosts.store("a"), hosts.store("b")
        events: list[WatchEvent] = []
        hosts.run(reader.create("/e", b"", ephemeral=True), "b")
        hosts.server.begin_to_lag("b", 1000)
        hosts.run(reader.exists("/n", events.append), "b")
        hosts.server.expire("b")
        assert hosts.run(writer.exists("/e")) is None
        hosts.run(writer.create("/n", b""))
        hosts.server.stop_lagging("b")
        world.run_for(1_000_000)
        assert events == []
