"""Cases with the requests of real clients: several versions, partitions and sessions, one thread per connection.

The compiled client has sixteen threads, each with one request in flight. The unmodified clients run with their defaults
except acks=1. They are slower than either server, so the server's CPU time is the figure.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle, islice, repeat

from confluent_kafka import Producer
from kafka import KafkaProducer

from bench import machine
from bench.admin import create_topic
from bench.case import HIGHER, LOWER, Case
from bench.frames import Batch, batch_of_one
from bench.measures import Measure, Target, Values, times
from bench.processes import cpu_seconds
from bench.request_loop import Request, measured, produce_request, session_request
from bench.scale import Scale
from bench.subject import Subject, now_ms
from tests.support.apache_kafka import jars
from tests.support.java import java_command

THREADS = 16
TEN = range(10)
SMALL_VALUE = 100
FETCH_VERSION = 11
ANY_PARTITION = repeat(-1)
"""Lets the client's partitioner choose for each record."""
RECORDS = 1_000_000
"""Records of an unmodified client; a tenth of it for kafka-python."""

Requests = Callable[[str, int, Batch], Sequence[Request]]
"""Returns the requests that one thread sends in rotation, for topic, number of the thread and batch."""


def threads_produce(subject: Subject, scale: Scale, *, partitions: int, requests: Requests) -> Values:
    batch = batch_of_one(SMALL_VALUE, now_ms())
    with subject.topic(partitions) as topic:
        machine.settle()
        return measured(subject.port, subject.pid, [requests(topic, each, batch) for each in range(THREADS)], scale)


def threads_in_session(subject: Subject, scale: Scale, *, partitions: int) -> Values:
    with subject.topic(partitions) as topic:
        machine.settle()
        offsets = [0] * partitions
        threads = [[session_request(subject.port, topic, offsets, FETCH_VERSION)] for _ in range(THREADS)]
        return measured(subject.port, subject.pid, threads, scale)


def java_producer(subject: Subject, scale: Scale, *, record_size: int) -> Values:
    """Run kafka-producer-perf-test with ten partitions."""
    count = scale.count(RECORDS) if record_size < 1000 else scale.count(RECORDS // 4)
    with subject.topic(len(TEN)) as topic:
        arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(record_size)]
        arguments += ["--throughput", "-1", "--producer-props", f"bootstrap.servers=127.0.0.1:{subject.port}", "acks=1"]
        return client_run(subject, count, lambda: java_tool("ProducerPerformance", arguments))


