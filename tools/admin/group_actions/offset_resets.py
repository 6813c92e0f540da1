"""Partitions and new offsets of kafka-consumer-groups --reset-offsets and of the reset of Streams applications.

Each scenario is a function from partitions to offsets; its result is clamped between the first and the last offset
of the partition.

Owns the scenarios, their checks and the commit of the result. Must not know how a result is printed.
"""

import argparse
import csv
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from base.topic_partition import TopicPartition
from config import durations
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tools.admin.group_actions.descriptions import NO_OFFSET, committed_offsets
from tools.base.command_line import UsageError
from tools.client.admin_client import EARLIEST, LATEST, AdminClient, raise_for

logger = logging.getLogger("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")

SCENARIOS = (
    "--to-offset",
    "--shift-by",
    "--to-datetime",
    "--by-duration",
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--from-file",
)

Offsets = dict[TopicPartition, int]


def new_offsets(admin: AdminClient, group: str, options: argparse.Namespace, now: datetime) -> Offsets:
    """Return the new offset of each partition, by the scenario of the options. Raises UsageError and KafkaError."""
    if options.from_file is not None:
        wanted = read_offsets(options.from_file, group)
        return clamped(admin, wanted)
    offsets = scenario_offsets(admin, group, _partitions(admin, group, options), options, now)
    if offsets is not None:
        return offsets
    raise UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: {', '.join(SCENARIOS)}")


def scenario_offsets(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], options: argparse.Namespace, now: datetime
) -> Offsets | None:
    """Return the offsets of partitions by the scenario of the options; None without one. Raises as `new_offsets`."""
    for name, scenario in _SCENARIOS.items():
        value = getattr(options, name, None)
        if value not in (None, False):
            return scenario(admin, group, partitions, value, now)
    return None


def commit_offsets(admin: AdminClient, group: str, offsets: Offsets) -> None:
    """Commit the offsets of a group without active members. Raises KafkaError."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        committed = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(topic, []).append(committed)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    response = admin.call_coordinator(group, request, OffsetCommitResponse, _partition_codes)
    for code in _partition_codes(response):
        raise_for(code)


def _partition_codes(response: OffsetCommitResponse) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def _partitions(admin: AdminClient, group: str, options: argparse.Namespace) -> list[TopicPartition]:
    if options.all_topics:
        return sorted(committed_offsets(admin, group))
    if not options.topic:
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    return named_partitions(admin, options.topic)


def named_partitions(admin: AdminClient, names: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of `topic` or `topic:0,1`. Raises UsageError and KafkaError."""
    partitions: list[TopicPartition] = []
    for name in names:
        topic, colon, numbers = name.partition(":")
        if colon:
            if not all(number.strip().isdecimal() for number in numbers.split(",")):
                raise UsageError(f"Invalid topic arg '{name}', expected the partitions as in topic:0,1")
            partitions += [(topic, int(number)) for number in numbers.split(",")]
        else:
            partitions += _all_partitions(admin, topic)
    return sorted(set(partitions))


def _all_partitions(admin: AdminClient, topic: str) -> Iterable[TopicPartition]:
    (described,) = admin.metadata([topic]).topics
    if described.error_code:
        raise KafkaError(ErrorCode(described.error_code))
    return [(topic, partition.partition_index) for partition in described.partitions]


def read_offsets(path: str, group: str) -> Offsets:
    """Read rows `topic,partition,offset`, or with the group in front. Raises UsageError."""
    wanted: Offsets = {}
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            for row in rows:
                match row:
                    case []:
                        continue
                    case [*named_group, topic, partition, offset] if _is_number(partition) and _is_number(offset):
                        if named_group in ([], [group]):
                            wanted[topic, int(partition)] = int(offset)
                    case _:
                        raise ValueError(
                            f"line {rows.line_num} is '{','.join(row)}', expected topic,partition,offset or "
                            "group,topic,partition,offset"
                        )
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"Cannot read offsets from {path}: {getattr(error, 'strerror', None) or error}") from None
    return wanted


def _is_number(text: str) -> bool:
    return text.strip().isdecimal()


