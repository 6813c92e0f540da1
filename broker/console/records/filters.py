"""The language of record filters: a fixed grammar, so that no filter is code.

Owns the grammar and its limits. Pure. Must not know where records come from.

    filter      = either { "or" either }
    either      = part { "and" part }
    part        = "not" part | "(" filter ")" | comparison | text
    comparison  = field operator literal
    field       = "key" | "value" | "offset" | "partition" | "timestamp" | "size"
                | "header." name | "value." path | "key." path
    operator    = "=" | "!=" | "<" | "<=" | ">" | ">=" | "contains" | "starts"
    literal     = "text in quotes" | number | word

A text alone is searched in key, value and headers, without regard to case. `value.path` is a member of a JSON object,
with numbers for the elements of arrays: `value.items.0.price > 10`. A key or value with a schema is the JSON that the
schema makes of it. A timestamp is compared with milliseconds, or with
a time such as "2024-05-01T12:00:00Z".
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from protocol.records.batch import Record

LENGTH_MAX: Final = 1_000
DEPTH_MAX: Final = 20
JSON_SIZE_MAX: Final = 1 << 20
"""Values above this size are not parsed, so members of them are missing."""

Open = Callable[[bytes], str | None]
"""Returns the JSON that the schema of a key or value makes of it; None if no schema opens it."""
Matches = Callable[[int, Record, Open], bool]
"""Whether a record of a partition passes."""


class _Subject:
    """A record while a filter is applied to it: what several parts of the filter need is computed once."""

    __slots__ = ("_open", "_opened", "_parsed", "_texts", "partition", "record")

    def __init__(self, partition: int, record: Record, open_: Open) -> None:
        self.partition = partition
        self.record = record
        self._open = open_
        self._opened: dict[bool, str | bytes | None] = {}
        self._parsed: dict[bool, object] = {}
        self._texts: list[str] | None = None

    def opened(self, *, is_key: bool) -> str | bytes | None:
        """Return the key or the value as its schema opens it, else its bytes."""
        if is_key not in self._opened:
            data = self.record.key if is_key else self.record.value
            text = None if data is None else self._open(data)
            self._opened[is_key] = data if text is None else text
        return self._opened[is_key]

    def parsed(self, *, is_key: bool) -> object:
        """Return the key or the value as JSON, `_MISSING` if it is none."""
        if is_key not in self._parsed:
            self._parsed[is_key] = _parsed_json(self.opened(is_key=is_key))
        return self._parsed[is_key]

    def texts(self) -> list[str]:
        """Return key, value and headers in lower case."""
        if self._texts is None:
            parts = (
                self.opened(is_key=True),
                self.opened(is_key=False),
                *(value for _, value in self.record.headers),
            )
            self._texts = [_text(part).lower() for part in parts if part is not None]
        return self._texts


_Part = Callable[[_Subject], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<operator><=|>=|!=|=|<|>)|(?P<bracket>[()])"""
    r"""|(?P<word>[^\s()"=<>!]+))"""
)
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORD_OPERATORS: Final = ("contains", "starts")
_NUMBERS: Final = ("offset", "partition", "timestamp", "size")


class FilterError(Exception):
    """The text is no filter; the message says where and what was expected."""


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _Missing:
    """A field that a record does not have. It passes no comparison but `!=`."""


_MISSING: Final = _Missing()


def parse_filter(text: str) -> Matches:
    """Return the function that a filter describes; an empty text passes every record. Raises FilterError."""
    if len(text) > LENGTH_MAX:
        raise FilterError(f"the filter has {len(text)} characters, expected at most {LENGTH_MAX}")
    if not text.strip():
        return lambda _partition, _record, _open: True
    part = _Parser(_tokens(text)).parsed()
    return lambda partition, record, open_: part(_Subject(partition, record, open_))


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise FilterError(f"character {position + 1}: {text[position:].strip()[:1]!r} begins no word of a filter")
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        position = match.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._position = 0

    def parsed(self) -> _Part:
        matches = self._either(0)
        if self._position < len(self._tokens):
            left = self._tokens[self._position]
            raise FilterError(f"character {left.position + 1}: {left.text!r} where 'and', 'or' or the end was expected")
        return matches

    def _next(self) -> _Token | None:
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def _take(self, expected: str) -> _Token:
        token = self._next()
        if token is None:
            raise FilterError(f"the filter ends where {expected} was expected")
        self._position += 1
        return token

    def _is_next(self, word: str) -> bool:
        token = self._next()
        return token is not None and token.kind != "quoted" and token.text.lower() == word

    def _either(self, depth: int) -> _Part:
        parts = [self._all(depth)]
        while self._is_next("or"):
            self._position += 1
            parts.append(self._all(depth))
        if len(parts) == 1:
            return parts[0]
        return lambda subject: any(part(subject) for part in parts)

    def _all(self, depth: int) -> _Part:
        parts = [self._part(depth)]
        while self._is_next("and"):
            self._position += 1
            parts.append(self._part(depth))
        if len(parts) == 1:
            return parts[0]
        return lambda subject: all(part(subject) for part in parts)

    def _part(self, depth: int) -> _Part:
        if depth > DEPTH_MAX:
            raise FilterError(f"more than {DEPTH_MAX} levels of brackets and 'not'")
        if self._is_next("not"):
            self._position += 1
            inner = self._part(depth + 1)
            return lambda subject: not inner(subject)
        token = self._take("a field or a text")
        if token.text == "(" and token.kind == "bracket":
            inside = self._either(depth + 1)
            closing = self._take("')'")
            if closing.text != ")":
                raise FilterError(f"character {closing.position + 1}: {closing.text!r} where ')' was expected")
            return inside
        if token.kind == "quoted":
            return _anywhere(_unquoted(token))
        following = self._next()
        is_comparison = following is not None and (
            following.kind == "operator" or following.text.lower() in _WORD_OPERATORS
        )
        if token.kind != "word":
            raise FilterError(f"character {token.position + 1}: {token.text!r} where a field or a text was expected")
        return self._comparison(token) if is_comparison else _anywhere(token.text)

    def _comparison(self, name: _Token) -> _Part:
        read = _field(name)
        sign = self._take("an operator").text.lower()
        literal = self._take("a value")
        if literal.kind not in ("quoted", "word"):
            raise FilterError(f"character {literal.position + 1}: {literal.text!r} where a value was expected")
        wanted: object = _unquoted(literal) if literal.kind == "quoted" else _number_or_text(literal.text)
        if name.text == "timestamp":
            wanted = _milliseconds(literal, wanted)
        elif name.text in _NUMBERS and not isinstance(wanted, int | float):
            raise FilterError(f"character {literal.position + 1}: {literal.text!r} where a number was expected")
        return _comparing(read, sign, wanted)


