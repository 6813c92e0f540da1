"""Cases with records as applications write them: a key, and a JSON value whose size differs from record to record.

The client is librdkafka with its defaults, but for one setting per case: a codec, idempotence, transactions or headers.
In some cases the topic makes the server do more: it is compacted, or stamps or compresses the records. Equal records of
one size, which most benchmarks send, are the easiest case for a server that checks each record.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import cycle, islice
from types import MappingProxyType

from confluent_kafka import Consumer, Producer

from bench.admin import alter_topic, create_topic
from bench.case import Case
from bench.cases.clients import client_measures, client_run
from bench.measures import Values, times
from bench.scale import Scale
from bench.subject import Subject

RECORDS = 400_000
TRANSACTION_RECORDS = 1000
PARTITIONS = 10
DISTINCT = 5000
FLUSH_TIMEOUT_S = 60.0
CONSUMED_MAX = 10_000
HEADERS = [("trace", b"0123456789abcdef"), ("source", b"web")]
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

Settings = Mapping[str, str]


@cache
def rows() -> list[tuple[bytes, bytes]]:
    """Return keys and values, the same ones in every run; values have 45 to 280 bytes, 160 on average."""
    rng = random.Random(1)
    return [
        (
            b"user-%06d" % rng.randrange(10**6),
            json.dumps(
                {
                    "id": rng.randrange(10**6),
                    "name": "x" * rng.randrange(5, 40),
                    "items": [rng.randrange(1000) for _ in range(rng.randrange(40))],
                }
            ).encode(),
        )
        for _ in range(DISTINCT)
    ]


def produce(subject: Subject, scale: Scale, *, client: Settings, topic_settings: Settings, has_headers: bool) -> Values:
    """Produce as fast as the client can; with a `transactional.id`, in transactions of `TRANSACTION_RECORDS`."""
    with subject.topic(PARTITIONS) as topic:
        if topic_settings:
            alter_topic(subject.port, topic, topic_settings)
        is_transactional = "transactional.id" in client
        count = scale.count(RECORDS // 4 if is_transactional else RECORDS)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{subject.port}", **client})
        if is_transactional:
            producer.init_transactions(FLUSH_TIMEOUT_S)
        headers = HEADERS if has_headers else None
        return client_run(subject, count, lambda: _produce(producer, topic, count, headers, is_transactional))


def produce_one_by_one(subject: Subject, scale: Scale) -> Values:
    """Produce each record alone, and wait for it before the next one."""
    count = scale.count(RECORDS // 100)
    with subject.topic(PARTITIONS) as topic:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{subject.port}", "linger.ms": 0})

        def run() -> None:
            for key, value in _rows_of(count):
                producer.produce(topic, value, key)
                if producer.flush(FLUSH_TIMEOUT_S):
                    raise RuntimeError("a record was not acknowledged")

        return client_run(subject, count, run)


def consume(subject: Subject, scale: Scale) -> Values:
    """Consume all records of a topic as a new member of a group."""
    count = scale.count(RECORDS)
    topic = f"bench-applications-{count}"
    if topic not in subject.kept_topics:
        create_topic(subject.port, topic, PARTITIONS)
        _produce(Producer({"bootstrap.servers": f"127.0.0.1:{subject.port}"}), topic, count, None, False)
        subject.kept_topics.add(topic)

    def run() -> None:
        settings = {"bootstrap.servers": f"127.0.0.1:{subject.port}", "group.id": topic, "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        received = 0
        while received < count:
            messages = consumer.consume(min(CONSUMED_MAX, count - received), FLUSH_TIMEOUT_S)
            if not messages:
                raise RuntimeError(f"{received} of {count} records were received")
            received += len(messages)
        consumer.close()

    return client_run(subject, count, run)


def _rows_of(count: int) -> Iterable[tuple[bytes, bytes]]:
    return islice(cycle(rows()), count)


def _produce(
    producer: Producer, topic: str, count: int, headers: list[tuple[str, bytes]] | None, is_transactional: bool
) -> None:
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for number, (key, value) in enumerate(_rows_of(count)):
        if is_transactional and number % TRANSACTION_RECORDS == 0:
            if number:
                producer.commit_transaction(FLUSH_TIMEOUT_S)
            producer.begin_transaction()
        while True:
            try:
                producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
    if is_transactional:
        producer.commit_transaction(FLUSH_TIMEOUT_S)
    if producer.flush(FLUSH_TIMEOUT_S) or failed:
        raise RuntimeError(f"records were not acknowledged: {failed[:1]}")


_PRODUCERS: Sequence[tuple[str, str, Settings, Settings]] = (
    ("plain", "", NO_SETTINGS, NO_SETTINGS),
    ("idempotent", ", idempotent", {"enable.idempotence": "true"}, NO_SETTINGS),
    ("transactions", ", transactions of 1,000", {"transactional.id": "bench"}, NO_SETTINGS),
    *((codec, f", {codec}", {"compression.type": codec}, NO_SETTINGS) for codec in ("gzip", "snappy", "lz4", "zstd")),
    ("headers", ", two headers", NO_SETTINGS, NO_SETTINGS),
    ("compacted", ", compacted topic", NO_SETTINGS, {"cleanup.policy": "compact"}),
    ("append-time", ", LogAppendTime", NO_SETTINGS, {"message.timestamp.type": "LogAppendTime"}),
    ("topic-codec", ", compressed by the topic (lz4)", NO_SETTINGS, {"compression.type": "lz4"}),
)

CASES = (
    *(
        Case(
            f"application-{name}",
            f"JSON records{title}",
            client_measures(times(0.8)),
            on_running=partial(produce, client=client, topic_settings=topic_settings, has_headers=name == "headers"),
            rounds_max=3,
        )
        for name, title, client, topic_settings in _PRODUCERS
    ),
    Case(
        "application-one-by-one",
        "JSON records, one at a time",
        client_measures(times(0.8)),
        on_running=produce_one_by_one,
        rounds_max=3,
    ),
    Case(
        "application-consumer", "JSON records, consumer", client_measures(times(0.8)), on_running=consume, rounds_max=3
    ),
)
