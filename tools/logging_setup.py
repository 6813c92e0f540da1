"""Where a program logs: to the appenders of a log4j.properties, or to the console alone.

Owns what the environment says about it: `KAFKA_LOG4J_OPTS=-Dlog4j.configuration=file:FILE` names the configuration,
`LOG_DIR` the folder of the files. Without the first, a server uses config/log4j.properties if `LOG_DIR` is set and
otherwise the console, and a tool config/tools-log4j.properties. Must not know keys or patterns.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

import config
from config import properties
from config.log4j import LEVELS, Appender, LoggerPlan, LoggingPlan, read_plan
from tools.log_files import LogWriter, install, install_in_background

_FOLDER = os.path.dirname(config.__file__)
SHIPPED = os.path.join(_FOLDER, "log4j.properties")
SHIPPED_FOR_TOOLS = os.path.join(_FOLDER, "tools-log4j.properties")


def _console(level: str) -> LoggingPlan:
    """Return a plan that writes lines of at least a level to stderr."""
    return LoggingPlan(
        {"": LoggerPlan(LEVELS[level], ("console",))}, {"console": Appender("console", target="System.err")}
    )


def start_logging(environment: Mapping[str, str], keep_count: int) -> LogWriter:
    """Send the log of a server where the environment says. `keep_count`: how many files of earlier periods are kept."""
    options = _options(environment.get("KAFKA_LOG4J_OPTS", ""))
    named, folder = _named(options), _folder(environment, options)
    if named is None and not folder:
        return install_in_background(_console("INFO"), keep_count)
    try:
        plan = _plan(named or SHIPPED, options, folder)
    except (OSError, ValueError) as error:
        writer = install_in_background(_console("INFO"), keep_count)
        _warn_unreadable(named or SHIPPED, error)
        return writer
    return install_in_background(plan, keep_count)


def start_tool_logging(environment: Mapping[str, str]) -> None:
    """Send the log of a tool where the environment says, unless this process logs already."""
    if logging.getLogger().handlers:
        return
    options = _options(environment.get("KAFKA_LOG4J_OPTS", ""))
    path = _named(options) or SHIPPED_FOR_TOOLS
    try:
        install(_plan(path, options, _folder(environment, options)))
    except (OSError, ValueError) as error:
        install(_console("WARN"))
        _warn_unreadable(path, error)


def _plan(path: str, options: Mapping[str, str], folder: str) -> LoggingPlan:
    """Raises OSError, ValueError."""
    return read_plan(properties.load(path), {**options, "kafka.logs.dir": folder or "logs"})


def _warn_unreadable(path: str, error: OSError | ValueError) -> None:
    reason = error.strerror if isinstance(error, OSError) else error
    logging.getLogger("kafka.server.KafkaServer").warning(
        "cannot read %s (KAFKA_LOG4J_OPTS): %s; logging to the console", path, reason
    )


def _named(options: Mapping[str, str]) -> str | None:
    return options.get("log4j.configuration", "").removeprefix("file:") or None


def _folder(environment: Mapping[str, str], options: Mapping[str, str]) -> str:
    return options.get("kafka.logs.dir") or environment.get("LOG_DIR") or ""


def _options(text: str) -> dict[str, str]:
    """Return the `-Dname=value` options of a JVM."""
    found = (word[2:].partition("=") for word in text.split() if word.startswith("-D"))
    return {name: value for name, _, value in found}
