"""kafka-preferred-replica-election: the older name of `kafka-leader-election --election-type preferred`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tools import leader_election
from tools.admin_options import add_client_options
from tools.command_line import CommandLine, UsageError, run_tool, warn
from tools.legacy_zookeeper import add_zookeeper_option, use_brokers_of_zookeeper


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a partition's election failed."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-preferred-replica-election",
        "This tool helps to cause leadership for each partition to be transferred back to the 'preferred replica', it "
        "can be used to balance leadership among the servers.",
    )
    add_client_options(line, "--admin.config")
    add_zookeeper_option(line)
    line.add_option(
        "--path-to-json-file",
        value="list of partitions for which preferred replica leader election needs to be triggered",
        help_text='The partitions, as {"partitions": [{"topic": "foo", "partition": 1}]}; all without it.',
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    warn("This tool is deprecated. Use kafka-leader-election --election-type preferred.")
    use_brokers_of_zookeeper(line, options)
    if options.bootstrap_server is None:
        raise UsageError('Missing required argument "[bootstrap-server]" or "[zookeeper]"')
    partitions = ["--all-topic-partitions"]
    if options.path_to_json_file is not None:
        partitions = ["--path-to-json-file", options.path_to_json_file]
    config = [] if options.admin_config is None else ["--admin.config", options.admin_config]
    arguments = ["--bootstrap-server", options.bootstrap_server, "--election-type", "preferred", *partitions, *config]
    return leader_election.main(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
