"""The closed loops count every response once, in pieces of any size, and never count an error."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from bench.client import FetchStream, ProduceStream, closed_loop
from bench.frames import FETCH_VERSION, PRODUCE_VERSION, SIZE_FIELD, batch_of_one
from protocol.codec import decode, encode
from protocol.headers import read_request_header, response_header
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from protocol.writer import uvarint

BATCH = batch_of_one(10, 1_700_000_000_000)
TOPIC = "topic"
LOG_END_OFFSET = 5
Responder = Callable[[memoryview], bytes]


def produce_response(frame: memoryview, error: int = 0) -> bytes:
    header, _ = read_request_header(frame)
    partition = PartitionProduceResponse(index=0, error_code=error, base_offset=0)
    message = ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[partition])])
    return b"".join([response_header(0, PRODUCE_VERSION, header.correlation_id), *encode(message, PRODUCE_VERSION)])


def produce_error(frame: memoryview) -> bytes:
    return produce_response(frame, error=6)


def produce_out_of_order(frame: memoryview) -> bytes:
    respond = bytearray(produce_response(frame))
    respond[3] ^= 1
    return bytes(respond)


def fetch_response(frame: memoryview) -> bytes:
    """A response with two batches, fewer at the end of a log of five."""
    header, position = read_request_header(frame)
    offset = decode(FetchRequest, FETCH_VERSION, frame, position).topics[0].partitions[0].fetch_offset
    data = PartitionData(
        partition_index=0, high_watermark=LOG_END_OFFSET, records=BATCH.data * min(2, LOG_END_OFFSET - offset)
    )
    message = FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[data])])
    return b"".join([response_header(1, FETCH_VERSION, header.correlation_id), *encode(message, FETCH_VERSION)])


def shifting_responses() -> Responder:
    """Responses of one size: at first with two batches, later with one and tagged bytes."""
    count = 0

    def respond(frame: memoryview) -> bytes:
        nonlocal count
        count += 1
        usual = fetch_response(frame)
        if count < 4:
            return usual
        half = usual.replace(BATCH.data * 2, BATCH.data)
        length = uvarint(2 * len(BATCH.data) + 1)
        assert half.count(length + BATCH.data) == 1
        shorter = uvarint(len(BATCH.data) + 1)
        return half.replace(length + BATCH.data, shorter + BATCH.data).ljust(len(usual), b"\0")

    return respond


def serve(connection: socket.socket, respond: Responder, piece: int) -> None:
    # A client that ends the run may leave a response unread, which resets the connection.
    with suppress(ConnectionError), connection, connection.makefile("rb") as requests:
        while size := requests.read(SIZE_FIELD):
            body = respond(memoryview(requests.read(struct.unpack(">i", size)[0])))
            frame = struct.pack(">i", len(body)) + body
            for position in range(0, len(frame), piece):
                connection.sendall(frame[position : position + piece])


@contextmanager
def server(respond: Responder, piece: int = 1 << 20) -> Iterator[int]:
    """Yield the port of a server that sends `answer` for each request, `piece` bytes at a time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=serve, args=(connection, respond, piece), daemon=True).start()

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join()


@pytest.mark.parametrize("in_flight", [1, 2, 8])
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_every_response_counts_once(in_flight: int, connections: int, piece: int) -> None:
    with server(produce_response, piece) as port:
        streams = [ProduceStream(port, TOPIC, 0, BATCH, in_flight) for _ in range(connections)]
        for _ in range(2):
            section = closed_loop(streams, requests=50)
            assert 50 <= section.requests <= 50 + 2 * in_flight * connections
            assert len(section.latencies_ns) == section.requests
        for stream in streams:
            stream.connection.close()


@pytest.mark.parametrize("respond", [produce_error, produce_out_of_order])
def test_a_wrong_response_ends_the_run(respond: Responder) -> None:
    with server(respond) as port:
        stream = ProduceStream(port, TOPIC, 0, BATCH, 1)
        with stream.connection, pytest.raises(RuntimeError, match="Produce: error"):
            closed_loop([stream], requests=10)


def test_a_fetch_with_unexpected_contents_ends_the_run() -> None:
    with server(shifting_responses()) as port:
        stream = FetchStream(port, TOPIC, 0, BATCH, 4, max_bytes=4096)
        with stream.connection, pytest.raises(RuntimeError, match=f"brought {len(BATCH.data)} bytes"):
            closed_loop([stream], requests=10)
        assert stream.record_bytes == 3 * 2 * len(BATCH.data)


def test_a_closed_connection_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = ProduceStream(listener.getsockname()[1], TOPIC, 0, BATCH, 1)
        connection, _ = listener.accept()
        stream.start()
        connection.recv(1 << 16)
        connection.close()
        with stream.connection, pytest.raises(RuntimeError, match="closed"):
            stream.advance()


def test_fetching_restarts_at_the_end() -> None:
    with server(fetch_response) as port:
        stream = FetchStream(port, TOPIC, 0, BATCH, LOG_END_OFFSET, max_bytes=4096)
        with stream.connection:
            section = closed_loop([stream], requests=8)
            # 2 + 2 + 1 batches per turn: eight responses and the one that was in flight make three turns.
            assert section.requests == 9
            assert stream.record_bytes == 3 * LOG_END_OFFSET * len(BATCH.data)
