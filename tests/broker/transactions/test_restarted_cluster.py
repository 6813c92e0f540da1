"""A decided transaction outlives a restart of all brokers, whichever order they return in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.coordination.memory_store import MemoryStore
from controller.store.state_store import Node, Watch
from protocol.errors import ErrorCode
from tests.broker.cluster.test_control_channels import create
from tests.broker.transactions.test_across_brokers import Producer, last_stable_offset, pause
from tests.support.in_process_cluster import running_cluster, until


def _slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each read of the store take a round trip, as with ZooKeeper."""
    get_many = MemoryStore.get_many

    async def get_many_later(self: MemoryStore, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        await asyncio.sleep(0.02)
        return await get_many(self, paths, watch)

    monkeypatch.setattr(MemoryStore, "get_many", get_many_later)


async def test_marker_waits_for_a_partition_whose_only_broker_returns_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "t", [1], [2])
        await until(lambda: all(cluster.services(each).metadata_cache.has_leaders("t", 2) for each in (1, 2)))
        names = iter("abcdefgh")
        producer = Producer(cluster, next(names))
        while await producer.begin() != 1:
            producer = Producer(cluster, next(names))
        await producer.add(0, 1)
        for partition in (0, 1):
            assert await producer.produce(partition) == ErrorCode.NONE
        await cluster.stop(2)
        await producer.end(is_committed=True)
        await cluster.stop(1)
        _slow_down(monkeypatch)
        await cluster.start(1)
        await until(lambda: not cluster.services(1).transactions.partitions.are_loading())
        await cluster.start(2)
        await cluster.see_each_other()

        async def is_stable() -> None:
            for partition in (0, 1):
                while await last_stable_offset(cluster, partition) < 2:
                    await pause()

        await asyncio.wait_for(is_stable(), 5)
