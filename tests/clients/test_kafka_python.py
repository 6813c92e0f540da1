"""kafka-python: pure Python, with its own codec, batches and group protocol."""

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.broker import BrokerProcess

DEADLINE_MS = 30_000


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume_in_a_group(broker: BrokerProcess, topic: str, group: str, compression: str | None) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=compression, linger_ms=5)
    futures = [
        producer.send(topic, key=b"%d" % (number % 5), value=b"value %d" % number, headers=[("n", b"%d" % number)])
        for number in range(200)
    ]
    producer.flush(30)
    written = {(future.get(1).partition, future.get(1).offset) for future in futures}
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_MS,
    )
    records = [next(consumer) for _ in range(200)]
    assert {(record.partition, record.offset) for record in records} == written
    assert sorted(int(record.headers[0][1]) for record in records) == list(range(200))
    consumer.commit()
    ends = consumer.end_offsets([TopicPartition(topic, partition) for partition in range(4)])
    committed = {partition: consumer.committed(partition) or 0 for partition in ends}
    assert committed == ends
    consumer.close()


VERSIONS = [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1), (0, 11), (1, 0), (2, 0), (2, 8), (3, 9), (4, 0), (4, 2)]


@pytest.mark.parametrize(
    ("version", "compression"),
    [
        pytest.param(version, compression, id=f"{'.'.join(map(str, version))}-{compression}")
        for version in VERSIONS
        for compression in (None, "gzip", "snappy", "lz4")
        # Writing the faulty lz4 header of 0.8 takes this client a package that it does not depend on.
        if compression != "lz4" or version >= (0, 10)
    ],
)
def test_every_version_of_the_protocol_that_the_client_can_speak(
    broker: BrokerProcess, topic: str, version: tuple[int, ...], compression: str | None
) -> None:
    """Before 0.11 that is message sets of magic 0 and 1, converted on the way in and out."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, api_version=version, compression_type=compression, linger_ms=5
    )
    for number in range(60):
        producer.send(topic, key=b"%d" % number, value=b"value %d" % number, partition=0)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        api_version=version,
        group_id=None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=DEADLINE_MS,
    )
    consumer.assign([TopicPartition(topic, 0)])
    records = [next(consumer) for _ in range(60)]
    assert [(record.offset, record.key, record.value) for record in records] == [
        (number, b"%d" % number, b"value %d" % number) for number in range(60)
    ]
    consumer.close()
