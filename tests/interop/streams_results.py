"""The programs of `java/streams` that have a Spark job as counterpart: what goes in, and what must come out.

Owns: their topics and inputs, sending and reading them, and the comparison with the plain computations that the tests
of the Spark jobs use. Must not know how the applications run.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.samples import START_MS, trades
from tests.spark_jobs.plain_results import (
    ALONE,
    CITIES,
    CLICKS,
    LATER_SEARCHES,
    LATER_VIEWS,
    MATCHES,
    PAGE_VIEWS,
    PROFILES,
    SEARCHES,
    VIEWS,
    Row,
    plain_countries,
    plain_counts,
    plain_hours,
    plain_ranges,
    plain_statistics,
    word_lines,
    yearly_prices,
)

PARTITIONS = 2
DEADLINE_S = 120
LINES = word_lines(500)
TRADES = list(trades(600, seed=3))
PRICES = yearly_prices()
COPIED = tuple(Row(key, f"value {number}", START_MS + number) for number, key in enumerate(("a", None, "b", "a")))
PROGRAMS = ("Pipe", "WordCount", "StockStatistics", "ClickEnrichment", "Temperature", "PageViews")

INPUTS: Mapping[str, Sequence[Row]] = {
    "pipe-input": COPIED,
    "wordcount-input": [Row(None, line) for line in LINES],
    "trades": [Row(str(row["ticker"]), json.dumps(row), int(str(row["time"]))) for row in TRADES],
    "clicks": CLICKS,
    "profiles": PROFILES,
    "views": (*VIEWS, *LATER_VIEWS),
    "searches": (*SEARCHES, *LATER_SEARCHES),
    "prices": [Row(str(row["symbol"]), json.dumps(row), int(str(row["time"]))) for row in PRICES],
    "page-views": PAGE_VIEWS,
}

Messages = Sequence[Message]


@dataclass(frozen=True)
class Output:
    """A topic that a program writes.

    Attributes:
        records: how many records it has when each input counted once.
        check: fails unless the last values are those of the plain computation.
    """

    program: str
    records: int
    check: Callable[[Messages], None]


def values(messages: Messages) -> dict[str, str]:
    """Return the last value of each key."""
    return {message.key().decode(): message.value().decode() for message in messages}


def objects(messages: Messages) -> list[dict[str, object]]:
    return [json.loads(message.value()) for message in messages]


def check_copies(messages: Messages) -> None:
    found = [
        Row(message.key() and message.key().decode(), message.value().decode(), message.timestamp()[1])
        for message in messages
    ]
    assert sorted(found, key=lambda row: row.time_ms) == list(COPIED)


def check_words(messages: Messages) -> None:
    assert values(messages) == WORDS


def check_statistics(messages: Messages) -> None:
    found = {key: json.loads(value) for key, value in values(messages).items()}
    assert found.keys() == STATISTICS.keys()
    for key, (low, count, average) in STATISTICS.items():
        assert (found[key]["min_price"], found[key]["trades"]) == (low, count)
        assert abs(found[key]["average_price"] - average) <= 1e-9


def check_ranges(messages: Messages) -> None:
    found = {key: json.loads(value) for key, value in values(messages).items()}
    assert {key: (row["min"], row["max"]) for key, row in found.items()} == {
        key: (plain.low, plain.high) for key, plain in plain_ranges(PRICES).items()
    }


def check_clicks(messages: Messages) -> None:
    found = {click["page"]: click["profile"] for click in objects(messages)}
    assert found == {page: city and {"city": city} for page, city in CITIES.items()}


def check_views(messages: Messages) -> None:
    found = {(view["page"], view["terms"]) for view in objects(messages)}
    assert found == MATCHES | ALONE | {("much later", "much later")}


def check_countries(messages: Messages) -> None:
    assert {key: json.loads(value) for key, value in values(messages).items()} == plain_countries(PAGE_VIEWS)


def check_hours(messages: Messages) -> None:
    assert {key: json.loads(value)["events"] for key, value in values(messages).items()} == HOURS


WORDS = plain_counts(LINES, {"the"})
STATISTICS = plain_statistics(TRADES)
HOURS, _TOO_LATE = plain_hours(PAGE_VIEWS)
VIEW_COUNT = len(MATCHES) + len(ALONE) + len(LATER_VIEWS)
OUTPUTS: Mapping[str, Output] = {
    "pipe-output": Output("Pipe", len(COPIED), check_copies),
    "wordcount-output": Output("WordCount", sum(map(int, WORDS.values())), check_words),
    "stock-stats": Output("StockStatistics", sum(count for _, count, _ in STATISTICS.values()), check_statistics),
    "enriched-clicks": Output("ClickEnrichment", len(CLICKS), check_clicks),
    "views-with-terms": Output("ClickEnrichment", VIEW_COUNT, check_views),
    "price-ranges": Output("Temperature", len(PRICES), check_ranges),
    "customer-countries": Output("PageViews", len(PAGE_VIEWS), check_countries),
    "event-counts": Output("PageViews", len(PAGE_VIEWS) - _TOO_LATE, check_hours),
}


def create_topics(bootstrap: str, prefix: str, replicas: int = 1) -> None:
    """Create the programs' topics, without retention: the records have old timestamps."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(f"{prefix}{name}", PARTITIONS, replicas, config={"retention.ms": "-1"}) for name in (*INPUTS, *OUTPUTS)
    ]
    for created in admin.create_topics(topics).values():
        created.result()


def settings(guarantee: str) -> dict[str, object]:
    return {
        "processing.guarantee": guarantee,
        # An unmatched view is written as soon as it cannot match any more, not at the next second of the clock.
        "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
    }


def send(bootstrap: str, prefix: str, inputs: Mapping[str, Sequence[Row]] = INPUTS) -> None:
    """Send the inputs in order; keys decide the partitions as in Java."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 5}
    )
    for topic, rows in inputs.items():
        for key, value, time_ms in rows:
            producer.produce(f"{prefix}{topic}", value, key, timestamp=time_ms)
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def read(
    bootstrap: str, prefixes: Iterable[str], outputs: Iterable[str], *, is_enough: Callable[[str, Messages], bool]
) -> dict[str, list[Message]]:
    """Return the committed records of outputs, in order of each partition, when there is enough of each.

    Args:
        is_enough: whether an output, by its name without prefix, has all the records that are expected.
    """
    wanted = tuple(outputs)
    topics = {f"{prefix}{topic}": topic for prefix in prefixes for topic in wanted}
    found: defaultdict[str, list[Message]] = defaultdict(list)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign(
        [TopicPartition(topic, partition, OFFSET_BEGINNING) for topic in topics for partition in range(PARTITIONS)]
    )
    deadline = time.monotonic() + DEADLINE_S
    missing = set(topics)
    while missing:
        counts = {topic: len(found[topic]) for topic in missing}
        assert time.monotonic() < deadline, f"too few records: {counts}"
        _read_into(found, consumer)
        missing = {topic for topic in missing if not is_enough(topics[topic], found[topic])}
    _read_into(found, consumer, timeout_s=0.5)  # to detect unexpected records
    consumer.close()
    return dict(found)


def _read_into(found: dict[str, list[Message]], consumer: Consumer, timeout_s: float = 0.1) -> None:
    for message in consumer.consume(10_000, timeout_s):
        if message.error() is None:  # otherwise a broker is down
            found[message.topic()].append(message)


def has_all(topic: str, messages: Messages) -> bool:
    """Return whether an output has a record for each input."""
    return len(messages) >= OUTPUTS[topic].records
