"""LeaderAndIsr, StopReplica and UpdateMetadata in every version: the same effect, and the layout of their responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from protocol.api import APIS
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.schema import ZERO_UUID
from tests.fuzz.valid_requests import CONTROLLER_EPOCH, build
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.recorded import BROKER_FRAMES, read_lines

TOPIC_ID = UUID(int=77)
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = (APIS[key] for key in (4, 5, 6))
BY_ID_SINCE = 5


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path) as running:
        yield running


def of_controller(version: int, cls: Any, **fields: Any) -> Any:
    common = {"controller_id": 0, "controller_epoch": CONTROLLER_EPOCH, "broker_epoch": -1}
    return build(cls, {**common, **fields}, version)


def leader_and_isr(version: int, epoch: int, name: str = "t", topic_id: UUID = TOPIC_ID) -> LeaderAndIsrRequest:
    state = {
        "topic_name": name,
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": 0,
        "leader_epoch": epoch,
        "isr": [0],
        "partition_epoch": epoch,
        "replicas": [0],
        "is_new": True,
    }
    grouped = [{"topic_name": name, "topic_id": topic_id, "partition_states": [{**state, "topic_name": ""}]}]
    request: LeaderAndIsrRequest = of_controller(
        version, LeaderAndIsrRequest, ungrouped_partition_states=[state], topic_states=grouped, live_leaders=[]
    )
    return request


def codes_of(response: Any, version: int) -> list[tuple[object, int, int]]:
    """The topic, the partition and the code of each partition in a LeaderAndIsr response."""
    if version < BY_ID_SINCE:
        return [(each.topic_name, each.partition_index, each.error_code) for each in response.partition_errors]
    return [
        (topic.topic_id, each.partition_index, each.error_code)
        for topic in response.topics
        for each in topic.partition_errors
    ]


@pytest.mark.parametrize("version", LEADER_AND_ISR.versions)
async def test_leader_and_isr_makes_the_broker_leader(broker: InProcessBroker, version: int) -> None:
    topic: object = TOPIC_ID if version >= BY_ID_SINCE else "t"
    response = await broker.ask(leader_and_isr(version, 3), version)
    assert codes_of(response, version) == [(topic, 0, ErrorCode.NONE)]
    partition = broker.services.replica_manager.find("t", 0)
    assert partition is not None
    assert partition.is_leader
    assert partition.leader_epoch == 3
    assert partition.topic_id == (TOPIC_ID if version >= BY_ID_SINCE else None)
    response = await broker.ask(leader_and_isr(version, 2), version)
    assert codes_of(response, version) == [(topic, 0, ErrorCode.STALE_CONTROLLER_EPOCH)]


async def test_topic_is_found_by_an_id_that_was_learned_later(broker: InProcessBroker) -> None:
    """The next controller may tell no ids, so that the metadata has none, while followers still fetch by the id."""
    await broker.ask(leader_and_isr(4, 3), 4)
    await broker.ask(leader_and_isr(7, 3), 7)
    assert broker.services.replica_manager.topic_of(TOPIC_ID) == "t"


async def test_log_that_may_lie_in_an_offline_directory_is_not_replaced(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 0 does not say whether a partition is new, and the first state may be that of an old one."""
    monkeypatch.setattr(type(broker.services.log_manager.directories), "has_offline", True)
    response = await broker.ask(leader_and_isr(0, 0), 0)
    assert codes_of(response, 0) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert broker.services.log_manager.get("t", 0) is None


@pytest.mark.parametrize("version", LEADER_AND_ISR.versions)
@pytest.mark.parametrize("name", ["../t", "a/b", ".", "x" * 30_000, ""], ids=["up", "slash", "dot", "long", "empty"])
async def test_name_that_leads_out_of_the_log_directory_is_refused(
    broker: InProcessBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int, name: str
) -> None:
    before = sorted(tmp_path.parent.iterdir())
    response = await broker.ask(leader_and_isr(version, 3, name), version)
    assert [code for _, _, code in codes_of(response, version)] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    (line,) = [record.getMessage() for record in caplog.records if "ignoring topic" in record.getMessage()]
    assert len(line) < 500
    assert sorted(tmp_path.parent.iterdir()) == before
    response = await broker.ask(leader_and_isr(version, 3), version)
    assert [code for _, _, code in codes_of(response, version)] == [ErrorCode.NONE], "the directory is still usable"


