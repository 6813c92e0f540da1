"""Bindings of a client's partitions: what renews them, and what they do not keep."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from base.pause import never, whole
from broker.replica import bound_partition
from broker.replica.bound_partition import Bound, BoundPartition, bind
from broker.replica.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from protocol.schema import ZERO_UUID
from tests.storage.builders import batch
from tests.support.in_process import InProcessBroker, running_broker

ME, OTHER = 0, 1
TOPIC = "t"
PARTITIONS = 4


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path) as running:
        await running.create_topic(TOPIC, PARTITIONS)
        yield running


def bound_to(broker: InProcessBroker, bound: Bound, index: int = 0) -> BoundPartition:
    found = bind(bound, broker.services.replica_manager, TOPIC, index)
    assert found is not None
    return found


def hosted(broker: InProcessBroker) -> Partition:
    found = broker.services.replica_manager.find(TOPIC, 0)
    assert found is not None
    return found


def append(found: BoundPartition) -> int:
    records = memoryview(bytearray(batch(1)))
    return found.append(records, needs_isr=False, now_ms=0).first_offset


def lead(broker: InProcessBroker, leader: int) -> None:
    partition = hosted(broker)
    assert partition.topic_id is not None
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        isr=[leader],
        partition_epoch=partition.leadership.partition_epoch + 1,
        replicas=[ME, OTHER],
    )
    states = [LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=partition.topic_id, partition_states=[state])]
    request = LeaderAndIsrRequest(controller_id=ME, controller_epoch=1, topic_states=states, live_leaders=[])
    whole(broker.services.assigned_replicas.become_leader_or_follower(request, never))


async def configure(broker: InProcessBroker) -> None:
    change = AlterConfigsResource(
        resource_type=2,
        resource_name=TOPIC,
        configs=[AlterableConfig(name="max.message.bytes", config_operation=0, value="5000")],
    )
    response = await broker.ask(IncrementalAlterConfigsRequest(resources=[change], validate_only=False))
    assert not response.responses[0].error_code


async def delete(broker: InProcessBroker) -> None:
    state = DeleteTopicState(name=TOPIC, topic_id=ZERO_UUID)
    response = await broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000))
    assert not response.responses[0].error_code


def test_binding_is_kept_while_nothing_changes(broker: InProcessBroker) -> None:
    bound: Bound = {}
    first = bound_to(broker, bound)
    assert [append(first), append(bound_to(broker, bound))] == [0, 1]
    assert bound_to(broker, bound) is first


async def test_every_change_of_a_partition_renews_its_bindings_and_no_other(broker: InProcessBroker) -> None:
    changes: list[Callable[[], object]] = [
        lambda: lead(broker, ME),
        lambda: lead(broker, OTHER),
        lambda: hosted(broker).replace_log(hosted(broker).log),
        lambda: hosted(broker).stop(),
    ]
    for change in changes:
        bound: Bound = {}
        before, other = bound_to(broker, bound), bound_to(broker, bound, 1)
        change()
        assert bound_to(broker, bound) is not before
        assert bound_to(broker, bound, 1) is other


async def test_new_configuration_of_a_topic_renews_the_bindings_of_its_partitions(broker: InProcessBroker) -> None:
    bound: Bound = {}
    before = bound_to(broker, bound)
    await configure(broker)
    assert bound_to(broker, bound) is not before


async def test_binding_of_a_deleted_topic_is_removed(broker: InProcessBroker) -> None:
    bound: Bound = {}
    bound_to(broker, bound)
    await delete(broker)
    assert bind(bound, broker.services.replica_manager, TOPIC, 0) is None
    assert not bound


async def test_topic_created_again_is_bound_to_its_new_partition(broker: InProcessBroker) -> None:
    bound: Bound = {}
    append(bound_to(broker, bound))
    await delete(broker)
    await broker.create_topic(TOPIC, PARTITIONS)
    assert append(bound_to(broker, bound)) == 0


def test_offline_state_is_read_when_serving(broker: InProcessBroker) -> None:
    found = bound_to(broker, {})
    found.log.take_offline()
    with pytest.raises(KafkaError) as caught:
        append(found)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_partitions_that_are_not_hosted_are_not_kept(broker: InProcessBroker) -> None:
    bound: Bound = {}
    assert bind(bound, broker.services.replica_manager, "unknown", 0) is None
    assert not bound


def test_bindings_of_one_client_are_bounded(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_partition, "BOUND_MAX", 2)
    bound: Bound = {}
    for index in range(PARTITIONS):
        bound_to(broker, bound, index)
        assert len(bound) <= 2