def _to_offset(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], value: int, now: datetime
) -> Offsets:
    return clamped(admin, dict.fromkeys(partitions, value))


def _shift_by(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], value: int, now: datetime
) -> Offsets:
    committed = committed_offsets(admin, group)
    for topic, partition in partitions:
        if (topic, partition) not in committed:
            raise UsageError(
                f"Cannot shift offset for partition {topic}-{partition} since there is no current committed offset"
            )
    return clamped(admin, {partition: committed[partition] + value for partition in partitions})


def _to_earliest(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], value: bool, now: datetime
) -> Offsets:
    return existing_offsets(admin, dict.fromkeys(partitions, EARLIEST))


def _to_latest(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], value: bool, now: datetime
) -> Offsets:
    return existing_offsets(admin, dict.fromkeys(partitions, LATEST))


def _to_current(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], value: bool, now: datetime
) -> Offsets:
    committed = committed_offsets(admin, group)
    without = [partition for partition in partitions if partition not in committed]
    current = {partition: committed[partition] for partition in partitions if partition in committed}
    return current | _to_latest(admin, group, without, True, now)


def _to_datetime(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], value: str, now: datetime
) -> Offsets:
    return _at_time(admin, partitions, parse_datetime(value))


def _by_duration(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], value: str, now: datetime
) -> Offsets:
    return _at_time(admin, partitions, now - parse_duration(value))


_SCENARIOS: Mapping[str, Callable[..., Offsets]] = {
    "to_offset": _to_offset,
    "shift_by": _shift_by,
    "to_datetime": _to_datetime,
    "by_duration": _by_duration,
    "to_earliest": _to_earliest,
    "to_latest": _to_latest,
    "to_current": _to_current,
}
"""Scenarios by option. Parameters: the client, the group, the partitions, the option's value and the time."""


def parse_datetime(text: str) -> datetime:
    """Parse an ISO 8601 time, in UTC if it names no zone. Raises UsageError."""
    try:
        if "T" not in text:
            raise ValueError("It does not contain a 'T' according to ISO8601 format")
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"Error parsing timestamp '{text}': {error}") from None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def parse_duration(text: str) -> timedelta:
    """Parse an ISO 8601 duration. Raises UsageError."""
    try:
        return durations.parse_duration(text)
    except ValueError:
        raise UsageError(f"Error parsing duration '{text}'; expected PnDTnHnMnS") from None


def _at_time(admin: AdminClient, partitions: Sequence[TopicPartition], moment: datetime) -> Offsets:
    timestamp_ms = max(0, int(moment.timestamp() * 1000))
    found = existing_offsets(admin, dict.fromkeys(partitions, timestamp_ms))
    later = [partition for partition, offset in found.items() if offset == NO_OFFSET]
    for topic, partition in later:
        logger.warning(
            "Partition %s of topic %s has nothing at that time. Falling back to latest known offset.", partition, topic
        )
    return found | existing_offsets(admin, dict.fromkeys(later, LATEST))


def clamped(admin: AdminClient, wanted: Offsets) -> Offsets:
    """Return the offsets, clamped between the first and the last of their partitions."""
    first = existing_offsets(admin, dict.fromkeys(wanted, EARLIEST))
    last = existing_offsets(admin, dict.fromkeys(wanted, LATEST))
    clamped = {partition: min(max(offset, first[partition]), last[partition]) for partition, offset in wanted.items()}
    for (topic, partition), offset in wanted.items():
        limit = clamped[topic, partition]
        if offset != limit:
            order = "lower than earliest" if offset < limit else "higher than latest"
            logger.warning(
                "New offset (%s) is %s offset for topic partition %s-%s. Value will be set to %s",
                offset,
                order,
                topic,
                partition,
                limit,
            )
    return clamped


def existing_offsets(admin: AdminClient, timestamps: Mapping[TopicPartition, int]) -> Offsets:
    """Return offsets by timestamp. Raises KafkaError for a partition without one."""
    found: Offsets = {}
    for partition, offset in admin.list_offsets(timestamps).items():
        if isinstance(offset, KafkaError):
            raise offset
        found[partition] = offset
    return found
