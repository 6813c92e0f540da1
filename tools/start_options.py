"""The command line and the environment of kafka-server-start: which settings they give, and where each came from.

Owns the options, the defaults of a start without a file, and the names of variables. Must not know what settings mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from config import properties
from config.addresses import LOOPBACK, PORT_MAX, host_and_port_problem
from config.broker import LISTENER_PREFIX, base_row
from config.broker_properties import (
    BROKER_ID,
    LISTENERS,
    LOG_DIRS,
    METRICS_HTTP_LISTENER,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
)
from config.definition import ConfigError
from tools.java_options import system_properties
from tools.state_folder import state_folder

DEFAULT_PORT = 9092

_SETTING_PREFIX, _ANY_SETTING_PREFIX = "KAFKA_", "KAFKA_CFG_"
CREATE_TOPICS = "KAFKA_CREATE_TOPICS"
_PREFIXES_OF_SETTINGS = (LISTENER_PREFIX, "config.providers.")
_NO_SETTINGS = {
    CREATE_TOPICS, "KAFKA_CLUSTER_ID", "KAFKA_DEBUG", "KAFKA_GC_LOG_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_HOME",
    "KAFKA_JMX_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_VERSION",
}  # fmt: skip

EPILOG = """\
Without FILE, one broker serves at localhost:9092, and keeps its data in the user's state folder.

examples:
  kafka-server-start                                     a broker with defaults, on this machine only
  kafka-server-start --port 9192 --data /tmp/mine        the same with another port and folder
  kafka-server-start config/server.properties            with Kafka's file of settings
  kafka-server-start server.properties --override log.retention.hours=1
  kafka-server-start --check server.properties           reports every error of a file, and starts nothing
  kafka-server-start -daemon server.properties           in the background, with a log file

Stop it with Ctrl-C or kafka-server-stop. docs/configuration.md describes the settings."""


class UsageError(Exception):
    """The command line is invalid; the text says what is missing."""


class StartOptions(NamedTuple):
    """What the command line says."""

    file: str | None
    defaults: Mapping[str, str]
    """The settings of a start without a file."""
    overrides: Mapping[str, str]
    is_check: bool
    shows_settings: bool
    uses_environment: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser() -> argparse.ArgumentParser:
    """Return the parser of kafka-server-start."""
    line = _Parser(
        "kafka-server-start",
        description="Starts a broker.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    line.add_argument("file", nargs="?", metavar="FILE", help="settings, as Kafka's server.properties")
    line.add_argument("-daemon", action="store_true", help="run in the background; must be the first option")
    line.add_argument(
        "--override", action="append", default=[], metavar="property=value", help="a setting that wins over FILE"
    )
    line.add_argument("--port", type=_port, metavar="PORT", help="without FILE: the port; 0 for any. Default: 9092")
    line.add_argument("--data", metavar="FOLDER", help="without FILE: the folder of the data")
    line.add_argument("--check", action="store_true", help="report all errors of the settings, and start nothing")
    line.add_argument("--settings", action="store_true", help="log the value of every setting at the start")
    line.add_argument(
        "--environment",
        action="store_true",
        help="also read settings from the variables KAFKA_* and KAFKA_CFG_*, and topics from KAFKA_CREATE_TOPICS",
    )
    line.add_argument("--version", action="store_true", help="print the versions of Kafka's protocol and of Milena")
    line.add_argument("--help", action="store_true", help="print this text")
    return line


def parse(arguments: Sequence[str]) -> StartOptions:
    """Return the options. Raises UsageError."""
    line = parser()
    options, unknown = line.parse_known_args(list(arguments))
    if unknown:
        raise UsageError(_unknown(line, unknown[0]))
    overrides: dict[str, str] = {}
    for assignment in options.override:
        key, equals, value = assignment.partition("=")
        if not key or not equals:
            raise UsageError(f"--override expects property=value, found '{assignment}'")
        overrides[key.strip()] = value
    if options.file is not None and (options.port is not None or options.data is not None):
        raise UsageError("--port and --data are for a start without FILE, which has listeners and log.dirs")
    defaults = default_settings(options.port, options.data) if options.file is None else {}
    given = {LISTENERS.name: options.port, LOG_DIRS.name: options.data}
    overrides = {**{name: defaults[name] for name, value in given.items() if value is not None}, **overrides}
    return StartOptions(options.file, defaults, overrides, options.check, options.settings, options.environment)


def default_settings(port: int | None, folder: str | None) -> dict[str, str]:
    """Return the settings of a single broker for this machine alone."""
    return {
        BROKER_ID.name: "0",
        LISTENERS.name: f"PLAINTEXT://localhost:{DEFAULT_PORT if port is None else port}",
        LOG_DIRS.name: str(state_folder() / "data") if folder is None else folder,
        OFFSETS_TOPIC_REPLICATION_FACTOR.name: "1",
        TRANSACTION_STATE_LOG_REPLICATION_FACTOR.name: "1",
        TRANSACTION_STATE_LOG_MIN_ISR.name: "1",
    }


def settings_of_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in `KAFKA_*` and `KAFKA_CFG_*`: KAFKA_LOG_DIRS and KAFKA_CFG_LOG_DIRS are log.dirs.

    As in Kafka's image, `_` stands for a dot, `__` for an underscore and `___` for a hyphen. A variable with the
    longer prefix is always a setting, so a wrong name is reported; one with the shorter is if its name is known.
    """
    settings: dict[str, str] = {}
    for variable, value in sorted(variables.items()):
        if variable in _NO_SETTINGS or not variable.startswith(_SETTING_PREFIX):
            continue
        is_any = variable.startswith(_ANY_SETTING_PREFIX)
        name = _setting_name(variable.removeprefix(_ANY_SETTING_PREFIX if is_any else _SETTING_PREFIX))
        if is_any or base_row(name) is not None or name.startswith(_PREFIXES_OF_SETTINGS):
            settings[name] = value
    return settings


