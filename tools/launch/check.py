"""kafka-check: compares the limits, the kernel parameters and the disks of this host with what a broker needs.

With --explain it says instead why a broker does not start, or why a client is stuck.

The broker logs the same findings at its start, except those that are as expected.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from config.broker import BrokerConfig
from config.broker_properties import INT_MAX, MAX_CONNECTIONS
from tools.base.command_line import (
    BOOTSTRAP_SERVER_ONLY,
    CommandLine,
    UsageError,
    WithoutArguments,
    is_given,
    run_tool,
)
from tools.base.group_tables import Column, table
from tools.launch.broker_config import SettingsError, read_broker_config
from tools.launch.host_checks import CONNECTIONS_EXPECTED, Finding, Load, check_host, has_failed
from tools.launch.host_facts import read_facts

_OF_CLIENTS: Final = ("--bootstrap-server", "--command-config", "--topic", "--group")
_COLUMNS: Final = (
    Column("CHECK", 0, grows=True),
    Column("LEVEL", 0, grows=True),
    Column("FOUND", 0, grows=True),
    Column("EXPECTED", 0, grows=True),
    Column("RESULT", 0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if the host misses something that a broker must have."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-check",
        "This tool compares this host with what a broker needs, or explains why a broker does not start or a client is "
        "stuck.",
        (
            "--config config/server.properties",
            "--config config/server.properties --write-rate 50 --mirroring",
            "--config config/server.properties --explain",
            "--bootstrap-server localhost:9092 --topic orders --group orders-app --explain",
        ),
        without_arguments=WithoutArguments.RUN,
        help_succeeds=True,
    )
    line.add_option(
        "--config",
        value="server.properties",
        help_text="The settings of the broker, which name its log directories. Without it, no directory is checked, "
        "and the limits must suffice for any number of segments.",
    )
    line.add_option(
        "--write-rate",
        value="MB/s",
        parse=_positive,
        help_text="How much producers and other brokers will write: the page cache should hold 30 seconds of it.",
    )
    line.add_flag("--mirroring", "Also check what matters for hosts that copy records over long distances.")
    line.add_flag(
        "--explain",
        "Print one paragraph, with the next command: with --config why a broker does not start, with "
        "--bootstrap-server why a client is stuck.",
    )
    line.add_option(
        *BOOTSTRAP_SERVER_ONLY, value="host:port", help_text="The brokers of the stuck client, as host:port,host:port."
    )
    line.add_option("--command-config", value="file", help_text="The settings of the stuck client.")
    line.add_option("--topic", value="topic", help_text="The topic of the stuck client.")
    line.add_option("--group", value="group", help_text="The group of the stuck client.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if options.explain:
        return _explain(line, options)
    for name in _OF_CLIENTS:
        if is_given(options, name):
            raise UsageError(f"{name} is for --explain")
    try:
        config = None if options.config is None else read_broker_config(options.config)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    rate = None if options.write_rate is None else options.write_rate * 1_000_000
    findings = findings_of(config, write_rate=rate, is_mirroring=options.mirroring)
    rows = [(found.name, found.level.value, found.found, found.expected, found.verdict.value) for found in findings]
    print("\n".join(table(_COLUMNS, rows)))
    return 1 if has_failed(findings) else 0


def _explain(line: CommandLine, options: argparse.Namespace) -> int:
    from tools.launch.explanation import explain_client, explain_start  # a start of a broker does not need it

    if (options.config is None) == (options.bootstrap_server is None):
        raise UsageError("--explain needs --config of a broker, or --bootstrap-server of a client")
    if options.config is not None:
        line.forbid(options, "--config", *_OF_CLIENTS[1:])
    explained = explain_start(options.config) if options.config is not None else explain_client(options)
    print(explained)
    return 1 if explained.is_problem else 0


def findings_of(
    config: BrokerConfig | None, *, write_rate: float | None = None, is_mirroring: bool = False
) -> list[Finding]:
    """Check this host for a broker, whose settings may be unknown. `write_rate` is in bytes a second."""
    connections = CONNECTIONS_EXPECTED if config is None else _connections(config)
    facts = read_facts(None if config is None else config.log_dirs, os.environ.get("LOG_DIR") or None)
    return check_host(facts, Load(connections, write_rate, is_mirroring))


def _positive(text: str) -> float:
    """Raises ValueError for a text that is no number of bytes."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def _connections(config: BrokerConfig) -> int:
    limit: int = config[MAX_CONNECTIONS]
    return CONNECTIONS_EXPECTED if limit == INT_MAX else limit


if __name__ == "__main__":
    raise SystemExit(main())
