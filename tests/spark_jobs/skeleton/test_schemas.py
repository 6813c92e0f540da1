"""Avro values that cannot be read are none, whatever their bytes are."""

import io
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import fastavro
import pytest

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.formats import schemas
from spark_jobs.skeleton.formats.schemas import read_text, schema_by_id, to_text

LOGICAL_TYPES = {
    "timestamp-millis": {"type": "long", "logicalType": "timestamp-millis"},
    "date": {"type": "int", "logicalType": "date"},
    "time-millis": {"type": "int", "logicalType": "time-millis"},
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "union": ["null", "string", "double"],
    "map": {"type": "map", "values": "bytes"},
}


@pytest.mark.parametrize("name", LOGICAL_TYPES)
def test_random_bytes_are_a_json_text_or_none(name: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": LOGICAL_TYPES[name]}]}
    choose = random.Random(8)
    found = [to_text(choose.randbytes(choose.randrange(12)), json.dumps(schema), None) for _ in range(3_000)]
    assert None in found
    assert all(json.loads(text).keys() == {"x"} for text in found if text is not None)


def test_a_time_that_python_does_not_have_is_none() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": LOGICAL_TYPES["timestamp-millis"]}]}
    texts = {}
    for time_ms in (0, 2**62):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, {"x": time_ms})
        texts[time_ms] = to_text(body.getvalue(), json.dumps(schema), None)
    assert texts == {0: '{"x": "1970-01-01T00:00:00+00:00"}', 2**62: None}


NUMBER_WITHOUT_JSON = bytes.fromhex("000000000000f87f")  # NaN as a double
CHAIN = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("double", NUMBER_WITHOUT_JSON),
        (CHAIN, b"\x02" * 2_000 + b"\x00"),
        (CHAIN, b"\x02" * 100_000 + b"\x00"),
    ],
    ids=["NaN", "deep", "deeper than the stack"],
)
def test_a_value_that_json_does_not_have_is_none(schema: object, value: bytes) -> None:
    assert to_text(value, json.dumps(schema), None) is None


@contextmanager
def registry(status: int, body: str) -> Iterator[str]:
    """Serve one response to all requests; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            schema_by_id.cache_clear()


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "record"}',
        '{"type": "enum", "name": "e"}',
        "message M {}",
        '{"$schema": "x", "type": "object"}',
        "[5]",
    ],
)
def test_a_record_whose_schema_is_not_of_avro_is_none(schema: str) -> None:
    with registry(200, json.dumps({"schema": schema})) as url:
        assert to_text(b"\0\0\0\0\1\2", None, url) is None


def test_a_record_whose_schema_is_unknown_is_none() -> None:
    with registry(404, '{"error_code":40403,"message":"Schema 1 not found"}') as url:
        assert to_text(b"\0\0\0\0\1\2", None, url) is None


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, "<html>", "does not respond with JSON"),
        (200, "{}", "does not respond with a schema"),
        (404, '{"error_code":404,"message":"HTTP 404 Not Found"}', "responds 404"),
        (404, "<html>", "responds 404"),
        (500, "", "responds 500"),
    ],
)
def test_a_server_that_is_no_registry_is_an_error_and_not_an_unreadable_record(
    status: int, body: str, message: str
) -> None:
    with registry(status, body) as url, pytest.raises(JobError, match=f"schema registry: {url}/.* {message}"):
        to_text(b"\0\0\0\0\1\2", None, url)


def test_an_address_of_a_registry_that_is_no_url_is_an_error() -> None:
    with pytest.raises(JobError, match="schema registry: none/schemas/ids/1 is no URL"):
        to_text(b"\0\0\0\0\1\2", None, "none")


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("a.avsc", "."),
        ("x/a.avsc", "x/"),
        ("/a.avsc", "/"),
        ("file:/a.avsc", "file:/"),
        ("hdfs://h/a.avsc", "hdfs://h/"),
    ],
)
def test_a_file_is_read_from_its_folder(uri: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Folder:
        def __init__(self, _spark: object, uri: str) -> None:
            self._uri = uri

        def has(self, name: str) -> bool:
            return (self._uri, name) == (folder, "a.avsc")

        def read_text(self, _name: str) -> str:
            return "text"

    monkeypatch.setattr(schemas, "Folder", Folder)
    monkeypatch.setattr(schemas, "SparkSession", SimpleNamespace(active=lambda: None))
    assert read_text("--schema", uri) == "text"


def test_a_file_that_is_no_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SimpleNamespace(has=lambda _: True, read_text=lambda _: b"\xff".decode())
    monkeypatch.setattr(schemas, "Folder", lambda *_: folder)
    monkeypatch.setattr(schemas, "SparkSession", SimpleNamespace(active=lambda: None))
    with pytest.raises(JobError, match=r"--schema: a\.avsc is not a text in UTF-8"):
        read_text("--schema", "a.avsc")
