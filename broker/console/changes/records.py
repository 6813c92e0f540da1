"""Records are produced, sent again, and sent back to the topic of a dead letter.

Owns what is produced. Must not know HTTP.
"""

from __future__ import annotations

import binascii
from typing import Final, Literal, TypedDict

from broker.cluster.metadata_cache import NO_LEADER
from broker.console.changes.change import TIMEOUT_MS, require_success
from broker.console.changes.murmur2 import murmur2
from broker.console.console import Console
from broker.console.problem import ProblemError, bad_request, of_code
from broker.console.topics import require_topic
from broker.network.outgoing import PeerUnavailable
from protocol.errors import ErrorCode, KafkaError, Malformed
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch

ALL_IN_SYNC: Final = -1
PRODUCE_TIMEOUT_MS: Final = 10_000
RECORDS_MAX: Final = 100
TOPIC_HEADERS: Final = (
    "kafka_dlt-original-topic",
    "__connect.errors.topic",
    "x-original-topic",
    "original-topic",
)
"""Headers in which common frameworks note where a dead letter comes from."""

Encoding = Literal["text", "hex"]


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
        except (KafkaError, PeerUnavailable, Malformed) as error:
            result["problem"] = str(error)
        results.append(result)
    return ResendResult(records=results)


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
    result = (await console.client.ask(leader, request, timeout_ms=TIMEOUT_MS)).responses[0].partition_responses[0]
    require_success(result.error_code, result.error_message or f"{name}-{partition}")
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
        return text.encode()
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
