"""Request and response headers, their exceptions, and what is wrong with them."""

import dataclasses
from io import BytesIO
from typing import Any

import pytest
from kio.index import KioIndexError, load_payload_module
from kio.serial import entity_writer
from kio.static.constants import EntityType

from protocol.api import APIS
from protocol.errors import Malformed
from protocol.headers import (
    RequestHeader,
    UnsupportedApi,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
)

REQUESTS = [
    # (header, bytes)
    (RequestHeader(0, 8, 7, "me"), "0000 0008 00000007 0002 6d65"),
    (RequestHeader(0, 9, 7, "me"), "0000 0009 00000007 0002 6d65 00"),
    (RequestHeader(0, 9, -1, ""), "0000 0009 ffffffff 0000 00"),
    (RequestHeader(12, 4, 1, None), "000c 0004 00000001 ffff 00"),
    (RequestHeader(17, 1, 1, None), "0011 0001 00000001 ffff"),
    (RequestHeader(18, 0, 1, "a"), "0012 0000 00000001 0001 61"),
    (RequestHeader(18, 3, 1, "a"), "0012 0003 00000001 0001 61 00"),
    (RequestHeader(7, 0, 5, None), "0007 0000 00000005"),
    (RequestHeader(7, 1, 5, "1"), "0007 0001 00000005 0001 31"),
    (RequestHeader(7, 3, 5, "1"), "0007 0003 00000005 0001 31 00"),
]


@pytest.mark.parametrize(("header", "data"), REQUESTS)
def test_request_headers_are_decoded(header: RequestHeader, data: str) -> None:
    frame = bytes.fromhex(data)
    assert request_header(*header) == frame
    assert read_request_header(frame + b"body") == (header, len(frame))
    assert read_request_header(memoryview(bytearray(frame + b"body"))) == (header, len(frame))


@pytest.mark.parametrize(("header", "data"), REQUESTS)
def test_truncated_request_header_is_malformed(header: RequestHeader, data: str) -> None:
    frame = bytes.fromhex(data)
    for size in range(len(frame)):
        with pytest.raises(Malformed):
            read_request_header(frame[:size])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("0000 0009 00000007 fffe 00", "client id of length -2"),
        ("0000 0009 00000007 7fff 6d65 00", "client id of length 32767, but 3 bytes are left"),
        ("0000 0009 00000007 0000 01 05", "cut short in its tagged fields: the frame has 12 bytes"),
        ("0000 0009 00000007", "cut short before the client id ends: the frame has 8 bytes"),
        ("0000 0009 00000007 0000 01 05 04 00", "tag 5 of 4 bytes, but 1 are left"),
        ("0000 0009 00000007 0000 02 05 00 05 00", "tag 5 after tag 5"),
    ],
)
def test_invalid_request_header_is_malformed(data: str, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        read_request_header(bytes.fromhex(data))


def test_tags_of_a_header_are_skipped() -> None:
    header, position = read_request_header(bytes.fromhex("0003 000c 00000007 0000 01 00 02 abcd ffff"))
    assert (header, position) == (RequestHeader(3, 12, 7, ""), 15)


def test_a_client_id_need_not_be_utf_8() -> None:
    header, _ = read_request_header(bytes.fromhex("0003 0000 00000007 0002 c328"))
    assert header.client_id == "\N{REPLACEMENT CHARACTER}("


@pytest.mark.parametrize(
    ("data", "api_name", "header"),
    [
        ("0012 0005 00000009 0001 61 00 ff", "ApiVersions", RequestHeader(18, 5, 9, "a")),
        ("0012 ffff 00000009 ffff", "ApiVersions", RequestHeader(18, -1, 9, None)),
        ("0000 000d 00000009 0001 61 00", "Produce", RequestHeader(0, 13, 9, "a")),
        ("0034 0000 00000009 0001 61 00", None, RequestHeader(52, 0, 9, "a")),
        ("ffff 0000 00000009 0001 61", None, RequestHeader(-1, 0, 9, "a")),
    ],
)
def test_unsupported_api_names_client_and_version(data: str, api_name: str | None, header: RequestHeader) -> None:
    with pytest.raises(UnsupportedApi) as caught:
        read_request_header(bytes.fromhex(data))
    assert caught.value.header == header
    assert (caught.value.api.name if caught.value.api else None) == api_name
    assert caught.value.is_api_versions == (api_name == "ApiVersions")


@pytest.mark.parametrize(
    ("key", "version", "data"),
    [
        (0, 8, "00000007"),
        (0, 9, "00000007 00"),
        (17, 1, "00000007"),
        (18, 0, "00000007"),
        (18, 3, "00000007"),
        (18, 4, "00000007"),
        (7, 0, "00000007"),
        (7, 3, "00000007 00"),
    ],
)
def test_response_headers_are_encoded(key: int, version: int, data: str) -> None:
    frame = bytes.fromhex(data)
    assert response_header(key, version, 7) == frame
    assert read_response_header(key, version, frame + b"body") == (7, len(frame))
    for size in range(len(frame)):
        with pytest.raises(Malformed):
            read_response_header(key, version, frame[:size])


def test_only_api_versions_keeps_its_response_header() -> None:
    for api in APIS.values():
        for version in api.versions:
            has_tags = len(response_header(api.key, version, 0)) == 5
            assert has_tags == (api.flexible is not None and version >= api.flexible and api.name != "ApiVersions")


def _kio_payload(key: int, version: int, kind: EntityType) -> Any:
    """kio's class for a payload, or None when it is older than what kio has."""
    try:
        module = load_payload_module(key, version, kind)  # type: ignore[arg-type]
    except KioIndexError:
        return None
    return getattr(module, getattr(APIS[key], kind.name).__name__)


EVERY_PAIR = [(api.key, version) for api in APIS.values() for version in api.versions]


def test_request_headers_equal_those_of_kio_for_every_version() -> None:
    compared = 0
    for key, version in EVERY_PAIR:
        payload = _kio_payload(key, version, EntityType.request)
        if payload is None:
            continue
        for client_id in (None, "", "me"):
            theirs = BytesIO()
            header = payload.__header_schema__
            fields: dict[str, Any] = {
                "request_api_key": key,
                "request_api_version": version,
                "correlation_id": 7,
                "client_id": client_id,
            }
            known = {field.name for field in dataclasses.fields(header)}
            entity_writer(header)(theirs, header(**{name: fields[name] for name in known}))
            assert request_header(key, version, 7, client_id) == theirs.getvalue(), (key, version)
        compared += 1
    assert compared > 200


def test_response_headers_equal_those_of_kio_for_every_version() -> None:
    compared = 0
    for key, version in EVERY_PAIR:
        payload = _kio_payload(key, version, EntityType.response)
        if payload is None:
            continue
        theirs = BytesIO()
        header = payload.__header_schema__
        entity_writer(header)(theirs, header(correlation_id=7))
        assert response_header(key, version, 7) == theirs.getvalue(), (key, version)
        assert read_response_header(key, version, theirs.getvalue()) == (7, len(theirs.getvalue()))
        compared += 1
    assert compared > 200
