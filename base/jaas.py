"""JAAS configuration, as in `sasl.jaas.config` and in the file of `java.security.auth.login.config`.

    entry  := Module (required|requisite|sufficient|optional) (key=value)* ;
    file   := (section { entry+ } ;)*

Values may be quoted; inside quotes `\\` escapes a character as in Java: `\\t`, octal `\\101`, others as they are. `//`
and `/* */` are comments. Owns the syntax. Must not know what a login module does. Errors never repeat a value, which
may be a password.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>[={};])|(?P<word>[^\s={};"']+)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Mapping[str, str] = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


class JaasError(ValueError):
    """The text is not a JAAS configuration. The message states what was expected."""


class LoginModule(NamedTuple):
    """One entry: a class name with its options."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {len(self.options)} options)"  # the options hold passwords

    @property
    def short_name(self) -> str:
        """The class name without its package."""
        return self.name.rpartition(".")[2]


class _Token(NamedTuple):
    kind: str
    text: str


def is_true(value: str | None) -> bool:
    """Return whether an option that may be missing is `true`."""
    return value is not None and value.strip().lower() == "true"


def parse_entry(text: str) -> LoginModule:
    """Return the only entry of `sasl.jaas.config`. Raises JaasError, also for none or several."""
    tokens = _tokens(text)
    entries = []
    while tokens:
        entries.append(_entry(tokens))
    if len(entries) != 1:
        raise JaasError(f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    return entries[0]


def parse_file(text: str) -> dict[str, list[LoginModule]]:
    """Return the entries of each section of a JAAS file. Raises JaasError."""
    tokens = _tokens(text)
    sections: dict[str, list[LoginModule]] = {}
    while tokens:
        name = _next(tokens, "the name of a section").text
        _expect(tokens, "{")
        entries = sections.setdefault(name, [])
        while tokens and tokens[-1] != _Token("mark", "}"):
            entries.append(_entry(tokens))
        _expect(tokens, "}")
        _expect(tokens, ";")
    return sections


def _tokens(text: str) -> list[_Token]:
    """Return the tokens in reverse order."""
    return list(_scanned(text))[::-1]


def _scanned(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("a quoted value does not end")
        position = match.end()
        if match["quoted"] is not None:
            yield _Token("value", _ESCAPE.sub(_unescaped, match["quoted"][1:-1]))
        elif match["mark"] is not None:
            yield _Token("mark", match["mark"])
        elif match["word"] is not None:
            yield _Token("word", match["word"])


def _unescaped(escape: re.Match[str]) -> str:
    text = escape[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPED.get(text, text)


def _entry(tokens: list[_Token]) -> LoginModule:
    name = _next(tokens, "the class of a login module").text
    flag = _next(tokens, "a control flag")
    if flag.text.lower() not in CONTROL_FLAGS:
        raise JaasError(f"expected one of {', '.join(CONTROL_FLAGS)} after {name}")
    options: dict[str, str] = {}
    while tokens and tokens[-1] != _Token("mark", ";"):
        key = _next(tokens, f"an option of {name}").text
        _expect(tokens, "=")
        options[key] = _next(tokens, f"the value of {key}").text
    if not tokens:
        raise JaasError(f"expected a semicolon after the options of {name}")
    tokens.pop()
    return LoginModule(name, options)


def _next(tokens: list[_Token], expected: str) -> _Token:
    if not tokens or tokens[-1].kind == "mark":
        raise JaasError(f"expected {expected}")
    return tokens.pop()


def _expect(tokens: list[_Token], mark: str) -> None:
    if not tokens or tokens[-1] != _Token("mark", mark):
        raise JaasError(f"expected '{mark}'")
    tokens.pop()
