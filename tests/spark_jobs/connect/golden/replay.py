"""Runs a recorded case with our converters and transforms, in the form of `ConnectGolden.java`."""

from __future__ import annotations

import importlib
import json
from typing import Any

from spark_jobs.connect.base.data import FLOAT64, Schema, Type
from spark_jobs.connect.base.records import SinkRecord
from spark_jobs.connect.converters.header_values import SimpleHeaderConverter
from spark_jobs.connect.converters.json import JsonConverter
from spark_jobs.connect.converters.simple import StringConverter
from spark_jobs.connect.transforms import PREDICATES, TRANSFORMATIONS

FLOAT32 = Schema(Type.FLOAT32)


def converter(**settings: str) -> JsonConverter:
    made = JsonConverter()
    made.configure({name.replace("_", "."): value for name, value in settings.items()}, is_key=False)
    return made


def replay(case: dict[str, Any]) -> Any:
    """Return the result of a case. Raises ConnectError."""
    text, settings = case.get("text", ""), case.get("config", {})
    match case["kind"]:
        case "from_json":
            return _text(converter().from_data("t", *converter(**settings).to_data("t", text.encode())))
        case "to_json":
            return _text(converter(**settings).from_data("t", *value_of(case["value"])))
        case "double":
            return _text(converter().from_data("t", FLOAT64, float(text)))
        case "float":
            return _text(converter().from_data("t", FLOAT32, float(text)))
        case "string":
            strings = StringConverter()
            strings.configure({}, is_key=False)
            return _text(strings.from_data("t", *value_of(case["value"])))
        case "from_header":
            found = SimpleHeaderConverter().to_header("t", "h", text.encode())
            return _text(converter().from_data("t", *found))
        case "to_header":
            return _text(SimpleHeaderConverter().from_header("t", "h", *value_of(case["value"])))
        case "transform":
            return _transformed(case)
    predicate = _made(PREDICATES[case["class"]])
    predicate.configure(settings)
    return predicate.test(record_of(case))


def _transformed(case: dict[str, Any]) -> Any:
    transformation = _made(TRANSFORMATIONS[case["class"]])
    transformation.configure(case["config"])
    record = transformation.apply(record_of(case))
    if record is None:
        return None
    found = {
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "key": _text(converter().from_data("t", record.key_schema, record.key)),
        "value": _text(converter().from_data("t", record.value_schema, record.value)),
    }
    headers = [[name, _text(converter().from_data("t", schema, value))] for name, schema, value in record.headers]
    return {**found, "headers": headers} if headers else found


def record_of(case: dict[str, Any]) -> SinkRecord:
    key_schema, key = value_of(case.get("key"))
    value_schema, value = value_of(case.get("value"))
    headers = tuple((name, *value_of(each)) for name, each in case.get("headers", ()))
    topic = case.get("topic", "orders")
    return SinkRecord(topic, 3, value, value_schema, key, key_schema, case.get("timestamp"), headers, topic, 3, 42)


def value_of(envelope: Any) -> tuple[Schema | None, Any]:
    """Return the value of a case's envelope."""
    return (None, None) if envelope is None else converter().to_data("t", json.dumps(envelope).encode())


def _made(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)()


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else stored.decode()
