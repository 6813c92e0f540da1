"""Cases that repeat the figures which Kafka's own sources state; docs/figures.md has both, with the years.

The clients are unmodified: Kafka's performance tools with the options of the article of 2014, and librdkafka with the
batch sizes of the paper of 2011. They share the cores of the machine with the servers.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

from confluent_kafka import Producer

from bench import machine
from bench.case import HIGHER, LOWER, Case
from bench.cases.clients import RECORDS, client_run, java_tool, produce
from bench.cluster import ClusterSubject
from bench.measures import Measure, Values
from bench.processes import MIB
from bench.scale import Scale
from bench.subject import MB, Subject

PARTITIONS = 6
SIZE = 100
"""Bytes of a record in the article; the paper has 200."""
PAPER_SIZE = 200
PRODUCER_OPTIONS = ("batch.size=8196", "buffer.memory=67108864")
ON_THREE = ((1, 2, 3), (2, 3, 1), (3, 1, 2)) * 2
PAGE = 4096
RANDOM_WRITES = 5_000
ROUND_TRIPS = 10_000
MEASURES = (Measure("rate", "records/s", HIGHER),)
LATENCIES = tuple(Measure(name, "ms", LOWER, decimals=1) for name in ("p50", "p99", "p99.9"))


def linear_writes(folder: Path, scale: Scale) -> Values:
    """Measure writes of 1 MiB one after another to a new file, with the sync at their end."""
    piece = os.urandom(MIB)
    with (folder / "linear").open("wb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(scale.bulk_bytes // MIB):
            file.write(piece)
        os.fsync(file.fileno())
        return {"throughput": scale.bulk_bytes / MB / (time.perf_counter() - started)}


def random_writes(folder: Path, scale: Scale) -> Values:
    """Measure writes of 4 KiB at random positions of a file, each synced before the next."""
    count, piece, random = scale.count(RANDOM_WRITES), os.urandom(PAGE), Random(0)
    pages = scale.bulk_bytes // PAGE
    with (folder / "random").open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, scale.bulk_bytes)
        started = time.perf_counter()
        for _ in range(count):
            os.pwrite(file.fileno(), piece, random.randrange(pages) * PAGE)
            os.fdatasync(file.fileno())
        return {"throughput": count * PAGE / MB / (time.perf_counter() - started)}


def one_producer(subject: Subject, scale: Scale) -> Values:
    count = scale.count(RECORDS)
    with subject.topic(PARTITIONS) as topic:
        return client_run(subject, count, lambda: _produce(f"127.0.0.1:{subject.port}", topic, count, acks="1"))


def batches_of_the_paper(subject: Subject, scale: Scale, *, messages: int) -> Values:
    """Run librdkafka with at most so many messages a batch, and as in 2011 without acknowledgements."""
    count = scale.count(RECORDS if messages > 1 else RECORDS // 10)
    config = {"bootstrap.servers": f"127.0.0.1:{subject.port}", "acks": 0, "batch.num.messages": messages}
    with subject.topic() as topic:
        return client_run(subject, count, lambda: produce(Producer(config), topic, count, PAPER_SIZE))


def replicated(subject: ClusterSubject, scale: Scale, *, acks: str, producers: int = 1) -> Values:
    count = scale.count(RECORDS)
    with subject.topic(ON_THREE) as topic:
        return _rate(
            [lambda: _produce(subject.cluster.bootstrap, topic, count, acks=acks)] * producers, count * producers
        )


def consumers(subject: ClusterSubject, scale: Scale, *, count: int) -> Values:
    """Measure consumers, each a group of its own, that read a whole topic."""
    records = scale.count(RECORDS)
    with subject.topic(ON_THREE) as topic:
        _produce(subject.cluster.bootstrap, topic, records, acks="all")
        return _rate([lambda: _consume(subject.cluster.bootstrap, topic, records)] * count, records * count)


def producer_beside_consumer(subject: ClusterSubject, scale: Scale) -> Values:
    records, bootstrap = scale.count(RECORDS), subject.cluster.bootstrap
    with subject.topic(ON_THREE) as topic:
        return _rate(
            [
                lambda: _produce(bootstrap, topic, records, acks="1"),
                lambda: _consume(bootstrap, topic, records),
            ],
            records,
        )


def latency(subject: ClusterSubject, scale: Scale) -> Values:
    """Measure from the send of a record, which all in-sync replicas then hold, to its arrival at a consumer."""
    with subject.topic([(1, 2, 3)]) as topic:
        machine.settle()
        count = scale.count(ROUND_TRIPS)
        said = java_tool("EndToEndLatency", [subject.cluster.bootstrap, topic, str(count), "all", str(SIZE)])
    found = re.search(r"50th = (\d+), 99th = (\d+), 99.9th = (\d+)", said)
    if found is None:
        raise RuntimeError(f"EndToEndLatency printed no percentiles: {said[-500:]}")
    return dict(zip(("p50", "p99", "p99.9"), map(float, found.groups()), strict=True))


def _rate(runs: Sequence[Callable[[], object]], records: int) -> Values:
    """Return the records per second of clients that run at the same time, from their start to the end of the last."""
    machine.settle()
    started = time.perf_counter()
    with ThreadPoolExecutor(len(runs)) as threads:
        for done in [threads.submit(run) for run in runs]:
            done.result()
    return {"rate": records / (time.perf_counter() - started)}


def _produce(bootstrap: str, topic: str, count: int, *, acks: str) -> None:
    arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(SIZE), "--throughput", "-1"]
    options = [f"bootstrap.servers={bootstrap}", f"acks={acks}", *PRODUCER_OPTIONS]
    java_tool("ProducerPerformance", [*arguments, "--producer-props", *options])


def _consume(bootstrap: str, topic: str, count: int) -> None:
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--messages", str(count), "--timeout", "60000"]
    java_tool("ConsumerPerformance", arguments)


CASES = (
    Case(
        "figures-linear",
        "the disk: writes of 1 MiB in order",
        (Measure("throughput", "MB/s", HIGHER),),
        in_process=linear_writes,
    ),
    Case(
        "figures-random",
        "the disk: synced writes of 4 KiB at random",
        (Measure("throughput", "MB/s", HIGHER, decimals=2),),
        in_process=random_writes,
    ),
    *(
        Case(
            f"figures-batches-of-{messages}",
            f"librdkafka, {PAPER_SIZE} B, acks=0, {messages} a batch",
            MEASURES,
            on_running=partial(batches_of_the_paper, messages=messages),
            rounds_max=3,
        )
        for messages in (1, 50)
    ),
    Case("figures-producer", "one producer, no replica", MEASURES, on_running=one_producer, rounds_max=3),
    Case(
        "figures-acks-1",
        "one producer, RF 3, acks=1",
        MEASURES,
        on_cluster=partial(replicated, acks="1"),
        rounds_max=3,
    ),
    Case(
        "figures-acks-all",
        "one producer, RF 3, acks=all",
        MEASURES,
        on_cluster=partial(replicated, acks="all"),
        rounds_max=3,
    ),
    Case(
        "figures-three-producers",
        "three producers, RF 3, acks=1",
        MEASURES,
        on_cluster=partial(replicated, acks="1", producers=3),
        rounds_max=3,
    ),
    *(
        Case(
            f"figures-consumers-{count}",
            f"consumers of a topic: {count}",
            MEASURES,
            on_cluster=partial(consumers, count=count),
            rounds_max=3,
        )
        for count in (1, 3)
    ),
    Case(
        "figures-both",
        "one producer beside one consumer, RF 3",
        MEASURES,
        on_cluster=producer_beside_consumer,
        rounds_max=3,
    ),
    Case("figures-latency", "from producer to consumer, RF 3, acks=all", LATENCIES, on_cluster=latency, rounds_max=3),
)
