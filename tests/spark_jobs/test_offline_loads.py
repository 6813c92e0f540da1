"""An offline load of an hour's records runs beside live readers, which lose nothing and wait no longer."""

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.lake_load import JOB
from tests.spark_jobs.conftest import JobRunner, Sent, Topics
from tests.spark_jobs.quick_drivers import job_environment, quick_flags

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS
LIVE_INTERVAL_S = 0.01
LATENCY_GROWTH_MAX = 1.2
QUIET_S = 20


class LiveReader:
    """Sends a record to a topic every ten milliseconds and reads it; keeps when each was sent and its latency."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self._topics = topics
        self._topic = topic
        self._end = threading.Event()
        self.sent = 0
        self.latencies: list[tuple[float, float]] = []  # seconds: when a record was read, and since it was sent
        self.numbers: list[int] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send during the block; after it every record that was sent has been read."""
        consumer = Consumer({**self._topics.client, "group.id": "live", "fetch.wait.max.ms": 500})
        consumer.assign([TopicPartition(self._topic, 0, OFFSET_END)])
        consumer.poll(1)  # so that the end is determined before the first record
        threads = [threading.Thread(target=self._send), threading.Thread(target=self._read, args=(consumer,))]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._end.set()
            for thread in threads:
                thread.join()
            consumer.close()

    def median_s(self, start_s: float, end_s: float) -> float:
        return statistics.median(latency for at, latency in self.latencies if start_s <= at < end_s)

    def _send(self) -> None:
        producer = Producer({**self._topics.client, "linger.ms": 0})
        while not self._end.wait(LIVE_INTERVAL_S):
            producer.produce(self._topic, f"{self.sent} {time.monotonic()}", partition=0)
            producer.poll(0)
            self.sent += 1
        assert producer.flush(30) == 0

    def _read(self, consumer: Consumer) -> None:
        deadline = None
        while not self._end.is_set() or len(self.numbers) < self.sent:
            if self._end.is_set():
                deadline = deadline or time.monotonic() + 30
                if time.monotonic() > deadline:
                    return
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                number, sent_s = message.value().split()
                self.numbers.append(int(number))
                self.latencies.append((time.monotonic(), time.monotonic() - float(sent_s)))


def hour_of_records(hour: int, count: int) -> Sequence[Sent]:
    return [Sent(b"%100d" % number, None, number % 4, START_MS + hour * HOUR_MS + number) for number in range(count)]


def loaded(spark: SparkSession, lake: Path) -> list[tuple[int, int]]:
    """Return each hour in the files, with its number of distinct places."""
    hour = ((f.unix_millis("timestamp") - START_MS) / HOUR_MS).cast("int").alias("hour")
    rows = spark.read.parquet(str(lake)).groupBy(hour).agg(f.count_distinct("partition", "offset").alias("places"))
    return sorted((row.hour, row.places) for row in rows.collect())


def test_each_load_reads_one_hour_while_a_live_reader_gets_everything(
    spark: SparkSession, topics: Topics, job_runner: JobRunner, tmp_path: Path
) -> None:
    topic, live = topics.create("hours", 4), LiveReader(topics, topics.create("live"))
    flags = ["--input", topic, "--path", str(tmp_path / "lake")]
    read = []
    with live.running():
        for hour in range(2):
            topics.send(topic, hour_of_records(hour, 500))
            read.append(sum(batch.records for batch in job_runner.run(JOB, *flags)))
    assert read == [500, 500]
    assert loaded(spark, tmp_path / "lake") == [(0, 500), (1, 500)]
    assert live.numbers == list(range(live.sent))


@pytest.mark.soak  # the short form, without latencies, is the test above
def test_the_latency_of_a_live_reader_does_not_grow_during_a_load(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The load has the lowest priority for the processor, so that only the broker's work for it counts."""
    topic, live = topics.create("hours", 4), LiveReader(topics, topics.create("live"))
    for _ in range(20):
        topics.send(topic, hour_of_records(0, 50_000))
    command = [
        "nice", "-n", "19", sys.executable, "-P", "-m", "spark_jobs", "lake_load", *quick_flags(),
        "--bootstrap-servers", topics.bootstrap, "--input", topic, "--path", str(tmp_path / "lake"),
        "--checkpoint", str(tmp_path / "checkpoint"), "--trigger", "availableNow",
    ]  # fmt: skip
    with live.running():
        time.sleep(1)
        quiet = time.monotonic()
        time.sleep(QUIET_S)
        start = time.monotonic()
        subprocess.run(command, cwd=PROJECT, env={**job_environment(), "PYTHONPATH": str(PROJECT)}, check=True)
        end = time.monotonic()
    assert loaded(spark, tmp_path / "lake") == [(0, 1_000_000)]
    assert live.numbers == list(range(live.sent))
    assert live.median_s(start, end) <= LATENCY_GROWTH_MAX * live.median_s(quiet, start)
