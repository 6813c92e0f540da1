"""A server under load: its topics, the sections measured on it, and their results.

Owns: the setup of a section and the measurement of CPU time. Must not know which server it is, or any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import count

from bench import machine
from bench.admin import create_topic, delete_topic
from bench.client import ProduceStream, Section, Stream, closed_loop
from bench.client import produce_to_consume as run_produce_to_consume
from bench.frames import Batch, batch_of_size
from bench.measures import Values, percentile
from bench.processes import cpu_seconds
from bench.scale import Scale
from bench.servers import Server

RECORD_IN_BATCH = 1000
KIB_16 = 16 * 1024
GB = 1e9
MB = 1e6
PRODUCE_TO_CONSUME_RATE = 500.0


class Subject:
    """A running server as the cases see it: its topics, and its use of the machine."""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self.port = server.port
        self.pid = server.pid
        self._log_dir = server.log_dir
        self._numbers = count()
        self._filled: dict[int, FilledTopic] = {}
        self.kept_topics: set[str] = set()
        """Names of topics that a case has filled and keeps for its next round."""

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[str]:
        """Yield a new topic; deletes it afterwards."""
        name = f"bench-{next(self._numbers)}"
        create_topic(self.port, name, partitions)
        yield name
        delete_topic(self.port, name)

    def filled_topic(self, byte_count: int, batch_size: int) -> FilledTopic:
        """Return a topic with `byte_count` in batches of that size, created on first use and kept in the page cache."""
        if batch_size not in self._filled:
            name = f"bench-{next(self._numbers)}"
            create_topic(self.port, name)
            batch = bulk_batch(batch_size)
            with closing_all([ProduceStream(self.port, name, 0, batch, in_flight=5)]) as streams:
                done = closed_loop(streams, requests=byte_count // batch_size).requests
            self._filled[batch_size] = FilledTopic(name, batch, done * batch.record_count)
        topic = self._filled[batch_size]
        machine.bring_into_memory(self._log_dir / f"{topic.name}-0")
        return topic

    def measured_for_a_time(self, streams: Sequence[Stream], scale: Scale) -> Load:
        closed_loop(streams, seconds=scale.lead_in_s)
        machine.settle()
        return self._measured(lambda: closed_loop(streams, seconds=scale.section_s))

    def measured_in_bulk(self, streams: Sequence[Stream], scale: Scale, size: int) -> Sequence[Load]:
        """Measure `scale.bulk_bytes` in requests that write `size` each, in the scale's number of sections.

        A section is shorter than the two seconds after which a hypervisor may take free memory back, so most sections
        keep their prepared memory.
        """
        closed_loop(streams, seconds=scale.lead_in_s)
        return [
            self._section_in_bulk(streams, scale.bulk_bytes // scale.bulk_sections, size)
            for _ in range(scale.bulk_sections)
        ]

    def _section_in_bulk(self, streams: Sequence[Stream], byte_count: int, size: int) -> Load:
        machine.settle(byte_count, size)
        return self._measured(lambda: closed_loop(streams, requests=byte_count // size))

    def measured_exchange(self, topic: str, batch: Batch, scale: Scale) -> Load:
        machine.settle()
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
    """A section, and the server's CPU time during it."""

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


@contextmanager
def closing_all(streams: Sequence[Stream]) -> Iterator[Sequence[Stream]]:
    with ExitStack() as open_connections:
        for stream in streams:
            open_connections.enter_context(closing(stream.connection))
        yield streams


@contextmanager
def running(server: Server) -> Iterator[None]:
    """Yield the server, started and ready; stops it afterwards."""
    try:
        server.spawn()
        server.wait_until_ready()
        yield
    finally:
        server.stop()


@contextmanager
def producers(
    subject: Subject, topic: str, batch: Batch, connections: int, in_flight: int
) -> Iterator[Sequence[Stream]]:
    streams = [ProduceStream(subject.port, topic, partition, batch, in_flight) for partition in range(connections)]
    with closing_all(streams):
        yield streams


def bulk_batch(size: int) -> Batch:
    return batch_of_size(size, RECORD_IN_BATCH, now_ms())


def now_ms() -> int:
    return time.time_ns() // 1_000_000
