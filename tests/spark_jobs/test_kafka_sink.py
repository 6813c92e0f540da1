"""Spark's Kafka sink with the broker: other clients read exactly the contents of the rows."""

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Message
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark_jobs.conftest import KafkaReader, Sent, Topics
from tools.admin import transactions

pytestmark = pytest.mark.spark

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def place(message: Message) -> tuple[int, bytes | None, bytes | None]:
    return message.partition(), message.key(), message.value()


def test_null_values_headers_and_partitions_are_kept(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("rows", 3)
    headers = [("trace", bytearray(b"1")), ("nothing", None), ("trace", bytearray(b""))]
    rows = [
        (bytearray(b"k"), None, 2, headers),
        (None, bytearray(b"v"), 1, None),
        (bytearray(b""), bytearray(b""), 0, []),
    ]
    schema = "key binary, value binary, partition int, headers array<struct<key string, value binary>>"
    spark.createDataFrame(rows, schema).write.format("kafka").options(
        **{"kafka.bootstrap.servers": topics.bootstrap, "topic": topic, "includeHeaders": "true"}
    ).save()
    stored = topics.read(topic)
    assert [place(message) for message in stored] == [(0, b"", b""), (1, None, b"v"), (2, b"k", None)]
    assert [message.headers() for message in stored] == [
        None,
        None,
        [("trace", b"1"), ("nothing", None), ("trace", b"")],
    ]


def test_the_topic_column_chooses_and_the_option_overrides_it(spark: SparkSession, topics: Topics) -> None:
    left, right, override = (topics.create(stem) for stem in ("left", "right", "override"))
    rows = spark.createDataFrame([(left, "a"), (right, "b"), (left, "c")], "topic string, value string").coalesce(1)
    rows.write.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).save()
    rows.write.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).option("topic", override).save()
    stored = {topic: [message.value() for message in topics.read(topic)] for topic in (left, right, override)}
    assert stored == {left: [b"a", b"c"], right: [b"b"], override: [b"a", b"b", b"c"]}


def test_a_key_gets_the_partition_that_other_clients_give_it(spark: SparkSession, topics: Topics) -> None:
    by_spark, by_librdkafka = topics.create("keys", 5), topics.create("keys", 5)
    keys = [f"key {number}" for number in range(100)]
    rows = spark.createDataFrame([(key,) for key in keys], "key string").selectExpr("key", "key AS value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).option("topic", by_spark).save()
    sent = [Sent(key.encode(), key.encode(), partition=-1) for key in keys]
    topics.send(by_librdkafka, sent, {"partitioner": "murmur2_random"})
    partition_of = [
        {message.key(): message.partition() for message in topics.read(topic)} for topic in (by_spark, by_librdkafka)
    ]
    assert len(partition_of[0]) == len(keys)
    assert partition_of[0] == partition_of[1]


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_is_read_by_other_clients(
    codec: str, spark: SparkSession, topics: Topics, kafka: KafkaReader
) -> None:
    topic = topics.create(f"compressed-{codec}")
    rows = spark.range(2_000).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafka").options(
        **{"kafka.bootstrap.servers": topics.bootstrap, "topic": topic, "kafka.compression.type": codec}
    ).save()
    expected = Counter(str(number).encode() for number in range(2_000))
    assert Counter(message.value() for message in topics.read(topic)) == expected
    assert kafka.batch({"subscribe": topic}).distinct().count() == 2_000


def test_a_record_that_is_too_large_fails_the_task_with_kafkas_error(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("limited", 1, {"max.message.bytes": "1000"})
    rows = spark.range(1).select(f.repeat(f.lit("x"), 5_000).alias("value"))
    with pytest.raises(Py4JJavaError, match="RecordTooLargeException"):
        rows.write.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).option("topic", topic).save()
    assert topics.read(topic) == []


@pytest.mark.parametrize(("options", "producers"), [({}, 1), ({"kafka.enable.idempotence": "false"}, 0)])
def test_the_sink_is_idempotent_by_default(
    options: dict[str, str],
    producers: int,
    spark: SparkSession,
    topics: Topics,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = topics.create("producers")
    own = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic, "kafka.acks": "all", "kafka.linger.ms": "5"}
    spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("kafka").options(**own, **options).save()
    place = ["--topic", topic, "--partition", "0"]
    assert transactions.main(["--bootstrap-server", topics.bootstrap, "describe-producers", *place]) == 0
    _, *known = capsys.readouterr().out.splitlines()
    assert len(known) == producers
    assert len(topics.read(topic)) == 3


MODES = {"append": [b"0", b"1", b"2"], "update": [b"a:2", b"b:1"], "complete": [b"a:2", b"b:1"]}


@pytest.mark.parametrize(("mode", "expected"), MODES.items(), ids=MODES)
def test_streams_write_in_every_output_mode(
    mode: str, expected: list[bytes], topics: Topics, kafka: KafkaReader, tmp_path: Path
) -> None:
    source, target = topics.create("in"), topics.create("out")
    topics.send(source, [Sent(b"0", b"a"), Sent(b"1", b"b"), Sent(b"2", b"a")])
    rows = kafka.stream({"subscribe": source, "startingOffsets": "earliest"})
    if mode != "append":
        counts = rows.groupBy(f.col("key").cast("string").alias("key")).count()
        rows = counts.select(f.concat_ws(":", "key", "count").alias("value"))
    query = (
        rows.select("value")
        .writeStream.format("kafka")
        .outputMode(mode)
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(message.value() for message in topics.read(target)) == expected


def test_two_queries_write_to_one_topic(topics: Topics, kafka: KafkaReader, tmp_path: Path) -> None:
    target, sent = topics.create("shared"), {b"left", b"right"}
    queries = []
    for value in sorted(sent):
        source = topics.create("in")
        topics.send(source, [Sent(value)])
        writer = kafka.stream({"subscribe": source, "startingOffsets": "earliest"}).select("value").writeStream
        writer = writer.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap).option("topic", target)
        writer = writer.option("checkpointLocation", str(tmp_path / source)).trigger(availableNow=True)
        queries.append(writer.start())
    for query in queries:
        query.awaitTermination()
    assert {message.value() for message in topics.read(target)} == sent


def test_a_stream_without_checkpoint_is_rejected(topics: Topics, kafka: KafkaReader) -> None:
    stream = kafka.stream({"subscribe": topics.create("in")}).select("value").writeStream.format("kafka")
    with pytest.raises(AnalysisException, match="checkpointLocation"):
        stream.option("kafka.bootstrap.servers", topics.bootstrap).option("topic", "out").start()
