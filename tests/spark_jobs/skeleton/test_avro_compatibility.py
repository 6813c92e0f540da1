"""Schema resolution, compared with what fastavro does with data."""

import io
import json
from typing import Any

import fastavro
import pytest

from spark_jobs.skeleton.formats.avro_compatibility import problems


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


ID = {"name": "id", "type": "int"}
FAX = {"name": "faxNumber", "type": "string"}
EMAIL = {"name": "email", "type": ["null", "string"], "default": None}
NODE = record({"name": "next", "type": ["null", "Node"]}, {"name": "v", "type": "int"}, name="Node")
LONG_NODE = record({"name": "next", "type": ["null", "Node"]}, {"name": "v", "type": "long"}, name="Node")

CASES: dict[str, tuple[Any, Any, list[str]]] = {
    "a dropped and a new nullable field": (record(ID, EMAIL), record(ID, FAX), []),
    "a new field without default": (record(ID, FAX), record(ID), ["field faxNumber is new and has no default"]),
    "a renamed field with an alias": (record({"name": "key", "type": "int", "aliases": ["id"]}), record(ID), []),
    "promotion": (record({"name": "id", "type": "double"}), record(ID), []),
    "demotion": (record(ID), record({"name": "id", "type": "long"}), ["field id: long cannot be read as int"]),
    "a union of the writer": (
        record({"name": "id", "type": "string"}),
        record({"name": "id", "type": ["null", "string"]}),
        ["field id: null cannot be read as string"],
    ),
    "a union of the reader": (record({"name": "id", "type": ["null", "long"]}), record(ID), []),
    "a union without the branch": (
        record({"name": "id", "type": ["null", "string"]}),
        record(ID),
        ["field id: the union has no branch for int"],
    ),
    "a lost symbol": (
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        ["the value: the symbol B is missing, and there is no default"],
    ),
    "a lost symbol with a default": (
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        [],
    ),
    "items": (
        {"type": "array", "items": "int"},
        {"type": "array", "items": "string"},
        ["an item of the value: string cannot be read as int"],
    ),
    "entries": ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, []),
    "fixed sizes": (
        {"type": "fixed", "name": "F", "size": 4},
        {"type": "fixed", "name": "F", "size": 8},
        ["the value: 8 bytes cannot be read as 4"],
    ),
    "a recursive type": (LONG_NODE, NODE, []),
    "a recursive type that shrinks": (NODE, LONG_NODE, ["field v: long cannot be read as int"]),
    "a wrapped type": ({"type": {"type": "array", "items": "int"}}, {"type": "array", "items": "int"}, []),
}

SAMPLES = {
    "a dropped and a new nullable field": {"id": 1, "faxNumber": "2"},
    "a new field without default": {"id": 1},
    "a renamed field with an alias": {"id": 1},
    "promotion": {"id": 1},
    "demotion": {"id": 1},
    "a union of the reader": {"id": 1},
    "a union without the branch": {"id": 1},
    "a lost symbol": "B",
    "a lost symbol with a default": "B",
    "items": ["x"],
    "entries": {"x": 1},
    "a recursive type": {"next": {"next": None, "v": 1}, "v": 2},
}


@pytest.mark.parametrize(("reader", "writer", "expected"), CASES.values(), ids=CASES)
def test_problems_are_stated_by_field(reader: Any, writer: Any, expected: list[str]) -> None:
    assert problems(reader, writer) == expected


@pytest.mark.parametrize("case", SAMPLES)
def test_the_verdict_agrees_with_a_decoder(case: str) -> None:
    reader, writer, expected = json.loads(json.dumps(CASES[case]))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(writer), SAMPLES[case])
    body.seek(0)

    def read() -> object:
        return fastavro.schemaless_reader(body, fastavro.parse_schema(writer), fastavro.parse_schema(reader))

    if expected:
        with pytest.raises((fastavro.read.SchemaResolutionError, TypeError, ValueError)):
            read()
    else:
        read()
