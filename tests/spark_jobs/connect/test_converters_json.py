"""What Kafka's results do not show of the JSON converter: limits, caches, and odd messages after usual ones."""

import datetime as dt
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    decimal_schema,
    map_schema,
    struct_schema,
    timestamp_schema,
)
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.converters.json import JsonConverter
from tests.spark_jobs.connect.golden.replay import converter

PLAIN = {"schemas_enable": "false"}


def envelope(schema: str, payload: str) -> bytes:
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


def test_the_envelope_of_a_text_is_that_of_the_documentation() -> None:
    stored = converter().from_data("t", STRING, "foo")
    assert stored == b'{"schema":{"type":"string","optional":false},"payload":"foo"}'


def test_schema_enable_is_an_old_name_of_the_setting() -> None:
    old = JsonConverter()
    old.configure({"schema.enable": "false"}, is_key=False)
    assert old.from_data("t", STRING, "foo") == b'"foo"'


def test_an_unknown_decimal_format_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value HEX for configuration decimal.format"):
        converter(decimal_format="HEX")


def test_a_second_message_with_the_same_schema_has_the_same_schema_object() -> None:
    values, stored = converter(), envelope('{"type":"int32"}', "5")
    first, _ = values.to_data("t", stored)
    assert values.to_data("t", stored) == (first, 5)
    assert values.to_data("t", stored)[0] is first
    assert values.to_data("t", b' {"payload": 6, "schema": {"type": "int32"}}')[0] is first


@pytest.mark.parametrize(
    "stored",
    [
        envelope('{"type":"int32"}', '1,"extra":2'),
        envelope('{"type":"int32"}', "1}"),
        envelope('{"type":"int32"}', ""),
        envelope('{"type":"int32"}', "1")[:-1],
    ],
)
def test_an_odd_message_after_usual_ones_is_as_odd_as_if_it_were_the_first(stored: bytes) -> None:
    def outcome(values: JsonConverter) -> Any:
        try:
            return values.to_data("t", stored)
        except DataError as error:
            return str(error)

    used = converter()
    for _ in range(2):
        used.to_data("t", envelope('{"type":"int32"}', "1"))
    assert outcome(used) == outcome(converter())


def test_a_schema_that_contains_the_text_of_a_payload_is_read_whole() -> None:
    values = converter()
    doc = '{"type":"int32","doc":"a}","parameters":{"x":"{}"},"payload":7}'
    for payload in (1, 2):
        schema, value = values.to_data("t", envelope(doc, str(payload)))
        assert (schema and schema.doc, value) == ("a}", payload)


def test_the_last_of_two_equal_keys_counts_as_in_kafka() -> None:
    values = converter()
    for _ in range(2):
        assert values.to_data("t", envelope('{"type":"int32"}', '1,"payload":2'))[1] == 2


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_deep_nesting_is_an_error_and_no_crash(deep: str) -> None:
    for values, stored in ((converter(**PLAIN), deep.encode()), (converter(), envelope("null", deep))):
        with pytest.raises(DataError):
            values.to_data("t", stored)


def test_a_value_that_is_nested_too_deeply_cannot_be_written() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(DataError, match="nested too deeply"):
        converter(**PLAIN).from_data("t", None, value)


@pytest.mark.parametrize("number", ["9223372036854775808", "-9223372036854775809", "1e400", "9" * 5000])
def test_a_number_that_is_too_large_is_an_error(number: str) -> None:
    with pytest.raises(DataError):
        converter(**PLAIN).to_data("t", f'{{"a":{number}}}'.encode())
    with pytest.raises(DataError):
        converter().to_data("t", envelope("null", number))
    for kind in ("int64", "double" if "e" in number or len(number) > 1000 else "int8"):
        with pytest.raises(DataError):
            converter().to_data("t", envelope(f'{{"type":"{kind}"}}', number))


