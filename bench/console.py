"""The console at scale: how long its pages take, and how long other clients wait while they are served.

    PYTHONPATH=. python -m bench.console [--topics 10000] [--partitions 4] [--rounds 9] [--load]

Owns the load and the report. It starts one broker in a temporary folder, creates the topics, and fills one topic of 100
partitions. Then it requests each page in turn. At the same time a client sends ApiVersions requests on one connection,
one at a time: the longest of its response times is the stall, which is also printed without a page ("nothing").

With `--load` it instead produces 5,000 records a second, in sections of 5 s: without and with the requests of open
pages and a scrape, alternating, which a process of its own sends. It prints the quantiles of the response times of
Produce: the medians over the sections, with the smallest and the largest, and the ratio of the medians of the 99th
percentiles. Sections that another program disturbs do not move the medians if they are few.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from confluent_kafka import Producer

from bench.admin import ask, create_topic
from bench.client import connect, receive_frame
from bench.frames import Batch, produce_frame, request_frame
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.records.builder import RecordData, build_batch
from tests.support.broker import BrokerProcess

TOPICS_PER_REQUEST = 250
WIDE_PARTITIONS = 100
RECORDS_PER_PARTITION = 200
VALUE = b'{"number": 1, "text": "%s"}' % (b"x" * 200)
BUFFER_SIZE = 1 << 20
RECORDS_PER_S = 5_000
RECORDS_PER_REQUEST = 10
LOAD_SECTION_S = 5.0
LOAD_ROUNDS = 12
FIRST_REQUEST_S = 1.0

API = "/api/v1"
SCRAPE = "/metrics"
PAGES: Sequence[tuple[str, str]] = (
    ("nothing", ""),
    ("first page of topics", f"{API}/topics"),
    ("topics by search", f"{API}/topics?search=99"),
    ("topics by size", f"{API}/topics?sort=size&order=descending"),
    ("overview", f"{API}/overview"),
    ("spread of partitions", f"{API}/partitions"),
    ("newest 100 of 100 partitions", f"{API}/topics/wide/records?limit=100"),
    ("newest 500 of 100 partitions", f"{API}/topics/wide/records?limit=500"),
    ("groups", f"{API}/groups"),
    ("requests", f"{API}/requests"),
    ("scrape of the metrics", SCRAPE),
)
WATCHED: Sequence[str] = (
    f"{API}/overview",
    f"{API}/rates?window=hour",
    f"{API}/topics",
    f"{API}/topics/load",
    f"{API}/topics/load/records?limit=100",
    f"{API}/requests",
    SCRAPE,
)
"""What open pages request every 5 s: the overview, the list of topics, a topic with its records, and the requests."""


class Pinger:
    """A client that always waits for a response, and knows the longest wait."""

    def __init__(self, port: int) -> None:
        self._connection = connect(port)
        self._frame = request_frame(ApiVersionsRequest(client_software_name="b", client_software_version="1"), 3)
        self._longest_s = 0.0
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def longest_ms(self) -> float:
        """Return the longest wait since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return 1000 * longest_s

    def stop(self) -> None:
        self._is_stopped = True
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        buffer = memoryview(bytearray(BUFFER_SIZE))
        while not self._is_stopped:
            began_s = time.monotonic()
            self._connection.sendall(self._frame)
            receive_frame(self._connection, buffer)
            self._longest_s = max(self._longest_s, time.monotonic() - began_s)
            time.sleep(0.001)


