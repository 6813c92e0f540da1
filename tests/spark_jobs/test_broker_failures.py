"""A query survives a kill and restart of its broker; a job whose broker stays away ends, and continues later."""

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import wordcount
from tests.spark_jobs.conftest import JobRunner, KafkaReader, Sent, Topics, last_values, lines
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.spark


def test_a_running_query_continues_after_a_restart_of_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create("numbers", 2)
        stream = KafkaReader(spark, broker.bootstrap).stream({"subscribe": topic, "startingOffsets": "earliest"})
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


class AfterFirstBatch(logging.Handler):
    """Calls `action` when a job has reported its first batch."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def emit(self, record: logging.LogRecord) -> None:
        if ": batch 0: " in record.getMessage():
            self._action()


def test_a_job_whose_broker_stays_away_ends_with_1_and_continues_from_its_checkpoint(
    spark: SparkSession, job_runner: JobRunner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_jobs")
    with BrokerProcess(tmp_path / "broker") as broker:
        topics = Topics(broker.bootstrap)
        runner = JobRunner(spark, topics, job_runner.folder)
        source, target = topics.create("words"), topics.create("counts")
        topics.send(source, lines(*["a b"] * 4))
        flags = ["--input", source, "--output", target, "--max-offsets-per-trigger", "1"]
        for key in ("request.timeout.ms", "default.api.timeout.ms", "max.block.ms", "delivery.timeout.ms"):
            flags += ["--kafka-option", f"{key}=2000"]
        handler, log = AfterFirstBatch(broker.kill), logging.getLogger("spark_jobs")
        log.addHandler(handler)
        try:
            assert runner.supervise(wordcount.JOB, *flags, "--trigger", "1 second") == 1
        finally:
            log.removeHandler(handler)
        (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert line.startswith("query failed: ")
        broker.start()
        topics.send(source, lines("b"))
        assert runner.supervise(wordcount.JOB, *flags) == 0
        assert last_values(topics.read(target)) == {"a": "4", "b": "5"}
