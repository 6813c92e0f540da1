"""Every value of Avro becomes JSON and the same value again; JSON that does not fit a schema is refused."""

import io
import json
import random
import string
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest

from spark_jobs.skeleton.formats.avro_json import MISFIT, from_json
from spark_jobs.skeleton.formats.schemas import to_text

choose = random.Random(19)
START = datetime(1, 1, 2, tzinfo=UTC)
DAYS = (datetime(9999, 12, 30, tzinfo=UTC) - START).days


def logical(kind: str, name: str, /, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


def a_text() -> str:
    return "".join(choose.choices(string.printable + "äé\u20ac", k=choose.randrange(9)))


def a_time(step_us: int) -> datetime:
    microseconds = choose.randrange(DAYS * 86_400_000_000) // step_us * step_us
    return START + timedelta(microseconds=microseconds)


def an_integer(bits: int) -> int:
    return choose.randrange(-(1 << (bits - 1)), 1 << (bits - 1)) >> choose.randrange(bits)


def a_decimal(digits: int, scale: int) -> Decimal:
    return Decimal(choose.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale)


DECIMAL_FIXED = {"type": "fixed", "name": "D", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 6}
# A schema, and a function that returns what fastavro reads for it.
TYPES: dict[str, tuple[Any, Any]] = {
    "null": ("null", lambda: None),
    "boolean": ("boolean", lambda: choose.random() < 0.5),
    "int": ("int", lambda: an_integer(32)),
    "long": ("long", lambda: an_integer(64)),
    "float": ("float", lambda: float(an_integer(24))),
    "double": ("double", lambda: choose.uniform(-1e300, 1e300)),
    "string": ("string", a_text),
    "bytes": ("bytes", lambda: choose.randbytes(choose.randrange(9))),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, lambda: choose.randbytes(3)),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, lambda: choose.choice("AB")),
    "decimal": (logical("bytes", "decimal", precision=7, scale=2), lambda: a_decimal(7, 2)),
    "decimal without scale": (logical("bytes", "decimal", precision=40), lambda: a_decimal(40, 0)),
    "fixed decimal": (DECIMAL_FIXED, lambda: a_decimal(20, 6)),
    "uuid": (logical("string", "uuid"), lambda: UUID(bytes=choose.randbytes(16))),
    "date": (logical("int", "date"), lambda: a_time(1).date()),
    "time-millis": (logical("int", "time-millis"), lambda: a_time(1000).time()),
    "time-micros": (logical("long", "time-micros"), lambda: a_time(1).time()),
    "timestamp-millis": (logical("long", "timestamp-millis"), lambda: a_time(1000)),
    "timestamp-micros": (logical("long", "timestamp-micros"), lambda: a_time(1)),
    "local-timestamp-millis": (logical("long", "local-timestamp-millis"), lambda: a_time(1000).replace(tzinfo=None)),
    "local-timestamp-micros": (logical("long", "local-timestamp-micros"), lambda: a_time(1).replace(tzinfo=None)),
    "unknown logical type": (logical("fixed", "duration", name="U", size=12), lambda: choose.randbytes(12)),
}


def record(schema: object, **more: object) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": schema, **more}]}