def of_java_options(variables: Mapping[str, str]) -> dict[str, str]:
    """Return settings from JMX_PORT and KAFKA_OPTS, which Kafka's launchers read. Raises ConfigError."""
    settings = {}
    if port := variables.get("JMX_PORT"):
        if host_and_port_problem(f":{port}") is not None:
            raise ConfigError("JMX_PORT (environment)", port, f"Expected a port from 0 to {PORT_MAX}")
        settings[METRICS_HTTP_LISTENER.name] = f"{LOOPBACK}:{port}"
    return settings | system_properties(variables)


class NewTopic(NamedTuple):
    """One topic of KAFKA_CREATE_TOPICS."""

    name: str
    partitions: int
    replication_factor: int
    cleanup_policy: str | None


def topics_of_environment(variables: Mapping[str, str]) -> list[NewTopic]:
    """Return the topics in KAFKA_CREATE_TOPICS: name:partitions:replicas:cleanup policy, separated by commas.

    All but the name may be missing. Raises ConfigError.
    """
    return [_topic(entry) for entry in map(str.strip, variables.get(CREATE_TOPICS, "").split(",")) if entry]


def with_lines(error: Exception, options: StartOptions, lines: Mapping[str, int]) -> str:
    """Return the text of an error, with the place of its setting in the file if it has one."""
    if isinstance(error, ConfigError) and error.key in lines:
        return f"{options.file}:{lines[error.key]}: {error}"
    return str(error)


def lines_of(options: StartOptions) -> dict[str, int]:
    """Return the number of the line of each setting in the file that no override replaces."""
    if options.file is None:
        return {}
    numbers = properties.line_numbers(options.file)
    return {key: number for key, number in numbers.items() if key not in options.overrides}


def _topic(entry: str) -> NewTopic:
    name, *rest = entry.split(":")
    numbers, policy = rest[:2], rest[2:]
    if len(policy) > 1 or not name or not all(number.isdecimal() for number in numbers):
        expected = "Expected name:partitions:replicas:cleanup.policy, of which all but the name may be missing"
        raise ConfigError(f"{CREATE_TOPICS} (environment)", entry, expected)
    partitions, replication_factor, *_ = [*map(int, numbers), *[-1] * 2]
    return NewTopic(name, partitions, replication_factor, policy[0] if policy else None)


def _setting_name(text: str) -> str:
    return text.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text}: expected a port from 0 to {PORT_MAX}")
    return int(text)


def _unknown(line: argparse.ArgumentParser, argument: str) -> str:
    from difflib import get_close_matches  # a valid command line does not need it

    name = argument.partition("=")[0]
    known: Iterator[str] = (option for action in _actions(line) for option in action.option_strings)
    nearest = get_close_matches(name, known, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"{name.lstrip('-')} is not a recognized option{hint}"


def _actions(line: argparse.ArgumentParser) -> list[Any]:
    return line._actions
