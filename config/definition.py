"""The definition of a setting: name, type, default, validator and update mode; parsing and formatting of its value.

The tables of settings are in `broker_properties` and `topic_properties`. Everything else (reading a file,
DescribeConfigs, the documentation) iterates over these tables. Must not know any particular setting.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from math import isfinite
from typing import Generic, Protocol, TypeVar, cast, overload

from config.validators import Validator

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

HIDDEN = "[hidden]"


class ConfigError(ValueError):
    """One invalid setting. The message is one line with the key, the value and what was expected."""

    def __init__(self, key: str, value: str | None, expected: str) -> None:
        shown = "null" if value is None else _shortened(value)
        super().__init__(_one_line(f"Invalid value {shown} for configuration {key}: {_shortened(expected)}"))
        self.key = key
        self.value = value
        self.expected = expected


SHOWN_MAX = 2_000
"""How many characters of a value, and of what was expected, an error message has."""


def _one_line(text: str) -> str:
    """Return the text with line ends and other invisible characters escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


class UnknownTopicConfigError(ConfigError):
    """The key is not a topic configuration."""

    def __init__(self, key: str, value: str | None) -> None:
        super().__init__(key, value, "a topic configuration")
        self.args = (f"Unknown topic config name: {key}",)


class ConfigErrors(ValueError):  # noqa: N818 - the plural marks a collection of errors
    """All errors in one set of settings, one per line. `warnings` are about its other keys."""

    def __init__(self, errors: list[ConfigError], warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
        self.warnings = tuple(warnings)


class ConfigType(IntEnum):
    """The types of values, with the numbers of a DescribeConfigs response."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    """The source of a value, with the numbers of a DescribeConfigs response."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class UpdateMode(Enum):
    """Whether a setting can change without a restart, and for which brokers."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    PER_BROKER = "per-broker"


class Importance(Enum):
    """Kafka's three levels of importance."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Visibility(Enum):
    """How a setting appears in a DescribeConfigs response.

    DESCRIBED: as it is. WHEN_SET: as it is, but only if it is set. FOREIGN: only if it is set, as an unknown and
    sensitive key, because Kafka treats it as a plug-in's or does not know it. INTERNAL: never.
    """

    DESCRIBED = "described"
    WHEN_SET = "when set"
    FOREIGN = "foreign"
    INTERNAL = "internal"


class NoEffect(Enum):
    """Why the broker accepts a setting but ignores it. The value is the reason as shown to operators."""

    ZOOKEEPER = "it names a Java class; TLS to ZooKeeper needs only zookeeper.ssl.client.enable"
    ALL_IN_SYNC = "a commit always waits for all in-sync replicas"
    SASL = (
        "the logins of all mechanisms are built in, and have no steps that a class could replace; the classes of "
        "sasl.login.callback.handler.class and sasl.client.callback.handler.class supply what they send"
    )
    KINIT = (
        "brokers get and renew their tickets from a keytab in this process, so there is no step that a program could "
        "do; a ticket cache is renewed by its owner, as by kinit -R or k5start"
    )
    WINDOWS = "the throttle of moves between log directories spreads the bytes evenly, without samples"
    ALL_RECORDED = "the broker records all its metrics at any level"
    JMX = "there is no JMX; metrics.http.listener serves the same objects as JSON"
    TIERED_STORAGE = "tiered storage is not supported, see docs/not-yet.md"
    JAVA = "it is an option of the Java platform, which the broker does not use"
    ONE_EVENT_LOOP = (
        "one event loop serves all connections, because Python runs one thread at a time: more threads would only "
        "wait for each other. To use more processors, run more brokers"
    )
    KRAFT = "it belongs to Kafka's KRaft mode; the broker serves what Kafka serves in ZooKeeper mode"
    RECORD_FORMAT = "it is deprecated, records are always stored in record format version 2"
    NOT_PER_LISTENER = "the broker reads this setting only without the prefix of a listener"


class Password:
    """A secret whose repr is hidden, so that log lines and error messages cannot show it by accident."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Property(Generic[T_co]):
    """One setting. Each setting has one row object, and rows are compared by identity.

    `synonyms` lists, in order of precedence and including the setting itself, the names that give one value in
    different units; it is empty if there are no others. `no_effect` is the reason why no code outside `config` reads
    the setting, or None if some does. A test compares it with the source.
    """

    name: str
    type: ConfigType
    default: T_co
    update_mode: UpdateMode
    importance: Importance
    doc: str
    validator: Validator | None = None
    synonyms: tuple[str, ...] = ()
    visibility: Visibility = Visibility.DESCRIBED
    no_effect: NoEffect | None = None

    @property
    def valid_values(self) -> str:
        """The accepted values in short; empty if every value of the type is accepted."""
        return "" if self.validator is None else self.validator.describe()

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> T_co:
        """Parse and validate a text.

        Raises:
            ConfigError: the value is invalid.
        """
        trimmed = text.strip()
        shown = HIDDEN if self.is_sensitive else trimmed
        value, expected = _PARSERS[self.type](trimmed)
        if expected is None and self.validator is not None:
            expected = self.validator.problem(value)
        if expected is not None:
            raise ConfigError(self.name, shown, expected)
        return cast(T_co, value)


class Settings(Protocol):
    """Typed values by row, as the rules between settings read them."""

    def __getitem__(self, row: Property[T]) -> T:
        """Return the effective value."""

    def is_set(self, row: Property[object]) -> bool:
        """Return whether the value was set, rather than taken from the table's defaults."""


class Rows(Generic[T]):
    """Builds the rows of one type, so that a table reads as a table. A default of None makes the value optional."""

    def __init__(self, config_type: ConfigType) -> None:
        self._type = config_type

    @overload
    def __call__(
        self,
        name: str,
        default: T,
        update_mode: UpdateMode,
        importance: Importance,
        validator: Validator | None = None,
        *,
        doc: str,
        synonyms: tuple[str, ...] = (),
        visibility: Visibility = Visibility.DESCRIBED,
        no_effect: NoEffect | None = None,
    ) -> Property[T]: ...

    @overload
    def __call__(
        self,
        name: str,
        default: None,
        update_mode: UpdateMode,
        importance: Importance,
        validator: Validator | None = None,
        *,
        doc: str,
        synonyms: tuple[str, ...] = (),
        visibility: Visibility = Visibility.DESCRIBED,
        no_effect: NoEffect | None = None,
    ) -> Property[T | None]: ...

    def __call__(
        self,
        name: str,
        default: T | None,
        update_mode: UpdateMode,
        importance: Importance,
        validator: Validator | None = None,
        *,
        doc: str,
        synonyms: tuple[str, ...] = (),
        visibility: Visibility = Visibility.DESCRIBED,
        no_effect: NoEffect | None = None,
    ) -> Property[T] | Property[T | None]:
        return Property(
            name, self._type, default, update_mode, importance, doc, validator, synonyms, visibility, no_effect
        )


def text_of(value: object) -> str | None:
    """Format a typed value as Kafka does: lists with commas, numbers as in Java, secrets hidden."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _java_double(value)
        case tuple():
            return ",".join(str(element) for element in value)
        case _:
            return str(value)


def _java_double(value: float) -> str:
    """Format a double as Java does, which uses exponents from other magnitudes than Python, and an E."""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)  # position of the decimal point in `digits`
    digits = digits.rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    if value == 0:
        return "0.0"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    digits = digits.ljust(point, "0")
    return f"{sign}{digits[:point]}.{digits[point:] or '0'}"


_Parsed = tuple[object, str | None]
_WHOLE_NUMBER = r"[+-]?[0-9]+"
_DECIMAL_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?"
_COMMA = r"\s*,\s*"


def _parse_whole_number(bits: int, type_name: str) -> Callable[[str], _Parsed]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def parse(text: str) -> _Parsed:
        # Check the length first: int() of a million digits takes minutes.
        if len(text) <= 40 and re.fullmatch(_WHOLE_NUMBER, text, re.ASCII) and low <= (value := int(text)) <= high:
            return value, None
        return None, f"Not a number of type {type_name}"

    return parse


def _parse_double(text: str) -> _Parsed:
    if (
        len(text) <= 400
        and re.fullmatch(_DECIMAL_NUMBER, text, re.ASCII)
        and isfinite(value := float(text.rstrip("dDfF")))
    ):
        return value, None
    return None, "Not a number of type DOUBLE"


def _parse_boolean(text: str) -> _Parsed:
    match text.lower():
        case "true":
            return True, None
        case "false":
            return False, None
        case _:
            return None, "Expected value to be either true or false"


def _parse_list(text: str) -> _Parsed:
    return tuple(re.split(_COMMA, text)) if text else (), None


def _parse_string(text: str) -> _Parsed:
    return text, None


def _parse_password(text: str) -> _Parsed:
    return Password(text), None


_PARSERS: Mapping[ConfigType, Callable[[str], _Parsed]] = {
    ConfigType.UNKNOWN: _parse_string,
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_string,
    ConfigType.INT: _parse_whole_number(32, "INT"),
    ConfigType.SHORT: _parse_whole_number(16, "SHORT"),
    ConfigType.LONG: _parse_whole_number(64, "LONG"),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_string,
    ConfigType.PASSWORD: _parse_password,
}
