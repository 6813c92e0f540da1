"""Topics are created, grown, emptied and deleted.

Owns which requests make up such a change, and its preview. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypedDict

from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import NO_LEADER
from broker.console.bodies import require_range
from broker.console.changes.change import TIMEOUT_MS, Change, Confirmation, Plan, change_row, changed, require_success
from broker.console.cluster_client import EARLIEST, LATEST
from broker.console.console import Console
from broker.console.controller import controller_of
from broker.console.group_lags import groups_by_topic
from broker.console.problem import bad_request, of_code
from broker.console.records.cursors import cursor_of, offsets_of_cursor
from broker.console.topics import require_topic
from broker.network.outgoing import PeerUnavailable
from config import broker_properties as properties
from config.describe import describe_topic
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.schema import ZERO_UUID

INT32_MAX: Final = (1 << 31) - 1
INT16_MAX: Final = (1 << 15) - 1
DEFAULT: Final = -1
ALL: Final = -1
GROUPS_NAMED_MAX: Final = 10


class NewTopic(TypedDict):
    """A topic to create. -1: the default of the broker. `confirm` is the token of a preview."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    confirm: str


class MorePartitions(TypedDict):
    """The number of partitions that a topic shall have. `confirm` is the token of a preview."""

    count: int
    confirm: str


class Emptying(TypedDict):
    """Records to delete: all of one partition, or of all with -1, that exist at the preview.

    `confirm` is the token of a preview: the offsets before which records are deleted, by partition.
    """

    partition: int
    confirm: str


async def create_topic(console: Console, *, body: NewTopic) -> Change:
    """Create a topic. Raises ProblemError."""
    require_range("partitions", body["partitions"], DEFAULT, INT32_MAX)
    require_range("replication_factor", body["replication_factor"], DEFAULT, INT16_MAX)
    validated = await _create(console, body, validate_only=True)
    defaults = {each.name: each.value for each in describe_topic(console.services.config, {})}
    rows = [
        change_row(
            f"topic {body['name']}",
            None,
            f"{validated.num_partitions} partitions, replication factor {validated.replication_factor}",
        ),
        *(change_row(name, defaults.get(name), value) for name, value in sorted(body["configs"].items())),
    ]

    async def perform() -> list[str]:
        await _create(console, body, validate_only=False)
        return [""] * len(rows)

    return await changed(Plan(rows, perform), body["confirm"])


async def _create(console: Console, body: NewTopic, *, validate_only: bool) -> Any:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=body["name"],
                num_partitions=body["partitions"],
                replication_factor=body["replication_factor"],
                assignments=[],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in body["configs"].items()],
            )
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )
    result = (await console.client.ask(controller_of(console), request, timeout_ms=TIMEOUT_MS)).topics[0]
    require_success(result.error_code, result.error_message)
    return result


async def grow_topic(console: Console, *, name: str, body: MorePartitions) -> Change:
    """Raise the number of partitions of a topic. Raises ProblemError."""
    before = len(require_topic(console, name).partitions)
    require_range("count", body["count"], 1, INT32_MAX)
    await _grow(console, name, body["count"], validate_only=True)

    async def perform() -> list[str]:
        await _grow(console, name, body["count"], validate_only=False)
        return [""]

    warning = "Records with a key go to another partition than before, so their order over time is lost for consumers."
    rows = [change_row(f"topic {name}", f"{before} partitions", f"{body['count']} partitions")]
    return await changed(Plan(rows, perform, [warning]), body["confirm"])


async def _grow(console: Console, name: str, count: int, *, validate_only: bool) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
    )
    result = (await console.client.ask(controller_of(console), request, timeout_ms=TIMEOUT_MS)).results[0]
    require_success(result.error_code, result.error_message)


