"""Brokers of one cluster whose sessions end."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.tree import paths
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.cluster.test_control_channels import create, produce
from tests.support.in_process_cluster import InProcessCluster, running_cluster, until


def _epoch(cluster: InProcessCluster, broker_id: int) -> int:
    entry = cluster.tree.entries.get(paths.broker_path(broker_id))
    return -1 if entry is None else entry.czxid


async def test_broker_whose_session_expired_is_registered_again_and_leads(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2)) as cluster:
        await create(cluster, "t", [2])
        before = _epoch(cluster, 2)
        cluster.stores[2].expire()
        await until(lambda: _epoch(cluster, 2) > before)
        await cluster.see_each_other()
        await until(lambda: cluster.services(1).metadata_cache.leader_of("t", 0) == 2)
        await until(lambda: cluster.services(2).metadata_cache.leader_of("t", 0) == 2)
        assert await produce(cluster.brokers[2], "t", 0) == ErrorCode.NONE


async def test_another_broker_becomes_controller_when_the_session_of_the_controller_expires(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2)) as cluster:
        await create(cluster, "t", [1])
        cluster.stores[1].expire()
        await until(lambda: any(one.services.controller.epoch == 2 for one in cluster.brokers.values()))
        await cluster.see_each_other()
        assert sum(one.services.controller.is_active for one in cluster.brokers.values()) == 1
        await until(lambda: cluster.services(2).metadata_cache.leader_of("t", 0) == 1)
        await create(cluster, "later", [2])


async def test_setting_that_changed_while_the_session_was_over_takes_effect(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, (1, 2)) as cluster:
        await create(cluster, "t", [2])
        before = _epoch(cluster, 2)
        # Without a notification, as if it had been deleted before the broker could read it.
        data = paths.encode_config({"flush.messages": "7"})
        await cluster.stores[1].set(paths.config_path(paths.topic_entity("t")), data)
        cluster.stores[2].expire()
        await until(lambda: _epoch(cluster, 2) > before)
        configs = cluster.services(2).topic_configs
        await until(lambda: configs.effective("t").flush_messages == 7)


async def test_client_does_not_wait_for_an_internal_topic_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.cluster.topics.AUTOMATIC_CREATION_WAIT_MS", 20)
    async with running_cluster(tmp_path, (1,)) as cluster:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        cluster.stores[1].pause()
        for _ in range(2):
            response = await cluster.brokers[1].ask(request)
            assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        cluster.stores[1].resume()
        await until(lambda: "__consumer_offsets" in cluster.services(1).metadata_cache.topics)
        response = await cluster.brokers[1].ask(request)
        assert not response.coordinators[0].error_code
