"""Levels of loggers, under Kafka's names of levels (KIP-495, KIP-976).

Owns the names of levels and when they were changed. Must not know who asks.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from spark_jobs.connect.base.errors import ConfigError, NotFoundError

LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}
_NAMES: Final = {number: name for name, number in LEVELS.items()}
ROOT: Final = "root"
_changed_ms: dict[str, int] = {}


def level_of(name: str) -> dict[str, object]:
    """Return level and time of the last change of a logger. Raises NotFoundError for one that does not exist."""
    if name != ROOT and name not in logging.Logger.manager.loggerDict:
        raise NotFoundError(f"Logger {name} not found.")
    return _described(name)


def levels() -> dict[str, dict[str, object]]:
    """Return the loggers that have a level of their own, and the root."""
    names = [
        name
        for name, found in list(logging.Logger.manager.loggerDict.items())  # other threads add loggers
        if isinstance(found, logging.Logger) and found.level
    ]
    return {name: _described(name) for name in sorted([*names, ROOT])}


def set_level(name: str, level: str) -> list[str]:
    """Set the level of a logger and of those below it; return their names. Raises ConfigError for an unknown level."""
    if level.upper() not in LEVELS:
        raise ConfigError(f"invalid log level '{level}': expected one of {', '.join(LEVELS)}")
    names = [name, *_below(name)]
    for each in names:
        _logger(each).setLevel(LEVELS[level.upper()])
        _changed_ms[each] = time.time_ns() // 1_000_000
    return names


def _below(name: str) -> list[str]:
    """Return the loggers that inherit from one; of the root those that have a level of their own."""
    found = dict(logging.Logger.manager.loggerDict)
    if name == ROOT:
        return sorted(each for each, kept in found.items() if isinstance(kept, logging.Logger) and kept.level)
    return sorted(each for each in found if each.startswith(f"{name}."))


def _described(name: str) -> dict[str, object]:
    number = _logger(name).getEffectiveLevel()
    return {"level": _NAMES.get(number, logging.getLevelName(number)), "last_modified": _changed_ms.get(name)}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
