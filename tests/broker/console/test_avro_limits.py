"""Schemas whose values could open to much more than their size are refused."""

import io
from typing import Any

import fastavro
import pytest

from broker.console.records.avro_limits import require_bounded
from broker.console.records.protobuf_wire import Message, parse
from broker.console.records.registry_values import Opened, SchemaValues, Unopened


def record(name: str, *types: object) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{number}", "type": each} for number, each in enumerate(types)],
    }


@pytest.mark.parametrize(
    "schema",
    [
        "null",
        "string",
        ["null", "long"],
        {"type": "array", "items": "string"},
        {"type": "map", "values": "null"},  # a key takes a byte
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        record("Order", "long", ["null", "string"], {"type": "array", "items": record("Item", "string", "double")}),
        record("Pair", record("a.One", "int"), "One", {"type": "enum", "name": "Kind", "symbols": ["A"]}, "Kind"),
        record("Hash", {"type": "fixed", "name": "Md5", "size": 16}, {"type": "array", "items": "Md5"}),
    ],
)
def test_usual_schemas_are_used(schema: object) -> None:
    require_bounded(schema)


def doubled(levels: int) -> dict[str, Any]:
    """Return a record of two records of two records...; each is declared once and named once."""
    inner: object = record("R0", "long")
    for level in range(1, levels):
        inner = record(f"R{level}", inner, f"R{level - 1}")
    assert isinstance(inner, dict)
    return inner


def nested(levels: int) -> object:
    schema: object = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record("R", ["null", "R"]), "contains itself"),
        (record("a.R", ["null", "b.R"]), "contains itself"),
        (record("R", record("a.R", "int")), "contains itself"),
        (record("R", "Unknown"), "unknown"),
        ({"type": "array", "items": "null"}, "too few bytes"),
        ({"type": "array", "items": record("Empty")}, "too few bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "too few bytes"),
        ({"type": "map", "values": record("Wide", *["null"] * 100)}, "too few bytes"),
        (record("Wide", *["null"] * 3_000), "more than 2000 objects"),
        (doubled(20), "more than 2000 objects"),
        (nested(100), "nested too deeply"),
        ({"type": "fixed", "name": "F", "size": -1}, "size -1"),
        ({"type": "record", "name": "R", "fields": ["int"]}, "no type"),
        (7, "no type"),
    ],
)
def test_schemas_without_bounds_are_refused(schema: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        require_bounded(schema)


def avro_file(schema: dict[str, Any], rows: list[object], codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec)
    return out.getvalue()


def opened(data: bytes) -> Opened | Unopened | None:
    return SchemaValues({}).opened(data)


def test_a_file_is_opened_with_its_schema() -> None:
    value = opened(avro_file(record("Order", "long"), [{"f0": 7}]))
    assert value == Opened("avro", '[{"f0": 7}]', "schema of the value itself")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(avro_file(record("Order", "string"), [{"f0": "x" * 100_000}], "deflate"), id="compressed"),
        pytest.param(avro_file(record("Order", "string"), [{"f0": "x" * 100_000}]), id="large"),
        pytest.param(avro_file(record("R", ["null", "R"]), [{"f0": {"f0": None}}]), id="recursive"),
        pytest.param(avro_file(record("R", {"type": "array", "items": "null"}), [{"f0": [None] * 50}]), id="nulls"),
        pytest.param(b"Obj\x01\x02", id="cut"),
    ],
)
def test_files_without_bounds_stay_hexadecimal(data: bytes) -> None:
    assert isinstance(opened(data), Unopened)


@pytest.mark.parametrize("text", ['"\\' * 400_000, "/*" * 400_000, "'" * 800_001, '"a"' * 200_000 + '"'])
def test_a_protobuf_schema_is_read_in_linear_time(text: str) -> None:
    assert parse(text) == Message("")  # in quadratic time it takes longer than a test may
