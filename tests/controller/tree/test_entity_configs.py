"""Overrides of every kind of entity, and the notifications of their changes."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.store.state_store import Node, SessionExpired, StoreUnavailable, Watch
from controller.tree import paths
from controller.tree.entity_configs import (
    ConfigChangeListener,
    all_overrides,
    change_overrides,
    check_names,
    entity_overrides,
    overrides_of_topics,
)
from controller.tree.paths import ConfigEntity
from protocol.errors import ErrorCode, KafkaError

USER = ConfigEntity((("users", "alice"),))
USER_CLIENT = ConfigEntity((("users", "alice"), ("clients", "app1")))
TOPIC = paths.topic_entity("events")


@pytest.fixture
async def controlled(store: MemoryStore) -> MemoryStore:
    """A store with a controller."""
    await store.create(paths.CONTROLLER, paths.encode_controller(1, 0))
    return store


def _set(**values: str) -> object:
    return lambda before: {**before, **values}


async def _change(store: MemoryStore, entity: ConfigEntity, **values: str) -> dict[str, str]:
    return await change_overrides(store, entity, lambda before: {**before, **values})


async def test_a_change_is_written_with_its_notification(controlled: MemoryStore, tree: MemoryTree) -> None:
    assert (await overrides_of_topics(controlled, ["events"]))["events"] == {}
    zxid = tree.zxid
    assert await _change(controlled, TOPIC, a="1") == {"a": "1"}
    assert await _change(controlled, TOPIC, b="2") == {"a": "1", "b": "2"}
    assert tree.zxid == zxid + 2, "one transaction a change"
    assert (await overrides_of_topics(controlled, ["events"]))["events"] == {"a": "1", "b": "2"}
    assert tree.dump()["/config/changes/config_change_0000000001"] == b'{"version":2,"entity_path":"topics/events"}'


@pytest.mark.parametrize(
    ("entity", "kept"),
    [(TOPIC, True), (paths.broker_entity(1), True), (paths.broker_entity(None), True), (USER, False)],
)
async def test_removing_the_last_override_deletes_nodes_of_users_clients_and_ips(
    controlled: MemoryStore, tree: MemoryTree, entity: ConfigEntity, kept: bool
) -> None:
    await _change(controlled, entity, a="1")
    await change_overrides(controlled, entity, lambda _: {})
    path = paths.config_path(entity)
    assert (path in tree.dump()) is kept
    if kept:
        assert tree.dump()[path] == b'{"version":1,"config":{}}'
    assert await entity_overrides(controlled, entity) == {}


async def test_a_user_with_clients_keeps_its_node(controlled: MemoryStore, tree: MemoryTree) -> None:
    await _change(controlled, USER_CLIENT, producer_byte_rate="1")
    assert tree.dump()["/config/users/alice"] is None
    await _change(controlled, USER, consumer_byte_rate="2")
    await change_overrides(controlled, USER, lambda _: {})
    assert await all_overrides(controlled, "users") == {USER: {}, USER_CLIENT: {"producer_byte_rate": "1"}}


async def test_nothing_changes_without_a_controller(store: MemoryStore, tree: MemoryTree) -> None:
    with pytest.raises(KafkaError) as caught:
        await _change(store, TOPIC, a="1")
    assert caught.value.code == ErrorCode.NOT_CONTROLLER
    assert tree.children("/config/topics") == []


async def test_changes_of_two_concurrent_writers_are_both_kept(
    controlled: MemoryStore, other_store: MemoryStore
) -> None:
    await asyncio.gather(
        *(_change(controlled, TOPIC, **{f"a{it}": "1"}) for it in range(3)),
        *(_change(other_store, TOPIC, **{f"b{it}": "1"}) for it in range(3)),
    )
    assert set((await overrides_of_topics(controlled, ["events"]))["events"]) == {"a0", "a1", "a2", "b0", "b1", "b2"}


async def test_edit_that_raises_changes_nothing(controlled: MemoryStore, tree: MemoryTree) -> None:
    def refuse(before: Mapping[str, str]) -> Mapping[str, str]:
        raise KafkaError(ErrorCode.INVALID_CONFIG)

    with pytest.raises(KafkaError):
        await change_overrides(controlled, TOPIC, refuse)
    assert tree.children("/config/changes") == []


@pytest.mark.parametrize("name", [".", ".."])
async def test_name_that_no_node_can_have_is_refused(controlled: MemoryStore, tree: MemoryTree, name: str) -> None:
    before = tree.dump()
    for parts in ((("users", name),), (("clients", name),), (("users", "alice"), ("clients", name))):
        with pytest.raises(KafkaError) as caught:
            await _change(controlled, ConfigEntity(parts), a="1")
        assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert tree.dump() == before
    check_names(paths.own_entity(paths.GROUPS_TYPE, name))  # the embedded store accepts it


async def _settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_listener_is_called_for_each_change_in_order(controlled: MemoryStore, other_store: MemoryStore) -> None:
    await _change(controlled, USER, a="1")
    heard: list[ConfigEntity] = []
    listener = ConfigChangeListener(other_store, heard.append)
    await listener.start()
    assert heard == []
    await asyncio.gather(*(_change(controlled, paths.topic_entity(f"t{it}"), a="1") for it in range(5)))
    await _settle()
    assert heard == [paths.topic_entity(f"t{it}") for it in range(5)]
    await controlled.create(paths.CONFIG_CHANGE_PREFIX, b"nonsense", sequential=True)
    await _change(controlled, TOPIC, a="1")
    await _settle()
    assert heard[5:] == [TOPIC]
    listener.stop()
    await _change(controlled, TOPIC, a="2")
    await _settle()
    assert heard[6:] == []


async def test_a_change_that_cannot_be_applied_does_not_stop_the_listener(controlled: MemoryStore) -> None:
    heard: list[ConfigEntity] = []

    async def apply(entity: ConfigEntity) -> None:
        heard.append(entity)
        raise ValueError("cannot")

    listener = ConfigChangeListener(controlled, apply)
    await listener.start()
    for _ in range(2):
        await _change(controlled, TOPIC, a="1")
        await _settle()
    assert heard == [TOPIC, TOPIC]
    listener.stop()


async def test_old_notifications_are_purged_by_readers(controlled: MemoryStore, tree: MemoryTree) -> None:
    """By the clock of the store: a broker whose own clock is ahead leaves the newest ones to the others."""
    await _change(controlled, TOPIC, a="1")
    listener = ConfigChangeListener(controlled, lambda _: None)
    await listener.start()
    assert len(tree.children("/config/changes")) == 1
    kept = ["config_change_0000000000", "config_change_0000000001"]
    for value, minutes, expected in (("2", 14, kept), ("3", 2, [kept[1], "config_change_0000000002"])):
        tree.now_ms += minutes * 60_000
        await _change(controlled, TOPIC, a=value)
        await _settle()
        assert tree.children("/config/changes") == expected
    listener.stop()


class Refusing(MemoryStore):
    """Refuses to read some nodes, as ZooKeeper does with a node whose ACL excludes the broker."""

    refused: frozenset[str] = frozenset()
    reads = 0

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        self.reads += 1
        if self.refused & set(paths):
            raise StoreUnavailable(f"ZooKeeper refuses {min(self.refused & set(paths))}")
        return await super().get_many(paths, watch)


async def test_topics_whose_overrides_cannot_be_read_are_left_out(
    tree: MemoryTree, caplog: pytest.LogCaptureFixture
) -> None:
    store = Refusing(tree)
    await store.open()
    topics = [f"t{number}" for number in range(64)]
    store.refused = frozenset(f"/config/topics/{topic}" for topic in ("t5", "t40"))
    found = await overrides_of_topics(store, topics)
    assert sorted(topics) == sorted([*found, "t5", "t40"])
    assert store.reads < 30, "one refused node costs a logarithmic number of reads"
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "cannot read the overrides of topic t5",
        "cannot read the overrides of topic t40",
    ]


async def test_overrides_are_not_guessed_in_an_expired_session(tree: MemoryTree) -> None:
    store = MemoryStore(tree)
    await store.open()
    store.lose_session_silently()
    with pytest.raises(SessionExpired):
        await overrides_of_topics(store, ["a", "b"])


async def test_overrides_that_no_node_can_have_are_refused(controlled: MemoryStore) -> None:
    await _change(controlled, TOPIC, a="1")
    with pytest.raises(KafkaError) as refused:
        await _change(controlled, TOPIC, b="x" * (1 << 20))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert (await overrides_of_topics(controlled, ["events"]))["events"] == {"a": "1"}
