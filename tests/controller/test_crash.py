"""kill -9 before each write of a controller: the next start or controller completes what was interrupted."""

import asyncio
import itertools
from collections.abc import Sequence

from controller.store.state_store import Operation, Result
from controller.tree import paths
from tests.controller.scripted_cluster import ScriptedCluster, ScriptedMemoryStore

CREATE_AND_DELETE = [
    "create first partitions=3",
    "create second third partitions=2 retention_ms=1000",
    "add-partitions first count=5",
    "delete second",
    "create second partitions=1",
    "set /admin/delete_topics/third x",
]

MOVE_AND_ELECT = [
    "create t assignment=1,2/2,3",
    "reassign t-0 2,3",
    "isr 1 t-0 isr=1,2,3",
    "create gone assignment=2,3/3,2",
    "elect preferred",
    "delete gone",
    "reassign t-1 2,1",
    "cancel t-1",
    "create led assignment=2",
    "reassign led-0 3,1",
    "isr 2 led-0 isr=2,3",
    "elect preferred led-0",
    "cancel led-0",
    "reassign led-0 3,1",
    "isr 2 led-0 isr=2,3",
    "elect preferred led-0",
    "reassign led-0 1",
]


class CrashingStore(ScriptedMemoryStore):
    """Stops for ever instead of doing one write, like a process that was killed."""

    writes_left: int | None = None
    has_crashed = False

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.writes_left == 0:
            self.has_crashed = True
            self.lose_session_silently()
            self.pause()
        elif self.writes_left is not None:
            self.writes_left -= 1
        return await super().multi(operations)


def _check_repaired(cluster: ScriptedCluster) -> None:
    """Every topic is whole, and nothing is left of those that were to go."""
    tree = cluster.tree
    live = {int(name) for name in tree.children(paths.BROKER_IDS)}
    topics = tree.children(paths.TOPICS)
    assert tree.children(paths.DELETE_TOPICS) == []
    assert tree.children("/config/topics") == topics
    for name in topics:
        topic = paths.decode_topic(name, tree.entries[paths.topic_path(name)].data)
        for index, assignment in topic.partitions.items():
            path = paths.partition_state_path((name, index))
            leadership = paths.decode_partition_state((name, index), tree.entries[path].data, 0)
            assert set(leadership.state.isr) <= set(assignment.replicas), (name, index)
            assert leadership.state.leader in live & set(assignment.replicas), (name, index)
            if assignment.is_being_reassigned:
                assert not set(assignment.target) <= set(leadership.state.isr), "the move is complete"
        assert tree.children(paths.partitions_path(name)) == sorted(map(str, topic.partitions))


async def _crash(brokers: str, commands: list[str], writes: int) -> tuple[ScriptedCluster, dict[str, bool], bool]:
    """Run `commands` until broker 1 is to do write number `writes`.

    Returns the cluster, which topics must exist (True) or not (False) because a caller received that result, and
    whether it came to the crash.
    """
    cluster = ScriptedCluster(make_store=CrashingStore)
    await cluster.run(f"start {brokers}")
    store = cluster.stores[1]
    assert isinstance(store, CrashingStore)
    store.writes_left = writes
    promised: dict[str, bool] = {}
    for command in commands:
        if store.has_crashed:
            break
        lines = await cluster.run(command)
        verb, *words = command.split()
        for name in (word for word in words if "=" not in word):
            if f"{name}: NONE" in lines and verb in ("create", "delete"):
                promised[name] = verb == "create"
            else:
                promised.pop(name.rpartition("/")[2], None)
    if store.has_crashed:
        cluster.brokers[1].is_up = False
        await cluster.settle()
    return cluster, promised, store.has_crashed


def _leave() -> None:
    """A killed process does not continue, so its tasks are not awaited."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_standalone_broker_completes_an_interrupted_change_at_start() -> None:
    for writes in itertools.count():
        cluster, promised, has_crashed = await _crash("1", CREATE_AND_DELETE, writes)
        _leave()
        for session_id in list(cluster.tree.sessions):
            cluster.tree.end_session(session_id)
        restarted = ScriptedCluster(tree=cluster.tree)
        await restarted.run("start 1")
        _check_repaired(restarted)
        topics = cluster.tree.children(paths.TOPICS)
        assert {name: name in topics for name in promised} == promised, writes
        await restarted.close()
        if not has_crashed:
            break
    assert writes >= 15


async def test_next_controller_completes_an_interrupted_change() -> None:
    for writes in itertools.count():
        cluster, promised, has_crashed = await _crash("1 2 3", MOVE_AND_ELECT, writes)
        _check_repaired(cluster)
        topics = cluster.tree.children(paths.TOPICS)
        assert {name: name in topics for name in promised} == promised, writes
        _leave()
        if not has_crashed:
            break
    assert writes >= 15
