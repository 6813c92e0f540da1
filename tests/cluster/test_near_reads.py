"""Consumers that read from the follower in their rack, while the leader restarts and the follower falls out of sync."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from tests.cluster.conftest import IS_KAFKA, create_topic
from tests.cluster.load import CONSUMER_SETTINGS, PRODUCER_SETTINGS, NumberedLoad, assert_nothing_is_lost, read_topic
from tests.cluster.test_spark import Reading
from tests.interop.conftest import JAVA_PROGRAMS, output_lines
from tests.spark_jobs.conftest import PYSPARK_SOCKETS
from tests.support.apache_kafka import VERSION, JavaPrograms
from tests.support.cluster import Cluster
from tests.support.parts import skip_when_unavailable

pytestmark = [pytest.mark.spark, PYSPARK_SOCKETS]

READ_TIMEOUT_S = 90.0
LAST = 9_999_999
"""The value at which readers end. Transactions count from FIRST_IN_TRANSACTION on."""
FIRST_IN_TRANSACTION = 1_000_000
SPARK_OPTIONS = {
    "kafka.isolation.level": "read_committed",
    "kafka.metadata.max.age.ms": 500,
    "kafka.request.timeout.ms": 2_000,
}


class Transactions:
    """Commits numbers to partition 0, and aborts others in between."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({**PRODUCER_SETTINGS, "bootstrap.servers": bootstrap, "transactional.id": topic})
        self._producer.init_transactions()
        self.committed: list[int] = []

    def run(self, *numbers: int) -> None:
        for number in numbers or (FIRST_IN_TRANSACTION + len(self.committed),):
            self._producer.begin_transaction()
            self._producer.produce(self._topic, str(number), partition=0)
            self._producer.commit_transaction()
            self.committed.append(number)
            self._producer.begin_transaction()
            self._producer.produce(self._topic, "-1", partition=0)
            self._producer.flush()
            self._producer.abort_transaction()


class Reader(threading.Thread):
    """Reads the committed records of partition 0 until the value LAST, for which the end of the block waits."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.join()


class LibrdkafkaReader(Reader):
    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        super().__init__()
        self.records: list[tuple[int, int]] = []
        self._consumer = Consumer(
            {
                **CONSUMER_SETTINGS,
                "bootstrap.servers": bootstrap,
                "group.id": "near",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "client.rack": rack,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def run(self) -> None:
        give_up_s = time.monotonic() + READ_TIMEOUT_S
        while time.monotonic() < give_up_s and not (self.records and self.records[-1][1] == LAST):
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self.records.append((message.offset(), int(message.value())))
        self._consumer.close()


class JavaReader(Reader):
    """Runs NearReader.java."""

    def __init__(self, programs: JavaPrograms, bootstrap: str, topic: str, rack: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._arguments = (bootstrap, topic, rack, str(LAST))
        self._programs = programs

    def run(self) -> None:
        source = JAVA_PROGRAMS / "NearReader.java"
        done = self._programs.run(VERSION, source, *self._arguments, timeout_s=READ_TIMEOUT_S + 30)
        self.lines = output_lines(done)


def test_moved_consumers_lose_and_repeat_nothing(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    """Broker 1 leads, and the consumers are in the rack of broker 3, which stays a follower."""
    topic, rack = create_topic(cluster, assignment=[[1, 2, 3]]), "rack-3"
    bootstrap = cluster.bootstrap
    transactions = Transactions(bootstrap, topic)
    with (
        skip_when_unavailable(),
        JavaPrograms() as programs,
        LibrdkafkaReader(bootstrap, topic, rack) as librdkafka,
        JavaReader(programs, bootstrap, topic, rack) as java,
    ):
        try:
            with NumberedLoad(bootstrap, topic, 1) as load:
                options = {**SPARK_OPTIONS, "kafka.client.rack": rack}
                reading = Reading(spark, bootstrap, topic, tmp_path, options)
                transactions.run()
                reading.wait_for_records()
                if not IS_KAFKA:
                    sample = f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}}'
                    assert cluster.metric(1, sample) == 0 < cluster.metric(3, sample)

                cluster.restart(1)
                transactions.run()
                assert cluster.leader(topic) == 2
                reading.wait_for_records()
                with cluster.halted(3):
                    cluster.wait_until(lambda: 3 not in cluster.partitions(topic)[0][2], "the follower is out of sync")
                    load.wait_for(50)
                    transactions.run()
                cluster.wait_until_in_sync(topic)
                load.wait_for(50)
                transactions.run()
                reading.wait_for_records()
        finally:
            cluster.heal(topic)
            transactions.run(LAST)
    records = read_topic(bootstrap, topic, 1, isolation="read_committed")
    written = {number for _, number in records[0]}
    assert_nothing_is_lost(load.acknowledged, records)
    assert written == load.acknowledged.keys() | set(transactions.committed)
    try:
        assert reading.finish()[0] == records[0]
    finally:
        reading.query.stop()
    assert librdkafka.records == records[0]
    sent_to, *lines = java.lines
    assert sent_to == "sent to [3]"
    assert lines == [f"{offset} {number}" for offset, number in records[0]]
