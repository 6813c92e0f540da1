"""The command line of kafka-server-start: which settings it gives, and where each setting came from.

Owns the options, and the defaults of a start without a file. Must not know what settings mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from base import properties
from config import old_names
from config.addresses import PORT_MAX
from config.broker_properties import (
    ADVERTISED_LISTENERS,
    BROKER_ID,
    LISTENERS,
    LOG_DIR,
    LOG_DIRS,
    NODE_ID,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTION_STATE_LOG_MIN_ISR,
    TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
)
from config.definition import ConfigError
from tools.launch.running_servers import RUN_FOLDER
from tools.log_output.state_folder import state_folder

if TYPE_CHECKING:
    from argparse import ArgumentParser

DEFAULT_PORT = 9092

NAMES_OF_BOUND, NAMES_OF_ADVERTISED = map(frozenset, old_names.ADDRESSES)
_NAMES_OF_ONE_SETTING = (
    frozenset((BROKER_ID.name, NODE_ID.name)),
    frozenset((LOG_DIRS.name, LOG_DIR.name)),
    NAMES_OF_BOUND,
    NAMES_OF_ADVERTISED,
)

EPILOG = """\
Without FILE, one broker serves at localhost:9092, and keeps its data in the user's state folder.

examples:
  kafka-server-start                               a broker with defaults, on this machine only
  kafka-server-start --port 9192 --data /tmp/mine  the same with another port and folder
  kafka-server-start config/server.properties      with Kafka's file of settings
  kafka-server-start server.properties --override log.retention.hours=1
  kafka-server-start --check server.properties     reports every error of a file, starts nothing
  kafka-server-start -daemon server.properties     in the background, with a log file

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
    run_folder: Path
    """Where the broker registers as a running one."""


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
        "also read settings from variables, as Kafka's images do: KAFKA_*, KAFKA_CFG_*, KAFKA_CREATE_TOPICS and others",
    ),
    Option("--run-folder", "FOLDER", "where the broker registers itself, instead of where kafka-server-stop finds it"),
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
    for option, names in (("--port", NAMES_OF_BOUND), ("--data", {LOG_DIRS.name, LOG_DIR.name})):
        if option in given and (both := names & overrides.keys()):
            raise UsageError(f"{option} and --override {min(both)} are the same setting: give one of them")
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
        run_folder=Path(given["--run-folder"][-1]) if "--run-folder" in given else RUN_FOLDER,
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


def without_overruled(lower: Mapping[str, str], higher: Iterable[str]) -> dict[str, str]:
    """Return the settings of a lower layer that no name of a higher one replaces: node.id replaces broker.id, too."""
    replaced = set(higher)
    for names in _NAMES_OF_ONE_SETTING:
        if not names.isdisjoint(replaced):
            replaced |= names
    return {key: value for key, value in lower.items() if key not in replaced}


def applicable(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults that the given settings leave. Advertised addresses are those of the default listeners."""
    left = without_overruled(defaults, given)
    if not NAMES_OF_BOUND.isdisjoint(given):
        left.pop(ADVERTISED_LISTENERS.name, None)
    return left


def with_place(error: Exception, places: Mapping[str, str]) -> str:
    """Return the text of an error, with the place of its setting if it has one."""
    if isinstance(error, ConfigError) and error.key in places:
        return f"{places[error.key]}: {error}"
    return str(error)


def places_of(options: StartOptions, variables: Mapping[str, str]) -> dict[str, str]:
    """Return where each setting is given: at a line of the file, or in the variable that `variables` has for it.

    Settings that an override replaces have no place.
    """
    lines = {} if options.file is None else properties.line_numbers(options.file)
    places = {key: f"{options.file}:{line}" for key, line in lines.items()} | dict(variables)
    return {key: place for key, place in places.items() if key not in options.overrides}


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
