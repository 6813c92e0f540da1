"""milena: runs a broker in the background for a shell or a CI job, and stops it.

Owns the command line and what it prints. Must not know how a broker starts, or how topics get their records.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from config.addresses import PORT_MAX
from protocol.errors import KafkaError
from tools.base.command_line import CommandLine, UnreachableError, UsageError, run_tool
from tools.base.sub_commands import SubCommand, SubCommands
from tools.client.admin_client import CallTimedOut
from tools.launch.background.broker_folder import (
    BrokerFolder,
    ForeignFolderError,
    ServingBroker,
    StartFailed,
    StillRuns,
)
from tools.launch.background.first_topics import Done, TopicsFailed, parse_topic, prepare, read_seed
from tools.launch.server_stop import send_signal
from tools.launch.start_options import DEFAULT_PORT

FOLDER = ".milena"
VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
TIMEOUT_S = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a port from 0 to {PORT_MAX}")
    return int(text)


def _override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: expected property=value")
    return key.strip(), value


_DIR = {
    "metavar": "FOLDER",
    "type": Path,
    "default": Path(FOLDER),
    "help": f"Where the broker keeps its data and its log ({FOLDER}). Each folder has a broker of its own.",
}
_TIMEOUT = {
    "metavar": "SECONDS",
    "type": float,
    "default": TIMEOUT_S,
    "help": f"How long to wait for the broker ({TIMEOUT_S:g}).",
}
_FORMATS: Mapping[str, Mapping[str, Any]] = {
    "--json": {"action": "store_true", "help": "Print one JSON object on stdout."},
    "--env": {"action": "store_true", "help": f"Print `export {VARIABLE}=...` on stdout, for eval in a shell."},
}
_COMMANDS = {
    "up": SubCommand(
        "starts a broker in the background, unless it runs; returns when it serves clients",
        {
            "--port": {
                "metavar": "PORT",
                "type": _port,
                "help": f"Where it serves at localhost; 0 for any free port ({DEFAULT_PORT}).",
            },
            "--topics": {
                "metavar": "NAME[:PARTITIONS]",
                "type": parse_topic,
                "nargs": "+",
                "action": "extend",
                "default": [],
                "help": "Topics that have to exist, each of one partition or as many as it says.",
            },
            "--seed": {
                "metavar": "[TOPIC=]FILE",
                "nargs": "+",
                "action": "extend",
                "default": [],
                "help": "Files of records, one JSON value a line, for topics that are empty. Without TOPIC, "
                "orders.jsonl is for the topic orders.",
            },
            "--override": {
                "metavar": "PROPERTY=VALUE",
                "type": _override,
                "action": "append",
                "default": [],
                "help": "A setting of the broker, as in server.properties.",
            },
            "--dir": _DIR,
            "--timeout": _TIMEOUT,
            **_FORMATS,
        },
    ),
    "status": SubCommand("prints where the broker serves; fails if none runs", {"--dir": _DIR, **_FORMATS}),
    "down": SubCommand(
        "stops the broker; succeeds if none runs",
        {
            "--delete-data": {"action": "store_true", "help": "Also delete its data, its log and the empty folder."},
            "--dir": _DIR,
            "--timeout": _TIMEOUT,
        },
    ),
}


def _command_line() -> SubCommands:
    return SubCommands("milena", "Run a broker in the background for a shell or a CI job.", _COMMANDS)


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if options.command != "down" and options.json and options.env:
        raise UsageError("--json and --env are two formats: give one of them")
    commands: Mapping[str, Callable[[argparse.Namespace], int]] = {"up": _up, "status": _status, "down": _down}
    try:
        return commands[options.command](options)
    except (
        ForeignFolderError,
        StartFailed,
        StillRuns,
        TopicsFailed,
        KafkaError,
        CallTimedOut,
        UnreachableError,
    ) as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(f"cannot use the folder {options.dir}: {error.strerror or error}")


def _up(options: argparse.Namespace) -> int:
    seeds = [read_seed(text) for text in options.seed]
    folder = BrokerFolder(options.dir)
    with folder.locked():
        broker = folder.running()
        is_new = broker is None
        if broker is None:
            port = DEFAULT_PORT if options.port is None else options.port
            broker = folder.start(port, dict(options.override), options.timeout)
        elif (reason := _conflict(broker, options)) is not None:
            return _failed(reason)
        try:
            done = list(prepare(broker.bootstrap_servers, options.topics, seeds))
        except BaseException:
            if is_new:
                _stop(folder, broker, options.timeout)
            raise
    _print(options, folder, broker, "Started a broker" if is_new else "A broker was running", done=done)
    return 0


def _conflict(broker: ServingBroker, options: argparse.Namespace) -> str | None:
    """Return why a running broker is not the one that the options ask for."""
    where = f"a broker runs at {broker.bootstrap_servers}"
    if options.port and broker.bootstrap_servers.rpartition(":")[2] != str(options.port):
        return f"{where}, not at port {options.port}: stop it with `milena down` first"
    if options.override:
        return f"{where}, and settings need a start: stop it with `milena down` first"
    return None


def _status(options: argparse.Namespace) -> int:
    folder = BrokerFolder(options.dir)
    lost_pid = folder.lost_pid()
    if (broker := folder.running()) is not None:
        _print(options, folder, broker, "A broker runs")
        return 0
    if options.json:
        print(json.dumps({"running": False}))
    return _failed(_none_runs(folder, lost_pid))


def _down(options: argparse.Namespace) -> int:
    folder = BrokerFolder(options.dir)
    if not folder.is_used():
        print(_none_runs(folder, None))
        return 0
    with folder.locked():
        lost_pid = folder.lost_pid()
        if (broker := folder.running()) is None:
            print(_none_runs(folder, lost_pid))
        else:
            begin_s = monotonic()
            if status := _stop(folder, broker, options.timeout):
                return status
            print(f"Stopped the broker in {folder.path} (process {broker.pid}) in {monotonic() - begin_s:.1f} s")
        if options.delete_data:
            folder.remove()
            print(f"Deleted its data in {folder.path}")
    return 0


def _stop(folder: BrokerFolder, broker: ServingBroker, timeout_s: float) -> int:
    """Stop the broker; return the exit status. Raises StillRuns."""
    status = send_signal([broker.pid])
    if not status:
        folder.stop(broker.pid, timeout_s)
    return status


def _none_runs(folder: BrokerFolder, lost_pid: int | None) -> str:
    lost = f": process {lost_pid} ended without `milena down`; its log is {folder.log}" if lost_pid else ""
    return f"No broker runs in {folder.path}{lost}"


def _print(
    options: argparse.Namespace, folder: BrokerFolder, broker: ServingBroker, event: str, done: Sequence[Done] = ()
) -> None:
    """Print the address in the format of the options; with --env the lines for people are on stderr."""
    of_topics = [f"{one.subject}: {one.text}" for one in done]
    if options.json:
        fields = {
            "running": True,
            "bootstrap_servers": broker.bootstrap_servers,
            "console": broker.console,
            "pid": broker.pid,
            "log": str(folder.log),
        }
        print(json.dumps(fields | ({"done": of_topics} if options.command == "up" else {})))
        return
    lines = [f"{event} at {broker.bootstrap_servers} (process {broker.pid}); log: {folder.log}"]
    lines += [f"console: {broker.console}"] if broker.console else []
    lines += of_topics
    print("\n".join(lines), file=sys.stderr if options.env else sys.stdout)
    if options.env:
        print(f"export {VARIABLE}={shlex.quote(broker.bootstrap_servers)}")


def _failed(text: str) -> int:
    for line in text.splitlines():
        print(f"milena: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
