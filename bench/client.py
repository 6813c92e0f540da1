"""A client that costs as little as Python allows: plain sockets, prepared frames, minimal checks of responses.

Owns: connections and the closed loops that keep a number of requests in flight. It receives responses into a reused
buffer and reads only size, correlation id and error code (of a Fetch also the size of the records). Must not know which
server responds.

Invariant: an error or a response out of order ends the benchmark with RuntimeError; it is never counted as work done.
"""

from __future__ import annotations

import gc
import select
import socket
import struct
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from bench.frames import (
    SIZE_FIELD,
    Batch,
    FetchFrame,
    FetchResponseLayout,
    produce_frame,
    produce_response_layout,
)
from protocol.frame import LENGTH

RESPONSE_TIMEOUT_S = 60.0
SMALL_BUFFER = 64 * 1024
FETCH_HEADROOM = 64 * 1024


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), RESPONSE_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A plain blocking socket from here on: Python's own timeouts cost one poll() per call; SO_RCVTIMEO costs nothing.
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(RESPONSE_TIMEOUT_S), 0))
    return connection


def receive_frame(connection: socket.socket, buffer: memoryview) -> int:
    """Receive exactly one response to the start of `buffer`; return its size with the size field."""
    received = connection.recv_into(buffer)
    while received < SIZE_FIELD:
        received += _received_or_closed(connection.recv_into(buffer[received:]))
    size: int = SIZE_FIELD + LENGTH.unpack_from(buffer)[0]
    while received < size:
        received += _received_or_closed(connection.recv_into(buffer[received:size], 0, socket.MSG_WAITALL))
    if received > size:
        raise RuntimeError("a response without a request")
    return size


def _received_or_closed(count: int) -> int:
    if count == 0:
        raise RuntimeError("the server closed the connection")
    return count


class Stream(Protocol):
    """One connection with requests in flight."""

    connection: socket.socket
    latencies_ns: array[int]

    def start(self) -> None:
        """Reset the counts, and send as many requests as are to be in flight."""
        ...

    def advance(self) -> int:
        """Receive, blocking until bytes arrive, and send a new request per response; return the count of responses."""
        ...

    def drain(self) -> int:
        """Receive the responses in flight without sending more; return their count."""
        ...


class RepeatingStream:
    """Sends the same requests repeatedly, all of `frames` in flight at a time.

    All frames have one size, and correlation ids that count from 0. `response` is the layout of size, correlation id
    and error code in a response; `name` is that of the API.
    """

    def __init__(self, port: int, name: str, frames: Sequence[bytes | bytearray], response: struct.Struct) -> None:
        self.connection = connect(port)
        self.latencies_ns = array("q")
        self._name = name
        self._layout = response
        self._frame_size = len(frames[0])
        # All frames twice, so that any run of up to `in_flight` frames is one slice.
        self._ring = memoryview(b"".join([*frames, *frames]))
        self._in_flight = len(frames)
        self._next_response = 0
        self._sent_at: deque[int] = deque()
        self._buffer = bytearray(SMALL_BUFFER)
        self._view = memoryview(self._buffer)
        self._kept = 0

    def start(self) -> None:
        del self.latencies_ns[:]
        self._send(self._next_response, self._in_flight)

    def advance(self) -> int:
        first = self._next_response
        count = self._receive()
        self._send(first, count)
        return count

    def drain(self) -> int:
        count = 0
        while self._sent_at:
            count += self._receive()
        return count

    def _send(self, first_slot: int, count: int) -> None:
        size = self._frame_size
        now = time.perf_counter_ns()
        if size * count <= SMALL_BUFFER:
            self.connection.sendall(self._ring[first_slot * size : (first_slot + count) * size])
        else:
            for slot in range(first_slot, first_slot + count):
                self.connection.sendall(self._ring[slot * size : (slot + 1) * size])
        self._sent_at.extend([now] * count)

    def _receive(self) -> int:
        """Receive the available bytes: at least a part of a response, at most all responses in flight."""
        end = self._kept + _received_or_closed(self.connection.recv_into(self._view[self._kept :]))
        now = time.perf_counter_ns()
        position = count = 0
        while end - position >= self._layout.size:
            size, correlation_id, error = self._layout.unpack_from(self._buffer, position)
            if position + SIZE_FIELD + size > end:
                break
            if correlation_id != self._next_response or error:
                raise RuntimeError(
                    f"{self._name}: error {error}, response {correlation_id} instead of {self._next_response}"
                )
            self._next_response = (self._next_response + 1) % self._in_flight
            self.latencies_ns.append(now - self._sent_at.popleft())
            position += SIZE_FIELD + size
            count += 1
        self._kept = end - position
        if self._kept and position:
            self._view[: self._kept] = self._view[position:end]
        return count


