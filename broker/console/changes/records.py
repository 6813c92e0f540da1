"""What the console changes, if `console.write.enable` is set: records, and the offsets of groups.

Owns which requests make up a change, and its preview. Every change is a Kafka request of the console's principal, so
the rules and permissions are those of clients. Must not know HTTP.
"""

from __future__ import annotations

import binascii
from http import HTTPStatus
from typing import Any, Final, Literal, TypedDict

from base.topic_partition import TopicPartition
from broker.cluster.metadata_cache import NO_LEADER
from broker.console.cluster_client import EARLIEST, LATEST
from broker.console.committed_offsets import committed
from broker.console.configs import Done
from broker.console.console import Console
from broker.console.groups import coordinator_of, described_group
from broker.console.murmur2 import murmur2
from broker.console.problem import ProblemError, bad_request, of_code
from broker.console.topics import require_topic
from broker.network.outgoing import PeerUnavailable
from protocol.errors import ErrorCode, KafkaError
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
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch

ALL_IN_SYNC: Final = -1
PRODUCE_TIMEOUT_MS: Final = 10_000
RECORDS_MAX: Final = 100
PARTITIONS_MAX: Final = 10_000
TOPIC_HEADERS: Final = (
    "kafka_dlt-original-topic",
    "__connect.errors.topic",
    "x-original-topic",
    "original-topic",
)
"""Headers in which common frameworks note where a dead letter comes from."""
EMPTY_STATES: Final = ("Empty", "Dead")

Encoding = Literal["text", "hex"]
Strategy = Literal["earliest", "latest", "offset", "shift", "time"]


class HeaderText(TypedDict):
    """A header of a record to produce."""

    key: str
    value: str | None


class NewRecord(TypedDict):
    """A record to produce. Partition -1: the one that Java clients choose by the key."""

    partition: int
    key: str | None
    value: str | None
    headers: list[HeaderText]
    encoding: Encoding


class Produced(TypedDict):
    """Where a record is now."""

    topic: str
    partition: int
    offset: str


class RecordReference(TypedDict):
    """A stored record."""

    partition: int
    offset: int


class Resend(TypedDict):
    """Records to be produced again as they are, to `topic`; without it, to the topic in the header of each.

    `header` names that header; empty: the ones of common frameworks.
    """

    records: list[RecordReference]
    topic: str
    header: str


class Resent(TypedDict):
    """What became of each record, in order; `problem` is empty if it was produced."""

    partition: int
    offset: str
    topic: str
    produced_partition: int
    produced_offset: str
    problem: str


class ResendResult(TypedDict):
    """What became of all records."""

    records: list[Resent]


class OffsetReset(TypedDict):
    """New offsets of a group, for all topics that it reads or for some.

    `value` is the offset, the number to shift by, or the time in milliseconds.
    """

    topics: list[str]
    strategy: Strategy
    value: int
    is_preview: bool


class ResetRow(TypedDict):
    """One partition of a reset."""

    topic: str
    partition: int
    before: str | None
    after: str
    start: str
    end: str


class ResetPreview(TypedDict):
    """The offsets that a reset sets, or has set."""

    group: str
    is_done: bool
    state: str
    problem: str
    offsets: list[ResetRow]


async def produce(console: Console, *, name: str, body: NewRecord) -> Produced:
    """Produce one record and wait until all in-sync replicas have it. Raises ProblemError."""
    record = RecordData(
        console.services.clock.now_ms(),
        _bytes("key", body["key"], body["encoding"]),
        _bytes("value", body["value"], body["encoding"]),
        [(each["key"], _bytes("header", each["value"], "text")) for each in body["headers"]],
    )
    return await _produce(console, name, body["partition"], record)


async def resend(console: Console, *, name: str, body: Resend) -> ResendResult:
    """Produce stored records again, byte for byte. One result a record. Raises ProblemError."""
    require_topic(console, name)
    references = body["records"]
    if not 0 < len(references) <= RECORDS_MAX:
        raise bad_request(f"{len(references)} records, expected 1 to {RECORDS_MAX}")
    results = []
    for each in references:
        result = Resent(
            partition=each["partition"],
            offset=str(each["offset"]),
            topic="",
            produced_partition=-1,
            produced_offset="",
            problem="",
        )
        try:
            found = (await console.reader.one(name, each["partition"], each["offset"])).record
            target = body["topic"] or _original_topic(found.headers, body["header"])
            result["topic"] = target
            partition = each["partition"] if target == name else -1
            record = RecordData(console.services.clock.now_ms(), found.key, found.value, found.headers)
            produced = await _produce(console, target, partition, record)
            result["produced_partition"], result["produced_offset"] = produced["partition"], produced["offset"]
        except ProblemError as problem:
            result["problem"] = problem.message
        except (KafkaError, PeerUnavailable) as error:
            result["problem"] = str(error)
        results.append(result)
    return ResendResult(records=results)