def test_the_exponent_of_a_decimal_is_limited() -> None:
    schema = '{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"0"}}'
    with pytest.raises(DataError, match="too large"):
        converter().to_data("t", envelope(schema, "1e1000000000"))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("int32", '"5"'),
        ("int32", "1.5"),
        ("int8", "128"),
        ("boolean", "1"),
        ("string", "5"),
        ("bytes", '"%"'),
        ("float", "1e39"),
    ],
)
def test_a_payload_of_another_type_is_an_error_and_not_zero(kind: str, payload: str) -> None:
    with pytest.raises(DataError):
        converter().to_data("t", envelope(f'{{"type":"{kind}"}}', payload))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT32, "5"),
        (INT32, 1 << 31),
        (INT32, True),
        (STRING, 5),
        (BOOLEAN, 1),
        (BYTES, "x"),
        (array_schema(INT32), ["x"]),
        (map_schema(STRING, INT32), [1]),
        (struct_schema({"a": INT32}), {"a": 1}),
        (struct_schema({"a": INT32}), Struct(struct_schema({"b": INT32}))),
        (struct_schema({"a": INT32}), Struct(struct_schema({"a": INT32}))),
        (timestamp_schema(), dt.datetime(2024, 1, 1)),  # noqa: DTZ001
        (decimal_schema(2), 1.5),
        (None, object()),
    ],
)
def test_a_value_that_does_not_fit_its_schema_is_an_error(schema: Schema | None, value: Any) -> None:
    with pytest.raises(DataError):
        converter().from_data("t", schema, value)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_lacks_survive_as_texts(number: float) -> None:
    values = converter()
    stored = values.from_data("t", FLOAT64, number)
    assert repr(values.to_data("t", stored)[1]) == repr(number)


def test_bytes_that_are_no_text_are_an_error_that_names_the_topic() -> None:
    with pytest.raises(DataError, match="orders"):
        converter(**PLAIN).to_data("orders", b'"\xff"')


@pytest.mark.parametrize("size", ["0", "1", "2"])
def test_a_small_cache_changes_no_result(size: str) -> None:
    values = converter(schemas_cache_size=size)
    for _ in range(2):
        for kind, payload in (("int32", "1"), ("string", '"x"'), ("boolean", "true")):
            stored = envelope(f'{{"type":"{kind}","optional":false}}', payload)
            assert values.from_data("t", *values.to_data("t", stored)) == stored


def test_a_map_with_other_keys_than_texts_is_a_list_of_pairs() -> None:
    assert converter(**PLAIN).from_data("t", None, {1: "a", "b": 2}) == b'[[1,"a"],["b",2]]'


ORDER = struct_schema(
    {
        "id": INT64,
        "name": OPTIONAL_STRING,
        "price": decimal_schema(2),
        "at": timestamp_schema(optional=True),
        "ratio": FLOAT64,
        "short": Schema(Type.FLOAT32, optional=True),
        "tags": array_schema(STRING),
        "counts": map_schema(INT32, BYTES),
    }
)
_order = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "name": st.none() | st.text(),
        "price": st.decimals(places=2, allow_nan=False, allow_infinity=False),
        "at": st.none() | st.datetimes(timezones=st.just(dt.UTC)).map(lambda each: each.replace(microsecond=0)),
        "ratio": st.floats(allow_nan=False),
        "short": st.none() | st.floats(allow_nan=False, width=32),
        "tags": st.lists(st.text()),
        "counts": st.dictionaries(st.integers(-5, 5), st.binary()),
    }
)


@settings(max_examples=60, deadline=None)
@given(values=_order)
@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_a_value_is_the_same_after_writing_and_reading(decimals: str, values: dict[str, Any]) -> None:
    both = converter(decimal_format=decimals)
    stored = both.from_data("t", ORDER, Struct(ORDER, values))
    assert stored is not None
    json.loads(stored)  # any reader of JSON understands it
    assert both.to_data("t", stored) == (ORDER, Struct(ORDER, values))
