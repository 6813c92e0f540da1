"""Spark's Kafka source where offsets are missing: transactions, compaction, deleted records, a topic made anew."""

import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark_jobs.conftest import KafkaReader, Sent, Topics
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.spark

LARGE_BYTES = 1_000_000


def copied(records: DataFrame, folder: Path) -> list[tuple[int, str]]:
    """Read the stream to its end, from its checkpoint in `folder`; return offset and value of all records so far."""
    query = (
        records.selectExpr("offset", "CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    rows = records.sparkSession.read.parquet(str(folder / "out")).collect()
    return sorted((row.offset, row.value) for row in rows)


def open_transaction(topics: Topics, topic: str, values: list[bytes], name: str) -> Producer:
    """Store records in a transaction that the caller has to end."""
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": f"{topic}-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    return producer


def test_read_committed_skips_aborted_records_and_markers_and_ends_before_an_open_transaction(
    topics: Topics, kafka: KafkaReader, tmp_path: Path
) -> None:
    topic = topics.create("transactions", 1)
    stream = kafka.stream(
        {"subscribe": topic, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    )
    open_transaction(topics, topic, [b"a", b"b"], "first").commit_transaction(30)
    open_transaction(topics, topic, [b"lost"] * 3, "second").abort_transaction(30)
    expected = [(0, "a"), (1, "b")]
    assert copied(stream, tmp_path) == expected
    open_transaction(topics, topic, [b"c"], "first").commit_transaction(30)
    topics.send(topic, [Sent(b"d")])
    still_open = open_transaction(topics, topic, [b"e"], "second")
    topics.send(topic, [Sent(b"f")])
    expected += [(7, "c"), (9, "d")]
    assert copied(stream, tmp_path) == expected
    still_open.commit_transaction(30)
    assert copied(stream, tmp_path) == [*expected, (10, "e"), (11, "f")]


def test_gaps_of_compaction_are_read_over(spark: SparkSession, tmp_path: Path) -> None:
    overrides = {"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "0"}
    with BrokerProcess(tmp_path / "broker", overrides) as broker:
        topics = Topics(broker.bootstrap)
        config = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.01"}
        topic = topics.create("compacted", 1, config)
        for number in range(60):
            topics.send(topic, [Sent(b"%d" % number + b"x" * 100, b"k%d" % (number % 3))], {"linger.ms": "0"})
        deadline = time.monotonic() + 60
        while len(topics.read(topic)) > 30:
            assert time.monotonic() < deadline, "nothing was compacted"
        stream = KafkaReader(spark, broker.bootstrap).stream({"subscribe": topic, "startingOffsets": "earliest"})
        found = copied(stream, tmp_path)
        assert 3 <= len(found) < 60
        assert found[-1][0] == 59
        assert {value.rstrip("x") for _, value in found} >= {"57", "58", "59"}


@pytest.mark.parametrize("fails", [True, False])
def test_deleted_records_fail_the_query_or_are_skipped(
    fails: bool, topics: Topics, kafka: KafkaReader, tmp_path: Path
) -> None:
    topic = topics.create("deleted", 1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    topics.send(topic, [Sent(b"%d" % number) for number in range(3)])
    copied(kafka.stream(options), tmp_path)
    topics.send(topic, [Sent(b"%d" % number) for number in range(3, 9)])
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 7)])[TopicPartition(topic, 0)].result()
    if fails:
        with pytest.raises(StreamingQueryException, match=f"{topic}-0"):
            copied(kafka.stream(options), tmp_path)
    else:
        found = copied(kafka.stream(options), tmp_path)
        assert found == [(number, str(number)) for number in (0, 1, 2, 7, 8)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_made_anew_under_a_running_query_fails_it_or_is_read_on(
    fails: bool, topics: Topics, kafka: KafkaReader, tmp_path: Path
) -> None:
    """Without a failure the new topic is read from where it ended when the query noticed, never from its start."""
    topic = topics.create("anew", 1)
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    # While the topic does not exist. The query also waits this long whether its offsets return.
    patient = {"fetchOffset.numRetries": 100, "fetchOffset.retryIntervalMs": 20}
    rows = kafka.stream({**options, **patient}).selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    try:
        topics.send(topic, [Sent(b"old")] * 5)
        query.processAllAvailable()
        admin = AdminClient({"bootstrap.servers": topics.bootstrap})
        admin.delete_topics([topic])[topic].result()
        topics.create_named(topic, 1)
        topics.send(topic, [Sent(b"unread")])
        if fails:
            with pytest.raises(StreamingQueryException, match=r"may have been missed|was changed from 5 to"):
                query.processAllAvailable()
            return
        query.processAllAvailable()
        topics.send(topic, [Sent(b"new")] * 2)
        query.processAllAvailable()
    finally:
        query.stop()
    found = Counter(row.value for row in rows.sparkSession.read.parquet(str(tmp_path / "out")).collect())
    assert found.pop("unread", 0) <= 1  # if the query noticed the topic before its first record
    assert found == {"old": 5, "new": 2}


def test_records_of_a_megabyte_pass_source_and_sink(spark: SparkSession, topics: Topics, kafka: KafkaReader) -> None:
    source, target = topics.create("large", 1), topics.create("large", 1, {"max.message.bytes": "1100000"})
    topics.send(source, [Sent(bytes([number]) * LARGE_BYTES) for number in range(3)], {"message.max.bytes": "1100000"})
    rows = kafka.batch({"subscribe": source}).select("value")
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": target, "kafka.max.request.size": "1100000"}
    rows.write.format("kafka").options(**options).save()
    assert Counter(message.value() for message in topics.read(target)) == Counter(
        bytes([number]) * LARGE_BYTES for number in range(3)
    )


def test_continuous_processing_copies_records_in_order(topics: Topics, kafka: KafkaReader, tmp_path: Path) -> None:
    source, target = topics.create("live", 1), topics.create("live", 1)
    topics.send(source, [Sent(b"%d" % number) for number in range(20)])
    query = (
        kafka.stream({"subscribe": source, "startingOffsets": "earliest"})
        .select("value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path))
        .trigger(continuous="1 second")
        .start()
    )
    try:
        deadline = time.monotonic() + 60
        while len(topics.read(target)) < 20:
            assert time.monotonic() < deadline, query.exception()
    finally:
        query.stop()
    assert [message.value() for message in topics.read(target)] == [b"%d" % number for number in range(20)]
