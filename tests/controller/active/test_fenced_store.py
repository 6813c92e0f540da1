"""Batching that keeps changes independent, and the fence before every write."""

from collections.abc import Sequence

import pytest

from base.pause import never
from controller.active.fenced_store import OPERATIONS_PER_MULTI_MAX, ControllerMoved, FencedStore
from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.machine.effects import ChangeLeadership
from controller.machine.model import LeaderAndIsr, Leadership, ReplicaAssignment, Topic
from controller.store.state_store import Create, NotEmpty, Operation, Result
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import parse_id

TOPIC = Topic(parse_id("mxeDiPb0QsCUKycbljLM5g"), {0: ReplicaAssignment((1,))})
STATE = LeaderAndIsr(1, 0, (1,))


class CountingStore(MemoryStore):
    """Remembers the size of each multi."""

    sizes: list[int]

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self.sizes.append(len(operations))
        return await super().multi(operations)


@pytest.fixture
async def fenced(tree: MemoryTree, store: MemoryStore) -> FencedStore:
    await store.create(paths.CONTROLLER_EPOCH, b"5")
    counting = CountingStore(tree)
    counting.sizes = []
    await counting.open()
    return FencedStore(counting, epoch=5, epoch_version=0, pause=never)


def _creations(topic: str, count: int) -> list[ChangeLeadership]:
    return [ChangeLeadership((topic, it), STATE, None) for it in range(count)]


def _sizes(fenced: FencedStore) -> list[int]:
    assert isinstance(fenced.store, CountingStore)
    return fenced.store.sizes


async def test_a_topic_of_fifty_partitions_takes_two_multis(fenced: FencedStore) -> None:
    await fenced.create_topic("t", TOPIC, {"retention.ms": "1"})
    written = await fenced.change_leadership(_creations("t", 50))
    assert written.leaderships == {("t", it): Leadership(STATE, 5, 0) for it in range(50)}
    assert _sizes(fenced) == [1 + 2, 1 + 1 + 2 * 50]


async def test_many_changes_are_split(fenced: FencedStore) -> None:
    await fenced.create_topic("t", TOPIC, {})
    written = await fenced.change_leadership(_creations("t", 600))
    assert len(written.leaderships) == 600
    assert written.conflicts == []
    assert max(_sizes(fenced)) <= OPERATIONS_PER_MULTI_MAX + 1
    assert len(_sizes(fenced)) == 1 + 3


async def test_conflict_of_one_change_does_not_stop_the_others(fenced: FencedStore, store: MemoryStore) -> None:
    await fenced.create_topic("t", TOPIC, {})
    await fenced.change_leadership(_creations("t", 5))
    await store.set(paths.partition_state_path(("t", 2)), b"somebody else")
    again = [ChangeLeadership(("t", it), STATE.with_leader(2), 0) for it in range(6)]
    written = await fenced.change_leadership(again)
    assert written.conflicts == [("t", 2), ("t", 5)]
    assert sorted(number for _, number in written.leaderships) == [0, 1, 3, 4]
    assert {it.partition_epoch for it in written.leaderships.values()} == {1}


async def test_existing_parents_are_ignored_but_an_existing_state_conflicts(
    fenced: FencedStore, store: MemoryStore
) -> None:
    await fenced.create_topic("t", TOPIC, {})
    await store.create(paths.partitions_path("t"))
    await store.create(paths.partition_path(("t", 0)))
    await store.create(paths.partition_path(("t", 1)))
    await store.create(paths.partition_state_path(("t", 1)), b"")
    written = await fenced.change_leadership(_creations("t", 3))
    assert written.conflicts == [("t", 1)]
    assert sorted(number for _, number in written.leaderships) == [0, 2]


async def test_nothing_is_written_after_another_controller_was_elected(
    fenced: FencedStore, store: MemoryStore, tree: MemoryTree
) -> None:
    await store.set(paths.CONTROLLER_EPOCH, b"6")
    before = tree.dump()
    for write in (
        fenced.create_topic("t", TOPIC, {}),
        fenced.write_topic("t", TOPIC),
        fenced.change_leadership(_creations("t", 1)),
        fenced.request_deletion(["t"]),
        fenced.remove(["/consumers"]),
        fenced.multi([Create("/x")]),
    ):
        with pytest.raises(ControllerMoved):
            await write
    assert tree.dump() == before


async def test_many_conflicts_do_not_repeat_the_whole_batch_for_each(fenced: FencedStore) -> None:
    await fenced.create_topic("t", TOPIC, {})
    await fenced.change_leadership(_creations("t", 400))
    changes = [ChangeLeadership(("t", it), STATE, expected_version=0 if it % 2 else 7) for it in range(400)]
    _sizes(fenced).clear()
    written = await fenced.change_leadership(changes)
    assert written.conflicts == [("t", it) for it in range(0, 400, 2)]
    assert set(written.leaderships) == {("t", it) for it in range(1, 400, 2)}
    assert sum(_sizes(fenced)) < 400 * 12


async def test_one_conflict_repeats_the_others_in_two_parts(fenced: FencedStore) -> None:
    await fenced.create_topic("t", TOPIC, {})
    await fenced.change_leadership(_creations("t", 100))
    changes = [ChangeLeadership(("t", it), STATE, 7 if it == 20 else 0) for it in range(100)]
    _sizes(fenced).clear()
    written = await fenced.change_leadership(changes)
    assert written.conflicts == [("t", 20)]
    assert _sizes(fenced) == [1 + 100, 1 + 20 + 40, 1 + 39]


