"""Readers that come and go change nothing for others, and read as fast from much data as from little (G-8)."""

import os
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess

TIMEOUT_S = 30
COUNT = 500
GIB = 1 << 30
RECORD_SIZE = 100_000
READ_SIZE = GIB
ROUNDS = 8
DIFFERENCE_MAX = 0.15
READER_SETTINGS = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}


def read_all(consumer: Consumer, count: int) -> None:
    """Poll until `count` records have come."""
    deadline = time.monotonic() + TIMEOUT_S
    while count > 0:
        assert time.monotonic() < deadline, f"{count} records have not come"
        count -= len(consumer.consume(count, 0.1))


def test_readers_that_come_and_go_change_nothing_for_a_group(broker: BrokerProcess, topic: str, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0

    def reader(name: str) -> Consumer:
        return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, **READER_SETTINGS})

    assigned: list[int] = []
    member = reader(group)
    member.subscribe([topic], on_assign=lambda _, partitions: assigned.append(len(partitions)))
    try:
        read_all(member, COUNT)
        member.commit(asynchronous=False)

        def state() -> tuple[object, ...]:
            """What a reader must not change: the group, its offsets and the files of the topic."""
            described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
            members = {
                each.member_id: sorted(place.partition for place in each.assignment.topic_partitions)
                for each in described.members
            }
            request = [ConsumerGroupTopicPartitions(group)]
            committed = admin.list_consumer_group_offsets(request)[group].result(TIMEOUT_S).topic_partitions
            files = {
                path: (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
                for path in broker.log_dir.glob(f"{topic}-*/*")
            }
            return described.state, members, sorted((each.partition, each.offset) for each in committed), files

        before = state()
        for number in range(3):
            other = reader(f"{group}-other-{number}")
            other.subscribe([topic])
            read_all(other, COUNT)
            other.commit(asynchronous=False)
            other.close()
        without_group = reader("unused")
        without_group.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(2)])
        read_all(without_group, COUNT)
        without_group.close()
        assert state() == before
        producer.produce(topic, b"last", partition=0)
        producer.flush(TIMEOUT_S)
        read_all(member, 1)
        assert assigned == [2], "the group was rebalanced"
    finally:
        member.close()


@pytest.mark.soak  # the short form counts lines of code: tests/broker/test_costs_of_readers.py
def test_twenty_times_as_much_data_is_read_as_fast(tmp_path: Path) -> None:
    """Read the newest GiB of a topic that keeps one, and of one that keeps twenty, or what the disk has room for."""
    large_size = min(20 * GIB, shutil.disk_usage(tmp_path).free // 3 // GIB * GIB)
    assert large_size >= 5 * GIB, "the disk has no room for this test"
    sizes = {"small": READ_SIZE, "large": large_size}
    with BrokerProcess(tmp_path / "broker", {"log.segment.bytes": str(GIB // 8), "log.retention.ms": "-1"}) as broker:
        for topic, size in sizes.items():
            fill(broker, topic, size // RECORD_SIZE)
        rates: dict[str, list[float]] = {topic: [] for topic in sizes}
        cpu_s: dict[str, list[float]] = {topic: [] for topic in sizes}
        for _ in range(1 + ROUNDS):
            for topic, size in sizes.items():
                first_cpu_s, start_s = cpu_time_s(broker.pid), time.monotonic()
                read_newest(broker, topic, (size - READ_SIZE) // RECORD_SIZE, READ_SIZE // RECORD_SIZE)
                rates[topic].append(READ_SIZE / (time.monotonic() - start_s) / 1e6)
                cpu_s[topic].append(cpu_time_s(broker.pid) - first_cpu_s)
    print(f"{large_size // GIB} GiB beside 1 GiB: MB/s {rates}, CPU seconds of the broker {cpu_s}")
    best = {topic: max(measured[1:]) for topic, measured in rates.items()}  # the first round warms up
    least = {topic: min(measured[1:]) for topic, measured in cpu_s.items()}
    assert best["large"] >= (1 - DIFFERENCE_MAX) * best["small"], rates
    assert least["large"] <= (1 + DIFFERENCE_MAX) * least["small"], cpu_s


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 1_000_000, "linger.ms": 5})
    value = os.urandom(RECORD_SIZE)
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0


def read_newest(broker: BrokerProcess, topic: str, start: int, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", **READER_SETTINGS})
    consumer.list_topics(topic, TIMEOUT_S)
    consumer.assign([TopicPartition(topic, 0, start)])
    try:
        read_all(consumer, count)
    finally:
        consumer.close()


def cpu_time_s(pid: int) -> float:
    """Return the time that a process has spent on processors, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
