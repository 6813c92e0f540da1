"""The asynchronous twin: the same calls, awaited, beside a service in the same event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from milena_broker.testing import (
    AsyncBroker,
    AsyncCluster,
    AsyncClusterBroker,
    AsyncProcessCluster,
    Broker,
    BrokerError,
    Cluster,
    ClusterBroker,
    Group,
    ProcessCluster,
)
from tests.support.metadata_probe import is_serving

PATIENCE_S = 60.0
TWINS = [
    (Cluster, AsyncCluster),
    (Broker, AsyncBroker),
    (ClusterBroker, AsyncClusterBroker),
    (ProcessCluster, AsyncProcessCluster),
]
FOR_THE_CLUSTER = {"call", "spawn"}
"""Public names of a `ClusterBroker` that only its cluster uses."""
OF_THE_CLUSTER = {"joined", "kind", "left", "order_of"}


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as started:
        yield started


async def copy(servers: str, source: str, target: str) -> None:
    """A service that copies one record from a topic to another."""
    consumer = AIOKafkaConsumer(source, bootstrap_servers=servers, group_id="copy", auto_offset_reset="earliest")
    producer = AIOKafkaProducer(bootstrap_servers=servers)
    async with consumer, producer:
        record = await consumer.getone()
        await producer.send_and_wait(target, record.value)
        await consumer.commit()


async def test_a_service_in_the_same_loop_runs_while_a_test_waits(broker: AsyncBroker) -> None:
    await broker.create_topic("in")
    service = asyncio.create_task(copy(broker.bootstrap_servers, "in", "out"))
    assert await broker.produce("in", ["x"]) == 1
    found, left = await asyncio.gather(
        broker.consume("out", 1, timeout_s=PATIENCE_S), broker.wait_for_group("copy", members=0, timeout_s=PATIENCE_S)
    )
    assert left == Group("copy", "Empty", 0, 0)
    assert [record.value for record in found] == [b"x"]
    await service


async def test_changes_end_with_their_block(broker: AsyncBroker) -> None:
    await broker.create_topic("t")
    async with broker.pause():
        with pytest.raises(BrokerError, match="is paused"):
            await broker.produce("t", ["x"])
    assert await broker.produce("t", ["x"]) == 1
    fault = await broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    assert await broker.fault_count(fault) == 0
    async with broker.delay("Metadata", 1) as delayed:
        assert await broker.fault_count(delayed) == 0
    await broker.clear_faults()


async def test_a_wait_can_be_cancelled(broker: AsyncBroker) -> None:
    waiting = asyncio.create_task(broker.consume("never", 1, timeout_s=PATIENCE_S * 10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await broker.produce("t", ["x"]) == 1


async def test_errors_are_those_of_the_blocking_calls(broker: AsyncBroker) -> None:
    with pytest.raises(TypeError, match="topic is 5"):
        await broker.consume(5)  # type: ignore[arg-type]
    with pytest.raises(BrokerError, match="'none' does not exist after 0 s, expected 1 records"):
        await broker.consume("none", 1, timeout_s=0)


async def test_a_broker_ends_with_its_block() -> None:
    async with AsyncBroker(topics={"orders": 2}) as broker:
        assert await broker.wait_for_topic("orders") == 2
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        assert broker.log.parent.is_dir()
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset
        is_serving(port)


async def test_brokers_of_a_cluster() -> None:
    async with AsyncProcessCluster(2) as cluster:
        await cluster.create_topic("orders", configs={"min.insync.replicas": 1})
        leader = await cluster.leader_of("orders")
        await leader.kill()
        assert not leader.is_running
        successor = await cluster.leader_of("orders")
        assert successor.broker_id != leader.broker_id
        async with cluster.isolate(successor.broker_id):
            pass
        await cluster.broker(leader.broker_id).start()
        await cluster.wait_for_isr("orders", timeout_s=PATIENCE_S)


@pytest.mark.parametrize(("blocking", "twin"), TWINS)
def test_every_name_has_a_twin_with_the_same_arguments(blocking: type, twin: type) -> None:
    ours = {name for name in dir(blocking) if not name.startswith("_")} - FOR_THE_CLUSTER - OF_THE_CLUSTER
    theirs = {name for name in dir(twin) if not name.startswith("_")} - {"of", "blocking", "broker_id"}
    assert ours == theirs
    for name in {*ours, "__init__"}:
        ours_now, theirs_now = inspect.getattr_static(blocking, name), inspect.getattr_static(twin, name)
        if isinstance(ours_now, property):
            assert isinstance(theirs_now, property)
        elif not (blocking is ClusterBroker and name == "__init__"):
            parameters = inspect.signature(ours_now).parameters
            assert inspect.signature(theirs_now).parameters == parameters, name
            if name != "__init__":
                assert inspect.getdoc(theirs_now), name
