"""The cases: what is done to a server, and what is measured of it.

Owns: the table `CASES` and the functions it names. A case function gets a running server (or, for the cases about
start and memory, one of its own that has not started) and returns one value for each measure of its row. Must not know
which server it has.

Shapes: small records are 100 bytes; in batches they are 1,000 bytes, as kafka-producer-perf-test is mostly run. (Kafka
looks at every record of a batch, so smaller ones would be harder on it.) Where there are several connections, each
writes to a partition of its own, which spares Kafka the contention for one log.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count

from bench.admin import check_greeting, create_topic, delete_topic, greeting
from bench.client import FetchStream, ProduceStream, Section, Stream, closed_loop, connect, receive_frame
from bench.client import produce_to_consume as run_produce_to_consume
from bench.frames import Batch, batch_of_one, batch_of_size
from bench.machine import make_memory_ready
from bench.measures import Better, Measure, absolute, percentile, times
from bench.processes import MIB, anonymous_mib, cpu_seconds, resident_mib
from bench.servers import Server

SMALL_VALUE = 100
RECORD_IN_BATCH = 1000
KIB_16 = 16 * 1024
GB = 1e9
MB = 1e6
IDLE_CONNECTIONS = 5000
PRODUCE_TO_CONSUME_RATE = 500.0
SETTLE_S = 0.5
MEMORY_AT_HAND = 512 * MIB
IDLE_BEFORE_LOOKING_S = 2.0
WARM_UP_TURN_S = 1.0
WARM_UP_TURN_BYTES = 256 * MIB


@dataclass(frozen=True)
class Scale:
    """How much is done. Sections are long against the 10 ms in which the kernel counts CPU time.

    A server is under mixed load for `warm_up_s` before its first measured case, and runs each case once uncounted.
    """

    rounds: int
    warm_up_s: float
    lead_in_s: float
    section_s: float
    bulk_bytes: int
    fetch_bytes: int
    memory_bytes: int


FULL = Scale(
    rounds=5,
    warm_up_s=90,
    lead_in_s=0.5,
    section_s=4,
    bulk_bytes=1024 * MIB,
    fetch_bytes=512 * MIB,
    memory_bytes=2000 * MIB,
)
QUICK = Scale(
    rounds=1,
    warm_up_s=8,
    lead_in_s=0.2,
    section_s=1,
    bulk_bytes=128 * MIB,
    fetch_bytes=64 * MIB,
    memory_bytes=256 * MIB,
)

Values = Mapping[str, float]


class Subject:
    """A running server as the cases see it: topics to be had, and its use of the machine."""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self.port = server.port
        self.pid = server.pid
        self._numbers = count()
        self._filled: FilledTopic | None = None

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[str]:
        """A new topic that is deleted afterwards."""
        name = f"bench-{next(self._numbers)}"
        create_topic(self.port, name, partitions)
        yield name
        delete_topic(self.port, name)

    def filled_topic(self, byte_count: int) -> FilledTopic:
        """A topic with `byte_count` of 16 KB batches, made on first use and kept."""
        if self._filled is None:
            name = f"bench-{next(self._numbers)}"
            create_topic(self.port, name)
            batch = _bulk_batch(KIB_16)
            requests = byte_count // len(batch.data)
            with closing_all([ProduceStream(self.port, name, 0, batch, in_flight=5)]) as streams:
                done = closed_loop(streams, requests=requests).requests
            self._filled = FilledTopic(name, batch, done * batch.record_count)
        return self._filled

    def measured_for_a_time(self, streams: Sequence[Stream], scale: Scale) -> Load:
        closed_loop(streams, seconds=scale.lead_in_s)
        _settle()
        return self._measured(lambda: closed_loop(streams, seconds=scale.section_s))

    def measured_in_bulk(self, streams: Sequence[Stream], scale: Scale, size: int) -> Load:
        """`scale.bulk_bytes` in requests that write `size` each."""
        closed_loop(streams, seconds=scale.lead_in_s)
        _settle(scale.bulk_bytes, size)
        return self._measured(lambda: closed_loop(streams, requests=scale.bulk_bytes // size))

    def measured_exchange(self, topic: str, batch: Batch, scale: Scale) -> Load:
        _settle()
        return self._measured(
            lambda: run_produce_to_consume(
                self.port, topic, batch, rate=PRODUCE_TO_CONSUME_RATE, seconds=scale.section_s
            )
        )

    def _measured(self, run: Callable[[], Section]) -> Load:
        cpu = cpu_seconds(self.pid)
        section = run()
        return Load(section, cpu_seconds(self.pid) - cpu)


@dataclass(frozen=True)
class FilledTopic:
    name: str
    batch: Batch
    end_offset: int


@dataclass(frozen=True)
class Load:
    """A section, and the server's CPU time in it."""

    section: Section
    server_cpu_s: float

    def small_requests(self) -> Values:
        latencies = sorted(self.section.latencies_ns)
        return {
            "p50": percentile(latencies, 0.5) / 1e3,
            "p99": percentile(latencies, 0.99) / 1e3,
            "p99.9": percentile(latencies, 0.999) / 1e3,
            "rate": self.section.requests / self.section.wall_s,
            "CPU": self.server_cpu_s / self.section.requests * 1e6,
            "client": self.section.client_cpu_s / self.section.wall_s,
        }

    def bulk(self, byte_count: int) -> Values:
        return {
            "throughput": byte_count / MB / self.section.wall_s,
            "CPU": self.server_cpu_s / (byte_count / GB),
            "client": self.section.client_cpu_s / self.section.wall_s,
        }


