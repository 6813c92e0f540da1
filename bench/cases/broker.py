"""Cases about an idle broker: the time of its start, and its memory.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from statistics import median

from bench import machine
from bench.admin import check_greeting, create_topic, greeting
from bench.case import LOWER, Case
from bench.client import FetchStream, ProduceStream, closed_loop, connect, receive_frame
from bench.frames import request_frame
from bench.measures import Measure, Values, absolute
from bench.processes import MIB, anonymous_mib, resident_mib
from bench.scale import Scale
from bench.servers import Server
from bench.subject import KIB_16, Subject, bulk_batch, closing_all, running
from protocol.messages.metadata import MetadataRequest

IDLE_CONNECTIONS = 5000
TOPICS, PARTITIONS_PER_TOPIC = 100, 100
METADATA_VERSION = 12
METADATA_REQUESTS = 11
RESPONSE_SIZE_MAX = 4 * MIB


def start(server: Server, scale: Scale) -> Values:
    """Measure the time from the process start to a Metadata response that names the broker, on empty folders."""
    machine.settle()
    begin = time.perf_counter()
    with running(server):
        seconds = time.perf_counter() - begin
        time.sleep(scale.idle_s)
        return {"start": seconds, "idle memory": resident_mib(server.pid), "anonymous": anonymous_mib(server.pid)}


def idle_connections(server: Server, scale: Scale) -> Values:
    """Measure memory with connections that have only sent ApiVersions, like every client at first."""
    with running(server), ExitStack() as connections:
        for _ in range(scale.count(IDLE_CONNECTIONS)):
            connections.enter_context(_greeted(server.port))
        time.sleep(scale.idle_s)
        return {"memory": resident_mib(server.pid), "anonymous": anonymous_mib(server.pid)}


def memory_after_load(server: Server, scale: Scale) -> Values:
    """Measure memory after half of the bytes in 16 KB and half in 1 MB batches were produced and fetched."""
    with running(server):
        subject = Subject("", server)
        for size in (KIB_16, MIB):
            with subject.topic() as topic:
                batch = bulk_batch(size)
                requests = scale.memory_bytes // 2 // size
                with closing_all([ProduceStream(server.port, topic, 0, batch, in_flight=5)]) as streams:
                    done = closed_loop(streams, requests=requests).requests
                reader = FetchStream(server.port, topic, 0, batch, done * batch.record_count, MIB)
                with closing_all([reader]) as streams:
                    closed_loop(streams, requests=done * size // MIB)
        return {"memory": resident_mib(server.pid), "anonymous": anonymous_mib(server.pid)}


def metadata(server: Server, scale: Scale) -> Values:
    """Measure Metadata of all topics on new connections: the first request and later ones; then a restart."""
    partitions = scale.count(PARTITIONS_PER_TOPIC)
    request = bytes(request_frame(MetadataRequest(topics=None), METADATA_VERSION))
    with running(server):
        for number in range(scale.count(TOPICS)):
            create_topic(server.port, f"topic-{number}", partitions)
        machine.settle()
        first, *later = [_time_of_response(server.port, request) for _ in range(METADATA_REQUESTS)]
        memory = resident_mib(server.pid)
    begin = time.perf_counter()
    with running(server):
        restart = time.perf_counter() - begin
    return {"first": first * 1e3, "later": median(later) * 1e3, "memory": memory, "restart": restart}


def _time_of_response(port: int, request: bytes) -> float:
    buffer = memoryview(bytearray(RESPONSE_SIZE_MAX))
    with connect(port) as connection:
        begin = time.perf_counter()
        connection.sendall(request)
        receive_frame(connection, buffer)
        return time.perf_counter() - begin


def _greeted(port: int) -> socket.socket:
    connection = connect(port)
    buffer = memoryview(bytearray(KIB_16))
    connection.sendall(greeting())
    receive_frame(connection, buffer)
    check_greeting(buffer)
    return connection


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
        "metadata-10k-partitions",
        f"Metadata, {TOPICS * PARTITIONS_PER_TOPIC:,} partitions",
        (
            Measure("first", "ms", LOWER, absolute(50)),
            Measure("later", "ms", LOWER, decimals=1),
            Measure("restart", "s", LOWER, decimals=1),
            Measure("memory", "MiB", LOWER),
        ),
        on_new=metadata,
        rounds_max=2,
    ),
)