def java_consumer(subject: Subject, scale: Scale, *, record_size: int) -> Values:
    """Run kafka-consumer-perf-test over ten partitions that hold the same number of records.

    Kafka's consumer has one fetch in flight. While it polls for partitions that it has read to their end, it cannot
    fetch from the others. With uneven partitions such polls of 500 ms decide the figure on either server, and a
    partitioner fills differently each time.
    """
    count = scale.count(RECORDS) if record_size < 1000 else scale.count(RECORDS // 4)
    topic = f"bench-consumed-{record_size}-{count}"
    if topic not in subject.kept_topics:
        create_topic(subject.port, topic, len(TEN))
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{subject.port}", "acks": 1, "linger.ms": 5})
        produce(producer, topic, count, record_size, partitions=cycle(TEN))
        subject.kept_topics.add(topic)
    arguments = ["--bootstrap-server", f"127.0.0.1:{subject.port}", "--topic", topic, "--messages", str(count)]
    return client_run(subject, count, lambda: java_tool("ConsumerPerformance", [*arguments, "--timeout", "60000"]))


def librdkafka_producer(subject: Subject, scale: Scale) -> Values:
    count = scale.count(RECORDS)
    with subject.topic(len(TEN)) as topic:
        config = {"bootstrap.servers": f"127.0.0.1:{subject.port}", "acks": 1}
        return client_run(subject, count, lambda: produce(Producer(config), topic, count, SMALL_VALUE))


def python_producer(subject: Subject, scale: Scale) -> Values:
    """Run a producer of kafka-python, which is pure Python."""
    count = scale.count(RECORDS // 10)

    def run(topic: str) -> None:
        producer = KafkaProducer(bootstrap_servers=f"127.0.0.1:{subject.port}", acks=1)
        futures = [producer.send(topic, bytes(SMALL_VALUE)) for _ in range(count)]
        producer.flush()
        producer.close()
        if not all(future.succeeded() for future in futures):
            raise RuntimeError("a record was not acknowledged")

    with subject.topic(len(TEN)) as topic:
        return client_run(subject, count, lambda: run(topic))


def client_run(subject: Subject, count: int, run: Callable[[], object]) -> Values:
    """Return the records per second of a client's run from start to end, and the server's CPU time for them."""
    machine.settle()
    cpu, started = cpu_seconds(subject.pid), time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    return {
        "rate": count / seconds,
        "CPU": (cpu_seconds(subject.pid) - cpu) / count * 1e6,
        "client": 0.0,
    }


def java_tool(tool: str, arguments: Sequence[str]) -> str:
    """Run one of Kafka's performance tools; return what it prints. Raises RuntimeError."""
    command = java_command([jars() / "*"], f"org.apache.kafka.tools.{tool}", arguments, options=("-Xmx512m",))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or "Exception" in done.stderr:
        raise RuntimeError(f"{tool} failed: {done.stderr[-2000:]}")
    return done.stdout


def produce(
    producer: Producer, topic: str, count: int, record_size: int, *, partitions: Iterable[int] = ANY_PARTITION
) -> None:
    """Have all records acknowledged. Raises RuntimeError."""
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    value = bytes(record_size)
    for partition in islice(partitions, count):
        while True:
            try:
                producer.produce(topic, value, partition=partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60) or failed:
        raise RuntimeError(f"records were not acknowledged: {failed[:1]}")


def _own_partition(version: int) -> Requests:
    return lambda topic, thread, batch: [produce_request(topic, [thread], batch, version)]


def _request_measures(rate: Target | None, cpu: Target | None) -> tuple[Measure, ...]:
    return (
        Measure("rate", "requests/s", HIGHER, rate),
        Measure("CPU", "µs/request", LOWER, cpu, decimals=1),
        Measure("p99", "µs", LOWER),
    )


def client_measures(cpu: Target | None) -> tuple[Measure, ...]:
    return (
        Measure("rate", "records/s", HIGHER, times(1.0)),
        Measure("CPU", "s/million records", LOWER, cpu, decimals=3),
    )


CASES = (
    *(
        Case(
            f"threads-produce-v{version}",
            f"1 record, Produce v{version}, 16 threads",
            _request_measures(times(1.3), times(0.5)),
            on_running=partial(threads_produce, partitions=THREADS, requests=_own_partition(version)),
        )
        for version in (3, 7, 9, 11)
    ),
    Case(
        "threads-produce-ten",
        "10 partitions a request, Produce v9, 16 threads",
        _request_measures(None, times(0.5)),
        on_running=partial(
            threads_produce,
            partitions=len(TEN),
            requests=lambda topic, _, batch: [produce_request(topic, TEN, batch, 9)],
        ),
    ),
    Case(
        "threads-produce-rotation",
        "10 partitions in rotation, Produce v9, 16 threads",
        _request_measures(None, times(0.5)),
        on_running=partial(
            threads_produce,
            partitions=len(TEN),
            requests=lambda topic, _, batch: [produce_request(topic, [index], batch, 9) for index in TEN],
        ),
    ),
    *(
        Case(
            f"threads-fetch-session-{partitions}",
            f"Fetch in a session of {partitions} idle partitions, 16 threads",
            _request_measures(None, times(0.5)),
            on_running=partial(threads_in_session, partitions=partitions),
        )
        for partitions in (1, 10, 100)
    ),
    *(
        Case(
            f"java-producer-{size}",
            f"kafka-producer-perf-test, {size} B",
            client_measures(times(0.8)),
            on_running=partial(java_producer, record_size=size),
            rounds_max=3,
        )
        for size in (100, 1000)
    ),
    *(
        Case(
            f"java-consumer-{size}",
            f"kafka-consumer-perf-test, {size} B",
            client_measures(times(0.8)),
            on_running=partial(java_consumer, record_size=size),
            rounds_max=3,
        )
        for size in (100, 1000)
    ),
    Case(
        "librdkafka-producer",
        "librdkafka, 100 B",
        client_measures(times(0.8)),
        on_running=librdkafka_producer,
        rounds_max=3,
    ),
    Case(
        "kafka-python-producer",
        "kafka-python, 100 B",
        client_measures(times(0.8)),
        on_running=python_producer,
        rounds_max=3,
    ),
)
