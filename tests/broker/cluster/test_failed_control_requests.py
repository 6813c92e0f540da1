"""LeaderAndIsr requests that a broker cannot apply as a whole: the controller sends the states again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.store.state_store import Node, StateStore, StoreUnavailable, Watch
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic
from tests.support.in_process_cluster import running_cluster, until


def refuse(store: StateStore, monkeypatch: pytest.MonkeyPatch, error: Exception, count: int) -> None:
    """Let the next `count` reads of topic overrides fail."""
    original, left = store.get_many, [error] * count

    async def get_many(paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        if left and any(path.startswith("/config/topics/") for path in paths):
            raise left.pop()
        return await original(paths, watch)

    monkeypatch.setattr(store, "get_many", get_many)


@pytest.mark.parametrize("leader", [1, 2], ids=["the controller", "another broker"])
@pytest.mark.parametrize("error", [OSError("a defect"), StoreUnavailable("ZooKeeper refuses the node")])
async def test_partitions_are_served_although_the_first_request_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: int, error: Exception
) -> None:
    async with running_cluster(tmp_path, (1, 2)) as cluster:
        controller = cluster.controller.services.controller
        assert controller.broker_id == 1
        refuse(cluster.stores[leader], monkeypatch, error, 3)
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[leader])
        topics = [
            CreatableTopic(
                name=f"t{it}", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
            )
            for it in range(2)
        ]
        await controller.create_topics(topics)
        find, names = cluster.services(leader).replica_manager.find, ("t0", "t1")
        await until(lambda: all((found := find(name, 0)) is not None and found.is_leader for name in names))
