"""A compiled client of many threads, each with one request in flight: `bench/java/RequestLoop.java`.

Owns the requests of each thread, the positions that it checks in responses, and the start of the program. Must not know
which server responds.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.client import connect, receive_frame
from bench.frames import Batch, request_frame
from bench.measures import Values
from bench.processes import cpu_seconds
from bench.scale import Scale
from protocol.codec import decode, encode
from protocol.frame import LENGTH
from protocol.headers import read_response_header, response_header
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.schema import message_info
from tests.support.java import compiled, java_command

SOURCE = Path(__file__).with_name("java") / "RequestLoop.java"
CLASSES = Path(__file__).parent.parent / ".cache" / "java"
JVM_OPTIONS = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC")
TIMEOUT_MS = 30_000
PARTITION_MAX_BYTES = 1 << 20
NO_EPOCH = -1
_INT = struct.Struct(">i")


@dataclass(frozen=True)
class Request:
    """A whole frame, the position of its session epoch (-1: none), and those of the error codes in its response."""

    frame: bytes
    error_positions: Sequence[int]
    epoch_position: int = NO_EPOCH


def produce_request(topic: str, partitions: Sequence[int], batch: Batch, version: int) -> Request:
    """Return a Produce request with one batch per partition."""
    data = [PartitionProduceData(index=index, records=batch.data) for index in partitions]
    request = ProduceRequest(
        acks=1, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return Request(
        bytes(request_frame(request, version)),
        _error_positions(_produced(topic, partitions, 0), _produced(topic, partitions, -1), version),
    )


def session_request(port: int, topic: str, offsets: Sequence[int], version: int) -> Request:
    """Open a fetch session over the partitions; return a Fetch in it that names no partition and never waits."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=PARTITION_MAX_BYTES)
        for index, offset in enumerate(offsets)
    ]
    opening = FetchRequest(
        max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[FetchTopic(topic=topic, partitions=partitions)]
    )
    with connect(port) as connection:
        connection.sendall(request_frame(opening, version))
        buffer = memoryview(bytearray(1 << 20))
        size = receive_frame(connection, buffer)
    _, position = read_response_header(1, version, buffer[LENGTH.size : size])
    response = decode(FetchResponse, version, buffer[LENGTH.size : size], position)
    if response.error_code or not response.session_id:
        raise RuntimeError(f"Fetch: error {response.error_code}, session {response.session_id}")
    continued = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=response.session_id, session_epoch=1, topics=[])
    frame = bytes(request_frame(continued, version))
    epoch_position = frame.index(_INT.pack(response.session_id)) + _INT.size
    errors = _error_positions(FetchResponse(error_code=0), FetchResponse(error_code=-1), version)
    return Request(frame, errors, epoch_position)


def measured(port: int, server_pid: int, threads: Sequence[Sequence[Request]], scale: Scale) -> Values:
    """Send each thread's requests in rotation, for the duration of the scale."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests"
        path.write_bytes(_written(threads))
        program = compiled(SOURCE, None, CLASSES)
        arguments = [str(port), str(scale.lead_in_s), str(scale.section_s), str(path)]
        command = java_command([program], "RequestLoop", arguments, options=JVM_OPTIONS)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            if client.stdout.readline().strip() != "ready":
                raise RuntimeError("the client failed before the measured section")
            cpu, client_cpu, started = cpu_seconds(server_pid), cpu_seconds(client.pid), time.perf_counter()
            client.stdin.write("\n")
            client.stdin.flush()
            line = client.stdout.readline()
            server_s, seconds = cpu_seconds(server_pid) - cpu, time.perf_counter() - started
            client_s = cpu_seconds(client.pid) - client_cpu
        if client.returncode:
            raise RuntimeError("the client failed")
    count, elapsed_ns, *latencies_ns = map(int, line.split())
    p50, p99, p999 = (value / 1e3 for value in latencies_ns)
    return {
        "p50": p50,
        "p99": p99,
        "p99.9": p999,
        "rate": count / elapsed_ns * 1e9,
        "CPU": server_s / count * 1e6,
        "client": min(client_s / seconds, 1.0),
    }


def _written(threads: Sequence[Sequence[Request]]) -> bytes:
    parts = [_INT.pack(len(threads))]
    for requests in threads:
        parts.append(_INT.pack(len(requests)))
        for request in requests:
            parts += (_INT.pack(len(request.frame)), request.frame, _INT.pack(request.epoch_position))
            parts += map(_INT.pack, (len(request.error_positions), *request.error_positions))
    return b"".join(parts)


def _produced(topic: str, partitions: Sequence[int], code: int) -> ProduceResponse:
    responses = [PartitionProduceResponse(index=index, error_code=code, base_offset=0) for index in partitions]
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=responses)])


def _error_positions(good: object, bad: object, version: int) -> list[int]:
    """Return the positions of error codes in a response with size and header: both bytes differ from a success."""
    one, other = b"".join(encode(good, version)), b"".join(encode(bad, version))
    start = LENGTH.size + len(response_header(message_info(type(good)).api_key, version, 0))
    differing = [start + at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    return differing[::2]
