"""Avro values that cannot be read are none, whatever their bytes are."""

import io
import json
import random

import fastavro
import pytest

from spark_jobs.skeleton.schemas import to_text

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
