"""Regular expressions of Java in Python's notation, and replacements with groups.

Java's `(?<name>…)`, `\\k<name>`, `\\Q…\\E`, `\\p{Alpha}` and the like, `\\h`, `\\R`, `\\z` and `\\Z` are translated;
the rest is the same in both. Classes within classes and intersections (`[a-z&&[^b]]`) are refused.

Owns the translation. Must not know what is matched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_jobs.connect.base.definitions import invalid
from spark_jobs.connect.base.errors import ConfigError

_PIECE: Final = re.compile(
    r"\\Q(?P<literal>.*?)(?:\\E|$)|\\k<(?P<reference>\w+)>|\(\?<(?P<group>[A-Za-z]\w*)>"
    r"|\\(?P<negated>[pP])\{(?P<property>\w+)\}|\\(?P<escaped>.)|(?P<other>.)",
    re.DOTALL,
)
_PROPERTIES: Mapping[str, str] = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r" \t\n\x0b\f\r",
    "Blank": r" \t",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
    "Cntrl": r"\x00-\x1f\x7f",
    "Graph": "!-~",
    "Print": " -~",
}
_ESCAPES: Mapping[str, str] = {
    "z": r"\Z",
    "Z": r"(?=\n?\Z)",
    "h": r"[ \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]",
    "R": r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])",
    "e": r"\x1b",
}
_REPLACEMENT: Final = re.compile(r"\\(?P<literal>.)|\$\{(?P<name>\w+)\}|\$(?P<number>[0-9]+)|(?P<bad>[\\$])", re.DOTALL)

Pattern = re.Pattern[str]


def compile_regex(text: str) -> Pattern:
    """Return the pattern of Java's expression. Raises ConfigError, which says what is wrong."""
    try:
        return re.compile(_translated(text), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{text} is not a regular expression: {error}") from error


def regex(name: str, value: Any) -> None:
    """Check that the value of a setting is a regular expression."""
    try:
        compile_regex(value)
    except ConfigError as error:
        raise invalid(name, value, f"Invalid regex: {error}") from error


def _translated(text: str) -> str:
    pieces = []
    in_class = False
    position = 0
    while position < len(text):
        found = _PIECE.match(text, position)
        assert found is not None  # the last choice is any character
        position = found.end()
        other = found["other"]
        if in_class and (other == "[" or (other == "&" and text.startswith("&", position))):
            raise ConfigError(f"{text} has a class within a class or an intersection, which is not supported")
        if other == "[" and not in_class:
            in_class = True
            opening = re.match(r"\^?\]?", text[position:])
            assert opening is not None  # it may be empty
            pieces.append("[" + opening[0])
            position += opening.end()
            continue
        if other == "]":
            in_class = False
        pieces.append(_translated_piece(found, in_class=in_class, text=text))
    return "".join(pieces)


def _translated_piece(found: re.Match[str], *, in_class: bool, text: str) -> str:
    if found["literal"] is not None:
        return re.escape(found["literal"])
    if found["reference"]:
        return f"(?P={found['reference']})"
    if found["group"]:
        return f"(?P<{found['group']}>"
    if found["property"]:
        return _property(found["property"], is_negated=found["negated"] == "P", in_class=in_class, text=text)
    if found["escaped"] in _ESCAPES and not in_class:
        return _ESCAPES[found["escaped"]]
    return found[0]


def _property(name: str, *, is_negated: bool, in_class: bool, text: str) -> str:
    members = _PROPERTIES.get(name.removeprefix("Is"))
    if members is None or (in_class and is_negated):
        raise ConfigError(f"{text} has the character property {name}: expected one of {', '.join(_PROPERTIES)}")
    return members if in_class else f"[{'^' if is_negated else ''}{members}]"


Replace = Callable[[re.Match[str]], str]


def compile_replacement(text: str, pattern: Pattern) -> Replace:
    """Return the function of a replacement with `$1`, `${name}` and escapes. Raises ConfigError."""
    pieces: list[str | int] = []
    position = 0
    for found in _REPLACEMENT.finditer(text):
        pieces.append(text[position : found.start()])
        position = found.end()
        if found["bad"]:
            raise ConfigError(f"the replacement {text} has {found['bad']} before no group: expected $1 or ${{name}}")
        if found["literal"] is not None:
            pieces.append(found["literal"])
        elif found["name"]:
            if found["name"] not in pattern.groupindex:
                raise ConfigError(
                    f"the replacement {text} has {found[0]}, but the expression has no group of this name"
                )
            pieces.append(pattern.groupindex[found["name"]])
        else:
            pieces += _numbered(found["number"], text, pattern)
    pieces.append(text[position:])
    return lambda found: "".join(each if isinstance(each, str) else found[each] or "" for each in pieces)


def _numbered(digits: str, text: str, pattern: Pattern) -> list[str | int]:
    """Return a group and the digits behind it: as many digits count as name a group that the expression has."""
    length = max((n for n in range(1, len(digits) + 1) if int(digits[:n]) <= pattern.groups), default=0)
    if length == 0:
        raise ConfigError(f"the replacement {text} has ${digits}, but the expression has {pattern.groups} groups")
    return [int(digits[:length]), digits[length:]]
