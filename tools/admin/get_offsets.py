"""kafka-get-offsets: prints the offsets of partitions at a time, or at their beginning or end."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from base.topic_partition import TopicPartition
from protocol.errors import KafkaError
from tools.base.command_line import BOOTSTRAP_SERVER_ONLY, CommandLine, UsageError, run_tool
from tools.base.java_names import exception_text
from tools.base.topic_patterns import topic_pattern
from tools.client.admin_client import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    AdminClient,
    CallTimedOut,
)
from tools.client.admin_options import add_admin_options, admin_client

TIMES: Mapping[str, int] = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}

_NO_OFFSET: Final = -1
_INT64: Final = range(-(1 << 63), 1 << 63)
_ERROR_PREFIX: Final = "Error occurred: "
_RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<only>[0-9]*)|(?P<first>[0-9]*)-(?P<end>[0-9]*)))?")


class Rule(NamedTuple):
    """Some partitions of some topics: from `first` to `end`, exclusive."""

    topic: re.Pattern[str]
    first: int = 0
    end: int | None = None

    def takes(self, partition: TopicPartition) -> bool:
        topic, index = partition
        is_in_range = self.first <= index and (self.end is None or index < self.end)
        return is_in_range and self.topic.fullmatch(topic) is not None


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    return run_tool(_command_line(), _run, arguments, error_prefix=_ERROR_PREFIX)


def _command_line() -> CommandLine:
    line = CommandLine("kafka-get-offsets", "An interactive shell for getting topic-partition offsets.")
    add_admin_options(line, BOOTSTRAP_SERVER_ONLY)
    line.add_option(
        "--broker-list", value="HOST1:PORT1,...", help_text="DEPRECATED, use --bootstrap-server, which wins."
    )
    line.add_option("--topic", value="topic", help_text="The topics, as a regular expression; all without it.")
    line.add_option("--partitions", value="partition ids", help_text="The partitions, as in 0,1; all without it.")
    line.add_option(
        "--topic-partitions",
        value="topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
        help_text="Topics, as regular expressions, each with one partition, a range (the last not included) or all.",
    )
    line.add_option(
        "--time",
        value="<timestamp> / -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or "
        "latest-tiered",
        default="latest",
        help_text="The offset of the first record at or after a time. (default: latest)",
    )
    line.add_flag("--exclude-internal-topics", "Leave internal topics out.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    options.bootstrap_server = options.bootstrap_server or options.broker_list
    line.require(options, "--bootstrap-server")
    rules = _rules(options)
    timestamp = parse_time(options.time)
    try:
        with admin_client(options) as admin:
            partitions = _partitions(admin, rules, exclude_internal=options.exclude_internal_topics)
            offsets = admin.list_offsets(dict.fromkeys(partitions, timestamp))
    except KafkaError as error:
        return _failed(error.message)
    except CallTimedOut as error:
        return _failed(str(error))
    if not partitions:
        return _failed("Could not match any topic-partitions with the specified filters")
    for topic, partition in partitions:
        offset = offsets[topic, partition]
        if isinstance(offset, KafkaError):
            reason = exception_text(offset)
            print(
                f"Skip getting offsets for topic-partition {topic}-{partition} due to error: {reason}", file=sys.stderr
            )
        elif offset != _NO_OFFSET:
            print(f"{topic}:{partition}:{offset}")
    return 0


def _failed(reason: str) -> int:
    print(f"{_ERROR_PREFIX}{reason}", file=sys.stderr)
    return 1


def _rules(options: argparse.Namespace) -> list[Rule]:
    """Return the rules of the options; a partition matches if any rule does. Raises UsageError."""
    if options.topic_partitions is not None:
        if options.topic is not None or options.partitions is not None:
            raise UsageError("--topic-partitions cannot be used with --topic or --partitions")
        return [parse_rule(text) for text in options.topic_partitions.split(",")]
    topic = topic_pattern(options.topic or ".*")
    if options.partitions is None:
        return [Rule(topic)]
    return [Rule(topic, index, index + 1) for index in _partition_ids(options.partitions)]


def parse_rule(text: str) -> Rule:
    """Parse the rule `topic`, `topic:3`, `topic:1-3`, `topic:1-` or `:-3`. Raises UsageError."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(f"Invalid rule specification: {text}")
    topic = topic_pattern(match["topic"] or ".*")
    if match["only"]:
        return Rule(topic, int(match["only"]), int(match["only"]) + 1)
    return Rule(topic, int(match["first"] or 0), int(match["end"]) if match["end"] else None)


def parse_time(text: str) -> int:
    """Return the ListOffsets timestamp of a word or a number. Raises UsageError."""
    if text in TIMES:
        return TIMES[text]
    if re.fullmatch(r"[+-]?[0-9]+", text) and int(text) in _INT64:
        return int(text)
    words = "-1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered"
    raise UsageError(f"Malformed time argument {text}. Please use {words}, or a specified long format timestamp")


def _partition_ids(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"--partitions expects a comma separated list of numeric partition ids, but received: {text}")
    return [int(part) for part in parts]


def _partitions(admin: AdminClient, rules: Sequence[Rule], *, exclude_internal: bool) -> list[TopicPartition]:
    partitions = (
        (topic.name or "", partition.partition_index)
        for topic in admin.metadata().topics
        if not (exclude_internal and topic.is_internal)
        for partition in topic.partitions
    )
    return sorted(partition for partition in partitions if any(rule.takes(partition) for rule in rules))


if __name__ == "__main__":
    raise SystemExit(main())