def _comparing(read: Callable[[_Subject], object], sign: str, wanted: object) -> _Part:
    if sign in _WORD_OPERATORS:
        text = str(wanted)
        within: Callable[[str], bool] = (
            (lambda found: text in found) if sign == "contains" else (lambda found: found.startswith(text))
        )

        def matches_text(subject: _Subject) -> bool:
            found = read(subject)
            return found is not _MISSING and within(_text_of(found))

        return matches_text
    compare = _COMPARE[sign]

    def matches(subject: _Subject) -> bool:
        found = read(subject)
        if found is _MISSING:
            return sign == "!="
        if isinstance(wanted, int | float) and isinstance(found, str):
            number = _number_or_text(found)
            found = number if isinstance(number, int | float) else found
        if isinstance(found, bool) or found is None:
            found = _text_of(found)
        if isinstance(found, int | float) != isinstance(wanted, int | float):
            return compare(_text_of(found), _text_of(wanted)) if sign in ("=", "!=") else False
        return compare(found, wanted)

    return matches


def _field(name: _Token) -> Callable[[_Subject], object]:
    first, _, rest = name.text.partition(".")
    if name.text in _FIELDS:
        return _FIELDS[name.text]
    if first == "header" and rest:
        wanted = rest
        return lambda subject: next(
            (_decoded(value) for key, value in reversed(subject.record.headers) if key == wanted), _MISSING
        )
    if first in ("value", "key") and rest:
        path = rest.split(".")
        is_key = first == "key"
        return lambda subject: _member(subject.parsed(is_key=is_key), path)
    raise FilterError(
        f"character {name.position + 1}: {name.text!r} is no field, expected key, value, value.PATH, key.PATH, "
        "header.NAME, offset, partition, timestamp or size"
    )


_FIELDS: Mapping[str, Callable[[_Subject], object]] = {
    "key": lambda subject: _decoded(subject.opened(is_key=True)),
    "value": lambda subject: _decoded(subject.opened(is_key=False)),
    "offset": lambda subject: subject.record.offset,
    "partition": lambda subject: subject.partition,
    "timestamp": lambda subject: subject.record.timestamp,
    "size": lambda subject: len(subject.record.value or b""),
}


def _decoded(data: str | bytes | None) -> object:
    return _MISSING if data is None else _text(data)


def _text(data: str | bytes) -> str:
    return data if isinstance(data, str) else bytes(data).decode(errors="replace")


def _parsed_json(data: str | bytes | None) -> object:
    if data is None or len(data) > JSON_SIZE_MAX:
        return _MISSING
    if not isinstance(data, str) and bytes(data[:1]) not in (b"{", b"["):
        return _MISSING
    try:
        parsed: object = json.loads(data if isinstance(data, str) else bytes(data))
    except (ValueError, RecursionError):
        return _MISSING
    return parsed


def _member(found: object, path: list[str]) -> object:
    for step in path:
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isascii() and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return _MISSING
    return found


def _anywhere(text: str) -> _Part:
    wanted = text.lower()
    return lambda subject: any(wanted in found for found in subject.texts())


def _unquoted(token: _Token) -> str:
    return re.sub(r"\\(.)", r"\1", token.text[1:-1])


def _number_or_text(text: str) -> int | float | str:
    try:
        return int(text) if len(text) < 20 else text
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _milliseconds(literal: _Token, wanted: object) -> int | float:
    if isinstance(wanted, int | float):
        return wanted
    try:
        moment = datetime.fromisoformat(str(wanted))
    except ValueError:
        raise FilterError(
            f"character {literal.position + 1}: {literal.text} where a time such as 2024-05-01T12:00:00Z was expected"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