@dataclass(frozen=True)
class Case:
    """`on_running` gets a warm server that other cases use too, `on_new` a fresh one that has not been started."""

    name: str
    title: str
    measures: tuple[Measure, ...]
    on_running: Callable[[Subject, Scale], Values] | None = None
    on_new: Callable[[Server, Scale], Values] | None = None


@contextmanager
def closing_all(streams: Sequence[Stream]) -> Iterator[Sequence[Stream]]:
    with ExitStack() as open_connections:
        for stream in streams:
            open_connections.enter_context(closing(stream.connection))
        yield streams


def start(server: Server, scale: Scale) -> Values:
    """From the start of the process to a Metadata answer that names the broker, on empty folders."""
    _settle()
    begin = time.perf_counter()
    with running(server):
        seconds = time.perf_counter() - begin
        time.sleep(IDLE_BEFORE_LOOKING_S)
        return {"start": seconds, "idle memory": resident_mib(server.pid), "anonymous": anonymous_mib(server.pid)}


def idle_connections(server: Server, scale: Scale) -> Values:
    """Connections that said hello, as every client does, and then nothing."""
    with running(server), ExitStack() as connections:
        connected = [connections.enter_context(_greeted(server.port)) for _ in range(IDLE_CONNECTIONS)]
        time.sleep(IDLE_BEFORE_LOOKING_S)
        assert len(connected) == IDLE_CONNECTIONS
        return {"memory": resident_mib(server.pid), "anonymous": anonymous_mib(server.pid)}