async def test_topic_of_an_earlier_id_is_refused(broker: InProcessBroker) -> None:
    version = LEADER_AND_ISR.versions[-1]
    await broker.ask(leader_and_isr(version, 3), version)
    for topic_id, code in ((UUID(int=78), ErrorCode.INCONSISTENT_TOPIC_ID), (ZERO_UUID, ErrorCode.NONE)):
        response = await broker.ask(leader_and_isr(version, 4, topic_id=topic_id), version)
        assert codes_of(response, version) == [(topic_id, 0, code)]


@pytest.mark.parametrize("version", STOP_REPLICA.versions)
@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "kept"])
async def test_stop_replica_stops_and_deletes(broker: InProcessBroker, version: int, *, is_deleted: bool) -> None:
    await broker.ask(leader_and_isr(7, 3), 7)
    state = {"partition_index": 0, "leader_epoch": 3, "delete_partition": is_deleted}
    request: StopReplicaRequest = of_controller(
        version,
        StopReplicaRequest,
        delete_partitions=is_deleted,
        ungrouped_partitions=[{"topic_name": "t", "partition_index": 0}],
        topics=[{"name": "t", "partition_indexes": [0]}],
        topic_states=[{"topic_name": "t", "partition_states": [state]}],
    )
    response = await broker.ask(request, version)
    assert [(each.topic_name, each.partition_index, each.error_code) for each in response.partition_errors] == [
        ("t", 0, ErrorCode.NONE)
    ]
    partition = broker.services.replica_manager.find("t", 0)
    assert (partition is None) == is_deleted
    assert partition is None or not partition.is_leader


@pytest.mark.parametrize("version", UPDATE_METADATA.versions)
async def test_update_metadata_replaces_brokers_and_adds_topics(broker: InProcessBroker, version: int) -> None:
    state = {
        "topic_name": "t",
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": 5,
        "leader_epoch": 2,
        "isr": [5],
        "zk_version": 4,
        "replicas": [5, 6],
    }
    endpoint = {"port": 92, "host": "five", "listener": "PLAINTEXT", "security_protocol": 0}
    request: UpdateMetadataRequest = of_controller(
        version,
        UpdateMetadataRequest,
        ungrouped_partition_states=[state],
        topic_states=[{"topic_name": "t", "topic_id": TOPIC_ID, "partition_states": [{**state, "topic_name": ""}]}],
        live_brokers=[{"id": 5, "v0_host": "five", "v0_port": 92, "endpoints": [endpoint], "rack": "r"}],
    )
    assert (await broker.ask(request, version)).error_code == ErrorCode.NONE
    metadata = broker.services.metadata_cache
    assert {each: node.endpoints for each, node in metadata.brokers.items()} == {5: {"PLAINTEXT": ("five", 92)}}
    assert (metadata.leader_of("t", 0), metadata.leader_epoch_of("t", 0)) == (5, 2)


async def test_requests_of_kafka_are_applied(tmp_path: Path) -> None:
    """Every recorded control request, also those of inter.broker.protocol.version 2.6, to a broker of the same id."""
    lines = [line for line in read_lines(BROKER_FRAMES) if line["api_key"] in (4, 5, 6)]
    assert len({(line["api_key"], line["api_version"]) for line in lines}) == 6
    for number, line in enumerate(lines):
        overrides = {"broker.id": str(line["to_broker"])}
        async with running_broker(tmp_path / str(number), overrides) as broker:
            response = await broker.send(bytes.fromhex(line["request_hex"]), broker.channel)
            assert response is not None
            assert broker.dispatcher.unexpected_error_count == 0
            code = b"".join(map(bytes, response))[4 + 4 + (line["header_version"] == 2) :][:2]
            assert int.from_bytes(code, "big") == ErrorCode.NONE, line["scenario"]
