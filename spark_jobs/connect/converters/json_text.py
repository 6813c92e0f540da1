"""JSON as Jackson writes it, byte for byte.

Jackson differs from Python's `json` in four ways: control characters have capital hexadecimal digits, characters
beyond U+FFFF are escaped as two surrogates, numbers are printed as Java prints them, and a map with other keys than
strings is a list of pairs.

Owns the text of values without a schema and the pieces of all others. Must not know schemas.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, Final

from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.converters.java_text import double_text

_PLAIN: Final = frozenset({str, int, bool, type(None)})
"""The types that Python's encoder writes as Jackson does, but for rare characters of texts."""
_KEYS: Final = frozenset({str})
_DIFFERENT: Final = re.compile(r"\\(?:u(00[01][0-9a-f])|.)|([\ud800-\udfff\U00010000-\U0010ffff])")
_encode_plain: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def quote(text: str) -> str:
    """Return a JSON string."""
    return _as_jackson(encode_basestring(text))


def base64(value: bytes) -> str:
    """Return bytes as a JSON string."""
    return f'"{b64encode(value).decode("ascii")}"'


def number(text: str) -> str:
    """Return a number in Java's notation as JSON, which has none for infinities and NaN: they are strings."""
    return text if text[-1].isdigit() else f'"{text}"'


def plain(value: Any) -> str:
    """Return a value without a schema as JSON. Raises DataError for types that JSON does not have."""
    encode = _ENCODERS.get(type(value))
    if encode is None:
        raise DataError(f"a value of type {type(value).__name__} has no JSON form without a schema: {value!r:.100}")
    return encode(value)


def array(items: Iterable[str]) -> str:
    return f"[{','.join(items)}]"


def _list(values: list[Any]) -> str:
    if _PLAIN.issuperset(map(type, values)):
        return _as_jackson(_encode_plain(values))
    return array(map(plain, values))


def _dict(values: Mapping[Any, Any]) -> str:
    if not _KEYS.issuperset(map(type, values)):
        return array(f"[{plain(key)},{plain(item)}]" for key, item in values.items())
    if _PLAIN.issuperset(map(type, values.values())):
        return _as_jackson(_encode_plain(values))
    return "{" + ",".join([f"{quote(key)}:{plain(item)}" for key, item in values.items()]) + "}"


def _as_jackson(text: str) -> str:
    if text.isascii() and "\\u00" not in text:
        return text
    return _DIFFERENT.sub(_rewritten, text)


def _rewritten(found: re.Match[str]) -> str:
    if found[1]:
        return f"\\u{found[1].upper()}"
    if not found[2]:
        return found[0]
    units = found[2].encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_ENCODERS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _value: "null",
    str: quote,
    bool: lambda value: "true" if value else "false",
    int: str,
    float: lambda value: number(double_text(value)),
    bytes: base64,
    list: _list,
    dict: _dict,
}