async def test_creating_an_existing_topic_changes_nothing(fenced: FencedStore) -> None:
    await fenced.create_topic("t", TOPIC, {"a": "1"})
    with pytest.raises(KafkaError) as refused:
        await fenced.create_topic("t", TOPIC, {"a": "2"})
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert await fenced.read_topic_overrides(["t", "u"]) == {"t": {"a": "1"}, "u": {}}


async def test_leftover_overrides_are_replaced(fenced: FencedStore, store: MemoryStore) -> None:
    await store.create("/config/topics/t", b"leftover")
    await fenced.create_topic("t", TOPIC, {"a": "2"})
    assert await fenced.read_topic_overrides(["t"]) == {"t": {"a": "2"}}


async def test_removing_a_topic_removes_all_its_nodes(fenced: FencedStore, tree: MemoryTree) -> None:
    before = tree.dump()
    await fenced.create_topic("t", TOPIC, {})
    await fenced.change_leadership(_creations("t", 3))
    await fenced.request_deletion(["t"])
    await fenced.request_deletion(["t"])
    assert await fenced.remove_topics(["t"]) == {}
    assert tree.dump() == before
    assert await fenced.remove_topics(["t"]) == {}


async def test_topics_are_removed_in_one_write(fenced: FencedStore, tree: MemoryTree) -> None:
    before = tree.dump()
    names = [f"t{number}" for number in range(10)]
    for name in names:
        await fenced.create_topic(name, TOPIC, {})
        await fenced.change_leadership(_creations(name, 2))
    await fenced.request_deletion(names)
    assert isinstance(fenced.store, CountingStore)
    fenced.store.sizes = []
    assert await fenced.remove_topics(names) == {}
    assert tree.dump() == before
    assert len(fenced.store.sizes) == 1


async def test_partly_created_topic_is_removed(fenced: FencedStore, store: MemoryStore, tree: MemoryTree) -> None:
    before = tree.dump()
    await store.create(paths.topic_path("t"), paths.encode_topic(TOPIC))
    await fenced.remove_topics(["t"])
    assert tree.dump() == before


async def test_foreign_nodes_below_a_topic_are_not_deleted(fenced: FencedStore, store: MemoryStore) -> None:
    await fenced.create_topic("t", TOPIC, {"retention.ms": "5"})
    await store.create("/brokers/topics/t/notes", b"mine")
    await fenced.create_topic("other", TOPIC, {})
    await fenced.request_deletion(["t", "other"])
    kept = await fenced.remove_topics(["t", "other"])
    assert kept.keys() == {"t"}
    assert isinstance(kept["t"], NotEmpty)
    assert await store.children("/brokers/topics") == ["t"]
    assert (await store.get("/brokers/topics/t/notes")).data == b"mine"
    assert await store.children(paths.DELETE_TOPICS) == ["t"], "the next controller goes on with it"
    assert await store.children("/config/topics") == ["t"]


@pytest.mark.parametrize("missing", ["overrides", "request", "both"])
async def test_a_topic_without_overrides_or_a_request_is_removed(
    fenced: FencedStore, store: MemoryStore, tree: MemoryTree, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Without reading a node: ZooKeeper may refuse that, and lets delete it all the same."""
    monkeypatch.delattr(MemoryStore, "get_many")
    before = tree.dump()
    await fenced.create_topic("t", TOPIC, {})
    if missing == "overrides":
        await fenced.request_deletion(["t"])
    if missing != "request":
        await store.delete(paths.config_path(paths.topic_entity("t")))
    assert await fenced.remove_topics(["t"]) == {}
    assert tree.dump() == before


async def test_nodes_with_others_below_them_are_kept(
    fenced: FencedStore, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/isr_change_notification/a", "/isr_change_notification/a/below", "/isr_change_notification/b"):
        await store.create(path)
    kept = await fenced.remove(["/isr_change_notification/a", "/isr_change_notification/b"])
    assert kept == ["/isr_change_notification/a"]
    assert await store.children("/isr_change_notification") == ["a"]
    assert "keeping /isr_change_notification/a, which has nodes of another writer below it" in caplog.text


async def test_a_removed_parent_is_created_again(
    fenced: FencedStore, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.delete(paths.DELETE_TOPICS)
    assert await fenced.children(paths.DELETE_TOPICS, lambda event: None) == []
    assert await store.children(paths.DELETE_TOPICS) == []
    assert f"creating {paths.DELETE_TOPICS}, which another writer has removed" in caplog.text


async def test_a_request_with_foreign_nodes_below_it_is_not_performed_again(
    fenced: FencedStore, store: MemoryStore
) -> None:
    path = paths.REASSIGN_PARTITIONS
    await store.create(path, b"a plan")
    await store.create(f"{path}/below")
    for _ in range(2):  # once more changes nothing, and so fires no watch
        await fenced.remove_request(path)
        node = await store.get(path)
        assert (node.data, node.stat.version) == (b"", 1)
    await store.delete(f"{path}/below")
    await fenced.remove_request(path)
    assert await store.exists(path) is None


async def test_undecodable_nodes_are_omitted(
    fenced: FencedStore, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create(paths.topic_path("bad"), b"nonsense")
    await store.create(paths.topic_path("good"), paths.encode_topic(TOPIC))
    assert await fenced.read_topics(["bad", "good", "absent"]) == {"good": TOPIC}
    assert "/brokers/topics/bad" in caplog.text
