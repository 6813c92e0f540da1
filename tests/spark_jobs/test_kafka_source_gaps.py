"""Spark's Kafka source where offsets are missing: transactions, compaction, deletion, retention, a topic made anew."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.skeleton.errors import cause_of
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
    assert_gap_is_named_or_skipped(fails, kafka.stream(options), topic, tmp_path)


def assert_gap_is_named_or_skipped(fails: bool, stream: DataFrame, topic: str, folder: Path) -> None:
    """Continue a query that has read offsets 0 to 2, where 7 and 8 are the only ones left.

    The line that a job logs about its error names the records that it did not find. A query that skips the gap
    continues with the earliest record.
    """
    if fails:
        with pytest.raises(StreamingQueryException) as failure:
            copied(stream, folder)
        assert f"records in offset [3, 9) for topic partition {topic}-0 " in cause_of(failure.value)
    else:
        assert copied(stream, folder) == [(number, str(number)) for number in (0, 1, 2, 7, 8)]


@pytest.fixture(scope="module")
def retaining(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """The topics of a broker that removes segments at once when a limit of retention is reached."""
    settings = {"log.retention.check.interval.ms": "50", "log.initial.task.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("retaining"), settings) as broker:
        yield Topics(broker.bootstrap)


# Each record is a segment of 69 bytes. Those up to offset 6 are an hour old.
@pytest.mark.parametrize("limit", [{"retention.ms": "600000"}, {"retention.bytes": "100"}], ids=" ".join)
@pytest.mark.parametrize("fails", [True, False])
def test_segments_removed_by_retention_while_a_query_is_stopped_fail_it_or_are_skipped(
    fails: bool, limit: dict[str, str], retaining: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic = retaining.create("retained", 1, {"segment.bytes": "100"})
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    stream = KafkaReader(spark, retaining.bootstrap).stream(options)
    now_ms = int(time.time() * 1000)
    sent = [Sent(b"%d" % number, timestamp_ms=now_ms - (3_600_000 if number < 7 else 0)) for number in range(9)]
    one_by_one = {"batch.num.messages": "1"}
    retaining.send(topic, sent[:3], one_by_one)
    copied(stream, tmp_path)
    retaining.send(topic, sent[3:], one_by_one)
    configs = [ConfigEntry(*it, incremental_operation=AlterConfigOpType.SET) for it in limit.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=configs)
    admin = AdminClient(retaining.client)
    admin.incremental_alter_configs([resource])[resource].result()
    place, deadline = TopicPartition(topic, 0), time.monotonic() + 60
    while (start := admin.list_offsets({place: OffsetSpec.earliest()})[place].result().offset) < 7:
        assert time.monotonic() < deadline, f"the log still starts at {start}"
    assert_gap_is_named_or_skipped(fails, stream, topic, tmp_path)


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
