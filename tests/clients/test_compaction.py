"""Compaction as a user sees it: the last value of every key stays, tombstones remove keys, offsets do not change."""

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess

DEADLINE_S = 60
KEYS = 50
ROUNDS = 40


def read_all(bootstrap: str, end_offset: int) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of everything below `end_offset`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": False})
    consumer.assign([TopicPartition("table", 0, 0)])
    found: list[tuple[int, bytes, bytes | None]] = []
    while not found or found[-1][0] < end_offset - 1:
        messages = consumer.consume(1000, 1)
        assert messages, f"the last of {len(found)} records is {found[-1:]}"
        found += [(message.offset(), message.key(), message.value()) for message in messages]
    consumer.close()
    return found


def test_the_last_value_of_every_key_stays(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", {"log.cleaner.backoff.ms": "100"}) as broker:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": "20000",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
        }
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("table", 1, config=config)])["table"].result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 20})
        written: list[tuple[int, bytes, bytes | None]] = []
        for number in range(KEYS * ROUNDS):
            key = b"key-%d" % (number % KEYS)
            is_last_round_of_a_deleted_key = number >= KEYS * (ROUNDS - 1) and number % KEYS < 5
            value = None if is_last_round_of_a_deleted_key else b"value-%d" % number + bytes(40)
            written.append((number, key, value))
            producer.produce("table", key=key, value=value, partition=0)
        for filler in range(2 * KEYS):
            # Rolls the segment, whose last one is never cleaned.
            written.append((KEYS * ROUNDS + filler, b"filler-%d" % filler, bytes(300)))
            producer.produce("table", key=b"filler-%d" % filler, value=bytes(300), partition=0)
        assert producer.flush(DEADLINE_S) == 0

        deadline = time.monotonic() + DEADLINE_S
        while len(found := read_all(broker.bootstrap, len(written))) > 3 * KEYS:
            assert time.monotonic() < deadline, f"{len(found)} records are left"
        assert set(found) <= set(written), "what stays has the offset, key and value it had"
        latest = {key: value for _, key, value in written}
        kept = {key: value for _, key, value in found}
        assert kept == {key: value for key, value in latest.items() if value is not None or key in kept}
        assert {key for key, value in latest.items() if value is not None} <= kept.keys()
        assert "ERROR" not in broker.log.read_text()
