"""kill -9 during production: each acknowledged record exists once, and groups resume at their committed offsets."""

import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess

DEADLINE_S = 60
KILL_AFTER_ACKNOWLEDGED = (500, 1500, 2500)
RECORDS = 4000


@pytest.fixture
def crashing(tmp_path: Path) -> BrokerProcess:
    return BrokerProcess(tmp_path / "broker", {"log.segment.bytes": "65536", "log.index.interval.bytes": "512"})


def test_every_acknowledged_record_survives_exactly_once(crashing: BrokerProcess) -> None:
    with crashing:
        admin = AdminClient({"bootstrap.servers": crashing.bootstrap})
        admin.create_topics([NewTopic("crash", 3)])["crash"].result(DEADLINE_S)
        producer = Producer(
            {
                "bootstrap.servers": crashing.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "message.timeout.ms": 60_000,
            }
        )
        acknowledged: dict[int, tuple[int, int]] = {}
        kills = list(KILL_AFTER_ACKNOWLEDGED)
        restarts: list[threading.Thread] = []

        def restart() -> None:
            crashing.kill()
            crashing.start()

        for number in range(RECORDS):

            def delivered(error: object, message: object, number: int = number) -> None:
                assert error is None, error
                acknowledged[number] = (message.partition(), message.offset())  # type: ignore[attr-defined]

            producer.produce("crash", value=b"%d" % number, partition=number % 3, on_delivery=delivered)
            producer.poll(0.005 if number % 10 == 0 else 0)
            while kills and number > kills[0] and len(acknowledged) > kills[0] // 2:
                kills.pop(0)
                restarts.append(threading.Thread(target=restart))
                restarts[-1].start()
                while restarts[-1].is_alive():
                    producer.poll(0.05)
        assert producer.flush(DEADLINE_S) == 0
        assert len(restarts) >= 2, "the broker was killed while records were under way"
        assert len(acknowledged) == RECORDS

        consumer = Consumer({"bootstrap.servers": crashing.bootstrap, "group.id": "reader"})
        consumer.assign([TopicPartition("crash", partition, 0) for partition in range(3)])
        read: list[tuple[int, tuple[int, int]]] = []
        while len(read) < RECORDS:
            messages = consumer.consume(500, 5)
            assert messages, f"{len(read)} of {RECORDS} records came"
            read += [(int(message.value()), (message.partition(), message.offset())) for message in messages]
        assert consumer.poll(0.5) is None, "no record is duplicated"
        consumer.close()
        assert max(Counter(number for number, _ in read).values()) == 1
        assert dict(read) == acknowledged
        for partition in range(3):
            numbers = [number for number, (place, _) in read if place == partition]
            assert numbers == sorted(numbers), "order within a partition"


def test_committed_offsets_survive(crashing: BrokerProcess) -> None:
    with crashing:
        producer = Producer({"bootstrap.servers": crashing.bootstrap})
        for number in range(10):
            producer.produce("work", value=b"%d" % number, partition=0)
        producer.flush(DEADLINE_S)
        consumer = Consumer({"bootstrap.servers": crashing.bootstrap, "group.id": "workers"})
        consumer.commit(offsets=[TopicPartition("work", 0, 7, "seven")], asynchronous=False)
        consumer.close()
        crashing.kill()
        crashing.start()
        consumer = Consumer({"bootstrap.servers": crashing.bootstrap, "group.id": "workers"})
        (committed,) = consumer.committed([TopicPartition("work", 0)], DEADLINE_S)
        assert (committed.offset, committed.metadata) == (7, "seven")
        consumer.close()
