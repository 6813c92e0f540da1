"""The Avro converter, with a registry on 127.0.0.1 and with a file."""

import base64
import builtins
import datetime as dt
import io
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

import fastavro
import pytest

from spark_jobs.connect.base.data import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    array_schema,
    date_schema,
    decimal_schema,
    map_schema,
    struct_schema,
    time_schema,
    timestamp_schema,
)
from spark_jobs.connect.base.errors import ConfigError, DataError, RetriableError
from spark_jobs.connect.converters.avro import AvroConverter
from spark_jobs.connect.converters.avro_schema import AvroSchemaWriter
from tests.spark_jobs.registry import RunningRegistry

ORDER = struct_schema(
    {
        "id": INT64,
        "name": OPTIONAL_STRING,
        "price": decimal_schema(2),
        "at": timestamp_schema(optional=True),
        "on": date_schema(),
        "time": time_schema(),
        "tiny": Schema(Type.INT8),
        "small": Schema(Type.INT16, default=5),
        "tags": array_schema(STRING),
        "counts": map_schema(STRING, INT32),
        "codes": map_schema(INT32, STRING),
        "raw": BYTES,
        "ratio": FLOAT64,
        "inner": Schema(
            Type.STRUCT, optional=True, name="com.example.Inner", fields=struct_schema({"a": INT32}).fields
        ),
        "described": Schema(Type.STRING, name="text", version=3, doc="A text.", parameters={"k": "v"}, default="d"),
    },
    name="com.example.Order",
    version=4,
)
INNER = ORDER.fields[13].schema
VALUES = {
    "id": 1 << 40,
    "name": "é",
    "price": Decimal("-12.50"),
    "at": dt.datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=dt.UTC),
    "on": dt.date(2024, 2, 29),
    "time": dt.time(1, 2, 3, 4000),
    "tiny": -128,
    "small": 300,
    "tags": ["a", "b"],
    "counts": {"x": 1},
    "codes": {1: "one"},
    "raw": b"\0\xff",
    "ratio": 0.5,
    "inner": Struct(INNER, {"a": 1}),
    "described": "text",
}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with RunningRegistry() as running:
        yield running.url


def avro(url: str | None = None, *, is_key: bool = False, **config: Any) -> AvroConverter:
    made = AvroConverter()
    given = {name.replace("_", "."): value for name, value in config.items()}
    made.configure({**({} if url is None else {"schema.registry.url": url}), **given}, is_key=is_key)
    return made


def get(url: str) -> Any:
    with urlopen(url, timeout=10) as response:
        return json.load(response)


def register(url: str, subject: str, schema: Any) -> int:
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{url}/subjects/{subject}/versions", body, headers), timeout=10) as response:
        return int(json.load(response)["id"])


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def test_a_struct_is_the_same_after_writing_and_reading(registry: str) -> None:
    value = Struct(ORDER, VALUES)
    stored = avro(registry).from_data("orders", ORDER, value)
    reader = avro(registry)
    assert reader.to_data("orders", stored) == (ORDER, value)
    assert reader.to_data("orders", stored)[0] is reader.to_data("orders", stored)[0]


def test_the_registry_has_the_schema_that_any_reader_of_avro_understands(registry: str) -> None:
    stored = avro(registry).from_data("shared", ORDER, Struct(ORDER, VALUES))
    assert stored is not None
    latest = get(f"{registry}/subjects/shared-value/versions/latest")
    assert stored[:5] == b"\0" + latest["id"].to_bytes(4, "big")
    found = fastavro.schemaless_reader(
        io.BytesIO(stored[5:]), fastavro.parse_schema(json.loads(latest["schema"])), None
    )
    assert found["price"] == Decimal("-12.50")
    assert found["at"] == VALUES["at"]
    assert found["codes"] == [{"key": 1, "value": "one"}]


def test_keys_have_a_subject_of_their_own(registry: str) -> None:
    avro(registry, is_key=True).from_data("k", INT64, 5)
    assert "k-key" in get(f"{registry}/subjects")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (STRING, "x"),
        (INT32, 5),
        (BOOLEAN, True),
        (BYTES, b"\xff"),
        (Schema(Type.FLOAT32), 0.5),
        (Schema(Type.INT8), -5),
        (decimal_schema(40), Decimal("1.2345678901234567890123456789012345678901")),
        (array_schema(OPTIONAL_STRING), ["a", None]),
        (
            map_schema(STRING, struct_schema({"a": INT32}, name="v")),
            {"k": Struct(struct_schema({"a": INT32}, name="v"), {"a": 1})},
        ),
    ],
)
def test_a_value_of_any_schema_survives(registry: str, schema: Schema, value: Any) -> None:
    topic = f"any-{schema.type.value}-{schema.name}"
    converter = avro(registry)
    found, result = converter.to_data(topic, converter.from_data(topic, schema, value))
    assert (found and found.type, result) == (schema.type, value)


