"""kafka-metadata-quorum: says that this cluster has no Raft quorum, and which broker is its controller."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from protocol.errors import KafkaError
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, run_tool
from tools.base.sub_commands import SubCommand, SubCommands
from tools.client.admin_client import CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client

PROGRAM: Final = "kafka-metadata-quorum"

COMMANDS: Mapping[str, SubCommand] = {
    "describe": SubCommand(
        "Describe the quorum.",
        {
            "--status": {"action": "store_true", "help": "A summary."},
            "--replication": {"action": "store_true", "help": "The state of each replica."},
            "--human-readable": {"action": "store_true", "help": "Times as text."},
        },
    ),
    "add-controller": SubCommand("Add a controller.", {"--dry-run": {"action": "store_true", "help": "Only check."}}),
    "remove-controller": SubCommand(
        "Remove a controller.",
        {
            "--controller-id": {"metavar": "ID", "help": "Its id."},
            "--controller-directory-id": {"metavar": "ID", "help": "The id of its directory."},
            "--dry-run": {"action": "store_true", "help": "Only check."},
        },
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status, which is 1: there is no quorum."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = SubCommands(PROGRAM, "This tool describes the quorum that keeps the metadata of a KRaft cluster.", COMMANDS)
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    line.add_option("--bootstrap-controller", value="servers", help_text="Needs KRaft, which no broker here uses.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if options.bootstrap_server is None:
        raise UsageError(
            f"{PROGRAM}: error: one of the arguments --bootstrap-server --bootstrap-controller is required"
        )
    if options.command == "describe" and options.status == options.replication:
        raise UsageError(f"{PROGRAM}: error: expected one of --status and --replication")
    try:
        with admin_client(options) as admin:
            controller_id = admin.metadata([]).controller_id
    except (KafkaError, CallTimedOut) as error:
        print(error, file=sys.stderr)
        return 1
    controller = "No broker is the controller now" if controller_id < 0 else f"Broker {controller_id} is the controller"
    print(
        "This cluster has no Raft quorum (the node does not support DESCRIBE_QUORUM): its metadata is in ZooKeeper, or "
        f"in the embedded store of its only broker. {controller}; `zookeeper-shell ADDRESS get /controller_epoch` "
        "prints its epoch.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
