"""kafka-consumer-groups: lists, describes, resets and deletes consumer groups."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tools.admin.group_actions.deletions import delete_group, print_deletions
from tools.admin.group_actions.descriptions import (
    DEAD,
    EMPTY,
    describe_group,
    print_members,
    print_offsets,
    print_states,
)
from tools.admin.group_actions.offset_resets import SCENARIOS, Offsets, commit_offsets, named_partitions, new_offsets
from tools.base.command_line import CommandLine, UsageError, is_given, parse_words, run_tool
from tools.base.group_tables import DELETED_OFFSETS, NEW_OFFSETS, listed_columns, table
from tools.base.java_names import exception_class, exception_text
from tools.client.admin_client import AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client
from tools.client.group_offsets import delete_offsets
from tools.zookeeper.legacy_zookeeper import add_zookeeper_option, use_zookeeper

if TYPE_CHECKING:
    from tools.zookeeper.znode_trees import Tree

GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
GROUP_TYPES = ("Consumer", "Classic")
CONSUMER_PROTOCOL = "consumer"

_ANY = ""  # --state and --type without a value
_TIMEOUT_MS = 5000
_DRY_RUN_WARNING = (
    "WARN: No action will be performed as the --execute option is missing. Add --dry-run to say that this is wanted."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status. As in Kafka, an `Error:` of the cluster is a failure only with `--strict-exit`."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-consumer-groups",
        "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
        "consumer group offsets.",
        [
            "--bootstrap-server localhost:9092 --list",
            "--bootstrap-server localhost:9092 --describe --group readers",
            "--bootstrap-server localhost:9092 --group readers --topic orders --reset-offsets --to-earliest --execute",
        ],
    )
    add_admin_options(line)
    add_zookeeper_option(line)
    line.add_flag("--list", "List all consumer groups.")
    line.add_flag("--describe", "Describe consumer groups: offsets and lag, members, or state.")
    line.add_flag("--delete", "Delete consumer groups with their offsets.")
    line.add_flag("--reset-offsets", "Set the offsets of groups without members.")
    line.add_flag("--delete-offsets", "Delete offsets of a group for topics.")
    line.add_option("--group", value="group", repeatable=True, help_text="The consumer group to act on.")
    line.add_flag("--all-groups", "Act on all consumer groups.")
    line.add_option("--topic", value="topic", repeatable=True, help_text="The topic, or topic:0,1 for some partitions.")
    line.add_flag("--all-topics", "Reset all topics that the group has offsets of.")
    line.add_option(
        "--timeout", value="ms", parse=int, default=_TIMEOUT_MS, help_text="Time for the cluster to respond."
    )
    line.add_flag("--members", "Describe the members.")
    line.add_flag("--offsets", "Describe the offsets; this is the default.")
    line.add_flag("--verbose", "Describe what members are assigned.")
    for name, what in (("--state", "state"), ("--type", "type")):
        line.add_option(
            name,
            value=f"{what},...",
            value_is_optional=True,
            value_if_absent=_ANY,
            help_text=f"Show the {what} of groups; with a value, list only those groups.",
        )
    line.add_option("--to-offset", value="offset", parse=int, help_text="Reset to this offset.")
    line.add_option("--shift-by", value="count", parse=int, help_text="Reset by so many records, back if negative.")
    line.add_option("--to-datetime", value="datetime", help_text="Reset to YYYY-MM-DDTHH:mm:SS.sss.")
    line.add_option("--by-duration", value="duration", help_text="Reset to so long ago, PnDTnHnMnS.")
    line.add_option("--from-file", value="file", help_text="Reset to the offsets of a CSV file.")
    line.add_flag("--to-earliest", "Reset to the first offset.")
    line.add_flag("--to-latest", "Reset to the end.")
    line.add_flag("--to-current", "Reset to the offsets that are committed.")
    line.add_flag("--dry-run", "Show what a reset would do.")
    line.add_flag("--execute", "Do the reset.")
    line.add_flag("--export", "Print the offsets as CSV.")
    line.add_flag("--new-consumer", "Accepted.")
    line.add_flag("--strict-exit", "End with status 1 after an error of the cluster.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    action = _check(line, options)
    tree = use_zookeeper(line, options)
    try:
        with admin_client(options, timeout_ms=options.timeout) as admin:
            if tree is None:
                succeeded = _ACTIONS[action](admin, options)
            else:
                with closing(tree):
                    succeeded = _run_with_zookeeper(tree, admin, action, options)
    except KafkaError as error:
        _print_error(f"Executing consumer group command failed due to {exception_text(error)}")
        succeeded = False
    except CallTimedOut as error:
        _print_error(f"Executing consumer group command failed due to {error}")
        return 1
    return 1 if options.strict_exit and not succeeded else 0


def _run_with_zookeeper(tree: Tree, admin: AdminClient, action: str, options: argparse.Namespace) -> bool:
    """Perform an action for groups in ZooKeeper, and then for those of the brokers; return whether all succeeded."""
    # They import ZooKeeper's client, which other runs do not need.
    from tools.admin import zookeeper_groups
    from tools.zookeeper import zookeeper_offsets
    from tools.zookeeper.znode_trees import TreeError

    try:
        found = zookeeper_offsets.groups(tree)
        if action == "--list":
            of_brokers = {group.group_id for group in listed_groups(admin)}
            print("".join(f"{group}\n" for group in found if group not in of_brokers), end="")
            return _list(admin, options)
        if action == "--delete" and options.topic:
            groups = found if options.all_groups else options.group
            return zookeeper_groups.delete_topics(tree, groups, options.topic)
        asked = [*found, *_groups(admin, options)] if options.all_groups else options.group
        old = [group for group in dict.fromkeys(asked) if group in found]
        if action == "--describe" and not options.members and options.state is None:
            succeeded = zookeeper_groups.describe(tree, admin, old)
        elif action == "--delete":
            succeeded = zookeeper_groups.delete(tree, old)
        else:
            old, succeeded = [], True
    except TreeError as error:
        _print_error(str(error))
        return False
    options.group, options.all_groups = [group for group in asked if group not in old], False
    return (not options.group or _ACTIONS[action](admin, options)) and succeeded


def _check(line: CommandLine, options: argparse.Namespace) -> str:
    """Return the one requested action."""
    given = [action for action in _ACTIONS if is_given(options, action)]
    if len(given) != 1:
        raise UsageError(f"Command must include exactly one action: {', '.join(_ACTIONS)}")
    if options.zookeeper is None:
        line.require(options, "--bootstrap-server")
    (action,) = given
    is_topic_in_zookeeper = options.zookeeper is not None and action == "--delete" and bool(options.topic)
    has_groups = bool(options.group) or options.all_groups or is_topic_in_zookeeper
    if action == "--reset-offsets" and not options.dry_run and not options.execute:
        print(_DRY_RUN_WARNING, file=sys.stderr)
    if action in ("--describe", "--delete", "--reset-offsets") and not has_groups:
        scopes = "[reset-offsets], [describe], [delete], [list]" if action == "--describe" else "[all-groups], [group]"
        raise UsageError(f"Option [{action.lstrip('-')}] takes one of these options: {scopes}")
    if options.group:
        line.forbid(options, "--group", "--all-groups", "--list")
    if action == "--describe":
        if sum((options.members, options.offsets, options.state is not None)) > 1:
            raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if options.state:
            raise UsageError("Option [describe] does not take a value for [state]")
    if action == "--delete" and options.topic and not is_topic_in_zookeeper:
        raise UsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if action == "--delete-offsets" and not (options.group and options.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [topic], [group]")
    if action == "--reset-offsets":
        _check_reset(line, options)
    elif options.topic and action != "--delete-offsets" and not is_topic_in_zookeeper:
        line.forbid(options, "--topic", action)
    return action


def _check_reset(line: CommandLine, options: argparse.Namespace) -> None:
    if options.dry_run and options.execute:
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    for scenario in SCENARIOS:
        line.forbid(options, scenario, *(other for other in SCENARIOS if other != scenario))
    line.forbid(options, "--all-topics", "--topic")


def _list(admin: AdminClient, options: argparse.Namespace) -> bool:
    states = parse_words(options.state, GROUP_STATES, "state", "states")
    types = parse_words(options.type, GROUP_TYPES, "types", "types")
    groups = listed_groups(admin, states, types)
    names = [group.group_id for group in groups]
    headings: list[str] = []
    rows: list[list[str]] = [[name] for name in names]
    if options.type is not None:
        headings.append("TYPE")
        for row, group in zip(rows, groups, strict=True):
            row.append(group.group_type.capitalize())
    if options.state is not None:
        headings.append("STATE")
        for row, group in zip(rows, groups, strict=True):
            row.append(group.group_state)
    for line in table(listed_columns(names, headings), rows) if headings else names:
        print(line)
    return True


def listed_groups(admin: AdminClient, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """Return the consumer groups of all brokers. Raises KafkaError."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=[name.lower() for name in types])
    groups: dict[str, ListedGroup] = {}
    for broker in admin.metadata([]).brokers:
        response = admin.call(request, ListGroupsResponse, broker_id=broker.node_id)
        raise_for(response.error_code)
        groups.update(
            (group.group_id, group) for group in response.groups if group.protocol_type in (CONSUMER_PROTOCOL, "")
        )
    return list(groups.values())


