from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.connect.base.data import BYTES, STRING, Schema, Type
from spark_jobs.connect.converters.header_values import ConvertedHeaders, SimpleHeaderConverter
from spark_jobs.connect.converters.json import JsonConverter
from spark_jobs.connect.converters.value_parser import parse


def test_bytes_that_are_no_text_stay_bytes() -> None:
    assert SimpleHeaderConverter().to_header("t", "h", b"\xff") == (BYTES, b"\xff")


def test_null_stays_null() -> None:
    headers = SimpleHeaderConverter()
    assert headers.to_header("t", "h", None) == (None, None)
    assert headers.from_header("t", "h", STRING, None) is None


def test_a_converter_of_records_serves_headers() -> None:
    headers = ConvertedHeaders(JsonConverter())
    headers.configure({"schemas.enable": "false"})
    assert headers.from_header("t", "h", STRING, "x") == b'"x"'
    assert headers.to_header("t", "h", b"[1]") == (None, [1])


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet='[]{},:"\\ 0129-+.eEtruenulxTZ'))
def test_any_text_is_some_value(text: str) -> None:
    parse(text)


def test_deep_nesting_is_a_text() -> None:
    text = "[" * 100_000
    assert parse(text) == (STRING, text)


def test_a_number_with_a_huge_exponent_is_a_text() -> None:
    assert parse("1e999999999") == (STRING, "1e999999999")


@settings(deadline=None)
@given(number=st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_whole_number_has_the_smallest_type_that_holds_it(number: int) -> None:
    bits = next(bits for bits in (8, 16, 32, 64) if -(1 << (bits - 1)) <= number < 1 << (bits - 1))
    assert parse(str(number)) == (Schema(Type[f"INT{bits}"]), number)
