"""Cases about Produce and Fetch: latency, throughput and CPU time of requests.

Small records have 100 bytes; in batches they have 1,000 bytes, the usual size with kafka-producer-perf-test. (Kafka
reads every record of a batch, so smaller ones would cost it more.) With several connections, each writes to its own
partition, which avoids contention for one log in Kafka.

Owns the cases, their table and the warm-up load of both servers. Must not know which server is measured.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from bench.case import HIGHER, LOWER, Case
from bench.client import FetchStream
from bench.frames import batch_of_one
from bench.measures import Measure, Values, medians, moved_bytes, times
from bench.processes import MIB
from bench.scale import Scale
from bench.subject import KIB_16, Subject, bulk_batch, closing_all, now_ms, producers

SMALL_VALUE = 100
WARM_UP_TURN_S = 1.0
WARM_UP_TURN_BYTES = 256 * MIB


def produce_small(subject: Subject, scale: Scale, *, connections: int = 1, in_flight: int = 1) -> Values:
    batch = batch_of_one(SMALL_VALUE, now_ms())
    with subject.topic(connections) as topic, producers(subject, topic, batch, connections, in_flight) as streams:
        return subject.measured_for_a_time(streams, scale).small_requests()


def produce_batches(subject: Subject, scale: Scale, *, size: int, connections: int, in_flight: int) -> Values:
    batch = bulk_batch(size)
    with subject.topic(connections) as topic, producers(subject, topic, batch, connections, in_flight) as streams:
        loads = subject.measured_in_bulk(streams, scale, size)
        return medians([load.bulk(load.section.requests * size) for load in loads])


def fetch_pieces(subject: Subject, scale: Scale, *, size: int, connections: int, batch_size: int = KIB_16) -> Values:
    topic = subject.filled_topic(scale.fetch_bytes, batch_size)
    readers = [
        FetchStream(subject.port, topic.name, 0, topic.batch, topic.end_offset, size) for _ in range(connections)
    ]
    with closing_all(readers) as streams:
        load = subject.measured_for_a_time(streams, scale)
        return load.bulk(sum(reader.record_bytes for reader in readers))


def produce_to_consume(subject: Subject, scale: Scale) -> Values:
    batch = batch_of_one(SMALL_VALUE, now_ms())
    with subject.topic() as topic:
        return subject.measured_exchange(topic, batch, scale).small_requests()


def warm_up(subject: Subject, scale: Scale) -> None:
    """Send load of every kind, over several connections, in short turns.

    A JVM first interprets hot code, then compiles it quickly, then optimises it. Kafka's first batches take several
    times as long as those after some ten thousand. Measurements before that would favour Milena.
    """
    turn = replace(scale, section_s=WARM_UP_TURN_S, bulk_bytes=WARM_UP_TURN_BYTES, bulk_sections=1)
    deadline = time.monotonic() + scale.warm_up_s
    while time.monotonic() < deadline:
        produce_small(subject, turn, connections=16, in_flight=8)
        produce_batches(subject, turn, size=KIB_16, connections=4, in_flight=5)
        produce_batches(subject, turn, size=MIB, connections=4, in_flight=5)
        fetch_pieces(subject, turn, size=MIB, connections=2)
        fetch_pieces(subject, turn, size=KIB_16, connections=2)


TAIL_LATENCIES = (Measure("p99", "µs", LOWER), Measure("p99.9", "µs", LOWER))
CPU_PER_REQUEST = Measure("CPU", "µs/request", LOWER, decimals=1)
RATE = Measure("rate", "requests/s", HIGHER)

CASES = (
    Case(
        "produce-1-in-flight",
        "1 record, 1 in flight",
        (
            Measure("p50", "µs", LOWER, times(1.0)),
            *TAIL_LATENCIES,
            RATE,
            Measure("CPU", "µs/request", LOWER, times(0.5), decimals=1),
        ),
        on_running=produce_small,
    ),
    Case(
        "produce-8-in-flight",
        "1 record, 8 in flight",
        (Measure("rate", "requests/s", HIGHER, times(2.0)), CPU_PER_REQUEST),
        on_running=partial(produce_small, in_flight=8),
    ),
    Case(
        "produce-16-connections",
        "1 record, 16 connections",
        (Measure("rate", "requests/s", HIGHER, times(1.3)), CPU_PER_REQUEST, Measure("p99", "µs", LOWER)),
        on_running=partial(produce_small, connections=16),
    ),
    Case(
        "produce-16k-batches",
        "16 KB batches",
        moved_bytes(times(1.0), times(0.8)),
        on_running=partial(produce_batches, size=KIB_16, connections=1, in_flight=5),
    ),
    Case(
        "produce-16k-batches-4-connections",
        "16 KB batches, 4 connections",
        moved_bytes(),
        on_running=partial(produce_batches, size=KIB_16, connections=4, in_flight=5),
    ),
    Case(
        "produce-1m-batches",
        "1 MB batches",
        moved_bytes(times(1.0), times(1.0)),
        on_running=partial(produce_batches, size=MIB, connections=1, in_flight=5),
    ),
    Case(
        "produce-1m-batches-4-connections",
        "1 MB batches, 4 connections",
        moved_bytes(),
        on_running=partial(produce_batches, size=MIB, connections=4, in_flight=5),
    ),
    Case(
        "fetch-1m-pieces",
        "fetch, 1 MB pieces",
        moved_bytes(times(1.0), times(1.0)),
        on_running=partial(fetch_pieces, size=MIB, connections=1),
    ),
    Case(
        "fetch-16k-pieces",
        "fetch, 16 KB pieces",
        moved_bytes(times(1.5), times(0.67)),
        on_running=partial(fetch_pieces, size=KIB_16, connections=1),
    ),
    Case(
        "fetch-16k-pieces-4-connections",
        "fetch, 16 KB pieces, 4 consumers",
        moved_bytes(times(1.5), times(0.67)),
        on_running=partial(fetch_pieces, size=KIB_16, connections=4),
    ),
    Case(
        "fetch-1m-batches",
        "fetch, 1 MB batches",
        moved_bytes(times(1.0), times(1.0)),
        on_running=partial(fetch_pieces, size=MIB, connections=1, batch_size=MIB),
    ),
    Case(
        "produce-to-consume",
        "produce to consume, 500/s",
        (Measure("p50", "µs", LOWER, times(0.8)), *TAIL_LATENCIES, CPU_PER_REQUEST),
        on_running=produce_to_consume,
    ),
)
