"""kafka-groups: lists groups of all types and protocols (KIP-1043)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from protocol.errors import KafkaError
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, run_tool
from tools.base.padded_table import padded_table
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client

CONSUMER: Final = "consumer"
"""The type of groups of KIP-848, and the protocol of the groups of consumers of both types."""
SHARE: Final = "share"
"""The type of groups of KIP-932."""
TYPES: Mapping[str, str] = {name.lower(): name for name in ("Classic", "Consumer", "Share", "Streams")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-groups", "This tool helps to list groups of all types.")
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    line.add_flag("--list", "List the groups.")
    line.add_option("--group-type", value="type", help_text=f"List only groups of a type: {', '.join(TYPES.values())}.")
    line.add_option("--protocol", value="protocol", help_text="List only groups with this protocol.")
    line.add_flag("--consumer", "List only groups of consumers, of the types Classic and Consumer.")
    line.add_flag("--share", "List only groups of the type Share.")
    line.add_flag("--streams", "List only groups of the type Streams.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--bootstrap-server")
    if not options.list:
        raise UsageError("Command must include exactly one action: --list.")
    line.forbid(options, "--consumer", "--share", "--streams", "--group-type", "--protocol")
    line.forbid(options, "--share", "--streams", "--group-type", "--protocol")
    line.forbid(options, "--streams", "--group-type", "--protocol")
    wanted = options.group_type or ("Share" if options.share else "Streams" if options.streams else None)
    if wanted is not None and wanted.lower() not in TYPES:
        raise UsageError(f"Invalid group type '{wanted}'. Valid types are: {', '.join(TYPES.values())}")
    try:
        with admin_client(options) as admin:
            groups = all_groups(admin, None if wanted is None else wanted.lower())
    except (KafkaError, CallTimedOut) as error:
        text = error.message if isinstance(error, KafkaError) else str(error)
        print(f"Error while executing groups command : {text}", file=sys.stderr)
        return 1
    rows = [
        (group.group_id, TYPES.get(group.group_type, group.group_type), group.protocol_type)
        for group in groups
        if options.protocol in (None, group.protocol_type)
        if not options.consumer or CONSUMER in (group.protocol_type, group.group_type)
    ]
    for text in padded_table(("GROUP", "TYPE", "PROTOCOL"), rows):
        print(text)
    return 0


def all_groups(admin: AdminClient, group_type: str | None, states: Sequence[str] = ()) -> list[ListedGroup]:
    """Return the groups of all brokers, or those of a type, or in one of some states, by id. Raises KafkaError."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=[] if group_type is None else [group_type])
    groups: dict[str, ListedGroup] = {}
    for broker in admin.metadata([]).brokers:
        response = admin.call(request, ListGroupsResponse, broker_id=broker.node_id)
        raise_for(response.error_code)
        groups.update((group.group_id, group) for group in response.groups)
    return [groups[name] for name in sorted(groups)]


if __name__ == "__main__":
    sys.exit(main())
