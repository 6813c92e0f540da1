"""Read log4j.properties: which loggers write at which level to which files.

Owns the keys and patterns of log4j 1 that are understood. Must not know Python's logging, or open files.

Keys and values that are not understood give a warning and have no effect, because files are shared with Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {"ALL": 0, "TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50, "OFF": 60}
)
"""By word, as numbers that Python's logging compares."""
DEFAULT_PATTERN: Final = "[%d] %p %m (%c)%n"
_PREFIX: Final = "log4j."
_CLASSES: Final = frozenset(
    {"ConsoleAppender", "FileAppender", "RollingFileAppender", "DailyRollingFileAppender", "NullAppender"}
)
_DATE_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "a": "%p"}
)
_DATE_PART: Final = r"'(?P<text>[^']*)'|(?P<field>yyyy|MM|dd|HH|mm|ss|a)|(?P<other>[^a-zA-Z'])"
_PATTERN_PART = r"%(?P<width>-?\d*(?:\.\d+)?)(?P<letter>[a-zA-Z%])(?:\{(?P<option>[^}]*)\})?|[^%]+"
PATTERN_LETTERS: Final = frozenset("cCdmnptr%xXL")
_SIZES: Final[Mapping[str, int]] = MappingProxyType({"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30})


class Appender(NamedTuple):
    """Where lines go. `file` is None for the console."""

    name: str
    file: str | None = None
    target: str = "System.out"
    pattern: str = DEFAULT_PATTERN
    date_suffix: str = ""
    """As strftime has it: a file is renamed when the suffix of the present time changes. Empty: it never is."""
    size_max: int = 0
    """Bytes after which a file is renamed; 0: never."""
    backup_count: int = 1
    threshold: int = 0
    is_null: bool = False


class LoggerPlan(NamedTuple):
    """The level of one logger, None if it inherits its parent's, and the names of its appenders."""

    level: int | None = None
    appenders: tuple[str, ...] = ()
    is_additive: bool = True
    """Whether the appenders of its parents get its lines too."""


class LoggingPlan(NamedTuple):
    """All that a file asks for. The root logger has the name ""."""

    loggers: Mapping[str, LoggerPlan]
    appenders: Mapping[str, Appender]
    warnings: Sequence[str] = ()


def read_plan(properties: Mapping[str, str], variables: Mapping[str, str]) -> LoggingPlan:
    """Return what the properties ask for. `variables` replace `${name}`; unknown ones become empty."""
    warnings: list[str] = []
    values = {key: _substituted(value, {**properties, **variables}) for key, value in properties.items()}
    loggers: dict[str, LoggerPlan] = {}
    additivity: dict[str, bool] = {}
    appender_keys: dict[str, dict[str, str]] = {}
    for key, value in values.items():
        section, _, name = key.removeprefix(_PREFIX).partition(".")
        if not key.startswith(_PREFIX):
            continue  # a variable
        if section in ("rootLogger", "rootCategory"):
            loggers[""] = _logger(key, value, warnings)
        elif section in ("logger", "category") and name:
            loggers[name] = _logger(key, value, warnings)
        elif section == "additivity" and name:
            additivity[name] = value.lower() != "false"
        elif section == "appender" and name:
            appender, _, option = name.partition(".")
            appender_keys.setdefault(appender, {})[option] = value
        else:
            warnings.append(f"{key} is not understood and has no effect")
    appenders = {name: _appender(name, options, warnings) for name, options in appender_keys.items()}
    for name, is_additive in additivity.items():
        plan = loggers.get(name, LoggerPlan())
        loggers[name] = LoggerPlan(plan.level, plan.appenders, is_additive)
    for name, plan in loggers.items():
        missing = [each for each in plan.appenders if each not in appenders]
        warnings += [f"the logger {name or 'root'} names the appender {each}, which is not defined" for each in missing]
    return LoggingPlan(loggers, appenders, warnings)


def with_levels(plan: LoggingPlan, levels: Mapping[str, str], source: str) -> LoggingPlan:
    """Return a plan in which loggers have other levels, by name and word. `source` is named in warnings."""
    warnings = list(plan.warnings)
    loggers = dict(plan.loggers)
    for name, value in levels.items():
        level = _logger(f"{source}: {name or 'root'}", value, warnings).level
        if level is not None:
            loggers[name] = loggers.get(name, LoggerPlan())._replace(level=level)
    return LoggingPlan(loggers, plan.appenders, warnings)


def pattern_parts(pattern: str) -> Iterator[tuple[str, str, str]]:
    """Yield the parts of a conversion pattern: the letter, "" for a text; the width or text; the option in braces."""
    for found in re.finditer(_PATTERN_PART, pattern):
        if found["letter"] is None:
            yield "", found[0], ""
        else:
            yield found["letter"], found["width"], found["option"] or ""


def date_format(pattern: str) -> str | None:
    """Return a date pattern of Java as strftime has it; None if it has fields that are not understood."""
    parts: list[str] = []
    position = 0
    parser = re.compile(_DATE_PART)
    while position < len(pattern):
        found = parser.match(pattern, position)
        if found is None:
            return None
        if found["field"]:
            parts.append(_DATE_FIELDS[found["field"]])
        else:
            parts.append((found["text"] if found["text"] is not None else found["other"]).replace("%", "%%"))
        position = found.end()
    return "".join(parts)


def _logger(key: str, value: str, warnings: list[str]) -> LoggerPlan:
    word, *appenders = (part.strip() for part in value.split(","))
    level = LEVELS.get(word.upper())
    if word and level is None and word.upper() not in ("INHERITED", "NULL"):
        warnings.append(f"{key}: {word} is no level; expected {', '.join(LEVELS)}")
    return LoggerPlan(level, tuple(filter(None, appenders)))


def _appender(name: str, options: Mapping[str, str], warnings: list[str]) -> Appender:
    key = f"{_PREFIX}appender.{name}"
    fields: dict[str, object] = {}
    class_name = options.get("", "").rpartition(".")[2]
    if class_name not in _CLASSES:
        warnings.append(f"{key}={options.get('', '')} is not understood; its lines go to the console")
        class_name = "ConsoleAppender"
    fields["is_null"] = class_name == "NullAppender"
    readers = _FILE_OPTIONS if class_name.endswith("FileAppender") else _CONSOLE_OPTIONS
    for option, value in options.items():
        reader = readers.get(option[:1].lower() + option[1:])
        if not option or option in ("layout", "Append", "ImmediateFlush", "Encoding", "encoding"):
            continue
        if reader is None:
            warnings.append(f"{key}.{option} is not understood and has no effect")
            continue
        field_name, parse = reader
        parsed = parse(value)
        if parsed is None:
            warnings.append(f"{key}.{option}={value} is not understood and has no effect")
        else:
            fields[field_name] = parsed
    if class_name == "DailyRollingFileAppender":
        fields.setdefault("date_suffix", ".%Y-%m-%d")
    if class_name == "RollingFileAppender":
        fields.setdefault("size_max", 10 << 20)
    if class_name.endswith("FileAppender") and "file" not in fields:
        warnings.append(f"{key} has no File; its lines go to the console")
    return Appender(name, **fields)  # type: ignore[arg-type]


def _size(text: str) -> int | None:
    found = re.fullmatch(r"\s*(\d+)\s*(KB|MB|GB|)\s*", text.upper())
    return None if found is None else int(found[1]) * _SIZES[found[2]]


def _count(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _pattern(text: str) -> str | None:
    return text if all(letter in PATTERN_LETTERS for letter, _, _ in pattern_parts(text) if letter) else None


def _level(text: str) -> int | None:
    return LEVELS.get(text.strip().upper())


_Reader = tuple[str, Callable[[str], object]]
_COMMON: Final[Mapping[str, _Reader]] = {
    "layout.ConversionPattern": ("pattern", _pattern),
    "layout.conversionPattern": ("pattern", _pattern),
    "threshold": ("threshold", _level),
}
_CONSOLE_OPTIONS: Final[Mapping[str, _Reader]] = {**_COMMON, "target": ("target", str.strip)}
_FILE_OPTIONS: Final[Mapping[str, _Reader]] = {
    **_COMMON,
    "file": ("file", str.strip),
    "datePattern": ("date_suffix", date_format),
    "maxFileSize": ("size_max", _size),
    "maxBackupIndex": ("backup_count", _count),
}


def _substituted(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$\{([^}]*)\}", lambda found: variables.get(found[1], ""), text)
