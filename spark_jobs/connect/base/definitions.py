"""Definitions of settings: their types, defaults and limits, and the check of given values against them.

They are what `org.apache.kafka.common.config.ConfigDef` is in Java. `PUT /connector-plugins/C/config/validate` returns
definitions and errors as they are here.

Owns parsing and the texts of errors. Must not know any setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from spark_jobs.connect.base.errors import ConfigError


class Kind(Enum):
    """The type of a setting. The names are those of the REST interface."""

    BOOLEAN = auto()
    STRING = auto()
    INT = auto()
    SHORT = auto()
    LONG = auto()
    DOUBLE = auto()
    LIST = auto()
    CLASS = auto()
    PASSWORD = auto()


class Importance(Enum):
    HIGH = auto()
    MEDIUM = auto()
    LOW = auto()


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""The default of a setting that has none."""

HIDDEN: Final = "[hidden]"
"""Stands for a value that may be a secret."""

Check = Callable[[str, Any], None]
"""Raises ConfigError for an invalid value of a setting: called with its name and its parsed value."""

_WHOLE_NUMBERS: Mapping[Kind, int] = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. A `default` is a parsed value, None for a setting that may be absent, or REQUIRED."""

    name: str
    kind: Kind
    default: Any
    importance: Importance
    doc: str
    check: Check | None = None
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str | None = None
    recommended: Callable[[Mapping[str, str]], Sequence[Any]] | None = None
    """Returns the values to choose from, by the other settings as given."""

    def parse(self, text: str | None) -> Any:
        """Return the value of a text, of None the default. Raises ConfigError."""
        if text is None:
            if self.default is REQUIRED:
                raise ConfigError(f'Missing required configuration "{self.name}" which has no default value.')
            value = self.default
        else:
            value = parse(self.name, self.kind, text)
        if self.check is not None and value is not None:
            self.check(self.name, value)
        return value


@dataclass(frozen=True, slots=True)
class Problems:
    """What is wrong with the given values: the errors of each setting, in the order of the definition."""

    values: Mapping[str, Any]
    errors: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Definition:
    """Settings by name, in order."""

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        self.settings = {each.name: each for each in settings}

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings.values())

    def __add__(self, other: Definition) -> Definition:
        """Return the settings of both; those of `other` win."""
        return Definition((*self, *other))

    def parse(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the value of every setting. Raises ConfigError for the first problem."""
        return {each.name: each.parse(given.get(each.name)) for each in self}

    def validate(self, given: Mapping[str, str | None]) -> Problems:
        """Return all values that can be parsed, and all errors."""
        values: dict[str, Any] = {}
        errors: dict[str, Sequence[str]] = {}
        for each in self:
            try:
                values[each.name] = each.parse(given.get(each.name))
            except ConfigError as error:
                errors[each.name] = [str(error)]
        return Problems(values, errors)


def parse(name: str, kind: Kind, text: str) -> Any:
    """Return the value of a text. Raises ConfigError with Kafka's text."""
    trimmed = text.strip()
    if kind in _WHOLE_NUMBERS:
        limit = 1 << (_WHOLE_NUMBERS[kind] - 1)
        try:
            number = int(trimmed)
        except ValueError:
            number = limit
        if not -limit <= number < limit:
            raise ConfigError(_invalid(name, text, f"Not a number of type {kind.name}"))
        return number
    match kind:
        case Kind.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise ConfigError(_invalid(name, text, "Expected value to be either true or false"))
            return trimmed.lower() == "true"
        case Kind.DOUBLE:
            try:
                return float(trimmed)
            except ValueError:
                raise ConfigError(_invalid(name, text, "Not a number of type DOUBLE")) from None
        case Kind.LIST:
            return [part.strip() for part in trimmed.split(",")] if trimmed else []
        case Kind.PASSWORD:
            return text
        case _:
            return trimmed


def invalid(name: str, value: object, reason: str) -> ConfigError:
    """Return the error of a value that a check refuses."""
    return ConfigError(_invalid(name, value, reason))


def _invalid(name: str, value: object, reason: str) -> str:
    return f"Invalid value {value} for configuration {name}: {reason}"


def at_least(smallest: float) -> Check:
    def check(name: str, value: Any) -> None:
        if value < smallest:
            raise invalid(name, value, f"Value must be at least {smallest}")

    return check


def between(smallest: float, largest: float) -> Check:
    def check(name: str, value: Any) -> None:
        at_least(smallest)(name, value)
        if value > largest:
            raise invalid(name, value, f"Value must be no more than {largest}")

    return check


def one_of(*allowed: str) -> Check:
    def check(name: str, value: Any) -> None:
        for each in value if isinstance(value, list) else [value]:
            if each not in allowed:
                raise invalid(name, each, f"String must be one of: {', '.join(allowed)}")

    return check


def one_of_ignoring_case(*allowed: str) -> Check:
    def check(name: str, value: Any) -> None:
        if value.lower() not in {each.lower() for each in allowed}:
            raise invalid(name, value, f"String must be one of (case insensitive): {', '.join(allowed)}")

    return check


def not_empty(name: str, value: Any) -> None:
    if not value:
        raise invalid(name, value, "String must be non-empty")
