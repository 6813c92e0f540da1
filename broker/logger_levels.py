"""The broker's loggers as Kafka's BROKER_LOGGER resources: names and levels.

Owns: how Python's levels and Kafka's correspond. Loggers carry Kafka's names, so that the same tools address them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from config.definition import ConfigType, Source
from config.describe import ConfigRow

ROOT = "root"
TRACE = 5

KAFKA_LEVELS = {
    TRACE: "TRACE",
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}


def describe_loggers(names: Collection[str] | None = None) -> list[ConfigRow]:
    """Every logger with its effective level, or those of `names` that exist."""
    known = [name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]
    return [
        ConfigRow(
            name=name,
            value=level_of(name),
            read_only=False,
            source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            synonyms=(),
            type=ConfigType.STRING,
            documentation="",
        )
        for name in sorted([*known, ROOT])
        if names is None or name in names
    ]


def level_of(name: str) -> str:
    """The effective level of a logger in Kafka's words; the next stricter one when it lies between two."""
    level = logging.getLogger(None if name == ROOT else name).getEffectiveLevel()
    return next((word for known, word in KAFKA_LEVELS.items() if level <= known), "FATAL")
