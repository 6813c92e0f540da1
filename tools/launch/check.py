"""kafka-check: compares the limits, the kernel parameters and the disks of this host with what a broker needs.

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
from tools.base.command_line import CommandLine, WithoutArguments, run_tool
from tools.base.group_tables import Column, table
from tools.launch.broker_config import SettingsError, read_broker_config
from tools.launch.host_checks import CONNECTIONS_EXPECTED, Finding, Load, check_host, has_failed
from tools.launch.host_facts import read_facts

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
        "This tool compares this host with what a broker needs.",
        ("--config config/server.properties", "--config config/server.properties --write-rate 50 --mirroring"),
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
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
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
