"""Hostile bytes against a running broker: their connection closes or gets a response, others are served, memory stays
flat.
"""

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import request_header
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.protocol.random_messages import random_message
from tests.support.broker import BrokerProcess

RESPONSE_TIMEOUT_S = 5.0
MUTATIONS = 1500
SERVED_ROUNDS = 300
SEED = 20240817
GROWTH_MAX_BYTES = 40 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"socket.request.max.bytes": "1048576", "auto.create.topics.enable": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("fuzzed"), settings, is_measured=True) as running:
        yield running


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def send(broker: BrokerProcess, data: bytes, *, patience_s: float = RESPONSE_TIMEOUT_S) -> bytes:
    """Return the first frame from the broker on a new connection; b"" if it closes the connection or sends none."""
    with socket.create_connection(("127.0.0.1", broker.port), RESPONSE_TIMEOUT_S) as connection:
        connection.settimeout(patience_s)
        response = b""
        try:
            connection.sendall(data)
            while len(response) < 4 or len(response) < 4 + struct.unpack_from(">i", response)[0]:
                piece = connection.recv(65536)
                if not piece:
                    return b""
                response += piece
        except (ConnectionError, TimeoutError):
            return b""
        return response


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def valid_request(rng: random.Random, served: list[int]) -> bytes:
    api = APIS[rng.choice(served)]
    version = rng.choice(api.versions)
    body = b"".join(encode(random_message(api.request, version, rng), version))
    return request_header(api.key, version, rng.randrange(1 << 31), "fuzz") + body


def served_keys(broker: BrokerProcess) -> list[int]:
    header = request_header(18, 0, 1, "fuzz")
    frame = send(broker, framed(header))
    response = decode(ApiVersionsResponse, 0, frame, 8)
    return [key.api_key for key in response.api_keys]


def is_serving(broker: BrokerProcess) -> bool:
    """Not by Metadata: a mutated UpdateMetadata may be valid, and then no broker is listed."""
    return bool(served_keys(broker))


@pytest.mark.parametrize(
    "hostile",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 1048577),
        framed(b""),
        framed(b"\x00"),
        framed(struct.pack(">hhih", 3, 12, 7, 200)),
        framed(struct.pack(">hhih", 999, 0, 7, -1)),
        framed(struct.pack(">hhih", 3, 99, 7, -1)),
        framed(struct.pack(">hhih", -1, -1, -1, -1)),
        framed(struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", 2**31 - 1)),
        framed(struct.pack(">hhih", 3, 1, 7, -1) + struct.pack(">i", -2)),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes(1000),
        b"\xff" * 1000,
    ],
    ids=lambda hostile: hostile[:14].hex(),
)
def test_garbage_closes_its_connection_and_no_other(broker: BrokerProcess, hostile: bytes) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), RESPONSE_TIMEOUT_S) as other:
        assert send(broker, hostile) == b""
        request = framed(request_header(18, 0, 5, "other"))
        other.sendall(request)
        assert other.recv(8)[4:] == struct.pack(">i", 5)
    assert is_serving(broker)


def test_unknown_version_of_api_versions_gets_a_response_of_version_0(broker: BrokerProcess) -> None:
    frame = send(broker, framed(struct.pack(">hhih", 18, 77, 9, -1)))
    response = decode(ApiVersionsResponse, 0, frame, 8)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [key.api_key for key in response.api_keys] == [18]


@pytest.mark.parametrize("name", ["", "bad name", "-dash"])
def test_malformed_client_software_name_is_rejected(broker: BrokerProcess, name: str) -> None:
    body = encode(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    response = send(broker, framed(request_header(18, 3, 9, "x") + b"".join(body)))
    assert decode(ApiVersionsResponse, 3, response, 8).error_code == ErrorCode.INVALID_REQUEST


def test_broker_serves_in_constant_memory_after_mutated_requests(broker: BrokerProcess) -> None:
    rng = random.Random(SEED)
    served = served_keys(broker)
    before = 0
    for number in range(MUTATIONS):
        request = bytearray(valid_request(rng, served))
        for _ in range(rng.choice([0, 1, 1, 2, 8])):
            request[rng.randrange(len(request))] = rng.randrange(256)
        if rng.random() < 0.2:
            del request[rng.randrange(len(request)) :]
        send(broker, framed(bytes(request)), patience_s=0.05)
        if number == MUTATIONS // 3:
            before = resident_bytes(broker.pid)
        if number % 100 == 0:
            assert is_serving(broker), f"request {number} of seed {SEED} ended it: {request.hex()}"
    assert is_serving(broker)
    growth = resident_bytes(broker.pid) - before
    assert growth < GROWTH_MAX_BYTES, f"resident memory grew by {growth} bytes"
    assert "failed unexpectedly" not in broker.log.read_text(), "a request met a bug of ours; its log says which"


def test_broker_survives_mutated_requests_after_valid_ones(broker: BrokerProcess) -> None:
    """What a connection has remembered of good requests meets bad ones that look like them."""
    rng = random.Random(SEED)
    create = CreateTopicsRequest(
        topics=[CreatableTopic(name="fuzzed", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
    )
    send(broker, framed(request_header(19, 7, 1, "fuzz") + b"".join(encode(create, 7))))
    records = build_batch([RecordData(timestamp=1, key=None, value=bytes(20))])
    data = TopicProduceData(name="fuzzed", partition_data=[PartitionProduceData(index=0, records=records)])
    produce = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
    for number in range(SERVED_ROUNDS):
        version = rng.choice([5, 8, 9, 11])
        good = request_header(0, version, 7, "fuzz") + b"".join(encode(produce, version))
        bad = bytearray(good)
        for _ in range(rng.choice([1, 2, 4])):
            bad[rng.randrange(8, len(bad))] = rng.randrange(256)
        if rng.random() < 0.3:
            bad += bytes([rng.choice([0, 0x80, 0xFF])]) * rng.randrange(1, 5000)
        send(broker, framed(good) * 2 + framed(bytes(bad)) + framed(good), patience_s=0.2)
        if number % 50 == 0:
            assert is_serving(broker), f"round {number} of seed {SEED} ended it: {bad.hex()}"
    assert is_serving(broker)
    assert "failed unexpectedly" not in broker.log.read_text(), "a request met a bug of ours; its log says which"
