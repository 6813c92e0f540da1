"""The broker's loggers as Kafka's BROKER_LOGGER resources: names and levels.

Owns: how Python's levels and Kafka's correspond. Loggers carry Kafka's names, so that the same tools address them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from config.definition import ConfigType, Source
from config.describe import ConfigRow
from protocol.errors import ErrorCode, KafkaError

ROOT = "root"
TRACE, OFF = 5, 60

KAFKA_LEVELS = {
    TRACE: "TRACE",
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
    OFF: "OFF",
}
# Named in the logging configuration that Kafka ships, so that tools and manuals address them before anything is logged.
ALWAYS_KNOWN = (
    "kafka",
    "kafka.authorizer.logger",
    "kafka.controller",
    "kafka.log.LogCleaner",
    "kafka.network.RequestChannel$",
    "kafka.request.logger",
    "org.apache.kafka",
    "state.change.logger",
)
LEVELS_BY_WORD = {word: level for level, word in KAFKA_LEVELS.items() if level != OFF}
"""The levels that a request may set: the file of log4j may name OFF, a request may not, as in Kafka."""


def describe_loggers(names: Collection[str] | None = None) -> list[ConfigRow]:
    """Return the effective level of every logger, or of those in `names` that exist."""
    return [
        ConfigRow(
            name=name,
            value=level_of(name),
            needs_restart=False,
            source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            synonyms=(),
            type=ConfigType.STRING,
            documentation="",
        )
        for name in sorted(_known() if names is None else _known().intersection(names))
    ]


def level_of(name: str) -> str:
    """Return the effective level of a logger in Kafka's words; between two of these, the stricter one."""
    level = _logger(name).getEffectiveLevel()
    return next((word for known, word in KAFKA_LEVELS.items() if level <= known), "OFF")


def change_levels(words: Mapping[str, str | None], *, validate_only: bool = False) -> None:
    """Set levels by logger; with None a logger inherits its parent's level again. Changes all or none.

    Raises KafkaError: INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for a root without level.
    """
    for name, word in words.items():
        _check_level(name, word)
    if not validate_only:
        for name, word in words.items():
            _logger(name).setLevel(logging.NOTSET if word is None else LEVELS_BY_WORD[word])


def _check_level(name: str, word: str | None) -> None:
    if name not in _known():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if word is None and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
    if word is not None and word not in LEVELS_BY_WORD:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {word} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS_BY_WORD))}",
        )


def _known() -> set[str]:
    """Return the names of all loggers, and of those that may be addressed before they exist."""
    loggers = logging.root.manager.loggerDict.items()
    return {ROOT, *ALWAYS_KNOWN, *(name for name, logger in loggers if isinstance(logger, logging.Logger))}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
