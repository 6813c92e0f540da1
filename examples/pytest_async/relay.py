"""A service to be tested, in asyncio: it copies large orders from one topic to another, as a member of a group."""

import json

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

LARGE = 100


async def relay_large_orders(bootstrap_servers: str, source: str, target: str) -> None:
    """Run until it is cancelled. Each order is committed after its copy is acknowledged, so none is lost."""
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap_servers,
        group_id="relay",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=True)
    async with consumer, producer:
        async for record in consumer:
            if json.loads(record.value)["amount"] >= LARGE:
                await producer.send_and_wait(target, record.value, key=record.key)
            await consumer.commit()