def _groups(admin: AdminClient, options: argparse.Namespace) -> list[str]:
    if options.all_groups:
        return [group.group_id for group in listed_groups(admin)]
    return list(dict.fromkeys(options.group))


def _describe(admin: AdminClient, options: argparse.Namespace) -> bool:
    groups = _groups(admin, options)
    if options.members:
        return print_members(admin, groups, is_verbose=options.verbose)
    if options.state is not None:
        return print_states(admin, groups)
    return print_offsets(admin, groups)


def _delete(admin: AdminClient, options: argparse.Namespace) -> bool:
    groups = _groups(admin, options)
    failures = {group: error for group in groups if (error := delete_group(admin, group)) is not None}
    # Kafka's tool prints the exception around the error.
    reasons = {
        group: f"java.util.concurrent.ExecutionException: {exception_text(error)}" for group, error in failures.items()
    }
    return print_deletions("consumer", groups, reasons)


def _reset_offsets(admin: AdminClient, options: argparse.Namespace) -> bool:
    now = datetime.now(UTC)
    all_inactive = True
    resets: dict[str, Offsets] = {}
    for group in sorted(_groups(admin, options)):
        state = describe_group(admin, group).state
        if state not in (EMPTY, DEAD):
            _print_error(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
            )
            all_inactive = False
            continue
        resets[group] = new_offsets(admin, group, options, now)
        if options.execute:
            commit_offsets(admin, group, resets[group])
    if options.export:
        _print_csv(resets, with_group=len(_groups(admin, options)) > 1)
    else:
        rows = [
            (group, topic, str(partition), str(offset))
            for group, offsets in resets.items()
            for (topic, partition), offset in offsets.items()
        ]
        print("\n" + "\n".join(table(NEW_OFFSETS, rows)))
    return all_inactive