def memory_after_load(server: Server, scale: Scale) -> Values:
    """Half of the bytes in 16 KB batches and half in 1 MB batches, written and read back."""
    with running(server):
        subject = Subject("", server)
        for size in (KIB_16, MIB):
            with subject.topic() as topic:
                batch = _bulk_batch(size)
                requests = scale.memory_bytes // 2 // size
                with closing_all([ProduceStream(server.port, topic, 0, batch, in_flight=5)]) as streams:
                    done = closed_loop(streams, requests=requests).requests
                reader = FetchStream(server.port, topic, 0, batch, done * batch.record_count, MIB)
                with closing_all([reader]) as streams:
                    closed_loop(streams, requests=done * size // MIB)
        return {"memory": resident_mib(server.pid), "anonymous": anonymous_mib(server.pid)}


def produce_small(subject: Subject, scale: Scale, *, connections: int = 1, in_flight: int = 1) -> Values:
    batch = batch_of_one(SMALL_VALUE, _now_ms())
    with subject.topic(connections) as topic, _producers(subject, topic, batch, connections, in_flight) as streams:
        return subject.measured_for_a_time(streams, scale).small_requests()


def produce_batches(subject: Subject, scale: Scale, *, size: int, connections: int, in_flight: int) -> Values:
    batch = _bulk_batch(size)
    with subject.topic(connections) as topic, _producers(subject, topic, batch, connections, in_flight) as streams:
        load = subject.measured_in_bulk(streams, scale, size)
        return load.bulk(load.section.requests * size)


def fetch_pieces(subject: Subject, scale: Scale, *, size: int, connections: int) -> Values:
    topic = subject.filled_topic(scale.fetch_bytes)
    readers = [
        FetchStream(subject.port, topic.name, 0, topic.batch, topic.end_offset, size) for _ in range(connections)
    ]
    with closing_all(readers) as streams:
        load = subject.measured_for_a_time(streams, scale)
        return load.bulk(sum(reader.record_bytes for reader in readers))


def produce_to_consume(subject: Subject, scale: Scale) -> Values:
    batch = batch_of_one(SMALL_VALUE, _now_ms())
    with subject.topic() as topic:
        return subject.measured_exchange(topic, batch, scale).small_requests()


def warm_up(subject: Subject, scale: Scale) -> None:
    """Load of every kind, over several connections, in short turns.

    A JVM runs what is hot interpreted first, then quickly compiled, then well compiled: at its first batches Kafka
    takes several times as long as after some ten thousand. Measuring before that would flatter Milena.
    """
    turn = replace(scale, section_s=WARM_UP_TURN_S, bulk_bytes=WARM_UP_TURN_BYTES)
    deadline = time.monotonic() + scale.warm_up_s
    while time.monotonic() < deadline:
        produce_small(subject, turn, connections=16, in_flight=8)
        produce_batches(subject, turn, size=KIB_16, connections=4, in_flight=5)
        produce_batches(subject, turn, size=MIB, connections=4, in_flight=5)
        fetch_pieces(subject, turn, size=MIB, connections=2)
        fetch_pieces(subject, turn, size=KIB_16, connections=2)


@contextmanager
def running(server: Server) -> Iterator[None]:
    """The server, started and ready, and stopped afterwards."""
    try:
        server.spawn()
        server.wait_until_ready()
        yield
    finally:
        server.stop()


@contextmanager
def _producers(
    subject: Subject, topic: str, batch: Batch, connections: int, in_flight: int
) -> Iterator[Sequence[Stream]]:
    streams = [ProduceStream(subject.port, topic, partition, batch, in_flight) for partition in range(connections)]
    with closing_all(streams):
        yield streams


def _greeted(port: int) -> socket.socket:
    connection = connect(port)
    buffer = memoryview(bytearray(KIB_16))
    connection.sendall(greeting())
    receive_frame(connection, buffer)
    check_greeting(buffer)
    return connection


def _bulk_batch(size: int) -> Batch:
    return batch_of_size(size, RECORD_IN_BATCH, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _settle(byte_count: int = 0, write_size: int = KIB_16) -> None:
    """Let the disk write what earlier sections left dirty and the servers finish what they do on the side.

    `byte_count` is what comes next in writes of `write_size`: so much memory is made ready for it.
    """
    os.sync()
    time.sleep(SETTLE_S)
    make_memory_ready(byte_count + MEMORY_AT_HAND, write_size)


LOWER, HIGHER = Better.LOWER, Better.HIGHER
TAIL_LATENCIES = (Measure("p99", "µs", LOWER), Measure("p99.9", "µs", LOWER))
CPU_PER_REQUEST = Measure("CPU", "µs/request", LOWER, decimals=1)
RATE = Measure("rate", "requests/s", HIGHER)

CASES = (
    Case(
        "start",
        "start, idle",
        (
            Measure("start", "s", LOWER, absolute(0.5), decimals=2),
            Measure("idle memory", "MiB", LOWER, absolute(60)),
        ),
        on_new=start,
    ),
    Case(
        "idle-connections",
        f"{IDLE_CONNECTIONS:,} idle connections",
        (Measure("memory", "MiB", LOWER, absolute(100)),),
        on_new=idle_connections,
    ),
    Case(
        "memory-after-load",
        "after 2 GB produced and fetched",
        (Measure("memory", "MiB", LOWER, absolute(150)),),
        on_new=memory_after_load,
    ),
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
        on_running=lambda subject, scale: produce_small(subject, scale, in_flight=8),
    ),
    Case(
        "produce-16-connections",
        "1 record, 16 connections",
        (Measure("rate", "requests/s", HIGHER, times(1.3)), CPU_PER_REQUEST, Measure("p99", "µs", LOWER)),
        on_running=lambda subject, scale: produce_small(subject, scale, connections=16),
    ),
    Case(
        "produce-16k-batches",
        "16 KB batches",
        (
            Measure("throughput", "MB/s", HIGHER, times(1.0)),
            Measure("CPU", "s/GB", LOWER, times(0.8), decimals=2),
        ),
        on_running=lambda subject, scale: produce_batches(subject, scale, size=KIB_16, connections=1, in_flight=5),
    ),
    Case(
        "produce-16k-batches-4-connections",
        "16 KB batches, 4 connections",
        (Measure("throughput", "MB/s", HIGHER), Measure("CPU", "s/GB", LOWER, decimals=2)),
        on_running=lambda subject, scale: produce_batches(subject, scale, size=KIB_16, connections=4, in_flight=5),
    ),
    Case(
        "produce-1m-batches",
        "1 MB batches",
        (
            Measure("throughput", "MB/s", HIGHER, times(1.0)),
            Measure("CPU", "s/GB", LOWER, times(1.0), decimals=2),
        ),
        on_running=lambda subject, scale: produce_batches(subject, scale, size=MIB, connections=1, in_flight=5),
    ),
    Case(
        "produce-1m-batches-4-connections",
        "1 MB batches, 4 connections",
        (Measure("throughput", "MB/s", HIGHER), Measure("CPU", "s/GB", LOWER, decimals=2)),
        on_running=lambda subject, scale: produce_batches(subject, scale, size=MIB, connections=4, in_flight=5),
    ),
    Case(
        "fetch-1m-pieces",
        "fetch, 1 MB pieces",
        (
            Measure("throughput", "MB/s", HIGHER, times(1.0)),
            Measure("CPU", "s/GB", LOWER, times(1.0), decimals=2),
        ),
        on_running=lambda subject, scale: fetch_pieces(subject, scale, size=MIB, connections=1),
    ),
    Case(
        "fetch-16k-pieces",
        "fetch, 16 KB pieces",
        (
            Measure("throughput", "MB/s", HIGHER, times(1.5)),
            Measure("CPU", "s/GB", LOWER, times(0.67), decimals=2),
        ),
        on_running=lambda subject, scale: fetch_pieces(subject, scale, size=KIB_16, connections=1),
    ),
    Case(
        "produce-to-consume",
        "produce to consume, 500/s",
        (Measure("p50", "µs", LOWER, times(0.8)), *TAIL_LATENCIES, CPU_PER_REQUEST),
        on_running=produce_to_consume,
    ),
)