def test_null_is_a_tombstone(registry: str) -> None:
    converter = avro(registry)
    assert converter.from_data("t", None, None) is None
    assert converter.from_data("t", OPTIONAL_STRING, None) is None
    assert converter.to_data("t", None) == (None, None)
    with pytest.raises(DataError, match="null value for non-optional"):
        converter.from_data("t", STRING, None)


def test_values_without_a_schema_survive(registry: str) -> None:
    value = {"a": [1, None, 2.5, {"b": b"x"}], 5: True, "big": 1 << 40}
    converter = avro(registry)
    assert converter.to_data("plain", converter.from_data("plain", None, value)) == (None, value)


def test_deep_nesting_without_a_schema_is_an_error_and_no_crash(registry: str) -> None:
    converter = avro(registry)
    stored = converter.from_data("deep", None, [[]])
    assert stored is not None
    begin_list = b"\0" * 7 + b"\x02\x02"
    with pytest.raises(DataError, match="RecursionError"):
        converter.to_data("deep", stored[:5] + begin_list * 100_000)


def test_an_incompatible_schema_is_an_error_that_names_the_subject(registry: str) -> None:
    old, new = struct_schema({"a": INT32}, name="r"), struct_schema({"a": INT32, "b": STRING}, name="r")
    converter = avro(registry)
    converter.from_data("strict", old, Struct(old, {"a": 1}))
    with pytest.raises(DataError, match=r"incompatible with those of the subject strict-value \(409\)"):
        converter.from_data("strict", new, Struct(new, {"a": 1, "b": "x"}))


def test_an_unknown_schema_is_not_registered_if_the_setting_forbids_it(registry: str) -> None:
    converter = avro(registry, auto_register_schemas="false")
    with pytest.raises(DataError, match=r"auto.register.schemas=false"):
        converter.from_data("unknown", STRING, "x")
    schema_id = register(registry, "known-value", "string")
    assert converter.from_data("known", STRING, "x") == framed(schema_id, "string", "x")


def test_values_are_written_by_the_newest_schema_of_the_subject(registry: str) -> None:
    newest = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": "long"}, {"name": "more", "type": "string", "default": "d"}],
    }
    schema_id = register(registry, "newest-value", newest)
    converter = avro(registry, auto_register_schemas="false", use_latest_version="true")
    schema = struct_schema({"a": INT32})
    stored = converter.from_data("newest", schema, Struct(schema, {"a": 1}))
    assert stored == framed(schema_id, newest, {"a": 1, "more": "d"})


def test_an_avro_schema_of_others_becomes_that_of_confluent(registry: str) -> None:
    schema = {
        "type": "record",
        "name": "Event",
        "namespace": "org.example",
        "doc": "An event.",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}, "doc": "A hash."},
            {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}, "default": 0},
            {
                "name": "any",
                "type": [
                    "null",
                    "string",
                    "int",
                    {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]},
                ],
            },
            {"name": "again", "type": ["null", "P"], "default": None},
        ],
    }
    schema_id = register(registry, "events-value", schema)
    value = {"kind": "B", "hash": b"ab", "micros": 5, "any": ("org.example.P", {"x": 1}), "again": {"x": 2}}
    found, event = avro(registry).to_data("events", framed(schema_id, schema, value))
    assert found is not None
    assert (found.name, found.version) == ("org.example.Event", 1)
    assert found.parameters["io.confluent.connect.avro.record.doc"] == "An event."
    assert event["kind"] == "B"
    assert found.fields[0].schema.parameters["io.confluent.connect.avro.Enum.B"] == "B"
    assert (event["hash"], found.fields[1].schema.parameters["connect.fixed.size"]) == (b"ab", "2")
    assert (event["micros"], found.fields[2].schema.type, found.fields[2].schema.default) == (5, Type.INT64, 0)
    assert dict(event["any"].items())["P"]["x"] == 1
    assert event["again"]["x"] == 2
    again = avro(registry).from_data("events-copy", found, event)
    assert avro(registry).to_data("events-copy", again)[1]["any"] == event["any"]


def test_a_recursive_schema_is_an_error_that_names_the_record(registry: str) -> None:
    schema = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    schema_id = register(registry, "nodes-value", schema)
    with pytest.raises(DataError, match="Node contains itself"):
        avro(registry).to_data("nodes", framed(schema_id, schema, {"next": None}))