class ProduceStream(RepeatingStream):
    """Sends the same batch repeatedly, `in_flight` requests at a time."""

    def __init__(self, port: int, topic: str, partition: int, batch: Batch, in_flight: int, acks: int = 1) -> None:
        frames = [produce_frame(topic, partition, batch, slot, acks) for slot in range(in_flight)]
        super().__init__(port, "Produce", frames, produce_response_layout(topic))


class FetchStream:
    """Reads a partition of equal batches from start to `end_offset`, repeatedly, one request in flight.

    A response as long as the previous one has as many batches, so the next request is sent before the response is
    checked. The check runs while the server works, and ends the benchmark if this assumption was wrong.
    """

    def __init__(self, port: int, topic: str, partition: int, batch: Batch, end_offset: int, max_bytes: int) -> None:
        self.connection = connect(port)
        self.latencies_ns = array("q")
        self.record_bytes = 0
        self._frame = FetchFrame(topic, partition, max_bytes)
        self._layout = FetchResponseLayout(topic)
        self._batch_size, self._batch_count = len(batch.data), batch.record_count
        self._end_offset = end_offset
        self._offset = 0
        self._buffer = memoryview(bytearray(max_bytes + FETCH_HEADROOM))
        self._sent_at = 0
        self._usual_size = 0  # of a response
        self._usual_record_bytes = 0  # in it

    def start(self) -> None:
        del self.latencies_ns[:]
        self.record_bytes = 0
        self._send()

    def advance(self) -> int:
        latency_ns = self._receive()
        self._send()
        self._take(latency_ns)
        return 1

    def drain(self) -> int:
        self._take(self._receive())
        return 1

    def _send(self) -> None:
        self._frame.move_to(self._offset)
        self._sent_at = time.perf_counter_ns()
        self.connection.sendall(self._frame.data)

    def _receive(self) -> int:
        """Step over what comes; returns how long it took."""
        size = receive_frame(self.connection, self._buffer)
        latency_ns = time.perf_counter_ns() - self._sent_at
        if size != self._usual_size:
            self._usual_size, self._usual_record_bytes = size, self._layout.record_bytes(self._buffer)
        self._offset += self._usual_record_bytes // self._batch_size * self._batch_count
        if self._offset >= self._end_offset:
            self._offset = 0
        return latency_ns

    def _take(self, latency_ns: int) -> None:
        """Count the received response; raises RuntimeError if its contents are not the expected ones."""
        self.latencies_ns.append(latency_ns)
        size = self._layout.record_bytes(self._buffer)
        if size < self._batch_size or size != self._usual_record_bytes:
            raise RuntimeError(f"Fetch up to {self._offset} brought {size} bytes, less than a batch or than expected")
        self.record_bytes += size


@dataclass(frozen=True)
class Section:
    """The result of one measured section, as seen by the client."""

    requests: int
    wall_s: float
    client_cpu_s: float
    latencies_ns: Sequence[int]


def closed_loop(streams: Sequence[Stream], *, seconds: float | None = None, requests: int | None = None) -> Section:
    """Keep every stream's requests in flight for a time or a number of responses; then receive the rest."""
    with _no_garbage_collection():
        cpu, start = time.process_time(), time.perf_counter()
        for stream in streams:
            stream.start()
        done = 0
        for count in _responses(streams):
            done += count
            if (requests is not None and done >= requests) or (
                seconds is not None and time.perf_counter() - start >= seconds
            ):
                break
        done += sum(stream.drain() for stream in streams)
        wall_s, client_cpu_s = time.perf_counter() - start, time.process_time() - cpu
    latencies = array("q")
    for stream in streams:
        latencies.extend(stream.latencies_ns)
    return Section(done, wall_s, client_cpu_s, latencies)


