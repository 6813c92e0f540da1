"""Validators: checks of a single value beyond its type.

`problem(value)` returns what was expected if the value is invalid, in Kafka's words; `describe()` returns the accepted
values in short, for tables and documentation. A validator sees one value; `checks` and `listeners` check rules between
settings.

Must not know any setting.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol


class Validator(Protocol):
    """A check of one typed value."""

    def problem(self, value: Any) -> str | None:
        """Return what was expected, or None if the value is valid."""

    def describe(self) -> str:
        """Return the accepted values in short."""


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included; None is open."""

    low: int
    high: int | None = None

    def problem(self, value: float | None) -> str | None:
        if value is None:
            return None
        if not value >= self.low:  # written so that NaN is refused as well
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def describe(self) -> str:
        return f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"


class RangeOr(NamedTuple):
    """Numbers of a range, and one more that stands for something of its own."""

    range: Range
    special: int
    description: str
    expected: str

    def problem(self, value: int | None) -> str | None:
        if value is None or value == self.special or self.range.problem(value) is None:
            return None
        return self.expected

    def describe(self) -> str:
        return self.description


class OneOf(NamedTuple):
    """One of a few words, or a list of them: every element is checked."""

    words: tuple[str, ...]

    def problem(self, value: str | Sequence[str] | None) -> str | None:
        elements = () if value is None else (value,) if isinstance(value, str) else value
        if all(element in self.words for element in elements):
            return None
        return f"String must be one of: {', '.join(self.words)}"

    def describe(self) -> str:
        return f"[{', '.join(self.words)}]"


class NotEmpty(NamedTuple):
    """A text or list with something in it; unset is right as well."""

    description: str

    def problem(self, value: Collection[str] | None) -> str | None:
        return None if value is None or value else f"must be a {self.description}"

    def describe(self) -> str:
        return self.description


class KnownClass(NamedTuple):
    """Names of Java classes that the broker implements itself; any other name stops the start.

    `feature` is what another class would add; the error message names it.
    """

    feature: str
    names: tuple[str, ...] = ()
    description: str = ""

    def problem(self, value: str | None) -> str | None:
        if value is None or value in self.names:
            return None
        known = ", ".join(name for name in self.names if name)
        expected = f"expected one of {known}" if known else "expected no class"
        return f"{self.feature} not supported yet, {expected}; see docs/not-yet.md"

    def describe(self) -> str:
        return self.description


class Principals(NamedTuple):
    """Principals such as `User:alice`, separated by semicolons."""

    def problem(self, value: str | None) -> str | None:
        for principal in filter(None, map(str.strip, (value or "").split(";"))):
            kind, separator, name = principal.partition(":")
            if not (kind and separator and name):
                return (
                    f"expected principals as Type:name separated by semicolons, such as User:admin; found {principal}"
                )
        return None

    def describe(self) -> str:
        return "Type:name;..."


_PYTHON_CLASS = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*"


class PythonClass(NamedTuple):
    """Names of Python classes as `package.module:Class`, one or a list. Names in `ignored` are accepted as well."""

    ignored: tuple[str, ...] = ()

    def problem(self, value: str | Sequence[str] | None) -> str | None:
        names = () if value is None else (value,) if isinstance(value, str) else value
        for name in names:
            if name not in self.ignored and not re.fullmatch(_PYTHON_CLASS, name):
                return "Expected a Python class as package.module:Class; Java classes cannot be loaded"
        return None

    def describe(self) -> str:
        return ""


class Check(NamedTuple):
    """A check by a function, with a description."""

    function: Callable[[Any], str | None]
    description: str = ""

    def problem(self, value: Any) -> str | None:
        return self.function(value)

    def describe(self) -> str:
        return self.description
