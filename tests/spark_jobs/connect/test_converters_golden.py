"""Converters have the bytes and the values of Kafka 3.9's; see golden/record.py."""

from typing import Any

import pytest

from spark_jobs.connect.base.errors import DataError
from tests.spark_jobs.connect.golden.compare import DIFFERENCES, check, parameters
from tests.spark_jobs.connect.golden.record import cases
from tests.spark_jobs.connect.golden.replay import replay


@parameters("to_json", "double", "float")
def test_json_is_written_byte_for_byte_as_by_kafka(case: dict[str, Any], recorded: dict[str, Any]) -> None:
    check(case, recorded)


@parameters("from_json")
def test_json_is_read_as_by_kafka(case: dict[str, Any], recorded: dict[str, Any]) -> None:
    check(case, recorded)


@parameters("string")
def test_any_value_becomes_the_text_that_java_prints(case: dict[str, Any], recorded: dict[str, Any]) -> None:
    check(case, recorded)


@parameters("from_header", "to_header")
def test_headers_are_read_and_written_as_by_kafka(case: dict[str, Any], recorded: dict[str, Any]) -> None:
    check(case, recorded)


@pytest.mark.parametrize(
    "name", [case["name"] for case, recorded in cases() if case["kind"] == "from_json" and "error" in recorded]
)
def test_errors_of_bad_json_begin_with_the_text_of_kafka(name: str) -> None:
    case, recorded = next(each for each in cases() if each[0]["name"] == name)
    expected = recorded["error"].partition(": ")[2].rstrip(". ")
    with pytest.raises(DataError) as raised:
        replay(case)
    assert str(raised.value).startswith(expected.removesuffix("must have string values"))


def test_every_known_difference_is_of_a_recorded_case() -> None:
    assert {case["name"] for case, _ in cases()} >= DIFFERENCES.keys()
