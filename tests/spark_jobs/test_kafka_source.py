"""Spark's Kafka source with the broker: each option that selects records returns exactly those.

`numbers` is a topic of three partitions with ten records each, one per second and partition from `START_MS` on; the
value of a record names its partition and offset.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
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


def place(row: Row) -> Place:
    """Return partition and offset of a record; its value must match."""
    assert row.value == f"{row.partition}/{row.offset}"
    return row.partition, row.offset


def places(records: DataFrame) -> list[Place]:
    """Return the places of all records."""
    return sorted(map(place, records.select("partition", "offset", f.col("value").cast("string")).collect()))


def ranges(*bounds: tuple[int, int]) -> list[Place]:
    """Return the places of partitions 0, 1, ... from the first of each pair to the second, exclusive."""
    return [(partition, offset) for partition, (start, end) in enumerate(bounds) for offset in range(start, end)]


ALL = ranges((0, 10), (0, 10), (0, 10))


def at(second: float) -> int:
    """Return the timestamp of the record with that offset."""
    return START_MS + round(second * 1000)


def of(topic: str, by_partition: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): value for partition, value in by_partition.items()}})


def up_to_the_end(topic: str) -> dict[str, str]:
    """Return the end as offsets: Spark does not split a batch by maxRecordsPerPartition up to `latest`."""
    return {"endingOffsets": of(topic, dict.fromkeys(PARTITIONS, COUNT))}


BY_PARTITION = {
    "all offsets": ("startingOffsets", {0: 0, 1: 0, 2: 0}, ALL),
    "from offsets": ("startingOffsets", {0: 0, 1: 4, 2: 10}, ranges((0, 10), (4, 10), (10, 10))),
    "from the earliest": ("startingOffsets", {0: -2, 1: -2, 2: 9}, ranges((0, 10), (0, 10), (9, 10))),
    "up to offsets": ("endingOffsets", {0: 3, 1: -1, 2: 0}, ranges((0, 3), (0, 10), (0, 0))),
    "from times": ("startingOffsetsByTimestamp", {0: at(0), 1: at(4), 2: at(8.001)}, ranges((0, 10), (4, 10), (9, 10))),
    "up to times": ("endingOffsetsByTimestamp", {0: at(0), 1: at(4), 2: at(99)}, ranges((0, 0), (0, 4), (0, 10))),
}
OF_ALL_PARTITIONS = {
    "everything": ({}, ALL),
    "from a time": ({"startingTimestamp": at(7)}, ranges((7, 10), (7, 10), (7, 10))),
    "between records": ({"startingTimestamp": at(6.5)}, ranges((7, 10), (7, 10), (7, 10))),
    "up to a time": ({"endingTimestamp": at(2)}, ranges((0, 2), (0, 2), (0, 2))),
    "from the end": ({"startingTimestamp": at(99), "startingOffsetsByTimestampStrategy": "latest"}, []),
    "nine tasks": ({"minPartitions": 9}, ALL),
}
SOME_PARTITIONS = ranges((0, 10), (0, 0), (0, 10))


@pytest.fixture(scope="module")
def read_places(numbers: str, kafka: KafkaReader) -> Mapping[str, list[Place]]:
    """The places that each batch read returns, by its name; one query makes all reads."""
    options: dict[str, Mapping[str, object]] = {
        name: {"subscribe": numbers, option: of(numbers, by_partition)}
        for name, (option, by_partition, _) in BY_PARTITION.items()
    }
    options |= {name: {"subscribe": numbers, **more} for name, (more, _) in OF_ALL_PARTITIONS.items()}
    options["assign"] = {"assign": json.dumps({numbers: [0, 2]})}
    options["four records a task"] = {"subscribe": numbers, "maxRecordsPerPartition": 4, **up_to_the_end(numbers)}
    reads = [
        kafka.batch(each).select(f.lit(name).alias("name"), "partition", "offset", f.col("value").cast("string"))
        for name, each in options.items()
    ]
    found: dict[str, list[Place]] = {name: [] for name in options}
    for row in reduce(DataFrame.unionAll, reads).collect():
        found[row.name].append(place(row))
    return {name: sorted(of_read) for name, of_read in found.items()}


EXPECTED = {
    **{name: expected for name, (_, _, expected) in BY_PARTITION.items()},
    **{name: expected for name, (_, expected) in OF_ALL_PARTITIONS.items()},
    "assign": SOME_PARTITIONS,
    "four records a task": ALL,
}


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items(), ids=EXPECTED)
def test_options_select_exactly_their_records(
    name: str, expected: list[Place], read_places: Mapping[str, list[Place]]
) -> None:
    assert read_places[name] == expected


def test_timestamp_after_the_last_record_is_an_error(numbers: str, kafka: KafkaReader) -> None:
    with pytest.raises(Exception, match="No offset matched from request"):
        kafka.batch({"subscribe": numbers, "startingTimestamp": at(99)}).collect()


def test_subscribe_reads_a_list_and_a_pattern(topics: Topics, kafka: KafkaReader) -> None:
    left, right = topics.create("pair", 1), topics.create("pair", 1)
    topics.create("pairless", 1)
    for topic in (left, right):
        topics.send(topic, numbered(range(1), range(3)))
    for options in ({"subscribe": f"{left},{right}"}, {"subscribePattern": "pair-.*"}):
        rows = kafka.batch(options).groupBy("topic").count().collect()
        assert {row.topic: row["count"] for row in rows} == {left: 3, right: 3}


SPLITS = {"one a partition": ({}, 3), "nine": ({"minPartitions": 9}, 9), "by size": ({"maxRecordsPerPartition": 4}, 9)}


@pytest.mark.parametrize(("options", "tasks"), SPLITS.values(), ids=SPLITS)
def test_partitions_are_split_into_tasks(
    options: Mapping[str, int], tasks: int, numbers: str, kafka: KafkaReader
) -> None:
    read = kafka.batch({"subscribe": numbers, **options, **up_to_the_end(numbers)})
    assert read.rdd.getNumPartitions() == tasks


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
    "kafka.key.deserializer": ("x", "key.deserializer"),
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


def start_copy(records: DataFrame, folder: Path, **trigger: object) -> StreamingQuery:
    """Start to copy the available records of a stream to Parquet at `folder`/out."""
    return (
        records.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**(trigger or {"availableNow": True}))
        .start(str(folder / "out"))
    )


def drain(records: DataFrame, folder: Path) -> list[int]:
    """Copy the available records of a stream to Parquet at `folder`/out; return the number of records per batch."""
    query = start_copy(records, folder)
    query.awaitTermination()
    return sizes(query)


def sizes(query: StreamingQuery) -> list[int]:
    """Return the number of records of each batch that has any."""
    return [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]]


def drained(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.parquet(str(folder / "out"))


@dataclass(frozen=True)
class Stream:
    """Options of a stream over records of `numbers`, the sizes of its batches, and what it reads."""

    batches: list[int]
    options: Mapping[str, object] = field(default_factory=dict)
    trigger: Mapping[str, object] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    start: Mapping[int, int] | None = None  # the offset by partition; None for the earliest of all
    places: list[Place] = field(default_factory=lambda: ALL)


STREAMS = {
    "all at once": Stream([30]),
    "once": Stream([30], trigger={"once": True}),
    "bounded batches": Stream([12, 12, 6], {"maxOffsetsPerTrigger": 12}),
    "read committed": Stream([30], {"kafka.isolation.level": "read_committed"}),
    "offsets through a group": Stream([30], conf={"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"}),
    "from offsets": Stream([14], start={0: -2, 1: -1, 2: 6}, places=ranges((0, 10), (10, 10), (6, 10))),
    "small fetches": Stream([30], {"kafka.max.partition.fetch.bytes": 64, "kafka.fetch.max.bytes": 100}),
}


@pytest.fixture(scope="module")
def copies(
    numbers: str, kafka: KafkaReader, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[list[int], list[Place]]]:
    """The sizes of the batches and the places that each stream copied, by its name; all streams run at once."""
    folder = tmp_path_factory.mktemp("copies")
    queries = {}
    for name, stream in STREAMS.items():
        for key, value in stream.conf.items():
            spark.conf.set(key, value)  # a query keeps the settings that it was started with
        start = "earliest" if stream.start is None else of(numbers, stream.start)
        records = kafka.stream({"subscribe": numbers, "startingOffsets": start, **stream.options})
        queries[name] = start_copy(records, folder / name, **stream.trigger)
        for key in stream.conf:
            spark.conf.unset(key)
    for query in queries.values():
        query.awaitTermination()
    copied = reduce(
        DataFrame.unionAll,
        (drained(spark, folder / name).withColumn("name", f.lit(name)) for name in STREAMS),
    ).collect()
    return {
        name: (sizes(query), sorted(place(row) for row in copied if row.name == name))
        for name, query in queries.items()
    }


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_reads_its_records_once(name: str, copies: dict[str, tuple[list[int], list[Place]]]) -> None:
    assert copies[name] == (STREAMS[name].batches, STREAMS[name].places)


@pytest.mark.parametrize(("delay", "sent", "batches"), [("1h", [5, 5], [30, 10]), ("1s", [1], [30, 1])])
def test_a_batch_waits_for_its_least_number_of_records_or_its_longest_delay(
    delay: str, sent: list[int], batches: list[int], topics: Topics, kafka: KafkaReader, tmp_path: Path
) -> None:
    topic = topics.create("least")
    topics.send(topic, numbered(range(1), range(30)))
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 10, "maxTriggerDelay": delay}
    stream = kafka.stream({"subscribe": topic, **options})
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()

    def wait_for(records: int) -> None:
        deadline = time.monotonic() + 60
        while sum(sizes(query)) < records:
            assert time.monotonic() < deadline, sizes(query)
            time.sleep(0.05)

    try:
        wait_for(30)
        for count in sent:
            topics.send(topic, numbered(range(1), range(count)))
            time.sleep(0.3)  # several triggers, which must not read the first of two parts alone
        wait_for(sum(batches))
        assert sizes(query) == batches
    finally:
        query.stop()


def test_a_running_stream_reads_new_partitions_and_topics_from_their_first_record(
    topics: Topics, kafka: KafkaReader, spark: SparkSession, tmp_path: Path
) -> None:
    stem = topics.new_name("growing")
    first = topics.create(stem)
    topics.send(first, numbered(range(1), range(3)))
    stream = kafka.stream({"subscribePattern": f"{stem}.*", "startingOffsets": "earliest"})
    query = start_copy(stream, tmp_path, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        topics.grow(first, 2)
        second = topics.create(stem)
        topics.send(first, numbered(range(2), range(3)))
        topics.send(second, numbered(range(1), range(4)))
        query.processAllAvailable()
    finally:
        query.stop()
    rows = drained(spark, tmp_path).collect()
    assert Counter((row.topic, row.partition) for row in rows) == {(first, 0): 6, (first, 1): 3, (second, 0): 4}
    assert len({(row.topic, row.partition, row.offset) for row in rows}) == len(rows)


def test_a_bounded_batch_takes_from_each_partition_in_proportion_to_its_lag(
    topics: Topics, kafka: KafkaReader, tmp_path: Path
) -> None:
    topic = topics.create("lags", 3)
    for partition, count in enumerate((60, 30, 10)):
        topics.send(topic, numbered(range(partition, partition + 1), range(count)))
    stream = kafka.stream({"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 20})
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        (source,) = query.recentProgress[0]["sources"]
        assert json.loads(source["endOffset"].replace("'", '"')) == {topic: {"0": 12, "1": 6, "2": 2}}
        assert sizes(query) == [20] * 5
    finally:
        query.stop()


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