def written(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return body.getvalue()


def there_and_back(schema: Any, value: Any) -> Any:
    """Return the value as it is after Avro to JSON to Avro."""
    text = to_text(written(schema, value), json.dumps(schema), None)
    assert text is not None
    again = written(schema, from_json(text, json.dumps(schema)))
    return fastavro.schemaless_reader(io.BytesIO(again), fastavro.parse_schema(schema))


@pytest.mark.parametrize("name", TYPES)
def test_values_survive_the_way_to_json_and_back(name: str) -> None:
    inner, a_value = TYPES[name]
    named = inner["name"] if isinstance(inner, dict) and "name" in inner else inner
    fields = [
        {"name": "plain", "type": inner},
        {"name": "optional", "type": "null" if inner == "null" else ["null", named]},
        {"name": "many", "type": {"type": "array", "items": named}},
        {"name": "by_name", "type": {"type": "map", "values": named}},
    ]
    schema = {"type": "record", "name": "n.R", "fields": fields}
    for _ in range(200):
        value = {
            "plain": a_value(),
            "optional": choose.choice((None, a_value())),
            "many": [a_value() for _ in range(choose.randrange(3))],
            "by_name": {a_text(): a_value() for _ in range(choose.randrange(3))},
        }
        assert there_and_back(schema, value) == value


def test_a_record_that_contains_itself_survives() -> None:
    node = {"name": "next", "type": ["null", "R"]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": logical("int", "date")}, node]}
    value = {"at": date(2013, 1, 1), "next": {"at": date(2013, 1, 2), "next": None}}
    assert there_and_back(schema, value) == value


def test_a_union_takes_the_first_type_that_fits_and_the_record_with_most_fields() -> None:
    small = {"type": "record", "name": "S", "fields": [{"name": "a", "type": "int", "default": 0}]}
    large = {"type": "record", "name": "L", "fields": [{"name": name, "type": "int"} for name in ("a", "b")]}
    scaled = logical("bytes", "decimal", precision=4, scale=1)
    union = [scaled, "null", "long", logical("string", "uuid"), {"type": "fixed", "name": "F", "size": 2}, small, large]
    texts = {
        '"1.5"': ("bytes", Decimal("1.5")),
        "null": ("null", None),
        "70000": ("long", 70000),
        '"AAE="': ("F", b"\x00\x01"),
        '{"a": 1}': ("S", {"a": 1}),
        '{"a": 1, "b": 2}': ("L", {"a": 1, "b": 2}),
        "{}": ("S", {}),
    }
    for text, expected in texts.items():
        assert from_json(f'{{"x": {text}}}', json.dumps(record(union))) == {"x": expected}
        written(record(union), {"x": expected})
    with pytest.raises(ValueError, match="the value fits no type of the union"):
        from_json('{"x": "neither"}', json.dumps(record(union)))


def test_numbers_of_times_and_texts_of_other_zones_are_accepted() -> None:
    cases: list[tuple[Any, str, Any]] = [
        (logical("long", "timestamp-millis"), "1500", 1500),
        (logical("long", "timestamp-millis"), '"2013-01-01T02:00:00+02:00"', datetime(2013, 1, 1, tzinfo=UTC)),
        (logical("long", "timestamp-millis"), '"2013-01-01"', datetime(2013, 1, 1, tzinfo=UTC)),
        (logical("int", "date"), "3", 3),
        (logical("int", "time-millis"), '"23:59"', time(23, 59)),
        (logical("bytes", "decimal", precision=4, scale=2), "1.50", Decimal("1.50")),
        (logical("bytes", "decimal", precision=4, scale=2), "7", Decimal(7)),
    ]
    for schema, text, expected in cases:
        found = from_json(f'{{"x": {text}, "not in the schema": 1}}', json.dumps(record(schema)))
        assert found == {"x": expected}
        written(record(schema), found)


MISFITS: list[tuple[Any, str]] = [
    ("null", "0"),
    ("boolean", "1"),
    ("int", "true"),
    ("int", "1.5"),
    ("int", "1.0"),
    ("int", "2147483648"),
    ("long", "9223372036854775808"),
    ("double", '"1"'),
    ("double", "1e999"),
    ("double", "NaN"),
    ("float", "1e300"),
    ("string", "1"),
    ("bytes", '"no base64!"'),
    ("bytes", '"ä"'),
    ({"type": "fixed", "name": "F", "size": 2}, '"AAAA"'),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, '"B"'),
    ({"type": "array", "items": "int"}, '"ab"'),
    ({"type": "array", "items": "int"}, "{}"),
    ({"type": "map", "values": "int"}, "[]"),
    (logical("bytes", "decimal", precision=4, scale=2), '"123.45"'),
    (logical("bytes", "decimal", precision=4, scale=2), '"1.234"'),
    (logical("bytes", "decimal", precision=4, scale=2), '"1e999999999"'),
    (logical("bytes", "decimal", precision=4, scale=2), '"NaN"'),
    (logical("bytes", "decimal", precision=4, scale=2), "true"),
    (logical("string", "uuid"), '"no uuid"'),
    (logical("int", "date"), '"2013-02-30"'),
    (logical("int", "date"), "1.5"),
    (logical("int", "time-millis"), '"10:00:00.000001"'),
    (logical("int", "time-millis"), '"10:00:00+01:00"'),
    (logical("long", "timestamp-millis"), '"2013-01-01T00:00:00.000001"'),
    (logical("long", "timestamp-millis"), '"soon"'),
    (logical("long", "local-timestamp-micros"), '"2013-01-01T00:00:00+00:00"'),
    ("int", "null"),
]


@pytest.mark.parametrize(("schema", "text"), MISFITS)
def test_values_that_do_not_fit_are_refused(schema: Any, text: str) -> None:
    with pytest.raises(MISFIT):
        written(record(schema), from_json(f'{{"x": {text}}}', json.dumps(record(schema))))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", "{}", '{"y": 1}', "[" * 100_000])
def test_texts_that_are_no_object_of_the_schema_are_refused(text: str) -> None:
    with pytest.raises(MISFIT):
        from_json(text, json.dumps(record("int")))


def test_absent_fields_get_their_default_or_null() -> None:
    schema = record(["null", "string"])
    schema["fields"].append({"name": "y", "type": "int", "default": 7})
    back = fastavro.schemaless_reader(
        io.BytesIO(written(schema, from_json("{}", json.dumps(schema)))), fastavro.parse_schema(schema)
    )
    assert back == {"x": None, "y": 7}
