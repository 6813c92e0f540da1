"""The offsets of groups are reset and deleted, and groups are deleted.

Owns which requests make up such a change, and its preview. Must not know HTTP.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, Literal, TypedDict

from base.topic_partition import TopicPartition
from broker.console.bodies import require_range
from broker.console.changes.change import (
    NO_LONGER,
    TIMEOUT_MS,
    Change,
    Confirmation,
    Plan,
    change_row,
    changed,
    require_success,
)
from broker.console.cluster_client import EARLIEST, LATEST
from broker.console.committed_offsets import committed
from broker.console.console import Console
from broker.console.groups import coordinator_of, described_group
from broker.console.problem import ProblemError, bad_request, not_found
from broker.console.topics import require_topic
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

PARTITIONS_MAX: Final = 10_000
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
OFFSET_DIGITS: Final = len(str(INT64_MAX))
EMPTY_STATES: Final = ("Empty", "Dead")

Strategy = Literal["earliest", "latest", "offset", "shift", "time"]


class ResetRow(TypedDict):
    """One partition of a reset. `problem`: why its offset was not set."""

    topic: str
    partition: int
    before: str | None
    after: str
    start: str
    end: str
    problem: str


class OffsetReset(TypedDict):
    """New offsets of a group, for all topics that it reads or for some.

    `value` is the offset, the number to shift by, or the time in milliseconds. With the rows of a preview in `confirm`,
    their offsets are set, without regard to the other parts: the end of a partition moves, and only what was shown is
    set. Without, it is a preview.
    """

    topics: list[str]
    strategy: Strategy
    value: int
    confirm: list[ResetRow]


class ResetPreview(TypedDict):
    """The offsets that a reset sets, or has set."""

    group: str
    is_done: bool
    state: str
    problem: str
    offsets: list[ResetRow]


async def reset_offsets(console: Console, *, group: str, body: OffsetReset) -> ResetPreview:
    """Return the offsets that a reset would set, or set those of a preview. Raises ProblemError."""
    broker = coordinator_of(console, group)
    described = await described_group(console, broker, group)
    before = (await committed(console.client, broker, [group])).get(group, {})
    rows = body["confirm"]
    is_confirmed = bool(rows)
    problem = ""
    if described.group_state not in EMPTY_STATES:
        problem = f"the group is {described.group_state}: stop its members first, as they would overwrite the offsets"
    if is_confirmed:
        if problem:
            raise ProblemError(HTTPStatus.CONFLICT, problem)
        _require_unchanged(rows, before)
        rows = await _commit(console, broker, group, rows)
    else:
        rows = await _reset_rows(console, before, body)
    return ResetPreview(group=group, is_done=is_confirmed, state=described.group_state, problem=problem, offsets=rows)


async def _reset_rows(console: Console, before: dict[TopicPartition, int], body: OffsetReset) -> list[ResetRow]:
    """Return what a reset sets. Raises ProblemError."""
    targets = _targets(console, before, body)
    starts = await console.client.offsets(targets, EARLIEST)
    ends = await console.client.offsets(targets, LATEST)
    is_by_time = body["strategy"] == "time"
    times = await console.client.offsets(targets, body["value"]) if is_by_time else starts
    missing = [each for each in targets if not (each in starts and each in ends and each in times)]
    if missing:
        raise ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE, f"the leader of {missing[0][0]}-{missing[0][1]} did not respond"
        )
    rows = []
    for each in targets:
        start, end = starts[each].offset, ends[each].offset
        if is_by_time:
            after = times[each].offset if times[each].offset >= 0 else end
        else:
            after = _new_offset(body, before.get(each), start, end)
        rows.append(
            ResetRow(
                topic=each[0],
                partition=each[1],
                before=str(before[each]) if each in before else None,
                after=str(min(max(after, start), end)),
                start=str(start),
                end=str(end),
                problem="",
            )
        )
    return rows


def _require_unchanged(rows: list[ResetRow], before: dict[TopicPartition, int]) -> None:
    """Raise ProblemError if the offsets are no longer those that the preview has shown, or a row is none."""
    if len(rows) > PARTITIONS_MAX:
        raise bad_request(f"the reset concerns {len(rows)} partitions, expected 1 to {PARTITIONS_MAX}")
    for row in rows:
        after = row["after"]
        require_range("partition", row["partition"], 0, INT32_MAX)
        if not (after.isascii() and after.isdecimal() and len(after) <= OFFSET_DIGITS):
            raise bad_request(f"after={after[:40]!r}: expected an offset of the preview")
        require_range("after", int(after), 0, INT64_MAX)
        present = before.get((row["topic"], row["partition"]))
        if row["before"] != (None if present is None else str(present)):
            raise ProblemError(HTTPStatus.CONFLICT, NO_LONGER)


async def delete_group(console: Console, *, group: str, body: Confirmation) -> Change:
    """Delete a group with all its offsets. Raises ProblemError."""
    broker = coordinator_of(console, group)
    described = await described_group(console, broker, group)
    before = (await committed(console.client, broker, [group])).get(group, {})
    if described.group_state == "Dead" and not before:
        raise not_found(f"group {group!r} does not exist")
    topics = len({topic for topic, _ in before})
    rows = [change_row(f"group {group}", f"offsets of {len(before)} partitions of {topics} topics", None)]

    async def perform() -> list[str]:
        response = await console.client.ask(broker, DeleteGroupsRequest(groups_names=[group]), timeout_ms=TIMEOUT_MS)
        require_success(response.results[0].error_code, f"group {group!r}")
        console.group_offsets.forget()
        return [""]

    is_used = described.group_state not in EMPTY_STATES
    warnings = [f"The group is {described.group_state}: it has members."] if is_used else []
    return await changed(Plan(rows, perform, warnings), body["confirm"])


async def delete_group_topic(console: Console, *, group: str, name: str, body: Confirmation) -> Change:
    """Delete the offsets of one topic from a group. Raises ProblemError."""
    broker = coordinator_of(console, group)
    before = (await committed(console.client, broker, [group])).get(group, {})
    offsets = {partition: offset for (topic, partition), offset in sorted(before.items()) if topic == name}
    if not offsets:
        raise not_found(f"group {group!r} has no offsets of topic {name!r}")
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in offsets]
            )
        ],
    )

    async def perform() -> list[str]:
        response = await console.client.ask(broker, request, timeout_ms=TIMEOUT_MS)
        require_success(response.error_code, f"group {group!r}")
        console.group_offsets.forget()
        problems = dict.fromkeys(offsets, "")
        for topic in response.topics:
            for one in topic.partitions:
                problems[one.partition_index] = ErrorCode(one.error_code).name if one.error_code else ""
        return list(problems.values())

    rows = [change_row(f"{name}-{partition}", f"offset {offset}", None) for partition, offset in offsets.items()]
    return await changed(Plan(rows, perform), body["confirm"])


def _targets(console: Console, before: dict[TopicPartition, int], body: OffsetReset) -> list[TopicPartition]:
    """Return the partitions of a reset, in order. Raises ProblemError."""
    if not body["topics"]:
        targets = sorted(before)
    else:
        targets = [
            (name, partition)
            for name in sorted(set(body["topics"]))
            for partition in sorted(require_topic(console, name).partitions)
        ]
    if body["strategy"] == "shift":
        targets = [each for each in targets if each in before]
    if not 0 < len(targets) <= PARTITIONS_MAX:
        raise bad_request(f"the reset concerns {len(targets)} partitions, expected 1 to {PARTITIONS_MAX}")
    return targets


def _new_offset(body: OffsetReset, before: int | None, start: int, end: int) -> int:
    match body["strategy"]:
        case "earliest":
            return start
        case "latest":
            return end
        case "shift":
            return (before or 0) + body["value"]
        case _:
            return body["value"]


async def _commit(console: Console, broker: int, group: str, rows: list[ResetRow]) -> list[ResetRow]:
    """Set offsets; return the rows with the reasons for those that were not set."""
    by_topic: dict[str, list[Any]] = {}
    for row in rows:
        by_topic.setdefault(row["topic"], []).append(
            OffsetCommitRequestPartition(
                partition_index=row["partition"], committed_offset=int(row["after"]), committed_metadata=""
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in by_topic.items()],
    )
    response = await console.client.ask(broker, request, timeout_ms=TIMEOUT_MS)
    console.group_offsets.forget()
    codes = {(topic.name, one.partition_index): one.error_code for topic in response.topics for one in topic.partitions}
    problems = {each: ErrorCode(code).name for each, code in codes.items() if code}
    return [ResetRow({**row, "problem": problems.get((row["topic"], row["partition"]), "")}) for row in rows]
