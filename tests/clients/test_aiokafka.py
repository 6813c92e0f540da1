"""aiokafka: asyncio, with its own codec and kafka-python's former group protocol."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import ProducerFenced, TopicAlreadyExistsError

from tests.support.broker import BrokerProcess

DEADLINE_S = 30
START_MS = time.time_ns() // 1_000_000
"""Retention would delete records with old timestamps half a minute after the broker's start."""
POLL_S = 0.05
PARTITIONS = 4


@asynccontextmanager
async def producing(broker: BrokerProcess, **settings: object) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        yield producer


@asynccontextmanager
async def consuming(broker: BrokerProcess, *topics: str, **settings: object) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
        **settings,
    )
    async with consumer:
        yield consumer


async def take(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    """Return the next `count` records; fails without them."""
    async with asyncio.timeout(DEADLINE_S):
        return [await consumer.getone() for _ in range(count)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - the client has no event for its assignment
            await asyncio.sleep(POLL_S)


async def create_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    await admin.close()


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotence", [False, True], ids=["plain", "idempotent"])
async def test_produced_records_are_consumed_unchanged(
    broker: BrokerProcess, topic: str, compression: str | None, idempotence: bool
) -> None:
    sent = [(b"key %d" % number, b"value %d" % number * 20, (("trace", b"%d" % number),)) for number in range(200)]
    async with producing(broker, compression_type=compression, enable_idempotence=idempotence, linger_ms=5) as producer:
        deliveries = [
            await producer.send(topic, value, key, partition=0, timestamp_ms=START_MS + number, headers=list(headers))
            for number, (key, value, headers) in enumerate(sent)
        ]
        written = [(await delivery).offset for delivery in deliveries]
    assert written == list(range(len(sent)))
    async with consuming(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = await take(consumer, len(sent))
    assert [(record.key, record.value, tuple(record.headers)) for record in records] == sent
    assert [record.timestamp for record in records] == [START_MS + number for number in range(len(sent))]


async def test_a_group_rebalances_commits_and_resumes(broker: BrokerProcess, topic: str, group: str) -> None:
    await create_topic(broker, topic)
    everything = {TopicPartition(topic, partition) for partition in range(PARTITIONS)}
    async with consuming(broker, topic, group_id=group) as first:
        await until(lambda: first.assignment() == everything)
        async with consuming(broker, topic, group_id=group) as second:
            await until(lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2)
            assert first.assignment() | second.assignment() == everything
            async with producing(broker) as producer:
                for partition in range(PARTITIONS):
                    for number in range(2):
                        await producer.send_and_wait(topic, b"%d" % number, partition=partition)
            for member in (first, second):
                records = await take(member, PARTITIONS)
                assert {TopicPartition(topic, record.partition) for record in records} == member.assignment()
                await member.commit(dict.fromkeys(member.assignment(), (1, "half way \x01")))
        await until(lambda: first.assignment() == everything)
        assert {await first.committed(partition) for partition in everything} == {1}
    async with consuming(broker, topic, group_id=group) as third:
        records = await take(third, PARTITIONS)
        assert {(record.partition, record.offset, record.value) for record in records} == {
            (partition, 1, b"1") for partition in range(PARTITIONS)
        }


async def test_a_transaction_moves_records_and_offsets_or_neither(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    await create_topic(broker, topic)
    source = TopicPartition(topic, 0)
    async with producing(broker, transactional_id=f"tx-{topic}") as producer:
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=1)
            await producer.send_offsets_to_transaction({source: 5}, group)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"dropped", partition=1)
        await producer.send_offsets_to_transaction({source: 7}, group)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"kept too", partition=1)
    async with consuming(broker, group_id=group, isolation_level="read_committed") as consumer:
        consumer.assign([source, TopicPartition(topic, 1)])
        assert await consumer.committed(source) == 5
        consumer.seek(TopicPartition(topic, 1), 0)
        consumer.pause(source)
        assert [record.value for record in await take(consumer, 2)] == [b"kept", b"kept too"]
    async with consuming(broker) as consumer:
        consumer.assign([TopicPartition(topic, 1)])
        assert [record.value for record in await take(consumer, 3)] == [b"kept", b"dropped", b"kept too"]


async def test_an_administrator_sees_topics_settings_and_groups(broker: BrokerProcess, topic: str, group: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})])
        again = await admin.create_topics([NewTopic(topic, 2, 1)])
        assert [(name, code) for name, code, *_ in again.topic_errors] == [(topic, TopicAlreadyExistsError.errno)]
        await admin.create_partitions({topic: NewPartitions(PARTITIONS)})
        (described,) = await admin.describe_topics([topic])
        assert (described["topic"], len(described["partitions"])) == (topic, PARTITIONS)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})
        await admin.alter_configs([resource])
        (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((_, _, _, name, entries),) = response.resources
        assert (name, {key: value for key, value, *_ in entries}["retention.ms"]) == (topic, "7200000")
        async with producing(broker) as producer:
            for _ in range(3):
                await producer.send_and_wait(topic, b"value", partition=0)
        async with consuming(broker, topic, group_id=group) as member:
            await take(member, 3)
            await member.commit({TopicPartition(topic, 0): (2, "two")})
            assert group in {listed[0] for listed in await admin.list_consumer_groups()}
            (groups,) = await admin.describe_consumer_groups([group])
            ((code, _, state, _, _, members, *_),) = groups.groups
            assert (code, state, len(members)) == (0, "Stable", 1)
        committed = await admin.list_consumer_group_offsets(group)
        assert committed[TopicPartition(topic, 0)] == (2, "two")
        assert await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(1)}) == {
            TopicPartition(topic, 0): 1
        }
        assert len((await admin.describe_cluster())["brokers"]) == 1
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()


async def test_a_newer_producer_fences_the_older(broker: BrokerProcess, topic: str) -> None:
    async with producing(broker, transactional_id=f"tx-{topic}") as older:
        await older.begin_transaction()
        await older.send_and_wait(topic, b"lost")
        async with producing(broker, transactional_id=f"tx-{topic}"):
            with pytest.raises(ProducerFenced):
                await older.commit_transaction()
