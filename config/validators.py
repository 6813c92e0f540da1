"""Checks of a single value beyond its type.

A validator is an object with two answers: `problem(value)` says what was expected when the value is wrong, in the words
clients know from Kafka, and `describe()` is the short form of the accepted values for tables and documentation. It sees
one value; what several settings mean together is checked in `broker`.

Must not know any setting.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol


class Validator(Protocol):
    """A check of one typed value."""

    def problem(self, value: Any) -> str | None:
        """What was expected, or None when the value is right."""

    def describe(self) -> str:
        """The accepted values in a few characters."""


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
    """Names of Java classes that the broker has an own implementation of; any other one stops the start.

    `feature` is what such a class would add; the message names it.
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


class Check(NamedTuple):
    """A check that only its function can describe."""

    function: Callable[[Any], str | None]
    description: str = ""

    def problem(self, value: Any) -> str | None:
        return self.function(value)

    def describe(self) -> str:
        return self.description
