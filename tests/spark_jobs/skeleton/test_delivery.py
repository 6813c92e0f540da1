"""Repeated batches do no harm: duplicates have the same id, and a transaction is written once."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import wordcount
from spark_jobs.skeleton.delivery import TransactionalSink, start_batch_query, without_duplicates
from spark_jobs.skeleton.errors import JobError
from tests.spark_jobs.conftest import JobRunner, KafkaReader, Sent, Topics
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.spark


def test_readers_keep_the_first_record_of_each_id(spark: SparkSession, topics: Topics, kafka: KafkaReader) -> None:
    topic = topics.create("twice", 1)
    sent = [Sent(value, headers=[("record-id", b"a/0/%d" % number)]) for number, value in enumerate((b"x", b"y"))]
    topics.send(
        topic, [*sent, sent[0], sent[1], Sent(b"z", headers=[("record-id", b"b/0/0"), ("record-id", b"a/0/9")])]
    )
    topics.send(topic, [Sent(b"no id", headers=[("other", b"1")]), Sent(b"no id")])
    rows = without_duplicates(kafka.batch({"subscribe": topic, "includeHeaders": "true"})).collect()
    assert sorted((bytes(row.value), row.offset) for row in rows) == [
        (b"no id", 5),
        (b"no id", 6),
        (b"x", 0),
        (b"y", 1),
        (b"z", 4),
    ]


def test_what_a_batch_raises_after_its_query_was_stopped_is_no_failure(
    spark: SparkSession, topics: Topics, kafka: KafkaReader, job_runner: JobRunner
) -> None:
    topic = topics.create("stopped", 1)
    topics.send(topic, [Sent(b"1")])
    has_begun, is_known = Event(), Event()

    def write(_rows: DataFrame, _batch: int) -> None:
        has_begun.set()
        is_known.wait()
        while query.isActive:
            pass
        trace = "\n\tat org.apache.spark.Of$Pages(Of.scala:1)" * 500
        raise RuntimeError(f"py4j.protocol.Py4JJavaError: An error occurred while calling o1.collect{trace}")

    system = spark._jvm.java.lang.System
    errors, stderr = spark._jvm.java.io.ByteArrayOutputStream(), system.err
    system.setErr(spark._jvm.java.io.PrintStream(errors))
    try:
        query = start_batch_query(
            kafka.stream({"subscribe": topic}), job_runner.parse(wordcount.JOB, "--trigger", "1 second"), write
        )
        is_known.set()
        assert has_begun.wait(60)
        query.stop()
        assert query.exception() is None
    finally:
        system.setErr(stderr)
    assert "StackOverflowError" not in errors.toString()


def committed_values(topics: Topics, topic: str) -> list[bytes | None]:
    """Return the values that a reader with read_committed sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": topics.bootstrap,
            "group.id": "committed",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(message.value())
        return found
    finally:
        consumer.close()


def test_a_batch_is_written_in_one_transaction_once(topics: Topics) -> None:
    target, marker = topics.create("target", 1), topics.create("marker", 1, {"cleanup.policy": "compact"})
    first = TransactionalSink(topics.client, "app", marker)
    assert first.write(0, [{"topic": target, "value": b"0"}])
    assert not first.write(0, [{"topic": target, "value": b"repeated"}])
    second = TransactionalSink(topics.client, "app", marker)
    assert not second.write(0, [{"topic": target, "value": b"repeated"}])
    assert second.write(1, [{"topic": target, "value": b"1"}])
    other = TransactionalSink(topics.client, "another", marker)
    assert other.write(0, [{"topic": target, "value": b"of another"}])
    with pytest.raises(JobError, match="batch 2 was aborted"):
        first.write(2, [{"topic": target, "value": b"of a zombie"}])
    assert committed_values(topics, target) == [b"0", b"1", b"of another"]


def test_a_refused_record_aborts_the_batch(topics: Topics) -> None:
    target = topics.create("target", 1, {"max.message.bytes": "1000"})
    marker = topics.create("marker", 1)
    sink = TransactionalSink(topics.client, "app", marker)
    with pytest.raises(
        JobError, match=r"batch 0 was aborted: .* \d records were refused: Broker: Message size too large"
    ):
        sink.write(0, [{"topic": target, "value": b"small"}, {"topic": target, "value": b"x" * 5_000}])
    again = TransactionalSink(topics.client, "app", marker)
    assert again.write(0, [{"topic": target, "value": b"again"}])
    assert committed_values(topics, target) == [b"again"]


def test_a_batch_that_takes_longer_than_its_transaction_may_is_named_and_repeated_with_a_longer_one(
    tmp_path: Path,
) -> None:
    cleanup = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with BrokerProcess(tmp_path, {cleanup: "100"}) as broker:
        topics = Topics(broker.bootstrap)
        client = {**topics.client, "log_level": "2"}  # the producers outlive the broker
        target, marker = topics.create("target", 1), topics.create("marker", 1)

        def records() -> Iterator[dict[str, object]]:
            yield {"topic": target, "value": b"1"}
            consumer = Consumer({**topics.client, "group.id": "end"})
            while consumer.get_watermark_offsets(TopicPartition(target, 0), 30)[1] < 2:  # the broker has aborted
                pass
            consumer.close()
            yield {"topic": target, "value": b"2"}

        sink = TransactionalSink(client, "app", marker, {"transaction.timeout.ms": "1000"})
        with pytest.raises(
            JobError, match=r"batch 0 .* longer than transaction\.timeout\.ms=1000, .*--max-offsets-per"
        ):
            sink.write(0, records())
        again = TransactionalSink(client, "app", marker)
        assert again.write(0, [{"topic": target, "value": value} for value in (b"1", b"2")])
        assert committed_values(topics, target) == [b"1", b"2"]