async def reset_offsets(console: Console, *, group: str, body: OffsetReset) -> ResetPreview:
    """Return the offsets that a reset would set; set them unless it is a preview. Raises ProblemError."""
    broker = coordinator_of(console, group)
    described = await described_group(console, broker, group)
    before = (await committed(console.client, broker, [group])).get(group, {})
    targets = _targets(console, before, body)
    starts = await console.client.offsets(targets, EARLIEST)
    ends = await console.client.offsets(targets, LATEST)
    times = await console.client.offsets(targets, body["value"]) if body["strategy"] == "time" else {}
    missing = [each for each in targets if each not in starts or each not in ends]
    if missing:
        raise ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE, f"the leader of {missing[0][0]}-{missing[0][1]} did not respond"
        )
    rows = []
    for each in targets:
        start, end = starts[each].offset, ends[each].offset
        if body["strategy"] == "time":
            after = times[each].offset if each in times and times[each].offset >= 0 else end
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
            )
        )
    problem = ""
    if described.group_state not in EMPTY_STATES:
        problem = f"the group is {described.group_state}: stop its members first, as they would overwrite the offsets"
    if not body["is_preview"]:
        if problem:
            raise ProblemError(HTTPStatus.CONFLICT, problem)
        await _commit(console, broker, group, rows)
    return ResetPreview(
        group=group, is_done=not body["is_preview"], state=described.group_state, problem=problem, offsets=rows
    )


async def delete_group(console: Console, *, group: str) -> Done:
    """Delete a group with all its offsets. Raises ProblemError."""
    broker = coordinator_of(console, group)
    response = await console.client.ask(broker, DeleteGroupsRequest(groups_names=[group]))
    _require_success(response.results[0].error_code, f"group {group!r}")
    console.group_offsets.forget()
    return Done(done=f"group {group} was deleted")


async def delete_group_topic(console: Console, *, group: str, name: str) -> Done:
    """Delete the offsets of one topic from a group. Raises ProblemError."""
    broker = coordinator_of(console, group)
    before = (await committed(console.client, broker, [group])).get(group, {})
    partitions = [partition for topic, partition in sorted(before) if topic == name]
    if not partitions:
        raise ProblemError(HTTPStatus.NOT_FOUND, f"group {group!r} has no offsets of topic {name!r}")
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
            )
        ],
    )
    response = await console.client.ask(broker, request)
    _require_success(response.error_code, f"group {group!r}")
    for topic in response.topics:
        for one in topic.partitions:
            _require_success(one.error_code, f"{name}-{one.partition_index}")
    console.group_offsets.forget()
    return Done(done=f"{len(partitions)} offsets of {name} were deleted from group {group}")


async def _produce(console: Console, name: str, partition: int, record: RecordData) -> Produced:
    state = require_topic(console, name)
    if partition < 0:
        partition = _partition_of(console, record.key, len(state.partitions))
    if partition not in state.partitions:
        raise bad_request(f"partition {partition}: topic {name!r} has 0 to {len(state.partitions) - 1}")
    leader = console.services.metadata_cache.leader_of(name, partition)
    if leader == NO_LEADER:
        raise of_code(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{partition}")
    request = ProduceRequest(
        acks=ALL_IN_SYNC,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=partition, records=build_batch([record]))],
            )
        ],
    )
    result = (await console.client.ask(leader, request)).responses[0].partition_responses[0]
    _require_success(result.error_code, result.error_message or f"{name}-{partition}")
    return Produced(topic=name, partition=partition, offset=str(result.base_offset))


def _partition_of(console: Console, key: bytes | None, count: int) -> int:
    """Return the partition that Java clients choose for a key; for none, a random one."""
    if key is None:
        return console.services.random.randrange(count)
    return (murmur2(key) & 0x7FFF_FFFF) % count


def _bytes(part: str, text: str | None, encoding: Encoding) -> bytes | None:
    if text is None:
        return None
    if encoding == "text":
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise bad_request(f"the {part} has characters that are not Unicode") from None
    try:
        return binascii.unhexlify("".join(text.split()))
    except (ValueError, binascii.Error):
        raise bad_request(f"the {part} is not hexadecimal: expected two digits a byte") from None


def _original_topic(headers: list[tuple[str, bytes | None]], name: str) -> str:
    wanted = (name,) if name else TOPIC_HEADERS
    for each in wanted:
        for key, value in headers:
            if key == each and value:
                return bytes(value).decode(errors="replace")
    raise bad_request(f"the record has no header {' or '.join(wanted)}")


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


async def _commit(console: Console, broker: int, group: str, rows: list[ResetRow]) -> None:
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
    response = await console.client.ask(broker, request)
    for topic in response.topics:
        for one in topic.partitions:
            _require_success(one.error_code, f"{topic.name}-{one.partition_index}")
    console.group_offsets.forget()


def _require_success(code: int, message: str) -> None:
    if code:
        raise of_code(code, message)
