"""Registration: rejected ids, chosen ids, and several brokers that start at the same time."""

import asyncio
from random import Random

import pytest

from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.machine.model import Broker, Endpoint
from controller.tree import paths
from controller.tree.registration import (
    BrokerRegistration,
    IdentityError,
    check_cluster_id,
    choose_broker_id,
    ensure_cluster_id,
    ensure_paths,
    register_broker,
)

REGISTRATION = BrokerRegistration(Broker(1, (Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),)), timestamp_ms=5)


async def test_first_start_creates_the_tree_of_kafka(tree: MemoryTree) -> None:
    store = MemoryStore(tree)
    await store.open()
    await ensure_cluster_id(store, Random(1))
    assert set(tree.dump()) == {
        "/", "/admin", "/admin/delete_topics", "/brokers", "/brokers/ids", "/brokers/seqid", "/brokers/topics",
        "/cluster", "/cluster/id", "/config", "/config/brokers", "/config/changes", "/config/clients", "/config/ips",
        "/config/topics", "/config/users", "/consumers", "/isr_change_notification", "/latest_producer_id_block",
        "/log_dir_event_notification",
    }  # fmt: skip
    assert [path for path, data in tree.dump().items() if data is not None] == ["/cluster/id"]


async def test_brokers_that_start_together_agree(tree: MemoryTree) -> None:
    stores = [MemoryStore(tree) for _ in range(4)]
    for store in stores:
        await store.open()
    ids = await asyncio.gather(*(ensure_cluster_id(store, Random(number)) for number, store in enumerate(stores)))
    assert len(set(ids)) == 1
    assert len(ids[0]) == 22


async def test_no_cluster_id_is_generated_for_data_of_another_cluster(tree: MemoryTree) -> None:
    store = MemoryStore(tree)
    await store.open()
    with pytest.raises(IdentityError, match="belong to cluster one"):
        await ensure_cluster_id(store, Random(1), stored="one")
    assert await store.exists(paths.CLUSTER_ID) is None
    made_up = await ensure_cluster_id(store, Random(1))
    assert await ensure_cluster_id(store, Random(1), stored="one") == made_up


async def test_missing_roots_are_created_next_to_existing_ones(tree: MemoryTree) -> None:
    store = MemoryStore(tree)
    await store.open()
    await store.create("/brokers")
    await ensure_paths(store)
    await ensure_paths(store)
    assert await store.exists("/brokers/ids") is not None


@pytest.mark.parametrize(
    ("configured", "stored", "generation_enabled", "chosen"),
    [
        (0, None, True, 0),
        (7, 7, True, 7),
        (-1, 7, True, 7),
        (-1, 1005, False, 1005),
        (5000, None, False, 5000),
        (-1, None, True, 1001),
    ],
)
async def test_broker_id_is_configured_stored_or_generated(
    store: MemoryStore, configured: int, stored: int | None, generation_enabled: bool, chosen: int
) -> None:
    assert (
        await choose_broker_id(
            store,
            configured=configured,
            stored=stored,
            generation_enabled=generation_enabled,
            reserved_id_max=1000,
        )
        == chosen
    )


async def test_generated_ids_differ(store: MemoryStore) -> None:
    ids = [
        await choose_broker_id(store, configured=-1, stored=None, generation_enabled=True, reserved_id_max=1000)
        for _ in range(3)
    ]
    assert ids == [1001, 1002, 1003]


@pytest.mark.parametrize(
    ("configured", "stored", "generation_enabled", "why"),
    [
        (1, 2, True, "belong to broker 2"),
        (1001, None, True, "expected 0 to 1000"),
        (-1, None, False, "broker.id is not set"),
    ],
)
async def test_contradicting_broker_ids_are_rejected(
    store: MemoryStore, configured: int, stored: int | None, generation_enabled: bool, why: str
) -> None:
    with pytest.raises(IdentityError, match=why):
        await choose_broker_id(
            store,
            configured=configured,
            stored=stored,
            generation_enabled=generation_enabled,
            reserved_id_max=1000,
        )


def test_data_of_another_cluster_is_rejected() -> None:
    check_cluster_id(stored=None, cluster_id="a")
    check_cluster_id(stored="a", cluster_id="a")
    with pytest.raises(IdentityError, match="belong to cluster b"):
        check_cluster_id(stored="b", cluster_id="a")


async def test_broker_epoch_is_the_czxid_of_the_node_and_increases(store: MemoryStore, tree: MemoryTree) -> None:
    epoch = await register_broker(store, REGISTRATION)
    entry = tree.entries["/brokers/ids/1"]
    assert (entry.czxid, entry.version, entry.owner) == (epoch, 1, store.session_id)
    assert await register_broker(store, REGISTRATION) == epoch, "the response was lost"
    await store.close()
    await store.open()
    assert await register_broker(store, REGISTRATION) > epoch


async def test_an_id_belongs_to_one_broker(store: MemoryStore, other_store: MemoryStore) -> None:
    await register_broker(store, REGISTRATION)
    with pytest.raises(IdentityError, match="id 1 is already registered"):
        await register_broker(other_store, REGISTRATION)


async def test_registration_of_the_previous_session_is_replaced(store: MemoryStore, other_store: MemoryStore) -> None:
    epoch = await register_broker(store, REGISTRATION)
    again = await register_broker(other_store, REGISTRATION, previous_session_id=store.session_id)
    assert again > epoch
