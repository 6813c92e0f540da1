"""The .properties syntax: against what Java read from the same file, and round trips of random keys and values."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base import properties

FIXTURES = Path(__file__).parents[1] / "fixtures" / "config"


def test_odd_file_reads_as_java_reads_it() -> None:
    # odd.json was written by java.util.Properties.
    expected = json.loads((FIXTURES / "odd.json").read_text())
    assert properties.load(FIXTURES / "odd.properties") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n\n  \n", {}),
        ("#only=comment", {}),
        ("key", {"key": ""}),
        ("key=", {"key": ""}),
        ("key=\\", {"key": ""}),
        ("\\", {"": ""}),
        ("key=value # not a comment", {"key": "value # not a comment"}),
        ('key="quoted"', {"key": '"quoted"'}),
    ],
)
def test_properties_are_parsed_as_in_java(text: str, expected: dict[str, str]) -> None:
    assert properties.parse(text) == expected


@pytest.mark.parametrize("escape", ["\\u12", "\\u12g4", "\\u", "\\u-123", "\\u 123"])
def test_malformed_escapes_are_rejected(escape: str) -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        properties.parse(f"key=a{escape}")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_files_in_utf8_and_latin1_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.properties"
    path.write_bytes("key=café\n".encode(encoding))
    assert properties.load(path) == {"key": "café"}


def test_missing_file_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        properties.load(tmp_path / "none")


def _escaped(text: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"))


def _with_backslashes(text: str) -> str:
    named = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    return "".join(
        named.get(character, "\\" + character if character in " =:#!\\" else character) for character in text
    )


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(texts, texts), st.sampled_from([_escaped, _with_backslashes]))
def test_escaped_text_round_trips(wanted: dict[str, str], escape: object) -> None:
    assert callable(escape)
    text = "\n".join(f"{escape(key)}={escape(value)}" for key, value in wanted.items())
    assert properties.parse(text) == wanted


@given(st.text())
def test_any_text_gives_properties_or_a_value_error(text: str) -> None:
    try:
        properties.parse(text)
    except ValueError:
        assert "\\u" in text