async def empty_topic(console: Console, *, name: str, body: Emptying) -> Change:
    """Delete the records of a topic up to the offsets of the preview. Raises ProblemError."""
    partitions = _partitions(console, name, body["partition"])
    starts, ends = await asyncio.gather(
        console.client.offsets(partitions, EARLIEST), console.client.offsets(partitions, LATEST)
    )
    missing = [number for topic, number in partitions if (topic, number) not in starts or (topic, number) not in ends]
    if missing:
        raise of_code(ErrorCode.LEADER_NOT_AVAILABLE, f"the leader of {name}-{missing[0]} did not respond")
    up_to = offsets_of_cursor(body["confirm"]) or {number: ends[name, number].offset for _, number in partitions}
    if up_to.keys() != {number for _, number in partitions}:
        raise bad_request(f"confirm={body['confirm'][:40]!r}: expected the token of the preview")
    rows = []
    for each in partitions:
        start, end = starts[each].offset, max(up_to[each[1]], starts[each].offset)
        rows.append(
            change_row(f"{name}-{each[1]}", f"{end - start} offsets from {start} on", f"begins at offset {end}")
        )
    warnings = [] if any(starts[each].offset < up_to[each[1]] for each in partitions) else ["There are no records."]
    return await changed(Plan(rows, lambda: _empty(console, name, up_to), warnings, cursor_of(up_to)), body["confirm"])


async def _empty(console: Console, name: str, up_to: Mapping[int, int]) -> list[str]:
    """Delete records; return for each partition why its records were not deleted."""
    by_leader: dict[int, list[int]] = {}
    for number in up_to:
        by_leader.setdefault(console.services.metadata_cache.leader_of(name, number), []).append(number)

    async def empty_at(leader: int, numbers: list[int]) -> dict[int, str]:
        if leader == NO_LEADER:
            return dict.fromkeys(numbers, "it has no leader")
        wanted = [DeleteRecordsPartition(partition_index=each, offset=up_to[each]) for each in numbers]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=wanted)], timeout_ms=TIMEOUT_MS)
        try:
            response = await console.client.ask(leader, request, timeout_ms=TIMEOUT_MS)
        except KafkaError as error:
            return dict.fromkeys(numbers, error.code.name)
        except (PeerUnavailable, Malformed) as error:
            return dict.fromkeys(numbers, f"broker {leader} may have deleted them: {error}")
        results = response.topics[0].partitions
        return {each.partition_index: ErrorCode(each.error_code).name if each.error_code else "" for each in results}

    problems: dict[int, str] = {}
    for found in await asyncio.gather(*(empty_at(*one) for one in by_leader.items())):
        problems.update(found)
    return [problems[number] for number in up_to]


async def delete_topic(console: Console, *, name: str, body: Confirmation) -> Change:
    """Delete a topic with its records. Raises ProblemError."""
    state = require_topic(console, name)
    partitions = [(name, number) for number in state.partitions]
    starts, ends = await asyncio.gather(
        console.client.offsets(partitions, EARLIEST), console.client.offsets(partitions, LATEST)
    )
    offsets = sum(ends[each].offset - starts[each].offset for each in partitions if each in starts and each in ends)
    by_topic = await groups_by_topic(await console.group_offsets.get(), {name}, {}, console.pause)
    groups = [each["group"] for each in by_topic.get(name, [])]
    warnings = []
    if groups:
        more = len(groups) - GROUPS_NAMED_MAX
        named = ", ".join(groups[:GROUPS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        warnings.append(f"Groups with offsets of the topic: {named}.")
    if name in INTERNAL_TOPICS:
        warnings.append("The brokers keep their own state in this topic: without it groups or transactions are lost.")
    elif console.services.config[properties.AUTO_CREATE_TOPICS_ENABLE]:
        warnings.append("auto.create.topics.enable is true: a client that still uses the topic creates it again.")
    rows = [change_row(f"topic {name}", f"{len(partitions)} partitions, {offsets} offsets", None)]
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], topic_names=[name], timeout_ms=TIMEOUT_MS
    )

    async def perform() -> list[str]:
        result = (await console.client.ask(controller_of(console), request, timeout_ms=TIMEOUT_MS)).responses[0]
        require_success(result.error_code, result.error_message or f"topic {name!r}")
        return [""]

    return await changed(Plan(rows, perform, warnings, f"{state.topic_id}:{len(partitions)}"), body["confirm"])


def _partitions(console: Console, name: str, partition: int) -> list[TopicPartition]:
    """Return one partition of a topic, or all. Raises ProblemError."""
    known = sorted(require_topic(console, name).partitions)
    if partition != ALL and partition not in known:
        raise bad_request(f"partition {partition}: topic {name!r} has 0 to {len(known) - 1}")
    return [(name, each) for each in (known if partition == ALL else [partition])]
