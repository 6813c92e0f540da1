"""Read Java's .properties syntax.

Owns the text format and nothing else: the tables in `config` own the keys and the meaning of values. Unusual input
is read as Java does, because files are shared with Kafka: the last of several equal keys wins, a comment cannot be
continued, and a backslash before an ordinary character is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BLANKS = " \t\f"
_ESCAPES: Mapping[str, str] = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load(path: str | Path) -> dict[str, str]:
    """Return the properties of a file in UTF-8 or, as in Java, Latin-1.

    Raises:
        OSError: the file cannot be read.
        ValueError: a \\u escape is invalid.
    """
    return parse(_text_of(path))


def parse_bytes(data: bytes) -> dict[str, str]:
    """Return the properties in the content of a file. Raises ValueError for an invalid \\u escape."""
    return parse(_decoded(data))


def _text_of(path: str | Path) -> str:
    with open(path, "rb") as file:
        return _decoded(file.read())


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def line_numbers(path: str | Path) -> dict[str, int]:
    """Return the number of the line at which each property of a file begins; of the last, if it occurs twice.

    Raises as `load` does.
    """
    return {_unescape(_split(line)[0]): number for number, line in _numbered_lines(_text_of(path))}


def parse(text: str) -> dict[str, str]:
    """Return the properties in the order of their first appearance. Raises ValueError for an invalid \\u escape."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines with continuations joined, without comments and blank lines; escapes are kept."""
    return (line for _, line in _numbered_lines(text))


def _numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the logical lines, each with the number of its first natural line."""
    pending: str | None = None
    first = 0
    for number, natural_line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural_line.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            first = number
        is_continued = _ends_in_open_backslash(line)
        joined = (pending or "") + (line[:-1] if is_continued else line)
        if is_continued:
            pending = joined
        else:
            pending = None
            yield first, joined
    if pending is not None:
        yield first, pending


def _ends_in_open_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Split a logical line into key and value: the key ends at the first unescaped `=`, `:` or blank."""
    key_end = 0
    while key_end < len(line) and line[key_end] not in "=:" + _BLANKS:
        key_end += 2 if line[key_end] == "\\" else 1
    value = line[key_end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return line[:key_end], value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (backslash := text.find("\\", position)) >= 0:
        parts.append(text[position:backslash])
        escaped = text[backslash + 1 : backslash + 2]
        if escaped == "u":
            parts.append(_code_unit(text[backslash + 2 : backslash + 6]))
            position = backslash + 6
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
            position = backslash + 2
    parts.append(text[position:])
    # Characters beyond the basic plane are written as two \u escapes, a surrogate pair of UTF-16.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _code_unit(digits: str) -> str:
    if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError(f"a \\u escape needs four hexadecimal digits, found \\u{digits}")
    return chr(int(digits, 16))
