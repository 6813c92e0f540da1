"""kafka-streams-application-reset: lets an application of Kafka Streams process its input from the beginning again.

It resets the offsets of the input topics, sets those of intermediate topics to their ends, and deletes the internal
topics. The local state of each instance is deleted by the application itself (`KafkaStreams#cleanUp`).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from base.topic_partition import TopicPartition
from protocol.errors import KafkaError
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tools.admin.group_actions.descriptions import ConsumerGroup, describe_group
from tools.admin.group_actions.offset_resets import (
    Offsets,
    clamped,
    commit_offsets,
    existing_offsets,
    read_offsets,
    scenario_offsets,
)
from tools.admin.topics import delete_topics
from tools.base.command_line import CommandLine, UsageError, is_given, run_tool
from tools.base.java_names import exception_text
from tools.client.admin_client import LATEST, AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_client_options, admin_client

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
SCENARIOS: Final = (
    "--to-offset", "--to-datetime", "--by-duration", "--to-earliest", "--to-latest", "--from-file", "--shift-by",
)  # fmt: skip
_FOREIGN_KEY_JOIN = re.compile(r".+-KTABLE-FK-JOIN-SUBSCRIPTION-(RESPONSE|REGISTRATION)-\d+-topic")


class ResetError(Exception):
    """The application cannot be reset; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 also if a named topic does not exist."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-streams-application-reset",
        "This tool helps to quickly reset an application in order to reprocess its data from scratch. It resets the "
        "offsets of the input topics to the earliest ones by default, those of the intermediate topics to their ends, "
        "and deletes the internal topics that Kafka Streams created (names that begin with the application id). Stop "
        "all instances of the application before. Each instance deletes its local state by KafkaStreams#cleanUp.",
        ["--application-id word-count --input-topics lines --dry-run"],
    )
    add_client_options(line, "--config-file")
    line.add_option("--application-id", value="id", help_text="REQUIRED: the application id (application.id).")
    line.add_option("--input-topics", value="list", help_text="Topics whose offsets are reset, separated by commas.")
    line.add_option("--intermediate-topics", value="list", help_text="DEPRECATED: topics to continue at their ends.")
    line.add_option("--internal-topics", value="list", help_text="The internal topics to delete, instead of all.")
    line.add_option("--to-offset", value="number", parse=int, help_text="Reset offsets to an offset.")
    line.add_option("--to-datetime", value="text", help_text="Reset offsets to a time: YYYY-MM-DDTHH:mm:SS.sss.")
    line.add_option("--by-duration", value="text", help_text="Reset offsets to a duration before now: PnDTnHnMnS.")
    line.add_flag("--to-earliest", "Reset offsets to the earliest ones. This is the default.")
    line.add_flag("--to-latest", "Reset offsets to the latest ones.")
    line.add_option("--from-file", value="file", help_text="Reset offsets to those in a file: topic,partition,offset.")
    line.add_option("--shift-by", value="number", parse=int, help_text="Move the committed offsets by a number.")
    line.add_flag("--force", "Remove active members of the group, such as crashed instances, before the session ends.")
    line.add_flag("--dry-run", "Show what would be done.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--application-id")
    for used in SCENARIOS:
        line.forbid(options, used, *(other for other in SCENARIOS if other != used))
    options.bootstrap_server = options.bootstrap_server or DEFAULT_BOOTSTRAP
    try:
        with admin_client(options) as admin:
            return _reset(admin, options)
    except KafkaError as error:
        print(f"ERROR: {exception_text(error)}", file=sys.stderr)
    except (ResetError, CallTimedOut) as error:
        print(f"ERROR: {error}", file=sys.stderr)
    return 1


def _reset(admin: AdminClient, options: argparse.Namespace) -> int:
    application = options.application_id
    _require_inactive(admin, describe_group(admin, application), is_forced=options.force)
    if options.dry_run:
        print("----Dry run displays the actions which will be performed when running Streams Reset Tool----")
    topics = {
        topic.name: len(topic.partitions) for topic in admin.metadata().topics if topic.name and not topic.error_code
    }
    inputs, intermediates = _names(options.input_topics), _names(options.intermediate_topics)
    if not inputs and not intermediates:
        print("No input or intermediate topics specified. Skipping seek.")
    else:
        _reset_offsets(admin, options, topics, inputs, intermediates)
    _delete_internal_topics(admin, options, sorted(topics))
    return 1 if {*inputs, *intermediates} - topics.keys() else 0


