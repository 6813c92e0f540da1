"""Maps the ids that the broker of a captured conversation generated to those of the broker under test.

Owns: learning the pairs of ids from pairs of responses, and replacing ids in later requests. Everything else
of a request is sent as it was captured, but for two values that depend on how much was written before: an offset to
read from, and the sequence numbers of idempotent batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from uuid import UUID

import crc32c

from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.produce import ProduceRequest
from protocol.records.batch import BatchHeader, batches
from protocol.schema import ZERO_UUID, Struct

# Field -> what it names. Two fields that name the same thing share one table.
IDS = {
    "topic_id": "topic",
    "session_id": "fetch session",
    "producer_id": "producer",
    "v3_and_below_producer_id": "producer",
    "member_id": "member",
    "leader": "member",
}
# A group's generations start at 1 for every group; theirs and ours differ when the capture left a rebalance out.
GENERATIONS = ("generation_id", "generation_id_or_member_epoch")
PRODUCER_EPOCHS = ("producer_epoch", "v3_and_below_producer_epoch")
UNSET: Mapping[str, tuple[object, ...]] = {"fetch session": (0,), "producer": (-1,)}
UNSET_BY_DEFAULT: tuple[object, ...] = (-1, "", None, ZERO_UUID)

FETCH_WAIT_MS_MAX = 20
"""A fetch that finds nothing waits no longer than this: how long clients wait is not compared."""

MAGIC_OFFSET = 16
MAGIC = 2
CRC = struct.Struct(">I")
CRC_OFFSET, CRC_START = 17, 21
PRODUCER = struct.Struct(">qhi")
PRODUCER_OFFSET = 43


class UntoldError(Exception):
    """The request depends on an id from a response that the capture lacks."""


class World(Protocol):
    """What the broker under test has."""

    def log_end(self, topic: str, partition: int) -> int: ...
    def topic_id(self, topic: str) -> UUID: ...


class Translation:
    """Captured value -> ours, by what the value names. `topics` are the names of the captured topic ids."""

    def __init__(self, topics: Mapping[UUID, str], world: World) -> None:
        self._topics = topics
        self._world = world
        self._ours: dict[tuple[str, object], Any] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._next_sequence: dict[tuple[str, int, int, int], int] = {}
        self._next_session_epoch: dict[int, int] = {}

    def learn(self, request: Any, theirs: Any, ours: Any) -> None:
        """Learn the ids of two responses to the same request."""
        for name, their_value, our_value in _pairs(theirs, ours):
            kind = _kind(name, request)
            if kind is not None and is_given(kind, their_value) and is_given(kind, our_value):
                self._ours[kind, their_value] = our_value
        if isinstance(theirs, InitProducerIdResponse):
            self._epochs[theirs.producer_id, theirs.producer_epoch] = ours.producer_epoch
        if isinstance(ours, FetchResponse) and ours.session_id:
            self._next_session_epoch.setdefault(ours.session_id, 1)

    def apply(self, request: Any, theirs: Any) -> None:
        """Change a captured request, whose response is `theirs`, in place to what the same client would send to Milena.

        May raise `UntoldError`.
        """
        for owner, name, value in list(_fields(request)):
            if name in PRODUCER_EPOCHS and value >= 0:
                setattr(owner, name, self._our_epoch(getattr(owner, name.replace("epoch", "id")), value))
        if isinstance(request, FetchRequest):
            request.max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MS_MAX)
            self._place_fetch(request, theirs)
        for owner, name, value in list(_fields(request)):
            kind = _kind(name, request)
            if kind is not None and is_given(kind, value):
                setattr(owner, name, self._our_id(kind, value))
        if isinstance(request, ProduceRequest):
            self._number_batches(request)
        if isinstance(request, FetchRequest) and request.session_epoch > 0:
            request.session_epoch = self._next_session_epoch[request.session_id]
            self._next_session_epoch[request.session_id] += 1
        if isinstance(request, ListOffsetsRequest | FetchRequest):
            _forget_leader_epochs(request)

    def _our_id(self, kind: str, value: Any) -> Any:
        if kind == "topic" and value in self._topics:
            return self._world.topic_id(self._topics[value])
        if (kind, value) not in self._ours:
            raise UntoldError(f"{kind} {value}")
        return self._ours[kind, value]

    def _our_epoch(self, producer_id: int, epoch: int) -> int:
        if (producer_id, epoch) not in self._epochs:
            raise UntoldError(f"producer {producer_id}, epoch {epoch}")
        return self._epochs[producer_id, epoch]

    def _number_batches(self, request: ProduceRequest) -> None:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                records = bytearray(partition.records or b"")
                if len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] == MAGIC:
                    for position, header in list(batches(records)):
                        if header.producer_id >= 0:
                            self._number_batch((topic.name, partition.index), records, position, header)
                    partition.records = records

    def _number_batch(self, partition: tuple[str, int], records: bytearray, position: int, header: BatchHeader) -> None:
        producer_id = self._our_id("producer", header.producer_id)
        epoch = self._our_epoch(header.producer_id, header.producer_epoch)
        key = (*partition, producer_id, epoch)
        sequence = self._next_sequence.get(key, 0)
        self._next_sequence[key] = sequence + header.records_count
        PRODUCER.pack_into(records, position + PRODUCER_OFFSET, producer_id, epoch, sequence)
        CRC.pack_into(
            records, position + CRC_OFFSET, crc32c.crc32c(records[position + CRC_START : position + header.size])
        )

    def _place_fetch(self, request: FetchRequest, theirs: FetchResponse) -> None:
        """Read where we have records if they had, at our end if not."""
        had_records = {
            (responded.topic, responded.topic_id, partition.partition_index)
            for responded in theirs.responses
            for partition in responded.partitions
            if partition.records
        }
        for topic in request.topics:
            name = topic.topic or self._topics[topic.topic_id]
            for partition in topic.partitions:
                end = self._world.log_end(name, partition.partition)
                if (topic.topic, topic.topic_id, partition.partition) in had_records:
                    partition.fetch_offset = min(partition.fetch_offset, max(end - 1, 0))
                else:
                    partition.fetch_offset = end


def is_given(kind: str, value: object) -> bool:
    return value not in UNSET.get(kind, UNSET_BY_DEFAULT)


def _kind(name: str, request: Any) -> str | None:
    if name in GENERATIONS:
        return f"generation of {request.group_id}" if getattr(request, "group_id", "") else None
    return IDS.get(name)


def _forget_leader_epochs(request: ListOffsetsRequest | FetchRequest) -> None:
    """Leaders moved between their brokers; one broker alone led everything from the first epoch on."""
    for topic in request.topics:
        for partition in topic.partitions:
            partition.current_leader_epoch = min(partition.current_leader_epoch, 0)


def _fields(message: Any) -> Iterator[tuple[Any, str, Any]]:
    """(owner, field, value) of every field, however deep."""
    if isinstance(message, list):
        for item in message:
            yield from _fields(item)
    elif isinstance(message, Struct):
        for field in message.__fields__:
            value = getattr(message, field.name)
            yield message, field.name, value
            yield from _fields(value)


def _pairs(theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, their value, our value) of fields in both responses; list items are matched by name or number."""
    for field in theirs.__fields__:
        their_value, our_value = getattr(theirs, field.name), getattr(ours, field.name)
        if isinstance(their_value, list) and isinstance(our_value, list):
            for their_item, our_item in matched(their_value, our_value):
                if isinstance(their_item, Struct) and isinstance(our_item, Struct):
                    yield from _pairs(their_item, our_item)
        elif isinstance(their_value, Struct) and isinstance(our_value, Struct):
            yield from _pairs(their_value, our_value)
        else:
            yield field.name, their_value, our_value


# fmt: off
ITEM_NAMES = (
    "name", "topic", "topic_name", "group_id", "key", "partition_index", "index", "partition", "resource_name",
    "api_key", "transactional_id", "user",
)
# fmt: on


def matched(theirs: list[Any], ours: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Items of two lists that speak of the same thing; None where only one list has it."""
    left = {_item_name(item, number): item for number, item in enumerate(theirs)}
    right = {_item_name(item, number): item for number, item in enumerate(ours)}
    for name in left | right:
        yield left.get(name), right.get(name)


def _item_name(item: Any, number: int) -> object:
    if isinstance(item, Struct):
        for name in ITEM_NAMES:
            if (value := getattr(item, name, None)) not in (None, ""):
                return name, value
    return number
