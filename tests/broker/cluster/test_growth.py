"""A cluster to which a broker is added, and one from which an operator has removed a topic by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from controller.coordination.memory_store import MemoryStore
from controller.tree import paths
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until


async def create(cluster: InProcessCluster, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=2, assignments=[], configs=[])
    response = await cluster.controller.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert not response.topics[0].error_code, response
    await until(
        lambda: all(it.services.metadata_cache.has_leaders(name, partitions) for it in cluster.brokers.values())
    )


async def described(cluster: InProcessCluster) -> dict[str, MetadataResponseTopic]:
    response = await cluster.brokers[1].ask(MetadataRequest(topics=None))
    return {topic.name: topic for topic in response.topics}


def replicas_of(topic: MetadataResponseTopic) -> list[list[int]]:
    return [each.replica_nodes for each in topic.partitions]


async def test_an_added_broker_gets_replicas_of_new_topics_alone(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "old", 4)
        before = replicas_of((await described(cluster))["old"])
        await cluster.start(3)
        await cluster.see_each_other()
        assert not folders(tmp_path / "3", "old"), "it joins without data"
        await create(cluster, "new", 6)
        found = await described(cluster)
        assert replicas_of(found["old"]) == before
        counts = [sum(broker_id in each for each in replicas_of(found["new"])) for broker_id in (1, 2, 3)]
        assert counts == [4, 4, 4]


def folders(log_dir: Path, topic: str) -> list[Path]:
    return list(log_dir.glob(f"{topic}-*"))


async def _remove(store: MemoryStore, path: str) -> None:
    for child in await store.children(path):
        await _remove(store, f"{path}/{child}")
    await store.delete(path)


async def test_a_topic_that_was_removed_by_hand_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All brokers are stopped; the topic's nodes and directories are removed; the brokers start without an error."""
    async with running_cluster(tmp_path) as cluster:
        await create(cluster, "gone", 2)
        await create(cluster, "kept", 2)
        await cluster.stop_all()
        store = MemoryStore(cluster.tree)
        await store.open()
        await _remove(store, paths.topic_path("gone"))
        await store.close()
        for broker_id in (1, 2):
            for folder in folders(tmp_path / str(broker_id), "gone"):
                shutil.rmtree(folder)
        caplog.clear()
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        await cluster.see_each_other()
        await until(lambda: all(it.services.metadata_cache.has_leaders("kept", 2) for it in cluster.brokers.values()))
        assert {*await described(cluster)} == {"kept"}
        assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
        response = await cluster.brokers[1].ask(MetadataRequest(topics=None))
        assert response.topics[0].error_code == ErrorCode.NONE
        await create(cluster, "gone", 3)
        assert len((await described(cluster))["gone"].partitions) == 3
