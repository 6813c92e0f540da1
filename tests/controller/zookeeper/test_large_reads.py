"""Nodes that are too large, or whose paths are too long, to be read in one request."""

import asyncio
import logging
import uuid
from pathlib import Path

import pytest

from controller.coordination.settings import CoordinationSettings
from controller.zookeeper.settings import ZooKeeperSettings
from controller.zookeeper.store import ZooKeeperStore
from tests.support.coordination import coordination

DEADLINE_S = 20.0
PATH_BYTES_MAX = 200_000
"""As of the client of a user in a quota, whose names are quoted."""


@pytest.mark.parametrize("server_name", ["zookeeper_server", "coordination_server"])
async def test_long_paths_are_divided_among_requests_that_the_server_accepts(
    server_name: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(server_name)
    store = ZooKeeperStore(ZooKeeperSettings(f"{server.connect}/{uuid.uuid4()}"))
    await store.open()
    await store.create("/ä" + "ü" * 10_000, b"x")
    missing = ["/" + "ü" * ((PATH_BYTES_MAX - 1) // 2)] * 40
    async with asyncio.timeout(DEADLINE_S):
        nodes = await store.get_many([*missing, "/ä" + "ü" * 10_000, *missing])
    assert [node and node.data for node in nodes] == [None] * 40 + [b"x"] + [None] * 40
    await store.close()


async def test_nodes_that_exceed_one_response_are_read_one_by_one(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = CoordinationSettings(memory_path / "coordination.sqlite", outstanding_bytes_max=100_000)
    with coordination(settings) as server:
        store = ZooKeeperStore(ZooKeeperSettings(server.connect))
        await store.open()
        paths = [f"/n{number}" for number in range(5)]
        for path in paths:
            await store.create(path, path.encode() * 20_000)
        async with asyncio.timeout(DEADLINE_S):
            nodes = await store.get_many([*paths, "/missing"])
            assert [node and node.data for node in nodes] == [*(path.encode() * 20_000 for path in paths), None]
            assert "they are read one by one" in caplog.text
            caplog.clear()
            nodes = await store.get_many(paths[:1] + ["/missing"] * 50)
            assert [node is None for node in nodes] == [False] + [True] * 50
        assert "they are read one by one" not in caplog.text
        await store.close()
