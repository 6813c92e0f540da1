"""The command line and the environment of kafka-server-start: which settings they give, and where each came from.

Owns the options, the defaults of a start without a file, and the names of variables. Must not know what settings mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from argparse import ArgumentParser

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


class Option(NamedTuple):
    """One option. With a `metavar` it takes a value, and may be repeated."""

    name: str
    metavar: str | None
    help: str


FILE_HELP = "settings, as Kafka's server.properties"
OPTIONS = (
    Option("-daemon", None, "run in the background; must be the first option"),
    Option("--override", "property=value", "a setting that wins over FILE"),
    Option("--port", "PORT", "without FILE: the port; 0 for any. Default: 9092"),
    Option("--data", "FOLDER", "without FILE: the folder of the data"),
    Option("--check", None, "report all errors of the settings, and start nothing"),
    Option("--settings", None, "log the value of every setting at the start"),
    Option(
        "--environment",
        None,
        "also read settings from the variables KAFKA_* and KAFKA_CFG_*, and topics from KAFKA_CREATE_TOPICS",
    ),
    Option("--version", None, "print the versions of Kafka's protocol and of Milena"),
    Option("--help", None, "print this text"),
)
_BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}


def parser() -> ArgumentParser:
    """Return a parser with the options, for the help: `argparse` would take a fortieth of each start."""
    from argparse import ArgumentParser, RawDescriptionHelpFormatter

    line = ArgumentParser(
        "kafka-server-start",
        description="Starts a broker.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    line.add_argument("file", nargs="?", metavar="FILE", help=FILE_HELP)
    for name, metavar, text in OPTIONS:
        if metavar is None:
            line.add_argument(name, action="store_true", help=text)
        else:
            line.add_argument(name, action="append", default=[], metavar=metavar, help=text)
    return line


def read(arguments: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the words that belong to no option, and by name the values of the given options.

    A value follows its option, or `=`; it begins with `-` only as a number. Raises UsageError.
    """
    words: list[str] = []
    given: dict[str, list[str]] = {}
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            words += left
            break
        if not argument.startswith("-") or argument == "-":
            words.append(argument)
            continue
        name, equals, value = argument.partition("=")
        option = _BY_NAME.get(name)
        if option is None:
            raise UsageError(_unknown(name))
        if option.metavar is None:
            if equals:
                raise UsageError(f"argument {name}: expected no value, found {value!r}")
        elif not equals:
            value = next(left, "-")
            if value.startswith("-") and not value[1:].isdecimal():
                raise UsageError(f"argument {name}: expected one argument")
        given.setdefault(name, []).append(value)
    return words, given


def parse(arguments: Sequence[str]) -> StartOptions:
    """Return the options. Raises UsageError."""
    words, given = read(arguments)
    if len(words) > 1:
        raise UsageError(_unknown(words[1]))
    file = words[0] if words else None
    overrides: dict[str, str] = {}
    for assignment in given.get("--override", ()):
        key, equals, value = assignment.partition("=")
        if not key or not equals:
            raise UsageError(f"--override expects property=value, found '{assignment}'")
        overrides[key.strip()] = value
    port = _port(given["--port"][-1]) if "--port" in given else None
    data = given["--data"][-1] if "--data" in given else None
    if file is not None and (port is not None or data is not None):
        raise UsageError("--port and --data are for a start without FILE, which has listeners and log.dirs")
    defaults = default_settings(port, data) if file is None else {}
    named = {LISTENERS.name: port, LOG_DIRS.name: data}
    overrides = {**{name: defaults[name] for name, value in named.items() if value is not None}, **overrides}
    return StartOptions(
        file,
        defaults,
        overrides,
        is_check="--check" in given,
        shows_settings="--settings" in given,
        uses_environment="--environment" in given,
    )


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
        raise UsageError(f"argument --port: {text}: expected a port from 0 to {PORT_MAX}")
    return int(text)


def _unknown(argument: str) -> str:
    from difflib import get_close_matches  # a valid command line does not need it

    name = argument.partition("=")[0]
    nearest = get_close_matches(name, _BY_NAME, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"{name.lstrip('-')} is not a recognized option{hint}"
