"""Compares recorded cases with what our converters and transforms do.

Owns the known differences, each with its reason. A case that is not among them must have Kafka's result, and an error
where Kafka has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from spark_jobs.connect.base.errors import ConfigError, ConnectError
from tests.spark_jobs.connect.golden.record import cases
from tests.spark_jobs.connect.golden.replay import replay

DIFFERENCES: Mapping[str, str] = {
    "default of a struct": "Kafka cannot read the schema: the default's own schema lacks the default",
    'header "{}"': "Kafka's JSON converter cannot write the schema of an empty map",
    "Cast$Value: every field to float32": "Java 17 prints a digit too many, Java 19 does not (JDK-4511638)",
    "Cast$Value: timestamp whole to string": "Kafka leaves the name Timestamp, and its converter fails at the text",
    "Flatten$Value: default of the inner struct": "Kafka cannot read the schema, as above",
    "MaskField$Value: decimal": "Kafka's mask has another scale than the field, and its converter fails",
    "SetSchemaMetadata$Value: array": "Kafka asks an array's schema for fields, and fails",
    "TimestampConverter$Value: unix seconds to timestamp": "a datetime of Python ends in the year 9999",
    "TimestampConverter$Value: 24-2-9 read by yyyy-MM-dd": "dates before 1582 are of the Julian calendar in Java",
}


def parameters(*kinds: str) -> pytest.MarkDecorator:
    """Return the mark of a test that takes `case` and `recorded`, for each case of some kinds."""
    chosen = [
        pytest.param(case, recorded, id=case["name"])
        for case, recorded in cases()
        if case["kind"] in kinds and case["name"] not in DIFFERENCES
    ]
    return pytest.mark.parametrize(("case", "recorded"), chosen)


def check(case: dict[str, Any], recorded: dict[str, Any]) -> None:
    if "error" in recorded:
        kind = ConfigError if recorded["error"].startswith("ConfigException") else ConnectError
        with pytest.raises(kind):
            replay(case)
    else:
        assert _unordered(replay(case)) == _unordered(recorded["result"])


def _unordered(found: Any) -> Any:
    """Return a result without the order of keys where Java has none: in maps without a schema."""
    if isinstance(found, dict):
        return {key: _unordered(each) for key, each in found.items()}
    if isinstance(found, list):
        return list(map(_unordered, found))
    return json.loads(found) if isinstance(found, str) and found.startswith('{"schema":null') else found
