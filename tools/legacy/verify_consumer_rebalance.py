"""kafka.tools.VerifyConsumerRebalance: checks that each partition which a group consumes has one owner in the group."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

from base.topic_partition import TopicPartition
from protocol.errors import KafkaError
from tools.admin.group_actions.descriptions import describe_group
from tools.admin.group_actions.offset_resets import named_partitions
from tools.base.command_line import CommandLine, run_tool
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client
from tools.zookeeper import zookeeper_offsets
from tools.zookeeper.legacy_zookeeper import broker_addresses, open_tree
from tools.zookeeper.znode_trees import TreeError

DEFAULT_ADDRESS = "localhost:2181"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 also if a partition has no valid owner."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "VerifyConsumerRebalance", "Validate that all partitions have a consumer for a given consumer group."
    )
    add_admin_options(line)
    line.add_option(
        "--zookeeper.connect", value="urls", help_text=f"ZooKeeper connect string; {DEFAULT_ADDRESS} by default."
    )
    line.add_option("--group", value="group", help_text="REQUIRED: Consumer group.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--group")
    line.forbid(options, "--zookeeper.connect", "--bootstrap-server")
    try:
        found = _of_brokers(options) if options.bootstrap_server is not None else _of_zookeeper(options)
    except (TreeError, KafkaError, CallTimedOut) as error:
        print(f"Error while verifying current rebalancing operation: {error}", file=sys.stderr)
        return 1
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"Rebalance operation {'failed' if found else 'successful'} !")
    return 1 if found else 0


def _of_brokers(options: argparse.Namespace) -> list[str]:
    """Return the problems of a group that the brokers coordinate."""
    with admin_client(options) as admin:
        members = describe_group(admin, options.group).members
        owners = {partition: member.member_id for member in members for partition in member.assignment}
        return _problems(admin, options.group, owners, {member.member_id for member in members})


def _of_zookeeper(options: argparse.Namespace) -> list[str]:
    """Return the problems of a group in ZooKeeper, or of one of the brokers that are registered there."""
    address = options.zookeeper_connect or DEFAULT_ADDRESS
    with closing(open_tree(address)) as tree:
        options.bootstrap_server = ",".join(broker_addresses(tree, address))
        if options.group not in zookeeper_offsets.groups(tree):
            return _of_brokers(options)
        owners = zookeeper_offsets.owners(tree, options.group)
        members = set(zookeeper_offsets.members(tree, options.group))
    # An owner is a thread of a consumer, CONSUMER-NUMBER.
    running = {owner for owner in owners.values() if owner.rpartition("-")[0] in members}
    with admin_client(options) as admin:
        return _problems(admin, options.group, owners, running)


def _problems(
    admin: AdminClient, group: str, owners: Mapping[TopicPartition, str], valid: Collection[str]
) -> list[str]:
    """Raises KafkaError."""
    topics = sorted({topic for topic, _ in owners})
    if not topics:
        return [f"No owners for any partitions of group {group}"]
    return problems(group, named_partitions(admin, topics), owners, valid)


def problems(
    group: str, partitions: Sequence[TopicPartition], owners: Mapping[TopicPartition, str], valid: Collection[str]
) -> list[str]:
    """Return a line for each partition without an owner, or with one that is not in the group."""
    found = []
    for topic, partition in partitions:
        owner = owners.get((topic, partition))
        if owner is None:
            found.append(f"No owner for partition [{topic},{partition}]")
        elif owner not in valid:
            what = f"Owner {owner} for partition [{topic},{partition}]"
            found.append(f"{what} is not a valid member of consumer group {group}")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
