"""kafka-share-groups: lists, describes, resets and deletes share groups (KIP-932)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_groups import ListedGroup
from tools.admin.group_actions.deletions import delete_group, print_deletions
from tools.admin.group_actions.offset_resets import Offsets, named_partitions, scenario_offsets
from tools.admin.group_actions.share_descriptions import (
    DEAD,
    EMPTY,
    describe_group,
    print_members,
    print_offsets,
    print_states,
    start_offsets,
)
from tools.admin.group_actions.share_offsets import alter_offsets, delete_offsets
from tools.admin.groups import SHARE, all_groups
from tools.base.command_line import (
    BOOTSTRAP_SERVER_ONLY,
    CommandLine,
    UsageError,
    is_given,
    parse_words,
    run_tool,
)
from tools.base.group_tables import SHARE_DELETED_OFFSETS, SHARE_NEW_OFFSETS, SHARE_STATE_LIST, table
from tools.base.java_names import exception_text
from tools.client.admin_client import AdminClient, CallTimedOut
from tools.client.admin_options import add_admin_options, admin_client

GROUP_STATES: Final = (DEAD, EMPTY, "Stable")
SCENARIOS: Final = ("--to-earliest", "--to-latest", "--to-datetime")

_ANY: Final = ""  # --state without a value
_TIMEOUT_MS: Final = 30_000
_OF_ONE_GROUP: Final = ("--reset-offsets", "--delete-offsets")
_OF_GROUPS: Final = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
"""Errors of deletions that are printed by their message alone."""
_OF_TOPICS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Errors of deletions that only the table shows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status. As in Kafka, an `Error:` of the cluster is a failure only with `--strict-exit`."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-share-groups",
        "This tool helps to list, describe, reset and delete share groups.",
        [
            "--bootstrap-server localhost:9092 --list --state",
            "--bootstrap-server localhost:9092 --describe --group workers --members",
            "--bootstrap-server localhost:9092 --group workers --topic orders --reset-offsets --to-earliest --execute",
        ],
    )
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    line.add_flag("--list", "List all share groups.")
    line.add_flag("--describe", "Describe share groups: start offsets, members, or state.")
    line.add_flag("--delete", "Delete share groups without members.")
    line.add_flag("--reset-offsets", "Set the start offsets of a group without members.")
    line.add_flag("--delete-offsets", "Delete the start offsets of a group without members for topics.")
    line.add_option("--group", value="share group", repeatable=True, help_text="The share group to act on.")
    line.add_flag("--all-groups", "Act on all share groups.")
    line.add_option(
        "--topic", value="topic", repeatable=True, help_text="The topic; to reset some partitions, topic:0,1."
    )
    line.add_flag("--all-topics", "Reset all partitions that the group has start offsets of.")
    line.add_option(
        "--timeout", value="ms", parse=int, default=_TIMEOUT_MS, help_text="Time for the cluster to respond."
    )
    line.add_flag("--members", "Describe the members.")
    line.add_flag("--offsets", "Describe the start offsets; this is the default.")
    line.add_flag("--verbose", "Describe epochs as well.")
    line.add_option(
        "--state",
        value="state,...",
        value_is_optional=True,
        value_if_absent=_ANY,
        help_text="Show the state of groups; with a value, list only those groups.",
    )
    line.add_flag("--to-earliest", "Reset to the first offset.")
    line.add_flag("--to-latest", "Reset to the end.")
    line.add_option("--to-datetime", value="datetime", help_text="Reset to YYYY-MM-DDTHH:mm:SS.sss.")
    line.add_flag("--dry-run", "Show what a reset would do.")
    line.add_flag("--execute", "Do the reset.")
    line.add_flag("--strict-exit", "End with status 1 after an error of the cluster.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    action = _check(line, options)
    try:
        with admin_client(options, timeout_ms=options.timeout) as admin:
            succeeded = _ACTIONS[action](admin, options)
    except KafkaError as error:
        _print_error(f"Executing share group command failed due to {exception_text(error)}")
        succeeded = False
    except CallTimedOut as error:
        _print_error(f"Executing share group command failed due to {error}")
        return 1
    return 1 if options.strict_exit and not succeeded else 0


def _check(line: CommandLine, options: argparse.Namespace) -> str:
    """Return the one requested action."""
    line.require(options, "--bootstrap-server")
    line.forbid(options, "--group", "--list")
    line.forbid(options, "--topic", "--list")
    given = [action for action in _ACTIONS if is_given(options, action)]
    if len(given) != 1:
        raise UsageError(f"Command must include exactly one action: {', '.join(_ACTIONS)}.")
    (action,) = given
    if action == "--describe":
        _check_describe(options)
    elif action == "--delete":
        _check_delete(options)
    elif action == "--reset-offsets":
        _check_reset(line, options)
    elif action == "--delete-offsets" and not (options.group and options.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [topic], [group]")
    line.forbid(options, "--group", "--all-groups")
    line.forbid(options, "--topic", "--describe")
    for name in ("--members", "--offsets", "--verbose"):
        line.forbid(options, name, *(other for other in _ACTIONS if other != "--describe"))
    line.forbid(options, "--state", "--delete", *_OF_ONE_GROUP)
    if action in _OF_ONE_GROUP and len(options.group) > 1:
        raise UsageError("Found multiple arguments for option group, but you asked for only one")
    return action


def _check_describe(options: argparse.Namespace) -> None:
    if not options.group and not options.all_groups:
        raise UsageError("Option [describe] takes one of these options: [all-groups], [group]")
    if sum((options.members, options.offsets, options.state is not None)) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if options.state:
        raise UsageError("Option [describe] does not take a value for [state]")


def _check_delete(options: argparse.Namespace) -> None:
    if not options.group and not options.all_groups:
        raise UsageError("Option [delete] takes the options [group] or [all-groups]")
    if options.group and options.all_groups:
        raise UsageError("Option [delete] takes either [group] or [all-groups], not both.")
    if options.topic:
        raise UsageError("Option [delete] does not take the option: [topic]")


def _check_reset(line: CommandLine, options: argparse.Namespace) -> None:
    if options.dry_run and options.execute:
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.dry_run and not options.execute:
        raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not options.group:
        raise UsageError("Option [reset-offsets] takes the option: [group]")
    for scenario in SCENARIOS:
        line.forbid(options, scenario, *(other for other in SCENARIOS if other != scenario))
    if not any(is_given(options, scenario) for scenario in SCENARIOS):
        raise UsageError(f"Option [reset-offsets] requires one of the following scenarios: {', '.join(SCENARIOS)}")
    line.forbid(options, "--all-topics", "--topic")
    if not options.topic and not options.all_topics:
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


def _list(admin: AdminClient, options: argparse.Namespace) -> bool:
    groups = _listed(admin, parse_words(options.state, GROUP_STATES, "state", "states"))
    if options.state is None:
        lines = [group.group_id for group in groups]
    else:
        lines = table(SHARE_STATE_LIST, [(group.group_id, group.group_state) for group in groups])
    for text in lines:
        print(text)
    return True


def _listed(admin: AdminClient, states: Sequence[str] = ()) -> list[ListedGroup]:
    return all_groups(admin, SHARE, states)


def _groups(admin: AdminClient, options: argparse.Namespace) -> list[str]:
    if options.all_groups:
        return [group.group_id for group in _listed(admin)]
    return list(dict.fromkeys(options.group))


def _describe(admin: AdminClient, options: argparse.Namespace) -> bool:
    describe = print_members if options.members else print_offsets if options.state is None else print_states
    describe(admin, _groups(admin, options), is_verbose=options.verbose)
    return True


def _delete(admin: AdminClient, options: argparse.Namespace) -> bool:
    states = {group.group_id: group.group_state for group in _listed(admin)}
    groups = list(states) if options.all_groups else list(dict.fromkeys(options.group))
    failures: dict[str, str] = {}
    for group in groups:
        if reason := _undeletable(group, states.get(group)):
            failures[group] = reason
        elif (error := delete_group(admin, group)) is not None:
            failures[group] = exception_text(error)
    return print_deletions("share", groups, failures)


def _undeletable(group: str, state: str | None) -> str | None:
    """Return why a group in this state, or None for no share group, is not deleted; None if it may be."""
    if state is None:
        return f"java.lang.IllegalArgumentException: Group '{group}' is not a share group."
    if state == DEAD:
        return f"java.lang.IllegalStateException: Share group '{group}' group state is DEAD."
    if state != EMPTY:
        return exception_text(KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Share group '{group}' is not EMPTY."))
    return None


def _reset_offsets(admin: AdminClient, options: argparse.Namespace) -> bool:
    (group,) = options.group
    _require_without_members(admin, group)
    offsets: Offsets | None = scenario_offsets(
        admin,
        group,
        named_partitions(admin, options.topic) if options.topic else sorted(start_offsets(admin, group)),
        options,
        datetime.now(UTC),
    )
    assert offsets is not None  # as _check_reset requires a scenario
    if options.execute and offsets:
        alter_offsets(admin, group, offsets)
    rows = [(group, topic, str(partition), str(offset)) for (topic, partition), offset in offsets.items()]
    print("\n" + "\n".join(table(SHARE_NEW_OFFSETS, rows)) if rows else "")
    return True


def _require_without_members(admin: AdminClient, group: str) -> None:
    """Raise KafkaError for a group with members. The coordinator decides about a group that does not exist."""
    try:
        state = describe_group(admin, group).group_state
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if state not in (EMPTY, DEAD):
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Share group '{group}' is not empty.")


def _delete_offsets(admin: AdminClient, options: argparse.Namespace) -> bool:
    (group,) = options.group
    results = delete_offsets(admin, group, list(dict.fromkeys(options.topic)))
    errors = (error for error in results.values() if error is not None and error.code not in _OF_TOPICS)
    if (error := next(errors, None)) is not None:
        is_expected = error.code in _OF_GROUPS
        _print_error(error.message if is_expected else f"Encounter some unknown error: {exception_text(error)}")
    rows = [
        (topic, "Successful" if result is None else f"Error: {result.message}")
        for topic, result in sorted(results.items())
    ]
    print("\n" + "\n".join(table(SHARE_DELETED_OFFSETS, rows)))
    return not any(results.values())


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
    sys.exit(main())
