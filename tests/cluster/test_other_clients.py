"""Clients other than librdkafka in Python: kafka-python and kcat produce and consume while a leader is killed."""

from __future__ import annotations

import subprocess

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from tests.cluster.conftest import PARTITIONS
from tests.support.cluster import Cluster
from tests.support.parts import need_command, skip_when_unavailable

RECORDS = 600
TIMEOUT_S = 60


def test_kafka_python_loses_nothing(cluster: Cluster, topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap.split(","),
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        request_timeout_ms=5_000,
        delivery_timeout_ms=60_000,
        retry_backoff_ms=50,
    )
    sent = {}
    leader = cluster.leader(topic)
    for number in range(RECORDS):
        sent[number] = producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        if number == RECORDS // 3:
            sent[number].get(TIMEOUT_S)
            cluster.kill(leader)
    producer.flush(TIMEOUT_S)
    acknowledged = {number: future.get(TIMEOUT_S) for number, future in sent.items()}
    producer.close()
    cluster.heal(topic)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","), auto_offset_reset="earliest", enable_auto_commit=False
    )
    partitions = [KafkaTopicPartition(topic, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    found: dict[tuple[int, int], int] = {}
    while len(found) < RECORDS:
        for partition, records in consumer.poll(timeout_ms=TIMEOUT_S * 1000).items():
            found |= {(partition.partition, record.offset): int(record.value) for record in records}
    consumer.close()
    assert {(it.partition, it.offset): number for number, it in acknowledged.items()} == found


def test_kcat_loses_nothing(cluster: Cluster, topic: str) -> None:
    with skip_when_unavailable():
        need_command("kcat", "kcat")
    settings = ["-X", "enable.idempotence=true", "-X", "message.timeout.ms=60000", "-X", "socket.timeout.ms=4000"]
    with subprocess.Popen(
        ["kcat", "-q", "-P", "-b", cluster.bootstrap, "-t", topic, "-p", "0", *settings],
        stdin=subprocess.PIPE,
        text=True,
    ) as producer:
        assert producer.stdin is not None
        for number in range(RECORDS):
            producer.stdin.write(f"{number}\n")
            if number == RECORDS // 2:
                producer.stdin.flush()
                cluster.kill(cluster.leader(topic))
        producer.stdin.close()
        assert producer.wait(TIMEOUT_S) == 0
    cluster.heal(topic)
    done = subprocess.run(
        ["kcat", "-q", "-C", "-b", cluster.bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert [int(line) for line in done.stdout.split()] == list(range(RECORDS))
