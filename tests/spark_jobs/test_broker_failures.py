"""A query survives a kill and restart of its broker; a job whose broker stays away ends, and continues later."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from tests.spark_jobs.conftest import JobRunner, KafkaReader, Sent, Topics, last_values
from tests.spark_jobs.failure_cases import FAILURE_CASES
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.parts import skip_when_unavailable

pytestmark = pytest.mark.spark

LOAD_TOPICS = ("left", "middle", "right")
LOAD_PARTITIONS = 8
LOAD_RECORDS = 2_000_000
LOAD_BATCH_MAX = 250_000


def test_a_running_query_continues_after_a_restart_of_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create("numbers", 2)
        retries = {
            "fetchOffset.numRetries": 5,
            "fetchOffset.retryIntervalMs": 50,
            "kafkaConsumer.pollTimeoutMs": 60_000,
        }
        stream = KafkaReader(spark, broker.bootstrap).stream(
            {"subscribe": topic, "startingOffsets": "earliest", **retries}
        )
        query = (
            stream.selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(tmp_path / "out"))
        )
        try:
            for lap in range(3):
                sent = [Sent(b"%d" % (100 * lap + number), partition=number % 2) for number in range(100)]
                topics.send(topic, sent)
                query.processAllAvailable()
                broker.kill()
                broker.start()
            topics.send(topic, [Sent(b"300")])
            query.processAllAvailable()
        finally:
            query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(int(row.value) for row in rows) == Counter(range(301))
    assert {(row.partition, row.offset) for row in rows} == {
        *((0, offset) for offset in range(151)),
        *((1, offset) for offset in range(150)),
    }


def test_a_sink_loses_nothing_while_its_broker_is_away(topics: Topics, kafka: KafkaReader, tmp_path: Path) -> None:
    source = topics.create("numbers")
    with BrokerProcess(tmp_path / "broker") as broker:
        target = Topics(broker.bootstrap)
        name = target.create("copied", 2)
        query = (
            kafka.stream({"subscribe": source, "startingOffsets": "earliest"})
            .select("value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            topics.send(source, [Sent(b"%d" % number) for number in range(100)])
            query.processAllAvailable()
            broker.kill()
            topics.send(source, [Sent(b"%d" % number) for number in range(100, 200)])
            while not query.status["isTriggerActive"] or not query.status["isDataAvailable"]:
                assert query.isActive, query.exception()
                time.sleep(0.02)
            broker.start()
            query.processAllAvailable()
        finally:
            query.stop()
        stored = {int(message.value()) for message in target.read(name)}
    assert stored == set(range(200))  # a record may be there twice: the sink is at-least-once


class AfterFirstBatch(logging.Handler):
    """Calls `action` when a job has reported its first batch."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def emit(self, record: logging.LogRecord) -> None:
        if ": batch 0: " in record.getMessage():
            self._action()


@pytest.mark.parametrize("name", ["wordcount", pytest.param("stock_stats", marks=pytest.mark.soak)])
def test_a_job_whose_broker_stays_away_ends_with_1_and_continues_from_its_checkpoint(
    name: str, spark: SparkSession, job_runner: JobRunner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_jobs")
    case = FAILURE_CASES[name](5)
    with BrokerProcess(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        runner = JobRunner(spark, topics, job_runner.folder)
        source, target = topics.create("input"), topics.create("output")
        topics.send(source, case.records[:4])
        flags = ["--input", source, "--output", target, "--max-offsets-per-trigger", "1"]
        for key in ("request.timeout.ms", "default.api.timeout.ms", "max.block.ms"):
            flags += ["--kafka-option", f"{key}=2000"]
        flags += ["--kafka-option", "delivery.timeout.ms=2100"]  # at least request.timeout.ms and linger.ms
        handler, log = AfterFirstBatch(broker.kill), logging.getLogger("spark_jobs")
        log.addHandler(handler)
        try:
            assert runner.supervise(case.job, *flags, "--trigger", "1 second") == 1
        finally:
            log.removeHandler(handler)
        (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert line.startswith("query failed: ")
        assert f"{name}: batch 0: 1 records in " in caplog.text
        broker.start()
        topics.send(source, case.records[4:])
        assert runner.supervise(case.job, *flags) == 0
        case.check(last_values(topics.read(target)))


@pytest.mark.soak  # the short form is the first test
def test_two_million_records_are_read_once_although_a_leader_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    with skip_when_unavailable(), Cluster(tmp_path / "cluster") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        created = admin.create_topics([NewTopic(name, LOAD_PARTITIONS, 3) for name in LOAD_TOPICS])
        for each in created.values():
            each.result(30)
        cluster.wait_until_in_sync(*LOAD_TOPICS)
        fill(cluster.bootstrap)
        query = (
            KafkaReader(spark, cluster.bootstrap)
            .stream(
                {
                    "subscribe": ",".join(LOAD_TOPICS),
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": LOAD_BATCH_MAX,
                }
            )
            .select("topic", "partition", "offset")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        while not list((tmp_path / "checkpoint").glob("commits/0")):
            assert not query.awaitTermination(0.05), "the query ended before its leader was killed"
        cluster.kill(cluster.leader(LOAD_TOPICS[0]))
        query.awaitTermination()
        sizes = [batch["numInputRows"] for batch in query.recentProgress]
        assert sum(sizes) == LOAD_RECORDS
        assert max(sizes) <= LOAD_BATCH_MAX  # each partition's share is rounded down, so the last batch has the rest
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert rows.count() == rows.distinct().count() == LOAD_RECORDS
    ends = rows.groupBy("topic", "partition").agg({"offset": "max", "*": "count"}).collect()
    assert len(ends) == len(LOAD_TOPICS) * LOAD_PARTITIONS
    assert all(row["max(offset)"] + 1 == row["count(1)"] for row in ends)


def fill(bootstrap: str) -> None:
    """Produce LOAD_RECORDS records, spread evenly over all partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    places = [(topic, partition) for topic in LOAD_TOPICS for partition in range(LOAD_PARTITIONS)]
    for number in range(LOAD_RECORDS):
        topic, partition = places[number % len(places)]
        while True:
            try:
                producer.produce(topic, b"%100d" % number, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
