"""A streaming query survives a kill and restart of its broker without losing a record."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.conftest import KafkaReader, Sent, Topics
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