@pytest.mark.parametrize("stored", [b"", b"\0\0\0", b"{}{}{}", b"\0\x7f\0\0\0x"])
def test_bytes_without_a_frame_or_with_an_unknown_id_are_an_error(registry: str, stored: bytes) -> None:
    with pytest.raises(DataError):
        avro(registry).to_data("t", stored)


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: body + b"\0", lambda body: b"\0\0\0\0\1\x7f"])
def test_bytes_that_are_not_of_their_schema_are_an_error(registry: str, change: Any) -> None:
    converter = avro(registry)
    stored = converter.from_data("cut", ORDER, Struct(ORDER, VALUES))
    with pytest.raises(DataError, match="topic cut cannot be read as Avro"):
        converter.to_data("cut", change(stored))


def test_an_unreachable_registry_is_tried_again(registry: str) -> None:
    with pytest.raises(RetriableError, match="does not respond"):
        avro("http://127.0.0.1:1").from_data("t", STRING, "x")
    assert avro(f"http://127.0.0.1:1,{registry}").from_data("second", STRING, "x") is not None


def test_credentials_are_sent_and_are_in_no_error() -> None:
    with pytest.raises(RetriableError) as raised:
        avro("http://user:secret@127.0.0.1:1").from_data("t", STRING, "x")
    assert "secret" not in str(raised.value)
    assert "user" not in str(raised.value)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, "schema.registry.url"),
        ({"schema.registry.url": "ftp://x:secret@y"}, "schema.registry.url"),
        ({"schema.registry.url": "http://x", "schema.file": "f"}, "schema.file"),
        ({"schema.file": "missing.avsc"}, "schema.file"),
        ({"schema.registry.url": "http://x", "use.latest.version": "true"}, "use.latest.version"),
        ({"schema.registry.url": "http://x", "basic.auth.credentials.source": "USER_INFO"}, "basic.auth.user.info"),
        ({"schema.registry.url": "http://x", "value.subject.name.strategy": "RecordNameStrategy"}, "value.subject"),
    ],
)
def test_a_bad_setting_is_an_error_by_name(config: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as raised:
        AvroConverter().configure(config, is_key=False)
    assert "secret" not in str(raised.value)


def test_a_missing_library_is_an_error_that_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    present = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.startswith("fastavro"):
            raise ImportError(name)
        return present(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ConfigError, match="needs the package fastavro"):
        AvroConverter().configure({"schema.registry.url": "http://x"}, is_key=False)


def test_a_file_with_a_schema_needs_no_registry(tmp_path: Path) -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}],
    }
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(schema))
    converter = avro(schema_file=str(file))
    body = converter.from_data("t", None, {"a": 1, "b": "x"})
    assert body == framed(0, schema, {"a": 1, "b": "x"})[5:]
    found, value = converter.to_data("t", body)
    assert found is not None
    assert dict(value.items()) == {"a": 1, "b": "x"}
    assert converter.from_data("t", found, value) == body


class OneResponse:
    """A server that responds to all requests with one status, and keeps their headers."""

    def __init__(self, status: int, body: object) -> None:
        self.authorizations: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.authorizations.append(self.headers["Authorization"])
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize(
    ("address", "config", "expected"),
    [
        ("u%40x:p@127.0.0.1", {}, f"Basic {base64.b64encode(b'u@x:p').decode()}"),
        (
            "127.0.0.1",
            {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "u:p"},
            f"Basic {base64.b64encode(b'u:p').decode()}",
        ),
        ("127.0.0.1", {"bearer_auth_credentials_source": "STATIC_TOKEN", "bearer_auth_token": "t"}, "Bearer t"),
        ("127.0.0.1", {}, None),
    ],
)
def test_credentials_reach_the_registry(address: str, config: dict[str, Any], expected: str | None) -> None:
    with OneResponse(200, {"id": 7}) as server:
        converter = avro(f"http://{address}:{server.port}", **config)
        for _ in range(2):
            assert converter.from_data("t", STRING, "x") == framed(7, "string", "x")
    assert server.authorizations == [expected]  # the id is requested once


@pytest.mark.parametrize(("status", "kind"), [(500, RetriableError), (429, RetriableError), (401, DataError)])
def test_a_failure_of_the_registry_is_retried_and_a_refusal_is_not(status: int, kind: type[Exception]) -> None:
    with OneResponse(status, {"message": "why"}) as server, pytest.raises(kind, match=f"responds {status}.*why"):
        avro(f"http://127.0.0.1:{server.port}").from_data("t", STRING, "x")


def test_one_struct_in_two_places_is_defined_once() -> None:
    point = struct_schema({"x": INT32}, name="Point")
    written = AvroSchemaWriter().write(struct_schema({"a": point, "b": point}))
    assert written["fields"][1]["type"] == "Point"
    other = struct_schema({"y": INT32}, name="Point")
    with pytest.raises(DataError, match="two structs in a schema have the name Point"):
        AvroSchemaWriter().write(struct_schema({"a": point, "b": other}))
