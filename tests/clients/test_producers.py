"""Producers that applications share between threads, that choose partitions, and whose broker does not respond."""

import os
import resource
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.partitioner.default import DefaultPartitioner, murmur2

from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.support.broker import BrokerProcess
from tests.support.wire_client import WireClient

TIMEOUT_S = 30
PARTITIONS = 4
THREADS = 16
COUNT = 10_000
IDLE_COUNT, IDLE_BYTES_MAX = 2_000, 200_000_000


@pytest.fixture
def created(broker: BrokerProcess, topic: str) -> str:
    """A new topic with four partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    return topic


def read(broker: BrokerProcess, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    try:
        return list(consumer.consume(count, TIMEOUT_S))
    finally:
        consumer.close()


def test_sixteen_threads_share_one_producer_and_keep_their_order(broker: BrokerProcess, created: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    per_thread = 500

    def send(thread: int) -> None:
        for number in range(per_thread):
            producer.produce(created, b"%d" % number, b"%d" % thread)
            producer.poll(0)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(send, range(THREADS)))
    assert producer.flush(TIMEOUT_S) == 0
    by_thread: dict[bytes, list[int]] = {b"%d" % thread: [] for thread in range(THREADS)}
    for message in read(broker, created, THREADS * per_thread):
        by_thread[message.key()].append(int(message.value()))
    assert all(numbers == list(range(per_thread)) for numbers in by_thread.values())


def resident_bytes(pid: int) -> int:
    """Return how much memory a process has in use."""
    (pages,) = Path(f"/proc/{pid}/statm").read_text().split()[1:2]
    return int(pages) * resource.getpagesize()


@pytest.mark.usefixtures("many_descriptors")
def test_two_thousand_idle_producers_cost_less_than_200_mb(broker: BrokerProcess, created: str) -> None:
    batch = build_batch([RecordData(timestamp=1_700_000_000_000, key=None, value=b"v" * 100)])
    data = TopicProduceData(name=created, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data])
    with ExitStack() as connections:
        before = resident_bytes(broker.pid)
        for _ in range(IDLE_COUNT):
            producer = connections.enter_context(WireClient(broker.port))
            assert producer.ask(request, 7).responses[0].partition_responses[0].error_code == 0
        assert resident_bytes(broker.pid) - before < IDLE_BYTES_MAX


def test_records_without_a_key_are_spread_and_those_with_a_key_follow_its_hash(
    broker: BrokerProcess, created: str
) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for _ in range(COUNT):
        producer.send(created, b"")
    keys = [b"key %d" % number for number in range(100)]
    for key in keys:
        producer.send(created, b"", key)
    producer.flush(TIMEOUT_S)
    producer.close()
    messages = read(broker, created, COUNT + len(keys))
    spread = Counter(message.partition() for message in messages if message.key() is None)
    assert sum(spread.values()) == COUNT
    assert all(abs(spread[partition] - COUNT / PARTITIONS) < COUNT / PARTITIONS / 10 for partition in range(PARTITIONS))
    stored = {message.key(): message.partition() for message in messages if message.key() is not None}
    assert stored == {key: (murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys}


class HeavyKeyAlone(DefaultPartitioner):
    """Keeps the last partition for one key."""

    def partition(
        self, topic: str, key: object, serialized_key: bytes, value: object, serialized_value: bytes, cluster: object
    ) -> int:
        return PARTITIONS - 1 if serialized_key == b"Banana" else murmur2(serialized_key) % (PARTITIONS - 1)


def test_a_partitioner_of_the_application_keeps_a_heavy_key_alone(broker: BrokerProcess, created: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, partitioner=HeavyKeyAlone())
    for number in range(200):
        producer.send(created, b"", b"Banana" if number % 2 else b"key %d" % number)
    producer.flush(TIMEOUT_S)
    producer.close()
    messages = read(broker, created, 200)
    assert {message.partition() for message in messages if message.key() == b"Banana"} == {PARTITIONS - 1}
    assert {message.key() for message in messages if message.partition() == PARTITIONS - 1} == {b"Banana"}


def test_a_full_queue_and_an_expired_record_are_errors_while_the_broker_does_not_respond(
    broker: BrokerProcess, created: str
) -> None:
    settings = {"queue.buffering.max.messages": 10, "message.timeout.ms": 1_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    errors: list[KafkaError | None] = []
    producer.list_topics(created, TIMEOUT_S)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        for _ in range(10):
            producer.produce(created, b"", partition=0, on_delivery=lambda error, _: errors.append(error))
        with pytest.raises(BufferError):
            producer.produce(created, b"", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert [error.code() for error in errors if error is not None] == [KafkaError._MSG_TIMED_OUT] * 10
    producer.produce(created, b"later", partition=1)
    assert producer.flush(TIMEOUT_S) == 0
