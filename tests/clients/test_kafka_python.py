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
