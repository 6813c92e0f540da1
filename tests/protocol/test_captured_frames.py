"""Frames captured between real clients, real brokers and Apache Kafka 3.9.1: read, compared with what Kafka read in
them, and written again byte for byte.
"""

import base64
import re
from collections import defaultdict
from typing import Any
from uuid import UUID

import pytest

from protocol.api import APIS
from protocol.codec import decode, encode
from protocol.headers import read_request_header, read_response_header, request_header, response_header
from protocol.schema import Field, Struct
from tests.support.recorded import BROKER_FRAMES, CLIENT_FRAMES, read_lines

# librdkafka leaves bytes after the end of these; Kafka ignores them, and so does a decoder of requests.
BYTES_AFTER_THE_END = {("AlterUserScramCredentials", 0): 1, ("Metadata", 12): 3}


def _by_sender() -> dict[str, list[dict[str, Any]]]:
    """The exchanges of each client, and those of brokers by what happened to their cluster."""
    exchanges = defaultdict(list)
    for exchange in (*read_lines(CLIENT_FRAMES), *read_lines(BROKER_FRAMES)):
        exchanges[exchange.get("client") or f"brokers-{exchange['scenario']}"].append(exchange)
    return dict(exchanges)


EXCHANGES = _by_sender()


def _check(exchange: dict[str, Any]) -> None:
    frame = bytes.fromhex(exchange["request_hex"])
    header, position = read_request_header(frame)
    api = APIS[header.api_key]
    request = decode(api.request, header.api_version, frame, position)
    written = request_header(*header) + b"".join(encode(request, header.api_version))
    extra = len(frame) - len(written)
    assert extra in (0, BYTES_AFTER_THE_END.get((api.name, header.api_version)))
    assert written == frame[: len(written)]
    _check_values(request, header.api_version, exchange["decoded"]["request"])
    if exchange.get("response_hex"):
        _check_response(api.key, header.api_version, exchange)


def _check_response(key: int, version: int, exchange: dict[str, Any]) -> None:
    frame = bytes.fromhex(exchange["response_hex"])
    correlation_id, position = read_response_header(key, version, frame)
    response = decode(APIS[key].response, version, frame, position)
    assert response_header(key, version, correlation_id) + b"".join(encode(response, version)) == frame
    _check_values(response, version, exchange["decoded"]["response"])


def _check_values(struct: Struct, version: int, expected: Any) -> None:
    """Check every value that Kafka prints. It omits tagged fields with their default."""
    if "truncated_json" in expected:
        return  # it was too long for the capture
    fields = {field.name: field for field in struct.__fields__}
    for key, value in expected.items():
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key.replace("KRaft", "Kraft")).lower()
        if name == "records_size_in_bytes":
            ours = struct.records  # type: ignore[attr-defined]
            assert (0 if ours is None else len(ours)) == value
        else:
            assert fields[name].is_in(version)
            _check_value(getattr(struct, name), fields[name], version, value)


def _check_value(ours: Any, field: Field, version: int, expected: Any) -> None:
    if isinstance(ours, list):
        assert len(ours) == len(expected)
        for our_item, item in zip(ours, expected, strict=True):
            _check_value(our_item, field, version, item)
    elif isinstance(ours, Struct):
        _check_values(ours, version, expected)
    elif isinstance(ours, UUID):
        assert ours.bytes == base64.urlsafe_b64decode(expected + "==")
    elif isinstance(ours, bytes):
        assert ours == base64.b64decode(expected)
    else:
        assert ours == expected


@pytest.mark.parametrize("sender", EXCHANGES)
def test_every_captured_frame_is_read_as_kafka_reads_it_and_written_again(sender: str) -> None:
    for exchange in EXCHANGES[sender]:
        _check(exchange)


def test_capture_contains_every_recorded_client_and_version() -> None:
    versions = {(each["api_name"], each["api_version"]) for exchanges in EXCHANGES.values() for each in exchanges}
    senders = sorted(EXCHANGES)
    assert (len(senders), sum(map(len, EXCHANGES.values())), len(versions)) == (42, 886, 153)
