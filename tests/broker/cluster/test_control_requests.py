"""Control requests: those of a replaced controller, or for an earlier registration of this broker, are rejected."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from broker.cluster.control_requests import ControlDoor
from broker.cluster.metadata_cache import LEADER_OF_DELETED_TOPIC, MetadataCache
from broker.cluster.topic_configs import TopicConfigs
from broker.loop.slices import SlicedWork
from broker.loop.subscribers import Subscribers
from broker.loop.timer import Timer
from config.broker import BrokerConfig
from controller.active.broker_channels import ControlRequest
from protocol.errors import ErrorCode
from protocol.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from protocol.messages.update_metadata import (
    UPDATE,
    UPDATE_OF_ALL,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.schema import ZERO_UUID
from storage.disk.files import OsFiles
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from tests.support.manual_clock import ManualClock
from tests.support.replicas import Replicas

ME = 0
TOPIC_ID = UUID(int=7)
OWN_EPOCH = 40


class Door:
    """A broker that is registered with OWN_EPOCH, and a controller that sends it requests."""

    def __init__(self, folder: Path) -> None:
        self.own_epoch = OWN_EPOCH
        config = BrokerConfig.from_properties({})
        logs = LogManager(
            [str(folder)],
            LogManagerSettings(),
            OsFiles(),
            random=Random(),
            new_threads=ThreadPoolExecutor,
            on_directory_failed=lambda *_: None,
        )
        logs.startup.open()
        configs = TopicConfigs(config, _no_overrides)
        self.metadata = MetadataCache("cluster")
        self.manager = Replicas(ME, logs, Timer(), configs.effective)
        self.reported: list[set[str]] = []
        changes = Subscribers[[set[str]]]()
        changes.subscribe(self.reported.append)
        clock = ManualClock()
        sliced_work = SlicedWork(clock.monotonic_ms)
        self.door = ControlDoor(
            clock,
            self.metadata,
            self.manager,
            self.manager.assigned,
            configs,
            self._read_partition_counts,
            sliced_work,
            ThreadPoolExecutor(1),
            lambda: self.own_epoch,
            changes,
        )
        self.partition_counts: dict[str, int] = {}
        """What the metadata store declares."""
        self.counts_read: list[list[str]] = []
        self.leader_epoch = 0

    async def send(
        self,
        kind: type[ControlRequest],
        controller_epoch: int,
        broker_epoch: int = OWN_EPOCH,
        *,
        is_of_kraft: bool = False,
    ) -> ErrorCode:
        """A request about t-0 that changes something, if it is applied; the error of the whole response."""
        self.leader_epoch += 1
        request = self._request(kind)
        request.is_kraft_controller = is_of_kraft
        request.controller_epoch, request.broker_epoch = controller_epoch, broker_epoch
        before = self._state()
        response = await self.door.submit(request)
        is_applied = self._state() != before
        assert is_applied == (response.error_code == ErrorCode.NONE)
        return ErrorCode(response.error_code)

    async def _read_partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        self.counts_read.append(list(topics))
        return {topic: self.partition_counts[topic] for topic in topics if topic in self.partition_counts}

    def _request(self, kind: type[ControlRequest]) -> ControlRequest:
        if kind is LeaderAndIsrRequest:
            state = LeaderAndIsrPartitionState(
                partition_index=0,
                controller_epoch=0,
                leader=ME,
                leader_epoch=self.leader_epoch,
                isr=[ME],
                partition_epoch=self.leader_epoch,
                replicas=[ME],
            )
            return LeaderAndIsrRequest(
                controller_id=3,
                controller_epoch=0,
                topic_states=[LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])],
                live_leaders=[],
            )
        if kind is StopReplicaRequest:
            stopped = StopReplicaPartitionState(partition_index=0, delete_partition=True)
            return StopReplicaRequest(
                controller_id=3,
                controller_epoch=0,
                topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[stopped])],
            )
        known = UpdateMetadataPartitionState(
            partition_index=0,
            controller_epoch=0,
            leader=ME,
            leader_epoch=self.leader_epoch,
            isr=[ME],
            zk_version=0,
            replicas=[ME],
        )
        return UpdateMetadataRequest(
            controller_id=3,
            controller_epoch=0,
            topic_states=[UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[known])],
            live_brokers=[],
        )

    def _state(self) -> tuple[object, ...]:
        hosted = self.manager.find("t", 0)
        leader_epoch = None if hosted is None else hosted.leader_epoch
        return leader_epoch, self.metadata.leader_epoch_of("t", 0), len(self.reported)


async def _no_overrides(topics: Sequence[str]) -> dict[str, dict[str, str]]:
    return {topic: {} for topic in topics}


@pytest.fixture
async def door(tmp_path: Path) -> Door:
    """It has seen a controller of epoch 5."""
    opened = Door(tmp_path / "data")
    assert await opened.send(LeaderAndIsrRequest, 5) == ErrorCode.NONE
    return opened


KINDS = [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest]


@pytest.mark.parametrize("kind", KINDS)
async def test_request_of_a_replaced_controller_changes_nothing(door: Door, kind: type[ControlRequest]) -> None:
    assert await door.send(kind, 4) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert await door.send(kind, 5) == ErrorCode.NONE


@pytest.mark.parametrize("kind", KINDS)
async def test_request_of_a_controller_of_kraft_is_refused_by_name(
    door: Door, kind: type[ControlRequest], caplog: pytest.LogCaptureFixture
) -> None:
    """And its epoch fences no controller."""
    assert await door.send(kind, 9, is_of_kraft=True) == ErrorCode.INVALID_REQUEST
    assert f"refusing a {kind.__name__} of controller 3, which is of KRaft" in caplog.text
    assert await door.send(kind, 5) == ErrorCode.NONE


@pytest.mark.parametrize("newer", KINDS)
@pytest.mark.parametrize("older", KINDS)
async def test_each_kind_of_request_fences_older_controllers_for_all(
    door: Door, newer: type[ControlRequest], older: type[ControlRequest]
) -> None:
    assert await door.send(newer, 6) == ErrorCode.NONE
    assert await door.send(older, 5) == ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("broker_epoch", "expected"),
    [
        (OWN_EPOCH - 1, ErrorCode.STALE_BROKER_EPOCH),
        (OWN_EPOCH, ErrorCode.NONE),
        (OWN_EPOCH + 1, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
    ids=["of an earlier start", "own", "the controller knows first", "of a controller that knows none"],
)
async def test_requests_for_an_earlier_start_of_the_broker_change_nothing(
    door: Door, kind: type[ControlRequest], broker_epoch: int, expected: ErrorCode
) -> None:
    assert await door.send(kind, 5, broker_epoch) == expected


async def test_a_request_for_an_earlier_start_fences_no_controller(door: Door) -> None:
    assert await door.send(UpdateMetadataRequest, 9, OWN_EPOCH - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert await door.send(UpdateMetadataRequest, 5) == ErrorCode.NONE


async def test_broker_epochs_are_not_checked_before_registration(door: Door) -> None:
    door.own_epoch = -1
    assert await door.send(UpdateMetadataRequest, 5, 0) == ErrorCode.NONE


async def test_failure_is_logged_although_the_caller_was_cancelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    unhandled: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    door = Door(tmp_path)

    async def fail(request: ControlRequest) -> None:
        await asyncio.sleep(0)
        raise OSError("no store")

    monkeypatch.setattr(door.door, "_load_configs", fail)
    submitting = asyncio.ensure_future(door.door.submit(door._request(LeaderAndIsrRequest)))
    await asyncio.sleep(0)
    submitting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    assert not unhandled
    assert "no store" in caplog.text


async def update(door: Door, kind: int, **partitions: int) -> None:
    """Send an UpdateMetadata with topics of this many partitions."""
    topics = [
        UpdateMetadataTopicState(
            topic_name=topic,
            topic_id=UUID(int=number),
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=5,
                    leader=ME,
                    leader_epoch=0,
                    isr=[ME],
                    zk_version=0,
                    replicas=[ME],
                )
                for index in range(count)
            ],
        )
        for number, (topic, count) in enumerate(partitions.items(), 1)
    ]
    request = UpdateMetadataRequest(
        controller_id=3, type=kind, controller_epoch=5, broker_epoch=OWN_EPOCH, topic_states=topics, live_brokers=[]
    )
    assert (await door.door.submit(request)).error_code == ErrorCode.NONE


async def test_update_of_all_partitions_removes_the_others(door: Door) -> None:
    await update(door, UPDATE, kept=1, shorter=3, gone=2)
    await update(door, UPDATE, kept=2)
    assert sorted(door.metadata.topics) == ["gone", "kept", "shorter"]
    door.reported.clear()
    await update(door, UPDATE_OF_ALL, kept=2, shorter=1)
    assert {topic: sorted(it.partitions) for topic, it in door.metadata.topics.items()} == {
        "kept": [0, 1],
        "shorter": [0],
    }
    assert door.reported == [{"kept", "shorter", "gone"}]
    assert door.metadata.name_of(UUID(int=3)) is None
    await update(door, UPDATE_OF_ALL)
    assert door.metadata.topics == {}


@pytest.mark.parametrize(
    ("leader_epoch", "replicas", "topic_id", "leads"),
    [
        (2, [1, 2], TOPIC_ID, False),
        (2, [ME, 1], TOPIC_ID, True),
        (1, [1, 2], TOPIC_ID, True),
        (0, [1, 2], UUID(int=8), False),
        (0, [1, 2], ZERO_UUID, True),
    ],
)
async def test_replica_that_a_later_epoch_or_topic_assigns_elsewhere_is_stopped(
    door: Door, leader_epoch: int, replicas: list[int], topic_id: UUID, leads: bool
) -> None:
    """As after a move that was completed while this broker was not registered, or after the topic was created anew."""
    hosted = door.manager.find("t", 0)
    assert hosted is not None
    assert (hosted.is_leader, hosted.leader_epoch) == (True, 1)
    state = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=5,
        leader=1,
        leader_epoch=leader_epoch,
        isr=[1],
        zk_version=0,
        replicas=replicas,
    )
    request = UpdateMetadataRequest(
        controller_id=3,
        controller_epoch=5,
        broker_epoch=OWN_EPOCH,
        topic_states=[UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])],
        live_brokers=[],
    )
    await door.door.submit(request)
    assert hosted.is_leader is leads
    door.leader_epoch = 2
    assert await door.send(LeaderAndIsrRequest, 5) == ErrorCode.NONE
    assert hosted.is_leader, "assigned to this broker again"


async def send_metadata(
    door: Door, topic: str, partitions: range, *, topic_id: UUID = TOPIC_ID, leader: int = ME
) -> None:
    states = [
        UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=5,
            leader=leader,
            leader_epoch=0,
            isr=[ME],
            zk_version=0,
            replicas=[ME],
        )
        for index in partitions
    ]
    response = await door.door.submit(
        UpdateMetadataRequest(
            controller_id=3,
            controller_epoch=5,
            topic_states=[UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)],
            live_brokers=[],
        )
    )
    assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("topic", [GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC])
async def test_partition_count_of_a_coordinators_topic_is_complete_from_the_first_request_on(
    door: Door, topic: str
) -> None:
    door.partition_counts[topic] = 50
    await send_metadata(door, topic, range(3))
    assert door.metadata.partition_count(topic) == 50
    await send_metadata(door, topic, range(50))
    await send_metadata(door, topic, range(1), leader=2)
    assert door.metadata.partition_count(topic) == 50
    assert door.counts_read == [[topic]]
    door.partition_counts[topic] = 60
    await send_metadata(door, topic, range(50, 52))
    assert door.metadata.partition_count(topic) == 60
    await send_metadata(door, topic, range(52), leader=LEADER_OF_DELETED_TOPIC)
    assert door.metadata.partition_count(topic) is None
    door.partition_counts[topic] = 5
    await send_metadata(door, topic, range(2), topic_id=UUID(int=8))
    assert door.metadata.partition_count(topic) == 5


async def test_count_that_could_not_be_read_is_read_again(door: Door) -> None:
    await send_metadata(door, GROUP_METADATA_TOPIC, range(3))
    assert door.metadata.partition_count(GROUP_METADATA_TOPIC) == 3
    door.partition_counts[GROUP_METADATA_TOPIC] = 50
    await send_metadata(door, GROUP_METADATA_TOPIC, range(1))
    assert door.metadata.partition_count(GROUP_METADATA_TOPIC) == 50


async def test_counts_of_other_topics_are_not_read(door: Door) -> None:
    await send_metadata(door, "t", range(3))
    assert door.metadata.partition_count("t") == 3
    assert door.counts_read == []
