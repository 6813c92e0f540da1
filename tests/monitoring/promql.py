"""A check of PromQL expressions: whether they are well formed, and which metrics they select.

It knows the grammar of Prometheus' documentation as far as alerts and dashboards need it, and raises PromQLError for
anything else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

AGGREGATIONS = {"sum", "avg", "min", "max", "count", "topk", "bottomk", "quantile", "stddev", "group"}
RANGE_FUNCTIONS = {"rate", "increase", "irate", "delta", "changes", "avg_over_time", "max_over_time", "min_over_time"}
FUNCTIONS = {
    "abs",
    "absent",
    "ceil",
    "floor",
    "clamp_min",
    "clamp_max",
    "histogram_quantile",
    "time",
    "vector",
    "scalar",
}
BINARY = ("or", "and", "unless", "==", "!=", ">=", "<=", ">", "<", "+", "-", "*", "/", "%", "^")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<duration>(?:\d+(?:ms|[smhdwy]))+)"
    r'|(?P<name>[a-zA-Z_]\w*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/%^<>(){}\[\],=:]))'
)


class PromQLError(Exception):
    """The expression is not well formed."""


class Selector(NamedTuple):
    """A metric and the labels that must match."""

    metric: str
    labels: frozenset[str]


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                raise PromQLError(f"unexpected {text[position:]!r}")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            position = found.end()
        self.tokens.append(("end", ""))
        self.at = 0
        self.selectors: list[Selector] = []
        self.grouping: set[str] = set()

    def take(self, *values: str) -> str:
        kind, value = self.tokens[self.at]
        if value not in values or kind == "string":
            raise PromQLError(f"expected one of {values}, found {value!r}")
        self.at += 1
        return value

    def has(self, *values: str) -> bool:
        kind, value = self.tokens[self.at]
        return kind != "string" and value in values

    def kind(self, kind: str) -> str:
        found, value = self.tokens[self.at]
        if found != kind:
            raise PromQLError(f"expected a {kind}, found {value!r}")
        self.at += 1
        return value

    def expression(self) -> bool:
        """Parse a whole expression; return whether it is a range vector."""
        is_range = self.unary()
        while self.has(*BINARY):
            if is_range:
                raise PromQLError("an operator with a range vector")
            operator = self.take(*BINARY)
            if self.has("bool"):
                self.take("bool")
            if self.has("on", "ignoring"):
                self.take("on", "ignoring")
                self.names()
                if self.has("group_left", "group_right"):
                    if operator in ("and", "or", "unless"):
                        raise PromQLError("group_left with a set operator")
                    self.take("group_left", "group_right")
                    if self.has("("):
                        self.names()
            if self.unary():
                raise PromQLError("an operator with a range vector")
        return is_range

    def unary(self) -> bool:
        while self.has("-", "+"):
            self.take("-", "+")
        is_range = self.primary()
        if self.has("["):
            self.take("[")
            self.kind("duration")
            if self.has(":"):
                self.take(":")
                if not self.has("]"):
                    self.kind("duration")
            elif not self.is_selector:
                raise PromQLError("a range of something that is no selector")
            self.take("]")
            is_range = True
        if self.has("offset"):
            self.take("offset")
            self.kind("duration")
        return is_range

    def primary(self) -> bool:
        self.is_selector = False
        kind, _ = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            return False
        if self.has("("):
            self.take("(")
            is_range = self.expression()
            self.take(")")
            self.is_selector = False
            return is_range
        name = self.kind("name")
        if name in AGGREGATIONS and self.has("by", "without", "("):
            self.aggregation()
            return False
        if self.has("("):
            self.call(name)
            return False
        if name in BINARY or name in AGGREGATIONS | RANGE_FUNCTIONS | FUNCTIONS:
            raise PromQLError(f"{name} is no metric")
        self.selectors.append(Selector(name, self.labels() if self.has("{") else frozenset()))
        self.is_selector = True
        return False

    def aggregation(self) -> None:
        if self.has("by", "without"):
            self.take("by", "without")
            self.names()
        self.take("(")
        if self.expression():
            raise PromQLError("an aggregation of a range vector")
        while self.has(","):
            self.take(",")
            self.expression()
        self.take(")")
        if self.has("by", "without"):
            self.take("by", "without")
            self.names()
        self.is_selector = False

    def call(self, name: str) -> None:
        if name not in RANGE_FUNCTIONS | FUNCTIONS:
            raise PromQLError(f"unknown function {name}")
        self.take("(")
        kinds = []
        while not self.has(")"):
            kinds.append(self.expression())
            if not self.has(")"):
                self.take(",")
        self.take(")")
        if (name in RANGE_FUNCTIONS) != any(kinds):
            raise PromQLError(f"{name} expects {'a range' if name in RANGE_FUNCTIONS else 'an instant'} vector")
        self.is_selector = False

    def names(self) -> None:
        self.take("(")
        while not self.has(")"):
            self.grouping.add(self.kind("name"))
            if not self.has(")"):
                self.take(",")
        self.take(")")

    def labels(self) -> frozenset[str]:
        found = set()
        self.take("{")
        while not self.has("}"):
            found.add(self.kind("name"))
            operator = self.take("=", "!=", "=~", "!~")
            value = self.kind("string")
            if operator.endswith("~"):
                re.compile(value[1:-1].replace("$", ""))
            if not self.has("}"):
                self.take(",")
        self.take("}")
        return frozenset(found)


def selectors(expression: str) -> list[Selector]:
    """Return the metrics that a well-formed expression selects. Raises PromQLError."""
    parser = _Parser(expression)
    if parser.expression():
        raise PromQLError("the result is a range vector")
    parser.kind("end")
    return parser.selectors
