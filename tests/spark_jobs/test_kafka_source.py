"""Spark's Kafka source with the broker: each option that selects records returns exactly those.

`numbers` is a topic of three partitions with ten records each, one per second and partition from `START_MS` on; the
value of a record names its partition and offset.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from tests.spark_jobs.conftest import KafkaReader, Sent, Topics

pytestmark = pytest.mark.spark

PARTITIONS = range(3)
COUNT = 10
START_MS = 1_700_000_000_000
Place = tuple[int, int]  # partition and offset


def numbered(partitions: range = PARTITIONS, offsets: range = range(COUNT)) -> list[Sent]:
    return [
        Sent(f"{partition}/{offset}".encode(), partition=partition, timestamp_ms=at(offset))
        for partition in partitions
        for offset in offsets
    ]


@pytest.fixture(scope="module")
def numbers(topics: Topics) -> str:
    topic = topics.create("numbers", len(PARTITIONS))
    topics.send(topic, numbered())
    return topic


def places(records: DataFrame) -> list[Place]:
    """Return partition and offset of each record; its value must match."""
    rows = records.select("partition", "offset", f.col("value").cast("string")).collect()
    assert all(row.value == f"{row.partition}/{row.offset}" for row in rows)
    return sorted((row.partition, row.offset) for row in rows)


def ranges(*bounds: tuple[int, int]) -> list[Place]:
    """Return the places of partitions 0, 1, ... from the first of each pair to the second, exclusive."""
    return [(partition, offset) for partition, (start, end) in enumerate(bounds) for offset in range(start, end)]


ALL = ranges((0, 10), (0, 10), (0, 10))


def at(second: float) -> int:
    """Return the timestamp of the record with that offset."""
    return START_MS + round(second * 1000)


def of(topic: str, by_partition: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): value for partition, value in by_partition.items()}})


BY_PARTITION = {
    "everything": ("startingOffsets", {0: 0, 1: 0, 2: 0}, ALL),
    "from offsets": ("startingOffsets", {0: 0, 1: 4, 2: 10}, ranges((0, 10), (4, 10), (10, 10))),
    "from the earliest": ("startingOffsets", {0: -2, 1: -2, 2: 9}, ranges((0, 10), (0, 10), (9, 10))),
    "up to offsets": ("endingOffsets", {0: 3, 1: -1, 2: 0}, ranges((0, 3), (0, 10), (0, 0))),
    "from times": ("startingOffsetsByTimestamp", {0: at(0), 1: at(4), 2: at(8.001)}, ranges((0, 10), (4, 10), (9, 10))),
    "up to times": ("endingOffsetsByTimestamp", {0: at(0), 1: at(4), 2: at(99)}, ranges((0, 0), (0, 4), (0, 10))),
}


@pytest.mark.parametrize(("option", "by_partition", "expected"), BY_PARTITION.values(), ids=BY_PARTITION)
def test_offset_ranges_by_partition_are_read(
    option: str, by_partition: dict[int, int], expected: list[Place], numbers: str, kafka: KafkaReader
) -> None:
    assert places(kafka.batch({"subscribe": numbers, option: of(numbers, by_partition)})) == expected


BY_TIME = {
    "from a time": ({"startingTimestamp": at(7)}, ranges((7, 10), (7, 10), (7, 10))),
    "between records": ({"startingTimestamp": at(6.5)}, ranges((7, 10), (7, 10), (7, 10))),
    "up to a time": ({"endingTimestamp": at(2)}, ranges((0, 2), (0, 2), (0, 2))),
}


@pytest.mark.parametrize(("options", "expected"), BY_TIME.values(), ids=BY_TIME)
def test_offset_ranges_by_timestamp_are_read(
    options: dict[str, int], expected: list[Place], numbers: str, kafka: KafkaReader
) -> None:
    assert places(kafka.batch({"subscribe": numbers, **options})) == expected


def test_timestamp_after_the_last_record_is_an_error_or_the_end(numbers: str, kafka: KafkaReader) -> None:
    options = {"subscribe": numbers, "startingTimestamp": at(99)}
    with pytest.raises(Exception, match="No offset matched from request"):
        places(kafka.batch(options))
    assert places(kafka.batch({**options, "startingOffsetsByTimestampStrategy": "latest"})) == []


def test_assign_reads_only_the_named_partitions(numbers: str, kafka: KafkaReader) -> None:
    assert places(kafka.batch({"assign": json.dumps({numbers: [0, 2]})})) == ranges((0, 10), (0, 0), (0, 10))


def test_subscribe_reads_a_list_and_a_pattern(topics: Topics, kafka: KafkaReader) -> None:
    left, right = topics.create("pair", 1), topics.create("pair", 1)
    topics.create("pairless", 1)
    for topic in (left, right):
        topics.send(topic, numbered(range(1), range(3)))
    for options in ({"subscribe": f"{left},{right}"}, {"subscribePattern": "pair-.*"}):
        rows = kafka.batch(options).groupBy("topic").count().collect()
        assert {row.topic: row["count"] for row in rows} == {left: 3, right: 3}


def test_more_tasks_than_partitions_read_every_offset_once(numbers: str, kafka: KafkaReader) -> None:
    records = kafka.batch({"subscribe": numbers, "minPartitions": 9})
    assert records.rdd.getNumPartitions() == 9
    assert places(records) == ALL


def test_columns_have_the_types_that_spark_documents(topics: Topics, kafka: KafkaReader) -> None:
    created, appended = (
        topics.create("columns"),
        topics.create("columns", 1, {"message.timestamp.type": "LogAppendTime"}),
    )
    headers = [("trace", b"1"), ("nothing", None), ("trace", b"2"), ("empty", b"")]
    for topic in (created, appended):
        topics.send(topic, [Sent(None, b"key", 0, START_MS, headers), Sent(b"value", None, 0, START_MS + 1)])
    records = kafka.batch({"subscribe": f"{created},{appended}", "includeHeaders": "true"})
    expected = StructType.fromDDL(
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers array<struct<key string, value binary>>"
    )
    assert [(field.name, field.dataType.simpleString()) for field in records.schema] == [
        (field.name, field.dataType.simpleString()) for field in expected
    ]
    rows = records.withColumn("ms", f.unix_millis("timestamp")).orderBy("topic", "offset").collect()
    tombstone, plain, stamped, _ = rows
    assert (tombstone.key, tombstone.value, tombstone.ms, tombstone.timestampType) == (b"key", None, START_MS, 0)
    assert [(header.key, header.value) for header in tombstone.headers] == headers
    assert (plain.key, plain.value, plain.headers, plain.ms) == (None, b"value", None, START_MS + 1)
    assert stamped.timestampType == 1
    assert stamped.ms > START_MS


REFUSED = {
    "startingOffsets": ("latest", "starting offset can't be latest for batch queries"),
    "kafka.auto.offset.reset": ("earliest", "auto.offset.reset"),
    "kafka.value.deserializer": ("x", "value.deserializer"),
    "kafka.enable.auto.commit": ("true", "enable.auto.commit"),
    "kafka.interceptor.classes": ("x", "interceptor.classes"),
}


@pytest.mark.parametrize(("option", "value", "message"), [(key, *row) for key, row in REFUSED.items()])
def test_errors_of_spark_are_reported_to_the_user(
    option: str, value: str, message: str, numbers: str, kafka: KafkaReader
) -> None:
    with pytest.raises(IllegalArgumentException, match=message):
        kafka.batch({"subscribe": numbers, option: value}).collect()


def drain(records: DataFrame, folder: Path, **trigger: object) -> list[int]:
    """Copy the available records of a stream to Parquet at `folder`/out; return the number of records per batch."""
    query = (
        records.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**(trigger or {"availableNow": True}))
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]


def drained(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.parquet(str(folder / "out"))


STREAMS = {
    "all at once": ({}, [30]),
    "once": ({"trigger": {"once": True}}, [30]),
    "bounded batches": ({"maxOffsetsPerTrigger": 12}, [12, 12, 6]),
    "read committed": ({"kafka.isolation.level": "read_committed"}, [30]),
    "offsets through a group": ({"conf": {"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"}}, [30]),
    "small fetches": ({"kafka.max.partition.fetch.bytes": 64, "kafka.fetch.max.bytes": 100}, [30]),
}


@pytest.mark.parametrize(("options", "batches"), STREAMS.values(), ids=STREAMS)
def test_a_stream_reads_everything_once(
    options: dict[str, object],
    batches: list[int],
    numbers: str,
    kafka: KafkaReader,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    options = dict(options)
    trigger, conf = options.pop("trigger", {}), options.pop("conf", {})
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        stream = kafka.stream({"subscribe": numbers, "startingOffsets": "earliest", **options})
        assert drain(stream, tmp_path, **trigger) == batches
    finally:
        for key in conf:
            spark.conf.unset(key)
    assert places(drained(spark, tmp_path)) == ALL


@pytest.mark.parametrize(("delay", "sent", "batches"), [("1h", [5, 5], [30, 10]), ("1s", [1], [30, 1])])
def test_a_batch_waits_for_its_least_number_of_records_or_its_longest_delay(
    delay: str, sent: list[int], batches: list[int], topics: Topics, kafka: KafkaReader, tmp_path: Path
) -> None:
    topic = topics.create("least")
    topics.send(topic, numbered(range(1), range(30)))
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 10, "maxTriggerDelay": delay}
    stream = kafka.stream({"subscribe": topic, **options})
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()

    def sizes() -> list[int]:
        return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]

    def wait_for(records: int) -> None:
        deadline = time.monotonic() + 60
        while sum(sizes()) < records:
            assert time.monotonic() < deadline, sizes()
            time.sleep(0.05)

    try:
        wait_for(30)
        for count in sent:
            topics.send(topic, numbered(range(1), range(count)))
            time.sleep(0.3)  # several triggers, which must not read the first of two parts alone
        wait_for(sum(batches))
        assert sizes() == batches
    finally:
        query.stop()


def test_a_restarted_stream_reads_new_records_partitions_and_topics(
    topics: Topics, kafka: KafkaReader, spark: SparkSession, tmp_path: Path
) -> None:
    stem = topics.new_name("growing")
    stream = kafka.stream({"subscribePattern": f"{stem}.*", "startingOffsets": "earliest"})
    first = topics.create(stem)
    topics.send(first, numbered(range(1), range(3)))
    drain(stream, tmp_path)
    topics.grow(first, 2)
    second = topics.create(stem)
    topics.send(first, numbered(range(2), range(3)))
    topics.send(second, numbered(range(1), range(4)))
    assert sum(drain(stream, tmp_path)) == 3 + 3 + 4
    rows = drained(spark, tmp_path).collect()
    assert Counter((row.topic, row.partition) for row in rows) == {(first, 0): 6, (first, 1): 3, (second, 0): 4}
    assert len({(row.topic, row.partition, row.offset) for row in rows}) == len(rows)


def test_a_start_beyond_the_end_fails_the_query(topics: Topics, kafka: KafkaReader, tmp_path: Path) -> None:
    topic = topics.create("short")
    topics.send(topic, numbered(range(1), range(3)))
    stream = kafka.stream({"subscribe": topic, "startingOffsets": of(topic, {0: 7}), "failOnDataLoss": "true"})
    with pytest.raises(StreamingQueryException, match=r"data may have been missed|offset was changed from 7 to"):
        drain(stream, tmp_path)


def test_a_continuous_query_processes_records_as_they_arrive(
    topics: Topics, kafka: KafkaReader, tmp_path: Path
) -> None:
    source, target = topics.create("live-in"), topics.create("live-out")
    query = copy_to_topic(kafka.stream({"subscribe": source}), topics, target, tmp_path)
    try:
        query.processAllAvailable()  # only now the start of "latest", the default, is determined
        for value in (b"first", b"second"):
            topics.send(source, [Sent(value)])
            query.processAllAvailable()
            assert topics.read(target)[-1].value() == value
    finally:
        query.stop()


def copy_to_topic(records: DataFrame, topics: Topics, target: str, checkpoint: Path) -> StreamingQuery:
    return (
        records.select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
