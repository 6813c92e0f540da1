"""Offsets in the tree of the metadata store, as consumers of 0.8 find them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from broker.groups.legacy_offsets import LegacyOffsets
from controller.coordination.memory_store import MemoryStore, MemoryTree
from protocol.errors import ErrorCode, KafkaError


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(MemoryTree())
    await store.open()
    await store.create("/consumers")
    yield store
    await store.close()


async def test_a_written_offset_is_read_back(store: MemoryStore) -> None:
    offsets = LegacyOffsets(store)
    assert await offsets.read("g", "t", 0) is None
    await offsets.write("g", "t", 0, 5)
    await offsets.write("g", "t", 0, 6)
    await offsets.write("g", "t", 1, 7)
    await offsets.write("h", "t", 0, 8)
    assert await offsets.read("g", "t", 0) == 6
    assert await offsets.read("g", "t", 1) == 7
    assert await offsets.read("h", "t", 0) == 8
    assert (await store.get("/consumers/g/offsets/t/0")).data == b"6"


async def test_two_concurrent_first_writers_leave_one_offset(store: MemoryStore) -> None:
    offsets = LegacyOffsets(store)
    await asyncio.gather(*(offsets.write("g", "t", 0, offset) for offset in range(10)))
    assert await offsets.read("g", "t", 0) in range(10)


async def test_a_node_that_is_no_offset_is_an_error(store: MemoryStore) -> None:
    for path in ("/consumers/g", "/consumers/g/offsets", "/consumers/g/offsets/t"):
        await store.create(path)
    await store.create("/consumers/g/offsets/t/0", b"five")
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        await LegacyOffsets(store).read("g", "t", 0)


async def test_an_unavailable_store_is_an_error() -> None:
    store = MemoryStore(MemoryTree())
    offsets = LegacyOffsets(store)
    with pytest.raises(KafkaError):
        await offsets.read("g", "t", 0)
    with pytest.raises(KafkaError):
        await offsets.write("g", "t", 0, 1)


@pytest.mark.parametrize("group_id", ["", "a/b", "/"])
async def test_group_ids_that_are_no_node_names_are_rejected(store: MemoryStore, group_id: str) -> None:
    offsets = LegacyOffsets(store)
    for call in (offsets.read(group_id, "t", 0), offsets.write(group_id, "t", 0, 1)):
        with pytest.raises(KafkaError) as caught:
            await call
        assert caught.value.code is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("group_id", [".", ".."])
async def test_group_whose_id_no_node_can_have_has_no_offsets(store: MemoryStore, group_id: str) -> None:
    offsets = LegacyOffsets(store)
    assert await offsets.read(group_id, "t", 0) is None
    with pytest.raises(KafkaError) as caught:
        await offsets.write(group_id, "t", 0, 1)
    assert caught.value.code is ErrorCode.INVALID_GROUP_ID