def _require_inactive(admin: AdminClient, group: ConsumerGroup, *, is_forced: bool) -> None:
    """Remove the members of a group if `is_forced`. Raises ResetError if it has some."""
    if not group.members:
        return
    if not is_forced:
        members = ", ".join(f"{member.client_id} at {member.host} ({member.member_id})" for member in group.members)
        raise ResetError(
            f"Consumer group '{group.name}' is still active and has following members: [{members}]. Make sure to stop "
            "all running application instances before running the reset tool. You can use option '--force' to remove "
            "active members from the group."
        )
    print(f"Force deleting all active members in the group: {group.name}")
    request = LeaveGroupRequest(
        group_id=group.name,
        members=[
            MemberIdentity(member_id=member.member_id, group_instance_id=member.instance_id) for member in group.members
        ],
    )
    response = admin.call_coordinator(group.name, request, LeaveGroupResponse, lambda found: [found.error_code])
    raise_for(response.error_code)


def _reset_offsets(
    admin: AdminClient,
    options: argparse.Namespace,
    topics: dict[str, int],
    inputs: Sequence[str],
    intermediates: Sequence[str],
) -> None:
    application = options.application_id
    if inputs:
        print(f"Reset-offsets for input topics {_listed(inputs)}")
    if intermediates:
        print(f"Seek-to-end for intermediate topics {_listed(intermediates)}")
    for kind, names in (("input", inputs), ("intermediate", intermediates)):
        if missing := [name for name in names if name not in topics]:
            print(f"Following {kind} topics are not found, skipping them")
            for name in missing:
                print(f"Topic: {name}")
    offsets: Offsets = {}
    if partitions := _partitions(topics, inputs):
        offsets |= _input_offsets(admin, options, partitions)
        print(f"Following input topics offsets will be reset to (for consumer group {application})")
        for topic, partition in partitions:
            if (topic, partition) in offsets:
                print(f"Topic: {topic} Partition: {partition} Offset: {offsets[topic, partition]}")
    if partitions := _partitions(topics, intermediates):
        offsets |= existing_offsets(admin, dict.fromkeys(partitions, LATEST))
        print(f"Following intermediate topics offsets will be reset to end (for consumer group {application})")
        for topic, _ in partitions:
            print(f"Topic: {topic}")
    if not options.dry_run and offsets:
        commit_offsets(admin, application, offsets)
    if _partitions(topics, [*inputs, *intermediates]):
        print("Done.")


def _input_offsets(admin: AdminClient, options: argparse.Namespace, partitions: Sequence[TopicPartition]) -> Offsets:
    if options.from_file is not None:
        wanted = read_offsets(options.from_file, options.application_id)
        return clamped(admin, {partition: wanted[partition] for partition in partitions if partition in wanted})
    if not any(is_given(options, name) for name in SCENARIOS):
        options.to_earliest = True
    offsets = scenario_offsets(admin, options.application_id, partitions, options, datetime.now(UTC))
    assert offsets is not None
    return offsets


def _delete_internal_topics(admin: AdminClient, options: argparse.Namespace, topics: Sequence[str]) -> None:
    """Raises ResetError if a named topic is not internal."""
    internal = [topic for topic in topics if is_internal(topic, options.application_id)]
    if named := _names(options.internal_topics):
        if not set(named) <= set(internal):
            raise ResetError(
                "Invalid topic specified in the --internal-topics option. Ensure that the topics specified are all "
                "internal topics. Do a dry run without the --internal-topics option to see the list of all internal "
                "topics that can be deleted."
            )
        internal = list(named)
        print(f"Deleting specified internal topics {_listed(internal)}")
    else:
        print(f"Deleting inferred internal topics {_listed(internal)}")
    if internal and not options.dry_run:
        delete_topics(admin, internal)
    print("Done.")


def is_internal(topic: str, application_id: str) -> bool:
    """Return whether Kafka Streams gave a topic its name: changelogs, repartitioned records and foreign-key joins."""
    return topic.startswith(f"{application_id}-") and (
        topic.endswith(("-changelog", "-repartition")) or _FOREIGN_KEY_JOIN.fullmatch(topic) is not None
    )


def _partitions(topics: dict[str, int], names: Sequence[str]) -> list[TopicPartition]:
    return [(name, partition) for name in names for partition in range(topics.get(name, 0))]


def _names(text: str | None) -> list[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if len(set(names)) < len(names):
        raise UsageError(f"A topic is named twice in {text}")
    return names


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


if __name__ == "__main__":
    raise SystemExit(main())
