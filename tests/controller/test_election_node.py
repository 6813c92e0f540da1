"""The race for the controller's node."""

import asyncio
from collections.abc import Sequence

from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.election_node import NO_CONTROLLER, ControllerNode, Won
from controller.store.state_store import Operation, Result, WatchEvent
from controller.tree import paths
from tests.support.manual_clock import ManualClock

CLOCK = ManualClock()


async def test_one_of_many_candidates_wins(tree: MemoryTree, store: MemoryStore) -> None:
    stores = [MemoryStore(tree) for _ in range(5)]
    for it in stores:
        await it.open()
    results = await asyncio.gather(*(ControllerNode(id_, it, CLOCK).elect() for id_, it in enumerate(stores)))
    assert [result for result in results if result] == [Won(epoch=1, epoch_version=1)]
    winner = next(index for index, result in enumerate(results) if result)
    for id_, it in enumerate(stores):
        assert await ControllerNode(id_, it, CLOCK).current(lambda _: None) == winner


async def test_each_term_has_a_higher_epoch(store: MemoryStore, tree: MemoryTree) -> None:
    node = ControllerNode(1, store, CLOCK)
    for epoch in (1, 2, 3):
        won = await node.elect()
        assert won == Won(epoch, epoch_version=epoch)
        await node.resign(won)
    assert tree.entries[paths.CONTROLLER_EPOCH].data == b"3"


async def test_resigning_does_not_remove_the_next_controller(store: MemoryStore, other_store: MemoryStore) -> None:
    node = ControllerNode(1, store, CLOCK)
    won = await node.elect()
    assert won is not None
    await store.delete(paths.CONTROLLER)
    assert await ControllerNode(2, other_store, CLOCK).elect() is not None
    await node.resign(won)
    assert await node.current(lambda _: None) == 2


async def test_only_a_leftover_node_of_this_session_is_removed(store: MemoryStore, other_store: MemoryStore) -> None:
    node = ControllerNode(1, store, CLOCK)
    assert not await node.remove_leftover()
    await node.elect()
    assert not await ControllerNode(1, other_store, CLOCK).remove_leftover()
    assert await node.remove_leftover()
    assert await store.exists(paths.CONTROLLER) is None


async def test_watching_works_with_and_without_a_controller(store: MemoryStore) -> None:
    node = ControllerNode(1, store, CLOCK)
    seen: list[WatchEvent] = []
    assert await node.current(seen.append) == NO_CONTROLLER
    await node.elect()
    assert len(seen) == 1
    assert await node.current(seen.append) == 1
    await store.delete(paths.CONTROLLER)
    assert len(seen) == 2


class ForgetfulStore(MemoryStore):
    """Loses the response to a write and retries it, as a client does after a lost connection."""

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        await super().multi(operations)
        return await super().multi(operations)


async def test_election_is_won_although_the_response_was_lost(tree: MemoryTree, store: MemoryStore) -> None:
    await store.create(paths.CONTROLLER_EPOCH, b"7")
    forgetful = ForgetfulStore(tree)
    await forgetful.open()
    assert await ControllerNode(1, forgetful, CLOCK).elect() == Won(epoch=8, epoch_version=1)


async def test_no_election_in_a_cluster_led_by_kraft(store: MemoryStore) -> None:
    await store.create(paths.MIGRATION, b'{"version":0,"kraft_controller_id":-1}')
    node = ControllerNode(1, store, CLOCK)
    won = await node.elect()
    assert won is not None
    await node.resign(won)
    await store.set(paths.MIGRATION, b'{"version":0,"kraft_controller_id":3000}')
    assert await node.elect() is None
