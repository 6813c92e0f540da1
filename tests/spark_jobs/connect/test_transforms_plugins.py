"""What Kafka's results do not show of transforms: names, caches, records of sources, regular expressions of Java."""

import importlib
from typing import Any

import pytest

from spark_jobs.connect.base.api import Converter, HeaderConverter, Predicate, Transformation
from spark_jobs.connect.base.data import INT32, Struct, struct_schema
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.base.java_regex import compile_regex, compile_replacement
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.converters import CONVERTERS, HEADER_CONVERTERS
from spark_jobs.connect.transforms import PREDICATES, TRANSFORMATIONS
from spark_jobs.connect.transforms.fields import ExtractFieldOfValue
from spark_jobs.connect.transforms.insert_field import InsertFieldOfKey, InsertFieldOfValue
from spark_jobs.connect.transforms.routers import TimestampRouter

TABLES: list[tuple[dict[str, str], type]] = [
    (dict(CONVERTERS), Converter),
    (dict(HEADER_CONVERTERS), HeaderConverter),
    (dict(TRANSFORMATIONS), Transformation),
    (dict(PREDICATES), Predicate),
]


@pytest.mark.parametrize(("place", "kind"), [(place, kind) for table, kind in TABLES for place in table.values()])
def test_every_name_is_of_a_plug_in_whose_settings_are_documented(place: str, kind: type) -> None:
    module, _, name = place.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    assert issubclass(found, kind)
    assert all(each.doc.endswith(".") for each in getattr(found, "definition", ()))


def source_record(value: Any, schema: Any = None) -> SourceRecord:
    return SourceRecord({"file": "f"}, {"position": 1}, "t", value, schema)


def test_a_record_of_a_source_keeps_its_place_in_the_source() -> None:
    insert = InsertFieldOfValue()
    insert.configure({"topic.field": "topic"})
    assert insert.apply(source_record({"a": 1})) == source_record({"a": 1, "topic": "t"})


def test_a_source_has_no_offset_to_insert() -> None:
    insert = InsertFieldOfValue()
    insert.configure({"offset.field": "o"})
    with pytest.raises(DataError, match="Only SinkRecord supported"):
        insert.apply(source_record({"a": 1}))


def test_the_value_of_the_caller_stays_as_it_is() -> None:
    value = {"a": 1}
    insert = InsertFieldOfValue()
    insert.configure({"topic.field": "topic"})
    insert.apply(source_record(value))
    assert value == {"a": 1}


def test_records_of_one_schema_get_one_new_schema() -> None:
    schema = struct_schema({"a": INT32})
    insert = InsertFieldOfValue()
    insert.configure({"topic.field": "topic"})
    first, second = (insert.apply(source_record(Struct(schema, {"a": n}), schema)) for n in (1, 2))
    assert first.value_schema is second.value_schema


def test_more_schemas_than_the_cache_holds_change_no_result() -> None:
    extract = ExtractFieldOfValue()
    extract.configure({"field": "a"})
    schemas = [struct_schema({f"other{n}": INT32, "a": INT32}) for n in range(40)]
    for schema in schemas * 2:
        assert extract.apply(source_record(Struct(schema, {"a": 5}), schema)).value == 5


def test_a_null_key_is_left_alone() -> None:
    insert = InsertFieldOfKey()
    insert.configure({"static.field": "s", "static.value": "v"})
    assert insert.apply(source_record({"a": 1})).key is None


def test_a_pattern_of_times_is_checked_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value yyyybb for configuration timestamp.format"):
        TimestampRouter().configure({"timestamp.format": "yyyybb"})


@pytest.mark.parametrize(
    ("expression", "text", "matches"),
    [
        (r"\Qa.b\E.", "a.bc", True),
        (r"\Qa.b\E.", "axbc", False),
        (r"(?<x>a)\k<x>", "aa", True),
        (r"(?<=a)b|(?<!a)c", "c", True),
        (r"\p{Upper}\p{Digit}+", "A12", True),
        (r"[\p{Lower}_]+", "a_b", True),
        (r"\P{Alpha}+", "12-", True),
        (r"[]a]+", "]a", True),
        (r"a++b", "aaab", True),
        (r"\d", "٣", False),
        (r"a\z", "a", True),
        (r"\h", "\u00a0", True),
    ],
)
def test_regular_expressions_are_those_of_java(expression: str, text: str, matches: bool) -> None:
    assert bool(compile_regex(expression).fullmatch(text)) is matches


@pytest.mark.parametrize("expression", ["(", "[a-z&&[^b]]", "[a[b]]", r"\p{InGreek}", "a{2,1}", "*"])
def test_an_expression_that_is_not_supported_is_an_error(expression: str) -> None:
    with pytest.raises(ConfigError):
        compile_regex(expression)


@pytest.mark.parametrize("replacement", ["$2", "${x}", "$", "a\\", "$x"])
def test_a_replacement_with_a_group_that_is_missing_is_an_error(replacement: str) -> None:
    with pytest.raises(ConfigError, match="the replacement"):
        compile_replacement(replacement, compile_regex("(a)"))
