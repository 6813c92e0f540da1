"""One captured request and its response.

Owns: reading the capture into exchanges in the order in which they happened. Connections were numbered as they were
opened, over all files: sorting by them and by the request's number puts the whole capture in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from protocol.api import APIS, Api
from protocol.codec import decode
from protocol.headers import RequestHeader, read_request_header, read_response_header
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.schema import ZERO_UUID
from tests.support.recorded import CLIENT_FRAMES, read_lines


@dataclass(frozen=True)
class Exchange:
    """A request of a client and the response of Apache Kafka 3.9.1; each call decodes a message again."""

    client: str
    connection: int
    number: int
    request_frame: bytes
    response_frame: bytes | None

    @cached_property
    def header(self) -> RequestHeader:
        return read_request_header(self.request_frame)[0]

    @property
    def api(self) -> Api:
        return APIS[self.header.api_key]

    @property
    def identity(self) -> str:
        return f"{self.connection}.{self.number}"

    @property
    def label(self) -> str:
        return f"{self.client} {self.identity} {self.api.name} v{self.header.api_version}"

    def request(self) -> Any:
        position = read_request_header(self.request_frame)[1]
        return decode(self.api.request, self.header.api_version, self.request_frame, position)

    def response(self) -> Any:
        assert self.response_frame is not None
        return self.decode_response(self.response_frame)

    def decode_response(self, frame: bytes) -> Any:
        position = read_response_header(self.header.api_key, self.header.api_version, frame)[1]
        return decode(self.api.response, self.header.api_version, frame, position)


def captured_exchanges() -> list[Exchange]:
    """Return all plaintext exchanges of clients, in the order in which they were sent."""
    exchanges = [_exchange(line) for line in read_lines(CLIENT_FRAMES) if line["listener"] == "PLAINTEXT"]
    return sorted(exchanges, key=lambda exchange: (exchange.connection, exchange.number))


def topic_names(exchanges: Iterable[Exchange]) -> dict[UUID, str]:
    """Return the topics in responses to Metadata and CreateTopics, by their captured ids."""
    return {
        topic.topic_id: topic.name
        for exchange in exchanges
        if exchange.api.request in (MetadataRequest, CreateTopicsRequest) and exchange.response_frame
        for topic in exchange.response().topics
        if topic.topic_id != ZERO_UUID
    }


def _exchange(line: dict[str, Any]) -> Exchange:
    response = line.get("response_hex")
    return Exchange(
        client=line["client"],
        connection=line["connection"],
        number=line["request_no_on_connection"],
        request_frame=bytes.fromhex(line["request_hex"]),
        response_frame=bytes.fromhex(response) if response else None,
    )
