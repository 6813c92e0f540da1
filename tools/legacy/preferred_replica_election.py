"""kafka-preferred-replica-election: the older name of `kafka-leader-election --election-type preferred`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from base.topic_partition import TopicPartition
from protocol.errors import ErrorCode, KafkaError
from tools.admin import leader_election
from tools.base.command_line import CommandLine, UsageError, run_tool, warn
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_client_options, admin_client
from tools.zookeeper.legacy_zookeeper import add_zookeeper_option, use_brokers_of_zookeeper


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
    if options.zookeeper is not None:
        return _elect_in_older_form(options)
    partitions = ["--all-topic-partitions"]
    if options.path_to_json_file is not None:
        partitions = ["--path-to-json-file", options.path_to_json_file]
    config = [] if options.admin_config is None else ["--admin.config", options.admin_config]
    arguments = ["--bootstrap-server", options.bootstrap_server, "--election-type", "preferred", *partitions, *config]
    return leader_election.main(arguments)


def _elect_in_older_form(options: argparse.Namespace) -> int:
    """Elect, and print what the tool printed when it used ZooKeeper; return the exit status."""
    try:
        named = None
        if options.path_to_json_file is not None:
            named = leader_election.partitions_of_file(options.path_to_json_file)
        with admin_client(options) as admin:
            partitions = _all_partitions(admin) if named is None else named
            results = leader_election.elect_leaders(admin, "preferred", partitions)
    except (leader_election.ElectionError, KafkaError, CallTimedOut) as failure:
        print(failure, file=sys.stderr)
        return 1
    failed = {
        partition: error
        for partition, error in results.items()
        if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    started = ", ".join(f"[{topic},{index}]" for topic, index in partitions if (topic, index) not in failed)
    print(f"Successfully started preferred replica election for partitions Set({started})")
    for (topic, index), error in failed.items():
        print(f"Preferred replica election of partition [{topic},{index}] failed: {error.message}", file=sys.stderr)
    return 1 if failed else 0


def _all_partitions(admin: AdminClient) -> list[TopicPartition]:
    return sorted(
        (topic.name or "", partition.partition_index)
        for topic in admin.metadata().topics
        for partition in topic.partitions
    )


if __name__ == "__main__":
    raise SystemExit(main())
