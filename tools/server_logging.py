"""Where a server logs: to the files of a log4j.properties, or to the console alone.

Owns what the environment says about it: `KAFKA_LOG4J_OPTS=-Dlog4j.configuration=file:FILE` names the configuration,
`LOG_DIR` the folder of the files. With `LOG_DIR` alone, config/log4j.properties is used; with neither, the console.
Must not know keys or patterns.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import config
from config import properties
from config.log4j import LEVELS, Appender, LoggerPlan, LoggingPlan, read_plan
from tools.log_files import LogWriter, install

SHIPPED = Path(config.__file__).parent / "log4j.properties"
CONSOLE = LoggingPlan(
    {"": LoggerPlan(LEVELS["INFO"], ("console",))}, {"console": Appender("console", target="System.err")}
)


def start_logging(environment: Mapping[str, str], keep_count: int) -> LogWriter:
    """Send the log where the environment says. `keep_count`: how many files of earlier periods are kept."""
    options = _options(environment.get("KAFKA_LOG4J_OPTS", ""))
    folder = options.get("kafka.logs.dir") or environment.get("LOG_DIR") or ""
    named = options.get("log4j.configuration", "").removeprefix("file:")
    if not named and not folder:
        return install(CONSOLE, keep_count)
    path = Path(named) if named else SHIPPED
    try:
        plan = read_plan(properties.load(path), {**options, "kafka.logs.dir": folder or "logs"})
    except (OSError, ValueError) as error:
        writer = install(CONSOLE, keep_count)
        reason = error.strerror if isinstance(error, OSError) else error
        logging.getLogger("kafka.server.KafkaServer").warning(
            "cannot read %s (KAFKA_LOG4J_OPTS): %s; logging to the console", path, reason
        )
        return writer
    return install(plan, keep_count)


def _options(text: str) -> dict[str, str]:
    """Return the `-Dname=value` options of a JVM."""
    found = (word[2:].partition("=") for word in text.split() if word.startswith("-D"))
    return {name: value for name, _, value in found}