def _print_csv(resets: Mapping[str, Offsets], *, with_group: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for group, offsets in resets.items():
        for (topic, partition), offset in offsets.items():
            writer.writerow([*([group] if with_group else []), topic, partition, offset])


def _delete_offsets(admin: AdminClient, options: argparse.Namespace) -> bool:
    (group,) = options.group
    error, results = delete_offsets(admin, group, named_partitions(admin, options.topic))
    if error:
        return _fail_deletion(group, error)
    if any(results.values()):
        _print_error("Encounter some partition level error, see the follow-up details:")
    else:
        print(f"Request succeed for deleting offsets with topic {', '.join(options.topic)} group {group}")
    rows = [(topic, str(partition), _status(code)) for (topic, partition), code in sorted(results.items())]
    print("\n" + "\n".join(table(DELETED_OFFSETS, rows)))
    return not any(results.values())


def _status(code: int) -> str:
    return f"Error: {KafkaError(ErrorCode(code)).message}" if code else "Successful"


def _fail_deletion(group: str, code: ErrorCode) -> bool:
    reasons = {
        ErrorCode.INVALID_GROUP_ID: f"'{group}' is not valid.",
        ErrorCode.GROUP_ID_NOT_FOUND: f"'{group}' does not exist.",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: f"Access to '{group}' is not authorized.",
        ErrorCode.NON_EMPTY_GROUP: (
            f"Deleting offsets of a consumer group '{group}' is forbidden if the group is not empty."
        ),
    }
    _print_error(reasons.get(code, f"Encounter some unknown error: {exception_class(code)}"))
    return False


def _print_error(text: str) -> None:
    print(f"\nError: {text}")


_ACTIONS: Mapping[str, Callable[[AdminClient, argparse.Namespace], bool]] = {
    "--list": _list,
    "--describe": _describe,
    "--delete": _delete,
    "--reset-offsets": _reset_offsets,
    "--delete-offsets": _delete_offsets,
}
"""The function of each action; it returns False if the cluster rejected a part of it."""


if __name__ == "__main__":
    raise SystemExit(main())