def _responses(streams: Sequence[Stream]) -> Iterator[int]:
    if len(streams) == 1:
        advance = streams[0].advance
        while True:
            yield advance()
    by_descriptor = {stream.connection.fileno(): stream for stream in streams}
    with select.epoll() as poll:
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        while True:
            ready = poll.poll(RESPONSE_TIMEOUT_S)
            if not ready:
                raise RuntimeError(f"no response on any connection for {RESPONSE_TIMEOUT_S} s")
            for descriptor, _ in ready:
                yield by_descriptor[descriptor].advance()


def produce_to_consume(port: int, topic: str, batch: Batch, *, rate: float, seconds: float) -> Section:
    """Produce one batch each `1 / rate` seconds while a second connection long-polls at the end of the partition.

    The latency of a batch runs from just before its request is sent until the Fetch response with it is received.
    The partition must be empty.
    """
    producer, consumer = connect(port), connect(port)
    with producer, consumer, _no_garbage_collection():
        cpu, start = time.process_time(), time.perf_counter()
        exchange = _Exchange(producer, consumer, topic, batch)
        count = int(rate * seconds)
        for number in range(count):
            exchange.serve_until(start + number / rate)
            exchange.produce()
        exchange.serve_until_consumed()
        wall_s, client_cpu_s = time.perf_counter() - start, time.process_time() - cpu
        return Section(count, wall_s, client_cpu_s, exchange.latencies_ns)


class _Exchange:
    def __init__(self, producer: socket.socket, consumer: socket.socket, topic: str, batch: Batch) -> None:
        self.latencies_ns = array("q")
        self._producer = producer
        self._consumer = consumer
        self._batch = batch
        self._produce_frame = produce_frame(topic, 0, batch, 0)
        self._produce_layout = produce_response_layout(topic)
        self._fetch_frame = FetchFrame(topic, 0, SMALL_BUFFER)
        self._fetch_layout = FetchResponseLayout(topic)
        self._buffer = memoryview(bytearray(2 * SMALL_BUFFER))
        self._offset = 0
        self._sent_at: deque[int] = deque()
        self._in_flight = 0
        self._fetch()

    def produce(self) -> None:
        self._sent_at.append(time.perf_counter_ns())
        self._in_flight += 1
        self._producer.sendall(self._produce_frame)

    def serve_until(self, moment: float) -> None:
        while (left := moment - time.perf_counter()) > 0:
            self._serve(left)

    def serve_until_consumed(self) -> None:
        deadline = time.perf_counter() + RESPONSE_TIMEOUT_S
        while self._sent_at or self._in_flight:
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{len(self._sent_at)} produced batches were never consumed")
            self._serve(1.0)

    def _serve(self, timeout_s: float) -> None:
        ready, _, _ = select.select([self._consumer, self._producer], [], [], timeout_s)
        if self._consumer in ready:
            self._consume()
        if self._producer in ready:
            self._take_produce_responses()

    def _take_produce_responses(self) -> None:
        """Receive one or a few responses: they arrive faster than requests are sent."""
        size = self._producer.recv_into(self._buffer)
        response_size, _, error = self._produce_layout.unpack_from(self._buffer)
        if error or size % (SIZE_FIELD + response_size):
            raise RuntimeError(f"Produce: error {error}, {size} bytes received")
        self._in_flight -= size // (SIZE_FIELD + response_size)

    def _consume(self) -> None:
        receive_frame(self._consumer, self._buffer)
        now = time.perf_counter_ns()
        count = self._fetch_layout.record_bytes(self._buffer) // len(self._batch.data)
        for _ in range(count):
            self.latencies_ns.append(now - self._sent_at.popleft())
        self._offset += count * self._batch.record_count
        self._fetch()

    def _fetch(self) -> None:
        self._fetch_frame.move_to(self._offset)
        self._consumer.sendall(self._fetch_frame.data)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