@contextmanager
def running_broker() -> Iterator[tuple[int, str]]:
    """Run a broker; yield its port and the address of its console."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"metrics.http.listener": "127.0.0.1:0", "log.cleaner.enable": "false"}
        with BrokerProcess(Path(folder), settings) as broker:
            yield broker.port, f"http://127.0.0.1:{broker.metrics_port}"


def create_topics(port: int, count: int, partitions: int) -> None:
    """Create topics, many with one request."""
    for first in range(0, count, TOPICS_PER_REQUEST):
        topics = [
            CreatableTopic(
                name=f"topic-{number:05d}", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
            )
            for number in range(first, min(first + TOPICS_PER_REQUEST, count))
        ]
        response = ask(port, CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5, CreateTopicsResponse)
        failed = [each for each in response.topics if each.error_code]
        assert not failed, failed[0]


def fill_wide_topic(port: int) -> None:
    """Produce to every partition in turns, so that timestamps and partitions do not agree."""
    create_topic(port, "wide", WIDE_PARTITIONS)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 20})
    for _ in range(RECORDS_PER_PARTITION):
        for partition in range(WIDE_PARTITIONS):
            producer.produce("wide", VALUE, key=b"key", partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0, "records were not produced"


def fetch(address: str) -> int:
    """Return the size of a response, which must succeed."""
    with urllib.request.urlopen(address) as response:
        return len(response.read())


def measure_pages(port: int, address: str, rounds: int) -> None:
    pinger = Pinger(port)
    time.sleep(1)
    for title, path in PAGES:
        visit: Callable[[], int] = (lambda path=path: fetch(address + path)) if path else _pause  # type: ignore[misc]
        times: list[float] = []
        stalls: list[float] = []
        size = 0
        for _ in range(rounds):
            pinger.longest_ms()
            began_s = time.monotonic()
            size = visit()
            times.append(1000 * (time.monotonic() - began_s))
            time.sleep(0.02)
            stalls.append(pinger.longest_ms())
            time.sleep(0.1)
        print(
            f"{title:30} first {times[0]:7.1f} ms, median {statistics.median(times):7.1f}, longest {max(times):7.1f}; "
            f"stall median {statistics.median(stalls):6.1f} ms, longest {max(stalls):6.1f}; {size} bytes",
            flush=True,
        )
    pinger.stop()


def _pause() -> int:
    time.sleep(0.2)
    return 0


def measure_load(port: int, address: str) -> None:
    """Print the 99th percentile of Produce without and with the requests of open pages, alternating."""
    create_topic(port, "load", 4)
    _waits_of_produce(port, seconds=3.0)  # everything is imported and compiled
    processes = multiprocessing.get_context("spawn")
    section = processes.Event()
    watcher = processes.Process(target=_watch, args=(address, section), daemon=True)
    watcher.start()
    results: dict[bool, list[list[float]]] = {False: [], True: []}
    for number in range(LOAD_ROUNDS):
        for is_watched in (False, True) if number % 2 == 0 else (True, False):
            if is_watched:
                section.set()
            waits = sorted(_waits_of_produce(port, LOAD_SECTION_S))
            results[is_watched].append([1000 * waits[int(share * len(waits))] for share in (0.5, 0.99, 0.999)])
    watcher.terminate()
    medians = {}
    for is_watched, title in ((False, "without console and scrapes"), (True, "with console and scrapes")):
        shown = []
        for column, name in enumerate(("p50", "p99", "p99.9")):
            values = [each[column] for each in results[is_watched]]
            medians[is_watched, name] = statistics.median(values)
            shown.append(f"{name} {statistics.median(values):.2f} ms [{min(values):.2f} to {max(values):.2f}]")
        print(f"{title:28}: {', '.join(shown)}", flush=True)
    print(f"ratio of the medians of p99: {medians[True, 'p99'] / medians[False, 'p99']:.2f}", flush=True)


def _waits_of_produce(port: int, seconds: float) -> list[float]:
    """Produce at a fixed rate; return how long after its due time each request had its response, in seconds."""
    now_ms = int(time.time() * 1000)
    batch = Batch(build_batch([RecordData(now_ms, None, VALUE)] * RECORDS_PER_REQUEST), RECORDS_PER_REQUEST)
    frame = produce_frame("load", 0, batch, 1, 1)
    buffer = memoryview(bytearray(BUFFER_SIZE))
    waits: list[float] = []
    interval_s = RECORDS_PER_REQUEST / RECORDS_PER_S
    with connect(port) as connection:
        began_s = time.monotonic()
        for number in range(int(seconds / interval_s)):
            due_s = began_s + number * interval_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            connection.sendall(frame)
            receive_frame(connection, buffer)
            waits.append(time.monotonic() - due_s)
    return waits


def _watch(address: str, section: Event) -> None:
    """In each section that is announced, send what open pages request in 5 s, and scrape the metrics."""
    while True:
        section.wait()
        section.clear()
        time.sleep(FIRST_REQUEST_S)
        for path in WATCHED:
            fetch(address + path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the pages of the web console.")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--load", action="store_true", help="measure Produce beside an open console")
    options = parser.parse_args()
    with running_broker() as (port, address):
        if options.load:
            measure_load(port, address)
            return
        create_topics(port, options.topics, options.partitions)
        fill_wide_topic(port)
        measure_pages(port, address, options.rounds)


if __name__ == "__main__":
    main()
