"""The producer succeeds only if every record is stored."""

import pytest

from spark_jobs import flights_produce
from spark_jobs.flights import FlightRecord
from spark_jobs.flights_produce import DeliveryError
from tests.spark_jobs.conftest import Topics

RECORDS = [FlightRecord(b"UA", b"%d" % number, 1_000 * number) for number in range(1, 5_001)]


def test_records_keep_their_order_key_and_time(topics: Topics) -> None:
    topic = topics.create("flights", 1)
    flights_produce.produce(topics.client, topic, RECORDS)
    stored = topics.read(topic)
    assert [FlightRecord(message.key(), message.value(), message.timestamp()[1]) for message in stored] == RECORDS


def test_a_full_queue_delays_the_producer(topics: Topics) -> None:
    topic = topics.create("flights", 1)
    flights_produce.produce({**topics.client, "queue.buffering.max.messages": "100"}, topic, RECORDS)
    assert len(topics.read(topic)) == len(RECORDS)


def test_rejected_records_are_counted_with_the_reason(topics: Topics) -> None:
    topic = topics.create("flights", 1, {"max.message.bytes": "200"})
    too_large = FlightRecord(b"UA", b"x" * 1_000, 0)
    with pytest.raises(DeliveryError, match=r"^1 records were refused: .*size too large"):
        flights_produce.produce({**topics.client, "compression.type": "none"}, topic, [too_large])


def test_a_topic_with_records_is_refused_unless_appending(topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    topic = topics.create("flights", 1)
    flights_produce.produce(topics.client, topic, RECORDS[:3])
    assert flights_produce.main(["--bootstrap-servers", topics.bootstrap, "--output", topic]) == 2
    assert f"{topic} has 3 records already: use --append" in capsys.readouterr().err
    assert len(topics.read(topic)) == 3
