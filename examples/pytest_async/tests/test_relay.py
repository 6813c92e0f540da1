"""Tests of an asyncio service that runs in the event loop of the test. `pip install milena-broker pytest-asyncio`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from relay import relay_large_orders

from milena_broker.testing import AsyncBroker


@asynccontextmanager
async def running(broker: AsyncBroker, source: str, target: str) -> AsyncGenerator[None, None]:
    """Run the service during a block."""
    service = asyncio.create_task(relay_large_orders(broker.bootstrap_servers, source, target))
    try:
        yield
    finally:
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)


async def test_large_orders_are_copied(async_kafka_broker: AsyncBroker, kafka_topic: str) -> None:
    broker, target = async_kafka_broker, f"{kafka_topic}-large"
    async with running(broker, kafka_topic, target):
        await broker.produce(kafka_topic, [("ann", {"amount": 10}), ("bob", {"amount": 250})])
        (record,) = await broker.consume(target, 1)
        assert (record.key, record.json()) == (b"bob", {"amount": 250})
        await broker.wait_for_group("relay", members=1)


async def test_an_order_is_copied_once_although_a_response_is_lost(
    async_kafka_broker: AsyncBroker, kafka_topic: str
) -> None:
    broker, target = async_kafka_broker, f"{kafka_topic}-large"
    async with running(broker, kafka_topic, target):
        await broker.wait_for_group("relay", members=1, is_caught_up=False)
        await broker.produce(kafka_topic, [{"amount": 250}])
        await broker.consume(target, 1)
        lost = await broker.drop_connection("Produce", is_served=True)
        await broker.produce(kafka_topic, [{"amount": 300}])
        await broker.wait_for_record(target, lambda record: record.json() == {"amount": 300})
        await broker.wait_for_group("relay", members=1)
    assert await broker.fault_count(lost) == 1
    assert len(await broker.consume(target)) == 2
