"""kafka.tools.ConsumerOffsetChecker: the offsets and the lag of a group, from ZooKeeper or from the brokers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from base.topic_partition import TopicPartition
from controller.tree.paths import Undecodable
from protocol.errors import KafkaError
from tools.admin.group_actions.descriptions import committed_offsets, describe_group
from tools.base.command_line import CommandLine, UsageError, run_tool, warn
from tools.client.admin_client import LATEST, AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client
from tools.zookeeper import zookeeper_offsets
from tools.zookeeper.legacy_zookeeper import broker_addresses, open_tree
from tools.zookeeper.znode_trees import TreeError

COLUMNS = ("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner")
FORM = "{:<15} {:<30} {:<3} {:<15} {:<15} {:<15} {}"
NO_OWNER = "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("ConsumerOffsetChecker", "Check the offset of your consumers.")
    add_admin_options(line)
    line.add_option("--zkconnect", "--zookeeper", value="urls", help_text="ZooKeeper connect string.")
    line.add_option("--group", value="group", help_text="REQUIRED: Consumer group.")
    line.add_option("--topic", value="topics", help_text="Topics, separated by commas; all without it.")
    line.add_flag("--broker-info", "Print broker info.")
    for name in ("--socket.timeout.ms", "--retry.backoff.ms"):
        line.add_option(name, value="ms", help_text="Accepted.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--group")
    warn("ConsumerOffsetChecker is deprecated. Use kafka-consumer-groups --describe instead.")
    found: dict[TopicPartition, int] = {}
    owners: Mapping[TopicPartition, str] = {}
    try:
        if options.zkconnect is not None:
            line.forbid(options, "--zkconnect", "--bootstrap-server")
            tree = open_tree(options.zkconnect)
            try:
                found, owners = (
                    zookeeper_offsets.offsets(tree, options.group),
                    zookeeper_offsets.owners(tree, options.group),
                )
                options.bootstrap_server = ",".join(broker_addresses(tree, options.zkconnect))
            finally:
                tree.close()
        if options.bootstrap_server is None:
            raise UsageError('Missing required argument "[zkconnect]"')
        with admin_client(options) as admin:
            if not found:
                found, owners = committed_offsets(admin, options.group), _owners(admin, options.group)
            _print(admin, options, found, owners)
    except (TreeError, Undecodable) as error:
        print(f"Exiting due to: {error}.", file=sys.stderr)
        return 1
    except (KafkaError, CallTimedOut) as error:
        print(f"Exiting due to: {error}.", file=sys.stderr)
        return 1
    return 0


def _owners(admin: AdminClient, group: str) -> dict[TopicPartition, str]:
    members = describe_group(admin, group).members
    return {partition: member.member_id for member in members for partition in member.assignment}


def _print(
    admin: AdminClient,
    options: argparse.Namespace,
    found: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, str],
) -> None:
    wanted = None if options.topic is None else {name.strip() for name in options.topic.split(",")}
    shown = {key: offset for key, offset in sorted(found.items()) if wanted is None or key[0] in wanted}
    ends = admin.list_offsets(dict.fromkeys(shown, LATEST))
    print(FORM.format(*COLUMNS))
    for (topic, partition), offset in shown.items():
        end = ends[topic, partition]
        size, lag = ("unknown", "unknown") if isinstance(end, KafkaError) else (str(end), str(end - offset))
        owner = owners.get((topic, partition), NO_OWNER)
        print(FORM.format(options.group, topic, partition, offset, size, lag, owner))
    if options.broker_info:
        print("BROKER INFO")
        for broker in admin.metadata([]).brokers:
            print(f"{broker.node_id} -> {broker.host}:{broker.port}")


if __name__ == "__main__":
    raise SystemExit(main())
