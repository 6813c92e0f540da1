"""Compaction as clients see it: the last value of each key is retained, tombstones remove keys, offsets stay."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.support.broker import BrokerProcess

DEADLINE_S = 60
QUIET_S = 5
KEYS = 50
ROUNDS = 40


Read = list[tuple[int, bytes, bytes | None]]


def read_all(bootstrap: str, end_offset: int, topic: str = "table") -> Read:
    """(offset, key, value) of everything committed below `end_offset`, whose last offset must hold a record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Read = []
    while not found or found[-1][0] < end_offset - 1:
        message = consumer.poll(QUIET_S)
        assert message is not None, f"the last of {len(found)} records is {found[-1:]}"
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def test_the_last_value_of_every_key_is_retained(tmp_path: Path) -> None:
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
            # Rolls the segment, because the active one is never cleaned.
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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


def create(broker: BrokerProcess, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"cleanup.policy": "compact", **{key.replace("_", "."): value for key, value in config.items()}}
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(DEADLINE_S)


def until_read(broker: BrokerProcess, topic: str, end_offset: int, is_done: Callable[[Read], bool]) -> Read:
    deadline = time.monotonic() + DEADLINE_S
    while not is_done(found := read_all(broker.bootstrap, end_offset, topic)):
        assert time.monotonic() < deadline, f"{len(found)} records are left"
    return found


def test_old_values_are_removed_outside_the_active_segment(broker: BrokerProcess) -> None:
    create(broker, "latest", min_cleanable_dirty_ratio="0.001", segment_ms="5000")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    first_ms = int(time.time() * 1000) - 60_000
    written: Read = []
    # Each round is more than segment.ms after the previous one and so begins a segment.
    for number in range(4):
        for key in (b"p3", b"p5", b"p6"):
            for value in (b"%d$" % number, b"%d.5$" % number):
                written.append((len(written), key, value))
                producer.produce("latest", key=key, value=value, timestamp=first_ms + 6000 * number)
        assert producer.flush(DEADLINE_S) == 0
    active = written[-6:]
    sealed_newest = [item for item in written[-12:-6] if item[2].endswith(b".5$")]
    found = until_read(broker, "latest", len(written), lambda found: len(found) == 9)
    assert found == [*sealed_newest, *active]


def test_committed_reads_are_the_same_before_and_after(broker: BrokerProcess) -> None:
    # A ratio that is never exceeded: the log is not cleaned yet.
    create(broker, "payments", min_cleanable_dirty_ratio="1", segment_ms="60000")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(DEADLINE_S)
    first_ms = int(time.time() * 1000)  # markers carry the broker's time
    for number in range(12):
        producer.begin_transaction()
        for key in range(4):
            producer.produce(
                "payments", key=b"%d" % key, value=b"%d" % number, timestamp=first_ms + number, partition=0
            )
        if number % 3 == 1:
            producer.flush(DEADLINE_S)
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(2):
        plain.produce("payments", key=b"end", value=b"%d" % number, timestamp=first_ms + 100_000 * (number + 1))
        assert plain.flush(DEADLINE_S) == 0
    end_offset = 12 * 5 + 2
    before = read_all(broker.bootstrap, end_offset, "payments")
    assert len(before) == 8 * 4 + 2
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    ratio = ConfigEntry("min.cleanable.dirty.ratio", "0.001", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "payments", incremental_configs=[ratio])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    after = until_read(broker, "payments", end_offset, lambda found: len(found) == 4 + 2)
    assert [item for item in before if item in after] == after
    assert {key: value for _, key, value in after} == {key: value for _, key, value in before}
    assert "ERROR" not in broker.log.read_text()
