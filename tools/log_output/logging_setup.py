"""Where a program logs: to the appenders of a log4j.properties, or to the console alone.

Owns what the environment says about it: `KAFKA_LOG4J_OPTS=-Dlog4j.configuration=file:FILE` names the configuration,
`LOG_DIR` the folder of the files. Without the first, a server uses config/log4j.properties if `LOG_DIR` is set and
otherwise the console, and a tool config/tools-log4j.properties. Variables of Kafka's images change levels:
`KAFKA_LOG4J_ROOT_LOGLEVEL`, `KAFKA_LOG4J_LOGGERS=NAME=LEVEL,...` and `LOG4J_LOGGER_NAME` of a server,
`KAFKA_TOOLS_LOG4J_LOGLEVEL` of a tool. Must not know keys or patterns.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

import config
from base import properties
from config.log4j import LEVELS, Appender, LoggerPlan, LoggingPlan, read_plan, with_levels
from tools.log_output.log_files import LogWriter, install, install_in_background
from tools.log_output.state_folder import state_folder

STATE_CHANGES = ("state.change.logger", "kafka.coordinator.group.GroupCoordinator")
"""The loggers of partitions and of groups that change their state."""
OF_ENVIRONMENT = "level in the environment"
_LOGGER_PREFIX = "LOG4J_LOGGER_"
_FOLDER = os.path.dirname(config.__file__)
SHIPPED = os.path.join(_FOLDER, "log4j.properties")
SHIPPED_FOR_TOOLS = os.path.join(_FOLDER, "tools-log4j.properties")


def _console(level: str) -> LoggingPlan:
    """Return a plan that writes lines of at least a level to stderr."""
    return LoggingPlan(
        {"": LoggerPlan(LEVELS[level], ("console",))}, {"console": Appender("console", target="System.err")}
    )


def _console_of_server() -> LoggingPlan:
    """Return the plan of a server without log files. State changes are for files: they hide everything else."""
    plan = _console("INFO")
    return plan._replace(loggers={**plan.loggers, **dict.fromkeys(STATE_CHANGES, LoggerPlan(LEVELS["WARN"]))})


def start_logging(environment: Mapping[str, str], keep_count: int) -> LogWriter:
    """Send the log of a server where the environment says. `keep_count`: how many files of earlier periods are kept."""
    options = _options(environment.get("KAFKA_LOG4J_OPTS", ""))
    named, folder = _named(options), _folder(environment, options)
    levels = _levels(environment)
    if named is None and not folder:
        return install_in_background(with_levels(_console_of_server(), levels, OF_ENVIRONMENT), keep_count)
    try:
        plan = _plan(named or SHIPPED, options, folder)
    except (OSError, ValueError) as error:
        writer = install_in_background(with_levels(_console_of_server(), levels, OF_ENVIRONMENT), keep_count)
        _warn_unreadable(named or SHIPPED, error)
        return writer
    return install_in_background(with_levels(plan, levels, OF_ENVIRONMENT), keep_count)


def start_tool_logging(environment: Mapping[str, str]) -> None:
    """Send the log of a tool where the environment says, unless this process logs already."""
    if logging.getLogger().handlers:
        return
    options = _options(environment.get("KAFKA_LOG4J_OPTS", ""))
    path = _named(options) or SHIPPED_FOR_TOOLS
    level = environment.get("KAFKA_TOOLS_LOG4J_LOGLEVEL")
    try:
        plan = _plan(path, options, _folder(environment, options))
        install(with_levels(plan, {"": level} if level else {}, OF_ENVIRONMENT))
    except (OSError, ValueError) as error:
        install(_console("WARN"))
        _warn_unreadable(path, error)


def _levels(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the levels of a server's loggers in the environment; the root logger has the name ""."""
    levels = {
        variable.removeprefix(_LOGGER_PREFIX).lower().replace("_", "."): value
        for variable, value in environment.items()
        if variable.startswith(_LOGGER_PREFIX)
    }
    for entry in filter(None, map(str.strip, environment.get("KAFKA_LOG4J_LOGGERS", "").split(","))):
        name, _, level = entry.rpartition("=")
        levels[name] = level
    if root_level := environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL"):
        levels[""] = root_level
    return levels


def _plan(path: str, options: Mapping[str, str], folder: str) -> LoggingPlan:
    """Return the plan of a file; relative names of files are in `folder`, or where a daemon logs without one.

    Raises OSError, ValueError.
    """
    chosen = os.path.abspath(folder or state_folder() / "logs")
    plan = read_plan(properties.load(path), {**options, "kafka.logs.dir": chosen})
    appenders = {
        name: appender if appender.file is None else appender._replace(file=os.path.join(chosen, appender.file))
        for name, appender in plan.appenders.items()
    }
    warnings = list(plan.warnings)
    if not folder and any((appender.file or "").startswith(chosen + os.sep) for appender in appenders.values()):
        warnings.append(f"LOG_DIR is not set, so log files are in {chosen}")
    return LoggingPlan(plan.loggers, appenders, warnings)


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
